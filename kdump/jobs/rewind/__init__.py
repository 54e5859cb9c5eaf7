"""Log directories as they were at a moment."""
