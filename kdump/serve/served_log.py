"""The log of one replica as a consumer is served from it."""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kdump.formats import record_batch
from kdump.formats.names import TopicPartition
from kdump.jobs.lookup import (
    Found,
    LookupAnswer,
    LookupJob,
    Question,
    UnreadableReplica,
    lookup_split,
)
from kdump.log.living import settled_glimpse_of
from kdump.log.lock_holders import is_in_use_around
from kdump.log.replicas import Replica
from kdump.log.settled_listing import ATTEMPTS
from kdump.log.special_times import IsolationLevel, SpecialTime
from kdump.log.valid_windows import Damage
from kdump.scan.batches import BatchColumns, Flags
from kdump.scan.control_batches import is_control
from kdump.serve.look_ahead import LookAhead
from kdump.serve.served_notices import ServedNotices
from kdump.serve.stored_batches import (
    LEAST_RANGE_BYTES,
    SentRange,
    StoredBatches,
    changed_log,
    read_stored,
)
from kdump.serve.verified_batches import SegmentBatches, VerifiedBatches
from kdump.state.epochs.epoch_history import EpochEnd, EpochHistory
from kdump.state.transactions.transaction_outcomes import (
    TransactionOutcomes,
    TransactionState,
    is_in_transaction,
)
from kdump.storage.local_disk import LocalFile
from kdump.storage.location import Location, StoredFile

_MOST_READERS: Final = 16
"""So many readers of committed records go on where they were; others look ahead again."""


class OffsetOutOfRange(Exception):
    """The log does not have the offset, and never had it or has deleted it."""


class CorruptBatch(Exception):
    """The batch of an offset is damaged."""


class FetchedBatches(Struct, frozen=True):
    """Batches as they are stored.

    Attributes:
        next_offset: where a client goes on.
        aborted: for a reader of committed records, the producers whose batches are not to be
            shown, each with the offset from which on; None for any other reader.
    """

    records: StoredBatches
    next_offset: int
    aborted: tuple[tuple[int, int], ...] | None


class CommittedReader(NamedTuple):
    """How transactions end ahead of a reader.

    Attributes:
        segment: the number of the one in which the reader is.
        identity: which file that is.
    """

    outcomes: TransactionOutcomes
    ahead: LookAhead
    segment: int
    identity: tuple[int | str, ...] | None

    def is_of_another(self, found: _Taken) -> bool:
        """Whether the segment was written or replaced since; a broker only appends to it."""
        is_same = self.identity == found.logs[self.segment].identity()
        return self.segment != found.written and not is_same


