"""The padding of an index is not read, and is accounted for all the same."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from builders.batches import batch
from builders.verified import NOW_MS, file, records, write_segment
from kdump.check.batches import SegmentScope
from kdump.check.part import Level, SegmentPart
from kdump.check.segment_check import check_part
from kdump.formats.names import FileKind
from kdump.storage.local_disk import LocalFile, local

_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
_PADDED_BYTES = 12 << 20


def pad(partition: Path, *, has_hole: bool) -> None:
    """Preallocate both indexes of a segment, as those of an active segment are."""
    for kind in _KINDS:
        path = file(partition, 0, kind)
        with path.open("r+b") as index:
            if has_hole:
                index.truncate(_PADDED_BYTES)
            else:
                index.write(path.read_bytes().ljust(_PADDED_BYTES, b"\0"))


def checked(partition: Path, *, is_clean: bool = False) -> SegmentPart:
    log = local(file(partition, 0, FileKind.LOG))
    scope = SegmentScope(log, 0, is_active=True, is_clean=is_clean)
    return check_part(scope, 0, None, Level.DEFAULT, NOW_MS)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    write_segment(tmp_path, 0, [batch(records(3 * number, 3)) for number in range(4)])
    return tmp_path


def test_a_hole_counts_as_zeroes(partition: Path) -> None:
    used_bytes = sum(file(partition, 0, kind).stat().st_size for kind in _KINDS)
    pad(partition, has_hole=True)
    sparse = checked(partition)
    pad(partition, has_hole=False)
    assert sparse == checked(partition)
    assert sparse.index_account.valid_bytes == used_bytes
    assert sparse.index_account.padding_bytes == 2 * _PADDED_BYTES - used_bytes


def test_holes_are_not_read(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pad(partition, has_hole=True)
    read_bytes = 0
    read_into = LocalFile.read_into

    def counted(self: LocalFile, buffer: memoryview, position: int) -> int:
        nonlocal read_bytes
        read_bytes += len(buffer)
        return read_into(self, buffer, position)

    monkeypatch.setattr(LocalFile, "read_into", counted)
    checked(partition)
    assert read_bytes < 1 << 20


def test_a_hole_takes_no_memory_beside_a_small_log(partition: Path) -> None:
    pad(partition, has_hole=True)
    checked(partition, is_clean=True)
    tracemalloc.start()
    try:
        part = checked(partition, is_clean=True)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert part.index_account.padding_bytes > 2 * _PADDED_BYTES - 100
