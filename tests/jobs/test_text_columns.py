"""Records as lines of JSON are what their columns have."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kdump.jobs.export.text_columns import json_lines

TEXTS = (
    st.none()
    | st.text(max_size=8)
    | st.text('ab"\\', max_size=8)
    | st.sampled_from(['"', "\\", "\n", "\x7f", "\u2028"])
)
NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(TEXTS, NUMBERS, TEXTS), max_size=6) | st.builds(
    lambda row, count: [row] * count, st.tuples(TEXTS, NUMBERS, TEXTS), st.integers(1, 6)
)


@given(rows=ROWS, left_out=st.integers(0, 3))
def test_each_line_has_the_values_of_a_record(
    rows: list[tuple[str | None, int | None, str | None]], left_out: int
) -> None:
    columns = [
        pa.array([row[number] for row in rows], kind)
        for number, kind in enumerate((pa.large_string(), pa.int64(), pa.string()))
    ]
    batch = pa.RecordBatch.from_arrays(columns, ["key", "offset", "codec"])
    batch = batch.slice(left_out)
    lines = bytes(json_lines(batch)).decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == batch.to_pylist()
