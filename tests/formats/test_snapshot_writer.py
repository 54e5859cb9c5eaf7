from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdump.formats.control_records import parse_control_record
from kdump.formats.message_encoder import EncodingError
from kdump.formats.record_batch import HEADER_BYTES, decode_header, decode_records
from kdump.formats.snapshot_writer import MAX_BATCH_BYTES, SnapshotHead, encode_snapshot

HEAD = SnapshotHead(epoch=7, last_timestamp_ms=5, created_ms=9)


def test_offsets_run_from_zero_through_batches_of_the_epoch() -> None:
    batches = list(encode_snapshot(HEAD, [b"a"] * 3000))
    headers = [decode_header(batch) for batch in batches]
    assert [header.partition_leader_epoch for header in headers] == [7] * len(headers)
    offset = 0
    for header in headers:
        assert header.base_offset == offset
        offset = header.last_offset + 1
    assert offset == 3000 + 2


def test_values_are_taken_while_batches_are_written() -> None:
    taken = 0

    def values() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield bytes(1 << 20)

    next(batches := encode_snapshot(HEAD, values()))
    assert taken == 0
    next(batches)
    assert taken < 2000


def test_values_that_are_too_many_bytes_together_are_in_batches_of_their_own() -> None:
    values = [bytes([at]) * (3 << 20) for at in range(7)]
    batches = list(encode_snapshot(HEAD, values))
    assert max(map(len, batches)) <= MAX_BATCH_BYTES
    found = [
        record.value
        for batch in batches[1:-1]
        for record in decode_records(decode_header(batch), batch, HEADER_BYTES)
    ]
    assert found == values


def test_a_record_that_no_batch_can_hold_is_an_error() -> None:
    largest = MAX_BATCH_BYTES - 61 - 4 - 1 - 4 - 4
    assert max(map(len, encode_snapshot(HEAD, [bytes(largest)]))) == MAX_BATCH_BYTES
    with pytest.raises(EncodingError, match="does not fit into a batch of a snapshot"):
        list(encode_snapshot(HEAD, [bytes(largest + 1)]))


def test_footer() -> None:
    last = list(encode_snapshot(HEAD, []))[-1]
    (record,) = decode_records(decode_header(last), last, HEADER_BYTES)
    assert parse_control_record(record.key, record.value).type_id == 4
