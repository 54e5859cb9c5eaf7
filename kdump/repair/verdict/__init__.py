"""What loading, or a repair, would do to a partition, in words."""
