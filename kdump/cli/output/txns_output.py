"""The rows of ``kdump txns``."""

from __future__ import annotations

from typing import Final

from kdump.cli.output.rendering import Column, Row
from kdump.cli.output.sections import Section
from kdump.jobs.transactions.open_transactions import OpenTransaction, PartitionTransactions
from kdump.rows.row_type import Kind
from kdump.state.transactions.stability import Pin

SECTIONS: Final = (
    Section(
        "transaction",
        "Transactional ids, as their coordinators know them",
        (
            Column("transactional_id", "Transactional id"),
            Column("state", "State"),
            Column("producer_id", "Producer", Kind.NUMBER),
            Column("producer_epoch", "Epoch", Kind.NUMBER, dropped=3),
            Column("start_time_ms", "Started", Kind.TIMESTAMP_MS, unknown="-", dropped=5),
            Column("last_change_ms", "Last change", Kind.TIMESTAMP_MS, dropped=2),
            Column("timeout_ms", "Timeout ms", Kind.NUMBER, dropped=1),
            Column("partitions", "Partitions", dropped=4),
            Column("open_partitions", "Open in", for_people=False),
            Column("missing_partitions", "Missing", for_people=False),
            Column("previous_producer_id", "Previous producer", for_people=False),
            Column("next_producer_id", "Next producer", for_people=False),
            Column("client_transaction_version", "Client version", for_people=False),
            Column("is_certain", "Certain", for_people=False),
            Column("coordinator_partition", "Coordinator", for_people=False),
        ),
    ),
    Section(
        "open_transaction",
        "Open transactions in partitions",
        (
            Column("topic", "Topic"),
            Column("partition", "Partition", Kind.NUMBER),
            Column("first_offset", "First offset", Kind.NUMBER),
            Column("producer_id", "Producer", Kind.NUMBER),
            Column("producer_epoch", "Epoch", Kind.NUMBER, dropped=5),
            Column("transactional_id", "Transactional id", dropped=8),
            Column("start_time_ms", "Started", Kind.TIMESTAMP_MS, dropped=6),
            Column("last_time_ms", "Last write", Kind.TIMESTAMP_MS, dropped=4),
            Column("records", "Records", Kind.NUMBER, dropped=3),
            Column("size_bytes", "Size", Kind.BYTES, dropped=2),
            Column("pinned_bytes", "Pinned", Kind.BYTES, dropped=7),
            Column("coordinator_state", "At coordinator", unknown="-", dropped=1),
            Column("is_hanging", "Hangs"),
            Column("is_open", "Open", for_people=False),
            Column("is_ongoing", "Ongoing", for_people=False),
            Column("coordinator_epoch", "Coordinator epoch", for_people=False),
            Column("last_offset", "Last offset", for_people=False),
            Column("batches", "Batches", for_people=False),
            Column("end_command", "Command", for_people=False),
            Column("end_command_before_3_0", "Command before 3.0", for_people=False),
            Column("log_dir", "Log dir", for_people=False),
        ),
    ),
    Section(
        "partition",
        "Last stable offsets below the end of the log",
        (
            Column("topic", "Topic"),
            Column("partition", "Partition", Kind.NUMBER),
            Column("log_start_offset", "Start", Kind.NUMBER, dropped=1),
            Column("last_stable_offset", "Last stable", Kind.NUMBER),
            Column("high_watermark", "HW", Kind.NUMBER, dropped=2),
            Column("log_end_offset", "End", Kind.NUMBER),
            Column("reason", "Pinned by"),
            Column("pinned_by", "Pinned by", for_people=False),
            Column("open_transactions", "Open", for_people=False),
            Column("replicas", "Replicas", for_people=False),
            Column("differing_replicas", "Differing", for_people=False),
            Column("log_dir", "Log dir", for_people=False),
        ),
    ),
)


def partition_row(partition: PartitionTransactions) -> Row:
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
        "pinned_by": None if pinned_by is None else pinned_by.value,
        "reason": reason(partition),
        "open_transactions": len(partition.open_transactions),
        "replicas": partition.replicas_count,
        "differing_replicas": [str(each.log_directory.path) for each, _ in partition.other_ends],
        "log_dir": str(partition.replica.log_directory.path),
    }


def reason(partition: PartitionTransactions) -> str:
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
