"""How the transactions end to which the batches of a log belong.

:class:`~kdump.state.transactions.producers.Producers` looks back: it knows which transactions are
open at an offset. A reader of committed records has to look ahead, to the marker after each batch,
and mostly not far. So this is a second, smaller state: the markers ahead of the reader by producer.
Using ``Producers`` instead would mean to read a log twice, or to hold its records until the marker.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kdump.formats import record_batch
from kdump.log.batch_validity import NO_OFFSET
from kdump.log.valid_windows import Damage, OnDamage, batch_damage
from kdump.scan.batches import BatchColumns, Column, Flags, Window
from kdump.scan.control_batches import is_control
from kdump.state.transactions.markers import marker_rows, read_markers
from kdump.storage.location import StoredFile


class TransactionState(enum.IntEnum):
    """What a batch is to whoever reads committed records."""

    NONE = 0
    """Not part of a transaction."""
    COMMITTED = 1
    ABORTED = 2
    OPEN = 3
    """No marker ends its transaction; or damage before that marker may have held another one."""


class _End(NamedTuple):
    """The marker that ends a transaction."""

    offset: int
    state: int


class Step(NamedTuple):
    """The next part of a log, or of the segments after it.

    Attributes:
        found: valid batches, or damage.
        is_ahead: whether it is past all batches that will be asked about.
    """

    found: Window | Damage
    is_ahead: bool


class TransactionOutcomes:
    """Finds how transactions end while their batches are read from front to back.

    A transaction ends with the next marker of its producer. The steps are a second reading of the
    log that runs ahead of the first, as far as needed: mostly not far, and at most to the end of
    the partition. A transaction with damage before that marker is open, because the damage may have
    held its own marker.

    Args:
        steps: of the log, from the first batch that will be asked about.
        on_damage: takes the damage found; no transaction has a known end past it.
    """

    def __init__(self, steps: Iterable[Step], on_damage: OnDamage) -> None:
        self._ends: dict[int, deque[_End]] = defaultdict(deque)
        self._ended_ahead: set[int] = set()
        self._steps = iter(steps)
        self._on_damage = on_damage
        self._last_offset = NO_OFFSET
        self._damaged_after: list[int] = []

    def states(self, batches: BatchColumns) -> Column:
        """The :class:`TransactionState` of each batch; batches come by rising offsets.

        Raises:
            OSError: a later segment cannot be read.
        """
        found = np.zeros(batches.count, np.int64)
        rows = np.flatnonzero(is_in_transaction(batches) & ~is_control(batches))
        if rows.size:
            producer_ids, offsets = batches.producer_id[rows], batches.base_offset[rows]
            found[rows] = list(map(self._state, producer_ids.tolist(), offsets.tolist()))
        return found

    def _state(self, producer_id: int, offset: int) -> int:
        ends = self._ends[producer_id]
        while True:
            while ends and ends[0].offset < offset:
                ends.popleft()
            damages = self._damaged_after
            at = bisect_left(damages, offset)
            if at < len(damages) and not (ends and ends[0].offset <= damages[at]):
                return TransactionState.OPEN
            if ends:
                return ends[0].state
            step = next(self._steps, None)
            if step is None:
                return TransactionState.OPEN
            self._take(*step)

    def _take(self, found: Window | Damage, is_ahead: bool) -> None:
        if isinstance(found, Damage):
            self._take_damage(found)
            return
        batches = found.batches
        markers = read_markers(found, log_path(found))
        for row, producer_id, offset, is_abort in zip(
            markers.row.tolist(),
            batches.producer_id[markers.row].tolist(),
            batches.base_offset[markers.row].tolist(),
            markers.is_abort.tolist(),
            strict=True,
        ):
            problem = markers.problems.get(row)
            if problem is not None:
                self._last_offset = max(self._last_offset, offset - 1)
                self._take_damage(batch_damage(found, row, log_path(found), str(problem)))
            elif producer_id not in self._ended_ahead:
                state = TransactionState.ABORTED if is_abort else TransactionState.COMMITTED
                self._ends[producer_id].append(_End(offset, state))
                if is_ahead:
                    # Only a producer's first marker matters there.
                    self._ended_ahead.add(producer_id)
        self._last_offset = max(self._last_offset, int(batches.last_offset[-1]))

    def _take_damage(self, damage: Damage) -> None:
        self._on_damage(damage)
        self._damaged_after.append(self._last_offset)


def is_in_transaction(batches: BatchColumns) -> Flags:
    """Which batches belong to a transaction, or end one with a marker."""
    has_flag: Flags = (batches.attributes & record_batch.OF_TRANSACTIONS) != 0
    return has_flag & (batches.magic >= 2) & (batches.producer_id >= 0)


def log_path(window: Window) -> str:
    """Location of the log that a window was read from; of a log in memory only that it is one."""
    source = window.source
    return str(source.location) if isinstance(source, StoredFile) else "the log"


def damaged_markers(window: Window) -> Iterable[Damage]:
    """The markers of a window that no broker can read, as damage."""
    path = log_path(window)
    rows = marker_rows(window.batches)
    for row, problem in read_markers(window, path, rows).problems.items():
        yield batch_damage(window, row, path, str(problem))
