"""Keeping what is valid of a damaged partition."""
