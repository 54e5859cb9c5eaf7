"""kdump: look into, check and repair the log directories of a stopped Apache Kafka broker."""

__version__ = "0.1.0"
