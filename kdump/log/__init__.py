"""A partition and a log directory as they lie on disk."""
