"""Output: formats, reports, progress."""
