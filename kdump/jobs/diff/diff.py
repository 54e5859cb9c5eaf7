"""The job that compares the replicas of one partition."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from kdump.broker.loader import swapped_partition
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.recovered_partition import Recovered
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import Split
from kdump.errors import reason_of
from kdump.formats import names
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.jobs.diff.comparison import ComparedLog, Comparison, OnRecords, Parting
from kdump.jobs.diff.cut_batch import CutBatch, find_cut_batch
from kdump.jobs.diff.living_replica import (
    LivingReplica,
    LivingReplicaLog,
    ReplicaChangedError,
    ReplicaGoneError,
    living_replica,
)
from kdump.jobs.diff.record_rows import RecordRows
from kdump.jobs.diff.replica_log import (
    MAX_OFFSET,
    OffsetRange,
    OffsetRanges,
    ReplicaLog,
    count_records,
)
from kdump.jobs.diff.results import (
    Compared,
    GoneMeanwhile,
    NotCompared,
    PairResult,
    PartitionDiff,
    ReplicaResult,
    TopicDiff,
    UnrelatedReplica,
)
from kdump.jobs.loading.load_partition import Outcome, load, loaded_replica
from kdump.jobs.loading.load_split import LoadSplit
from kdump.log.directory import read_lone_partition
from kdump.log.lock_holders import ReadAs, is_in_use_around, require_log_directory
from kdump.log.log_search import ReplicaEnd
from kdump.log.partition import Partition
from kdump.log.replicas import by_topic_id
from kdump.log.settled_listing import ATTEMPTS, wait
from kdump.phases import during
from kdump.scan.source import ShortenedFileError
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.state.epochs.follower_truncation import LoadedReplica, Truncation, truncation_as_follower
from kdump.state.epochs.raft_truncation import SnapshotId, truncation_in_raft
from kdump.storage.location import Location
from kdump.target.refusal import Refusal


class ReplicaToCompare(Struct, frozen=True):
    """A replica.

    Attributes:
        side: the number of its side.
        has_root: whether the files in the root of its log directory are known; otherwise the high
            watermark is not.
        cleaned_to: the first offset that the cleaner has not reached.
        needs_topic_id: whether its broker takes a log without a topic id for a stray one.
        reading: whether to read it as one that a broker is using.
        may_be_compacted: whether its topic is compacted, or not known not to be.
    """

    side: int
    path: Location
    name: str
    context: LoadContext
    has_root: bool = True
    cleaned_to: int = 0
    needs_topic_id: bool = False
    reading: ReadAs = ReadAs.AS_FOUND
    may_be_compacted: bool = True

    @property
    def is_living(self) -> bool:
        """Whether a broker is using it, as far as it has to be read so."""
        if self.reading is ReadAs.AS_FOUND:
            return is_in_use_around(self.path)
        return self.reading is ReadAs.LIVING


class DiffSplit(Split, frozen=True, kw_only=True):
    """A partition to compare.

    Attributes:
        key: the partition; None for copies whose directories are not named after one.
        replicas: at least two; a single one is only read.
        is_one_topic: whether they are compared whatever their topic ids are.
        largest_record_bytes: larger records of compressed batches are not decoded.
    """

    key: TopicPartition | None
    replicas: tuple[ReplicaToCompare, ...]
    is_one_topic: bool
    largest_record_bytes: int = LARGEST_RECORD_BYTES

    def read_places(self) -> Iterator[Location]:
        return (each.path for each in self.replicas)


class DiffJob(Struct, frozen=True):
    """Compares the replicas of a partition."""

    def run(self, split: DiffSplit, /) -> Compared:
        """Compare; a replica that cannot be read is a result, too."""
        return compare_replicas(split)


@during("comparing replicas")
def diff(splits: Sequence[DiffSplit], options: EngineOptions = DEFAULT_OPTIONS) -> list[Compared]:
    """Compare the replicas of partitions; the results are in the order of ``splits``.

    Raises:
        KdumpError: the engine failed.
    """
    return run_job(DiffJob(), splits, options, kind=JobKind.DECODE)


def compare_replicas(split: DiffSplit, on_records: OnRecords | None = None) -> Compared:
    """Compare the replicas of one partition.

    Of those that a broker is using, what its work explains is no difference
    (:mod:`kdump.jobs.diff.living_replica`).

    Args:
        on_records: takes the records that one replica has and another has not, with the numbers of
            the two replicas.
    """
    earlier: Sequence[int | None] = ()
    taken = None if on_records is None else _TakenOnce(on_records)
    for attempt in range(ATTEMPTS):
        living = [each.is_living for each in split.replicas]
        try:
            found = _compared_once(split, living, taken)
        except ReplicaChangedError:
            wait(attempt)
            continue
        if found.is_different and _was_started(split, living):
            continue
        partings = _partings(found) if any(living) and on_records is None else ()
        if any(each is not None for each in partings) and partings != earlier:
            # A follower may have been about to truncate its log: it counts if it is there twice.
            earlier = partings
            wait(attempt)
            continue
        return found
    return NotCompared(split.key, str(split.path), "it keeps changing; compare it again")


class _TakenOnce:
    """Passes on records that are read several times, because a log has changed, only once.

    What was passed on cannot be taken back: each two replicas continue at the next offset.
    """

    def __init__(self, on_records: OnRecords) -> None:
        self._on_records = on_records
        self._next_offset = dict[tuple[int, int], int]()

    def __call__(self, holder: int, other: int, found: RecordRows) -> None:
        pair, count = (holder, other), len(found.offset)
        first = int(np.searchsorted(found.offset, self._next_offset.get(pair, 0)))
        if first < count:
            self._next_offset[pair] = int(found.offset[-1]) + 1
            self._on_records(holder, other, found.slice(first, count))


def _partings(found: Compared) -> Sequence[int | None]:
    """Where each two replicas part."""
    return [each.parting.offset for each in found.pairs] if isinstance(found, PartitionDiff) else ()


def _was_started(split: DiffSplit, living: Sequence[bool]) -> bool:
    """Whether a broker uses a replica by now that was read as of a stopped one."""
    return any(
        each.is_living and not was_living
        for each, was_living in zip(split.replicas, living, strict=True)
    )


def _compared_once(
    split: DiffSplit, living: Sequence[bool], on_records: OnRecords | None
) -> Compared:
    """Compare once.

    Raises:
        ReplicaChangedError: a broker has changed so much that the result does not count.
    """
    try:
        replicas = [
            _Replica(each, split.largest_record_bytes, is_living=is_living)
            for each, is_living in zip(split.replicas, living, strict=True)
        ]
        for replica in replicas:
            if replica.partition.is_0_7:
                what = "logs of Kafka 0.7 are not compared"
                return NotCompared(split.key, str(replica.source.path), what)
        return _compared_by_topic(split, replicas, on_records)
    except ReplicaGoneError:
        return GoneMeanwhile(split.key)
    except OSError as failure:
        if isinstance(failure, FileNotFoundError | ShortenedFileError) and any(living):
            raise ReplicaChangedError(str(failure)) from failure
        what = reason_of(failure)
        return NotCompared(split.key, str(failure.filename or split.path), what)
    except swapped_partition.UnfinishedSwapError as failure:
        return NotCompared(split.key, str(split.path), str(failure))


def _compared_by_topic(
    split: DiffSplit, replicas: Sequence[_Replica], on_records: OnRecords | None
) -> PartitionDiff:
    """Compare the replicas of each topic; raises OSError if a log cannot be read."""
    numbers = range(len(replicas))
    groups = (
        [list(numbers)] if split.is_one_topic else by_topic_id([each.topic_id for each in replicas])
    )
    topics = [
        _compared(
            [replicas[number] for number in group],
            None if on_records is None else _renumbered(on_records, group),
        )
        for group in groups
        if len(group) > 1 or len(replicas) == 1
    ]
    group_of = {number: group for group in groups for number in group}
    unrelated = tuple(
        (replicas[one].unrelated(), replicas[other].unrelated())
        for one, other in itertools.combinations(numbers, 2)
        if group_of[one] is not group_of[other]
    )
    return PartitionDiff(split.key, tuple(topics), unrelated)


def _renumbered(on_records: OnRecords, group: Sequence[int]) -> OnRecords:
    """Take the records of some replicas, with the numbers that these have among all."""
    return lambda holder, other, found: on_records(group[holder], group[other], found)


def _compared(replicas: Sequence[_Replica], on_records: OnRecords | None) -> TopicDiff:
    """Compare; raises OSError if a log cannot be read."""
    truncations = {
        (one, other): _truncation(replicas[one], replicas[other])
        for one, other in itertools.permutations(range(len(replicas)), 2)
    }
    second_start = sorted(each.start_offset for each in replicas)[:2][-1]
    living_ends = [each.living.end_offset for each in replicas if each.living is not None]
    limit = min(living_ends, default=None)
    with contextlib.ExitStack() as stack:
        logs: list[ComparedLog] = []
        for each in replicas:
            # What a start drops counts, also where no other log begins that early.
            read_from = min([second_start, *(start for start, _ in each.dropped)])
            log = each.log(read_from, limit, [other.log for other in logs])
            stack.callback(log.close)
            logs.append(ComparedLog(log, each.dropped))
        cuts = {pair: _cut(replicas[pair[0]], each) for pair, each in truncations.items()}
        cut_from = {pair: _lost_from(each, cuts[pair]) for pair, each in truncations.items()}
        comparison = Comparison(logs, cut_from, on_records)
        comparison.run()
    if comparison.is_different:
        for compared in logs:
            if isinstance(compared.log, LivingReplicaLog):
                compared.log.require_unchanged()
    for (one, other), truncation in truncations.items():
        if truncation is not None and truncation.starts_over:
            comparison.only[one, other].lost_records = replicas[one].count_records()
    return TopicDiff(
        tuple(
            each.result(compared.log, lost)
            for each, compared, lost in zip(replicas, logs, comparison.lost_if_leading, strict=True)
        ),
        tuple(
            PairResult(
                left,
                right,
                parting,
                truncations[left, right],
                truncations[right, left],
                cuts[left, right],
                cuts[right, left],
                comparison.only[left, right],
                comparison.only[right, left],
                _common_epoch(parting, logs[left].log, logs[right].log),
            )
            for (left, right), parting in comparison.partings.items()
        ),
        limit,
    )


class _Replica:
    """A replica and what a broker makes of it; nothing if the broker is still using it.

    Raises:
        OSError: a file cannot be read.
        ReplicaGoneError: the broker that uses it has deleted or moved it.
        UnfinishedSwapError: its segments were being replaced, and no broker loads it.
    """

    def __init__(
        self, source: ReplicaToCompare, largest_record_bytes: int, *, is_living: bool
    ) -> None:
        self.source = source
        self._largest_record_bytes = largest_record_bytes
        self.living: LivingReplica | None = None
        listed = _listed(source, is_living=is_living)
        if is_living and not listed.is_0_7:
            self.living = living_replica(listed)
            listed = self.living.partition
        self.partition: Partition = swapped_partition.as_loaded(listed)
        self.topic_id = self.partition.known_topic_id
        self.loaded: LoadedReplica | None = None
        self.refusal: Refusal | None = None
        first_offset = self.partition.segments[0].base_offset if self.partition.segments else 0
        self.start_offset = max(source.context.log_start_offset, first_offset)
        self.dropped = self.recoverable = [OffsetRange(self.start_offset, MAX_OFFSET)]
        if self.living is not None:
            self.dropped = self.recoverable = []
        if self.partition.is_0_7 or self.living is not None:
            return
        split = LoadSplit(source.path, name=source.name, context=source.context)
        outcome = load(split, listed.entries)
        if source.needs_topic_id and self.topic_id is None:
            outcome = _stray(outcome)
        if isinstance(outcome, Refusal):
            self.refusal = outcome
            return
        assert isinstance(outcome, Recovered)
        high_watermark = source.context.high_watermark if source.has_root else None
        self.loaded = loaded_replica(outcome, high_watermark)
        self.start_offset = outcome.log_start_offset
        dropped = outcome.dropped_offsets
        if dropped and dropped[-1].stop < self.start_offset:
            # The log ends before the start that the checkpoint claims: nobody deleted its records.
            self.start_offset = first_offset
        self.recoverable = [
            OffsetRange(max(each.start, self.start_offset), each.stop)
            for each in dropped
            if each.stop > self.start_offset
        ]
        self.dropped = [*self.recoverable, OffsetRange(outcome.log_end_offset, MAX_OFFSET)]

    @property
    def snapshots(self) -> list[SnapshotId]:
        """Of the cluster's metadata."""
        return [
            SnapshotId(each.epoch, each.end_offset) for each in self.partition.metadata_snapshots
        ]

    def count_records(self) -> int:
        """Count the readable records of the whole log."""
        return count_records(self.partition, self.start_offset, self._largest_record_bytes)

    def log(self, read_from: int, limit: int | None, others: Sequence[ReplicaLog]) -> ReplicaLog:
        """Begin to read the log, up to ``limit``; ``others`` as for :class:`ReplicaLog`."""
        source, limit = self.source, MAX_OFFSET if limit is None else limit
        if self.living is None:
            return ReplicaLog(
                self.partition,
                self.start_offset,
                read_from,
                self._largest_record_bytes,
                cleaned_to=source.cleaned_to,
                limit=limit,
                others=others,
            )
        return LivingReplicaLog(
            self.living,
            self.start_offset,
            read_from,
            self._largest_record_bytes,
            cleaned_to=None if source.may_be_compacted else 0,
            limit=limit,
        )

    def unrelated(self) -> UnrelatedReplica:
        """It, as one that is not compared."""
        return UnrelatedReplica(self.source.side, self.source.path, self.topic_id)

    def result(self, log: ReplicaLog, lost_if_leading: int) -> ReplicaResult:
        last_epoch = log.epochs.latest_epoch
        return ReplicaResult(
            side=self.source.side,
            path=self.source.path,
            topic_id=self.topic_id,
            start_offset=self.start_offset,
            end_offset=log.end_offset,
            loaded=self.loaded,
            refusal=None if self.refusal is None else str(self.refusal),
            last=ReplicaEnd(-1 if last_epoch is None else last_epoch, log.end_offset),
            epochs_differ_at=self._contradiction(log),
            unreadable=tuple(log.unreadable.ranges),
            damages=tuple(log.damages),
            damage_count=log.damage_count,
            recoverable=self._recoverable(log),
            lost_if_leading=lost_if_leading,
        )

    def _recoverable(self, log: ReplicaLog) -> tuple[OffsetRange, ...]:
        found = OffsetRanges()
        for start, end in self.recoverable:
            if start < log.end_offset:
                found.add(start, min(end, log.end_offset))
        return tuple(found.ranges)

    def _contradiction(self, log: ReplicaLog) -> int | None:
        if self.loaded is None:
            return None
        history = EpochHistory(self.loaded.leader_epochs)
        for epoch, start_offset in log.epochs.entries:
            offset = max(start_offset, self.start_offset)
            if offset < self.loaded.log_end_offset and history.epoch_for_offset(offset) != epoch:
                return offset
        return None


