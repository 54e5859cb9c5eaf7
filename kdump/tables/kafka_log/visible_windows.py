"""The batches of a split that a consumer would see, and the damage between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from kdump.broker.loader.swapped_partition import as_loaded
from kdump.engine.range_splits import RangeSplit
from kdump.formats import names
from kdump.formats.names import FileKind, FileStage
from kdump.log.batch_validity import LogPart
from kdump.log.directory import read_lone_partition
from kdump.log.living_windows import living_windows_from, log_windows
from kdump.log.lock_holders import is_in_use_around
from kdump.log.valid_windows import Damage, OnDamage, segment_part, valid_windows
from kdump.scan.batches import WINDOW_BYTES, BatchColumns, Column, Window, new_buffer
from kdump.scan.control_batches import is_control
from kdump.scan.selection import Selection
from kdump.state.transactions.transaction_outcomes import (
    Step,
    TransactionOutcomes,
    TransactionState,
    damaged_markers,
)
from kdump.storage.location import Location

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


def read_ahead(log: Location, part: LogPart) -> Iterator[Step]:
    """The batches and the damage of a segment from a part on, then those of the segments after it.

    Args:
        part: what will be asked about.

    Raises:
        OSError: a log cannot be read.
    """
    if is_in_use_around(log.around):
        # What follows may have come into this segment's file meanwhile: nothing is surely ahead.
        for step in living_windows_from(log.parent, part.least_offset):
            yield Step(step, False)
        return
    with log.open_file() as source:
        for step in valid_windows(source, replace(part, end=None)):
            yield Step(step, part.end is not None and step.start >= part.end)
    for path, later in _logs_after(log):
        with path.open_file() as source:
            for step in valid_windows(source, later):
                yield Step(step, True)


def _logs_after(log: Location) -> list[tuple[Location, LogPart]]:
    """The logs after this one in the partition as a starting broker loads it.

    None follow a leftover file that is not loaded.
    """
    partition = as_loaded(read_lone_partition(log.parent, log.as_absolute().parent.name))
    segment = partition.segment_of(log.name)
    base_offset = None if segment is None else segment.base_offset
    if segment is None:
        parsed = names.parse_offset_file_name(log.name)
        if parsed is not None and parsed.stage is FileStage.LIVE:
            base_offset = parsed.offset
    return [
        (partition.segment_path(each, FileKind.LOG), segment_part(each, following))
        for each, following in partition.with_following()
        if base_offset is not None and each.base_offset > base_offset
    ]
