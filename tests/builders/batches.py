"""Valid record batches of magic 2, and segments of them, as producers and brokers write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kdump.formats.compression import Codec, compress
from kdump.formats.record_batch import (
    BatchHeader,
    Record,
    RecordHeader,
    encode_batch,
    encode_record,
)

BASE_TIMESTAMP_MS = 1_767_225_600_000


def record(
    offset: int,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    timestamp: int | None = None,
) -> Record:
    """Make a record; its default timestamp increases with the offset."""
    return Record(
        offset=offset,
        timestamp=BASE_TIMESTAMP_MS + offset if timestamp is None else timestamp,
        sequence=-1,
        key=key,
        value=value,
        headers=tuple(RecordHeader(name, content) for name, content in headers),
    )


def batch(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    partition_leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    max_timestamp: int | None = None,
) -> bytes:
    """Encode a batch of one or more ``records``, in order of their offsets."""
    rows = list(records)
    first = rows[0]
    body = b"".join(encode_record(row, first.offset, first.timestamp) for row in rows)
    header = BatchHeader(
        base_offset=first.offset,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=rows[-1].offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=max(row.timestamp for row in rows)
        if max_timestamp is None
        else max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(rows),
    )
    return encode_batch(header, compress(codec, body))


def records_at(start: int, count: int) -> bytes:
    """Build a batch of records from an offset on, each with its offset as value."""
    return batch([record(start + at, b"k", b"%d" % (start + at)) for at in range(count)])


def batches(
    count: int, records_each: int = 3, *, base_offset: int = 0, codec: Codec = Codec.NONE
) -> list[bytes]:
    """Make ``count`` consecutive batches of ``records_each`` records."""
    return [
        batch(
            [record(base_offset + index * records_each + step) for step in range(records_each)],
            codec=codec,
        )
        for index in range(count)
    ]
