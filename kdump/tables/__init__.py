"""Records and batches as Arrow tables."""
