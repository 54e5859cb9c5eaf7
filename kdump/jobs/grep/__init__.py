"""Search records by patterns."""
