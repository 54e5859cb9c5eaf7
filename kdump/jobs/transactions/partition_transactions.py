"""The job of ``kdump txns``: find the transactions of one partition, as its log leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.broker.loader.swapped_partition import UnfinishedSwapError, as_loaded
from kdump.engine.job import Split
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.bounds import is_certain_end
from kdump.log.directory import read_lone_partition
from kdump.log.living import while_it_changes
from kdump.log.lock_holders import was_deleted_in
from kdump.log.log_search import Trust, log_end
from kdump.log.partition import Partition
from kdump.log.valid_records import valid_records
from kdump.log.valid_windows import Damage, OnDamage
from kdump.state.transactions.open_transactions import (
    LogTransactions,
    read_transactions,
    snapshot_transactions,
    usable_snapshots,
)
from kdump.state.transactions.producers import OpenTxn
from kdump.state.transactions.transaction_coordinator import CoordinatorLog, CoordinatorLogReader
from kdump.state.transactions.transaction_sizes import TransactionSize, transaction_sizes


class TxnsSplit(Split, frozen=True, kw_only=True):
    """A partition to read.

    Attributes:
        log_start_offset: from the checkpoint; 0 if it has no line.
        flushed_offset: a starting broker recovers the log from there on; None after a clean
            shutdown.
        high_watermark: None if unknown.
        has_coordinator: whether it is a partition of ``__transaction_state``.
    """

    name: str
    log_start_offset: int = 0
    flushed_offset: int | None = None
    high_watermark: int | None = None
    has_coordinator: bool = False


class TxnsResult(Struct, frozen=True):
    """What one partition says.

    Attributes:
        is_end_certain: whether a starting broker ends it there, too.
        sizes: of the open transactions, by producer id.
        coordinator: what the coordinator knows, if it is a partition of ``__transaction_state``.
    """

    log: LogTransactions
    log_start_offset: int
    log_end_offset: int
    is_end_certain: bool
    sizes: Mapping[int, TransactionSize] = field(default_factory=dict)
    coordinator: CoordinatorLog | None = None
    damages: tuple[Damage, ...] = ()


class NotLoadable(Struct, frozen=True):
    """Why a broker cannot load a partition."""

    what: str


TxnsOutcome = TxnsResult | Unreadable | NotLoadable


class TxnsJob(Struct, frozen=True):
    """Finds the transactions of a partition."""

    def run(self, split: TxnsSplit, /) -> TxnsOutcome:
        """Read one partition."""
        try:
            partition = as_loaded(read_lone_partition(split.path, split.name))
            found = while_it_changes(
                partition,
                lambda listed: _read(listed, split),
                gone=_GONE,
                has_damage=lambda found: bool(found.damages),
            )
        except UnfinishedSwapError as failure:
            return NotLoadable(str(failure))
        except FileNotFoundError as failure:
            if was_deleted_in(split.path.around):
                return _GONE
            return Unreadable.of(failure, split.path)
        except OSError as failure:
            return Unreadable.of(failure, split.path)
        return found


_GONE: Final = TxnsResult(LogTransactions(), 0, 0, False)
"""Of a partition that a broker has deleted meanwhile."""


def _read(partition: Partition, split: TxnsSplit) -> TxnsResult:
    damages: dict[str, Damage] = {}

    def on_damage(damage: Damage) -> None:
        damages.setdefault(str(damage), damage)

    first = partition.segments[0].base_offset if partition.segments else 0
    start = max(first, split.log_start_offset)
    log = _transactions(partition, split, on_damage)
    coordinator = None
    if split.has_coordinator:
        coordinator = _coordinator_log(partition, on_damage)
    end = max(start, log.end_offset or 0)
    return TxnsResult(
        log,
        start,
        end,
        is_certain_end(partition, end, start, is_clean=split.flushed_offset is None),
        transaction_sizes(partition, [txn for txn, _ in all_txns(log)], on_damage),
        coordinator,
        tuple(damages.values()),
    )


def _transactions(partition: Partition, split: TxnsSplit, on_damage: OnDamage) -> LogTransactions:
    if split.flushed_offset is None and partition.segments:
        found = snapshot_transactions(partition, log_end(partition, Trust.HEADERS).offset)
        if found is not None:
            return found
    snapshots = usable_snapshots(partition, split.log_start_offset, split.flushed_offset)
    return read_transactions(partition, snapshots, on_damage, high_watermark=split.high_watermark)


def _coordinator_log(partition: Partition, on_damage: OnDamage) -> CoordinatorLog:
    reader = CoordinatorLogReader()

    def on_lost_records(damage: Damage) -> None:
        on_damage(damage)
        reader.take_damage()

    for records in valid_records(partition, on_lost_records):
        reader.take(records)
    return reader.log()


def all_txns(log: LogTransactions) -> list[tuple[OpenTxn, bool]]:
    """The transactions of a log by first offset, and whether each is certainly open from there.

    If a producer wrote after damage, its transaction may be the one from before.
    """
    open_now = {txn.producer_id: txn for txn in log.open_txns}
    found = []
    for txn in log.uncertain_txns:
        later = open_now.pop(txn.producer_id, txn)
        last = {"last_offset": later.last_offset, "last_timestamp": later.last_timestamp}
        found.append((replace(txn, **last), False))
    found += [(txn, True) for txn in open_now.values()]
    return sorted(found, key=lambda each: each[0].first_offset)
