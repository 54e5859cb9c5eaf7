"""The latest record of each key of a compacted topic."""
