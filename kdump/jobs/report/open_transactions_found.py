"""The transactions that a verification found open, judged as ``kdump txns`` does.

Which transactions are open in a log is known from the verification, which read all of it. Only the
logs of transaction coordinators are read for what they say about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.formats.names import PartitionState, TopicPartition
from kdump.jobs.problems.found_problems import Problem
from kdump.jobs.report.collected import statistics_of
from kdump.jobs.transactions.open_transactions import TxnsRequest, txns
from kdump.jobs.transactions.partition_transactions import all_txns
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log.directory import LogDirectory
from kdump.log.log_search import within_log
from kdump.log.replicas import choose_replicas
from kdump.log.selection import PartitionSelection
from kdump.state.transactions.hanging_transactions import (
    DEFAULT_MAX_TIMEOUT_MS,
    Coordinators,
    Judgement,
)
from kdump.state.transactions.producers import OpenTxn
from kdump.state.transactions.stability import Stability, stability
from kdump.state.transactions.transaction_coordinator import TRANSACTION_STATE_TOPIC


class JudgedTransaction(Struct, frozen=True):
    """A transaction without a marker.

    Attributes:
        is_certain: whether it is open; if not, damage may hide its marker.
    """

    txn: OpenTxn
    is_certain: bool
    judgement: Judgement


class UnstablePartition(Struct, frozen=True):
    """A partition whose last stable offset a transaction may pin.

    Attributes:
        log_dir: of its most advanced replica, which was judged.
        log_end_offset: after its last valid batch.
        high_watermark: from the checkpoint; None without a line.
        transactions: by first offset.
    """

    key: TopicPartition
    log_dir: str
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    stability: Stability
    transactions: tuple[JudgedTransaction, ...]


def unstable_partitions(
    reports: Iterable[PartitionReport],
    directories: Sequence[LogDirectory],
    now_ms: int,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> tuple[list[UnstablePartition], Sequence[Problem]]:
    """Find the partitions with transactions that are open, or not replicated up to their marker.

    Also return what of the coordinators' logs could not be read, or is not loaded.

    Args:
        reports: of a verification with statistics.
        directories: their log directories, with ``__transaction_state`` as a broker loads it.

    Raises:
        KdumpError: the engine failed.
    """
    live = [each for each in reports if each.partition.state is PartitionState.LIVE]
    chosen = [
        (key, each)
        for each in choose_replicas(live, lambda *_: None).chosen
        if (key := each.partition.topic_partition) is not None and _is_unstable(each)
    ]
    if not chosen:
        return [], ()
    selection = PartitionSelection(topics=(TRANSACTION_STATE_TOPIC,))
    request = TxnsRequest(directories, selection, now_ms)
    found = txns(request, options)
    around = {str(each.path): each for each in directories}
    unstable = [
        _judged(key, report, around.get(report.log_dir), found.coordinators, now_ms)
        for key, report in sorted(chosen, key=lambda each: each[0])
    ]
    return unstable, found.problems


def _is_unstable(report: PartitionReport) -> bool:
    log = statistics_of(report).transactions
    return bool(log.uncertain_txns) or log.first_unstable_offset is not None


def _judged(
    key: TopicPartition,
    report: PartitionReport,
    directory: LogDirectory | None,
    coordinators: Coordinators,
    now_ms: int,
) -> UnstablePartition:
    log = statistics_of(report).transactions
    start, mark = _bounds(report, key, directory)
    return UnstablePartition(
        key,
        report.log_dir,
        start,
        report.end_offset,
        mark,
        stability(log, start, mark),
        tuple(
            JudgedTransaction(
                txn,
                is_certain,
                coordinators.judge(key, txn, now_ms, DEFAULT_MAX_TIMEOUT_MS),
            )
            for txn, is_certain in all_txns(log)
        ),
    )


def _bounds(
    report: PartitionReport, key: TopicPartition, directory: LogDirectory | None
) -> tuple[int, int | None]:
    """The log start offset, and the high watermark between the ends of the log."""
    first = report.partition.segments[0].base_offset if report.partition.segments else 0
    if directory is None:
        return first, None
    start = max(first, directory.load_offsets(key)[0])
    mark = (directory.checkpoints.high_watermarks or {}).get(key)
    return start, None if mark is None else within_log(mark, start, report.end_offset)
