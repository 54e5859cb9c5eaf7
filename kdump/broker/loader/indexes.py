"""The three indexes of a segment while it is loaded: read on first use, trimmed when closed.

Follows ``AbstractIndex``, ``OffsetIndex``, ``TimeIndex`` and ``TransactionIndex``. An existing file
is trusted: every whole entry counts, padding included. A running broker resizes the indexes of the
active segment to their maximum and undoes that when it closes them; that is not repeated here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kdump.formats import offset_index, time_index, transaction_index
from kdump.formats.index_search import NO_SLOT, Column, largest_lower_bounds
from kdump.formats.transaction_index import AbortedTxn
from kdump.scan.source import without_padding
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory, Written

NO_TIMESTAMP: Final = -1


class InvalidOffset(Exception):
    """An entry for an index is at or below its last one.

    A recovering broker takes that for the end of the log, and empties the segment.
    """

    def __init__(self, offset: int, last_offset: int) -> None:
        super().__init__(f"offset {offset} follows {last_offset} in the index")
        self.offset = offset


class _IndexBytes:
    """The bytes of an index file when it was loaded.

    The padding of an index in use is megabytes. It is read only for who looks at the entries:
    recovery drops them all.
    """

    def __init__(self, directory: VirtualDirectory, name: str, max_bytes: int) -> None:
        directory.require_no_directory(name, "FileNotFoundException")
        self.exists = name in directory
        self._max_bytes = max_bytes
        self._directory = directory
        self._content = directory.content(name) if self.exists else Written(b"")
        self._written: bytes | None = None

    def written(self) -> bytes:
        """All up to the padding."""
        if self._written is None:
            self._written = self._directory.read_written(self._content)
        return self._written

    def padded(self) -> bytes:
        """All of them."""
        return self.written().ljust(self._content.size_bytes, b"\0")

    def release(self) -> None:
        """Free memory; they are read again when needed."""
        self._written = None

    def mapped(self, entries: bytes) -> Written:
        """The content of the file while it is open with other entries.

        Kafka maps the file into memory and counts entries: old content stays after them until the
        index is trimmed. If loading is aborted at the segment, that never happens.
        """
        stale = without_padding(self.written()[: self._max_bytes])
        data = entries + stale[len(entries) :]
        return Written(data, max(0, self._max_bytes - len(data)))


class OffsetIndexFile:
    """An offset index that has been loaded."""

    def __init__(
        self, directory: VirtualDirectory, name: str, base_offset: int, max_bytes: int
    ) -> None:
        self._directory = directory
        self.name = name
        self.base_offset = base_offset
        self._max_bytes = max_bytes // offset_index.ENTRY_BYTES * offset_index.ENTRY_BYTES
        self._file = _IndexBytes(directory, name, self._max_bytes)
        self._columns: tuple[Column, Column] | None = None
        self._released: tuple[int, int] | None = None  # number of entries, and last offset
        self._is_rebuilt = False
        if not self._file.exists:
            self.reset()

    @property
    def offset(self) -> Column:
        """Of each entry, absolute."""
        return self._entries()[0]

    @property
    def position(self) -> Column:
        """Of each entry."""
        return self._entries()[1]

    def _entries(self) -> tuple[Column, Column]:
        if self._columns is None:
            data = self._file.padded()
            if self._released is not None:
                size_bytes = self._count * offset_index.ENTRY_BYTES
                data = self._directory.read_first(self.name, size_bytes)
            index = offset_index.decode(data, self.base_offset)
            self._columns = index.offset, index.position
        return self._columns

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return self._max_bytes // offset_index.ENTRY_BYTES - self._count

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if there is none."""
        if self._released is not None:
            return self._released[1]
        return int(self.offset[-1]) if len(self.offset) else self.base_offset

    @property
    def _count(self) -> int:
        return len(self.offset) if self._released is None else self._released[0]

    def reset(self) -> None:
        """Remove all entries."""
        self._set(np.empty(0, np.int64), np.empty(0, np.int64))

    def extend(self, offset: Column, position: Column) -> None:
        """Append entries; the caller ensures that offsets rise."""
        if len(offset):
            self._set(
                np.concatenate((self.offset, offset)), np.concatenate((self.position, position))
            )

    def lookup(self, offset: int) -> int:
        """Position of the last entry at or below ``offset``; 0 if there is none."""
        slot = _slot(self.offset, offset, offset_index.ENTRY_BYTES)
        return 0 if slot == NO_SLOT else int(self.position[slot])

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        count = _count_below(self.offset, offset, offset_index.ENTRY_BYTES)
        self._set(self.offset[:count], self.position[:count])

    def require_resizable(self) -> None:
        """Refuse an index that is larger than that of an active segment."""
        _require_resizable(self.name, self._count * offset_index.ENTRY_BYTES, self._max_bytes)

    def trim(self) -> None:
        """Truncate the file to its last entry."""
        if self._is_rebuilt and self._released is None:
            self._directory.put(self.name, Written(self._encoded()))
        else:
            self._directory.truncate(self.name, self._count * offset_index.ENTRY_BYTES)

    def release(self) -> None:
        """Free the memory of the entries of a trimmed index; they are read again when needed."""
        if self._columns is not None:
            self._released = self._count, self.last_offset
            self._columns = None
        self._file.release()
        self._directory.release(self.name)

    def _set(self, offset: Column, position: Column) -> None:
        self._columns, self._released = (offset, position), None
        self._is_rebuilt = True
        self._directory.put(self.name, self._file.mapped(self._encoded()))

    def _encoded(self) -> bytes:
        rows = np.zeros(len(self.offset), offset_index.ENTRY_DTYPE)
        rows["relative_offset"] = self.offset - self.base_offset
        rows["position"] = self.position
        return rows.tobytes()


