"""Which open transactions hang: no coordinator is going to end them.

A partition has the batches of a transaction, its coordinator decides how it ends. A transaction
hangs if it is open in a partition, and its coordinator does not have that partition in it. Follows
``TransactionsCommand.FindHangingTransactionsCommand``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from msgspec import Struct

from kdump.formats.java.java_text import coordinator_partition
from kdump.formats.names import TopicPartition
from kdump.state.transactions.producers import OpenTxn
from kdump.state.transactions.transaction_coordinator import (
    CoordinatorLog,
    CoordinatorState,
    CoordinatorTransaction,
)

DEFAULT_MAX_TIMEOUT_MS: Final = 15 * 60_000
"""As ``transaction.max.timeout.ms``: the longest timeout that a producer may ask for."""


class Judgement(Struct, frozen=True):
    """What coordinators say about an open transaction.

    Attributes:
        transaction: of the producer, at its coordinator; None if no coordinator has it, or if that
            is unknown.
        is_ongoing: whether the coordinator has the partition in an open transaction, and so will
            end it; None if unknown.
        is_hanging: whether ``kafka-transactions find-hanging`` would name it; None if unknown.
    """

    transaction: CoordinatorTransaction | None
    is_ongoing: bool | None
    is_hanging: bool | None


@dataclass(frozen=True)
class Coordinators:
    """The transactions of all coordinators that could be read.

    Attributes:
        logs: by partition of ``__transaction_state``.
        partitions_count: how many partitions that topic has; None if unknown.
    """

    logs: Mapping[int, CoordinatorLog]
    partitions_count: int | None

    @property
    def missing(self) -> list[int]:
        """The partitions of ``__transaction_state`` that could not be read, as far as known."""
        return [n for n in range(self.partitions_count or 0) if n not in self.logs]

    @property
    def is_complete(self) -> bool:
        """Whether a producer that no coordinator has is certainly unknown to all of them."""
        return (
            self.partitions_count is not None
            and not self.missing
            and all(log.is_complete for log in self.logs.values())
        )

    def partition_of(self, transactional_id: str) -> int | None:
        """The partition of ``__transaction_state`` that has an id; None if unknown."""
        if not self.partitions_count:
            return None
        return coordinator_partition(transactional_id, self.partitions_count)

    def judge(
        self, partition: TopicPartition, txn: OpenTxn, now_ms: int, max_timeout_ms: int
    ) -> Judgement:
        """Decide whether an open transaction hangs.

        Args:
            max_timeout_ms: it hangs only if the last batch of its producer is older.
        """
        is_old = now_ms - txn.last_timestamp > max_timeout_ms
        found = self._by_producer.get(txn.producer_id, [])
        if not found:
            is_ongoing = False if self.is_complete else None
            return Judgement(None, is_ongoing, _is_hanging(is_ongoing, is_old))
        # A producer id belongs to one transactional id, unless the log was forged.
        transaction = max(found, key=lambda each: partition in each.partitions)
        if not transaction.is_certain:
            return Judgement(transaction, None, None if is_old else False)
        is_known = transaction.state is not CoordinatorState.DEAD
        is_ongoing = is_known and partition in transaction.partitions
        return Judgement(transaction, is_ongoing, _is_hanging(is_ongoing, is_old))

    @cached_property
    def _by_producer(self) -> Mapping[int, Sequence[CoordinatorTransaction]]:
        found = defaultdict[int, list[CoordinatorTransaction]](list)
        for log in self.logs.values():
            for each in log.transactions:
                found[each.producer_id].append(each)
        return found


def _is_hanging(is_ongoing: bool | None, is_old: bool) -> bool | None:
    if not is_old:
        return False
    return None if is_ongoing is None else not is_ongoing
