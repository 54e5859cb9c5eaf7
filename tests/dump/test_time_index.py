from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.batches import BASE_TIMESTAMP_MS as T0
from builders.batches import batch, batches, record
from builders.index_files import (
    SANITY_CHECK,
    VERIFY_ONLY,
    Said,
    Segment,
    offset_index_bytes,
    time_index_bytes,
)
from builders.message_sets import encode_message
from builders.samples import examples
from kdump.dump import time_index
from kdump.dump.index_options import IndexDumpOptions
from kdump.formats.compression import Codec

PLAIN = IndexDumpOptions()
SIZE = len(batches(1)[0])


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    """Return a segment of four batches of three records each, with valid indexes."""
    segment = Segment(tmp_path)
    segment.write_indexed(batches(4))
    return segment


def dump(segment: Segment, options: IndexDumpOptions = PLAIN) -> tuple[str, Said]:
    said = Said()
    text = "".join(time_index.dump(segment.file(".timeindex"), options, said.report))
    said.finish()
    return text, said


def test_entries_are_printed_with_absolute_offsets(segment: Segment) -> None:
    text, said = dump(segment)
    assert text == (
        f"timestamp: {T0 + 5} offset: 5\n"
        f"timestamp: {T0 + 8} offset: 8\n"
        f"timestamp: {T0 + 11} offset: 11\n"
    )
    assert said.lines == []
    assert not said.report.damaged


def test_verifying_prints_no_entries(segment: Segment) -> None:
    assert dump(segment, VERIFY_ONLY)[0] == ""


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_compressed_batches_are_checked(tmp_path: Path, codec: Codec) -> None:
    segment = Segment(tmp_path)
    segment.write_indexed(batches(3, codec=codec))
    assert dump(segment)[1].lines == []


