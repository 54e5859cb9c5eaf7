"""The usual layout of a transaction's end marker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.recovery import marker
from kdump.formats.end_txn_marker import EndTxnMarker, decode_as_written
from kdump.formats.record_batch import HEADER_BYTES, decode_header, decode_records

WRITTEN = marker(7, commit=True, value=b"\0\0\0\0\1\2")[HEADER_BYTES:]


@pytest.mark.parametrize("is_commit", [False, True])
@pytest.mark.parametrize("epoch", [0, 258, -1])
def test_a_marker_as_brokers_write_it_is_decoded(is_commit: bool, epoch: int) -> None:
    batch = marker(7, commit=is_commit, value=b"\0\0" + epoch.to_bytes(4, signed=True))

    assert decode_as_written(batch[HEADER_BYTES:]) == EndTxnMarker(not is_commit, epoch)


@given(st.integers(0, len(WRITTEN) - 1), st.integers(0, 255))
def test_a_marker_with_another_byte_is_left_to_the_general_decoder_or_says_the_same(
    at: int, value: int
) -> None:
    body = WRITTEN[:at] + bytes([value]) + WRITTEN[at + 1 :]

    found = decode_as_written(body)

    if found is not None:
        header = decode_header(marker(7, commit=True))
        (record,) = decode_records(header, body)
        assert record.key is not None
        assert record.value is not None
        assert record.key == bytes([0, 0, 0, not found.is_abort])
        assert record.value == b"\0\0" + found.coordinator_epoch.to_bytes(4, signed=True)
        assert record.timestamp == header.base_timestamp


@pytest.mark.parametrize("body", [b"", WRITTEN[:-1], WRITTEN + b"\0"])
def test_another_length_is_left_to_the_general_decoder(body: bytes) -> None:
    assert decode_as_written(body) is None
