"""Seeking in a log: what an index shortens, and that a wrong index misleads nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch, record
from builders.log_directories import offset_index, time_index
from kdump.log.header_seek import HeaderSeekableLog
from kdump.log.headers import batch_spans
from kdump.log.index_tail import time_entry_below
from kdump.log.seek import SeekableLog
from kdump.storage.byte_source import ByteSource
from kdump.storage.local_disk import local
from kdump.target.virtual_directory import BytesSource

BASE_OFFSET = 100
COUNT = 2000
INTERVAL = 50


class CountingSource:
    """A source that counts the bytes read from it."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.size_bytes = source.size_bytes
        self.read_bytes = 0

    def read_into(self, buffer: memoryview, position: int) -> int:
        read = self._source.read_into(buffer, position)
        self.read_bytes += read
        return read


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


def seekable(folder: Path, log: ByteSource) -> SeekableLog:
    return SeekableLog(log, BASE_OFFSET, local(folder / "index"), local(folder / "timeindex"))


@pytest.mark.parametrize("kind", [HeaderSeekableLog, SeekableLog])
def test_the_batch_of_every_offset_is_found_with_few_bytes_read(
    folder: Path, kind: type[HeaderSeekableLog]
) -> None:
    indexes = local(folder / "index"), local(folder / "timeindex")
    with local(folder / "log").open_file() as source:
        spans = list(batch_spans(source))
        for n in range(0, COUNT, 37):
            log = CountingSource(source)
            assert kind(log, BASE_OFFSET, *indexes).find_batch(BASE_OFFSET + 3 * n - 1) == spans[n]
            assert log.read_bytes < 40_000
        assert seekable(folder, source).find_batch(BASE_OFFSET + 3 * COUNT) is None


def test_reading_for_a_time_begins_after_records_that_are_all_older(folder: Path) -> None:
    with local(folder / "log").open_file() as source:
        spans = list(batch_spans(source))
        for timestamp_ms in (0, 1, 49_999, 50_000, 50_001, 777_777, 10**9):
            start = seekable(folder, source).position_after_times_below(timestamp_ms)
            older = [span for span in spans if (span.max_timestamp_ms or 0) < timestamp_ms]
            assert start <= (older[-1].next_position if older else 0)
            skipped = len(older) - start // spans[0].size_bytes
            assert skipped <= INTERVAL


def test_an_index_of_another_segment_leads_to_the_first_byte(folder: Path) -> None:
    with local(folder / "log").open_file() as source:
        other = SeekableLog(
            source, BASE_OFFSET + 1, local(folder / "index"), local(folder / "timeindex")
        )
        assert other.position_after_times_below(777_777) == 0


def test_the_largest_timestamp_is_that_of_the_records(folder: Path) -> None:
    with local(folder / "log").open_file() as source:
        log = seekable(folder, source)
        assert log.largest_timestamp() == log.read_largest_timestamp() == 1_000 * (COUNT - 1)


@given(st.lists(st.integers(0, 50), unique=True), st.integers(0, 60), st.integers(0, 400))
def test_the_last_entry_below_a_time_is_found(
    times: list[int], timestamp: int, padding: int
) -> None:
    entries = [(time, time + 1) for time in sorted(times)]
    source = BytesSource(time_index(*entries, padding=padding))
    below = [entry for entry in entries if entry[0] < timestamp]
    assert time_entry_below(source, timestamp) == (below[-1] if below else None)