class CommittedReaders:
    """The readers of committed records, to go on with at the offset that comes next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: OrderedDict[tuple[TopicPartition, int], CommittedReader] = OrderedDict()

    def pop(self, key: TopicPartition, offset: int) -> CommittedReader | None:
        """Take the reader that has come to an offset of a partition."""
        with self._lock:
            return self._readers.pop((key, offset), None)

    def forget(self, key: TopicPartition) -> None:
        """Forget the readers of a partition, whose log has changed."""
        with self._lock:
            for each in [each for each in self._readers if each[0] == key]:
                del self._readers[each]

    def put(self, key: TopicPartition, offset: int, reader: CommittedReader) -> None:
        """Keep a reader for the fetch that goes on at an offset."""
        with self._lock:
            self._readers[key, offset] = reader
            if len(self._readers) > _MOST_READERS:
                self._readers.popitem(last=False)


class ServedLog(Struct):
    """The log of the replica that is served of a partition.

    Where a broker is using it, it is listed again when a file is gone, when a reader is at the end
    or not within it, and when its offsets are asked for.

    Attributes:
        verified: what was verified of all logs.
        readers: of committed records, of all logs.
        notices: takes the damage that readers meet; they say whether it is left out.
    """

    key: TopicPartition
    replica: Replica
    verified: VerifiedBatches
    readers: CommittedReaders
    notices: ServedNotices
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ends: dict[IsolationLevel, LookupAnswer] = field(default_factory=dict)

    def lookup(self, question: Question) -> LookupAnswer:
        """Answer a question as ``kdump lookup`` does.

        Raises:
            OSError: the replica cannot be read.
        """
        path = self.replica.partition.path
        for attempt in range(ATTEMPTS):
            found = LookupJob(question).run(lookup_split(self.replica))
            if found is None:
                raise FileNotFoundError(None, "deleted by its broker", str(path))
            if not isinstance(found, UnreadableReplica):
                return found
            if attempt == ATTEMPTS - 1 or not is_in_use_around(path):
                raise OSError(None, found.what, found.path)
        raise AssertionError("the last attempt ends")

    def end(self, level: IsolationLevel) -> LookupAnswer:
        """The answer for the latest offset, which is looked up once.

        Raises:
            OSError: the replica cannot be read.
        """
        with self._lock:
            known = self._ends.get(level)
            if known is None:
                question = Question(time=SpecialTime.LATEST, isolation_level=level)
                known = self._ends[level] = self.lookup(question)
                # What follows the end may be a batch that a broker is writing.
                is_written = is_in_use_around(self.replica.partition.path)
                for each in () if is_written else known.losses:
                    self.notices.note_loss(self.key, each)
            return known

    def end_offset(self, level: IsolationLevel) -> int:
        """Where a consumer reads to.

        Raises:
            OSError: the replica cannot be read.
        """
        offset = self.end(level).found.offset
        assert offset is not None
        return offset

    def log_start_offset(self, level: IsolationLevel) -> int:
        """Where the log begins.

        Raises:
            OSError: the replica cannot be read.
        """
        return self.end(level).log_start_offset

    def found(self, question: Question) -> Found:
        """The offset for a time.

        Raises:
            OSError: the replica cannot be read.
        """
        self._is_listed_again()
        if question.time is SpecialTime.LATEST:
            return self.end(question.isolation_level).found
        return self.lookup(question).found

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Where a leader epoch ends; None if it is not known.

        Raises:
            OSError: the replica cannot be read.
        """
        self._is_listed_again()
        found = self.end(IsolationLevel.READ_UNCOMMITTED)
        history = EpochHistory(found.epochs)
        return history.end_offset_for(leader_epoch, found.log_end_offset)

    # ---- Batches ----

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        level: IsolationLevel,
        *,
        at_least_one: bool,
        to_send: contextlib.ExitStack | None = None,
    ) -> FetchedBatches:
        """The batches from an offset on.

        Args:
            offset: where to begin; the first batch may begin before it.
            max_bytes: how much to read.
            level: what the consumer reads.
            at_least_one: whether to read the first batch even if it is larger.
            to_send: closes the files whose ranges are batches; None if all are to be read.

        Raises:
            OffsetOutOfRange: the log does not have the offset.
            CorruptBatch: the batch of the offset is damaged.
            OSError: the replica cannot be read.
        """
        for _ in range(ATTEMPTS):
            try:
                found = self._fetched(offset, max_bytes, level, at_least_one, to_send)
            except (FileNotFoundError, OffsetOutOfRange):
                if not self._is_listed_again():
                    raise
                continue
            if found.records or not self._is_listed_again():
                return found
            break
        return self._fetched(offset, max_bytes, level, at_least_one, to_send)

    def _is_listed_again(self) -> bool:
        """List the log again if a broker is using it; false if none is, or it was deleted."""
        partition = self.replica.partition
        if not is_in_use_around(partition.path):
            return False
        again = settled_glimpse_of(partition)
        if again is None:
            return False
        # What a broker has opened counts to its end: its checkpoints are old.
        directory = replace(self.replica.log_directory, is_clean=False)
        with self._lock:
            self.replica = Replica(directory, again.partition)
            self._ends.clear()
            self.readers.forget(self.key)
        return True

    def _fetched(
        self,
        offset: int,
        max_bytes: int,
        level: IsolationLevel,
        at_least_one: bool,
        to_send: contextlib.ExitStack | None,
    ) -> FetchedBatches:
        is_committed = level is IsolationLevel.READ_COMMITTED
        end, bounds = self.end_offset(level), self.end(level)
        if not bounds.log_start_offset <= offset <= bounds.log_end_offset:
            raise OffsetOutOfRange
        aborted: tuple[tuple[int, int], ...] | None = () if is_committed else None
        if offset >= end:
            return FetchedBatches(StoredBatches(), offset, aborted)
        with self._lock, contextlib.ExitStack() as files:
            found = _Taken(max_bytes, at_least_one, files, written=self._written())
            self._take(found, offset, end)
            if is_committed and found.parts:
                aborted = self._aborted(found, offset)
            if found.lost_end is not None and not found.parts:
                filler = empty_batch(offset, found.lost_end)
                return FetchedBatches(StoredBatches((filler,)), found.lost_end, aborted)
            return FetchedBatches(found.stored(to_send), found.next_offset(offset), aborted)

    def _written(self) -> int | None:
        """The number of the segment that a broker is writing; None if none is."""
        partition = self.replica.partition
        return len(partition.segments) - 1 if is_in_use_around(partition.path) else None

    def _take(self, found: _Taken, offset: int, end: int) -> None:
        """Choose the batches of a fetch; it ends before damage and after so many bytes."""
        partition = self.replica.partition
        segments = partition.segments
        first = bisect_right(segments, offset, key=lambda each: each.base_offset) - 1
        damages: list[Damage] = []
        for number in range(max(first, 0), len(segments)):
            following = segments[number + 1] if number + 1 < len(segments) else None
            known = self.verified.of(partition, segments[number], following)
            try:
                offset, is_done = self._take_of(known, number, found, damages, offset, end)
            except FileNotFoundError:
                if not found.parts:
                    raise
                return  # the next fetch begins there
            finally:
                self.verified.note_size(known)
            log = found.logs[number]
            if not found.parts:
                found.close(number)
            if is_done:
                return
            is_shorter = log.size_bytes < segments[number].log_bytes
            if is_shorter and not damages and found.written is None:
                raise changed_log(log, "became shorter")
        if damages and self._may_pass(damages, found, offset, end):
            # Nothing follows the records that cannot be read.
            found.lost_end = end

    def _take_of(
        self,
        known: SegmentBatches,
        number: int,
        found: _Taken,
        damages: list[Damage],
        offset: int,
        end: int,
    ) -> tuple[int, bool]:
        """Choose those of one segment; gives the next offset, and whether the fetch ends here."""
        for step in known.steps_from(found.opened(number, known.path), offset):
            if isinstance(step, Damage):
                damages.append(step)
                continue
            rows = _rows_within(step, offset, end)
            if not rows.count and int(step.last_offset[-1]) >= offset:
                # What follows is past the end.
                if damages and self._may_pass(damages, found, offset, end):
                    found.lost_end = end
                if not damages and not found.parts and found.written is None:
                    self._require_end(int(step.last_offset[-1]) + 1, found.logs[number])
                return offset, True
            if _ends_before(found.logs[number], rows, offset):
                found.lost_end = int(rows.last_offset[0]) + 1
                rows = rows.rows(slice(1, None))
            if rows.count:
                next_offset = int(rows.base_offset[0])
                if damages and not self._may_pass(damages, found, offset, next_offset):
                    return offset, True
                if not found.take(number, rows):
                    return offset, True
                offset = int(rows.last_offset[-1]) + 1
            damages.clear()
        return offset, bool(found.parts)

    def _require_end(self, reached: int, log: StoredFile) -> None:
        """Refuse a log that ends elsewhere than when its end was looked up.

        A consumer would wait at an offset before that end for ever.

        Args:
            reached: the end of the last batch that was found in it.

        Raises:
            OSError: another file has been put in its place, or it cannot be read.
        """
        known = next(iter(self._ends.values())).log_end_offset
        if reached > known:
            again = self.lookup(Question(time=SpecialTime.LATEST))
            if again.log_end_offset != known:
                raise changed_log(log, "was replaced")

    def _may_pass(
        self, damages: list[Damage], found: _Taken, offset: int, next_offset: int
    ) -> bool:
        """Whether a fetch goes on after damage; reports the offsets that are lost with it.

        Raises:
            CorruptBatch: the offset is lost, and was to be read first.
        """
        if next_offset <= offset:
            return True
        if found.parts:
            return False
        self.notices.note_damage(self.key, damages, (offset, next_offset))
        if self.notices.skips_damage:
            return True
        raise CorruptBatch

    # ---- Transactions ----

    def _aborted(self, found: _Taken, offset: int) -> tuple[tuple[int, int], ...]:
        """The producers whose batches a consumer has to leave out, from the markers in the log.

        A consumer leaves out what a producer wrote from an offset on, up to a marker of an abort. A
        batch whose own marker may be damaged is left out, too; the producer's next marker may be
        of another transaction, and the fetch ends before it.
        """
        number = found.parts[0][0]
        if not any(_has_transactions(batches) for _, batches in found.parts):
            return ()
        reader = self.readers.pop(self.key, offset)
        if reader is None or (reader.segment in found.logs and reader.is_of_another(found)):
            position = int(found.parts[0][1].position[0])
            ahead = LookAhead(self.replica.partition, number, position)
            outcomes = TransactionOutcomes(ahead, lambda _damage: None)
            reader = CommittedReader(outcomes, ahead, number, None)
        try:
            aborted, is_cut = _aborted(found, reader.outcomes)
        finally:
            reader.ahead.rest()
        if not is_cut:
            last, batches = found.parts[-1]
            reader = reader._replace(segment=last, identity=found.logs[last].identity())
            self.readers.put(self.key, int(batches.last_offset[-1]) + 1, reader)
        return aborted


