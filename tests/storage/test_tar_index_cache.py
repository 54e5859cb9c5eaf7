"""The index of a large archive is kept for the next run, and not believed then."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kdump.storage import tar_archive, tar_index_cache
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location
from kdump.storage.places import parse_location
from kdump.storage.tar_index import TarIndex, read_tar_index


def packed(path: Path, size_bytes: int = 3) -> Location:
    """Write an archive; returns the location of its root."""
    with tarfile.open(path, "w") as archive:
        for name in ("d/a", "d/e/b", "ü\udcff", "../left-out"):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = size_bytes, 1_700_000_000
            archive.addfile(info, io.BytesIO(b"x" * size_bytes))
    return parse_location(f"{path}!/")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache, where indexes of small archives are kept, too."""
    monkeypatch.setattr(tar_index_cache, "LEAST_MEMBERS", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kdump"


def contents(root: Location) -> object:
    """What there is in an archive, listed as by a new process."""
    tar_archive._indexes.clear()
    found = {path: (root / path).entries() for path in ("", "d", "d/e")}
    problems = root.storage.problems  # type: ignore[attr-defined]
    return found, problems, (root / "d" / "a").read()


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[ByteSource]:
    """Of each archive whose headers are read from now on."""
    reads: list[ByteSource] = []

    def read(archive: ByteSource) -> TarIndex:
        reads.append(archive)
        return read_tar_index(archive)

    monkeypatch.setattr("kdump.storage.tar_archive.read_tar_index", read)
    return reads


def test_the_headers_of_an_archive_are_read_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted_reads(monkeypatch)
    root = packed(tmp_path / "a.tar")
    expected = contents(root)
    assert contents(root) == expected
    assert len(reads) == 1
    (kept,) = cache.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_an_archive_that_was_replaced_is_read_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents(packed(tmp_path / "a.tar"))
    status = (tmp_path / "a.tar").stat()
    reads = counted_reads(monkeypatch)
    (tmp_path / "a.tar").rename(tmp_path / "b.tar")
    root = packed(tmp_path / "a.tar")
    os.utime(tmp_path / "a.tar", ns=(status.st_mtime_ns, status.st_mtime_ns))
    contents(parse_location(str(root)))
    assert len(reads) == 1


CHANGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2],
    "list": lambda _: b"[1]",
    "deep": lambda _: b"[" * 100_000,
    "version": lambda data: data.replace(b'"version": 4', b'"version": 0'),
    "kind": lambda data: data.replace(b'"FILE"', b'"file"'),
    "path": lambda data: data.replace(b'"/d/e"', b'"/d/../e"'),
    "name": lambda data: data.replace(b'["a"', b'["../a"'),
    "name-type": lambda data: data.replace(b'["a"', b"[7"),
    "fraction": lambda data: data.replace(b"512, 3]", b"512, 2.5]"),
    "past-the-end": lambda data: data.replace(b"512, 3]", b"99999999, 3]"),
    "negative": lambda data: data.replace(b"512, 3]", b"-1, 3]"),
    "longer": lambda data: data.replace(b"512, 3]", b"512, 300]"),
    "incomplete": lambda data: data.replace(b"512, 3]", b"512]"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_describes_no_such_archive_is_ignored_and_written_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    root = packed(tmp_path / "a.tar")
    expected = contents(root)
    (kept,) = cache.iterdir()
    data = kept.read_bytes()
    kept.write_bytes(CHANGES[change](data))
    assert kept.read_bytes() != data
    reads = counted_reads(monkeypatch)
    assert contents(root) == expected
    assert kept.read_bytes() == data
    assert len(reads) == 1


def test_a_file_that_others_can_write_to_is_ignored(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = packed(tmp_path / "a.tar")
    contents(root)
    (kept,) = cache.iterdir()
    document = json.loads(kept.read_bytes())
    document["directories"]["/"] = []
    kept.write_text(json.dumps(document))
    kept.chmod(0o666)
    reads = counted_reads(monkeypatch)
    assert [each.name for each in (root / "d").entries()] == ["a", "e"]
    assert contents(root)
    assert reads


def test_old_indexes_are_removed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_index_cache, "MOST_KEPT", 2)
    for number in range(3):
        contents(packed(tmp_path / f"{number}.tar"))
        for age, each in enumerate(sorted(cache.iterdir(), key=lambda each: each.stat().st_mtime)):
            os.utime(each, (1_795_000_000 + age, 1_795_000_000 + age))
    assert len(list(cache.iterdir())) == 2


def test_without_a_cache_archives_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_index_cache, "LEAST_MEMBERS", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    assert contents(packed(tmp_path / "a.tar"))
