"""Find open transactions, what coordinators know of them, and what pins last stable offsets.

A task reads one partition (:mod:`kdump.jobs.transactions.partition_transactions`). What
coordinators know comes from all partitions of ``__transaction_state`` together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.errors import reason_of
from kdump.formats.names import CLUSTER_METADATA_TOPIC, TopicPartition
from kdump.jobs.problems.found_problems import Problem
from kdump.jobs.transactions.partition_transactions import (
    NotLoadable,
    TxnsJob,
    TxnsResult,
    TxnsSplit,
    all_txns,
)
from kdump.jobs.transactions.refused_ends import refused_ends
from kdump.log.broker import require_one_cluster
from kdump.log.directory import LogDirectory
from kdump.log.log_search import ReplicaEnd, within_log
from kdump.log.replicas import (
    Replica,
    of_each_topic,
    of_one_topic,
    rank_replicas,
    replicas_by_partition,
)
from kdump.log.selection import PartitionSelection
from kdump.log.valid_windows import Damage
from kdump.phases import during, phase
from kdump.state.metadata.cluster import ClusterImage, read_newest_image
from kdump.state.transactions.hanging_transactions import (
    DEFAULT_MAX_TIMEOUT_MS,
    Coordinators,
    Judgement,
)
from kdump.state.transactions.producers import OpenTxn
from kdump.state.transactions.stability import UNKNOWN, Stability, stability
from kdump.state.transactions.transaction_coordinator import (
    TRANSACTION_STATE_TOPIC,
    CoordinatorTransaction,
)
from kdump.state.transactions.transaction_sizes import TransactionSize
from kdump.words import counted

_SNAPSHOT_READ_BYTES = 64 << 10
"""About how much is read of a partition after a clean shutdown: a snapshot, and its last batch."""


class TxnsRequest(Struct, frozen=True):
    """What to find.

    Attributes:
        max_timeout_ms: only transactions without a batch for longer can hang.
    """

    directories: Sequence[LogDirectory]
    selection: PartitionSelection
    now_ms: int
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS


def is_needed(selection: PartitionSelection, directory_name: str, key: TopicPartition) -> bool:
    """Whether a partition has to be listed: it is selected, or says what coordinators know."""
    return key.topic == TRANSACTION_STATE_TOPIC or selection.needs(directory_name, key)


class OpenTransaction(Struct, frozen=True):
    """A transaction that is open in a partition.

    Attributes:
        is_certain: whether it is open; if not, damage may hide its marker.
        size: of it; None if its log cannot be read any more.
    """

    txn: OpenTxn
    is_certain: bool
    size: TransactionSize | None
    judgement: Judgement


class PartitionTransactions(Struct, frozen=True):
    """The transactions of a partition.

    Attributes:
        replica: the most advanced of its replicas, which was read.
        other_ends: the replicas that end elsewhere, and where.
        replicas_count: how many replicas there are.
        log_start_offset: None if unknown.
        log_end_offset: after the last valid batch; None if unknown.
        is_end_certain: whether a starting broker ends the log there, too; None without an end.
        high_watermark: from the checkpoints; None if unknown.
        has_damage: whether there is damage that may hide markers.
        open_transactions: by first offset.
    """

    topic_partition: TopicPartition
    replica: Replica
    other_ends: tuple[tuple[Replica, ReplicaEnd], ...]
    replicas_count: int
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    is_end_certain: bool | None = None
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


class TxnsReport(Struct, frozen=True):
    """What was found.

    Attributes:
        coordinators: what all coordinators know.
        partitions: the selected ones.
        damages: the damaged ranges of logs.
        problems: what could not be read, and what no broker or coordinator loads.
        refused_ends: the partitions that refuse the decided end of a transaction, by its id.
    """

    coordinators: Coordinators
    partitions: Sequence[PartitionTransactions]
    damages: Sequence[Damage]
    problems: Sequence[Problem]
    refused_ends: Mapping[str, Sequence[TopicPartition]]

    def transactions(self) -> Iterator[tuple[int, CoordinatorTransaction]]:
        """Yield what coordinators know, each with its partition of ``__transaction_state``."""
        for number, log in sorted(self.coordinators.logs.items()):
            for each in log.transactions:
                yield number, each


# ---- Dividing the work, and merging the results


@during("finding transactions")
def txns(
    request: TxnsRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> TxnsReport:
    """Find the transactions of partitions and coordinators.

    Raises:
        UsageProblem: the log directories belong to several clusters.
        KdumpError: the engine failed.
    """
    require_one_cluster((each.path, each.cluster_id) for each in request.directories)
    problems: list[Problem] = []
    damages: list[Damage] = []
    with phase("reading the cluster's metadata"):
        image = read_newest_image(
            partition
            for directory in request.directories
            for partition in directory.partitions
            if partition.is_cluster_metadata
        )
    topic_ids = {} if image is None else image.topic_ids
    with phase("choosing among replicas"):
        chosen = [
            each
            for key, replicas in sorted(replicas_by_partition(request.directories).items())
            for of_topic in _by_topic(request, key, replicas)
            if (each := _chosen(key, of_topic, topic_ids, problems)) is not None
        ]
    results = run_job(TxnsJob(), [_split(each) for each in chosen], options)
    read: list[tuple[PartitionTransactions, TxnsResult]] = []
    for each, outcome in zip(chosen, results, strict=True):
        if isinstance(outcome, TxnsResult):
            read.append((each, outcome))
            damages += outcome.damages
            problems += _loading_problems(each, outcome)
        elif isinstance(outcome, NotLoadable):
            problems.append(Problem(str(each.replica.partition.path), outcome.what, True))
        else:
            problems.append(Problem(outcome.path, outcome.what, False))
    coordinators = _coordinators(image, read)
    results_of = {each.replica.partition.path: result for each, result in read}
    partitions = [
        _judged(each, results_of[each.replica.partition.path], coordinators, request)
        if each.replica.partition.path in results_of
        else each
        for each in chosen
        if each.replica.partition in request.selection
    ]
    with phase("looking where decided transactions can end"):
        # Coordinators send markers to the topic that the cluster has now.
        current, _ = of_one_topic((each.replica for each, _ in read), lambda: topic_ids)
        refused = refused_ends(
            (each for log in coordinators.logs.values() for each in log.transactions),
            {key: each for each in current if (key := each.partition.topic_partition) is not None},
        )
    return TxnsReport(coordinators, partitions, damages, problems, refused)


def _by_topic(
    request: TxnsRequest, key: TopicPartition, replicas: Sequence[Replica]
) -> list[list[Replica]]:
    """The replicas of a partition that is to be read; topics with different ids are different."""
    is_selected = any(each.partition in request.selection for each in replicas)
    if key.topic == CLUSTER_METADATA_TOPIC or replicas[0].partition.is_0_7:
        return []
    if not is_selected and key.topic != TRANSACTION_STATE_TOPIC:
        return []
    # Coordinators are known by the name of their topic.
    return [list(replicas)] if key.topic == TRANSACTION_STATE_TOPIC else of_each_topic(replicas)


def _chosen(
    key: TopicPartition,
    replicas: Sequence[Replica],
    topic_ids: Mapping[str, str],
    problems: list[Problem],
) -> PartitionTransactions | None:
    """The most advanced replica of a partition; None if none can be read."""
    ranked = rank_replicas(replicas, topic_id=topic_ids.get(key.topic))
    for each in ranked:
        if (failure := each.failure) is not None:
            path = failure.filename or str(each.replica.partition.path)
            problems.append(Problem(path, reason_of(failure), False))
    ends = [(each.replica, each.end) for each in ranked if each.end is not None]
    if not ends:
        return None
    best, best_end = ends[0]
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
    log_start_offset, flushed_offset = directory.load_offsets(key)
    has_coordinator = key.topic == TRANSACTION_STATE_TOPIC
    is_all_read = has_coordinator or not directory.is_clean
    return TxnsSplit(
        partition.path,
        size_bytes=partition.data_bytes if is_all_read else _SNAPSHOT_READ_BYTES,
        label=partition.path.name,
        name=partition.path.name,
        log_start_offset=log_start_offset,
        flushed_offset=flushed_offset,
        high_watermark=each.high_watermark,
        has_coordinator=has_coordinator,
    )


def _loading_problems(each: PartitionTransactions, result: TxnsResult) -> Iterator[Problem]:
    """Why a coordinator does not load its log, or what of it."""
    if result.coordinator is None:
        return
    path, unreadable = str(each.replica.partition.path), result.coordinator.unreadable
    if unreadable is not None:
        what = f"offset {unreadable.offset}: {unreadable.what}: a coordinator stops loading there"
        yield Problem(path, what, True)
    if result.coordinator.unknown_versions:
        count = counted(result.coordinator.unknown_versions, "record")
        what = f"{count} of an unknown version: a coordinator skips such records, too"
        yield Problem(path, what, True)


def _coordinators(
    image: ClusterImage | None, read: Iterable[tuple[PartitionTransactions, TxnsResult]]
) -> Coordinators:
    logs = {
        each.topic_partition.partition: result.coordinator
        for each, result in read
        if result.coordinator is not None
    }
    if image is None:
        return Coordinators(logs, None)
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
        high_watermark = within_log(high_watermark, result.log_start_offset, result.log_end_offset)

    def judge(txn: OpenTxn, is_certain: bool) -> Judgement:
        found = coordinators.judge(
            each.topic_partition, txn, request.now_ms, request.max_timeout_ms
        )
        return found if is_certain or not found.is_hanging else replace(found, is_hanging=None)

    return replace(
        each,
        log_start_offset=result.log_start_offset,
        log_end_offset=result.log_end_offset,
        is_end_certain=result.is_end_certain,
        high_watermark=high_watermark,
        stability=stability(result.log, result.log_start_offset, high_watermark),
        has_damage=result.log.has_damage,
        open_transactions=tuple(
            OpenTransaction(
                txn, is_certain, result.sizes.get(txn.producer_id), judge(txn, is_certain)
            )
            for txn, is_certain in all_txns(result.log)
        ),
    )
