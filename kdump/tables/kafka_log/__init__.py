"""The Spark data source ``kafka-log``."""
