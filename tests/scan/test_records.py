"""Columns of records, compared with the plain decoder, valid and damaged."""

from __future__ import annotations

import gc
import random
import re
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.batches import batch, record
from builders.sources import BytesSource
from kdump.formats import record_batch
from kdump.formats.compression import Codec, compress, decompress
from kdump.formats.errors import FormatError, OverLimitError
from kdump.formats.record_batch import Record
from kdump.scan import giant_batches, window_records
from kdump.scan.batches import read_windows
from kdump.scan.records import LOCKSTEP_LANES, MOST_RECORDS, RecordColumns
from kdump.scan.window_records import read_records

CODECS = list(Codec)

contents = st.none() | st.binary(max_size=200)
records = st.builds(
    record,
    st.integers(0, 2**31 - 1),
    contents,
    contents,
    st.lists(st.tuples(st.binary(max_size=9), contents), max_size=4),
    st.integers(-(2**62), 2**62),
)


@st.composite
def some_batches(draw: st.DrawFn) -> list[bytes]:
    groups = draw(st.lists(st.lists(records, min_size=1, max_size=12), min_size=1, max_size=8))
    return [
        batch(
            sorted(group, key=lambda row: row.offset),
            codec=draw(st.sampled_from(CODECS)),
            attributes=draw(st.sampled_from([0, record_batch.LOG_APPEND_TIME_FLAG])),
            base_sequence=draw(st.sampled_from([-1, 0, 5, 2**31 - 3])),
        )
        for group in groups
    ]


def columns_of(data: bytes, window_bytes: int = 1 << 20) -> list[RecordColumns]:
    return [
        columns
        for window in read_windows(BytesSource(data), window_bytes=window_bytes)
        for columns in read_records(window)
    ]


def as_values(columns: RecordColumns) -> list[Record]:
    return [
        Record(
            offset=int(columns.offset[row]),
            timestamp=int(columns.timestamp[row]),
            sequence=int(columns.sequence[row]),
            key=columns.key(row),
            value=columns.value(row),
            headers=columns.headers(row),
            attributes=int(columns.attributes[row]),
        )
        for row in range(columns.count)
    ]


def all_values(found: list[RecordColumns]) -> list[Record]:
    return [value for columns in found for value in as_values(columns)]


def plain(part: bytes) -> tuple[list[Record], FormatError | None]:
    """Decode a batch with the plain decoder, up to the first error."""
    header = record_batch.decode_header(part)
    decoded: list[Record] = []
    try:
        body = part[record_batch.HEADER_BYTES :]
        if header.records_count:
            codec = Codec.of_attributes(header.attributes)
            body = decompress(codec, body, limit_bytes=1 << 20)
        decoded.extend(record_batch.decode_records(header, body))
    except FormatError as problem:
        return decoded, problem
    return decoded, None


@pytest.mark.slow
@given(some_batches())
def test_columns_equal_the_records_of_the_plain_decoder(parts: list[bytes]) -> None:
    found = columns_of(b"".join(parts))
    assert all_values(found) == [value for part in parts for value in plain(part)[0]]
    assert not any(columns.problems for columns in found)


@pytest.mark.parametrize("lanes", [LOCKSTEP_LANES - 1, LOCKSTEP_LANES, 3 * LOCKSTEP_LANES])
def test_columns_do_not_depend_on_the_number_of_batches_decoded_together(lanes: int) -> None:
    counts = random.Random(lanes).choices(range(1, 40), k=lanes)
    parts = [
        batch([record(n, value=bytes(n)) for n in range(count)], base_sequence=count)
        for count in counts
    ]
    found = columns_of(b"".join(parts))
    assert all_values(found) == [value for part in parts for value in plain(part)[0]]


def test_a_batch_without_records_has_no_rows() -> None:
    full = batch([record(0)])
    empty = record_batch.encode_batch(
        record_batch.BatchHeader(1, 0, 0, 2, 0, 0, 4, -1, -1, 7, 0, 0, 0), b""
    )
    (columns,) = columns_of(full + empty + full)
    assert columns.batch.tolist() == [0, 2]
    assert columns.batches.count == 3


