"""The batches of a split that a consumer would see, and the damage between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from kdump.engine.range_splits import RangeSplit
from kdump.log.living_windows import log_windows
from kdump.log.valid_windows import Damage, OnDamage
from kdump.scan.batches import WINDOW_BYTES, BatchColumns, Column, Window, new_buffer
from kdump.scan.control_batches import is_control
from kdump.scan.selection import Selection
from kdump.state.transactions.transaction_outcomes import (
    TransactionOutcomes,
    TransactionState,
    damaged_markers,
)
from kdump.tables.kafka_log.read_ahead import read_ahead

_VISIBLE_STATES: Final = (TransactionState.NONE, TransactionState.COMMITTED)

OnHidden = Callable[[BatchColumns, Column], None]
"""Takes the batches of a window that belong to transactions not committed, and their states."""


class VisibleWindow(NamedTuple):
    """Batches that a consumer would see.

    Attributes:
        window: with only these batches, at least one. Its buffer is used again for the next.
        states: ``TransactionState`` of each batch; None if it was not asked for.
    """

    window: Window
    states: Column | None


def visible_windows(
    split: RangeSplit,
    on_damage_ahead: OnDamage,
    *,
    is_committed: bool,
    with_control: bool,
    with_states: bool = False,
    on_hidden: OnHidden | None = None,
) -> Iterator[VisibleWindow | Damage]:
    """Yield the batches of a split that can hold visible records, and the damage, in order.

    Args:
        split: the part of a log to read.
        on_damage_ahead: takes damage found while looking ahead for the end of a transaction; it may
            be in another split.
        is_committed: leave out batches of aborted and open transactions.
        with_control: yield control batches, too.
        with_states: also say how the transactions end.
        on_hidden: takes the batches that are left out because of ``is_committed``, if there are
            any.

    Raises:
        OSError: the log cannot be read.
    """
    outcomes = None
    if is_committed or with_states:
        outcomes = TransactionOutcomes(read_ahead(split.path, split.part), on_damage_ahead)
    selection = Selection(from_offset=split.from_offset, to_offset=split.to_offset)
    for step in log_windows(split.path, split.part, buffer=new_buffer(WINDOW_BYTES)):
        if isinstance(step, Damage):
            yield step
            continue
        window = _up_to_end(step, split.to_offset)
        yield from damaged_markers(window)
        mask = np.ones(window.batches.count, np.bool_)
        if not with_control:
            mask &= ~is_control(window.batches)
        states = None if outcomes is None else outcomes.states(window.batches)
        if is_committed and states is not None:
            is_visible = np.isin(states, _VISIBLE_STATES)
            if on_hidden is not None and not is_visible.all():
                on_hidden(window.batches.rows(~is_visible), states[~is_visible])
            mask &= is_visible
        if mask.all():
            yield VisibleWindow(window, states)
        elif mask.any():
            yield VisibleWindow(window.rows(mask), None if states is None else states[mask])
        if window is not step or selection.is_past(window.batches):
            return


def _up_to_end(window: Window, to_offset: int | None) -> Window:
    """The batches before the first that begins past the split's offsets."""
    if to_offset is None:
        return window
    batches = window.batches
    # A compressed message of magic 0 or 1 may begin far below its own offset.
    is_past = (batches.base_offset >= to_offset) & (batches.magic >= 2)
    return window.rows(slice(0, int(np.argmax(is_past)))) if is_past.any() else window
