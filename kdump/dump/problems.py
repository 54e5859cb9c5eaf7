"""Problems that a dump found: one value for each place, one line for each value."""

from __future__ import annotations

from msgspec import Struct

from kdump.formats.errors import FormatError, expected_and_found
from kdump.storage.location import Location


class DumpProblem(Struct, frozen=True):
    """Damage at one place of one file.

    Attributes:
        path: the file that was being dumped, as the command named it.
        position: the byte in that file, or None for the file as a whole.
        what: what is wrong, without place (``"offset index entry points past the log"``).
        expected: what would have been right, where that can be said.
        found: the actual value.
    """

    path: Location
    position: int | None
    what: str
    expected: str | None = None
    found: str | None = None

    @classmethod
    def from_format_error(cls, path: Location, error: FormatError, *, at: int = 0) -> DumpProblem:
        """Make a problem of ``error``, whose position counts from byte ``at`` of ``path``."""
        return cls(
            path,
            at + error.position,
            error.what,
            None if error.expected is None else str(error.expected),
            None if error.found is None else str(error.found),
        )

    def __str__(self) -> str:
        place = f"{self.path}" if self.position is None else f"{self.path}: byte {self.position}"
        return f"{place}: {self.what}{expected_and_found(self.expected, self.found)}"
