"""One segment while it is loaded: searching it, recovering it, cutting it.

Follows ``LogSegment`` and the parts of ``FileRecords`` that it calls. Kafka's reader throws where
a length is impossible; outside of a recovery that ends the loading, which is a refusal here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kdump.broker.loader.index_builder import IndexBuilder
from kdump.broker.loader.indexes import (
    NO_TIMESTAMP,
    InvalidOffset,
    OffsetIndexFile,
    TimeIndexFile,
    TransactionIndexFile,
)
from kdump.formats import message_set, record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.formats.record_batch import wrap_int64
from kdump.formats.transaction_index import AbortedTxn
from kdump.scan.batches import BatchColumns, Column, Stop, StopReason, Window, read_windows
from kdump.scan.source import read_at
from kdump.state.decompression import require_decompressible
from kdump.state.leader_epochs import LeaderEpochs
from kdump.state.markers import InvalidMarker
from kdump.state.producer_state import ProducerState
from kdump.state.producers import CompletedTxn, append_batches
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
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_OLD_ATTRIBUTES_START: Final = message_set.CHECKED_START + 1
"""Where a message of before magic 2 has its attributes: behind its magic."""


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """What a topic's configuration says of indexes.

    Attributes:
        interval_bytes: ``index.interval.bytes``.
        max_bytes: ``segment.index.bytes``.
    """

    interval_bytes: int = 4096
    max_bytes: int = 10485760


class OffsetOverflow(Exception):
    """A batch ends at an offset that the segment's indexes cannot hold."""

    def __init__(self, segment: LoadedSegment, offset: int) -> None:
        super().__init__(f"offset {offset} does not fit the segment at {segment.base_offset}")
        self.segment = segment
        self.offset = offset


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """Where a search ended: the batch's base offset, position and size."""

    base_offset: int
    position: int
    size_bytes: int


