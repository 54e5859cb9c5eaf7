"""The documents of repositories in object stores that the user's cache keeps."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.packed import pack
from builders.two_disks import write_two_disks
from kdump.storage import document_cache
from kdump.storage.document_cache import DocumentCache
from kdump.storage.places import parse_location
from kdump.storage.repository import Repository

DATA = b"a document"
SHA256 = hashlib.sha256(DATA).hexdigest()


def kept(tmp_path: Path) -> Path:
    """The file of a cache with one document."""
    cache = DocumentCache({"XDG_CACHE_HOME": str(tmp_path)})
    cache.keep(SHA256, DATA)
    cache.close()
    (file,) = tmp_path.rglob("*.sqlite")
    return file


def found(tmp_path: Path) -> bytes | None:
    cache = DocumentCache({"XDG_CACHE_HOME": str(tmp_path)})
    try:
        return cache.find(SHA256)
    finally:
        cache.close()


def test_a_cache_that_another_process_locks_is_done_without_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_cache, "_LOCKED_SECONDS", 0.0)
    other = sqlite3.connect(kept(tmp_path), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert found(tmp_path) is None
    other.execute("ROLLBACK")
    other.close()
    assert found(tmp_path) == DATA


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    kept(tmp_path).write_bytes(b"no database" * 100)
    assert found(tmp_path) is None
    kept(tmp_path)
    assert found(tmp_path) == DATA


def test_a_repository_in_an_archive_needs_no_cache(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(quick_path / "cache"))
    (quick_path / "cache").mkdir()
    write_two_disks(quick_path)
    made = run_kdump(["backup", "create", "--output=jsonl", "repo", "d1"], quick_path)
    snapshot = json.loads(made.stdout.splitlines()[-2])["snapshot"]
    archive = pack(quick_path / "repo", quick_path / "repo.tar")
    repository = Repository.opened(parse_location(f"{archive}/"))
    (log_dir,) = repository.snapshot(snapshot).log_dirs
    found = [*repository.directories(log_dir.root, threads=1)]
    assert all(each.directory is not None for each in found)
    assert not [*(quick_path / "cache").rglob("documents*")]
