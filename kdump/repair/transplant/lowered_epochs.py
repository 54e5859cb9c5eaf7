"""A log whose batches get lower leader epochs while it is copied.

The leader epoch is outside the checksum of a batch (``DefaultRecordBatch``), so a broker sets it
without touching the records; here the bytes are set on their way to a new file.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from kdump.formats import record_batch
from kdump.formats.checkpoints import EpochEntry
from kdump.storage.location import Location

_CHUNK_BYTES: Final = 1 << 20
_EPOCH_START: Final = record_batch.LOG_OVERHEAD_BYTES
_EPOCH_END: Final = record_batch.MAGIC_START
_LENGTH_START: Final = 8
_FIRST_MAGIC_WITH_EPOCHS: Final = 2


class StoredRange(Struct, frozen=True):
    """The bytes from ``start`` to ``end`` of a file of any storage, as it was when it was planned.

    Attributes:
        start: the first byte.
        end: the byte after the last one.
        size_bytes: of the whole file; likewise ``modified_ns``.
    """

    location: Location
    start: int
    end: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, location: Location, start: int = 0, end: int | None = None) -> StoredRange:
        """A range of a file as it is now; to its end without ``end``.

        Raises:
            OSError: there is none.
        """
        status = location.status()
        end = status.size_bytes if end is None else end
        return cls(location, start, end, status.size_bytes, status.modified_ns)

    def pieces(self) -> Iterator[bytes]:
        """Read the range.

        Raises:
            OSError: the file cannot be read, or has changed.
        """
        self._require_same()
        position = self.start
        with self.location.open_file() as file:
            while position < self.end:
                buffer = bytearray(min(_CHUNK_BYTES, self.end - position))
                count = file.read_into(memoryview(buffer), position)
                if count < len(buffer):
                    raise OSError(errno.EIO, "became shorter while it was read", str(self.location))
                position += count
                yield bytes(buffer)
        self._require_same()

    def _require_same(self) -> None:
        status = self.location.status()
        if (status.size_bytes, status.modified_ns) != (self.size_bytes, self.modified_ns):
            raise OSError(errno.ESTALE, "was changed while it was read", str(self.location))


class TransplantedFile(Struct, frozen=True):
    """Ranges of files, concatenated; the content of a new file.

    Attributes:
        ranges: in order.
        highest_epoch: batches get no leader epoch above it; None copies the bytes as they are.
    """

    ranges: tuple[StoredRange, ...]
    highest_epoch: int | None = None

    @property
    def size_bytes(self) -> int:
        return sum(each.end - each.start for each in self.ranges)

    def pieces(self) -> Iterator[bytes]:
        """Produce the content.

        Raises:
            OSError: a file cannot be read, or has changed.
        """
        pieces = (piece for each in self.ranges for piece in each.pieces())
        return pieces if self.highest_epoch is None else lowered(pieces, self.highest_epoch)


def lowered(pieces: Iterable[bytes], highest_epoch: int) -> Iterator[bytes]:
    """Yield the bytes of a log with no leader epoch above ``highest_epoch``.

    Args:
        pieces: the bytes of whole and valid batches, cut anywhere.
        highest_epoch: higher ones become this one; batches of magic 0 and 1 have none.
    """
    held = b""
    skipped = 0
    """How many bytes from the beginning of ``held`` belong to a batch that was seen."""
    for piece in pieces:
        data = bytearray(held + piece)
        at = skipped
        while at + record_batch.MAGIC_START < len(data):
            if data[at + record_batch.MAGIC_START] >= _FIRST_MAGIC_WITH_EPOCHS:
                where = slice(at + _EPOCH_START, at + _EPOCH_END)
                if int.from_bytes(data[where], signed=True) > highest_epoch:
                    data[where] = highest_epoch.to_bytes(_EPOCH_END - _EPOCH_START, signed=True)
            length = int.from_bytes(data[at + _LENGTH_START : at + _EPOCH_START], signed=True)
            at += record_batch.LOG_OVERHEAD_BYTES + max(length, record_batch.MAGIC_START)
        # The beginning of a batch whose magic is not there yet is held back.
        cut = min(at, len(data))
        yield bytes(data[:cut])
        held, skipped = bytes(data[cut:]), at - cut
    if held:
        yield held


def lowered_entries(
    entries: Iterable[EpochEntry], highest_epoch: int | None
) -> tuple[EpochEntry, ...]:
    """The entries of ``leader-epoch-checkpoint`` with no epoch above ``highest_epoch``."""
    found: list[EpochEntry] = []
    for entry in entries:
        epoch = entry.epoch if highest_epoch is None else min(entry.epoch, highest_epoch)
        if not found or found[-1].epoch < epoch:
            found.append(EpochEntry(epoch, entry.start_offset))
    return tuple(found)
