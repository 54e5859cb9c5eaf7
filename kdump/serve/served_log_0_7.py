"""A log of Kafka 0.7 as it is served to clients of today.

Its offsets are byte positions in everything that was written to the partition, so they have gaps.
The messages of a compressed set have one offset, that of the set, as in ``kdump grep``; clients
drop a record whose offset they have had. So the second one is served with the offset after it, and
so on: the set has as many offsets as bytes.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.formats import kafka07, record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.kafka07 import Message07
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import Record
from kdump.jobs.lookup import Found, Question, ends_before_damage
from kdump.log.replicas import Replica
from kdump.log.segment import Segment
from kdump.log.special_times import IsolationLevel, SpecialTime
from kdump.log.valid_windows import Damage
from kdump.scan.walk_0_7 import Skipped07, valid_messages
from kdump.serve.served_log import CorruptBatch, FetchedBatches, OffsetOutOfRange, empty_batch
from kdump.serve.served_notices import ServedNotices
from kdump.serve.stored_batches import StoredBatches, changed_log
from kdump.state.epochs.epoch_history import EpochEnd
from kdump.storage.location import Location, StoredFile

_BATCH_BYTES: Final = 256 << 10
"""A batch ends after so much."""
_LARGEST_SET_BYTES: Final = 64 << 20
"""More is not decompressed of one set."""
_BETWEEN_STARTS_BYTES: Final = 64 << 10
"""Where messages begin is remembered once in so many bytes."""
_RECORD_BYTES: Final = 64
"""What a record takes besides its value: in a batch less than 20, while it is converted more."""


class _Entry(Struct, frozen=True):
    """A message or a compressed set, with the offsets that it has in the log; the end is exclusive.

    Attributes:
        payloads: the messages; each has the offset after the one before it.
    """

    offset: int
    end: int
    payloads: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        """What it takes in a response, at most."""
        return sum(map(len, self.payloads)) + _RECORD_BYTES * len(self.payloads)

    def has_record_from(self, offset: int) -> bool:
        """Whether a record has an offset or a later one."""
        return bool(self.payloads) and self.offset + len(self.payloads) > offset


class _Lost(Struct, frozen=True):
    """Offsets without a message, and why; the end is exclusive."""

    offset: int
    end: int
    damage: Damage


class _Starts(Struct):
    """Where some messages of a segment begin, in order.

    Attributes:
        identity: of the file.
    """

    identity: tuple[int | str, ...] | None = None
    positions: list[int] = field(default_factory=lambda: [0])

    def before(self, position: int) -> int:
        """The last one that is known at or before a byte."""
        return self.positions[bisect_right(self.positions, position) - 1]

    def note(self, position: int) -> None:
        """Remember one, if it is far from others."""
        number = bisect_left(self.positions, position)
        near = self.positions[max(0, number - 1) : number + 1]
        if all(abs(position - each) >= _BETWEEN_STARTS_BYTES for each in near):
            insort(self.positions, position)


class ServedLog07(Struct):
    """The log of Kafka 0.7 that is served of a partition, converted to batches of today.

    Attributes:
        notices: takes the damage that readers meet; they say whether it is left out.
    """

    key: TopicPartition
    replica: Replica
    notices: ServedNotices
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _starts: dict[int, _Starts] = field(default_factory=dict)
    _end: int | None = None

    def log_start_offset(self, _level: IsolationLevel) -> int:
        """Where the log begins."""
        return self.replica.partition.segments[0].base_offset

    def end_offset(self, _level: IsolationLevel) -> int:
        """Where the last valid message ends.

        Raises:
            OSError: the last segment cannot be read.
        """
        with self._lock:
            if self._end is None:
                last = self.replica.partition.segments[-1]
                end, after = last.base_offset, list[Skipped07]()
                with self._path(last).open_file() as log:
                    for found in self._messages(last, log, last.base_offset):
                        if isinstance(found, Message07):
                            end = last.base_offset + found.position + found.size_bytes
                            after.clear()
                        else:
                            after.append(found)
                for each in after[:1]:
                    damage = _damage(str(self._path(last)), each)
                    self.notices.note_loss(self.key, ends_before_damage(end, damage))
                self._end = end
            return self._end

    def found(self, question: Question) -> Found:
        """The offset for a time; no message has one.

        Raises:
            OSError: the log cannot be read.
        """
        if question.time in (SpecialTime.EARLIEST, SpecialTime.EARLIEST_LOCAL):
            return Found(self.log_start_offset(question.isolation_level))
        if question.time is SpecialTime.LATEST:
            return Found(self.end_offset(question.isolation_level))
        return Found()

    def epoch_end(self, _leader_epoch: int) -> EpochEnd | None:
        """None: there were no leaders."""
        return None

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        level: IsolationLevel,
        *,
        at_least_one: bool,
        to_send: contextlib.ExitStack | None = None,
    ) -> FetchedBatches:
        """As :meth:`~kdump.serve.served_log.ServedLog.fetch`; all is converted.

        An offset within a message leads to the next one, or to the end of the log.
        """
        end = self.end_offset(level)
        if not self.log_start_offset(level) <= offset <= end:
            raise OffsetOutOfRange
        aborted: tuple[tuple[int, int], ...] | None = None
        if level is IsolationLevel.READ_COMMITTED:
            aborted = ()
        if offset == end:
            return FetchedBatches(StoredBatches(), offset, aborted)
        with self._lock:
            entries, reached = self._taken(offset, end, max_bytes, at_least_one=at_least_one)
        batches = tuple(map(_batch, _in_batches(entries)))
        if not batches and reached > offset:
            batches = (empty_batch(offset, reached),)
        return FetchedBatches(StoredBatches(batches), reached, aborted)

    def _taken(
        self, offset: int, end: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[list[_Entry], int]:
        """The entries of a fetch, and the offset up to which they are all."""
        taken: list[_Entry] = []
        left_bytes, reached = max_bytes, offset
        for step in self._steps_from(offset, end):
            if isinstance(step, _Lost):
                if taken:
                    break
                lost = max(step.offset, offset), step.end
                self.notices.note_damage(self.key, [step.damage], lost)
                if not self.notices.skips_damage:
                    raise CorruptBatch
            else:
                left_bytes -= step.size_bytes
                if left_bytes < 0 and (taken or not at_least_one):
                    break
                taken.append(step)
            reached = step.end
        else:
            # No message may follow: the offset is within the last one.
            reached = end
        return taken, reached

    def _steps_from(self, offset: int, end: int) -> Iterator[_Entry | _Lost]:
        """What follows an offset in all segments, up to the end of the log.

        Raises:
            OSError: a segment cannot be read, or is shorter than it was.
        """
        segments = self.replica.partition.segments
        first = bisect_right(segments, offset, key=lambda each: each.base_offset) - 1
        for segment in segments[first:]:
            with self._path(segment).open_file() as log:
                if log.size_bytes < segment.log_bytes:
                    raise changed_log(log, "became shorter")
                for found in self._messages(segment, log, offset):
                    step = _step(segment.base_offset, str(log.location), found)
                    if step.offset >= end:
                        return
                    if step.end > offset and (
                        isinstance(step, _Lost) or step.has_record_from(offset)
                    ):
                        yield step

    def _messages(
        self, segment: Segment, log: StoredFile, offset: int
    ) -> Iterator[Message07 | Skipped07]:
        """The messages of a segment from before an offset on."""
        starts = self._starts.setdefault(segment.base_offset, _Starts())
        if starts.identity != (identity := log.identity()):
            starts.identity, starts.positions = identity, [0]
        for found in valid_messages(log, starts.before(max(0, offset - segment.base_offset))):
            if isinstance(found, Message07):
                starts.note(found.position)
            yield found

    def _path(self, segment: Segment) -> Location:
        return self.replica.partition.file_path(segment.log_name)


def _step(base_offset: int, path: str, found: Message07 | Skipped07) -> _Entry | _Lost:
    """What was found in a segment, with its offsets."""
    if isinstance(found, Skipped07):
        return _Lost(base_offset + found.start, base_offset + found.end, _damage(path, found))
    start, end = found.position, found.position + found.size_bytes
    try:
        payloads = _payloads(found)
    except FormatError as problem:
        damage = Damage(path, start, end, problem.as_value())
        return _Lost(base_offset + start, base_offset + end, damage)
    return _Entry(base_offset + start, base_offset + end, payloads)


def _damage(path: str, skipped: Skipped07) -> Damage:
    return Damage(path, skipped.start, skipped.end, skipped.problem)


def _payloads(found: Message07) -> tuple[bytes, ...]:
    """The messages of an entry.

    Raises:
        FormatError: a compressed set is damaged, or cannot be served.
    """
    if found.codec is Codec.NONE:
        return (found.payload,)
    payloads: list[bytes] = []
    size_bytes = 0
    for each in kafka07.inner_messages(found, largest_bytes=_LARGEST_SET_BYTES):
        payloads.append(each.payload)
        size_bytes += len(each.payload)
        if size_bytes > _LARGEST_SET_BYTES or len(payloads) > found.size_bytes:
            raise FormatError(
                "compressed set is too large to be served: it has more messages than bytes, or"
                f" more than {_LARGEST_SET_BYTES} bytes ('kdump export' reads it)",
                position=found.position,
            )
    return tuple(payloads)


def _in_batches(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    batch: list[_Entry] = []
    size_bytes = 0
    for each in entries:
        if size_bytes >= _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(each)
        size_bytes += each.size_bytes
    if batch:
        yield batch


def _batch(entries: Sequence[_Entry]) -> bytes:
    """A batch of magic 2 that ends where the next message begins; nothing in it has a time."""
    base_offset = entries[0].offset
    records = [
        Record(
            offset=each.offset + number,
            timestamp=record_batch.NO_TIMESTAMP,
            sequence=record_batch.NO_SEQUENCE,
            key=None,
            value=payload,
            headers=(),
        )
        for each in entries
        for number, payload in enumerate(each.payloads)
    ]
    header = replace(
        record_batch.decode_header(empty_batch(base_offset, entries[-1].end)),
        records_count=len(records),
    )
    body = (
        record_batch.encode_record(each, base_offset, record_batch.NO_TIMESTAMP) for each in records
    )
    return record_batch.encode_batch(header, b"".join(body))
