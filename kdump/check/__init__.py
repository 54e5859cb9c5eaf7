"""Invariants of a log directory: one function each, one finding code each."""
