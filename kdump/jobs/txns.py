"""Find open transactions, what coordinators know of them, and what pins last stable offsets.

A task reads one partition. What coordinators know comes from all partitions of
``__transaction_state`` together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kdump.broker.loader.swapped_partition import UnfinishedSwapError, as_loaded
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.engine.job import Split
from kdump.engine.progress import SILENT, Progress
from kdump.formats.names import CLUSTER_METADATA_TOPIC, TopicPartition
from kdump.jobs.loading import Unreadable
from kdump.log.directory import LogDirectory, read_lone_partition
from kdump.log.partition import Partition
from kdump.log.replicas import Replica, ReplicaEnd, replica_end, replicas_by_partition
from kdump.log.selection import PartitionSelection
from kdump.log.valid_records import valid_records
from kdump.log.valid_windows import Damage, OnDamage
from kdump.phases import phase
from kdump.state.cluster import read_newest_image
from kdump.state.hanging_transactions import (
    DEFAULT_MAX_TIMEOUT_MS,
    Coordinators,
    Judgement,
    inferred_partitions_count,
)
from kdump.state.open_transactions import (
    LogTransactions,
    read_transactions,
    snapshot_transactions,
    usable_snapshots,
)
from kdump.state.producers import OpenTxn
from kdump.state.stability import UNKNOWN, Stability, stability
from kdump.state.transaction_coordinator import (
    TRANSACTION_STATE_TOPIC,
    CoordinatorLog,
    CoordinatorLogReader,
    CoordinatorTransaction,
)
from kdump.state.transaction_sizes import TransactionSize, transaction_sizes

_SNAPSHOT_READ_BYTES = 64 << 10
"""About how much is read of a partition after a clean shutdown: a snapshot, and its last batch."""


@dataclass(frozen=True, slots=True)
class TxnsRequest:
    """What to find.

    Attributes:
        directories: the log directories.
        selection: in which partitions.
        now_ms: the current time.
        max_timeout_ms: only transactions without a batch for longer can hang.
    """

    directories: Sequence[LogDirectory]
    selection: PartitionSelection
    now_ms: int
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS


def is_needed(selection: PartitionSelection, directory_name: str, key: TopicPartition) -> bool:
    """Whether a partition has to be listed: it is selected, or says what coordinators know."""
    return key.topic == TRANSACTION_STATE_TOPIC or selection.needs(directory_name, key)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition.

    Attributes:
        txn: the transaction.
        is_certain: whether it is open; if not, damage may hide its marker.
        size: of it; None if its log cannot be read any more.
        judgement: of its coordinator.
    """

    txn: OpenTxn
    is_certain: bool
    size: TransactionSize | None
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class PartitionTransactions:
    """The transactions of a partition.

    Attributes:
        topic_partition: the partition.
        replica: the most advanced of its replicas, which was read.
        other_ends: the replicas that end elsewhere, and where.
        replicas_count: how many replicas there are.
        log_start_offset: None if unknown.
        log_end_offset: after the last valid batch; None if unknown.
        high_watermark: from the checkpoints; None if unknown.
        stability: its last stable offset.
        has_damage: whether there is damage that may hide markers.
        open_transactions: by first offset.
    """

    topic_partition: TopicPartition
    replica: Replica
    other_ends: tuple[tuple[Replica, ReplicaEnd], ...]
    replicas_count: int
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    high_watermark: int | None = None
    stability: Stability = UNKNOWN
    has_damage: bool = False
    open_transactions: tuple[OpenTransaction, ...] = ()

    @property
    def is_stable(self) -> bool:
        """Whether everything up to the end of the log is known to be stable."""
        end = self.log_end_offset
        return end is not None and self.stability.last_stable_offset == end

    @property
    def is_only_unmarked(self) -> bool:
        """Whether the last stable offset is unknown only because there is no high watermark."""
        is_read = self.log_end_offset is not None and not self.has_damage
        return is_read and self.stability.last_stable_offset is None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read, or is damaged.

    Attributes:
        path: of the file or directory.
        what: what is wrong.
        is_damage: whether the data is damaged; otherwise it could not be read.
    """

    path: str
    what: str
    is_damage: bool


@dataclass(frozen=True, slots=True)
class TxnsReport:
    """What was found.

    Attributes:
        coordinators: what all coordinators know.
        partitions: the selected ones.
        problems: what could not be read.
    """

    coordinators: Coordinators
    partitions: Sequence[PartitionTransactions]
    problems: Sequence[Problem]

    def transactions(self) -> Iterator[tuple[int, CoordinatorTransaction]]:
        """Yield what coordinators know, each with its partition of ``__transaction_state``."""
        for number, log in sorted(self.coordinators.logs.items()):
            for each in log.transactions:
                yield number, each


# ---- The job


@dataclass(frozen=True, slots=True)
class TxnsSplit(Split):
    """A partition to read.

    Attributes:
        name: of its directory.
        log_start_offset: from the checkpoint; 0 if it has no line.
        flushed_offset: a starting broker recovers the log from there on; None after a clean
            shutdown.
        high_watermark: None if unknown.
        has_coordinator: whether it is a partition of ``__transaction_state``.
    """

    name: str = ""
    log_start_offset: int = 0
    flushed_offset: int | None = None
    high_watermark: int | None = None
    has_coordinator: bool = False


@dataclass(frozen=True, slots=True)
class TxnsResult:
    """What one partition says.

    Attributes:
        log: its transactions.
        log_start_offset: where it begins.
        log_end_offset: where it ends.
        sizes: of the open transactions, by producer id.
        coordinator: what the coordinator knows, if it is a partition of ``__transaction_state``.
        damages: the damage found.
    """

    log: LogTransactions
    log_start_offset: int
    log_end_offset: int
    sizes: Mapping[int, TransactionSize] = field(default_factory=dict)
    coordinator: CoordinatorLog | None = None
    damages: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class NotLoadable:
    """Why a broker cannot load a partition."""

    what: str


TxnsOutcome = TxnsResult | Unreadable | NotLoadable


@dataclass(frozen=True, slots=True)
class TxnsJob:
    """Finds the transactions of a partition."""

    def run(self, split: TxnsSplit, /) -> TxnsOutcome:
        """Read one partition."""
        try:
            partition = as_loaded(read_lone_partition(split.path, split.name))
            return _read(partition, split)
        except UnfinishedSwapError as failure:
            return NotLoadable(str(failure))
        except OSError as failure:
            return Unreadable(failure.filename or str(split.path), failure.strerror or str(failure))


def _read(partition: Partition, split: TxnsSplit) -> TxnsResult:
    damages: dict[str, Damage] = {}

    def on_damage(damage: Damage) -> None:
        damages.setdefault(str(damage), damage)

    first = partition.segments[0].base_offset if partition.segments else 0
    start = max(first, split.log_start_offset)
    log = _transactions(partition, split, on_damage)
    coordinator = None
    if split.has_coordinator:
        coordinator = _coordinator_log(partition, on_damage)
    return TxnsResult(
        log,
        start,
        max(start, log.end_offset or 0),
        transaction_sizes(partition, [txn for txn, _ in _all_txns(log)], on_damage),
        coordinator,
        tuple(damages.values()),
    )


def _transactions(partition: Partition, split: TxnsSplit, on_damage: OnDamage) -> LogTransactions:
    if split.flushed_offset is None and partition.segments:
        found = snapshot_transactions(partition, replica_end(partition).offset)
        if found is not None:
            return found
    snapshots = usable_snapshots(partition, split.log_start_offset, split.flushed_offset)
    return read_transactions(partition, snapshots, on_damage, high_watermark=split.high_watermark)


def _coordinator_log(partition: Partition, on_damage: OnDamage) -> CoordinatorLog:
    reader = CoordinatorLogReader()

    def on_lost_records(damage: Damage) -> None:
        on_damage(damage)
        reader.take_damage()

    for records in valid_records(partition, on_lost_records):
        reader.take(records)
    return reader.log()


def _all_txns(log: LogTransactions) -> list[tuple[OpenTxn, bool]]:
    """The transactions of a log by first offset, and whether each is certainly open from there.

    If a producer wrote after damage, its transaction may be the one from before.
    """
    open_now = {txn.producer_id: txn for txn in log.open_txns}
    found = []
    for txn in log.uncertain_txns:
        later = open_now.pop(txn.producer_id, txn)
        last = {"last_offset": later.last_offset, "last_timestamp": later.last_timestamp}
        found.append((replace(txn, **last), False))
    found += [(txn, True) for txn in open_now.values()]
    return sorted(found, key=lambda each: each[0].first_offset)


# ---- Dividing the work, and merging the results


def txns(
    request: TxnsRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
) -> TxnsReport:
    """Find the transactions of partitions and coordinators.

    Raises:
        KdumpError: the engine failed.
    """
    problems: list[Problem] = []
    with phase("choosing among replicas"):
        chosen = [
            each
            for key, replicas in sorted(replicas_by_partition(request.directories).items())
            if (each := _chosen(request, key, replicas, problems)) is not None
        ]
    results = run_job(TxnsJob(), [_split(each) for each in chosen], options, progress)
    read: list[tuple[PartitionTransactions, TxnsResult]] = []
    for each, outcome in zip(chosen, results, strict=True):
        if isinstance(outcome, TxnsResult):
            read.append((each, outcome))
            problems += _problems(each, outcome)
        elif isinstance(outcome, NotLoadable):
            problems.append(Problem(str(each.replica.partition.path), outcome.what, True))
        else:
            problems.append(Problem(outcome.path, outcome.what, False))
    coordinators = _coordinators(request, read)
    is_read = {each.topic_partition: (each, result) for each, result in read}
    partitions = [
        _judged(*is_read[each.topic_partition], coordinators, request)
        if each.topic_partition in is_read
        else each
        for each in chosen
        if each.replica.partition in request.selection
    ]
    return TxnsReport(coordinators, partitions, problems)


def _chosen(
    request: TxnsRequest,
    key: TopicPartition,
    replicas: Sequence[Replica],
    problems: list[Problem],
) -> PartitionTransactions | None:
    """The most advanced replica of a partition; None if the partition is not to be read."""
    is_selected = any(each.partition in request.selection for each in replicas)
    if key.topic == CLUSTER_METADATA_TOPIC or replicas[0].partition.is_0_7:
        return None
    if not is_selected and key.topic != TRANSACTION_STATE_TOPIC:
        return None
    ends: list[tuple[Replica, ReplicaEnd]] = []
    for replica in replicas:
        try:
            ends.append((replica, replica_end(replica.partition)))
        except OSError as failure:
            path = failure.filename or str(replica.partition.path)
            problems.append(Problem(path, failure.strerror or str(failure), False))
    if not ends:
        return None
    best, best_end = max(ends, key=lambda each: each[1])
    return PartitionTransactions(
        key,
        best,
        tuple((replica, end) for replica, end in ends if end != best_end),
        len(replicas),
        high_watermark=max(
            (
                mark
                for replica, end in ends
                if end.leader_epoch == best_end.leader_epoch
                and (mark := _high_watermark(replica, key)) is not None
            ),
            default=None,
        ),
    )


def _high_watermark(replica: Replica, key: TopicPartition) -> int | None:
    return (replica.log_directory.checkpoints.high_watermarks or {}).get(key)


def _split(each: PartitionTransactions) -> TxnsSplit:
    key, partition = each.topic_partition, each.replica.partition
    directory = each.replica.log_directory
    checkpoints = directory.checkpoints
    has_coordinator = key.topic == TRANSACTION_STATE_TOPIC
    is_all_read = has_coordinator or not directory.is_clean
    return TxnsSplit(
        partition.path,
        size_bytes=partition.data_bytes if is_all_read else _SNAPSHOT_READ_BYTES,
        label=partition.path.name,
        name=partition.path.name,
        log_start_offset=(checkpoints.log_start_offsets or {}).get(key, 0),
        flushed_offset=None
        if directory.is_clean
        else (checkpoints.recovery_points or {}).get(key, 0),
        high_watermark=each.high_watermark,
        has_coordinator=has_coordinator,
    )


def _problems(each: PartitionTransactions, result: TxnsResult) -> Iterator[Problem]:
    for damage in result.damages:
        what = f"bytes {damage.start} to {damage.end}: {damage.problem}"
        yield Problem(damage.path, what, True)
    unreadable = None if result.coordinator is None else result.coordinator.unreadable
    if unreadable is not None:
        yield Problem(
            str(each.replica.partition.path),
            f"offset {unreadable.offset}: {unreadable.what}: a coordinator stops loading there",
            True,
        )


def _coordinators(
    request: TxnsRequest, read: Iterable[tuple[PartitionTransactions, TxnsResult]]
) -> Coordinators:
    logs = {
        each.topic_partition.partition: result.coordinator
        for each, result in read
        if result.coordinator is not None
    }
    with phase("reading the cluster's metadata"):
        image = read_newest_image(
            partition
            for directory in request.directories
            for partition in directory.partitions
            if partition.is_cluster_metadata
        )
    if image is None:
        return Coordinators(logs, inferred_partitions_count(logs))
    topic = image.topics.get(TRANSACTION_STATE_TOPIC)
    return Coordinators(logs, 0 if topic is None else len(topic.partitions))


def _judged(
    each: PartitionTransactions,
    result: TxnsResult,
    coordinators: Coordinators,
    request: TxnsRequest,
) -> PartitionTransactions:
    high_watermark = each.high_watermark
    if high_watermark is not None:
        high_watermark = max(min(high_watermark, result.log_end_offset), result.log_start_offset)

    def judge(txn: OpenTxn, is_certain: bool) -> Judgement:
        found = coordinators.judge(
            each.topic_partition, txn, request.now_ms, request.max_timeout_ms
        )
        return found if is_certain or not found.is_hanging else replace(found, is_hanging=None)

    return replace(
        each,
        log_start_offset=result.log_start_offset,
        log_end_offset=result.log_end_offset,
        high_watermark=high_watermark,
        stability=stability(result.log, result.log_start_offset, high_watermark),
        has_damage=result.log.has_damage,
        open_transactions=tuple(
            OpenTransaction(
                txn, is_certain, result.sizes.get(txn.producer_id), judge(txn, is_certain)
            )
            for txn, is_certain in _all_txns(result.log)
        ),
    )
