"""Recognize the records that an earlier rewind appended to a log.

A rewind of several log directories may be stopped when some of them are done, or it is run for one
broker first. A log that is not cut itself is then longer on some replicas, by what was appended.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

import numpy as np

from kdump.formats.errors import FormatError
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import NO_PRODUCER_ID, TRANSACTIONAL_FLAG
from kdump.repair.rewind.group_offsets import lowered_ends, lowers
from kdump.repair.rewind.log_facts import coordinator_entries, valid_windows_of
from kdump.repair.rewind.rewound_log import latest_records, time_of_last_batch
from kdump.repair.rewind.share_offsets import lowered_share_end, read_share_states
from kdump.scan.batches import Window
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.walk import expand_window
from kdump.state.transactions.transaction_coordinator import (
    CoordinatorTransaction,
    completion_of,
    read_transaction,
)
from kdump.target.virtual_directory import VirtualDirectory

AppendedRecord = tuple[int, bytes | None, bytes | None]
"""The producer, the key and the value of a record."""


def records_from(directory: VirtualDirectory, offset: int) -> Iterator[AppendedRecord]:
    """The records of a log from an offset on, at which a segment begins.

    Raises:
        NotRewindableError: a batch is damaged.
        OSError: a file cannot be read.
    """
    for window, _ in valid_windows_of(directory, offset):
        for columns in expand_window(window, with_records=True):
            if isinstance(columns, RecordColumns):
                producers = columns.batches.producer_id[columns.batch].tolist()
                for row, producer_id in enumerate(producers):
                    yield producer_id, columns.key(row), columns.value(row)


class LogRole(enum.Enum):
    """What a rewind may append to a log, beside markers."""

    DATA = "data"
    OFFSETS = "offsets"
    """Records that lower committed offsets."""
    TRANSACTIONS = "transactions"
    """Records that complete transactions."""
    SHARES = "shares"
    """Records that lower what share groups have delivered."""


def ends_in_appended(
    directory: VirtualDirectory, role: LogRole, offset: int, topics: Mapping[str, str]
) -> dict[TopicPartition, int] | None:
    """The ends of logs to which an earlier run lowered the committed offsets in a log.

    Args:
        directory: of the log.
        offset: where another replica ends.
        topics: names by id.

    Returns:
        None if the log has something else from the offset on than what a rewind appended.

    Raises:
        NotRewindableError: a batch is damaged.
        OSError: a file cannot be read.
    """
    if not _was_appended(directory, role, offset):
        return None
    if role is LogRole.SHARES:
        return _share_ends(directory, offset, topics)
    if role is not LogRole.OFFSETS:
        return {}
    return lowered_ends(
        (key, value)
        for producer_id, key, value in records_from(directory, offset)
        if producer_id == NO_PRODUCER_ID
    )


def _was_appended(directory: VirtualDirectory, role: LogRole, offset: int) -> bool:
    """Whether a rewind appended all that a log has from an offset on.

    A broker would hardly write the same: the records are in a segment of their own, have the time
    of the batch before them, and each of them follows from what is before them.
    """
    if offset not in directory.base_offsets()[1:]:
        return False
    times = set[int]()
    for window, _ in valid_windows_of(directory, offset):
        if not _may_be_appended(window):
            return False
        times |= {*window.batches.max_timestamp.tolist()}
    if times != {time_of_last_batch(directory, offset)}:
        return False
    appended = [*records_from(directory, offset)]
    ended = {producer_id for producer_id, *_ in appended} - {NO_PRODUCER_ID}
    if not ended <= _open_producers(directory, offset, ended):
        return False
    data = [
        (record_key, value)
        for producer_id, record_key, value in appended
        if producer_id == NO_PRODUCER_ID
    ]
    if not data:
        return True
    try:
        if role is LogRole.SHARES:
            return _share_ends(directory, offset, None) is not None
        if role is LogRole.OFFSETS:
            latest = latest_records(directory, offset)
            return all(lowers(latest, *each) for each in data)
        if role is LogRole.TRANSACTIONS:
            states = _states(directory, offset)
            return all(_completes(states, *each) for each in data)
    except FormatError:
        return False
    return False


def _share_ends(
    directory: VirtualDirectory, offset: int, topics: Mapping[str, str] | None
) -> dict[TopicPartition, int] | None:
    """The lowest ends of logs that explain the records from an offset on; None if none does.

    Args:
        topics: names by id; None to use the ids.

    Raises:
        FormatError: a record cannot be read.
    """
    states = read_share_states(directory, 0, offset).kept
    found = dict[TopicPartition, int]()
    for producer_id, key, value in records_from(directory, offset):
        if producer_id != NO_PRODUCER_ID:
            continue
        lowered = lowered_share_end(states, key, value)
        if lowered is None:
            return None
        (_, topic_id, number), end = lowered
        topic = topic_id if topics is None else topics.get(topic_id)
        if topic is None:
            return None
        partition = TopicPartition(topic, number)
        found[partition] = max(end, found.get(partition, end))
    return found


def _may_be_appended(window: Window) -> bool:
    batches = window.batches
    is_lone = (batches.magic == 2) & (batches.records_count == 1)
    return bool((is_lone & (is_control(batches) | (batches.producer_id == NO_PRODUCER_ID))).all())


def _open_producers(directory: VirtualDirectory, offset: int, chosen: set[int]) -> set[int]:
    """Those of some producers that have a transaction open before an offset."""
    found = set[int]()
    if not chosen:
        return found
    for window, _ in valid_windows_of(directory, to_offset=offset):
        batches = window.batches
        is_data = ((batches.attributes & TRANSACTIONAL_FLAG) != 0) & ~is_control(batches)
        for producer_id in chosen & {*np.unique(batches.producer_id).tolist()}:
            last = np.flatnonzero(batches.producer_id == producer_id)[-1]
            (found.add if is_data[last] else found.discard)(producer_id)
    return found


def _states(directory: VirtualDirectory, offset: int) -> dict[str, CoordinatorTransaction]:
    found: dict[str, CoordinatorTransaction] = {}
    for window, name in valid_windows_of(directory, to_offset=offset):
        for each in coordinator_entries(window, directory.path, name):
            if each.state is None:
                found.pop(each.transactional_id, None)
            else:
                found[each.transactional_id] = each.state
    return found


def _completes(
    states: dict[str, CoordinatorTransaction], key: bytes | None, value: bytes | None
) -> bool:
    read = read_transaction(key, value, 0)
    known = None if read is None else states.get(read[0])
    return known is not None and known.state.is_prepared and completion_of(known) == (key, value)