@pytest.mark.slow
@given(some_batches(), st.data())
def test_records_before_damage_are_decoded(parts: list[bytes], data: st.DataObject) -> None:
    victim = data.draw(st.integers(0, len(parts) - 1))
    changed = bytearray(parts[victim])
    # Not in the length or magic: that would change where batches begin.
    where = data.draw(st.integers(record_batch.CRC_START, len(changed) - 1))
    changed[where] ^= data.draw(st.integers(1, 255))
    parts[victim] = bytes(changed)
    found = columns_of(b"".join(parts))
    for number, part in enumerate(parts):
        expected, problem = plain(part)
        rows, problems = rows_of_batch(found, number)
        if problem is None or record_batch.decode_header(part).codec_id == Codec.NONE:
            assert rows == expected
        else:
            # Kafka rejects the whole compressed batch; kdump keeps the records decoded so far.
            assert rows[: len(expected)] == expected
        assert bool(problems) == (problem is not None)


def rows_of_batch(
    found: list[RecordColumns], number: int
) -> tuple[list[Record], list[FormatError]]:
    """Return the records and the problems of batch ``number``."""
    rows: list[Record] = []
    problems: list[FormatError] = []
    first = 0
    for columns in found:
        first -= columns.is_continued
        row = number - first
        values = as_values(columns)
        rows += [values[index] for index in np.flatnonzero(columns.batch == row)]
        problems += [columns.problems[row]] if row in columns.problems else []
        first += columns.batches.count
    return rows, problems


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_decoded_in_pieces_has_the_same_records(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [record(n, value=bytes([n % 251]) * (n % 700)) for n in range(1_500)]
    part = batch(rows, codec=codec)
    for module in (window_records, giant_batches):
        monkeypatch.setattr(module, "LARGEST_WINDOW_BYTES", 5_000)
    monkeypatch.setattr("kdump.scan.batches.LARGEST_WINDOW_BYTES", 5_000)
    monkeypatch.setattr(giant_batches, "STREAM_CHUNK_BYTES", 3_000)
    found = columns_of(part, window_bytes=4_000)
    assert len([columns for columns in found if columns.count]) > 1
    assert all_values(found) == plain(part)[0]
    assert [columns.is_continued for columns in found if columns.batches.count][1:] == [True] * (
        len([columns for columns in found if columns.batches.count]) - 1
    )


@pytest.mark.parametrize(
    ("count", "what"),
    [
        (11, "ends early|ends before its last record"),
        (9, "bytes after its last record"),
        (-1, "negative count"),
        (2**31 - 1, "ends early|ends before its last record|does not fit"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_wrong_record_count_is_reported(
    count: int, what: str, codec: Codec, in_pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_pieces:
        monkeypatch.setattr(window_records, "_decompress", lambda *_: None)
    part = bytearray(batch([record(n) for n in range(10)], codec=codec))
    part[57:61] = count.to_bytes(4, "big", signed=True)
    found = columns_of(bytes(part))
    problems = [str(problem) for columns in found for problem in columns.problems.values()]
    assert len(problems) == 1
    assert re.search(what, problems[0])
    assert sum(columns.count for columns in found) == min(count, 10) * (count > 0)


def test_a_record_that_expands_beyond_the_limit_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_records, "LARGEST_WINDOW_BYTES", 1 << 16)
    monkeypatch.setattr(giant_batches, "LARGEST_EXPANSION", 1)
    part = batch([record(0, value=bytes(1 << 20))], codec=Codec.ZSTD)
    (window,) = read_windows(BytesSource(part))

    (columns,) = read_records(window, largest_record_bytes=1 << 16)

    assert isinstance(columns.problems[0], OverLimitError)


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_affects_only_its_batch(codec_id: int) -> None:
    valid = batch([record(0)])
    found = columns_of(valid + batch([record(1)], attributes=codec_id) + valid)
    assert sum(columns.count for columns in found) == 2
    (problem,) = [problem for columns in found for problem in columns.problems.values()]
    assert "codec" in problem.what


@pytest.mark.parametrize("count", [1, MOST_RECORDS + 1])
def test_a_kept_problem_does_not_keep_the_bytes_of_its_batch_in_memory(count: int) -> None:
    header = record_batch.decode_header(batch([record(0)]))
    zeroes = compress(Codec.GZIP, bytes(7 * MOST_RECORDS))
    malformed = record_batch.encode_batch(
        replace(header, attributes=Codec.GZIP, records_count=count, last_offset_delta=count - 1),
        zeroes,
    )
    gc.collect()
    gc.disable()
    try:
        *_, columns = columns_of(malformed)
        problem, data = columns.problems[0], weakref.ref(columns.data)
        del columns

        assert data() is None
        assert problem.__traceback__ is None
    finally:
        gc.enable()
