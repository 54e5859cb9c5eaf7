"""End transaction markers, in the layout that brokers write and in any other."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.recovery import marker
from kdump.formats.end_txn_marker import (
    PLAIN_MARKER_BYTES,
    ControlRecordError,
    EndTxnMarker,
    find_plain_markers,
    parse_end_txn_marker,
)
from kdump.formats.record_batch import HEADER_BYTES, decode_header, decode_records

WRITTEN = marker(7, commit=True, value=b"\0\0\0\0\1\2")[HEADER_BYTES:]


def plain_marker(body: bytes) -> EndTxnMarker | None:
    assert len(body) == PLAIN_MARKER_BYTES
    found = find_plain_markers(np.frombuffer(body, np.uint8).reshape(1, -1))
    if not found.is_plain[0]:
        return None
    return EndTxnMarker(bool(found.is_abort[0]), int(found.coordinator_epoch[0]))


@pytest.mark.parametrize("is_commit", [False, True])
@pytest.mark.parametrize("epoch", [0, 258, -1])
def test_a_marker_as_brokers_write_it_is_decoded(is_commit: bool, epoch: int) -> None:
    batch = marker(7, commit=is_commit, value=b"\0\0" + epoch.to_bytes(4, signed=True))

    assert plain_marker(batch[HEADER_BYTES:]) == EndTxnMarker(not is_commit, epoch)


@given(st.integers(0, len(WRITTEN) - 1), st.integers(0, 255))
def test_a_marker_with_another_byte_is_not_plain_or_says_what_its_record_says(
    at: int, value: int
) -> None:
    body = WRITTEN[:at] + bytes([value]) + WRITTEN[at + 1 :]

    found = plain_marker(body)

    if found is not None:
        header = decode_header(marker(7, commit=True))
        (record,) = decode_records(header, body)
        assert parse_end_txn_marker(record.key, record.value) == found
        assert record.timestamp == header.base_timestamp


@pytest.mark.parametrize(
    ("key", "value", "exception"),
    [
        (None, bytes(6), "NullPointerException"),
        (b"\0", bytes(6), "InvalidRecordException"),
        (b"\xff\0\0\0", bytes(6), "InvalidRecordException"),
        (b"\0\0\0\2", bytes(6), "IllegalArgumentException"),
        (bytes(4), None, "NullPointerException"),
        (bytes(4), b"\xff\0\0\0\0\0", "InvalidRecordException"),
        (bytes(4), b"\0", "BufferUnderflowException"),
    ],
)
def test_an_unreadable_marker_names_the_exception_that_kafka_throws(
    key: bytes | None, value: bytes | None, exception: str
) -> None:
    with pytest.raises(ControlRecordError) as raised:
        parse_end_txn_marker(key, value)

    assert raised.value.exception == exception
    assert pickle.loads(pickle.dumps(raised.value.shifted(3))).exception == exception
