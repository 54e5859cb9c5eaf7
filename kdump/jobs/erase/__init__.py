"""Erase records by key, offset or field: what the engine is asked, and how results are merged."""
