"""Partitions as listings show them."""
