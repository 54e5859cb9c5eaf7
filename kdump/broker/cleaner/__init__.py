"""Compacting a log as a broker's log cleaner does."""
