"""The three indexes of a segment while it is loaded: read on first use, trimmed when closed.

Follows ``AbstractIndex``, ``OffsetIndex``, ``TimeIndex`` and ``TransactionIndex``. An existing file
is trusted: every whole entry counts, padding included. A running broker resizes the indexes of the
active segment to their maximum and undoes that when it closes them; that is not repeated here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import numpy as np

from kdump.formats import offset_index, time_index, transaction_index
from kdump.formats.index_search import NO_SLOT, Column, largest_lower_bounds
from kdump.formats.kafka_versions import KafkaVersion
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


class _EntriesFile(ABC):
    """An index that has been loaded, whose entries are two columns in the order of the file."""

    _entry_bytes: ClassVar[int]

    def __init__(
        self, directory: VirtualDirectory, name: str, base_offset: int, max_bytes: int
    ) -> None:
        self._directory = directory
        self.name = name
        self.base_offset = base_offset
        self._max_bytes = max_bytes // self._entry_bytes * self._entry_bytes
        self._file = _IndexBytes(directory, name, self._max_bytes)
        self._columns: tuple[Column, Column] | None = None
        self._released: tuple[int, tuple[int, int] | None] | None = None
        """The number of entries, and the last one, while they are not in memory."""
        self._is_rebuilt = False
        if not self._file.exists:
            self.reset()

    @property
    @abstractmethod
    def offset(self) -> Column:
        """Of each entry, absolute."""

    @abstractmethod
    def _decoded(self, data: bytes) -> tuple[Column, Column]:
        """The columns of bytes of the file."""

    @abstractmethod
    def _encoded(self) -> bytes:
        """The bytes of all entries."""

    def _entries(self) -> tuple[Column, Column]:
        if self._released is not None:
            # Not kept: a partition may have many segments.
            size_bytes = self._count * self._entry_bytes
            return self._decoded(self._directory.read_first(self.name, size_bytes))
        if self._columns is None:
            self._columns = self._decoded(self._file.padded())
        return self._columns

    @property
    def _count(self) -> int:
        return len(self._entries()[0]) if self._released is None else self._released[0]

    @property
    def _last(self) -> tuple[int, int] | None:
        """The last entry."""
        if self._released is not None:
            return self._released[1]
        first, second = self._entries()
        return (int(first[-1]), int(second[-1])) if len(first) else None

    @property
    def _free_slots(self) -> int:
        return self._max_bytes // self._entry_bytes - self._count

    def reset(self) -> None:
        """Remove all entries."""
        self._set(np.empty(0, np.int64), np.empty(0, np.int64))

    def extend(self, first: Column, second: Column) -> None:
        """Append columns, in the order of the file; the caller ensures that entries rise."""
        if len(first):
            before = self._entries()
            self._set(np.concatenate((before[0], first)), np.concatenate((before[1], second)))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        count = _count_below(self.offset, offset, self._entry_bytes)
        first, second = self._entries()
        self._set(first[:count], second[:count])

    def require_resizable(self) -> None:
        """Refuse an index that is larger than that of an active segment."""
        size_bytes = self._count * self._entry_bytes
        if size_bytes > self._max_bytes:
            limit = f"more than segment.index.bytes ({self._max_bytes})"
            raise Refused(
                f"the index holds {size_bytes} bytes, {limit}",
                self.name,
                "IllegalArgumentException",
            )

    def trim(self) -> None:
        """Truncate the file to its last entry."""
        if self._is_rebuilt and self._released is None:
            self._directory.put(self.name, Written(self._encoded()))
        else:
            self._directory.truncate(self.name, self._count * self._entry_bytes)

    def release(self) -> None:
        """Free the memory of the entries of a trimmed index; they are read again when needed."""
        if self._columns is not None:
            self._released = self._count, self._last
            self._columns = None
        self._file.release()
        self._directory.release(self.name)

    def _set(self, first: Column, second: Column) -> None:
        self._columns, self._released = (first, second), None
        self._is_rebuilt = True
        self._directory.put(self.name, self._file.mapped(self._encoded()))


class OffsetIndexFile(_EntriesFile):
    """An offset index that has been loaded: offsets and positions."""

    _entry_bytes = offset_index.ENTRY_BYTES

    @property
    def offset(self) -> Column:
        return self._entries()[0]

    @property
    def position(self) -> Column:
        """Of each entry."""
        return self._entries()[1]

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return self._free_slots

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if there is none."""
        last = self._last
        return self.base_offset if last is None else last[0]

    def lookup(self, offset: int) -> int:
        """Position of the last entry at or below ``offset``; 0 if there is none."""
        slot = _slot(self.offset, offset, self._entry_bytes)
        return 0 if slot == NO_SLOT else int(self.position[slot])

    def _decoded(self, data: bytes) -> tuple[Column, Column]:
        index = offset_index.decode(data, self.base_offset)
        return index.offset, index.position

    def _encoded(self) -> bytes:
        rows = np.zeros(len(self.offset), offset_index.ENTRY_DTYPE)
        rows["relative_offset"] = self.offset - self.base_offset
        rows["position"] = self.position
        return rows.tobytes()


class TimeIndexFile(_EntriesFile):
    """A time index that has been loaded: timestamps and offsets."""

    _entry_bytes = time_index.ENTRY_BYTES

    @property
    def timestamp(self) -> Column:
        """Of each entry."""
        return self._entries()[0]

    @property
    def offset(self) -> Column:
        return self._entries()[1]

    @property
    def room(self) -> int:
        """How many entries fit; the last slot is reserved for closing the segment."""
        return self._free_slots - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; -1 and the base offset if there is none."""
        last = self._last
        return (NO_TIMESTAMP, self.base_offset) if last is None else last

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

    def _decoded(self, data: bytes) -> tuple[Column, Column]:
        index = time_index.decode(data, self.base_offset)
        return index.timestamp, index.offset

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

    def __init__(self, directory: VirtualDirectory, name: str, kafka: KafkaVersion) -> None:
        self._directory = directory
        self.name = name
        self._kafka = kafka
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
        if not entry.is_known_to(self._kafka):
            raise Refused(
                f"an aborted transaction has the unknown version {entry.version_in(self._kafka)}",
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
