"""A partition's log in another cluster."""
