"""The compiled loops, compared with the decoders in Python on any bytes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.batches import batch, record
from builders.log_directories import offset_index, time_index
from builders.memory_storage import MemoryStorage
from builders.message_sets import message
from builders.sources import BytesSource
from hatch_build import compile_library
from kdump.compiled import library
from kdump.dump import segment
from kdump.dump.contents import Utf8Contents
from kdump.dump.dumped_file import DumpedFile
from kdump.dump.report import DumpReport
from kdump.dump.segment import SegmentOptions
from kdump.dump.text_options import TextOptions
from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.java.java_text import java_utf8
from kdump.formats.record_batch import BatchHeader, encode_batch
from kdump.log.log_search import SegmentSearch, Trust
from kdump.scan import compiled_loops
from kdump.scan.batches import read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, Skipped, walk_segment
from kdump.storage.location import Location

FOLDER = Path(library.__file__).parent

is_compiled = pytest.mark.skipif(library.compiled() is None, reason="no C compiler")


@contextmanager
def only_python() -> Iterator[None]:
    """Decode as where nothing was compiled."""
    with patch.object(library, "compiled", return_value=None):
        yield


contents = st.none() | st.binary(max_size=60) | st.text(max_size=20).map(str.encode)
records = st.builds(
    record,
    st.integers(0, 2**31 - 1) | st.integers(0, 9),
    contents,
    contents,
    st.lists(st.tuples(st.binary(max_size=9), contents), max_size=3),
    st.integers(-(2**63), 2**63 - 1),
)
markers = st.builds(
    record,
    st.integers(0, 9),
    st.sampled_from([b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0\1\0\1", b"", None]),
    st.sampled_from([b"\0\0\0\0\0\7", b"\0\1\0\0\0\7", b"\0\0", None]),
)


@st.composite
def valid_parts(draw: st.DrawFn) -> bytes:
    """A batch as a producer could write it, or a message of magic 0 or 1."""
    if draw(st.integers(0, 9)) == 0:
        return message(draw(st.integers(0, 9)), magic=draw(st.sampled_from([0, 1])))
    is_control = draw(st.integers(0, 4)) == 0
    rows = draw(st.lists(markers if is_control else records, min_size=1, max_size=6))
    flags = (
        record_batch.LOG_APPEND_TIME_FLAG
        | record_batch.TRANSACTIONAL_FLAG
        | record_batch.DELETE_HORIZON_FLAG
    )
    return batch(
        sorted(rows, key=lambda row: row.offset),
        codec=draw(st.sampled_from([Codec.NONE, *Codec])),
        attributes=draw(st.integers(0, 0xFF)) & flags
        | (record_batch.CONTROL_FLAG if is_control else 0),
        partition_leader_epoch=draw(st.integers(-1, 9)),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        base_sequence=draw(st.sampled_from([-1, 0, 5, 2**31 - 3])),
    )


@st.composite
def damaged_parts(draw: st.DrawFn) -> bytes:
    """A batch with any changes, half of them with the right checksum over what was changed."""
    part = bytearray(draw(valid_parts()))
    for _ in range(draw(st.integers(1, 3))):
        # More often in the counts, and in the first records.
        last = draw(st.sampled_from([len(part) - 1, min(len(part) - 1, 90)]))
        part[draw(st.integers(0, last))] = draw(st.integers(0, 255))
    if len(part) > record_batch.HEADER_BYTES and draw(st.booleans()):
        header = record_batch.decode_header(part)
        part[:] = encode_batch(
            replace(header, length=0, magic=2), bytes(part[record_batch.HEADER_BYTES :])
        )
    return bytes(part)


segments = st.builds(
    lambda parts, end: b"".join([*parts, end]),
    st.lists(valid_parts() | valid_parts() | damaged_parts(), max_size=8),
    st.just(b"") | st.binary(max_size=80) | valid_parts().map(lambda part: part[:-1]),
)


def scanned(data: bytes, window_bytes: int) -> list[object]:
    """Everything that a walk over ``data`` yields, as plain values."""
    steps: list[object] = []
    for window in read_windows(BytesSource(data), window_bytes=window_bytes):
        headers = [column.tolist() for column in window.batches.columns().values()]
        steps.append((window.start, headers, str(window.stop)))
    for step in walk_segment(BytesSource(data), with_records=True, follow_bad=True):
        if isinstance(step, RecordColumns):
            names = set(RecordColumns.__struct_fields__) - {"data", "batches", "problems"}
            columns = {name: np.asarray(getattr(step, name)).tolist() for name in names}
            steps.append((columns, {row: str(why) for row, why in step.problems.items()}))
        elif isinstance(step, MessageSet):
            steps.append((repr(step.messages), str(step.problem)))
        else:
            steps.append(repr(step) if isinstance(step, Skipped) else str(step))
    return steps


def dumped(data: bytes, options: SegmentOptions) -> tuple[bytes, list[str], bool]:
    """The text of a segment, what is reported, and whether it is damaged."""
    name = f"{3:020d}.log"
    said: list[str] = []
    report = DumpReport(said.append)
    file = DumpedFile(name, MemoryStorage("memory", {name: data}, frozenset()), name)
    text = b"".join(map(bytes, segment.dump(file, options, report)))
    report.finish()
    return text, said, report.damaged


@is_compiled
@pytest.mark.slow
@given(segments, st.sampled_from([100, 1000, 1 << 20]))
def test_columns_are_those_of_the_decoders_in_python(data: bytes, window_bytes: int) -> None:
    found = scanned(data, window_bytes)
    with only_python():
        assert found == scanned(data, window_bytes)


texts = st.tuples(
    st.sampled_from([None, Utf8Contents()]), st.booleans(), st.sampled_from([b"", b"> "])
).map(
    lambda values: TextOptions(
        contents=values[0], skip_record_metadata=values[1], line_start=values[2]
    )
)
options = st.tuples(st.booleans(), texts).map(
    lambda values: SegmentOptions(deep=values[0], text=values[1])
)


@is_compiled
@pytest.mark.slow
@given(segments, options)
def test_the_text_of_a_dump_is_that_of_the_formatters_in_python(
    data: bytes, options: SegmentOptions
) -> None:
    found = dumped(data, options)
    with only_python():
        assert found == dumped(data, options)


@st.composite
def timed_logs(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A log of a few batches and its indexes, each more or less true."""
    parts: list[bytes] = []
    offset, entries = 0, [(0, 0)]
    for times in draw(st.lists(st.lists(st.integers(-1, 9), min_size=1, max_size=3), max_size=5)):
        offset += draw(st.sampled_from([0, 0, 2, -1]))
        rows = [record(offset + step, timestamp=ms) for step, ms in enumerate(times)]
        flags = draw(st.sampled_from([0, 0, record_batch.LOG_APPEND_TIME_FLAG]))
        codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP]))
        entries.append((offset + len(times) - 1, sum(map(len, parts))))
        parts.append(batch(rows, attributes=flags, codec=codec))
        offset += len(times)
    log = bytearray(b"".join(parts))
    if log and draw(st.integers(0, 3)) == 0:
        log[draw(st.integers(0, len(log) - 1))] ^= 1
    last_time = draw(st.integers(-1, 9)), draw(st.sampled_from([each[0] for each in entries]))
    offsets = draw(st.sampled_from([(), entries[1:], [(0, 7)], [(3, len(log))]]))
    return bytes(log), offset_index(*offsets), time_index(last_time)


