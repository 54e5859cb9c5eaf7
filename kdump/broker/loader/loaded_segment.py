"""A segment while its log is loaded: search it, truncate it, close it.

Follows ``LogSegment`` and the parts of ``FileRecords`` that it calls. Kafka's reader throws an
exception for an impossible length. Outside of a recovery that aborts loading, which is a refusal
here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from kdump.broker.loader.indexes import (
    NO_TIMESTAMP,
    InvalidOffset,
    OffsetIndexFile,
    TimeIndexFile,
    TransactionIndexFile,
)
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import message_set, record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.kafka_versions import KAFKA_4_4, ChangedRule
from kdump.formats.names import FileKind
from kdump.formats.record_batch import wrap_int64
from kdump.scan.batches import BatchColumns, Column, Stop, StopReason, Window, read_windows
from kdump.scan.source import read_at
from kdump.state.decompression import require_decompressible
from kdump.storage.byte_source import ByteSource
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import (
    VirtualDirectory,
    Written,
    file_name,
    require_readable_length,
)

SEGMENT_KINDS: Final = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
)
INDEX_MISSING: Final = "its offset index is missing"
"""Why a segment is recovered, whether it was flushed or not."""
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_OLD_ATTRIBUTES_START: Final = message_set.CHECKED_START + 1
"""Position of the attributes in a message before magic 2: after the magic."""


class OffsetOverflow(Exception):
    """A batch ends at an offset that the segment's indexes cannot hold."""

    def __init__(self, segment: LoadedSegment, offset: int) -> None:
        super().__init__(f"offset {offset} does not fit the segment at {segment.base_offset}")
        self.segment = segment
        self.offset = offset


class FoundBatch(Struct, frozen=True):
    """Where a search ended: the batch's base offset, position and size."""

    base_offset: int
    position: int
    size_bytes: int


ONLY_ACTIVE_TRIMMED: Final = ChangedRule(
    KAFKA_4_4,
    "",
    "a broker that stops completes and trims the indexes of active segments only; before, those of"
    " all segments that it had read",
)


