"""Compaction of whole log directories: its jobs, and the exchange of segments as it goes on."""
