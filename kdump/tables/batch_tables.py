"""The batches of a log as Arrow tables: their headers, without their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from kdump.formats.compression import CODEC_MASK, Codec
from kdump.formats.names import FileKind
from kdump.formats.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, OnDamage, segment_part, valid_windows
from kdump.scan.batches import BatchColumns, Column

BATCH_SCHEMA: Final = pa.schema(
    [
        pa.field("segment", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("last_offset", pa.int64(), nullable=False),
        pa.field("records_count", pa.int64()),
        pa.field("magic", pa.int64(), nullable=False),
        pa.field("codec", pa.string(), nullable=False),
        pa.field("leader_epoch", pa.int64()),
        pa.field("base_timestamp_ms", pa.int64()),
        pa.field("max_timestamp_ms", pa.int64()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int64()),
        pa.field("base_sequence", pa.int64()),
        pa.field("is_transactional", pa.bool_(), nullable=False),
        pa.field("is_control", pa.bool_(), nullable=False),
    ]
)
"""One row for each batch; of magic 0 and 1, for each message or compressed set of messages."""

_CODEC_NAMES: Final = pa.array(
    [
        Codec(number).label if number in list(Codec) else "unknown"
        for number in range(CODEC_MASK + 1)
    ],
    pa.string(),
)


def batch_tables(
    partition: Partition,
    segments: frozenset[int],
    from_offset: int,
    to_offset: int | None,
    on_damage: OnDamage,
) -> Iterator[pa.RecordBatch]:
    """Read the headers of the valid batches of some segments, in order.

    Args:
        partition: of Kafka 0.8 or later.
        segments: base offsets of the segments to read.
        from_offset: leave out batches that end before this offset.
        to_offset: leave out batches that begin at this offset or after it; None for all.
        on_damage: is called with each damaged range.

    Raises:
        OSError: a log cannot be read.
    """
    if to_offset is not None and to_offset <= from_offset:
        return
    for segment, following in partition.with_following():
        is_before = following is not None and following.base_offset <= from_offset
        is_after = to_offset is not None and segment.base_offset >= to_offset
        if segment.base_offset in segments and not is_before and not is_after:
            yield from _segment_tables(
                partition, segment, following, from_offset, to_offset, on_damage
            )


def _segment_tables(
    partition: Partition,
    segment: Segment,
    following: Segment | None,
    from_offset: int,
    to_offset: int | None,
    on_damage: OnDamage,
) -> Iterator[pa.RecordBatch]:
    with partition.segment_path(segment, FileKind.LOG).open_file() as log:
        for step in valid_windows(log, segment_part(segment, following)):
            if isinstance(step, Damage):
                on_damage(step)
                continue
            batches = step.batches
            is_selected = batches.last_offset >= from_offset
            if to_offset is not None:
                is_selected &= batches.base_offset < to_offset
            if is_selected.any():
                table = _table(str(log.location), batches)
                yield table if is_selected.all() else table.filter(pa.array(is_selected))


def _table(path: str, batches: BatchColumns) -> pa.RecordBatch:
    """Give all batches of a window as rows of :data:`BATCH_SCHEMA`."""
    is_v2 = batches.magic >= 2
    columns = [
        pa.repeat(pa.scalar(path, pa.string()), batches.count),
        pa.array(batches.position),
        pa.array(batches.size_bytes),
        pa.array(batches.base_offset),
        pa.array(batches.last_offset),
        _known(batches.records_count),
        pa.array(batches.magic),
        _CODEC_NAMES.take(pa.array(batches.attributes & CODEC_MASK)),
        _known(batches.partition_leader_epoch),
        _known(batches.base_timestamp),
        _known(batches.max_timestamp),
        _known(batches.producer_id),
        _known(batches.producer_epoch),
        _known(batches.base_sequence),
        pa.array(is_v2 & (batches.attributes & TRANSACTIONAL_FLAG != 0)),
        pa.array(is_v2 & (batches.attributes & CONTROL_FLAG != 0)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA)


def _known(values: Column) -> pa.Array:
    """Give a column with null where Kafka writes -1 for "none"."""
    return pa.array(values, mask=np.asarray(values) < 0)
