"""Repositories of backups: how they are written and locked."""
