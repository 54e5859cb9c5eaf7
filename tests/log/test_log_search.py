"""Searching a log: what an index shortens, and that nothing wrong in it or in the log misleads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch, record
from builders.log_directories import offset_index, time_index
from builders.memory_storage import MemoryStorage
from kdump.formats.compression import Codec
from kdump.formats.record_batch import CRC_START, HEADER_BYTES, LENGTH_START
from kdump.log.batch_validity import LogPart
from kdump.log.directory import read_lone_partition
from kdump.log.headers import BatchSpan, batch_spans, end_after
from kdump.log.index_tail import time_entry_below
from kdump.log.log_search import (
    ReplicaEnd,
    SegmentSearch,
    Trust,
    log_end,
    offset_of_time,
)
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage, segment_part, valid_windows
from kdump.scan.records import RecordColumns
from kdump.scan.walk import expand_window
from kdump.storage.local_disk import local
from kdump.storage.location import Location, StoredFile
from kdump.storage.memory_file import MemoryFile
from kdump.storage.metered import MeteredStorage
from kdump.target.virtual_directory import BytesSource

BASE_OFFSET = 100
COUNT = 2000
INTERVAL = 50


EVERY_TRUST: Final = pytest.mark.parametrize("trust", list(Trust))


def batches() -> list[bytes]:
    """Batches at every third offset, each a second later than the one before."""
    return [
        batch([record(BASE_OFFSET + 3 * n, timestamp=1_000 * n, value=bytes(40))])
        for n in range(COUNT)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with both indexes, an entry for every so many batches."""
    path = tmp_path_factory.mktemp("seek")
    written = batches()
    (path / "log").write_bytes(b"".join(written))
    size = len(written[0])
    entries = range(INTERVAL, COUNT, INTERVAL)
    (path / "index").write_bytes(offset_index(*((3 * n, n * size) for n in entries), padding=99))
    (path / "timeindex").write_bytes(time_index(*((1_000 * n, 3 * n) for n in entries)))
    return path


def search_in(folder: Path, log: StoredFile, trust: Trust) -> SegmentSearch:
    indexes = local(folder / "index"), local(folder / "timeindex")
    return SegmentSearch(log, BASE_OFFSET, *indexes, trust)


@EVERY_TRUST
def test_the_batch_of_every_offset_is_found_with_few_bytes_read(folder: Path, trust: Trust) -> None:
    path = local(folder / "log")
    with path.open_file() as source:
        spans = list(batch_spans(source))
        with search_in(folder, source, trust) as search:
            assert search.find_batch(BASE_OFFSET + 3 * COUNT) is None
    for n in range(0, COUNT, 37):
        meter = MeteredStorage(path.storage)
        with (
            Location(meter, path.path).open_file() as log,
            search_in(folder, log, trust) as search,
        ):
            assert search.find_batch(BASE_OFFSET + 3 * n - 1) == spans[n]
        assert meter.read_bytes < 40_000


@EVERY_TRUST
def test_reading_for_a_time_begins_after_records_that_are_all_older(
    folder: Path, trust: Trust
) -> None:
    with local(folder / "log").open_file() as log, search_in(folder, log, trust) as search:
        spans = list(batch_spans(log))
        for timestamp_ms in (0, 1, 49_999, 50_000, 50_001, 777_777, 10**9):
            start = search.position_after_times_below(timestamp_ms)
            older = [span for span in spans if span.largest_timestamp < timestamp_ms]
            assert start <= (older[-1].next_position if older else 0)
            skipped = len(older) - start // spans[0].size_bytes
            assert skipped <= INTERVAL


@EVERY_TRUST
def test_an_index_of_another_segment_leads_to_the_first_byte(folder: Path, trust: Trust) -> None:
    indexes = local(folder / "index"), local(folder / "timeindex")
    with (
        local(folder / "log").open_file() as log,
        SegmentSearch(log, BASE_OFFSET + 1, *indexes, trust) as other,
    ):
        assert other.position_after_times_below(777_777) == 0


