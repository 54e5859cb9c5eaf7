"""A record is found alike whether a batch is decoded record by record or in columns."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.sources import BytesSource
from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.log import first_record
from kdump.log.headers import batch_spans
from kdump.scan.selection import Selection

OFFSETS = st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True).map(sorted)
TEXT = st.none() | st.binary(max_size=6)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A batch with holes, perhaps with damaged records under a right checksum."""
    rows = [
        record(
            offset,
            draw(TEXT),
            draw(TEXT),
            [(b"h", draw(TEXT))] * draw(st.integers(0, 2)),
            BASE_TIMESTAMP_MS + draw(st.integers(-5, 5)),
        )
        for offset in draw(OFFSETS)
    ]
    log = bytearray(batch(rows, codec=draw(st.sampled_from(Codec))))
    for at in draw(st.lists(st.integers(record_batch.HEADER_BYTES, len(log) - 1), max_size=2)):
        log[at] ^= draw(st.integers(0, 255))
    struct.pack_into(">I", log, record_batch.CRC_START, record_batch.compute_crc(log))
    return bytes(log)


@given(
    log=logs(),
    from_offset=st.none() | st.integers(0, 31),
    from_time_ms=st.none() | st.integers(BASE_TIMESTAMP_MS - 6, BASE_TIMESTAMP_MS + 6),
)
@settings(deadline=None)
def test_columns_find_the_same(
    log: bytes, from_offset: int | None, from_time_ms: int | None
) -> None:
    wanted = Selection(from_offset=from_offset, from_time_ms=from_time_ms)
    found = found_in(log, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_record, "_FEW_RECORDS", 0)
        assert found_in(log, wanted) == found


def found_in(log: bytes, wanted: Selection) -> object:
    source = BytesSource(log)
    (span,) = batch_spans(source)
    found = first_record.first_record(source, span, wanted, 1 << 20)
    return str(found) if isinstance(found, FormatError) else found
