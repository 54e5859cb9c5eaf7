"""The transactions of a log, as the cleaner tracks them.

Only transactional batches and control batches matter. They are collected (:class:`TxnBatches`), and
then evaluated for a whole log at once.

Follows ``CleanedTransactionMetadata`` and ``LocalLog.collectAbortedTransactions``.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from msgspec import Struct, field

from kdump.formats.end_txn_marker import ABORT, COMMIT, ControlRecordError, parse_type
from kdump.formats.transaction_index import AbortedTxn
from kdump.scan.batches import Column, Flags, Window
from kdump.scan.control_batches import is_control, is_transactional
from kdump.scan.window_records import read_records
from kdump.target.refusal import Refused


class Marker(enum.IntEnum):
    """Kind of a batch in a transaction; the first two values are those in the record's key."""

    ABORT = ABORT
    COMMIT = COMMIT
    OTHER = 2
    """Another control record."""
    EMPTY = 3
    """A control batch without a record: compaction has removed it."""
    NONE = 4
    """Data."""


@dataclass(frozen=True, slots=True)
class TxnBatches:
    """The batches of a segment, or a part of one, that are transactional or control batches.

    Each column is int64 of shape (n,); ``marker`` holds values of :class:`Marker`.
    """

    position: Column
    base_offset: Column
    last_offset: Column
    producer_id: Column
    marker: Column

    def __reduce__(self) -> tuple[Callable[..., TxnBatches], tuple[Column, ...]]:
        """Be the one :data:`NO_TXN_BATCHES` after pickling, too: most parts of logs have none."""
        return (TxnBatches, self.columns) if len(self.position) else (_no_txn_batches, ())

    @classmethod
    def joined(cls, parts: Iterable[TxnBatches]) -> TxnBatches:
        """Concatenate those of consecutive parts."""
        columns = list(zip(*(part.columns for part in parts), strict=True))
        return cls(*map(np.concatenate, columns)) if columns else NO_TXN_BATCHES

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.position, self.base_offset, self.last_offset, self.producer_id, self.marker)

    def rows(self) -> Iterator[tuple[int, ...]]:
        return zip(*(column.tolist() for column in self.columns), strict=True)


NO_TXN_BATCHES = TxnBatches(*(np.empty(0, np.int64) for _ in range(5)))


def _no_txn_batches() -> TxnBatches:
    return NO_TXN_BATCHES


def txn_batches(window: Window, log_name: str) -> TxnBatches:
    """Collect those of ``window``.

    Raises:
        Refused: the record of a control batch cannot be decoded.
    """
    batches = window.batches
    is_marker = is_control(batches)
    rows = np.flatnonzero(is_transactional(batches) | is_marker)
    marker = np.full(len(rows), int(Marker.NONE), np.int64)
    for at in np.flatnonzero(is_marker[rows]).tolist():
        marker[at] = _marker(window, int(rows[at]), log_name)
    return TxnBatches(
        batches.position[rows],
        batches.base_offset[rows],
        batches.last_offset[rows],
        batches.producer_id[rows],
        marker,
    )


def _marker(window: Window, row: int, log_name: str) -> Marker:
    if window.batches.records_count[row] == 0:
        return Marker.EMPTY
    one = window if window.is_giant else window.rows(slice(row, row + 1))
    columns = next(read_records(one))
    try:
        type_id = parse_type(columns.key(0) if columns.count else None)
    except ControlRecordError as error:
        position = int(window.batches.position[row])
        raise Refused(error.what, log_name, "InvalidRecordException", position) from error
    return Marker(type_id) if type_id in (ABORT, COMMIT) else Marker.OTHER


class _Ongoing(Struct):
    """An aborted transaction before its marker."""

    txn: AbortedTxn
    has_batches: bool = False


class CleanedTransactions(Struct):
    """The transactions that are open at the cleaner's current position.

    Attributes:
        kept: the aborted transactions whose markers have been passed since this was last cleared,
            and that still had batches: the entries of the new transaction index.
    """

    kept: list[AbortedTxn] = field(default_factory=list)
    _coming: list[tuple[int, int, AbortedTxn]] = field(default_factory=list)
    _added: int = 0
    _aborted: dict[int, _Ongoing] = field(default_factory=dict)
    _committed: set[int] = field(default_factory=set)

    def add(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions; each counts from its first offset on."""
        for txn in aborted:
            heapq.heappush(self._coming, (txn.first_offset, self._added, txn))
            self._added += 1

    def discardable(self, batches: TxnBatches) -> Flags:
        """Process ``batches``; returns for each whether no transaction needs it any more.

        Those are data of aborted transactions, and markers of transactions without batches.
        """
        found = [
            self._is_aborted(producer_id, last_offset)
            if marker == Marker.NONE
            else self._is_obsolete(producer_id, last_offset, marker)
            for _, _, last_offset, producer_id, marker in batches.rows()
        ]
        return np.array(found, np.bool_)

    def _is_aborted(self, producer_id: int, last_offset: int) -> bool:
        self._begin_up_to(last_offset)
        ongoing = self._aborted.get(producer_id)
        if ongoing is None:
            self._committed.add(producer_id)
            return False
        ongoing.has_batches = True
        return True

    def _is_obsolete(self, producer_id: int, last_offset: int, marker: int) -> bool:
        self._begin_up_to(last_offset)
        if marker == Marker.ABORT:
            ongoing = self._aborted.pop(producer_id, None)
            if ongoing is not None and ongoing.has_batches:
                self.kept.append(ongoing.txn)
                return False
            return True
        if marker == Marker.COMMIT:
            had_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_batches
        return marker == Marker.EMPTY

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            txn = heapq.heappop(self._coming)[-1]
            self._aborted.setdefault(txn.producer_id, _Ongoing(txn))


def collect_aborted(
    indexes: Iterable[Iterable[AbortedTxn]], log_start_offset: int, end_offset: int
) -> list[AbortedTxn]:
    """The aborted transactions that may have data below ``end_offset``.

    Args:
        indexes: the transaction index entries of a segment and of all segments after it.
        end_offset: of the range, exclusive.
    """
    found = []
    for entries in indexes:
        for txn in entries:
            if txn.last_offset >= log_start_offset and txn.first_offset < end_offset:
                found.append(txn)
            if txn.last_stable_offset >= end_offset:
                return found
    return found
