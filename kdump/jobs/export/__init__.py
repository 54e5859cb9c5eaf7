"""Export records as files that other programs read."""
