"""Ranges of a segment that were never written, of which there may be a terabyte."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batches
from builders.recovery import joined
from kdump.scan.resync import find_batch
from kdump.scan.source import FileSource, next_data

TERABYTE = 1 << 40


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """Give a segment with a terabyte of nothing between its batches."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(joined(batches(2)))
    with path.open("r+b") as file:
        try:
            file.truncate(TERABYTE)
        except OSError:
            pytest.skip("the file system takes no file of a terabyte")
        file.seek(TERABYTE)
        file.write(joined(batches(2, base_offset=100)))
    with FileSource(path) as source:
        if next_data(source, 1 << 30) == 1 << 30:
            pytest.skip("the file system does not tell holes")
    return path


def test_the_next_batch_is_found_behind_a_terabyte_that_was_never_written(sparse: Path) -> None:
    with FileSource(sparse) as source:
        assert find_batch(source, 1 << 20) == TERABYTE


def test_a_hole_up_to_the_end_holds_no_batch(sparse: Path) -> None:
    with FileSource(sparse) as source:
        assert find_batch(source, 1 << 20, TERABYTE) is None


@pytest.mark.parametrize("gap", [0, 1, 60, 61, 62, 4095, 4096, 4097, 70_000])
def test_a_batch_is_found_wherever_it_begins_behind_a_hole(tmp_path: Path, gap: int) -> None:
    path = tmp_path / "00000000000000000000.log"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek((1 << 20) + gap)
        # The base offset of the first batch is zero: it begins with eight bytes of zeroes.
        file.write(joined(batches(1)))
    with FileSource(path) as source:
        assert find_batch(source, 5) == (1 << 20) + gap
