"""An index has no findings if and only if every lookup through it finds the right batch.

Lookups are done here as Kafka does them (``LogSegment.translateOffset``, ``readNextOffset`` and
``findOffsetByTimestamp``), over segments and indexes made at random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.check.collector import Collector
from kdump.check.findings import Finding
from kdump.check.index_entries import OffsetEntries, TimeEntryCheck
from kdump.formats.offset_index import OffsetIndex
from kdump.formats.time_index import TimeIndex
from kdump.scan.batches import BatchColumns

Entry = tuple[int, int]


@dataclass(frozen=True)
class Segment:
    """Batches by their columns, each as long as there are batches."""

    base_offset: Sequence[int]
    last_offset: Sequence[int]
    position: Sequence[int]
    size_bytes: Sequence[int]
    max_timestamp: Sequence[int]

    @property
    def count(self) -> int:
        return len(self.position)

    @property
    def log_bytes(self) -> int:
        return self.position[-1] + self.size_bytes[-1]

    def columns(self, begin: int, end: int) -> BatchColumns:
        """Return the batches from row ``begin`` up to row ``end``, as the scan gives them."""
        count = end - begin

        def column(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.array(values[begin:end], np.int64)

        none = np.full(count, -1, np.int64)
        return BatchColumns(
            position=column(self.position),
            size_bytes=column(self.size_bytes),
            base_offset=column(self.base_offset),
            partition_leader_epoch=none,
            magic=np.full(count, 2, np.int64),
            crc=none,
            attributes=np.zeros(count, np.int64),
            last_offset_delta=column(self.last_offset) - column(self.base_offset),
            base_timestamp=none,
            max_timestamp=column(self.max_timestamp),
            producer_id=none,
            producer_epoch=none,
            base_sequence=none,
            records_count=none,
            is_valid=np.ones(count, np.bool_),
        )

    def first_ending_from(self, offset: int, row: int = 0) -> int | None:
        """Return the first batch from ``row`` on that ends at or above an offset."""
        return next((at for at in range(row, self.count) if self.last_offset[at] >= offset), None)

    def first_as_late_as(self, timestamp: int, row: int = 0) -> int | None:
        """Return the first batch from ``row`` on with a timestamp at or above the given one."""
        return next(
            (at for at in range(row, self.count) if self.max_timestamp[at] >= timestamp), None
        )

    def row_at(self, position: int) -> int:
        """Return the batch that begins at a byte; as many as there are for the end of the log."""
        return self.count if position == self.log_bytes else self.position.index(position)


def segment_of(rng: random.Random) -> Segment:
    base, last, position, size, timestamp = [], [], [], [], []
    offset = at = 0
    now = 10
    for _ in range(rng.randrange(1, 8)):
        offset += rng.choice([0, 0, 0, 2])
        base.append(offset)
        last.append(offset + rng.choice([0, 0, 1, 3]))
        position.append(at)
        size.append(rng.choice([70, 90]))
        now += rng.choice([-2, 0, 1, 3])
        timestamp.append(rng.choice([now, now, now, -1]))
        offset, at = last[-1] + 1, at + size[-1]
    return Segment(base, last, position, size, timestamp)


def increasing(entries: Sequence[Entry]) -> list[Entry]:
    """Leave out entries that do not increase in both fields: another invariant covers them."""
    kept: list[Entry] = []
    for entry in sorted(entries):
        if not kept or (entry[0] > kept[-1][0] and entry[1] > kept[-1][1]):
            kept.append(entry)
    return kept


def lower_bound(entries: Sequence[Entry], key: int, otherwise: Entry) -> Entry:
    """Return the last entry whose key is at or below ``key``."""
    return max((entry for entry in entries if entry[0] <= key), default=otherwise)


def parts_of(rng: random.Random, segment: Segment) -> list[tuple[int, int]]:
    """Cut the rows of a segment into parts, as several workers would have them."""
    cuts = sorted(rng.sample(range(1, segment.count), rng.randrange(segment.count)))
    return list(zip([0, *cuts], [*cuts, segment.count], strict=True))


def offset_findings(
    rng: random.Random, segment: Segment, entries: Sequence[Entry]
) -> tuple[Finding, ...]:
    into = Collector()
    columns = np.array(entries, np.int64).reshape(-1, 2).T
    index = OffsetIndex(0, columns[0], columns[1])
    for begin, end in parts_of(rng, segment):
        check = OffsetEntries("0.index", index, segment.position[begin], into)
        middle = rng.randrange(begin, end + 1)
        for first, last in ((begin, middle), (middle, end)):
            if first < last:
                check.check(
                    segment.columns(first, last),
                    segment.position[last - 1] + segment.size_bytes[last - 1],
                )
        if end == segment.count:
            check.finish(segment.log_bytes, is_whole=True)
        else:
            check.finish_part()
    return into.findings()


def time_findings(
    rng: random.Random, segment: Segment, entries: Sequence[Entry]
) -> tuple[Finding, ...]:
    into = Collector()
    columns = np.array(entries, np.int64).reshape(-1, 2).T
    index = TimeIndex(0, columns[0], columns[1])
    for begin, end in parts_of(rng, segment):
        check = TimeEntryCheck("0.timeindex", index, into)
        check.check(segment.columns(begin, end), is_first=begin == 0)
        check.finish(is_first=begin == 0, is_last=end == segment.count)
    return into.findings()


def offset_entries(rng: random.Random, segment: Segment) -> list[Entry]:
    positions = [*segment.position, segment.log_bytes]
    return increasing(
        [
            (rng.randrange(segment.last_offset[-1] + 3), rng.choice(positions))
            for _ in range(rng.randrange(4))
        ]
    )


def valid_offset_entries(rng: random.Random, segment: Segment) -> list[Entry]:
    """Return entries as some broker writes them: by first, last or any offset of an append."""
    entries = []
    for row in range(segment.count):
        if rng.random() < 0.5:
            lowest = 0 if row == 0 else segment.last_offset[row - 1] + 1
            entries.append((rng.randint(lowest, segment.last_offset[row]), segment.position[row]))
    return entries


@given(st.randoms(use_true_random=False))
def test_an_offset_index_is_valid_if_every_lookup_finds_the_right_batch(rng: random.Random) -> None:
    segment = segment_of(rng)
    entries = offset_entries(rng, segment)
    found_right = all(
        segment.first_ending_from(
            offset, segment.row_at(lower_bound(entries, offset, (0, segment.position[0]))[1])
        )
        == segment.first_ending_from(offset)
        for offset in range(segment.last_offset[-1] + 5)
    )
    # The end of the log is looked for from the last entry on, and is the base where that fails.
    last_offset = entries[-1][0] if entries else 0
    finds_end = segment.first_ending_from(last_offset) is not None

    assert (not offset_findings(rng, segment, entries)) == (found_right and finds_end)


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
def test_an_offset_index_by_any_offset_of_its_batches_is_valid(rng: random.Random) -> None:
    segment = segment_of(rng)
    assert not offset_findings(rng, segment, valid_offset_entries(rng, segment))


def time_entries(rng: random.Random, segment: Segment) -> list[Entry]:
    offsets = [
        offset
        for base, last in zip(segment.base_offset, segment.last_offset, strict=True)
        for offset in range(base, last + 1)
    ]
    return increasing(
        [(rng.randrange(5, 30), rng.choice(offsets)) for _ in range(rng.randrange(1, 4))]
    )


def finds_by_time(segment: Segment, by_time: Sequence[Entry], by_offset: Sequence[Entry]) -> bool:
    """Whether every timestamp is found where it comes first, through both indexes."""
    for timestamp in range(40):
        offset = lower_bound(by_time, timestamp, (-1, 0))[1]
        row = segment.row_at(lower_bound(by_offset, offset, (0, segment.position[0]))[1])
        if segment.first_as_late_as(timestamp, row) != segment.first_as_late_as(timestamp):
            return False
    return True


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
def test_a_time_index_is_valid_if_every_lookup_finds_the_right_batch(rng: random.Random) -> None:
    segment = segment_of(rng)
    entries = time_entries(rng, segment)
    dense = list(zip(segment.base_offset, segment.position, strict=True))

    assert (not time_findings(rng, segment, entries)) == finds_by_time(segment, entries, dense)


@given(st.randoms(use_true_random=False))
def test_a_valid_time_index_works_with_any_valid_offset_index(rng: random.Random) -> None:
    segment = segment_of(rng)
    entries = time_entries(rng, segment)
    if not time_findings(rng, segment, entries):
        assert finds_by_time(segment, entries, valid_offset_entries(rng, segment))
