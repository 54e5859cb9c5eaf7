"""What share groups have delivered, as the share coordinator has it after loading its log.

Follows ``ShareCoordinatorShard.replay``: a snapshot replaces what is known of a partition, and an
update changes a part of it. Only the updates after the latest snapshot of a partition are decoded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from msgspec import Struct, field

from kdump.formats.coordinator_records import decode_key, decode_value
from kdump.formats.errors import FormatError
from kdump.formats.message_decoder import MessageValue
from kdump.formats.schemas import share
from kdump.log.batch_validity import NO_OFFSET
from kdump.log.valid_windows import OnDamage, batch_damage
from kdump.scan.batches import Column, Flags, Window
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.state.compacted.latest_records import Latest, last_of_each
from kdump.state.transactions.transaction_outcomes import log_path
from kdump.words import counted

UNKNOWN: Final = -1
"""Start offset, epoch or count that is not known yet."""
_TYPE_BYTES: Final = 2
_DONE: Final = (2, 4)
"""Acknowledged and archived (``SharePartition.isStateTerminal``)."""


class ShareBatch(Struct, frozen=True):
    """Offsets that were delivered alike (``PersisterStateBatch``).

    Attributes:
        first: of the offsets.
        last: likewise.
        state: of their delivery (``RecordState``): 0 is available, 2 acknowledged, 4 archived.
        count: how often they were delivered.
    """

    first: int
    last: int
    state: int
    count: int

    @property
    def is_done(self) -> bool:
        """Whether the offsets are never delivered again."""
        return self.state in _DONE


class SharePartition(Struct, frozen=True):
    """The state of a partition for a share group (``ShareGroupOffset``).

    Attributes:
        topic_id: as Kafka writes it.
        start_offset: the first offset that may still be delivered; :data:`UNKNOWN` before the
            first delivery.
        delivery_complete_count: records from there on that are done; :data:`UNKNOWN` if not known.
        snapshot_epoch: of the latest snapshot.
        state_epoch: of the group's state; :data:`UNKNOWN` without a snapshot.
        leader_epoch: of the partition's leader at that time.
        write_timestamp_ms: when the latest snapshot was written; None without one.
        record_offset: of the latest record.
        batches: from the start offset on, rising; what is in none was never delivered.
        create_timestamp_ms: as the latest snapshot says; None without one.
    """

    group_id: str
    topic_id: str
    partition: int
    start_offset: int
    delivery_complete_count: int
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    write_timestamp_ms: int | None
    record_offset: int
    batches: tuple[ShareBatch, ...] = ()
    create_timestamp_ms: int | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is the state of: group, topic id and partition."""
        return self.group_id, self.topic_id, self.partition

    def unknown(self) -> SharePartition:
        """The same partition; nothing else is known."""
        return SharePartition(
            *self.key,
            start_offset=UNKNOWN,
            delivery_complete_count=UNKNOWN,
            snapshot_epoch=UNKNOWN,
            state_epoch=UNKNOWN,
            leader_epoch=UNKNOWN,
            write_timestamp_ms=None,
            record_offset=NO_OFFSET,
        )

    def lag(self, log_end_offset: int) -> int | None:
        """Records that are still to be delivered; None if that is not known.

        Follows ``GroupCoordinatorService.computeShareGroupLagAndBuildResponse``.
        """
        if UNKNOWN in (self.start_offset, self.delivery_complete_count):
            return None
        return log_end_offset - self.start_offset - self.delivery_complete_count


class _Changes(Struct):
    """The latest snapshot of a partition, and the updates after it.

    Attributes:
        snapshot: None if there is none in the part of the log that was read; its value is None if
            it is a tombstone.
        updates: in offset order.
    """

    snapshot: Latest | None = None
    updates: list[Latest] = field(default_factory=list)

    @property
    def last_offset(self) -> int:
        """Of the latest record."""
        latest = self.updates[-1] if self.updates else self.snapshot
        return NO_OFFSET if latest is None else latest.offset


