"""Copy partitions or a log directory to a new log directory on a local disk."""
