"""Erase records by key or offset: what is asked of the engine, and how results come together."""