class ShareRecords(Struct):
    """What the records of a log, or of a part of it, add up to; takes them in offset order.

    Attributes:
        changes: by key without the type.
        superseded_up_to: as in :class:`~kdump.state.compacted.latest_records.LatestRecords`.
        last_offset: likewise.
        without_key: how many records have no key; a share coordinator does not load such a log.
        update_tombstones: how many updates have no value; likewise.
    """

    changes: dict[bytes, _Changes] = field(default_factory=dict)
    superseded_up_to: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    without_key: int = 0
    update_tombstones: int = 0
    _ends_damaged: bool = False

    def add_damage(self) -> None:
        """Take note of damage after the batches so far; it counts once batches follow."""
        self._ends_damaged = True

    def add(self, window: Window, on_damage: OnDamage) -> None:
        """Take the next valid batches.

        Args:
            window: the batches, none of them damaged.
            on_damage: takes the batches whose records cannot be read.

        Raises:
            OSError: a batch cannot be read.
        """
        if not window.batches.count:
            return
        self._continue()
        for step in expand_window(window, with_records=True, only_valid=True):
            if isinstance(step, MessageSet):
                # No broker of that time had share groups.
                on_damage(batch_damage(step.window, 0, log_path(window), "not in this format"))
                continue
            assert isinstance(step, RecordColumns)
            at = np.searchsorted(window.batches.position, step.batches.position)
            for row, problem in sorted(step.problems.items()):
                on_damage(batch_damage(window, int(at[row]), log_path(window), problem))
                last = int(step.batches.last_offset[row])
                self.superseded_up_to = max(self.superseded_up_to, last)
            self._add_columns(step)
        self.last_offset = int(window.batches.last_offset[-1])

    def extend(self, later: ShareRecords) -> None:
        """Take the records of the next part of the log."""
        if later.last_offset != NO_OFFSET:
            self._continue()
            self.last_offset = later.last_offset
        if later.superseded_up_to != NO_OFFSET:
            self.superseded_up_to = max(self.superseded_up_to, later.superseded_up_to)
        self.without_key += later.without_key
        self.update_tombstones += later.update_tombstones
        self._ends_damaged |= later._ends_damaged
        for key, changes in later.changes.items():
            if changes.snapshot is not None:
                self.changes[key] = changes
            else:
                self.changes.setdefault(key, _Changes()).updates += changes.updates

    def _continue(self) -> None:
        if self._ends_damaged:
            self.superseded_up_to = max(self.superseded_up_to, self.last_offset)
            self._ends_damaged = False

    def _add_columns(self, columns: RecordColumns) -> None:
        is_data = ~is_control(columns.batches)[columns.batch]
        self.without_key += int((is_data & (columns.key_size < 0)).sum())
        has_type = is_data & (columns.key_size >= _TYPE_BYTES)
        key_type = _key_types(columns, has_type)
        snapshots = has_type & (key_type == share.SHARE_SNAPSHOT.id)
        keys, rows = last_of_each(columns, snapshots, skipped_bytes=_TYPE_BYTES)
        for key, row in zip(keys, rows.tolist(), strict=True):
            latest = Latest(int(columns.offset[row]), columns.value(row))
            self.changes[key] = _Changes(latest)
        updates = has_type & (key_type == share.SHARE_UPDATE.id)
        has_value = columns.value_size >= 0
        self.update_tombstones += int((updates & ~has_value).sum())
        for row in np.flatnonzero(updates & has_value).tolist():
            full_key = columns.key(row)
            assert full_key is not None
            of_key = self.changes.setdefault(full_key[_TYPE_BYTES:], _Changes())
            latest = Latest(int(columns.offset[row]), columns.value(row))
            if of_key.snapshot is None or of_key.snapshot.offset < latest.offset:
                of_key.updates.append(latest)


def _key_types(columns: RecordColumns, has_type: Flags) -> Column:
    start = np.where(has_type, columns.key_start, 0)
    high, low = columns.data[start].astype(np.int64), columns.data[start + 1]
    types: Column = high << 8 | low
    return types


class ShareFound(Struct, frozen=True):
    """The share partitions of a partition of ``__share_group_state``.

    Attributes:
        partitions: by group, topic id and number.
        problems: why a share coordinator does not load the partition.
    """

    partitions: tuple[SharePartition, ...]
    problems: tuple[str, ...]


def read_share_partitions(records: ShareRecords, is_selected: Callable[[str], bool]) -> ShareFound:
    """What the records of a partition of ``__share_group_state`` add up to.

    Args:
        is_selected: which groups, by name.
    """
    found, problems = [], []
    if records.without_key:
        problems.append(f"{counted(records.without_key, 'record')} without a key")
    if records.update_tombstones:
        problems.append(f"{counted(records.update_tombstones, 'tombstone')} of updates")
    prefix = share.SHARE_SNAPSHOT.id.to_bytes(_TYPE_BYTES, "big")
    for key, changes in records.changes.items():
        try:
            _, fields = decode_key(share.RECORD_TYPES, prefix + key)
            if is_selected(fields["groupId"]):
                state = _replayed(
                    fields["groupId"], fields["topicId"], fields["partition"], changes
                )
                found += [] if state is None else [state]
        except FormatError as problem:
            where = f"the records up to offset {changes.last_offset} of a key"
            problems.append(f"{where}: {problem.what}")
    found.sort(key=lambda each: each.key)
    return ShareFound(tuple(found), tuple(problems))


