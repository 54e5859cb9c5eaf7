"""A file that a job could not read, as a value."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from kdump.errors import reason_of
from kdump.storage.location import Location


class Unreadable(Struct, frozen=True):
    """A file of a partition that could not be read."""

    path: str
    what: str

    @classmethod
    def of(cls, failure: OSError, path: Location) -> Self:
        """Describe a failure; ``path`` is that of the partition, if it names no file."""
        return cls(failure.filename or str(path), reason_of(failure))
