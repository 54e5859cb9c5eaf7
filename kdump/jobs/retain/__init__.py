"""Deleting old segments and records."""
