"""Compaction and retention: from a partition as it is to what is left of it."""
