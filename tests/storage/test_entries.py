"""Names that a file can have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kdump.storage.entries import is_file_name


@pytest.mark.parametrize("name", ["a", "...", "\udcff" * 255, "é" * 127, "a\nb"])
def test_a_name_that_a_disk_takes_is_accepted(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert os.listdir(tmp_path) == [name]  # noqa: PTH208 - the name as it is
    assert is_file_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0", "a" * 256, "é" * 128, "\ud800"])
def test_a_name_that_no_disk_takes_is_refused(name: str) -> None:
    assert not is_file_name(name)
