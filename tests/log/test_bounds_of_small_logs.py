"""All headers of a small log say what its indexes and a few headers say."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.batches import batch, record
from builders.log_directories import offset_index, time_index, write_partition
from builders.samples import examples
from kdump.formats.names import TopicPartition
from kdump.log import bounds
from kdump.log.bounds import LogBounds, read_bounds
from kdump.log.directory import Checkpoints
from kdump.log.partition import read_partition
from kdump.storage.local_disk import local

ORDERS = TopicPartition("orders", 0)


SEGMENT = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(-5, 5), st.booleans()), max_size=6
)
"""Of each batch: its records, the offsets missing before it, its time, whether it is indexed."""


@given(
    segments=st.lists(SEGMENT, min_size=1, max_size=3),
    start=st.none() | st.integers(0, 40),
    tail=st.sampled_from([b"", b"\0" * 40, b"torn" * 20]),
)
@settings(max_examples=examples(1))
def test_all_headers_say_what_indexes_and_a_few_headers_say(
    tmp_path_factory: pytest.TempPathFactory,
    segments: list[list[tuple[int, int, int, bool]]],
    start: int | None,
    tail: bytes,
) -> None:
    logs: dict[int, bytes] = {}
    offset_indexes: dict[int, bytes] = {}
    time_indexes: dict[int, bytes] = {}
    offset = 0
    for segment in segments:
        base, log, latest = offset, b"", (-1, 0)
        positions, times = list[tuple[int, int]](), list[tuple[int, int]]()
        for count, gap, time, is_indexed in segment:
            offset += gap
            rows = [record(offset + at, timestamp=1_000 + time) for at in range(count)]
            offset += count
            if 1_000 + time > latest[0]:
                latest = 1_000 + time, offset - 1 - base
            if is_indexed and log:
                positions.append((offset - 1 - base, len(log)))
                if not times or latest[0] > times[-1][0]:
                    times.append(latest)
            log += batch(rows)
        if latest[0] >= 0 and (not times or latest[0] > times[-1][0]):
            times.append(latest)
        logs[base], offset = log, max(offset, base + 1)
        offset_indexes[base], time_indexes[base] = offset_index(*positions), time_index(*times)
    logs[max(logs)] += tail
    path = tmp_path_factory.mktemp("any") / "p"
    write_partition(path, logs, offset_indexes=offset_indexes, time_indexes=time_indexes)

    found = bounds_of(path, start)
    with mock.patch.object(bounds, "_LARGEST_SMALL_LOG_BYTES", 0):
        assert bounds_of(path, start) == found


def bounds_of(path: Path, start: int | None) -> LogBounds:
    starts = {} if start is None else {ORDERS: start}
    return read_bounds(read_partition(local(path), ORDERS), Checkpoints(log_start_offsets=starts))
