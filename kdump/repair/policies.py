"""The policies of repairs."""

from __future__ import annotations

import enum


class Policy(enum.Enum):
    """What to do with damaged data; the value is the word on the command line."""

    BROKER = "broker"
    """Do exactly what a starting broker does."""
    SALVAGE = "salvage"
    """Keep every valid batch, and quarantine damaged bytes."""
    TRUNCATE = "truncate"
    """Cut the log at its first damaged batch, flushed or not."""
