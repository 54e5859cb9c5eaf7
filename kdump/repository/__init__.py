"""Repositories of backups: what was backed up, and when."""
