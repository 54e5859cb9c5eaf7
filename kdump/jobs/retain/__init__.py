"""Delete old segments and records."""