class _Taken(Struct):
    """The batches of a fetch, with the number of the segment that they are in.

    Attributes:
        at_least_one: whether the first batch may be larger.
        logs: by the number of the segment: another file may have the name by the time it is read.
        modified_ns: when each was written last, before its batches were verified.
        lost_end: the end of the offsets that damage or a wrong header leaves without a batch; None
            if there is a batch.
        written: the segment to which a broker appends now and then: it is read, not sent.
    """

    max_bytes: int
    at_least_one: bool
    files: contextlib.ExitStack
    logs: dict[int, StoredFile] = field(default_factory=dict)
    modified_ns: dict[int, int] = field(default_factory=dict)
    parts: list[tuple[int, BatchColumns]] = field(default_factory=list)
    lost_end: int | None = None
    written: int | None = None

    def opened(self, segment: int, path: Location) -> StoredFile:
        """Open a log, until the fetch ends."""
        self.logs[segment] = log = self.files.enter_context(path.open_file())
        if isinstance(log, LocalFile):
            self.modified_ns[segment] = log.modified_ns()
        return log

    def close(self, segment: int) -> None:
        """Close a log that nothing was taken of."""
        self.logs.pop(segment).close()

    def take(self, segment: int, batches: BatchColumns) -> bool:
        """Take as many of some batches as may be; tells whether there is room for more."""
        sizes = np.cumsum(batches.size_bytes)
        count = int(np.searchsorted(sizes, self.max_bytes, "right"))
        if not count and self.at_least_one and not self.parts:
            count = 1
        if count:
            self.parts.append((segment, batches.rows(slice(0, count))))
            self.max_bytes -= int(sizes[count - 1])
        return count == batches.count and self.max_bytes > 0

    def cut(self, at: int, segment: int, batches: BatchColumns) -> None:
        """End with some rows of a part."""
        self.parts[at:] = [(segment, batches)] if batches.count else []

    def next_offset(self, offset: int) -> int:
        """Where a client goes on that asked for an offset."""
        return int(self.parts[-1][1].last_offset[-1]) + 1 if self.parts else offset

    def stored(self, to_send: contextlib.ExitStack | None) -> StoredBatches:
        """The batches, with what is worth it as ranges of files that stay open.

        Raises:
            OSError: a file cannot be read.
        """
        parts = []
        for number, ranges in self._ranges().items():
            log = self.logs[number]
            modified_ns = None
            if to_send is not None and number != self.written:
                modified_ns = self.modified_ns.get(number)
            own = [_part(log, start, end, modified_ns) for start, end in ranges]
            if not any(isinstance(each, SentRange) for each in own):
                self.close(number)
            parts += own
        if to_send is not None:
            to_send.push(self.files.pop_all())
        return StoredBatches(tuple(parts))

    def _ranges(self) -> Mapping[int, list[tuple[int, int]]]:
        """The bytes to send, by the number of the segment."""
        found: dict[int, list[tuple[int, int]]] = {}
        for segment, batches in self.parts:
            ranges = found.setdefault(segment, [])
            start, end = int(batches.position[0]), int(batches.next_position[-1])
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, end))
        return found


