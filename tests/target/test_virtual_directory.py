"""Changes to a virtual directory become target files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdump.scan.source import read_at
from kdump.storage.local_disk import local
from kdump.target.target_file import (
    CopiedFrom,
    Gone,
    JoinedFrom,
    Kept,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
)
from kdump.target.virtual_directory import VirtualDirectory, Written, join


@pytest.fixture
def directory(tmp_path: Path) -> VirtualDirectory:
    """Return a directory with two files of ten bytes."""
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"abcdefghij")
    (tmp_path / "directory").mkdir()
    return VirtualDirectory(local(tmp_path))


def test_an_untouched_file_is_kept(directory: VirtualDirectory) -> None:
    assert directory.target_files() == {"a": Kept(), "b": Kept()}


def test_a_truncated_file_is_kept_up_to_its_new_end(directory: VirtualDirectory) -> None:
    directory.truncate("a", 4)

    assert directory.target_files()["a"] == KeptUpTo(4)


def test_a_removed_file_becomes_gone(directory: VirtualDirectory) -> None:
    directory.remove("a")

    assert directory.target_files()["a"] == Gone()


def test_a_renamed_file_becomes_a_rename_from_its_old_name(directory: VirtualDirectory) -> None:
    directory.rename("a", "b")

    assert directory.target_files() == {"a": Gone(), "b": RenamedFrom("a", 10)}


def test_a_renamed_file_whose_old_name_is_reused_is_copied(directory: VirtualDirectory) -> None:
    directory.rename("a", "b")
    directory.put("a", Written(b"new"))

    assert directory.target_files() == {"a": NewBytes(b"new"), "b": CopiedFrom("a", 0, 10)}


def test_two_parts_of_a_file_are_copied(directory: VirtualDirectory) -> None:
    directory.remove("a")
    directory.put("x", CopiedFrom("a", 0, 4))
    directory.put("y", CopiedFrom("a", 4, 10))

    target = directory.target_files()

    assert (target["x"], target["y"]) == (CopiedFrom("a", 0, 4), CopiedFrom("a", 4, 10))


def test_new_bytes_equal_to_the_old_file_are_kept(directory: VirtualDirectory) -> None:
    directory.put("a", Written(b"0123456789"))
    directory.put("b", Written(b"abc"))

    assert directory.target_files() == {"a": Kept(), "b": KeptUpTo(3)}


def test_padding_is_part_of_the_new_bytes(directory: VirtualDirectory) -> None:
    directory.put("x", Written(b"1", padding_bytes=2))

    assert directory.target_files()["x"] == NewBytes(b"1\0\0")
    assert directory.read("x") == b"1\0\0"


def test_a_range_of_a_file_reads_as_a_file(directory: VirtualDirectory) -> None:
    directory.put("x", CopiedFrom("a", 3, 6))

    with directory.open("x") as source:
        assert source.size_bytes == 3
        assert read_at(source, 1, 10) == b"45"


def test_a_file_that_became_shorter_is_an_error(directory: VirtualDirectory) -> None:
    (directory.path / "a").local_path.write_bytes(b"0")

    with pytest.raises(OSError, match="became shorter"):
        directory.read("a")


def test_joined_ranges_read_as_one_file(directory: VirtualDirectory) -> None:
    directory.put("a", join([CopiedFrom("a", 0, 3), CopiedFrom("b", 2, 4), CopiedFrom("a", 7, 10)]))

    with directory.open("a") as source:
        whole = read_at(source, 0, source.size_bytes)
        parts = [read_at(source, start, 3) for start in range(9)]

    assert whole == b"012cd789"
    assert parts == [whole[start : start + 3] for start in range(9)]
    assert directory.target_files()["a"] == JoinedFrom(
        (CopiedFrom("a", 0, 3), CopiedFrom("b", 2, 4), CopiedFrom("a", 7, 10))
    )


@pytest.mark.parametrize(("size_bytes", "expected"), [(8, 8), (4, 4), (3, 3), (0, 0)])
def test_joined_ranges_can_be_truncated(
    directory: VirtualDirectory, size_bytes: int, expected: int
) -> None:
    directory.put("a", join([CopiedFrom("a", 0, 3), CopiedFrom("b", 2, 4), CopiedFrom("a", 7, 10)]))
    directory.truncate("a", size_bytes)

    assert directory.read("a") == b"012cd789"[:expected]


def test_adjacent_ranges_are_merged() -> None:
    assert join(
        [CopiedFrom("a", 0, 3), CopiedFrom("a", 3, 3), CopiedFrom("a", 3, 5)]
    ) == CopiedFrom("a", 0, 5)


def test_changing_a_copy_does_not_change_the_original(directory: VirtualDirectory) -> None:
    copy = directory.copy()
    copy.remove("a")

    assert directory.target_files()["a"] == Kept()
    assert copy.target_files()["a"] == Gone()
