"""Which of the transactions that were found are shown."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase

from kdump.formats.names import TopicPartition
from kdump.jobs.transactions.open_transactions import (
    OpenTransaction,
    PartitionTransactions,
    TxnsReport,
)
from kdump.log.selection import PartitionSelection
from kdump.state.transactions.transaction_coordinator import CoordinatorTransaction

OpenHere = tuple[PartitionTransactions, OpenTransaction]
"""An open transaction, and the partition in which it is open."""


class ShownTransactions:
    """The part of a report that the options select.

    Args:
        report: what was found in the selected partitions.
        id_globs: for transactional ids; none selects all.
        only_hanging: whether to show only the transactions that hang.
        is_for_people: whether to leave out what only programs want.
    """

    def __init__(
        self,
        report: TxnsReport,
        selection: PartitionSelection,
        id_globs: tuple[str, ...],
        *,
        only_hanging: bool,
        is_for_people: bool,
    ) -> None:
        self.report = report
        self.selection = selection
        self.id_globs = id_globs
        self.only_hanging = only_hanging
        self.is_for_people = is_for_people
        self._read = {each.topic_partition for each in report.partitions}
        self._open_in = defaultdict[int, set[TopicPartition]](set)
        for partition, each in self._open():
            self._open_in[each.txn.producer_id].add(partition.topic_partition)

    def transactions(self) -> list[tuple[int, CoordinatorTransaction]]:
        """The transactional ids: first those with a transaction, then by name."""
        found = [
            (number, each)
            for number, each in self.report.transactions()
            if self.wants_id(each.transactional_id) and self._concerns_partitions(each)
        ]
        return sorted(found, key=lambda each: (not each[1].state.is_open, each[1].transactional_id))

    def wants_id(self, transactional_id: str) -> bool:
        """Whether a transactional id is selected."""
        return not self.id_globs or any(
            fnmatchcase(transactional_id, glob) for glob in self.id_globs
        )

    def open_transactions(self) -> list[OpenHere]:
        """The open transactions, by partition and offset; hanging or not."""
        return [(partition, each) for partition, each in self._open() if self._wants(each)]

    def partitions(self) -> list[PartitionTransactions]:
        """The partitions; with transactional ids selected, only those that they concern."""
        if not self.id_globs:
            return list(self.report.partitions)
        concerned = {each for _, txn in self.transactions() for each in txn.partitions}
        concerned |= {partition.topic_partition for partition, _ in self.open_transactions()}
        return [each for each in self.report.partitions if each.topic_partition in concerned]

    def listed_partitions(self) -> list[PartitionTransactions]:
        """Those to list; people see no partition that nothing is known to pin."""
        return [
            each
            for each in self.partitions()
            if not self.is_for_people or not (each.is_stable or each.is_only_unmarked)
        ]

    def open_partitions(self, transaction: CoordinatorTransaction) -> list[TopicPartition]:
        """The partitions in which the producer of a transactional id has one open."""
        return sorted(self._open_in.get(transaction.producer_id, ()))

    def missing_partitions(self, transaction: CoordinatorTransaction) -> list[TopicPartition]:
        """The selected partitions of a transaction that were not read."""
        return [
            each
            for each in transaction.partitions
            if each not in self._read and self.selection.matches(str(each), each)
        ]

    def refusing_partitions(self, transaction: CoordinatorTransaction) -> list[TopicPartition]:
        """The selected partitions that refuse its end, which is decided."""
        return [
            each
            for each in self.report.refused_ends.get(transaction.transactional_id, ())
            if self.selection.matches(str(each), each)
        ]

    def _open(self) -> list[OpenHere]:
        return [
            (partition, each)
            for partition in self.report.partitions
            for each in partition.open_transactions
        ]

    def _wants(self, each: OpenTransaction) -> bool:
        transaction = each.judgement.transaction
        if transaction is None:
            return not self.id_globs
        return self.wants_id(transaction.transactional_id)

    def _concerns_partitions(self, transaction: CoordinatorTransaction) -> bool:
        return (
            self.selection.is_everything
            or transaction.producer_id in self._open_in
            or any(self.selection.matches(str(each), each) for each in transaction.partitions)
        )
