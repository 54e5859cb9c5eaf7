"""The job that compares the replicas of one partition."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from kdump.broker.loader import swapped_partition
from kdump.broker.loader.loader import LoadContext
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.engine.job import Split
from kdump.engine.progress import SILENT, Progress
from kdump.formats.errors import FormatError
from kdump.formats.names import TopicPartition
from kdump.formats.uuids import format_uuid
from kdump.jobs.diff.comparison import ComparedLog, Comparison, OnlyOnOne, OnRecords, Parting
from kdump.jobs.diff.replica_log import OffsetRange, ReplicaLog, count_records
from kdump.log.directory import read_lone_partition
from kdump.log.partition import Partition
from kdump.log.replicas import ReplicaEnd
from kdump.log.valid_windows import Damage
from kdump.phases import during
from kdump.repair.policies import Policy, repair_partition
from kdump.scan.records import LARGEST_RECORD_BYTES
from kdump.state.epoch_history import EpochHistory
from kdump.state.follower_truncation import LoadedReplica, Truncation, truncation_as_follower
from kdump.state.raft_truncation import SnapshotId, truncation_in_raft
from kdump.storage.location import Location
from kdump.target.refusal import Refusal


@dataclass(frozen=True, slots=True)
class ReplicaToCompare:
    """A replica.

    Attributes:
        side: the number of its side.
        path: the directory.
        name: its name.
        context: what loading it depends on.
        has_root: whether the files in the root of its log directory are known; otherwise the high
            watermark is not.
        cleaned_to: the first offset that the cleaner has not reached.
    """

    side: int
    path: Location
    name: str
    context: LoadContext
    has_root: bool = True
    cleaned_to: int = 0


@dataclass(frozen=True, slots=True)
class DiffSplit(Split):
    """A partition to compare.

    Attributes:
        key: the partition; None for copies whose directories are not named after one.
        replicas: at least two.
    """

    key: TopicPartition | None = None
    replicas: tuple[ReplicaToCompare, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaResult:
    """What was found about one replica.

    Attributes:
        side: the number of its side.
        path: its directory.
        topic_id: as Kafka writes it; None if it has none.
        start_offset: the first offset of the log.
        end_offset: after the last valid batch.
        loaded: as a broker has it after loading; None if no broker loads it.
        refusal: why no broker loads it.
        last: the leader epoch of its last batch, and its end.
        epochs_differ_at: the first offset at which the leader epochs that a broker would have
            contradict the batches; None if they do not.
        unreadable: the first ranges of offsets that damage took.
        damages: the first damaged ranges of bytes.
        damage_count: how many there are.
        lost_if_leading: how many records of the others are lost if it leads.
    """

    side: int
    path: Location
    topic_id: str | None
    start_offset: int
    end_offset: int
    loaded: LoadedReplica | None
    refusal: str | None
    last: ReplicaEnd
    epochs_differ_at: int | None
    unreadable: tuple[OffsetRange, ...]
    damages: tuple[Damage, ...]
    damage_count: int
    lost_if_leading: int


@dataclass(frozen=True, slots=True)
class PairResult:
    """Two replicas compared.

    Attributes:
        left: the number of one replica.
        right: of the other.
        parting: where they part.
        left_truncation: the left one as the follower of the right one; None if unknown.
        right_truncation: likewise.
        left_only: what only the left one has.
        right_only: likewise.
        common_epoch: the leader epoch of the last common offset; None if it is not known.
    """

    left: int
    right: int
    parting: Parting
    left_truncation: Truncation | None
    right_truncation: Truncation | None
    left_only: OnlyOnOne
    right_only: OnlyOnOne
    common_epoch: int | None


@dataclass(frozen=True, slots=True)
class PartitionDiff:
    """The replicas of a partition compared, each with each.

    Attributes:
        key: the partition.
        replicas: in the order of the split.
        pairs: each two of them.
    """

    key: TopicPartition | None
    replicas: tuple[ReplicaResult, ...]
    pairs: tuple[PairResult, ...]

    @property
    def has_only_on_one(self) -> bool:
        """Whether a replica has a record that another one has not."""
        return any(pair.left_only.records or pair.right_only.records for pair in self.pairs)


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A partition that could not be compared.

    Attributes:
        key: the partition.
        path: the file or directory.
        what: the error; a text if a replica has a format that is not compared.
    """

    key: TopicPartition | None
    path: str
    what: str

    @property
    def has_only_on_one(self) -> bool:
        """Nothing is known of its records."""
        return False


@dataclass(frozen=True, slots=True)
class DiffJob:
    """Compares the replicas of a partition.

    Attributes:
        largest_record_bytes: larger records of compressed batches are not decoded.
    """

    largest_record_bytes: int = LARGEST_RECORD_BYTES

    def run(self, split: DiffSplit, /) -> PartitionDiff | NotCompared:
        """Compare; a replica that cannot be read is a result, too."""
        return compare_replicas(split, self.largest_record_bytes)


@during("comparing replicas")
def diff(
    splits: Sequence[DiffSplit],
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
    largest_record_bytes: int = LARGEST_RECORD_BYTES,
) -> list[PartitionDiff | NotCompared]:
    """Compare the replicas of partitions; the results are in the order of ``splits``.

    Raises:
        KdumpError: the engine failed.
    """
    return run_job(DiffJob(largest_record_bytes), splits, options, progress)


