"""SQL statements over the tables."""
