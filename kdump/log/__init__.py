"""Partitions and log directories: what is in them, and seeking in their logs."""
