"""Reading beside a broker leaves its pages in memory, and no others; and it keeps to its limit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kdump.scan.source import read_at
from kdump.storage.gentle_disk import Bandwidth, GentleDisk, gently
from kdump.storage.local_disk import LOCAL_DISK, local
from kdump.storage.page_cache import PAGE_BYTES, pages_in_memory

BUILD: Final = Path(__file__).resolve().parents[2] / "build"
PAGES: Final = 2048


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Path]:
    """Return a file with nothing of it in memory; the disk is not one in memory itself."""
    for folder in (tmp_path, BUILD):
        if not folder.is_dir():
            continue
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            path = Path(inside) / "file"
            path.write_bytes(os.urandom(PAGES * PAGE_BYTES - 100))
            with path.open("rb") as file:
                os.fsync(file.fileno())
            drop(path)
            if not any(in_memory(path)):
                yield path
                return
    pytest.skip("no disk here whose pages can be given back")


def drop(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_memory(path: Path) -> list[bool]:
    with path.open("rb") as file:
        found = pages_in_memory(file.fileno(), path.stat().st_size)
    assert found is not None
    return [bool(each) for each in found]


def touch(path: Path, page: int) -> None:
    """Read a page, and nothing ahead of it."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 100, page * PAGE_BYTES)


def read_all(path: Path, size: int) -> bytes:
    with gently(local(path)).open_file() as file:
        buffer = bytearray(file.size_bytes)
        with memoryview(buffer) as view:
            for start in range(0, len(buffer), size):
                piece = view[start : start + size]
                assert file.read_into(piece, start) == len(piece)
    return bytes(buffer)


def test_a_page_that_was_read_is_in_memory(cold: Path) -> None:
    touch(cold, 7)
    assert in_memory(cold) == [page == 7 for page in range(PAGES)]


def test_read_as_usual_a_file_stays_in_memory(cold: Path) -> None:
    """Else the next test would say nothing."""
    assert len(local(cold).read()) == cold.stat().st_size
    assert all(in_memory(cold))


@pytest.mark.parametrize("size", [4 << 20, 1 << 20, 100_000, 12_345])
def test_what_was_in_memory_stays_and_nothing_is_added(cold: Path, size: int) -> None:
    kept = [0, 5, 6, 700, PAGES - 1]
    for page in kept:
        touch(cold, page)
    before = in_memory(cold)
    assert sum(before) == len(kept)
    content = read_all(cold, size)
    assert in_memory(cold) == before
    assert content == cold.read_bytes()


def test_a_small_file_is_given_back_too(cold: Path) -> None:
    assert len(gently(local(cold)).read()) == cold.stat().st_size
    assert not any(in_memory(cold))


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert gently(local(tmp_path / "empty")).read() == b""


def test_a_file_that_shrinks_meanwhile_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    with gently(local(path)).open_file() as file:
        os.truncate(path, 50_000)
        assert file.read_into(memoryview(bytearray(100_000)), 0) == 50_000


def test_a_place_that_is_not_on_a_local_disk_stays() -> None:
    elsewhere = gently(local("/a"))
    assert gently(elsewhere) is elsewhere
    assert elsewhere.storage == GentleDisk()
    assert elsewhere.storage != LOCAL_DISK
    assert str(elsewhere) == "/a"


class FakeTime:
    """A clock that goes on by what is slept."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def limited(bytes_per_second: int) -> tuple[Bandwidth, FakeTime]:
    time = FakeTime()
    return Bandwidth(bytes_per_second, time.clock, time.sleep), time


def test_reads_wait_for_those_before_them() -> None:
    bandwidth, time = limited(100)
    waits = []
    for size in (50, 200, 10):
        bandwidth.wait_for(size)
        waits.append(time.now - 100)
    assert waits == [0, 0.5, 2.5]


def test_a_pause_is_not_made_up_for() -> None:
    bandwidth, time = limited(100)
    bandwidth.wait_for(100)
    time.now += 1000
    began = time.now
    for _ in range(11):
        bandwidth.wait_for(100)
    assert time.now - began == 10


def test_a_file_is_read_at_the_speed_of_the_limit(tmp_path: Path) -> None:
    bandwidth, time = limited(1 << 20)
    path = tmp_path / "file"
    path.write_bytes(os.urandom(5 << 20))
    with gently(local(path), bandwidth).open_file() as file:
        buffer = bytearray(5 << 20)
        assert file.read_into(memoryview(buffer), 0) == 5 << 20
        assert read_at(file, 0, 10) == buffer[:10]
    assert time.now - 100 == pytest.approx(5)
    assert buffer == path.read_bytes()
