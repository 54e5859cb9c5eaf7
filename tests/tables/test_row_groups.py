"""Row groups have about the same size, and wait for it in little memory."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from kdump.tables.row_groups import RowGroupWriter

LABEL = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [("offset", pa.int64()), ("key", pa.binary()), ("topic", LABEL), ("segment", LABEL)]
)
COUNT = 3_000


def small_batch(number: int) -> pa.RecordBatch:
    """Return one row, as of a segment with one record, with labels of its own."""
    labels = [pa.array([text]).dictionary_encode() for text in ("orders", f"segment {number % 7}")]
    return pa.record_batch([pa.array([number]), pa.array([b"key"]), *labels], schema=SCHEMA)


def test_thousands_of_small_batches_wait_in_little_memory() -> None:
    writer = RowGroupWriter(file := io.BytesIO(), SCHEMA)
    before = pa.total_allocated_bytes()
    for number in range(COUNT):
        writer.add(small_batch(number))
    waiting = pa.total_allocated_bytes() - before
    writer.finish()

    assert waiting < 100 * COUNT
    assert pq.ParquetFile(file).num_row_groups == 1
    found = pq.read_table(file)
    assert found["offset"].to_pylist() == list(range(COUNT))
    assert set(found["topic"].to_pylist()) == {"orders"}
    segments = [f"segment {number % 7}" for number in range(COUNT)]
    assert found["segment"].to_pylist() == segments
