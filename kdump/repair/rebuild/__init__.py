"""Rebuild files that can be derived from others."""
