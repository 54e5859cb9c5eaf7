"""Compaction of many partitions."""
