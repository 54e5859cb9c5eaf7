"""A file that a job could not read, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file of a partition that could not be read.

    Attributes:
        path: its path.
        what: the error.
    """

    path: str
    what: str