@is_compiled
@pytest.mark.slow
@given(timed_logs())
def test_the_largest_timestamp_is_the_one_that_is_found_in_python(
    logs: tuple[bytes, bytes, bytes],
) -> None:
    files = dict(zip(("/log", "/index", "/timeindex"), logs, strict=True))
    root = Location(MemoryStorage("memory", files, frozenset()), "")
    log = (root / "log").open_file()
    search = SegmentSearch(log, 0, root / "index", root / "timeindex", Trust.CHECKSUMS)
    found = search.largest_timestamp()
    with only_python():
        assert found == search.largest_timestamp()


@is_compiled
@given(segments)
def test_largest_timestamps_are_those_of_the_records(data: bytes) -> None:
    largest = compiled_loops.largest_timestamps(data)
    if largest is None:
        return
    found = [-1] * len(largest)
    for step in walk_segment(BytesSource(data), with_records=True):
        if isinstance(step, RecordColumns):
            assert not step.problems
            for row, timestamp in zip(step.batch.tolist(), step.timestamp.tolist(), strict=True):
                found[row] = max(found[row], timestamp)
    assert found == largest


utf8_like = st.lists(
    st.sampled_from(
        [b"\xed", b"\xa0", b"\x80", b"\xbf", b"\x9f", b"\xf0\x9f", b"\xf4\x8f", b"\xf5"]
    )
    | st.sampled_from(["a", "é", "€", "😀", "\uffff"]).map(str.encode)
    | st.binary(max_size=3),
    max_size=12,
).map(b"".join)


@is_compiled
@given(utf8_like, utf8_like)
def test_bytes_are_decoded_as_in_java(key: bytes, value: bytes) -> None:
    data = batch([record(3, key, value)])
    text, _, _ = dumped(data, SegmentOptions(deep=True, text=TextOptions(Utf8Contents())))
    assert text.endswith(f" key: {java_utf8(key)} payload: {java_utf8(value)}\n".encode())


@is_compiled
def test_batches_with_more_text_than_fits_are_printed_in_python() -> None:
    many = [record(n, None, b"\xff" * 9) for n in range(30_000)]
    data = batch(many) + batch(many, codec=Codec.GZIP) + batch([record(30_000)])
    shown = SegmentOptions(deep=True, text=TextOptions(Utf8Contents()))
    found = dumped(data, shown)
    with only_python():
        assert found == dumped(data, shown)


@is_compiled
def test_claimed_counts_and_sizes_cost_no_memory_and_no_time() -> None:
    header = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 2**31 - 1)
    huge = encode_batch(header, b"\xfe\xff\xff\xff\x0f" * 8)
    text, said, is_damaged = dumped(huge, SegmentOptions(deep=True))
    assert (text.count(b"\n"), len(said), is_damaged) == (2, 1, True)


def test_without_a_compiler_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(FOLDER / "segments.c", tmp_path)
    monkeypatch.setenv("CC", "a-compiler-that-is-not-there")
    assert compile_library(tmp_path) is None


def test_a_library_of_another_version_is_not_used(tmp_path: Path) -> None:
    source = (FOLDER / "segments.c").read_text()
    changed = source.replace("kdump_interface = ", "kdump_interface = 1000 + ")
    (tmp_path / "segments.c").write_text(changed)
    if compile_library(tmp_path) is None:
        pytest.skip("no C compiler")
    with patch.object(library, "__file__", str(tmp_path / "library.py")):
        assert library.compiled.__wrapped__() is None


def test_dumps_of_valid_segments_import_neither_numpy_nor_arrow(tmp_path: Path) -> None:
    if library.compiled() is None:
        pytest.skip("no C compiler")
    path = tmp_path / "00000000000000000003.log"
    path.write_bytes(batch([record(3)]) + batch([record(7)], codec=Codec.GZIP))
    program = (
        "import sys, kdump.cli.main as main;"
        f"assert main.run(['dump-segment', '--print-data-log', {str(path)!r}]) == 0;"
        "assert not {'numpy', 'pyarrow'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("is followed by")) == (0, 2)