def test_messages_of_magic_1_are_checked(tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    messages = [
        encode_message(offset, b"k", b"v", magic=1, timestamp=100 + offset) for offset in range(3)
    ]
    segment.write(".log", b"".join(messages))
    segment.write(".index", b"")
    segment.write(".timeindex", time_index_bytes([(101, 1), (109, 2)]))
    assert dump(segment)[1].lines == [
        f"Found timestamp mismatch in :{segment.file('.timeindex').name}",
        "  Index timestamp: 109, log timestamp: 102",
    ]


def test_the_timestamps_in_batch_headers_are_not_trusted(tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    segment.write_indexed([*batches(1), batch([record(3)], max_timestamp=T0 + 999)])
    text, said = dump(segment)
    assert text == f"timestamp: {T0 + 999} offset: 3\n"
    assert said.lines[1] == f"  Index timestamp: {T0 + 999}, log timestamp: {T0 + 3}"
    assert said.report.damaged


def test_a_timestamp_that_does_not_increase_is_out_of_order(segment: Segment) -> None:
    file = segment.write(".timeindex", time_index_bytes([(T0 + 8, 8), (T0 + 5, 5)]))
    assert dump(segment)[1].lines == [
        f"Found out of order timestamp in :{file.name}",
        f"  Index timestamp: {T0 + 5}, Previously indexed timestamp: {T0 + 8}",
    ]


def test_an_offset_within_a_batch_is_not_found(segment: Segment) -> None:
    file = segment.write(".timeindex", time_index_bytes([(T0 + 4, 4), (T0 + 50, 50)]))
    assert dump(segment)[1].lines == [
        f"The following indexed offsets are not found in :{file.name}",
        "Indexed offset: 4, found log offset: 5",
        "Indexed offset: 50, found log offset: -1",
    ]


def test_a_search_begins_at_the_position_in_the_offset_index(segment: Segment) -> None:
    segment.write(".index", offset_index_bytes([(5, 3 * SIZE)]))
    lines = dump(segment)[1].lines
    assert "Indexed offset: 5, found log offset: 11" in lines
    assert "Indexed offset: 8, found log offset: 11" in lines


def test_a_search_may_begin_inside_a_batch(segment: Segment) -> None:
    segment.write(".index", offset_index_bytes([(8, 4 * SIZE - 10)]))
    segment.write(".timeindex", time_index_bytes([(T0 + 5, 5), (T0 + 8, 8)]))
    assert dump(segment)[1].lines[1:] == ["Indexed offset: 8, found log offset: -1"]


def test_padding_after_the_entries_is_not_printed(segment: Segment) -> None:
    whole = dump(segment)
    segment.write(
        ".timeindex", segment.file(".timeindex").path.local_path.read_bytes() + bytes(1200)
    )
    text, said = dump(segment)
    assert text == whole[0]
    assert not said.report.damaged


def test_damage_after_the_batches_is_a_problem_and_the_entries_are_checked(
    segment: Segment,
) -> None:
    whole = dump(segment)
    log = segment.file(".log")
    segment.write(".log", log.path.local_path.read_bytes() + bytes(99) + b"x")
    text, said = dump(segment)
    assert text == whole[0]
    assert len(said.lines) == 1
    assert said.lines[0].startswith(f"{log.name}: byte {4 * SIZE}: zeroes instead of a batch")


def test_an_index_that_was_only_allocated_is_no_damage(segment: Segment) -> None:
    segment.write(".timeindex", bytes(120))
    for log in (b"", b"".join(batches(1)), bytes(1000)):
        segment.write(".log", log)
        said = dump(segment)[1]
        assert "120 zero bytes to the end of the file: never written" in "".join(said.lines)
        assert not said.report.damaged


def test_a_log_with_space_that_was_never_written_is_no_damage(segment: Segment) -> None:
    log = segment.file(".log")
    segment.write(".log", log.path.local_path.read_bytes() + bytes(100))
    said = dump(segment)[1]
    remark = f"{log.name}: byte {4 * SIZE}: 100 zero bytes to the end of the file: never written"
    assert (said.lines, said.report.damaged) == ([remark], False)


def test_a_batch_without_room_for_its_header_harms_only_a_search_that_gets_there(
    segment: Segment,
) -> None:
    log = segment.file(".log")
    short = bytes(8) + (20).to_bytes(4) + bytes(4) + b"\2" + bytes(15)
    segment.write(".log", log.path.local_path.read_bytes() + short)
    assert dump(segment)[1].lines == []
    segment.write(".timeindex", time_index_bytes([(T0 + 5, 5), (T0 + 20, 20)]))
    (line,) = dump(segment)[1].lines
    assert line.startswith(f"{log.name}: byte {4 * SIZE}: batch is too small for its header")


def test_records_that_do_not_decode_are_a_problem(segment: Segment) -> None:
    log = segment.file(".log")
    damaged = bytearray(log.path.local_path.read_bytes())
    damaged[SIZE + 61] = 0x7F
    segment.write(".log", bytes(damaged))
    text, said = dump(segment)
    assert text.count("\n") == 3
    assert len(said.lines) == 1
    assert said.lines[0].startswith(f"{log.name}: byte {SIZE}: record length does not fit")


def test_entries_are_printed_without_a_log(segment: Segment) -> None:
    whole = dump(segment)
    segment.file(".log").path.local_path.unlink()
    text, said = dump(segment)
    assert text == whole[0]
    assert "its log is missing" in said.lines[0]


def test_entries_are_checked_without_an_offset_index(segment: Segment) -> None:
    whole = dump(segment)
    segment.file(".index").path.local_path.unlink()
    text, said = dump(segment)
    assert text == whole[0]
    assert len(said.lines) == 1
    assert "its offset index is missing" in said.lines[0]
    assert not segment.file(".index").path.local_path.exists()


def test_a_valid_index_passes_the_sanity_check(segment: Segment) -> None:
    assert dump(segment, SANITY_CHECK)[0] == (
        f"{segment.file('.timeindex').name} passed sanity check.\n"
    )


def test_padding_fails_the_sanity_check(segment: Segment) -> None:
    segment.write(".timeindex", segment.file(".timeindex").path.local_path.read_bytes() + bytes(12))
    text, said = dump(segment, SANITY_CHECK)
    assert text == ""
    assert "byte 36: last entry of the time index is earlier than the first" in said.lines[0]


def test_a_partial_entry_is_ignored_and_reported(segment: Segment) -> None:
    whole = dump(segment)
    segment.write(".timeindex", segment.file(".timeindex").path.local_path.read_bytes() + b"\0")
    text, said = dump(segment)
    assert text == whole[0]
    assert "index ends in a partial entry" in said.lines[0]


def test_rows_have_every_field_and_one_for_the_padding(tmp_path: Path) -> None:
    segment = Segment(tmp_path, 100)
    segment.write_indexed(batches(2, base_offset=100))
    file = segment.file(".timeindex")
    segment.write(".timeindex", file.path.local_path.read_bytes() + bytes(24))
    said = Said()
    assert list(time_index.rows(file, PLAIN, said.report)) == [
        {
            "type": "time_index_entry",
            "timestamp_ms": T0 + 105,
            "offset": 105,
            "relative_offset": 5,
        },
        {"type": "index_padding", "entries": 2, "size_bytes": 24},
    ]
    assert not said.report.damaged


@pytest.mark.slow
@given(
    index=st.binary(max_size=48),
    time_index_=st.binary(max_size=72),
    tail=st.binary(max_size=80),
    flip=st.integers(0, 4 * SIZE - 1),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(2))
def test_any_bytes_beside_any_log_are_dumped(
    tmp_path: Path, index: bytes, time_index_: bytes, tail: bytes, flip: int
) -> None:
    segment = Segment(tmp_path)
    log = bytearray(b"".join(batches(4)))
    log[flip] ^= 0x41
    segment.write(".index", index)
    segment.write(".timeindex", time_index_)
    segment.write(".log", bytes(log) + tail)
    text, _ = dump(segment)
    assert text.count("\n") <= len(time_index_) // 12
