"""The log directory around partitions that are named one by one is read once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from kdump.storage.entries import Entry
from kdump.storage.local_disk import LocalDisk


@pytest.mark.parametrize("words", [("verify",), ("verify", "--live")], ids=" ".join)
def test_the_directory_around_partitions_is_listed_once(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_log_directory(tmp_path / "d1")
    paths = [str(write_partition(root / f"orders-{number}", {0: b""})) for number in range(4)]
    listed = Counter[str]()
    entries = LocalDisk.entries

    def counted(disk: LocalDisk, path: str) -> list[Entry]:
        listed[path] += 1
        return entries(disk, path)

    monkeypatch.setattr(LocalDisk, "entries", counted)
    run_kdump([*words, paths[0]], tmp_path)
    of_one = listed[str(root)]
    assert of_one
    run_kdump([*words, *paths], tmp_path)
    assert listed[str(root)] == 2 * of_one
