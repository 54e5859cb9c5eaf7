"""Target files: what each file of a directory should become.

Each value names the content by where it is on disk today, so no segment is held in memory. A
mapping from file name to target file is the target state of a directory, and what rules return.
"""

from __future__ import annotations

from msgspec import Struct


class Kept(Struct, frozen=True):
    """Stays unchanged."""


class KeptUpTo(Struct, frozen=True):
    """Is truncated to its first ``size_bytes`` bytes."""

    size_bytes: int


class RenamedFrom(Struct, frozen=True):
    """Is the file ``name`` under a new name, truncated to ``size_bytes`` bytes.

    No other target file uses that file, and its old name is free afterwards.
    """

    name: str
    size_bytes: int


class CopiedFrom(Struct, frozen=True):
    """Holds the bytes from ``start`` to ``end`` of file ``name``, as it is before any change."""

    name: str
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class JoinedFrom(Struct, frozen=True):
    """Holds ``pieces``, concatenated."""

    pieces: tuple[CopiedFrom, ...]

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


class NewBytes(Struct, frozen=True):
    """Holds ``data``; the file may or may not exist yet."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)


class StagedBytes(Struct, frozen=True):
    """Holds new bytes that are not in memory.

    Attributes:
        size_bytes: how many there are.
        name: the file in the log directory that has them already; empty in a preview, which does
            not need them.
    """

    size_bytes: int
    name: str = ""


class Gone(Struct, frozen=True):
    """Is deleted, if it exists."""


TargetFile = Kept | KeptUpTo | RenamedFrom | CopiedFrom | JoinedFrom | NewBytes | StagedBytes | Gone
