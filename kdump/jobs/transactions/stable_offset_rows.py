"""Last stable offsets as rows, and the answer of ``kdump txns``."""

from __future__ import annotations

from typing import Any, Final

from kdump.jobs.listing.certain_end import IS_VALID_END_CERTAIN
from kdump.jobs.transactions.open_transactions import OpenTransaction, PartitionTransactions
from kdump.jobs.transactions.shown_transactions import ShownTransactions
from kdump.jobs.transactions.transaction_rows import OPEN_TRANSACTION, TRANSACTION
from kdump.rows.row_type import INT, INTEGER, TEXT, Field, JsonAnswer, RowType, list_of, one_of
from kdump.state.transactions.stability import Pin

STABLE_OFFSET: Final = RowType(
    "partition",
    "A partition and its last stable offset. All but topic, partition and the replicas is null if"
    " its log cannot be read.",
    (
        Field("topic", TEXT, "The topic.", "Topic"),
        Field("partition", INT, "Number of the partition.", "Partition"),
        Field("log_start_offset", INTEGER.or_null, "Where the log begins.", "Start", dropped=1),
        Field(
            "last_stable_offset",
            INTEGER.or_null,
            "Consumers of committed records read up to here, exclusive; null if unknown.",
            "Last stable",
        ),
        Field(
            "high_watermark",
            INTEGER.or_null,
            "From the checkpoints; null if none has it.",
            "HW",
            dropped=2,
        ),
        Field("log_end_offset", INTEGER.or_null, "After the last valid batch.", "End"),
        IS_VALID_END_CERTAIN,
        Field("reason", TEXT, "What pins the last stable offset, in words.", "Pinned by"),
        Field(
            "pinned_by",
            one_of("transaction", "unreplicated_transaction", "high_watermark").or_null,
            "What pins the last stable offset; null if unknown.",
        ),
        Field("open_transactions", INTEGER, "How many transactions are open."),
        Field("replicas", INTEGER, "How many replicas are in the log directories."),
        Field(
            "differing_replicas",
            list_of(TEXT),
            "Log directories of the replicas that end elsewhere.",
        ),
        Field("log_dir", TEXT, "The log directory of the replica that was read."),
    ),
    title="Last stable offsets below the end of the log",
)
SUMMARY: Final = RowType(
    "summary",
    "The totals of what is shown.",
    (
        Field("transactional_ids", INTEGER, "How many transactional ids."),
        Field(
            "open_transactions",
            INTEGER,
            "How many open transactions in partitions, hanging or not.",
        ),
        Field("hanging", INTEGER, "How many of them hang."),
        Field("undecided", INTEGER, "Of how many it is unknown whether they hang."),
        Field("partitions", INTEGER, "How many partitions."),
        Field("pinned_partitions", INTEGER, "How many partitions with open transactions."),
        Field(
            "coordinator_partitions",
            INTEGER.or_null,
            "How many partitions __transaction_state has; null if unknown.",
        ),
        Field(
            "missing_coordinator_partitions",
            list_of(INTEGER),
            "Those that could not be read or are not in the log directories.",
        ),
    ),
)
ANSWERS: Final = (JsonAnswer("txns", (TRANSACTION, OPEN_TRANSACTION, STABLE_OFFSET, SUMMARY)),)


def stable_offset_row(partition: PartitionTransactions) -> dict[str, Any]:
    """The row of a partition."""
    offset, pinned_by = partition.stability
    return {
        "type": "partition",
        "topic": partition.topic_partition.topic,
        "partition": partition.topic_partition.partition,
        "log_start_offset": partition.log_start_offset,
        "last_stable_offset": offset,
        "high_watermark": partition.high_watermark,
        "log_end_offset": partition.log_end_offset,
        IS_VALID_END_CERTAIN.name: partition.is_end_certain,
        "pinned_by": None if pinned_by is None else pinned_by.value,
        "reason": _reason(partition),
        "open_transactions": len(partition.open_transactions),
        "replicas": partition.replicas_count,
        "differing_replicas": [str(each.log_directory.path) for each, _ in partition.other_ends],
        "log_dir": str(partition.replica.log_directory.path),
    }


def _reason(partition: PartitionTransactions) -> str:
    """What pins the last stable offset of a partition, for people."""
    first = next((each for each in partition.open_transactions if each.is_certain), None)
    if partition.stability.pinned_by is Pin.TRANSACTION and first is not None:
        return _transaction_words(first)
    if partition.stability.pinned_by is Pin.UNREPLICATED_TRANSACTION:
        return "transaction whose marker is past the high watermark"
    if partition.stability.pinned_by is Pin.HIGH_WATERMARK:
        is_clean = partition.replica.log_directory.is_clean
        mark = "high watermark" if is_clean else "high watermark before an unclean shutdown"
        if first is None:
            return mark
        return f"{mark}; then {_transaction_words(first)} at {first.txn.first_offset}"
    if partition.log_end_offset is None:
        return "unknown: the log cannot be read"
    if partition.has_damage:
        return "unknown: damage may hide a marker"
    return "unknown: no high watermark in the checkpoint"


def _transaction_words(each: OpenTransaction) -> str:
    transaction = each.judgement.transaction
    of = f"producer {each.txn.producer_id}"
    if transaction is not None:
        of = f"{transaction.transactional_id} ({of})"
    return f"{'hanging ' if each.judgement.is_hanging else ''}transaction of {of}"


def summary_row(shown: ShownTransactions) -> dict[str, Any]:
    """The summary for programs."""
    coordinators = shown.report.coordinators
    opened = shown.open_transactions()
    partitions = shown.partitions()
    return {
        "type": "summary",
        "transactional_ids": len(shown.transactions()),
        "open_transactions": len(opened),
        "hanging": sum(each.judgement.is_hanging is True for _, each in opened),
        "undecided": sum(each.judgement.is_hanging is None for _, each in opened),
        "partitions": len(partitions),
        "pinned_partitions": sum(bool(each.open_transactions) for each in partitions),
        "coordinator_partitions": coordinators.partitions_count,
        "missing_coordinator_partitions": coordinators.missing,
    }
