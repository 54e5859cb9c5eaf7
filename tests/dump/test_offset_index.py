from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.batches import batches
from builders.index_files import (
    SANITY_CHECK,
    VERIFY_ONLY,
    Said,
    Segment,
    offset_index_bytes,
)
from builders.samples import examples
from kdump.dump import offset_index
from kdump.dump.index_options import IndexDumpOptions
from kdump.dump.indexed_log import batches_at
from kdump.storage.local_disk import local

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
    text = "".join(offset_index.dump(segment.file(".index"), options, said.report))
    said.finish()
    return text, said


def test_entries_are_printed_with_absolute_offsets(segment: Segment) -> None:
    text, said = dump(segment)
    assert text == (
        f"offset: 5 position: {SIZE}\n"
        f"offset: 8 position: {2 * SIZE}\n"
        f"offset: 11 position: {3 * SIZE}\n"
    )
    assert said.lines == []
    assert not said.report.damaged


def test_verifying_prints_no_entries(segment: Segment) -> None:
    assert dump(segment, VERIFY_ONLY)[0] == ""


def test_an_index_without_entries_is_empty(segment: Segment) -> None:
    file = segment.write(".index", b"")
    assert dump(segment)[0] == f"{file.name} is empty.\n"


def test_padding_after_the_entries_is_not_printed(segment: Segment) -> None:
    whole = dump(segment)
    file = segment.file(".index")
    segment.write(".index", file.path.local_path.read_bytes() + bytes(800))
    text, said = dump(segment)
    assert text == whole[0]
    assert not said.report.damaged


def test_an_entry_that_names_another_offset_than_its_batch_is_a_mismatch(segment: Segment) -> None:
    file = segment.write(".index", offset_index_bytes([(4, SIZE), (8, 2 * SIZE)]))
    text, said = dump(segment)
    assert text == f"offset: 4 position: {SIZE}\noffset: 8 position: {2 * SIZE}\n"
    assert said.lines == [
        f"Mismatches in :{file.absolute_name}",
        "  Index offset: 4, log offset: 5",
    ]
    assert said.report.damaged


def test_an_entry_that_points_after_the_log_is_printed_and_a_problem(segment: Segment) -> None:
    file = segment.write(".index", offset_index_bytes([(5, 9_999), (8, 2 * SIZE)]))
    text, said = dump(segment)
    assert text == f"offset: 5 position: 9999\noffset: 8 position: {2 * SIZE}\n"
    (line,) = said.lines
    assert line == (
        f"{file.name}: byte 0: offset index entry points to no batch, expected a batch at byte 9999"
        f" of the log, which has {4 * SIZE} bytes, found no such byte"
    )
    assert said.report.damaged


def test_a_batch_beyond_the_largest_message_size_is_a_problem(segment: Segment) -> None:
    _, said = dump(segment, IndexDumpOptions(max_message_size_bytes=SIZE - 1))
    assert len(said.lines) == 1
    assert said.lines[0].endswith("found no whole batch")


def test_an_index_that_was_only_allocated_is_no_damage(segment: Segment) -> None:
    file = segment.write(".index", bytes(80))
    remark = f"{file.name}: byte 0: 80 zero bytes to the end of the file: never written"
    for log in (b"", b"".join(batches(1))):
        segment.write(".log", log)
        text, said = dump(segment)
        assert text == ("offset: 0 position: 0\n" if log else "")
        assert said.lines[0] == remark
        assert not said.report.damaged


def test_entries_are_printed_without_a_log(segment: Segment) -> None:
    whole = dump(segment)
    segment.file(".log").path.local_path.unlink()
    text, said = dump(segment)
    assert text == whole[0]
    (line,) = said.lines
    assert line == (
        f"{segment.file('.index').name}: its log is missing, entries are not checked, "
        f"expected {segment.file('.log').path.name}, found no file"
    )


def test_a_partial_entry_is_ignored_and_reported(segment: Segment) -> None:
    whole = dump(segment)
    file = segment.file(".index")
    segment.write(".index", file.path.local_path.read_bytes() + b"\1\2\3")
    text, said = dump(segment)
    assert text == whole[0]
    (line,) = said.lines
    assert line == (
        f"{file.name}: byte 24: index ends in a partial entry, "
        "expected entries of 8 bytes, found 3 bytes more"
    )


def test_a_valid_index_passes_the_sanity_check(segment: Segment) -> None:
    text, said = dump(segment, SANITY_CHECK)
    assert text == f"{segment.file('.index').name} passed sanity check.\n"
    assert not said.report.damaged


def test_a_partial_entry_fails_the_sanity_check_and_is_reported_once(segment: Segment) -> None:
    segment.write(".index", bytes(13))
    text, said = dump(segment, SANITY_CHECK)
    assert text == ""
    assert len(said.lines) == 1


def test_dumping_writes_nothing(segment: Segment) -> None:
    segment.write(".index", bytes(13))
    segment.file(".log").path.local_path.unlink()
    before = {path.name: path.read_bytes() for path in segment.directory.iterdir()}
    dump(segment)
    assert {path.name: path.read_bytes() for path in segment.directory.iterdir()} == before


def test_rows_have_every_field_and_one_for_the_padding(segment: Segment) -> None:
    at_100 = Segment(segment.directory, 100)
    at_100.write_indexed(batches(2, base_offset=100))
    file = at_100.file(".index")
    at_100.write(".index", file.path.local_path.read_bytes() + bytes(16))
    said = Said()
    assert list(offset_index.rows(file, PLAIN, said.report)) == [
        {
            "type": "offset_index_entry",
            "offset": 105,
            "relative_offset": 5,
            "position": SIZE,
        },
        {"type": "index_padding", "entries": 2, "size_bytes": 16},
    ]
    assert not said.report.damaged


def test_rows_are_checked_against_the_log_too(segment: Segment) -> None:
    segment.write(".index", offset_index_bytes([(4, SIZE)]))
    said = Said()
    list(offset_index.rows(segment.file(".index"), PLAIN, said.report))
    assert said.report.damaged


def test_many_positions_are_read_together_as_one_by_one(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"".join(batches(100)))
    with local(log).open_file() as source:
        positions = np.arange(-5, source.size_bytes + 5, dtype=np.int64)
        together = batches_at(source, positions, 5_000)
        for at in range(0, len(positions), 97):
            alone = batches_at(source, positions[at : at + 1], 5_000)
            assert alone.fault[0] == together.fault[at]
            assert alone.last_offset[0] == together.last_offset[at]


@pytest.mark.slow
@given(index=st.binary(max_size=64), log=st.binary(max_size=200), base=st.sampled_from([0, 7]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(2))
def test_any_bytes_beside_any_log_are_dumped(
    tmp_path: Path, index: bytes, log: bytes, base: int
) -> None:
    segment = Segment(tmp_path, base)
    segment.write(".index", index)
    segment.write(".log", log)
    for options in (PLAIN, SANITY_CHECK):
        dump(segment, options)
