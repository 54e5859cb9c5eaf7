"""What could not be read, or made sense of, while a directory was looked at: a value each."""

from __future__ import annotations

from dataclasses import dataclass

from kdump.formats.errors import FormatError
from kdump.storage.location import Location


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file or directory about which less is known than should be.

    Attributes:
        path: which.
        error: a :class:`FormatError` where its content is damaged, else why it cannot be read.
    """

    path: Location
    error: FormatError | OSError

    @property
    def is_damage(self) -> bool:
        """Whether the data is to blame, rather than the machine or a permission."""
        return isinstance(self.error, FormatError)

    def __str__(self) -> str:
        if isinstance(self.error, OSError):
            return f"{self.error.filename or self.path}: {self.error.strerror or self.error}"
        return f"{self.path}: {self.error}"
