"""Deleting old segments as a broker does."""
