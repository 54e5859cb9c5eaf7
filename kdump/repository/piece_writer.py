"""Write the bytes of a file whose beginning is known, or expected, piece by piece."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import IO, Final

from kdump.storage.repository_documents import RepositoryPiece
from kdump.storage.sparse_writer import SparseWriter

_ZEROES: Final = bytes(1 << 20)


class PieceDiffersError(Exception):
    """The bytes of a piece are not those that were expected.

    Attributes:
        number: of the piece, from 0.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class PieceWriter(SparseWriter):
    """Takes the bytes of a file in order, and compares the expected pieces by their SHA-256.

    Holes are not read: they count as zeroes.
    """

    def __init__(
        self,
        stream: IO[bytes],
        expected: Sequence[RepositoryPiece],
        *,
        written_from: int = 0,
        most_bytes: int | None = None,
        next_stream: Callable[[RepositoryPiece], IO[bytes]] | None = None,
    ) -> None:
        """Take an empty stream.

        Args:
            stream: to write to.
            expected: the pieces at the beginning of the file.
            written_from: bytes before this one are only compared.
            most_bytes: in a new piece; None for any number.
            next_stream: called with a piece of so many bytes that is complete, if more bytes
                follow: gives another empty stream.
        """
        super().__init__(stream)
        self._rest = SparseWriter(stream)
        self._written_from = written_from
        self._expected = expected
        self._number = 0
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._most_bytes = most_bytes
        self._next_stream = next_stream
        self._piece_end = expected[0].size_bytes if expected else None

    def write(self, data: memoryview) -> None:
        """Append bytes.

        Raises:
            PieceDiffersError: the bytes of a piece are others.
            WriteFailedError: the disk is full, or fails.
        """
        self._pass_hole(self.position)
        while data:
            part = data[: self._room(len(data))]
            self._pass(part)
            skipped = max(0, min(len(part), self._written_from - self.position))
            if skipped < len(part):
                self._rest.position = self.position + skipped - self._written_from
                self._rest.write(part[skipped:])
            self.position += len(part)
            data = data[len(part) :]

    def end(self, size_bytes: int) -> str:
        """Set the size of the file; returns the SHA-256 of its last new piece.

        Raises:
            PieceDiffersError: the bytes of a piece are others.
            WriteFailedError: the disk is full, or fails.
        """
        self._pass_hole(size_bytes)
        self._next_pieces()
        assert self._piece_end is None
        self._rest.finish(size_bytes - self._written_from)
        return self._hash.hexdigest()

    def _pass_hole(self, end: int) -> None:
        zeroes = memoryview(_ZEROES)
        while self._hashed < end:
            self._pass(zeroes[: self._room(end - self._hashed)])

    def _room(self, count: int) -> int:
        """How many of the next bytes are of the same new piece; begins another if it is full."""
        if self._most_bytes is None or self._next_stream is None:
            return count
        if self._hashed == self._written_from + self._most_bytes:
            self._rest.finish(self._most_bytes)
            piece = RepositoryPiece(self._hash.hexdigest(), self._most_bytes)
            self._rest = SparseWriter(self._next_stream(piece))
            self._hash = hashlib.sha256()
            self._written_from = self._hashed
        return min(count, self._written_from + self._most_bytes - self._hashed)

    def _pass(self, data: memoryview) -> None:
        while data:
            self._next_pieces()
            count = len(data)
            if self._piece_end is not None:
                count = min(count, self._piece_end - self._hashed)
            self._hash.update(data[:count])
            self._hashed += count
            data = data[count:]
        self._next_pieces()

    def _next_pieces(self) -> None:
        """Compare the pieces that end here."""
        while self._hashed == self._piece_end:
            if self._hash.hexdigest() != self._expected[self._number].sha256:
                raise PieceDiffersError(self._number)
            self._hash = hashlib.sha256()
            self._number += 1
            if self._number == len(self._expected):
                self._piece_end = None
            else:
                self._piece_end = self._hashed + self._expected[self._number].size_bytes
