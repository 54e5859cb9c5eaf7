"""Index entries built in windows, compared with Kafka's rule applied batch by batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from kdump.broker.loader.index_builder import IndexBuilder
from kdump.broker.loader.indexes import InvalidOffset, OffsetIndexFile, TimeIndexFile
from kdump.scan.batches import read_windows
from kdump.target.virtual_directory import BytesSource, VirtualDirectory

pytestmark = pytest.mark.slow

SIZE = len(batch([record(0)]))

offsets_and_times = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), max_size=30)


def one_by_one(
    rows: list[tuple[int, int]], interval: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], bool]:
    """Apply the rule of ``LogSegment.recover``: entries of both indexes, and whether it failed."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    largest = (-1, 0)
    last_position = 0
    for number, (offset, step) in enumerate(rows):
        position, time = number * SIZE, BASE_TIMESTAMP_MS + step
        if time > largest[0]:
            largest = (time, offset)
        if position - last_position > interval:
            if offsets and offset <= offsets[-1][0]:
                return offsets, times, True
            offsets.append((offset, position))
            if times and largest[1] < times[-1][1]:
                return offsets, times, True
            if largest[0] > (times[-1][0] if times else -1):
                times.append(largest)
            last_position = position
    return offsets, times, False


@given(
    rows=offsets_and_times,
    interval=st.sampled_from([0, 1, SIZE - 1, SIZE, 2 * SIZE, 3 * SIZE + 5]),
    window=st.sampled_from([1, 3 * SIZE, 1 << 20]),
)
def test_entries_do_not_depend_on_the_windows(
    rows: list[tuple[int, int]], interval: int, window: int, empty_workspace: VirtualDirectory
) -> None:
    log = b"".join(
        batch([record(offset, timestamp=BASE_TIMESTAMP_MS + time)]) for offset, time in rows
    )
    offset_index = OffsetIndexFile(empty_workspace, "index", 0, 1 << 20)
    offset_index.reset()
    time_index = TimeIndexFile(empty_workspace, "timeindex", 0, 1 << 20)
    time_index.reset()
    builder = IndexBuilder(0, interval)
    failed = False
    for found in read_windows(BytesSource(log), window_bytes=window):
        plan = builder.plan(found.batches)
        builder.commit(plan, plan.reach, offset_index, time_index)
        if plan.invalid is not None:
            assert isinstance(plan.invalid, InvalidOffset)
            failed = True
            break
    builder.store(offset_index, time_index)

    offsets = np.stack([offset_index.offset, offset_index.position], 1).tolist()
    times = np.stack([time_index.timestamp, time_index.offset], 1).tolist()
    expected = one_by_one(rows, interval)
    assert ([tuple(e) for e in offsets], [tuple(e) for e in times], failed) == expected
