"""Segments as columns: batch headers, and records as positions in the bytes."""
