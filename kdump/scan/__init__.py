"""Segments as columns: headers as NumPy arrays, records as positions, checksums, split points."""