class TimeIndexFile:
    """A time index that has been loaded."""

    def __init__(
        self, directory: VirtualDirectory, name: str, base_offset: int, max_bytes: int
    ) -> None:
        self._directory = directory
        self.name = name
        self.base_offset = base_offset
        self._max_bytes = max_bytes // time_index.ENTRY_BYTES * time_index.ENTRY_BYTES
        self._file = _IndexBytes(directory, name, self._max_bytes)
        self._columns: tuple[Column, Column] | None = None
        self._released: tuple[int, tuple[int, int]] | None = None  # number, and last entry
        self._is_rebuilt = False
        if not self._file.exists:
            self.reset()

    @property
    def timestamp(self) -> Column:
        """Of each entry."""
        return self._entries()[0]

    @property
    def offset(self) -> Column:
        """Of each entry, absolute."""
        return self._entries()[1]

    def _entries(self) -> tuple[Column, Column]:
        if self._columns is None:
            data = self._file.padded()
            if self._released is not None:
                size_bytes = self._count * time_index.ENTRY_BYTES
                data = self._directory.read_first(self.name, size_bytes)
            index = time_index.decode(data, self.base_offset)
            self._columns = index.timestamp, index.offset
        return self._columns

    @property
    def room(self) -> int:
        """How many entries fit; the last slot is reserved for closing the segment."""
        return self._max_bytes // time_index.ENTRY_BYTES - 1 - self._count

    @property
    def last_entry(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; -1 and the base offset if there is none."""
        if self._released is not None:
            return self._released[1]
        if not len(self.offset):
            return NO_TIMESTAMP, self.base_offset
        return int(self.timestamp[-1]), int(self.offset[-1])

    @property
    def _count(self) -> int:
        return len(self.offset) if self._released is None else self._released[0]

    def reset(self) -> None:
        self._set(np.empty(0, np.int64), np.empty(0, np.int64))

    def extend(self, timestamp: Column, offset: Column) -> None:
        """Append entries; the caller ensures that timestamps and offsets rise."""
        if len(offset):
            self._set(
                np.concatenate((self.timestamp, timestamp)), np.concatenate((self.offset, offset))
            )

    def append_last(self, timestamp: int, offset: int) -> None:
        """Append the largest timestamp of a segment that is closed, if it has no entry yet.

        Raises:
            InvalidOffset: the offset is below that of the last entry.
            Refused: the timestamp is below that of the last entry, or the index is full.
        """
        last_timestamp, last_offset = self.last_entry
        if self._count:
            if offset < last_offset:
                raise InvalidOffset(offset, last_offset)
            if timestamp < last_timestamp:
                raise Refused(
                    f"timestamp {timestamp} follows {last_timestamp} in the index",
                    self.name,
                    "IllegalStateException",
                )
        if timestamp > last_timestamp:
            if self.room < 0:
                raise Refused("the time index is full", self.name, "BufferOverflowException")
            self.extend(np.array([timestamp], np.int64), np.array([offset], np.int64))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        count = _count_below(self.offset, offset, time_index.ENTRY_BYTES)
        self._set(self.timestamp[:count], self.offset[:count])

    def require_resizable(self) -> None:
        """Refuse an index that is larger than that of an active segment."""
        _require_resizable(self.name, self._count * time_index.ENTRY_BYTES, self._max_bytes)

    def trim(self) -> None:
        """Truncate the file to its last entry."""
        if self._is_rebuilt and self._released is None:
            self._directory.put(self.name, Written(self._encoded()))
        else:
            self._directory.truncate(self.name, self._count * time_index.ENTRY_BYTES)

    def release(self) -> None:
        """Free the memory of the entries of a trimmed index; they are read again when needed."""
        if self._columns is not None:
            self._released = self._count, self.last_entry
            self._columns = None
        self._file.release()
        self._directory.release(self.name)

    def _set(self, timestamp: Column, offset: Column) -> None:
        self._columns, self._released = (timestamp, offset), None
        self._is_rebuilt = True
        self._directory.put(self.name, self._file.mapped(self._encoded()))

    def _encoded(self) -> bytes:
        rows = np.zeros(len(self.offset), time_index.ENTRY_DTYPE)
        rows["timestamp"] = self.timestamp
        rows["relative_offset"] = self.offset - self.base_offset
        return rows.tobytes()


class TransactionIndexFile:
    """A transaction index; its file is created with the first entry, and never padded.

    Raises:
        Refused: a directory has its name.
    """

    def __init__(self, directory: VirtualDirectory, name: str) -> None:
        self._directory = directory
        self.name = name
        self._last_offset: int | None = None
        self._appended: list[AbortedTxn] = []
        directory.require_no_directory(name, "FileSystemException")

    def entries(self) -> tuple[AbortedTxn, ...]:
        """All whole entries."""
        if self.name not in self._directory:
            return ()
        return transaction_index.decode(self._directory.read(self.name)).entries

    def is_sane(self, base_offset: int) -> bool:
        """Whether no transaction ends before the base offset of its segment.

        Raises:
            Refused: an entry has a version that Kafka does not know.
        """
        for slot, entry in enumerate(self.entries()):
            self._require_known(slot, entry)
            if entry.last_offset < base_offset:
                return False
        return True

    def reset(self) -> None:
        """Empty the file, if there is one."""
        self._last_offset = None
        if self.name in self._directory:
            self._directory.put(self.name, Written(b""))

    def append(self, aborted: AbortedTxn) -> None:
        """Append an entry; :meth:`store` writes it to the file.

        Raises:
            Refused: its transaction does not end after the previous one.
        """
        if self._last_offset is not None and self._last_offset >= aborted.last_offset:
            raise Refused(
                f"the aborted transaction that ends at offset {aborted.last_offset} follows one"
                f" that ends at {self._last_offset}",
                self.name,
                "IllegalArgumentException",
            )
        self._last_offset = aborted.last_offset
        self._appended.append(aborted)

    def store(self) -> None:
        """Write the appended entries to the file."""
        if self._appended:
            before = self._directory.read(self.name) if self.name in self._directory else b""
            after = before + transaction_index.encode(self._appended)
            self._directory.put(self.name, Written(after))
            self._appended.clear()

    def truncate_to(self, offset: int) -> None:
        """Drop the first entry that ends at or above ``offset``, and all entries after it.

        Raises:
            Refused: an entry before it has a version that Kafka does not know.
        """
        for slot, entry in enumerate(self.entries()):
            self._require_known(slot, entry)
            if entry.last_offset >= offset:
                self._directory.truncate(self.name, slot * transaction_index.ENTRY_BYTES)
                return

    def _require_known(self, slot: int, entry: AbortedTxn) -> None:
        if not entry.has_known_version:
            raise Refused(
                f"an aborted transaction has the unknown version {entry.version_in_kafka}",
                self.name,
                "KafkaException",
                slot * transaction_index.ENTRY_BYTES,
            )


def _slot(keys: Column, target: int, entry_bytes: int) -> int:
    return int(largest_lower_bounds(keys, np.array([target], np.int64), entry_bytes)[0])


def _count_below(offsets: Column, offset: int, entry_bytes: int) -> int:
    slot = _slot(offsets, offset, entry_bytes)
    if slot == NO_SLOT:
        return 0
    return slot if int(offsets[slot]) == offset else slot + 1


def _require_resizable(name: str, size_bytes: int, max_bytes: int) -> None:
    if size_bytes > max_bytes:
        raise Refused(
            f"the index holds {size_bytes} bytes, more than segment.index.bytes ({max_bytes})",
            name,
            "IllegalArgumentException",
        )
