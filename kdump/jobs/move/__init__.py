"""Moving partitions between the log directories of one broker."""
