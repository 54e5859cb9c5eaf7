"""Files and directories are synced by several threads, which end with the call."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kdump.apply import files
from kdump.apply.files import DISK


def test_every_file_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / str(number) for number in range(200)]
    synced: list[Path] = []
    monkeypatch.setattr(files, "_sync", synced.append)

    DISK.sync(paths)

    assert sorted(synced) == sorted(paths)


@pytest.mark.parametrize("missing", [0, 17, 99])
def test_a_failed_sync_is_raised_when_no_thread_is_left(tmp_path: Path, missing: int) -> None:
    paths = [tmp_path / str(number) for number in range(100)]
    for path in paths:
        path.touch()
    paths[missing].unlink()
    before = threading.enumerate()

    with pytest.raises(FileNotFoundError):
        DISK.sync(paths)

    assert threading.enumerate() == before


def test_an_interrupt_is_raised_when_no_thread_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = threading.current_thread()
    is_interrupted = threading.Event()

    def sync(_: Path) -> None:
        if threading.current_thread() is this:
            is_interrupted.set()
            raise KeyboardInterrupt
        is_interrupted.wait()

    monkeypatch.setattr(files, "_sync", sync)
    before = threading.enumerate()

    with pytest.raises(KeyboardInterrupt):
        DISK.sync([tmp_path] * 100)

    assert threading.enumerate() == before
