"""The latest record of each key of a coordinator's log, found over columns.

A coordinator's log has very many records of few keys, and only the latest one of a key counts.
So the records of a window are reduced by their keys before any is decoded. What
:class:`LatestRecords` keeps is enough to say what a coordinator has in memory after it loaded the
log (:mod:`kdump.state.groups.consumer_groups`).

Offsets that were committed in a transaction are the exception: they count only once the marker of
their producer commits them (``OffsetMetadataManager.replay`` and ``replayEndTransactionMarker``).
Of what counts, the greatest offset wins, whenever its marker came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from kdump.formats import record_batch
from kdump.formats.schemas.group_coordinator import LEGACY_OFFSET_COMMIT, OFFSET_COMMIT
from kdump.log.batch_validity import NO_OFFSET
from kdump.log.valid_windows import OnDamage, batch_damage
from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import BatchColumns, Column, Flags, Window
from kdump.scan.control_batches import is_control
from kdump.scan.distinct_keys import last_rows
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.state.compacted.latest_columns import LatestColumns
from kdump.state.transactions.markers import read_markers
from kdump.state.transactions.transaction_outcomes import log_path

_DIRECT: Final = 0
"""Not in a transaction."""
_COMMITTED: Final = 1
_ABORTED: Final = 2
_OPEN: Final = 3
"""No marker of its producer follows in the window."""
_UNDECIDED: Final = 4
"""The marker that follows cannot be read."""

_TYPE_BYTES: Final = 2
_HIGHEST_OFFSET_TYPE: Final = max(LEGACY_OFFSET_COMMIT.id, OFFSET_COMMIT.id)


class Latest(NamedTuple):
    """A record with a value.

    Attributes:
        value: None if a later tombstone made it irrelevant.
    """

    offset: int
    value: bytes | None


class LatestRecords(Struct):
    """What the records of a log, or of a part of it, add up to; takes them in offset order.

    Parts can be read apart from each other and joined by :meth:`extend`.

    Attributes:
        tombstones: by key, the offset of the latest tombstone.
        not_committed: by key, the offset of the latest record of a transaction that was aborted,
            or whose marker was not seen.
        pending: by producer and key, the latest record of a transaction that is open at the end.
        undecided: the same of transactions that were open where damage is: it may have held their
            marker.
        first_markers: by producer, how its first marker ends what an earlier part left open.
        is_interrupted: whether there is damage with batches after it.
        superseded_up_to: records up to this offset may have been replaced in damage that
            follows them; :data:`NO_OFFSET` if there is none.
        last_offset: of the last batch; :data:`NO_OFFSET` before the first.
        records: how many, without control records.
        without_key: how many have no key; a coordinator does not load such a log.
    """

    tombstones: dict[bytes, int] = field(default_factory=dict)
    not_committed: dict[bytes, int] = field(default_factory=dict)
    pending: dict[int, dict[bytes, Latest]] = field(default_factory=dict)
    undecided: dict[int, dict[bytes, Latest]] = field(default_factory=dict)
    first_markers: dict[int, int] = field(default_factory=dict)
    is_interrupted: bool = False
    superseded_up_to: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    records: int = 0
    without_key: int = 0
    _ends_damaged: bool = False
    _values: dict[bytes, Latest] = field(default_factory=dict)
    _columns: LatestColumns = field(default_factory=LatestColumns)

    @property
    def values(self) -> Mapping[bytes, Latest]:
        """By key, the latest record with a value, in a committed transaction or in none."""
        for key, offset, value in self._columns.take():
            self._put(key, Latest(offset, value))
        return self._values

    def reduce(self) -> None:
        """Take less memory, in a pickle too; changes nothing else."""
        self._columns.reduce()

    def add_damage(self) -> None:
        """Take note of damage after the batches so far; it counts once batches follow."""
        self._ends_damaged = True

    def add(self, window: Window, on_damage: OnDamage) -> None:
        """Take the next valid batches.

        Args:
            window: the batches, none of them damaged.
            on_damage: takes the batches whose records cannot be read, and markers likewise.

        Raises:
            OSError: a batch cannot be read.
        """
        if not window.batches.count:
            return
        if self._ends_damaged:
            self._interrupt()
        states = self._states(window, on_damage)
        for step in expand_window(window, with_records=True, only_valid=True):
            if isinstance(step, RecordColumns):
                at = np.searchsorted(window.batches.position, step.batches.position)
                for row, problem in sorted(step.problems.items()):
                    on_damage(batch_damage(window, int(at[row]), log_path(window), problem))
                    self._add_unreadable(int(step.batches.last_offset[row]))
                self._add_columns(step, None if states is None else states[at])
            elif isinstance(step, MessageSet):
                if step.problem is not None:
                    on_damage(batch_damage(step.window, 0, log_path(window), step.problem))
                    self._add_unreadable(int(step.window.batches.last_offset[0]))
                self._add_messages(step)
        self.last_offset = int(window.batches.last_offset[-1])

    def extend(self, later: LatestRecords) -> None:
        """Take the records of the next part of the log."""
        if later.last_offset == NO_OFFSET:
            self._ends_damaged |= later._ends_damaged
            return
        if self._ends_damaged:
            self._interrupt()
        for producer_id in [*self.pending]:
            state = later.first_markers.get(producer_id)
            if state is None and later.is_interrupted:
                state = _UNDECIDED
            if state is not None:
                self._end(producer_id, state)
        if not self.is_interrupted:
            for producer_id, state in later.first_markers.items():
                self.first_markers.setdefault(producer_id, state)
        if later.is_interrupted:
            self._interrupt()
        self.superseded_up_to = max(self.superseded_up_to, later.superseded_up_to)
        self._columns.extend(later._columns)
        for key, latest in later._values.items():
            self._put(key, latest)
        for key, offset in later.tombstones.items():
            self._bury(key, offset)
        for key, offset in later.not_committed.items():
            self._mention(key, offset)
        _join(self.pending, later.pending)
        _join(self.undecided, later.undecided)
        self.last_offset = later.last_offset
        self.records += later.records
        self.without_key += later.without_key
        self._ends_damaged = later._ends_damaged

    def _add_unreadable(self, offset: int) -> None:
        """Take note of a batch whose checksum is right, and whose records are damaged."""
        self.superseded_up_to = max(self.superseded_up_to, offset)

    def _interrupt(self) -> None:
        """Batches follow damage: nothing is known about the records and markers in it."""
        self.is_interrupted = True
        self.superseded_up_to = max(self.superseded_up_to, self.last_offset)
        for producer_id in [*self.pending]:
            self._end(producer_id, _UNDECIDED)
        self._ends_damaged = False

    def _states(self, window: Window, on_damage: OnDamage) -> Column | None:
        """How the transaction of each batch ends within the window; None if there are none.

        Also ends the transactions of earlier windows by the markers in this one.
        """
        batches = window.batches
        if (batches.producer_id == record_batch.NO_PRODUCER_ID).all():
            return None
        markers = read_markers(window, log_path(window))
        end = np.where(markers.is_abort, _ABORTED, _COMMITTED)
        for at in np.flatnonzero(np.isin(markers.row, list(markers.problems))).tolist():
            row = int(markers.row[at])
            end[at] = _UNDECIDED
            on_damage(batch_damage(window, row, log_path(window), str(markers.problems[row])))
        producer_ids, first = np.unique(batches.producer_id[markers.row], return_index=True)
        for producer_id, state in zip(producer_ids.tolist(), end[first].tolist(), strict=True):
            self._end(producer_id, state)
            if not self.is_interrupted:
                self.first_markers.setdefault(producer_id, state)
        return _batch_states(batches, markers.row, end)

    def _end(self, producer_id: int, state: int) -> None:
        """End what a producer left open."""
        ended = self.pending.pop(producer_id, None)
        if ended is None:
            return
        if state == _UNDECIDED:
            _join(self.undecided, {producer_id: ended})
        elif state == _COMMITTED:
            for key, latest in ended.items():
                self._put(key, latest)

    def _add_columns(self, columns: RecordColumns, batch_states: Column | None) -> None:
        is_data = ~is_control(columns.batches)[columns.batch]
        has_key = is_data & (columns.key_size >= 0)
        self.records += int(is_data.sum())
        self.without_key += int(is_data.sum()) - int(has_key.sum())
        is_value = has_key & (columns.value_size >= 0)
        counts = is_value
        if batch_states is not None:
            state = np.where(_is_offset(columns), batch_states[columns.batch], _DIRECT)
            counts = is_value & (state <= _COMMITTED)
            self._add_not_committed(columns, is_value & ~counts, state)
        self._columns.add(columns, counts)
        is_tombstone = has_key & ~is_value
        if is_tombstone.any():
            keys, rows = last_of_each(columns, is_tombstone)
            for key, offset in zip(keys, columns.offset[rows].tolist(), strict=True):
                self._bury(key, offset)

    def _add_not_committed(self, columns: RecordColumns, chosen: Flags, state: Column) -> None:
        """Take offsets of transactions that are aborted, or whose end is not in the window."""
        if not chosen.any():
            return
        keys, rows = last_of_each(columns, chosen)
        for key, offset in zip(keys, columns.offset[rows].tolist(), strict=True):
            self._mention(key, offset)
        producer_of = columns.batches.producer_id[columns.batch]
        for wanted, into in ((_OPEN, self.pending), (_UNDECIDED, self.undecided)):
            is_wanted = chosen & (state == wanted)
            for producer_id in np.unique(producer_of[is_wanted]).tolist():
                keys, rows = last_of_each(columns, is_wanted & (producer_of == producer_id))
                own = into.setdefault(producer_id, {})
                for key, row in zip(keys, rows.tolist(), strict=True):
                    own[key] = Latest(int(columns.offset[row]), columns.value(row))

    def _add_messages(self, found: MessageSet) -> None:
        """Take messages of magic 0 and 1, which know no transactions."""
        for message in found.messages:
            self.records += 1
            key, value = message.key, message.value
            if key is None:
                self.without_key += 1
            elif value is None:
                self._bury(key, message.offset)
            else:
                self._put(key, Latest(message.offset, value))

    def _put(self, key: bytes, latest: Latest) -> None:
        known = self._values.get(key)
        if known is None or known.offset < latest.offset:
            is_buried = self.tombstones.get(key, NO_OFFSET) > latest.offset
            self._values[key] = Latest(latest.offset, None) if is_buried else latest

    def _bury(self, key: bytes, offset: int) -> None:
        self.tombstones[key] = max(offset, self.tombstones.get(key, NO_OFFSET))
        known = self._values.get(key)
        if known is not None and known.offset < offset:
            self._values[key] = Latest(known.offset, None)

    def _mention(self, key: bytes, offset: int) -> None:
        self.not_committed[key] = max(offset, self.not_committed.get(key, NO_OFFSET))


def _join(into: dict[int, dict[bytes, Latest]], more: dict[int, dict[bytes, Latest]]) -> None:
    for producer_id, records in more.items():
        into.setdefault(producer_id, {}).update(records)


def _is_offset(columns: RecordColumns) -> Flags:
    """Which records have the key of a committed offset: only those take part in transactions."""
    long_enough = columns.key_size >= _TYPE_BYTES
    start = np.where(long_enough, columns.key_start, 0)
    is_low = (columns.data[start] == 0) & (columns.data[start + 1] <= _HIGHEST_OFFSET_TYPE)
    flags: Flags = long_enough & is_low
    return flags


def last_of_each(
    columns: RecordColumns, chosen: Flags, *, skipped_bytes: int = 0
) -> tuple[list[bytes], Column]:
    """The distinct keys of the chosen records, and the last row of each.

    Args:
        chosen: those with a key, of at least ``skipped_bytes``.
        skipped_bytes: at the beginning of each key, which are not compared.
    """
    rows = np.flatnonzero(chosen)
    if not rows.size:
        return [], rows
    key = gather_bytes(
        columns.data,
        columns.key_start[rows] + skipped_bytes,
        columns.key_size[rows] - skipped_bytes,
        np.ones(rows.size, np.bool_),
    )
    last = last_rows(key)
    keys: list[bytes] = key.take(pa.array(last)).to_pylist()
    return keys, rows[last]


def _batch_states(batches: BatchColumns, marker_rows: Column, end: Column) -> Column:
    """How the next marker of its producer ends each batch.

    Args:
        batches: of a window.
        marker_rows: the rows of the markers, rising.
        end: what each of them does.
    """
    code = np.unique(batches.producer_id, return_inverse=True)[1]
    # One number orders by producer, then by row.
    place = code * batches.count + np.arange(batches.count)
    order = np.argsort(place[marker_rows], kind="stable")
    marker_places = place[marker_rows][order]
    following = np.searchsorted(marker_places, place)
    is_there = following < len(marker_places)
    following[~is_there] = 0
    states = np.full(batches.count, _OPEN, np.int64)
    if len(marker_places):
        next_row = marker_rows[order][following]
        is_there &= code[next_row] == code
        states[is_there] = end[order][following][is_there]
    states[batches.producer_id == record_batch.NO_PRODUCER_ID] = _DIRECT
    return states


def joined(parts: Iterable[LatestRecords]) -> LatestRecords:
    """What consecutive parts of a log add up to."""
    whole = LatestRecords()
    for part in parts:
        whole.extend(part)
    return whole
