"""Transactions as rows."""

from __future__ import annotations

from typing import Any, Final

from kdump.jobs.transactions.open_transactions import OpenTransaction, PartitionTransactions
from kdump.jobs.transactions.shown_transactions import ShownTransactions
from kdump.rows.row_type import (
    BYTES,
    FLAG,
    INT,
    INTEGER,
    TEXT,
    TIME,
    Field,
    RowType,
    list_of,
    one_of,
)
from kdump.state.transactions.transaction_coordinator import (
    CoordinatorState,
    CoordinatorTransaction,
)
from kdump.words import kafka_transactions_command

_MOST_PARTITIONS: Final = 8
"""So many partitions of a transaction are listed for people; JSON has all of them."""

_STATE: Final = one_of(*(each.value for each in CoordinatorState))
TRANSACTION: Final = RowType(
    "transaction",
    "A transactional id, as its coordinator knows it.",
    (
        Field("transactional_id", TEXT, "The transactional id.", "Transactional id"),
        Field(
            "state",
            _STATE,
            "Kafka's name of its state.",
            "State",
        ),
        Field("producer_id", INTEGER, "Of its producer.", "Producer"),
        Field("producer_epoch", INTEGER, "Of its producer.", "Epoch", dropped=3),
        Field(
            "start_time_ms",
            TIME.or_none,
            "Start of the last transaction; null if there was none.",
            "Started",
            dropped=5,
        ),
        Field("last_change_ms", TIME, "Time of the last change.", "Last change", dropped=2),
        Field(
            "timeout_ms",
            INTEGER,
            "The coordinator aborts a transaction after this time.",
            "Timeout ms",
            dropped=1,
        ),
        Field(
            "partitions",
            list_of(TEXT),
            "Partitions in the transaction, as TOPIC-PARTITION; empty once it is complete.",
            "Partitions",
            dropped=4,
        ),
        Field(
            "open_partitions",
            list_of(TEXT),
            "Selected partitions in which the producer has a transaction open.",
        ),
        Field(
            "missing_partitions",
            list_of(TEXT),
            "Selected partitions of the transaction that could not be read or are not in the log"
            " directories.",
        ),
        Field(
            "refusing_partitions",
            list_of(TEXT),
            "Selected partitions that refuse the decided end of the transaction, because the"
            " producer has begun others there since: its coordinator can never complete it.",
        ),
        Field(
            "previous_producer_id",
            INTEGER.or_null,
            "Producer id of the last committed transaction, often the same; null if there is none.",
        ),
        Field(
            "next_producer_id",
            INTEGER.or_null,
            "Producer id that the producer continues with, if it is another.",
        ),
        Field(
            "client_transaction_version",
            INTEGER,
            "Feature level of transaction.version at the client.",
        ),
        Field(
            "is_certain",
            FLAG,
            "Whether no damage or unreadable record may have changed the state since.",
        ),
        Field("coordinator_partition", INT, "Partition of __transaction_state that has the id."),
    ),
    title="Transactional ids, as their coordinators know them",
)
OPEN_TRANSACTION: Final = RowType(
    "open_transaction",
    "A transaction that is open in a partition.",
    (
        Field("topic", TEXT, "The topic.", "Topic"),
        Field("partition", INT, "Number of the partition.", "Partition"),
        Field("first_offset", INTEGER, "First offset of the transaction.", "First offset"),
        Field("producer_id", INTEGER, "Of its producer.", "Producer"),
        Field("producer_epoch", INTEGER, "Of its producer.", "Epoch", dropped=5),
        Field(
            "transactional_id",
            TEXT.or_null,
            "The transactional id; null if no coordinator in the log directories has the producer.",
            "Transactional id",
            dropped=8,
        ),
        Field(
            "start_time_ms",
            TIME.or_null,
            "Timestamp of its first batch; null if that batch is gone.",
            "Started",
            dropped=6,
        ),
        Field(
            "last_time_ms",
            TIME,
            "Largest timestamp of the producer's last batch.",
            "Last write",
            dropped=4,
        ),
        Field(
            "records",
            INTEGER.or_null,
            "How many records it has; null if damage may hide some.",
            "Records",
            dropped=3,
        ),
        Field(
            "size_bytes",
            BYTES.or_null,
            "Size of its batches; null if damage may hide some.",
            "Size",
            dropped=2,
        ),
        Field(
            "pinned_bytes",
            BYTES.or_null,
            "Size of the log from the first batch of the transaction to the end; null if unknown.",
            "Pinned",
            dropped=7,
        ),
        Field(
            "coordinator_state",
            _STATE.or_none,
            "State of the transactional id; null if no coordinator in the log directories has it.",
            "At coordinator",
            dropped=1,
        ),
        Field(
            "is_hanging",
            FLAG.or_null,
            "Whether kafka-transactions find-hanging would report it; null if unknown.",
            "Hangs",
        ),
        Field(
            "is_open",
            FLAG.or_null.limited(enum=[True, None]),
            "True; null if damage may hide the marker that ends it.",
        ),
        Field(
            "is_ongoing",
            FLAG.or_null,
            "Whether the coordinator has the partition in its transaction, and will end it; null"
            " if unknown.",
        ),
        Field(
            "coordinator_epoch",
            INTEGER.or_null,
            "Of the coordinator that wrote the producer's last marker; null if there is none.",
        ),
        Field("last_offset", INTEGER, "Last offset of the producer's last batch."),
        Field(
            "batches",
            INTEGER.or_null,
            "Batches of the transaction in this partition; null if damage may hide some.",
        ),
        Field(
            "end_command",
            TEXT.or_null,
            "Command that ends it once brokers run; null if a starting coordinator completes it,"
            " or if it is unknown whether it hangs.",
        ),
        Field(
            "end_command_before_3_0",
            TEXT.or_null,
            "The command to abort it for brokers before 3.0; null if the coordinator will end it.",
        ),
        Field("log_dir", TEXT, "The log directory of the replica that was read."),
    ),
    title="Open transactions in partitions",
)


def transaction_row(
    shown: ShownTransactions, number: int, transaction: CoordinatorTransaction
) -> dict[str, Any]:
    """The row of a transactional id.

    Args:
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
        "refusing_partitions": list(map(str, shown.refusing_partitions(transaction))),
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
