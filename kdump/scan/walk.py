"""Walk a segment of any mix of magics from front to back, with or without its records."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.formats import message_set
from kdump.formats.buffer import Buffer
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError, OverLimitError
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.scan.batches import (
    WINDOW_BYTES,
    Bytes,
    Flags,
    Stop,
    StopReason,
    Window,
    read_windows,
)
from kdump.scan.last_block import LastBlock
from kdump.scan.record_validity import valid_messages, valid_records_of
from kdump.scan.records import RecordColumns
from kdump.scan.resync import find_batch, is_valid_batch
from kdump.scan.selection import Selection, with_rows
from kdump.scan.source import read_at
from kdump.scan.window_records import read_records
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import StoredFile

ALL: Final = Selection()

_AFTER_DAMAGE_BYTES: Final = 64 << 10


class MessageSet(Struct, frozen=True):
    """A batch of magic 0 or 1 and its messages: the batch itself, or the set compressed in it.

    Attributes:
        messages: up to the first damaged one.
        problem: why the messages ended early.
    """

    window: Window
    messages: list[message_set.Message]
    problem: FormatError | None = None


class Skipped(Struct, frozen=True):
    """Bytes that were skipped up to the next valid batch, or to the end of the file."""

    start: int
    end: int
    problem: FormatError


Step = Window | RecordColumns | MessageSet | Skipped | Stop


def walk_segment(
    source: ByteSource,
    start: int = 0,
    end: int | None = None,
    *,
    with_records: bool,
    selection: Selection = ALL,
    follow_bad: bool = False,
    largest_record_bytes: int = LARGEST_RECORD_BYTES,
) -> Iterator[Step]:
    """Yield the batches of ``source`` in order, and then the :class:`Stop`.

    Args:
        start: byte where a batch begins.
        end: byte at which the file counts as ended; None for its real end.
        with_records: yield records (``RecordColumns`` and ``MessageSet``) instead of batches
            (``Window``).
        selection: what to yield. Its limit counts records, or batches without ``with_records``.
            There is no stop if the walk ends because nothing later can match.
        follow_bad: continue at the next valid batch after damage; the bytes between are a
            :class:`Skipped`.

    Raises:
        OSError: reading fails.
    """
    left = selection.limit
    for step in walk_windows(source, start, end, follow_bad=follow_bad):
        if not isinstance(step, Window):
            yield step
            continue
        for selected in expand_window(
            step,
            selection,
            with_records=with_records,
            largest_record_bytes=largest_record_bytes,
        ):
            if left is None:
                yield selected
                continue
            yield _at_most(selected, left)
            left -= limited_count(selected)
            if left <= 0:
                return
        if selection.is_past(step.batches):
            return


def walk_windows(
    source: ByteSource,
    start: int = 0,
    end: int | None = None,
    *,
    follow_bad: bool,
    checksums: bool = True,
    window_bytes: int = WINDOW_BYTES,
    buffer: Bytes | None = None,
    needed_end: int | None = None,
) -> Iterator[Window | Skipped | Stop]:
    """Yield the windows of ``source`` in order, what is skipped between them, and then the stop.

    For the arguments see :func:`walk_segment` and :func:`~kdump.scan.batches.read_windows`.
    """
    if isinstance(source, StoredFile) and end is not None:
        source.expected_end = end
    end = source.size_bytes if end is None else min(end, source.size_bytes)
    position: int | None = start
    first_bytes = window_bytes
    reader = source
    while position is not None:
        stop = None
        for window in read_windows(
            reader,
            position,
            end,
            checksums=checksums,
            window_bytes=window_bytes,
            first_bytes=first_bytes,
            buffer=buffer,
            needed_end=needed_end,
        ):
            valid, stop = _cut_at_false_length(window, end) if follow_bad else (window, None)
            if valid.batches.count:
                yield valid if reader is source else replace(valid, source=source)
            stop = stop or window.stop
            if stop is not None:
                break
        assert stop is not None, "a walk ends with a stop"
        if stop.problem is None or not follow_bad:
            yield stop
            return
        if reader is source:
            reader = LastBlock(source, end)
        position = find_batch(reader, stop.position + 1, end)
        yield Skipped(stop.position, end if position is None else position, stop.problem)
        # More damage may follow soon, and what was read past it would be wasted.
        first_bytes = min(_AFTER_DAMAGE_BYTES, window_bytes)
    yield Stop(end, StopReason.END)


def expand_window(
    window: Window,
    selection: Selection = ALL,
    *,
    with_records: bool,
    largest_record_bytes: int = LARGEST_RECORD_BYTES,
    only_valid: bool = False,
) -> Iterator[Window | RecordColumns | MessageSet]:
    """Yield what is selected in ``window``, in order.

    For the other arguments see :func:`walk_segment`; the limit of the selection is not applied
    here.

    Args:
        with_records: as for :func:`walk_segment`.
        only_valid: leave out the records that :mod:`kdump.scan.record_validity` does not take for
            valid; their batch has a problem then.
    """
    mask = selection.batches(window.batches)
    if selection.has_times and not with_records:
        mask = _with_selected_time(window, selection, mask)
    if not mask.all():
        window = window.rows(mask)
    is_legacy = window.batches.magic < 2
    edges = [0, *(np.flatnonzero(np.diff(is_legacy)) + 1).tolist(), len(is_legacy)]
    for begin, end in itertools.pairwise(edges):
        if begin == end:
            continue
        run = window.rows(slice(begin, end))
        if not with_records:
            yield run
        elif is_legacy[begin]:
            for row in range(end - begin):
                message_set = _message_set(run.rows(slice(row, row + 1)), largest_record_bytes)
                if only_valid:
                    valid, problem = valid_messages(message_set.messages)
                    message_set = replace(
                        message_set, messages=valid, problem=message_set.problem or problem
                    )
                messages = selection.messages(message_set.messages)
                if messages or message_set.problem:
                    yield replace(message_set, messages=messages)
        else:
            found = read_records(run, largest_record_bytes)
            for columns in valid_records_of(run, found) if only_valid else found:
                if selection.is_all:
                    yield columns
                    continue
                kept = selection.records(columns)
                if kept.count or kept.problems:
                    yield kept


def _with_selected_time(window: Window, selection: Selection, mask: Flags) -> Flags:
    """Return which batches of ``mask`` have a record with a selected time, or are damaged."""
    found = np.zeros(len(mask), np.bool_)
    rows = np.flatnonzero(mask)
    position = window.batches.position
    for step in expand_window(window.rows(mask), selection, with_records=True):
        batches = step.window.batches if isinstance(step, MessageSet) else step.batches
        found[np.searchsorted(position, batches.position)] = True
    found[rows[~window.batches.is_valid[rows]]] = True
    return found


def _at_most(
    step: Window | RecordColumns | MessageSet, count: int
) -> Window | RecordColumns | MessageSet:
    if isinstance(step, Window):
        return step.rows(slice(0, count))
    if isinstance(step, RecordColumns):
        return with_rows(step, np.arange(step.count) < count)
    return replace(step, messages=step.messages[:count])


def limited_count(step: Step) -> int:
    """Count what a limit counts in a step: records, or batches if it has no records."""
    match step:
        case Window():
            return step.batches.count
        case RecordColumns():
            return step.count
        case MessageSet():
            return len(step.messages)
    return 0


def _message_set(window: Window, largest_record_bytes: int) -> MessageSet:
    largest = largest_message_bytes(largest_record_bytes)
    messages: list[message_set.Message] = []
    try:
        outer = message_set.decode_message(message_bytes(window, 0, largest))
        if outer.codec is Codec.NONE:
            messages.append(outer)
        else:
            messages.extend(message_set.inner_messages(outer, largest_bytes=largest))
    except FormatError as problem:
        return MessageSet(window, messages, problem.as_value())
    return MessageSet(window, messages)


def largest_message_bytes(largest_record_bytes: int) -> int:
    """Return the size up to which messages of magic 0 and 1 are decoded."""
    return max(largest_record_bytes, message_set.LARGEST_INNER_BYTES)


def message_bytes(window: Window, row: int, largest_bytes: int) -> Buffer:
    """Return the bytes of a message of magic 0 or 1, even if it is larger than its window.

    Raises:
        OverLimitError: it is larger than ``largest_bytes``.
        OSError: reading fails.
    """
    if not window.is_giant:
        return window.batch_bytes(row)
    size_bytes = int(window.batches.size_bytes[row])
    if size_bytes > largest_bytes:
        raise OverLimitError(
            "not decoded: a message is over the limit",
            expected=f"at most {largest_bytes} bytes (see --max-record-bytes)",
            found=size_bytes,
        )
    return read_at(window.source, int(window.batches.position[row]), size_bytes)


def _cut_at_false_length(window: Window, end: int) -> tuple[Window, Stop | None]:
    """Cut ``window`` before the first invalid batch that does not lead to a valid one.

    The length of such a batch cannot be trusted. If the next batch is valid, the length is right
    and only the content is damaged.
    """
    batches = window.batches
    for row in np.flatnonzero(~batches.is_valid).tolist():
        following = int(batches.next_position[row])
        if row + 1 < batches.count:
            leads_on = bool(batches.is_valid[row + 1])
        else:
            leads_on = following == end or is_valid_batch(window.source, following, end)
        if leads_on:
            continue
        problem = FormatError(
            "a batch is damaged, and no batch follows at its claimed end",
            position=int(batches.position[row]),
            expected=f"a batch at byte {following}",
        )
        stop = Stop(int(batches.position[row]), StopReason.BAD_LENGTH, problem)
        return window.rows(slice(0, row)), stop
    return window, None
