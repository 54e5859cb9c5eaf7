"""Transactions whose decided end brokers refuse: their producer has begun others since.

A coordinator that starts writes the missing markers of such a transaction. A log takes no marker
with an epoch that is older than the last one of the producer, or, from version 2 of transactions
on, of one that is open (``ProducerAppendInfo.checkProducerEpoch``). The coordinator gives up then,
and the transaction stays as it is (``TransactionMarkerRequestCompletionHandler``). That is so only
if the logs are later than that of the coordinator, as in a copy of a running cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kdump.formats.names import TopicPartition
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.lock_holders import is_in_use_around
from kdump.log.replicas import Replica
from kdump.state.transactions.transaction_coordinator import CoordinatorTransaction


def refused_ends(
    transactions: Iterable[CoordinatorTransaction], replicas: Mapping[TopicPartition, Replica]
) -> dict[str, tuple[TopicPartition, ...]]:
    """The partitions that refuse the end of a transaction, by its transactional id.

    Args:
        transactions: what coordinators know.
        replicas: those that were read. A log that a broker is using is left out.

    Raises:
        OSError: a log cannot be read.
    """
    producers: dict[TopicPartition, Sequence[ProducerEntry]] = {}
    found: dict[str, tuple[TopicPartition, ...]] = {}
    for each in transactions:
        if not each.state.is_prepared:
            continue
        for key in set(each.partitions) & replicas.keys() - producers.keys():
            producers[key] = _producers(replicas[key])
        refusing = [
            key
            for key in each.partitions
            if any(_refuses(entry, each) for entry in producers.get(key, ()))
        ]
        if refusing:
            found[each.transactional_id] = tuple(refusing)
    return found


def _refuses(entry: ProducerEntry, transaction: CoordinatorTransaction) -> bool:
    if entry.producer_id != transaction.producer_id:
        return False
    if entry.epoch != transaction.producer_epoch:
        return entry.epoch > transaction.producer_epoch
    return transaction.has_own_epoch and entry.current_txn_first_offset >= 0


def _producers(replica: Replica) -> Sequence[ProducerEntry]:
    """The producers of a log after a start; none if no broker loads it, which is reported."""
    if is_in_use_around(replica.partition.path):
        return ()
    # Hardly any transaction is decided and not complete.
    from kdump.jobs.loading.loaded_producers import loaded_producers

    found = loaded_producers(replica.partition, replica.log_directory)
    return found if isinstance(found, tuple) else ()
