"""Lookups in the log that belongs to an index.

The batches that entries point to are read as Kafka's ``FileRecords`` does: by position and length
only, without their checksums.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from kdump.dump.problems import DumpProblem
from kdump.formats import message_set
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MIN_LENGTH_BYTES,
    PREFIX_BYTES,
)
from kdump.scan.batches import (
    WINDOW_BYTES,
    Column,
    Flags,
    StopReason,
    Window,
    read_windows,
)
from kdump.scan.header_columns import HEADER_DTYPE
from kdump.scan.source import read_at
from kdump.scan.window_records import read_records
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location, StoredFile

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1

BLOCK_ENTRIES: Final = 1 << 15
"""Number of entries that are looked up, checked or printed together."""

_LARGEST_LOG_BYTES: Final = 2**31 - 1
_FIRST_MAGIC_WITH_HEADER: Final = 2

_BLOCK_BYTES: Final = 1 << 20
_CROWDED_BLOCK: Final = 64
"""From this many headers in a block on, reading the block is cheaper than reading each."""
_SIDE_WALK_WINDOW_BYTES: Final = 1 << 16


def open_log(path: Location, index_path: Location) -> tuple[StoredFile | None, DumpProblem | None]:
    """Open the log of an index; a missing log is reported as a problem.

    Raises:
        OSError: when it is there and cannot be opened.
    """
    try:
        source = path.open_file()
    except FileNotFoundError:
        return None, DumpProblem(
            index_path, None, "its log is missing, entries are not checked", path.name, "no file"
        )
    if source.size_bytes > _LARGEST_LOG_BYTES:
        return source, DumpProblem(
            path,
            None,
            "log is larger than a segment can be",
            f"at most {_LARGEST_LOG_BYTES} bytes",
            f"{source.size_bytes}",
        )
    return source, None


class Fault(enum.IntEnum):
    """Why no batch can be read at a position."""

    NONE = 0
    OUTSIDE = 1
    """The position is before the log, or past its end."""
    NO_WHOLE_BATCH = 2
    """Too few bytes follow, or fewer than the batch claims."""
    BAD_LENGTH = 3
    """A length that no batch can have."""

    @property
    def phrase(self) -> str:
        return _PHRASES[self]


_PHRASES: Final = {
    Fault.NONE: "a batch",
    Fault.OUTSIDE: "no such byte",
    Fault.NO_WHOLE_BATCH: "no whole batch",
    Fault.BAD_LENGTH: "a length that no batch can have",
}


class BatchesAt(Struct, frozen=True):
    """The batches at n positions: last offset of each, and a :class:`Fault` of each (int64)."""

    last_offset: Column
    fault: Column


def batches_at(source: ByteSource, positions: Column, max_bytes: int) -> BatchesAt:
    """The batch at each of ``positions`` (any integers), which may take ``max_bytes`` at most.

    Follows ``FileRecords.slice`` and ``FileLogInputStream.nextBatch``.
    """
    size = source.size_bytes
    is_outside = (positions < 0) | (positions > size)
    start = np.where(is_outside, size, positions)
    header = _headers(source, start)
    end = np.minimum(start + max_bytes, size)
    length = header["length"].astype(np.int64)
    is_beginning = start < end - PREFIX_BYTES
    is_impossible = is_beginning & (length < MIN_LENGTH_BYTES)
    is_whole = is_beginning & (start <= end - LOG_OVERHEAD_BYTES - length)
    has_header = header["magic"] >= _FIRST_MAGIC_WITH_HEADER
    is_whole &= ~has_header | (start + HEADER_BYTES <= size)
    fault = np.select(
        [is_outside, is_impossible, ~is_whole],
        [Fault.OUTSIDE, Fault.BAD_LENGTH, Fault.NO_WHOLE_BATCH],
        Fault.NONE,
    )
    last_offset = header["base_offset"].astype(np.int64)
    last_offset += np.where(has_header, header["last_offset_delta"], 0)
    return BatchesAt(last_offset, fault.astype(np.int64))


def _headers(source: ByteSource, positions: Column) -> npt.NDArray[np.void]:
    """The bytes at each position, as batch headers; padded with zeroes where the source ends."""
    rows = np.zeros((len(positions), HEADER_BYTES), np.uint8)
    blocks = positions // _BLOCK_BYTES
    order = np.argsort(blocks, kind="stable")
    edges = np.flatnonzero(np.diff(blocks[order])) + 1
    for group in np.split(order, edges):
        if len(group) < _CROWDED_BLOCK:
            for slot in group.tolist():
                header = read_at(source, int(positions[slot]), HEADER_BYTES)
                rows[slot, : len(header)] = np.frombuffer(header, np.uint8)
            continue
        first = int(positions[group].min())
        block = read_at(source, first, int(positions[group].max()) + HEADER_BYTES - first)
        padded = np.frombuffer(block + bytes(HEADER_BYTES), np.uint8)
        rows[group] = padded[(positions[group] - first)[:, None] + np.arange(HEADER_BYTES)]
    return rows.view(HEADER_DTYPE)[:, 0]


class FoundBatches(Struct, eq=False):
    """Results of n searches for the first batch, from a position on, that reaches an offset.

    Attributes:
        is_found: whether there is one.
        last_offset: of the batch (int64).
        max_timestamp: greatest of its records, -1 where it has none (int64); only of batches that
            end at the very offset.
        has_failed: whether the search met damage, perhaps after it had found a batch.
        first_failure: the first search that did, and the damage; its position is in the log.
    """

    is_found: Flags
    last_offset: Column
    max_timestamp: Column
    has_failed: Flags
    first_failure: tuple[int, FormatError] | None = None

    @classmethod
    def none_yet(cls, count: int) -> FoundBatches:
        return cls(
            np.zeros(count, np.bool_),
            np.full(count, NO_OFFSET, np.int64),
            np.full(count, NO_TIMESTAMP, np.int64),
            np.zeros(count, np.bool_),
        )

    def fail(self, searches: Column, damage: FormatError) -> None:
        """Note that some searches met ``damage``."""
        if len(searches):
            self.has_failed[searches] = True
            first = int(searches.min())
            if self.first_failure is None or first < self.first_failure[0]:
                self.first_failure = first, damage


def find_batches(source: ByteSource, starts: Column, offsets: Column) -> FoundBatches:
    """Search for each of ``offsets`` from each of ``starts`` (bytes of the log).

    One pass over the log serves all searches that start where a batch does. Others, in a damaged
    index, take a pass each.

    As in ``DumpLogSegments.dumpTimeIndex`` a search fails on damage anywhere after its start, also
    after the batch that it finds: all batches are listed first.
    """
    found = FoundBatches.none_yet(len(starts))
    is_outside = (starts < 0) | (starts > source.size_bytes)
    if is_outside.any():
        outside = np.flatnonzero(is_outside)
        damage = FormatError(
            "offset index points outside the log",
            position=source.size_bytes,
            expected=f"a position of 0 to {source.size_bytes}",
            found=int(starts[outside[0]]),
        )
        found.fail(outside, damage)
    inside = np.flatnonzero(~is_outside)
    astray = _search_from(source, 0, inside, starts, offsets, found)
    for start in np.unique(starts[astray]).tolist():
        together = astray[starts[astray] == start]
        _search_from(source, start, together, starts, offsets, found)
    return found


def _search_from(
    source: ByteSource,
    begin: int,
    searches: Column,
    starts: Column,
    offsets: Column,
    found: FoundBatches,
) -> Column:
    """Do ``searches`` (by number) in a pass from ``begin``; gives those that start at no batch."""
    if not len(searches):
        return searches
    window_bytes = _SIDE_WALK_WINDOW_BYTES if begin else WINDOW_BYTES
    pending = searches
    is_astray = np.zeros(len(starts), np.bool_)
    for window in read_windows(source, begin, checksums=False, window_bytes=window_bytes):
        if window.batches.count:
            end = int(window.batches.next_position[-1])
            begun = pending[starts[pending] < end]
            slots, begins_at_batch = _slots(window.batches.position, starts[begun])
            is_astray[begun[~begins_at_batch]] = True
            begun, slots = begun[begins_at_batch], slots[begins_at_batch]
            _search_window(window, begun, slots, offsets, found)
            pending = pending[~(found.is_found | found.has_failed | is_astray)[pending]]
        if window.stop is not None:
            stop = window.stop
            is_astray[pending[starts[pending] > stop.position]] = True
            failed = searches[~is_astray[searches]]
            if stop.reason is StopReason.TORN_HEADER:
                # Listing a batch does not read its whole header; looking at its offset does.
                failed = failed[~found.is_found[failed]]
            if stop.is_fatal_to_kafka and stop.problem is not None:
                found.fail(failed, stop.problem)
    return np.flatnonzero(is_astray)


def _slots(positions: Column, starts: Column) -> tuple[Column, Flags]:
    """The first of the batches at ``positions`` for each start, and whether one begins there.

    A start before all of them was found to be a batch's in an earlier window.
    """
    slots = np.searchsorted(positions, starts)
    clipped = np.minimum(slots, len(positions) - 1)
    return slots, (positions[clipped] == starts) | (starts < positions[0])


def _search_window(
    window: Window, searches: Column, slots: Column, offsets: Column, found: FoundBatches
) -> None:
    """Do ``searches`` among the batches of ``window``, each from its slot on."""
    last_offset = window.batches.last_offset
    rows = _first_reaching(last_offset, slots, offsets[searches])
    is_here = rows < window.batches.count
    searches, rows = searches[is_here], rows[is_here]
    found.is_found[searches] = True
    found.last_offset[searches] = last_offset[rows]
    is_exact = last_offset[rows] == offsets[searches]
    searches, rows = searches[is_exact], rows[is_exact]
    wanted, which = np.unique(rows, return_inverse=True)
    max_timestamp, problems = _max_timestamps(window, wanted)
    found.max_timestamp[searches] = max_timestamp[which]
    for index, problem in problems.items():
        failed = searches[which == index]
        found.is_found[failed] = False
        found.fail(failed, problem)


def _first_reaching(last_offset: Column, slots: Column, offsets: Column) -> Column:
    """For each search the first row from its slot on that ends at or after its offset, or n."""
    if (last_offset[1:] >= last_offset[:-1]).all():
        return np.maximum(slots, np.searchsorted(last_offset, offsets))
    rows = np.empty(len(slots), np.int64)
    for slot in np.unique(slots).tolist():
        reach = np.maximum.accumulate(last_offset[slot:])
        here = slots == slot
        rows[here] = slot + np.searchsorted(reach, offsets[here])
    return rows


def _max_timestamps(window: Window, rows: Column) -> tuple[Column, dict[int, FormatError]]:
    """Find the greatest timestamp among the records of some batches, and the damaged batches.

    Both count the batches as ``rows`` does: column of shape (len(rows),), keys from 0.
    """
    max_timestamp = np.full(len(rows), NO_TIMESTAMP, np.int64)
    problems: dict[int, FormatError] = {}
    if not len(rows):
        return max_timestamp, problems
    position = window.batches.position[rows]
    is_legacy = window.batches.magic[rows] < _FIRST_MAGIC_WITH_HEADER
    for index in np.flatnonzero(is_legacy).tolist():
        try:
            max_timestamp[index] = _legacy_max_timestamp(window.batch_bytes(int(rows[index])))
        except FormatError as damage:
            problems[index] = _at_batch(damage, int(position[index]))
    if not is_legacy.all():
        batches = window.batches.rows(rows[~is_legacy])
        for columns in read_records(replace(window, batches=batches)):
            index_of = np.searchsorted(position, columns.batches.position)
            np.maximum.at(max_timestamp, index_of[columns.batch], columns.timestamp)
            for row, problem in columns.problems.items():
                index = int(index_of[row])
                problems[index] = _at_batch(problem, int(position[index]))
    return max_timestamp, problems


def _legacy_max_timestamp(batch: memoryview) -> int:
    """Find the greatest timestamp of a message of magic 0 or 1, or of the messages in it."""
    header = message_set.decode_header(batch)
    if Codec.of_attributes(header.attributes) is Codec.NONE:
        return max(NO_TIMESTAMP, header.timestamp)
    messages = message_set.inner_messages(message_set.decode_message(batch))
    return max([NO_TIMESTAMP, *(message.timestamp for message in messages)])


def _at_batch(damage: FormatError, position: int) -> FormatError:
    """Give ``damage`` with the position of its batch."""
    return FormatError(damage.what, position=position, expected=damage.expected, found=damage.found)


def entry_rows(
    type_: str, columns: Mapping[str, Column], padding: int, entry_bytes: int
) -> Iterator[dict[str, object]]:
    """Give each entry of an index as a row, and the padding after them as one."""
    used = len(next(iter(columns.values()))) - padding
    for start in range(0, used, BLOCK_ENTRIES):
        block = slice(start, min(start + BLOCK_ENTRIES, used))
        values = (column[block].tolist() for column in columns.values())
        for entry in zip(*values, strict=True):
            yield {"type": type_, **dict(zip(columns, entry, strict=True))}
    if padding:
        yield {"type": "index_padding", "entries": padding, "size_bytes": padding * entry_bytes}