def _part(log: StoredFile, start: int, end: int, modified_ns: int | None) -> bytes | SentRange:
    """Bytes of a log; as a range they are in the memory of the system.

    Args:
        modified_ns: when the log was written last; None if it has to be read.

    Raises:
        OSError: they cannot be read.
    """
    is_sent = modified_ns is not None and end - start >= LEAST_RANGE_BYTES
    if is_sent and isinstance(log, LocalFile):
        assert modified_ns is not None
        log.load(start, end)
        return SentRange(log, start, end, modified_ns)
    return read_stored(log, start, end)


def _rows_within(batches: BatchColumns, offset: int, end: int) -> BatchColumns:
    """The batches that reach an offset, and end before another."""
    last = batches.last_offset
    first = int(np.searchsorted(last, offset, "left"))
    stop = int(np.searchsorted(last, end, "left"))
    return batches.rows(slice(first, max(first, stop)))


def _ends_before(log: StoredFile, batches: BatchColumns, offset: int) -> bool:
    """Whether the first batch ends before an offset by its header, though its records reach it.

    A client goes on after the offsets of the header: it would get the batch again and again.
    """
    if not batches.count or batches.magic[0] < 2 or batches.base_offset[0] >= offset:
        return False
    start = int(batches.position[0])
    header = record_batch.decode_header(read_stored(log, start, start + record_batch.HEADER_BYTES))
    return header.last_offset < offset