class LoadedSegment:
    """An open segment: its log exists, its indexes are read when they are needed.

    Args:
        directory: of the partition.
        base_offset: from the name of the log.
        suffix: of its file names, such as ``.swap``.

    Raises:
        Refused: the log is larger than Kafka accepts.
    """

    def __init__(
        self,
        directory: VirtualDirectory,
        base_offset: int,
        settings: IndexSettings,
        suffix: str = "",
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.settings = settings
        self.suffix = suffix
        self._offset_index: OffsetIndexFile | None = None
        self._time_index: TimeIndexFile | None = None
        self.transaction_index = TransactionIndexFile(
            directory, self.name(FileKind.TRANSACTION_INDEX), settings.kafka_version
        )
        self.max_timestamp: tuple[int, int] | None = None
        """The largest timestamp and the last offset of its batch, once known."""
        self.problem: FormatError | None = None
        """Why the last recovery stopped before the end of the file."""
        self.ends_early = False
        """Whether the last search for the next offset did not reach the end of the file."""
        self.tail: BatchColumns | None = None
        """The last batches, if that search read them at once."""
        require_readable_length(self.log_name, self.size_bytes)

    def name(self, kind: FileKind) -> str:
        return file_name(self.base_offset, kind) + self.suffix

    @property
    def log_name(self) -> str:
        return self.name(FileKind.LOG)

    @property
    def size_bytes(self) -> int:
        return self.directory.size_bytes(self.log_name)

    @property
    def offset_index(self) -> OffsetIndexFile:
        """The offset index; loaded on first use, and created if it is missing."""
        if self._offset_index is None:
            self._offset_index = OffsetIndexFile(
                self.directory,
                self.name(FileKind.OFFSET_INDEX),
                self.base_offset,
                self.settings.max_bytes,
            )
        return self._offset_index

    @property
    def time_index(self) -> TimeIndexFile:
        """The time index; loaded on first use, and created if it is missing."""
        if self._time_index is None:
            self._time_index = TimeIndexFile(
                self.directory,
                self.name(FileKind.TIME_INDEX),
                self.base_offset,
                self.settings.max_bytes,
            )
        return self._time_index

    @contextlib.contextmanager
    def only_looked_at(self) -> Iterator[None]:
        """Let indexes that are loaded meanwhile not count: a broker does not load them then.

        Those that it has loaded it trims when it stops.
        """
        loaded = self._offset_index, self._time_index
        try:
            yield
        finally:
            self._offset_index, self._time_index = loaded

    def needs_recovery(self, *, has_time_index: bool) -> str | None:
        """Why the loader recovers this segment even if it was flushed; None if it does not.

        Raises:
            Refused: the transaction index has entries of an unknown version.
        """
        if self.name(FileKind.OFFSET_INDEX) not in self.directory:
            return INDEX_MISSING
        if not has_time_index:
            self.time_index.reset()
            self.time_index.trim()
        if not self.transaction_index.is_sane(self.base_offset):
            return "its transaction index is corrupt"
        return None

    def known_max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and its offset; from the time index if not known yet."""
        if self.max_timestamp is None:
            self.max_timestamp = self.time_index.last_entry
        return self.max_timestamp

    def translate(self, offset: int) -> FoundBatch | None:
        """The batch that contains ``offset``, or else the first one after it.

        Raises:
            Refused: Kafka's reader fails on the way.
        """
        return self._search(offset, max(0, self.offset_index.lookup(offset)))

    def next_offset(self) -> int:
        """One above the last offset of the last batch; the base offset if there is no batch.

        Raises:
            Refused: Kafka's reader fails on the way.
        """
        offset = self.offset_index.last_offset
        self.ends_early = False
        last_batch = self._last_batch(max(0, self.offset_index.lookup(offset)))
        if last_batch is not None:
            base_offset, last_offset = last_batch
            self.ends_early = max(base_offset, last_offset) < offset
            return self.base_offset if self.ends_early else wrap_int64(last_offset + 1)
        found = self.translate(offset)
        if found is None:
            self.ends_early = self.size_bytes > 0
            return self.base_offset
        next_offset = self.base_offset
        for window in self.windows(found.position):
            if window.batches.count:
                next_offset = wrap_int64(int(window.batches.last_offset[-1]) + 1)
            self.ends_early = window.stop is not None and window.stop.reason is not StopReason.END
        return next_offset

    def _last_batch(self, start: int) -> tuple[int, int] | None:
        """First and last offset of the last batch, if one read from ``start`` reaches it.

        That is nearly always so, and spares reading the same bytes again. None in doubt: where
        offsets do not rise, where a batch may be wrapped, or where Kafka's reader may fail.
        """
        with self.directory.open(self.log_name) as source:
            window = next(read_windows(source, start, checksums=False))
        batches, stop = window.batches, window.stop
        if stop is None or stop.reason is not StopReason.END or not batches.count:
            return None
        base_offset, last_offset = batches.base_offset, batches.last_offset
        is_rising = (base_offset[1:] > last_offset[:-1]).all() and (
            last_offset >= base_offset
        ).all()
        if not is_rising or (batches.magic < 2).any():
            return None
        self.tail = batches
        return int(base_offset[-1]), int(last_offset[-1])

    def windows(self, start: int, end: int | None = None) -> Iterator[Window]:
        """The batches from ``start`` on as Kafka's reader returns them, without checking checksums.

        Raises:
            Refused: that reader fails.
        """
        self._require_position(start)
        with self.directory.open(self.log_name) as source:
            for window in read_windows(source, start, end, checksums=False):
                yield window
                self._require_readable(window.stop)

    def base_offset_at(self, position: int) -> int:
        """Base offset of the batch that begins at ``position``.

        Raises:
            Refused: Kafka's reader fails on it.
        """
        with self.directory.open(self.log_name) as source:
            window = next(read_windows(source, position, checksums=False))
            _, base_offsets = self._first_reaching(
                source, window.batches.rows(slice(0, 1)), _INT64_MAX
            )
            return int(base_offsets[0])

    def truncate_to(self, offset: int) -> int:
        """Truncate to ``offset``, exclusive; returns how many bytes that removes.

        Raises:
            Refused: Kafka's reader fails on the way.
        """
        found = self.translate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        truncated_bytes = 0
        if found is not None:
            truncated_bytes = self.size_bytes - found.position
            self.directory.truncate(self.log_name, found.position)
        if self.known_max_timestamp()[0] >= 0:
            self.max_timestamp = self._largest_timestamp()
        return truncated_bytes

    def load_indexes(self) -> None:
        """Load both indexes, as a flush does."""
        _ = self.offset_index, self.time_index

    def resize_indexes(self) -> None:
        """Check that both can be resized for an active segment.

        Raises:
            Refused: one is larger already.
        """
        self.offset_index.require_resizable()
        self.time_index.require_resizable()

    def become_inactive(self) -> None:
        """Add the last entry to the time index, and trim both indexes.

        Raises:
            InvalidOffset: the last entry is lower than the one before.
        """
        self.time_index.append_last(*self.known_max_timestamp())
        self.offset_index.trim()
        self.time_index.trim()

    def close(self, *, is_active: bool) -> None:
        """Leave the files as stopping the log does (:data:`ONLY_ACTIVE_TRIMMED`)."""
        if not is_active and ONLY_ACTIVE_TRIMMED.holds_in(self.settings.kafka_version):
            return
        if self.max_timestamp is not None:
            # Kafka skips an entry that does not fit, with a warning.
            with contextlib.suppress(InvalidOffset, Refused):
                self.time_index.append_last(*self.max_timestamp)
        if self._offset_index is not None:
            self._offset_index.trim()
        if self._time_index is not None:
            self._time_index.trim()

    def release(self) -> None:
        """Free the memory that the content of trimmed indexes takes."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.release()
        self.directory.release(self.transaction_index.name)

    def delete(self) -> None:
        """Delete its files."""
        for kind in SEGMENT_KINDS:
            self.directory.remove(self.name(kind))

    def rename(self, suffix: str) -> None:
        """Give its files another suffix; existing files of that name are replaced."""
        names = {kind: self.name(kind) for kind in SEGMENT_KINDS}
        self.suffix = suffix
        for kind, name in names.items():
            if name in self.directory:
                self.directory.rename(name, self.name(kind))
        if self._offset_index is not None:
            self._offset_index.name = self.name(FileKind.OFFSET_INDEX)
        if self._time_index is not None:
            self._time_index.name = self.name(FileKind.TIME_INDEX)
        self.transaction_index.name = self.name(FileKind.TRANSACTION_INDEX)

    def _search(self, offset: int, start: int) -> FoundBatch | None:
        """``FileRecords.searchForOffsetFromPosition``."""
        with self.directory.open(self.log_name) as source:
            before: FoundBatch | None = None
            last_offset = 0
            for window in read_windows(source, start, checksums=False):
                batches = window.batches
                row, base_offsets = self._first_reaching(source, batches, offset)
                if row is not None:
                    if row:
                        before = _found(batches, base_offsets, row - 1)
                        last_offset = int(batches.last_offset[row - 1])
                    if base_offsets[row] > offset and before is not None and last_offset >= offset:
                        return before
                    return _found(batches, base_offsets, row)
                if batches.count:
                    before = _found(batches, base_offsets, -1)
                    last_offset = int(batches.last_offset[-1])
                self._require_readable(window.stop)
        return before if before is not None and last_offset >= offset else None

    def _first_reaching(
        self, source: ByteSource, batches: BatchColumns, offset: int
    ) -> tuple[int | None, Column]:
        """The first of ``batches`` whose base offset is at or after ``offset``, and base offsets.

        The base offset of a compressed message set is that of its first inner message, so it has
        to be decompressed. Batches after the one that is found are not decompressed.
        """
        base_offset = batches.base_offset.copy()
        wrappers = np.flatnonzero((batches.magic < 0) | batches.is_compressed_set).tolist()
        begin = 0
        for row in [*wrappers, batches.count]:
            reaching = np.flatnonzero(base_offset[begin:row] >= offset)
            if reaching.size:
                return begin + int(reaching[0]), base_offset
            if row < batches.count:
                base_offset[row] = self._first_wrapped_offset(source, batches, row)
                if base_offset[row] >= offset:
                    return row, base_offset
            begin = row + 1
        return None, base_offset

    def _first_wrapped_offset(self, source: ByteSource, batches: BatchColumns, row: int) -> int:
        position = int(batches.position[row])
        if batches.magic[row] < 0:
            # Kafka parses it as an old message, which is a wrapper if its attributes say so.
            attributes = read_at(source, position + _OLD_ATTRIBUTES_START, 1)
            if not attributes[0] & record_batch.CODEC_MASK:
                return int(batches.base_offset[row])
        data = read_at(source, position, int(batches.size_bytes[row]))
        try:
            message = message_set.decode_message(data)
            return next(message_set.inner_messages(message)).offset
        except FormatError as problem:
            self._require_decompressible(data, position)
            raise Refused(
                str(problem), self.log_name, "InvalidRecordException", position
            ) from problem

    def _require_decompressible(self, data: bytes, position: int) -> None:
        """Refuse a wrapper whose compressed message set cannot be decompressed."""
        with contextlib.suppress(FormatError):
            message = message_set.decode_message(data)
            attributes, magic = message.attributes, message.magic
            if attributes & record_batch.CODEC_MASK != Codec.ZSTD and message.value is not None:
                require_decompressible(
                    attributes, message.value, self.log_name, position, magic=magic
                )

    def _largest_timestamp(self) -> tuple[int, int]:
        timestamp, offset = self.time_index.last_entry
        best = (NO_TIMESTAMP, -1)
        for window in self.windows(self.offset_index.lookup(offset)):
            if window.batches.count:
                row = int(np.argmax(window.batches.max_timestamp))
                largest = int(window.batches.max_timestamp[row])
                if largest > best[0]:
                    best = (largest, int(window.batches.last_offset[row]))
        return best if best[0] > timestamp else (timestamp, offset)

    def _require_position(self, position: int) -> None:
        if position < 0:
            raise Refused(
                f"the offset index points to byte {position}",
                self.name(FileKind.OFFSET_INDEX),
                "IllegalArgumentException",
            )

    def _require_readable(self, stop: Stop | None) -> None:
        if stop is None or not stop.is_fatal_to_kafka:
            return
        is_torn = stop.reason is StopReason.TORN_HEADER
        raise Refused(
            stop.problem.what if stop.problem else stop.reason.value,
            self.log_name,
            "KafkaException" if is_torn else "CorruptRecordException",
            stop.position,
        )


def open_segment(
    directory: VirtualDirectory, base_offset: int, settings: IndexSettings, suffix: str = ""
) -> LoadedSegment:
    """Open a segment; a missing log is created empty.

    Raises:
        Refused: as :class:`LoadedSegment`.
    """
    log = file_name(base_offset, FileKind.LOG) + suffix
    if log not in directory:
        directory.put(log, Written(b""))
    return LoadedSegment(directory, base_offset, settings, suffix)


def _found(batches: BatchColumns, base_offsets: Column, row: int) -> FoundBatch:
    return FoundBatch(
        int(base_offsets[row]), int(batches.position[row]), int(batches.size_bytes[row])
    )
