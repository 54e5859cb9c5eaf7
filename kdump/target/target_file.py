"""What becomes of each file of a partition: values that name content without holding segments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """Stays, with every byte as it is."""


@dataclass(frozen=True, slots=True)
class KeptUpTo:
    """Stays, and ends after its first ``size_bytes`` bytes."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class RenamedFrom:
    """Is the file that had another name, or its first ``size_bytes`` bytes.

    Nothing else is made from that file, and its old name is wanted for nothing else.
    """

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CopiedFrom:
    """Holds the bytes from ``start`` to ``end`` that file ``name`` has now, before any change."""

    name: str
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class JoinedFrom:
    """Holds ``pieces`` one behind the other, each as its file has it now, before any change."""

    pieces: tuple[CopiedFrom, ...]

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class NewBytes:
    """Holds ``data``, whatever was there before."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class Gone:
    """Is not there any more."""


WantedFile = Kept | KeptUpTo | RenamedFrom | CopiedFrom | JoinedFrom | NewBytes | Gone
