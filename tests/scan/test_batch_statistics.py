"""Statistics of batches do not depend on how a log is divided."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kdump.scan.batch_statistics import (
    CELL_WIDTHS_MS,
    MOST_CELLS,
    BatchStatistics,
    TimeHistogram,
    Volume,
    batch_statistics,
)
from kdump.scan.batches import BatchColumns

Row = tuple[int, int, int, int]
"""Maximum timestamp, size, records, codec."""
LARGEST = 2**63 - 1


def columns(rows: Sequence[Row]) -> BatchColumns:
    timestamp, size, records, codec = map(np.array, zip(*rows, strict=True))
    nothing = np.zeros(len(rows), np.int64)
    names = dict.fromkeys(BatchColumns.__struct_fields__, nothing)
    return BatchColumns(
        **{
            **names,
            "magic": nothing + 2,
            "max_timestamp": timestamp,
            "size_bytes": size,
            "records_count": records,
            "attributes": codec,
            "is_valid": nothing == 0,
        }
    )


ROWS = st.lists(
    st.tuples(
        st.one_of(st.integers(-1, LARGEST), st.integers(1_700_000_000_000, 1_700_000_900_000)),
        st.integers(61, 2**31 - 1),
        st.integers(1, 2**31 - 1),
        st.integers(0, 7),
    ),
    min_size=2,
    max_size=40,
)


@given(ROWS, st.data())
def test_parts_add_up_to_the_whole(rows: list[Row], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(rows) - 1))
    parts = batch_statistics(columns(rows[:cut])) + batch_statistics(columns(rows[cut:]))
    assert parts == batch_statistics(columns(rows))


@given(ROWS)
def test_every_batch_is_counted_once_in_each_picture(rows: list[Row]) -> None:
    found = batch_statistics(columns(rows))
    volume = Volume(len(rows), sum(row[2] for row in rows), sum(row[1] for row in rows))
    assert found.total == volume
    for volumes in (found.sizes.values(), [found.untimed, *found.times.cells.values()]):
        assert sum(each.batches for each in volumes) == volume.batches
        assert sum(each.size_bytes for each in volumes) == volume.size_bytes
    assert all(2**number <= size < 2 ** (number + 1) for size, number in _sizes(rows, found))


def _sizes(rows: list[Row], found: BatchStatistics) -> list[tuple[int, int]]:
    numbers = sorted(found.sizes)
    return [(row[1], max(each for each in numbers if 2**each <= row[1])) for row in rows]


def test_a_histogram_with_many_times_gets_wider_cells() -> None:
    cells = {number: Volume(1, 1, 1) for number in range(10 * MOST_CELLS)}
    found = TimeHistogram(CELL_WIDTHS_MS[0], cells).narrowed()
    assert len(found.cells) <= MOST_CELLS
    assert sum(each.batches for each in found.cells.values()) == len(cells)
    assert all(wide % narrow == 0 for narrow, wide in itertools.pairwise(CELL_WIDTHS_MS))