def empty_batch(offset: int, end: int) -> bytes:
    """A batch without records, as the cleaner leaves one: consumers go on at its end.

    Without it, a consumer would wait for ever before the last stable offset.
    """
    header = record_batch.BatchHeader(
        base_offset=offset,
        length=0,
        partition_leader_epoch=record_batch.NO_PARTITION_LEADER_EPOCH,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=end - 1 - offset,
        base_timestamp=record_batch.NO_TIMESTAMP,
        max_timestamp=record_batch.NO_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=record_batch.NO_SEQUENCE,
        records_count=0,
    )
    return record_batch.encode_batch(header, b"")


def _aborted(
    found: _Taken, outcomes: TransactionOutcomes
) -> tuple[tuple[tuple[int, int], ...], bool]:
    """The producers to leave out, and whether the fetch had to end before its last batch."""
    aborted: list[tuple[int, int]] = []
    left_out: set[int] = set()
    undecided: set[int] = set()
    for at, (segment, batches) in enumerate(found.parts):
        states = outcomes.states(batches).tolist()
        markers = (is_in_transaction(batches) & is_control(batches)).tolist()
        ids, offsets = batches.producer_id.tolist(), batches.base_offset.tolist()
        for row, (state, producer_id) in enumerate(zip(states, ids, strict=True)):
            is_end = markers[row] or state == TransactionState.COMMITTED
            if is_end and producer_id in undecided:
                found.cut(at, segment, batches.rows(slice(0, row)))
                return tuple(aborted), True
            if is_end:
                left_out.discard(producer_id)
            elif state != TransactionState.NONE:
                if producer_id not in left_out:
                    aborted.append((producer_id, offsets[row]))
                    left_out.add(producer_id)
                if state == TransactionState.OPEN:
                    undecided.add(producer_id)
    return tuple(aborted), False


def _has_transactions(batches: BatchColumns) -> bool:
    data: Flags = is_in_transaction(batches) & ~is_control(batches)
    return bool(data.any())
