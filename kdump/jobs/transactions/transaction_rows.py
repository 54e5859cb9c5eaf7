"""Transactions as rows for programs."""

from __future__ import annotations

from typing import Any, Final

from kdump.jobs.transactions.open_transactions import OpenTransaction, PartitionTransactions
from kdump.jobs.transactions.shown_transactions import ShownTransactions
from kdump.state.transactions.transaction_coordinator import (
    CoordinatorState,
    CoordinatorTransaction,
)
from kdump.words import kafka_transactions_command

_MOST_PARTITIONS: Final = 8
"""So many partitions of a transaction are listed for people; JSON has all of them."""


def transaction_row(
    shown: ShownTransactions, number: int, transaction: CoordinatorTransaction
) -> dict[str, Any]:
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


def open_transaction_row(partition: PartitionTransactions, each: OpenTransaction) -> dict[str, Any]:
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