def test_the_largest_timestamp_is_that_of_the_records(folder: Path) -> None:
    with (
        local(folder / "log").open_file() as log,
        search_in(folder, log, Trust.CHECKSUMS) as search,
    ):
        largest = 1_000 * (COUNT - 1)
        assert search.largest_timestamp() == search.read_largest_timestamp() == largest


# ---- Any log, however damaged: the answer is the one of reading all of it from the first byte ----


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch of a log, and its offsets and times."""

    data: bytes
    records: tuple[tuple[int, int], ...]

    @property
    def last(self) -> tuple[int, int]:
        return self.records[-1][0], max(time for _, time in self.records)


@st.composite
def written_segments(draw: st.DrawFn, *, in_order: bool) -> list[tuple[int, list[WrittenBatch]]]:
    """Segments by base offset; some are empty, offsets have holes, times may be in any order."""
    offset = draw(st.sampled_from([0, 700]))
    time, segments = 0, []
    for _ in range(draw(st.integers(1, 3))):
        base, written = offset, list[WrittenBatch]()
        for _ in range(draw(st.integers(0, 8))):
            records = []
            for _ in range(draw(st.integers(1, 3))):
                time = time + draw(st.integers(0, 3)) if in_order else draw(st.integers(0, 60))
                records.append((offset, time))
                offset += draw(st.sampled_from([1, 1, 2]))
            codec = draw(st.sampled_from([Codec.NONE, Codec.GZIP]))
            data = batch(
                [record(at, timestamp=when, value=bytes(at % 90)) for at, when in records],
                codec=codec,
                partition_leader_epoch=draw(st.integers(0, 4)),
            )
            written.append(WrittenBatch(data, tuple(records)))
            offset += draw(st.sampled_from([0, 0, 4]))
        segments.append((base, written))
        offset += 1
    return segments


def indexes_of(base: int, written: Sequence[WrittenBatch], every: int) -> tuple[bytes, bytes]:
    """The indexes that a broker writes, with an entry after so many batches."""
    offsets, times = list[tuple[int, int]](), list[tuple[int, int]]()
    position, latest = 0, (-1, 0)
    for number, each in enumerate(written):
        last_offset, largest = each.last
        if largest > latest[0]:
            latest = largest, last_offset - base
        if number and number % every == 0:
            offsets.append((last_offset - base, position))
            if not times or latest[0] > times[-1][0]:
                times.append(latest)
        position += len(each.data)
    return offset_index(*offsets, padding=2), time_index(*times, padding=1)


@st.composite
def damaged_index(
    draw: st.DrawFn, data: bytes, encode: Callable[..., bytes], values: Sequence[int]
) -> bytes | None:
    """An index as it is, missing, cut short, or with any entries of small numbers."""
    match draw(st.integers(0, 4)):
        case 0:
            return None
        case 1:
            return data[: draw(st.integers(0, len(data)))]
        case 2:
            entries = st.tuples(st.integers(0, 40), st.sampled_from(values))
            return encode(*draw(st.lists(entries, max_size=4)))
    return data


def positions_in(written: Sequence[WrittenBatch]) -> list[int]:
    """Where batches begin, and a byte where none does."""
    return [*itertools.accumulate((len(each.data) for each in written), initial=0), 7]


@st.composite
def damaged_log(draw: st.DrawFn, written: Sequence[WrittenBatch], trust: Trust) -> bytes:
    """A log with wrong bytes where the trust reaches, and perhaps without its end.

    The base offset, the leader epoch and the magic are in no checksum.
    """
    parts = [bytearray(each.data) for each in written]
    for part in draw(st.lists(st.sampled_from([*parts, parts[-1]]), max_size=3)) if parts else ():
        least = CRC_START if trust is Trust.CHECKSUMS else HEADER_BYTES
        where = st.integers(least, len(part) - 1)
        if trust is Trust.CHECKSUMS:
            where |= st.integers(LENGTH_START, LENGTH_START + 3)
        if trust is Trust.CHECKSUMS and draw(st.booleans()):
            # As if blocks of a disk were exchanged: a header that could be one, before other bytes.
            part[:HEADER_BYTES] = parts[0][:HEADER_BYTES]
            part[-1] = 0xFF
        else:
            part[draw(where)] ^= draw(st.integers(1, 255))
    if parts and trust is Trust.LENGTHS and draw(st.booleans()):
        parts[-1][:8] = draw(st.integers(0, 2000)).to_bytes(8, "big")
    log = b"".join(parts)
    return log[: draw(st.integers(0, len(log)))] if draw(st.integers(0, 3)) == 0 else log


@st.composite
def partitions(draw: st.DrawFn, trust: Trust) -> Partition:
    """A partition with damaged indexes and logs.

    Time indexes are damaged only if times rise. Otherwise one that is true for a batch, and yet
    hides a later time before it, could be made by accident.
    """
    in_order = draw(st.booleans())
    files: dict[str, bytes] = {}
    for base, written in draw(written_segments(in_order=in_order)):
        log = draw(damaged_log(written, trust))
        offsets, times = indexes_of(base, written, draw(st.integers(1, 4)))
        found = {
            ".log": log,
            ".index": draw(damaged_index(offsets, offset_index, positions_in(written))),
            ".timeindex": draw(damaged_index(times, time_index, range(40))) if in_order else times,
        }
        files |= {
            f"/orders-0/{base:020d}{suffix}": data
            for suffix, data in found.items()
            if data is not None
        }
    storage = MemoryStorage("memory", files, frozenset({"/orders-0"}))
    return read_lone_partition(Location(storage, "/orders-0"), "orders-0")


def linear_ends(partition: Partition, trust: Trust) -> ReplicaEnd:
    """The end by every batch from the first byte of each segment on."""
    last, least = None, 0
    for segment, following in partition.with_following():
        least = segment.base_offset
        with SegmentSearch.of(partition, segment, trust) as search:
            if trust is Trust.CHECKSUMS:
                for step in valid_windows(search.log, segment_part(segment, following)):
                    if not isinstance(step, Damage):
                        epoch = int(step.batches.partition_leader_epoch[-1])
                        last = ReplicaEnd(epoch, int(step.batches.last_offset[-1]) + 1)
            else:
                for span in batch_spans(search.log, 0, segment.base_offset):
                    last = ReplicaEnd(span.leader_epoch, span.last_offset + 1)
    if last is None:
        return ReplicaEnd(-1, least)
    return ReplicaEnd(last.leader_epoch, max(last.offset, least))


@given(partitions(Trust.HEADERS))
def test_the_end_by_headers_is_that_of_all_headers(partition: Partition) -> None:
    assert log_end(partition, Trust.HEADERS) == linear_ends(partition, Trust.HEADERS)


@given(partitions(Trust.CHECKSUMS))
def test_the_end_by_checksums_is_that_of_all_valid_batches(partition: Partition) -> None:
    assert log_end(partition, Trust.CHECKSUMS) == linear_ends(partition, Trust.CHECKSUMS)


@given(partitions(Trust.LENGTHS))
def test_the_end_by_lengths_is_that_of_all_lengths(partition: Partition) -> None:
    for segment in partition.segments:
        with SegmentSearch.of(partition, segment, Trust.LENGTHS) as search:
            assert search.end().offset == end_after(search.log, 0, segment.base_offset)


@given(partitions(Trust.HEADERS), st.integers(-1, 40))
def test_a_batch_is_found_by_its_offset_as_by_all_headers(
    partition: Partition, relative_offset: int
) -> None:
    """Values are damaged here, which only checksums notice."""
    for trust in Trust:
        for segment in partition.segments:
            with SegmentSearch.of(partition, segment, trust) as search:
                spans = list(batch_spans(search.log, 0, segment.base_offset))
                offset = segment.base_offset + relative_offset
                expected = next((each for each in spans if each.last_offset >= offset), None)
                assert search.find_batch(offset) == expected
                assert_nothing_before(search.position_of(offset), spans, expected)


def assert_nothing_before(
    position: int, spans: Sequence[BatchSpan], expected: BatchSpan | None
) -> None:
    """A search begins with a batch, at or before the one that is sought."""
    end = spans[-1].next_position if spans else 0
    assert position in {0, *(each.position for each in spans)}
    assert position <= (end if expected is None else expected.position)


@given(partitions(Trust.CHECKSUMS), st.integers(-1, 40))
def test_no_valid_batch_of_an_offset_is_before_where_reading_begins(
    partition: Partition, relative_offset: int
) -> None:
    for segment, following in partition.with_following():
        with SegmentSearch.of(partition, segment, Trust.CHECKSUMS) as search:
            offset = segment.base_offset + relative_offset
            position = search.position_of(offset)
            for step in valid_windows(search.log, segment_part(segment, following)):
                if not isinstance(step, Damage):
                    is_before = step.batches.position < position
                    assert (step.batches.last_offset[is_before] < offset).all()


@given(partitions(Trust.CHECKSUMS), st.integers(-1, 70), st.integers(0, 900))
def test_the_offset_of_a_time_is_that_of_reading_all_valid_records(
    partition: Partition, time: int, start: int
) -> None:
    expected = next(
        (offset for offset, when in valid_records(partition) if offset >= start and when >= time),
        None,
    )
    damages: list[Damage] = []
    assert offset_of_time(partition, time, start, damages.append) == expected


def valid_records(partition: Partition) -> list[tuple[int, int]]:
    """The offsets and times of all valid records."""
    found: list[tuple[int, int]] = []
    for segment, following in partition.with_following():
        with SegmentSearch.of(partition, segment, Trust.CHECKSUMS) as search:
            for step in valid_windows(search.log, segment_part(segment, following)):
                if isinstance(step, Damage):
                    continue
                for columns in expand_window(step, with_records=True, only_valid=True):
                    assert isinstance(columns, RecordColumns)
                    found += zip(columns.offset.tolist(), columns.timestamp.tolist(), strict=True)
    return found


@given(partitions(Trust.CHECKSUMS), st.integers(-1, 70))
def test_the_largest_time_and_what_is_before_a_time_are_those_of_valid_records(
    partition: Partition, time: int
) -> None:
    for segment in partition.segments:
        with SegmentSearch.of(partition, segment, Trust.CHECKSUMS) as search:
            position = search.position_after_times_below(time)
            data = bytearray(search.log.size_bytes)
            search.log.read_into(memoryview(data), 0)
            before = MemoryFile(search.log.location, bytes(data[:position]))
            assert all(when < time for when in times_in(before))
            whole = times_in(search.log)
            assert search.largest_timestamp() in {None, max(whole, default=-1)}


def times_in(log: StoredFile) -> list[int]:
    """The times of all valid records of a log."""
    found: list[int] = []
    for step in valid_windows(log, LogPart()):
        if not isinstance(step, Damage):
            for columns in expand_window(step, with_records=True, only_valid=True):
                assert isinstance(columns, RecordColumns)
                found += columns.timestamp.tolist()
    return found


@given(st.lists(st.integers(0, 50), unique=True), st.integers(0, 60), st.integers(0, 400))
def test_the_last_entry_below_a_time_is_found(
    times: list[int], timestamp: int, padding: int
) -> None:
    entries = [(time, time + 1) for time in sorted(times)]
    source = BytesSource(time_index(*entries, padding=padding))
    below = [entry for entry in entries if entry[0] < timestamp]
    assert time_entry_below(source, timestamp) == (below[-1] if below else None)
