"""Where bytes are kept: listing, opening and reading, the same for every kind of storage."""
