"""Compact many partitions."""
