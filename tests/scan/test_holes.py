"""Holes of sparse segments, as large as a terabyte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import write_partition
from builders.recovery import joined
from kdump.engine.engine_choice import DEFAULT_OPTIONS, decide
from kdump.engine.engine_rates import JobKind
from kdump.log.partition import read_partition
from kdump.scan.resync import find_batch
from kdump.scan.source import data_ranges, end_of_data, is_zero, next_data
from kdump.storage.local_disk import local
from kdump.target.target_file import CopiedFrom, JoinedFrom
from kdump.target.virtual_directory import RangeSource, VirtualDirectory

TERABYTE = 1 << 40


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """Write a segment with a hole of a terabyte between its batches."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(joined(batches(2)))
    with path.open("r+b") as file:
        try:
            file.truncate(TERABYTE)
        except OSError:
            pytest.skip("the file system does not allow files of a terabyte")
        file.seek(TERABYTE)
        file.write(joined(batches(2, base_offset=100)))
    with local(path).open_file() as source:
        if next_data(source, 1 << 30) == 1 << 30:
            pytest.skip("the file system does not report holes")
    return path


def test_the_next_batch_is_found_after_a_hole_of_a_terabyte(sparse: Path) -> None:
    with local(sparse).open_file() as source:
        assert find_batch(source, 1 << 20) == TERABYTE


def test_no_batch_is_found_in_a_hole_up_to_the_end(sparse: Path) -> None:
    with local(sparse).open_file() as source:
        assert find_batch(source, 1 << 20, TERABYTE) is None


@pytest.mark.parametrize("gap", [0, 1, 60, 61, 62, 4095, 4096, 4097, 70_000])
def test_a_batch_is_found_at_any_distance_after_a_hole(tmp_path: Path, gap: int) -> None:
    path = tmp_path / "00000000000000000000.log"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek((1 << 20) + gap)
        # The base offset of the first batch is 0: its first eight bytes are zeroes.
        file.write(joined(batches(1)))
    with local(path).open_file() as source:
        assert find_batch(source, 5) == (1 << 20) + gap


def test_the_end_of_data_is_found_without_reading_the_hole(sparse: Path) -> None:
    with local(sparse).open_file() as source:
        assert not is_zero(source, 0, source.size_bytes)
        assert is_zero(source, 1 << 20, TERABYTE)
        assert end_of_data(source, 1 << 20, TERABYTE) == 1 << 20
        assert end_of_data(source, 0, TERABYTE) == len(joined(batches(2)).rstrip(b"\0"))


def test_ranges_of_files_report_their_holes(sparse: Path) -> None:
    directory = VirtualDirectory(local(sparse.parent))
    size = sparse.stat().st_size
    pieces = (CopiedFrom(sparse.name, 1 << 20, TERABYTE), CopiedFrom(sparse.name, 0, size))
    with directory.open_content(JoinedFrom(pieces)) as source:
        assert next_data(source, 0) == TERABYTE - (1 << 20)
    with local(sparse).open_file() as source:
        part = RangeSource(source, 1 << 20, size - (1 << 20))
        assert [start for start, _ in data_ranges(part, 0, size)] == [TERABYTE - (1 << 20)]


@pytest.mark.parametrize(
    "args",
    [
        ("verify", "--deep"),
        ("recover", "--dry-run"),
        ("recover", "--dry-run", "--policy", "salvage"),
        ("rebuild-index", "--dry-run"),
        ("info", "--deep"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("is_last", [True, False], ids=["at the end", "in the middle"])
def test_a_hole_is_reported_like_written_zeroes(
    args: tuple[str, ...], is_last: bool, tmp_path: Path
) -> None:
    logs = {0: joined(batches(2)), 100: joined(batches(2, base_offset=100))}
    partition = write_partition(tmp_path / "logs" / "orders-0", logs)
    log = partition / f"{100 if is_last else 0:020d}.log"
    outcomes = []
    for is_hole in (True, False):
        with log.open("r+b") as file:
            size = file.seek(0, 2)
            if is_hole:
                file.truncate(size + (2 << 20))
            else:
                file.truncate(size - (2 << 20))
                file.seek(size - (2 << 20))
                file.write(bytes(2 << 20))
        with local(log).open_file() as source:
            if is_hole and next_data(source, size + (1 << 20)) == size + (1 << 20):
                pytest.skip("the file system does not report holes")
        done = run_kdump([*args, "--output", "json", "."], tmp_path / "logs")
        outcomes.append((done.exit_status, done.stderr, _without_cost(done.stdout)))
    assert outcomes[0] == outcomes[1]


def _without_cost(answer: bytes) -> bytes:
    """Remove the fields that differ: the time, and the disk space, since a hole takes none."""
    return re.sub(rb'"(seconds|lost_bytes|needed_bytes)": ?[0-9.]+', b"", answer)


def test_a_hole_of_a_terabyte_does_not_count_as_work_for_an_engine(sparse: Path) -> None:
    partition = read_partition(local(sparse.parent), None)
    assert partition.log_bytes > TERABYTE
    assert decide(DEFAULT_OPTIONS, JobKind.SCAN, partition.data_bytes).local_seconds < 60


@pytest.mark.parametrize("command", ["verify", "rebuild-index", "recover"])
def test_a_hole_of_a_terabyte_is_not_read(command: str, sparse: Path) -> None:
    root = sparse.parent / "logs"
    (root / "orders-0").mkdir(parents=True)
    sparse.rename(root / "orders-0" / sparse.name)
    assert run_kdump([command, str(root)], root).exit_status == 4