def _replayed(
    group_id: str, topic_id: str, partition: int, changes: _Changes
) -> SharePartition | None:
    """The state after a snapshot and the updates that follow it.

    Raises:
        FormatError: a record is malformed.
    """
    state = None
    snapshot = changes.snapshot
    if snapshot is not None and snapshot.value is not None:
        value = decode_value(share.SHARE_SNAPSHOT, snapshot.value)
        state = SharePartition(
            group_id,
            topic_id,
            partition,
            start_offset=value["startOffset"],
            delivery_complete_count=value["deliveryCompleteCount"],
            snapshot_epoch=value["snapshotEpoch"],
            state_epoch=value["stateEpoch"],
            leader_epoch=value["leaderEpoch"],
            write_timestamp_ms=value["writeTimestamp"],
            record_offset=snapshot.offset,
            batches=_batches_in(value),
            create_timestamp_ms=value["createTimestamp"],
        )
    return _updated(state, group_id, topic_id, partition, changes.updates)


def _updated(
    state: SharePartition | None,
    group_id: str,
    topic_id: str,
    partition: int,
    updates: Iterable[Latest],
) -> SharePartition | None:
    for update in updates:
        value = decode_value(share.SHARE_UPDATE, update.value or b"")
        start, leader_epoch = value["startOffset"], value["leaderEpoch"]
        batches = _batches_in(value)
        if state is not None:
            start = state.start_offset if start == UNKNOWN else start
            leader_epoch = state.leader_epoch if leader_epoch == UNKNOWN else leader_epoch
            batches = combined([*state.batches, *batches], start)
        state = SharePartition(
            group_id,
            topic_id,
            partition,
            start_offset=start,
            delivery_complete_count=value["deliveryCompleteCount"],
            snapshot_epoch=value["snapshotEpoch"] if state is None else state.snapshot_epoch,
            state_epoch=UNKNOWN if state is None else state.state_epoch,
            leader_epoch=leader_epoch,
            write_timestamp_ms=None if state is None else state.write_timestamp_ms,
            record_offset=update.offset,
            batches=batches,
            create_timestamp_ms=None if state is None else state.create_timestamp_ms,
        )
    return state


def _batches_in(value: MessageValue) -> tuple[ShareBatch, ...]:
    return tuple(
        ShareBatch(
            each["firstOffset"], each["lastOffset"], each["deliveryState"], each["deliveryCount"]
        )
        for each in value["stateBatches"]
    )


def combined(batches: Iterable[ShareBatch], start_offset: int) -> tuple[ShareBatch, ...]:
    """Put batches that overlap together, rising.

    Follows ``PersisterStateBatchCombiner``: of an offset, the greatest count of deliveries wins,
    then the greatest state; neighbours that are alike become one.

    Args:
        batches: in any order.
        start_offset: what is before it is dropped; :data:`UNKNOWN` drops nothing.
    """
    kept = [
        ShareBatch(max(each.first, start_offset), each.last, each.state, each.count)
        for each in batches
        if each.last >= start_offset
    ]
    edges = sorted({edge for each in kept for edge in (each.first, each.last + 1)})
    waiting = sorted(kept, key=lambda each: each.first, reverse=True)
    current: list[ShareBatch] = []
    found: list[ShareBatch] = []
    for first, end in itertools.pairwise(edges):
        current = [each for each in current if each.last >= first]
        while waiting and waiting[-1].first == first:
            current.append(waiting.pop())
        if not current:
            continue
        best = max(current, key=lambda each: (each.count, each.state))
        before = found[-1] if found else None
        if before is not None and before.last + 1 == first and _is_alike(before, best):
            found[-1] = ShareBatch(before.first, end - 1, best.state, best.count)
        else:
            found.append(ShareBatch(first, end - 1, best.state, best.count))
    return tuple(found)


def _is_alike(one: ShareBatch, other: ShareBatch) -> bool:
    return (one.state, one.count) == (other.state, other.count)
