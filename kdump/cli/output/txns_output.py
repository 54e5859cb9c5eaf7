"""The rows of ``kdump txns``."""

from __future__ import annotations

from typing import Final

from kdump.cli.output.rendering import Column, Row
from kdump.cli.output.sections import Section
from kdump.cli.output.value_text import Kind
from kdump.cli.shared.shown_transactions import ShownTransactions
from kdump.jobs.txns import OpenTransaction, PartitionTransactions
from kdump.state.stability import Pin
from kdump.state.transaction_coordinator import CoordinatorState, CoordinatorTransaction
from kdump.words import kafka_transactions_command

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

_MOST_PARTITIONS: Final = 8
"""So many partitions of a transaction are listed for people; JSON has all of them."""


def transaction_row(
    shown: ShownTransactions, number: int, transaction: CoordinatorTransaction
) -> Row:
    """The row of a transactional id.

    Args:
        shown: what is shown.
        number: the partition of ``__transaction_state`` that has it.
        transaction: what its coordinator knows.
    """
    partitions = list(map(str, transaction.partitions))
    if shown.is_for_people and len(partitions) > _MOST_PARTITIONS:
        more = len(partitions) - _MOST_PARTITIONS
        partitions = [*partitions[:_MOST_PARTITIONS], f"and {more} more"]
    return {
        "type": "transaction",
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "state": transaction.state.value,
        "start_time_ms": transaction.start_time_ms,
        "last_change_ms": transaction.last_change_ms,
        "timeout_ms": transaction.timeout_ms,
        "partitions": partitions,
        "open_partitions": list(map(str, shown.open_partitions(transaction))),
        "missing_partitions": list(map(str, shown.missing_partitions(transaction))),
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": transaction.next_producer_id,
        "client_transaction_version": transaction.client_transaction_version,
        "is_certain": transaction.is_certain,
        "coordinator_partition": number,
    }


def open_transaction_row(partition: PartitionTransactions, each: OpenTransaction) -> Row:
    """The row of a transaction that is open in a partition."""
    txn, size, judgement = each.txn, each.size, each.judgement
    transaction = judgement.transaction
    command, older_command = end_commands(partition, each)
    return {
        "type": "open_transaction",
        "topic": partition.topic_partition.topic,
        "partition": partition.topic_partition.partition,
        "producer_id": txn.producer_id,
        "producer_epoch": txn.producer_epoch,
        "coordinator_epoch": None if txn.coordinator_epoch < 0 else txn.coordinator_epoch,
        "first_offset": txn.first_offset,
        "last_offset": txn.last_offset,
        "start_time_ms": started_ms(each),
        "last_time_ms": txn.last_timestamp,
        "batches": None if size is None else size.batches,
        "records": None if size is None else size.records,
        "size_bytes": None if size is None else size.size_bytes,
        "pinned_bytes": None if size is None else size.pinned_bytes,
        "transactional_id": None if transaction is None else transaction.transactional_id,
        "coordinator_state": None if transaction is None else transaction.state.value,
        "is_open": True if each.is_certain else None,
        "is_ongoing": judgement.is_ongoing,
        "is_hanging": judgement.is_hanging,
        "end_command": command,
        "end_command_before_3_0": older_command,
        "log_dir": str(partition.replica.log_directory.path),
    }


def started_ms(each: OpenTransaction) -> int | None:
    """The timestamp of the first batch of a transaction; None if the log does not have it."""
    if each.txn.start_timestamp is not None:
        return each.txn.start_timestamp
    return None if each.size is None else each.size.start_timestamp


def end_commands(
    partition: PartitionTransactions, each: OpenTransaction
) -> tuple[str | None, str | None]:
    """The command that ends a transaction once brokers run, and the same for those before 3.0.

    The first is None if the coordinator ends it without being told, or if it is unknown whether it
    does; the second also if the first does not abort a single partition.
    """
    transaction, txn = each.judgement.transaction, each.txn
    if each.judgement.is_ongoing:
        if transaction is None or transaction.state is not CoordinatorState.ONGOING:
            return None, None
        words = ["forceTerminateTransaction", "--transactionalId", transaction.transactional_id]
        return kafka_transactions_command(words), None
    if each.judgement.is_ongoing is None or not each.is_certain:
        return None, None
    topic, number = partition.topic_partition
    abort = ["abort", "--topic", topic, "--partition", str(number)]
    by_producer = [
        "--producer-id",
        str(txn.producer_id),
        "--producer-epoch",
        str(txn.producer_epoch),
        "--coordinator-epoch",
        # A coordinator that wrote no marker yet is taken for the first one, as the tool does.
        str(max(0, txn.coordinator_epoch)),
    ]
    return (
        kafka_transactions_command([*abort, "--start-offset", str(txn.first_offset)]),
        kafka_transactions_command([*abort, *by_producer]),
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