def _listed(source: ReplicaToCompare, *, is_living: bool) -> Partition:
    """List the directory of a replica, and keep its entries.

    Raises:
        OSError: it cannot be listed.
        ReplicaGoneError: the broker that uses it has deleted or moved it.
    """
    try:
        return read_lone_partition(source.path, source.name, keep_entries=True)
    except FileNotFoundError:
        if not is_living:
            raise
        require_log_directory(source.path.around)
        raise ReplicaGoneError(str(source.path)) from None


def _stray(outcome: Outcome) -> Refusal:
    """Why a broker has no log of a replica without a topic id, if it can load it at all."""
    if isinstance(outcome, Refusal):
        return outcome
    what = (
        "without a topic id a starting broker renames it to -stray; 'kdump verify --repair' writes"
        " the id, if the cluster's metadata has the topic"
    )
    return Refusal(what, names.PARTITION_METADATA, "")


def _truncation(follower: _Replica, leader: _Replica) -> Truncation | None:
    if follower.loaded is None or leader.loaded is None:
        return None
    if follower.partition.is_cluster_metadata and leader.partition.is_cluster_metadata:
        return truncation_in_raft(
            follower.loaded, leader.loaded, follower.snapshots, leader.snapshots
        )
    return truncation_as_follower(follower.loaded, leader.loaded)


def _cut(follower: _Replica, truncation: Truncation | None) -> CutBatch | None:
    """The batch within which a truncation falls."""
    loaded = follower.loaded
    if truncation is None or truncation.starts_over or loaded is None:
        return None
    if truncation.end_offset >= loaded.log_end_offset:
        return None
    return find_cut_batch(follower.partition, truncation.end_offset)


def _lost_from(truncation: Truncation | None, cut: CutBatch | None) -> int | None:
    """The offset from which on a truncation deletes records; None if it is not known."""
    if cut is not None:
        return cut.base_offset
    return None if truncation is None else truncation.end_offset


def _common_epoch(parting: Parting, left: ReplicaLog, right: ReplicaLog) -> int | None:
    end = min(left.end_offset, right.end_offset)
    if parting.offset is not None:
        end = parting.offset
    return left.epochs.epoch_for_offset(end - 1)