def compare_replicas(
    split: DiffSplit,
    largest_record_bytes: int = LARGEST_RECORD_BYTES,
    on_records: OnRecords | None = None,
) -> PartitionDiff | NotCompared:
    """Compare the replicas of one partition.

    Args:
        split: the replicas.
        largest_record_bytes: larger records of compressed batches are not decoded.
        on_records: takes the records that one replica has and another has not, with the numbers of
            the two replicas.
    """
    try:
        replicas = [_Replica(each) for each in split.replicas]
        for replica in replicas:
            if replica.partition.is_0_7:
                what = "logs of Kafka 0.7 are not compared"
                return NotCompared(split.key, str(replica.source.path), what)
        return _compared(split.key, replicas, largest_record_bytes, on_records)
    except OSError as failure:
        what = failure.strerror or str(failure)
        return NotCompared(split.key, str(failure.filename or split.path), what)
    except swapped_partition.UnfinishedSwapError as failure:
        return NotCompared(split.key, str(split.path), str(failure))


def _compared(
    key: TopicPartition | None,
    replicas: Sequence[_Replica],
    largest_record_bytes: int,
    on_records: OnRecords | None,
) -> PartitionDiff:
    """Compare; raises OSError if a log cannot be read."""
    truncations = {
        (one, other): _truncation(replicas[one], replicas[other])
        for one, other in itertools.permutations(range(len(replicas)), 2)
    }
    second_start = sorted(each.start_offset for each in replicas)[1]
    with contextlib.ExitStack() as stack:
        logs = []
        for each in replicas:
            log = ReplicaLog(each.partition, each.start_offset, second_start, largest_record_bytes)
            stack.callback(log.close)
            logs.append(ComparedLog(log, each.source.cleaned_to))
        cut_from = {
            pair: None if each is None else each.end_offset for pair, each in truncations.items()
        }
        comparison = Comparison(logs, cut_from, on_records)
        comparison.run()
    for (one, other), truncation in truncations.items():
        if truncation is not None and truncation.starts_over:
            comparison.only[one, other].lost_records = count_records(
                replicas[one].partition, replicas[one].start_offset, largest_record_bytes
            )
    return PartitionDiff(
        key,
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
                comparison.only[left, right],
                comparison.only[right, left],
                _common_epoch(parting, logs[left].log, logs[right].log),
            )
            for (left, right), parting in comparison.partings.items()
        ),
    )


class _Replica:
    """A replica and what a broker makes of it.

    Raises:
        OSError: a file cannot be read.
        UnfinishedSwapError: its segments were being replaced, and no broker loads it.
    """

    def __init__(self, source: ReplicaToCompare) -> None:
        self.source = source
        listed = read_lone_partition(source.path, source.name)
        self.partition: Partition = swapped_partition.as_loaded(listed)
        self.loaded: LoadedReplica | None = None
        self.refusal: Refusal | None = None
        self.start_offset = max(
            source.context.log_start_offset,
            self.partition.segments[0].base_offset if self.partition.segments else 0,
        )
        if self.partition.is_0_7:
            return
        outcome = repair_partition(listed, source.context, Policy.BROKER)
        if isinstance(outcome, Refusal):
            self.refusal = outcome
            return
        self.loaded = LoadedReplica(
            outcome.log_start_offset,
            outcome.log_end_offset,
            source.context.high_watermark if source.has_root else None,
            outcome.leader_epochs,
        )
        self.start_offset = outcome.log_start_offset

    @property
    def snapshots(self) -> list[SnapshotId]:
        """Of the cluster's metadata."""
        return [
            SnapshotId(each.epoch, each.end_offset) for each in self.partition.metadata_snapshots
        ]

    def result(self, log: ReplicaLog, lost_if_leading: int) -> ReplicaResult:
        last_epoch = log.epochs.latest_epoch
        return ReplicaResult(
            side=self.source.side,
            path=self.source.path,
            topic_id=self._topic_id(),
            start_offset=self.start_offset,
            end_offset=log.end_offset,
            loaded=self.loaded,
            refusal=None if self.refusal is None else str(self.refusal),
            last=ReplicaEnd(-1 if last_epoch is None else last_epoch, log.end_offset),
            epochs_differ_at=self._contradiction(log),
            unreadable=tuple(log.unreadable.ranges),
            damages=tuple(log.damages),
            damage_count=log.damage_count,
            lost_if_leading=lost_if_leading,
        )

    def _topic_id(self) -> str | None:
        try:
            metadata = self.partition.read_metadata()
        except (FormatError, OSError):
            return None  # verify reports it
        return None if metadata is None else format_uuid(metadata.topic_id)

    def _contradiction(self, log: ReplicaLog) -> int | None:
        if self.loaded is None:
            return None
        history = EpochHistory(self.loaded.leader_epochs)
        for epoch, start_offset in log.epochs.entries:
            offset = max(start_offset, self.start_offset)
            if offset < self.loaded.log_end_offset and history.epoch_for_offset(offset) != epoch:
                return offset
        return None


def _truncation(follower: _Replica, leader: _Replica) -> Truncation | None:
    if follower.loaded is None or leader.loaded is None:
        return None
    if follower.partition.is_cluster_metadata and leader.partition.is_cluster_metadata:
        return truncation_in_raft(
            follower.loaded, leader.loaded, follower.snapshots, leader.snapshots
        )
    return truncation_as_follower(follower.loaded, leader.loaded)


def _common_epoch(parting: Parting, left: ReplicaLog, right: ReplicaLog) -> int | None:
    end = min(left.end_offset, right.end_offset)
    if parting.offset is not None:
        end = parting.offset
    return left.epochs.epoch_for_offset(end - 1)
