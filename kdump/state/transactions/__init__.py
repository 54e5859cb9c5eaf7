"""Producers and transactions, as partitions and as their coordinator see them."""
