"""Files of a directory that cannot be read or are damaged, as values."""

from __future__ import annotations

from msgspec import Struct

from kdump.errors import reason_of
from kdump.formats.errors import FormatError
from kdump.storage.location import Location


class FileProblem(Struct, frozen=True):
    """A file or directory that cannot be read or is damaged.

    Attributes:
        path: of the file or directory.
        error: a :class:`FormatError` if its content is damaged, otherwise why it cannot be read.
    """

    path: Location
    error: FormatError | OSError

    @property
    def is_damage(self) -> bool:
        """Whether the content is damaged; otherwise the machine or a permission is the cause."""
        return isinstance(self.error, FormatError)

    def __str__(self) -> str:
        if isinstance(self.error, OSError):
            return f"{self.error.filename or self.path}: {reason_of(self.error)}"
        return f"{self.path}: {self.error}"
