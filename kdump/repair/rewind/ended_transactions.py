"""End the transactions that were being committed or aborted, as their coordinators would.

A starting coordinator writes the markers that are missing, too. But where a partition has no leader
at that moment, it takes the partition for deleted, and leaves it out
(``TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue``): the transaction stays open there,
nobody ends it, and consumers that read only what is committed stop before it. So where all replicas
are at hand, the markers are written while all brokers are down, and the transaction is completed in
the coordinator's log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from kdump.formats.end_txn_marker import EndTxnMarker, encode_end_txn_batch
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import NO_SEQUENCE, Record, encode_lone_record
from kdump.repair.rewind.consistent_cuts import Cuts, Transaction, is_kept
from kdump.state.transactions.transaction_coordinator import (
    CoordinatorTransaction,
    completion_of,
)


class MissingMarker(Struct, frozen=True):
    """A marker that a log lacks.

    Attributes:
        prepared: the coordinator's record that decides it.
        coordinator: the log of the coordinator.
    """

    prepared: CoordinatorTransaction
    coordinator: TopicPartition


class Ends(Struct, frozen=True):
    """What is appended to a log to end transactions.

    Attributes:
        markers: that end the transactions of its open parts.
        completed: the transactions that its coordinator completes.
    """

    markers: tuple[MissingMarker, ...] = ()
    completed: tuple[CoordinatorTransaction, ...] = ()


def ends_of(cuts: Cuts, transactions: Iterable[Transaction]) -> dict[TopicPartition, Ends]:
    """What ends decided transactions, by log; in a fixed order.

    Args:
        cuts: where logs are cut.
        transactions: whose outcome is decided before the cut, and that are not completed there.
    """
    markers = defaultdict[TopicPartition, list[MissingMarker]](list)
    completed = defaultdict[TopicPartition, list[CoordinatorTransaction]](list)
    for each in transactions:
        assert each.log is not None
        assert each.prepared is not None
        completed[each.log].append(each.prepared)
        for log, part in each.parts.items():
            if is_kept(cuts, log, part.first) and not is_kept(cuts, log, part.marker):
                markers[log].append(MissingMarker(each.prepared, each.log))
    return {
        log: Ends(
            tuple(sorted(markers[log], key=lambda each: each.prepared.producer_id)),
            tuple(sorted(completed[log], key=lambda each: each.transactional_id)),
        )
        for log in sorted({*markers, *completed})
    }


def end_batches(
    ends: Ends,
    coordinator_epochs: Mapping[TopicPartition, int],
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
) -> Iterator[bytes]:
    """The batches that end transactions in one log; one for each record.

    Args:
        ends: what to write.
        coordinator_epochs: the latest leader epochs of the coordinators' logs.
        base_offset: where the log ends.
        leader_epoch: the latest of the log.
        timestamp_ms: of the records.
    """
    for offset, each in enumerate(ends.markers, base_offset):
        yield encode_end_txn_batch(
            EndTxnMarker(
                is_abort=not each.prepared.state.is_commit,
                coordinator_epoch=coordinator_epochs[each.coordinator],
            ),
            each.prepared.producer_id,
            each.prepared.producer_epoch,
            offset=offset,
            partition_leader_epoch=leader_epoch,
            timestamp=timestamp_ms,
        )
    for offset, prepared in enumerate(ends.completed, base_offset + len(ends.markers)):
        record = Record(offset, timestamp_ms, NO_SEQUENCE, *completion_of(prepared))
        yield encode_lone_record(record, leader_epoch)