class LoadedSegment:
    """A segment, opened: its log is there, its indexes are read when they are needed.

    Args:
        directory: the directory.
        base_offset: from the name of the log.
        settings: of the topic.
        suffix: what stands behind the names of its files, such as ``.swap``.

    Raises:
        Refused: the log is larger than Kafka takes.
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
            directory, self.name(FileKind.TRANSACTION_INDEX)
        )
        self.max_timestamp: tuple[int, int] | None = None
        """The largest timestamp and the last offset of its batch, once they are known."""
        self.problem: FormatError | None = None
        """What the last recovery ended at before the end of the file."""
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
        """The offset index, which asking for loads, and makes where it is missing."""
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
        """The time index, likewise."""
        if self._time_index is None:
            self._time_index = TimeIndexFile(
                self.directory,
                self.name(FileKind.TIME_INDEX),
                self.base_offset,
                self.settings.max_bytes,
            )
        return self._time_index

    def needs_recovery(self, *, has_time_index: bool) -> str | None:
        """Why the loader recovers this segment whether or not it was flushed; None if not.

        Raises:
            Refused: the transaction index has entries of an unknown version.
        """
        if self.name(FileKind.OFFSET_INDEX) not in self.directory:
            return "its offset index is missing"
        if not has_time_index:
            self.time_index.reset()
            self.time_index.trim()
        if not self.transaction_index.is_sane(self.base_offset):
            return "its transaction index is corrupt"
        return None

    def recover(self, producers: ProducerState, epochs: LeaderEpochs) -> int:
        """Check every batch, cut at the first that does not hold, build the indexes anew.

        Args:
            producers: their state at the base offset; is brought to the end.
            epochs: is brought to the end.

        Returns:
            How many bytes were cut off.

        Raises:
            InvalidOffset: an offset or a time does not follow those before it.
            OffsetOverflow: an offset does not fit the indexes; nothing was cut.
            Refused: Kafka cannot recover this segment.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self.max_timestamp = None
        self.problem = None
        builder = IndexBuilder(self.base_offset, self.settings.interval_bytes)
        valid_bytes = 0
        try:
            with self.directory.open(self.log_name) as source:
                for window in read_windows(source):
                    valid_bytes, problem = self._recover_window(window, builder, producers, epochs)
                    if problem is not None:
                        self.problem = problem
                        break
        finally:
            self.max_timestamp = builder.max_timestamp
            builder.store(self.offset_index, self.time_index)
            self.transaction_index.store()
        truncated_bytes = self.size_bytes - valid_bytes
        self.directory.truncate(self.log_name, valid_bytes)
        self.offset_index.trim()
        self.time_index.append_last(*self.known_max_timestamp())
        self.time_index.trim()
        return truncated_bytes

    def _recover_window(
        self,
        window: Window,
        builder: IndexBuilder,
        producers: ProducerState,
        epochs: LeaderEpochs,
    ) -> tuple[int, FormatError | None]:
        """Take in the batches of ``window``.

        Gives how far the log is valid, and why it ends there if that is before its end.
        """
        batches = window.batches
        count = batches.count
        problem = None if window.stop is None else window.stop.problem
        overflow: int | None = None
        if not batches.is_valid.all():
            count = int(np.argmin(batches.is_valid))
            problem = FormatError(
                "batch is not valid: its checksum does not hold",
                position=int(batches.position[count]),
            )
        relative = batches.last_offset[:count] - self.base_offset
        fits = (relative >= 0) & (relative <= _INT32_MAX)
        if not fits.all():
            count = int(np.argmin(fits))
            overflow = int(batches.last_offset[count])
        planned = builder.plan(batches.rows(slice(0, count)))
        count = min(count, planned.count)
        try:
            epochs.assign_all(batches.rows(slice(0, count)))
            for txn in append_batches(window, count, producers.producers, self.log_name):
                self._complete_txn(txn, producers)
        except InvalidMarker as invalid:
            # Kafka has counted the batch as valid before it looks into it.
            builder.commit(planned, invalid.row + 1, self.offset_index, self.time_index)
            problem = FormatError(str(invalid), position=int(batches.position[invalid.row]))
            return int(batches.next_position[invalid.row]), problem
        builder.commit(planned, planned.reach, self.offset_index, self.time_index)
        if planned.invalid is not None:
            raise planned.invalid
        if overflow is not None:
            raise OffsetOverflow(self, overflow)
        new = np.flatnonzero(batches.magic[:count] >= 2)
        if new.size:
            producers.map_end_offset = wrap_int64(int(batches.last_offset[new[-1]]) + 1)
        return int(batches.next_position[count - 1]) if count else window.start, problem

    def _complete_txn(self, txn: CompletedTxn, producers: ProducerState) -> None:
        if txn.is_aborted:
            self.transaction_index.append(
                AbortedTxn(
                    txn.producer_id,
                    txn.first_offset,
                    txn.last_offset,
                    producers.producers.last_stable_offset(txn),
                )
            )
        producers.complete_txn(txn, self.log_name)

    def known_max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and its offset; read from the time index where not known yet."""
        if self.max_timestamp is None:
            self.max_timestamp = self.time_index.last_entry
        return self.max_timestamp

    def translate(self, offset: int) -> FoundBatch | None:
        """The batch that holds ``offset``, or else the first behind it.

        Raises:
            Refused: Kafka's reader fails on the way.
        """
        return self._search(offset, max(0, self.offset_index.lookup(offset)))

    def next_offset(self) -> int:
        """One above the last batch's last offset; the base offset where there is none.

        Raises:
            Refused: Kafka's reader fails on the way.
        """
        found = self.translate(self.offset_index.last_offset)
        if found is None:
            return self.base_offset
        next_offset = self.base_offset
        for window in self.windows(found.position):
            if window.batches.count:
                next_offset = wrap_int64(int(window.batches.last_offset[-1]) + 1)
        return next_offset

    def windows(self, start: int, end: int | None = None) -> Iterator[Window]:
        """The batches from ``start`` on as Kafka's reader gives them, checksums not looked at.

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
        """Cut off what is at or above ``offset``; gives how many bytes that is.

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
        """Look into both indexes, as a flush does."""
        _ = self.offset_index, self.time_index

    def resize_indexes(self) -> None:
        """Make both as long as an active segment's are.

        Raises:
            Refused: one holds more than that already.
        """
        self.offset_index.require_resizable()
        self.time_index.require_resizable()

    def become_inactive(self) -> None:
        """Add the last entry to the time index and cut both indexes.

        Raises:
            InvalidOffset: the last entry does not follow.
        """
        self.time_index.append_last(*self.known_max_timestamp())
        self.offset_index.trim()
        self.time_index.trim()

    def close(self) -> None:
        """Leave the files as a segment that is closed has them."""
        if self.max_timestamp is not None:
            # What does not fit, Kafka leaves out with a warning.
            with contextlib.suppress(InvalidOffset, Refused):
                self.time_index.append_last(*self.max_timestamp)
        if self._offset_index is not None:
            self._offset_index.trim()
        if self._time_index is not None:
            self._time_index.trim()

    def delete(self) -> None:
        """Take its files away."""
        for kind in SEGMENT_KINDS:
            self.directory.remove(self.name(kind))

    def rename(self, suffix: str) -> None:
        """Give its files another suffix; those that are there already are replaced."""
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
        """The first of ``batches`` that begins at or behind ``offset``, and where each begins.

        Messages that wrap others begin where the first inner one does, which takes decompressing
        them. What lies behind the batch that is found is not looked into.
        """
        base_offset = batches.base_offset.copy()
        codec = batches.attributes & record_batch.CODEC_MASK
        may_wrap = (batches.magic < 0) | ((batches.magic < 2) & (codec != Codec.NONE))
        wrappers = np.flatnonzero(may_wrap).tolist()
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
            # Kafka takes it for one of old, which is a wrapper if its attributes say so.
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
        """Refuse a wrapper for what is wrong with its compressed set, if it has one."""
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
                f"the offset index leads to byte {position}",
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
    """Open a segment; a log that is missing is made, empty.

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
