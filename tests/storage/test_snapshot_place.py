"""A snapshot in a repository is read in place, and what is damaged in the repository is said."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.in_process import run_kdump
from builders.packed import pack
from builders.two_disks import write_two_disks
from kdump.errors import KdumpError, UsageProblem
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.storage.places import forget_places, parse_location, parse_locations
from kdump.storage.repository import RepositoryError

LARGE: bytes = bytes(range(256)) * 40


@pytest.fixture
def folder(quick_path: Path) -> Path:
    """Return the directory around ``d1``, ``d2`` and ``repo``, which has a snapshot of ``d1``."""
    write_two_disks(quick_path)
    shutil.rmtree(quick_path / "model")
    (quick_path / "d1/orders-0/large").write_bytes(LARGE)
    back_up(quick_path, "d1")
    return quick_path


def back_up(folder: Path, *log_dirs: str) -> str:
    made = run_kdump(["backup", "create", "--output=jsonl", "repo", *log_dirs], folder)
    assert made.exit_status == 0, made.stderr
    name: str = json.loads(made.stdout.splitlines()[-2])["snapshot"]
    forget_places()
    return name


_LOCAL: Final[dict[str, Any]] = {"file_id": 0, "changed_ns": 0, "hole_bytes": 0, "ownership": None}
"""What only a local disk says of a file."""


def tree(location: Location) -> dict[str, Any]:
    """All names below a location, with what a listing says of them and the content of files."""
    found: dict[str, Any] = {}
    for entry in location.entries():
        below = location / entry.name
        if entry.kind is EntryKind.DIRECTORY:
            found[entry.name] = tree(below)
        else:
            shown = entry._replace(**_LOCAL)
            assert below.status()._replace(**_LOCAL) == shown
            found[entry.name] = shown, below.read()
    return found


def piece_of(folder: Path, content: bytes) -> Path:
    found = [each for each in (folder / "repo/data").rglob("*") if each.is_file()]
    return next(each for each in found if each.read_bytes() == content)


def document_of(folder: Path, *names: bytes) -> Path:
    """The piece that describes a directory with these files."""
    found = [each for each in (folder / "repo/data").rglob("*") if each.is_file()]
    return next(
        each
        for each in found
        if (data := each.read_bytes()).startswith(b"{") and all(name in data for name in names)
    )


def test_a_snapshot_has_what_was_backed_up(folder: Path) -> None:
    root = parse_location(f"{folder}/repo!latest")
    found = tree(root)
    del found["orders-0"]["large"], found["orders-0"]
    expected = tree(local(folder / "d1"))
    del expected["orders-0"]["large"], expected["orders-0"]
    expected.pop(".lock", None)
    assert found == expected
    assert (root / "orders-0" / "large").read() == LARGE


def test_a_piece_that_becomes_shorter_while_it_is_read_is_damaged(folder: Path) -> None:
    with (folder / "d1/orders-0/large").open("ab") as stream:
        stream.write(LARGE[:5000])
    back_up(folder, "d1")
    location = parse_location(f"{folder}/repo!latest/{folder}/d1/orders-0/large")
    with location.open_file() as file:
        file.read_into(memoryview(bytearray(1)), 0)
        os.truncate(piece_of(folder, LARGE), 1000)
        with pytest.raises(OSError, match="damaged: ends before byte 10240"):
            file.read_into(memoryview(bytearray(len(LARGE))), 3000)
        with pytest.raises(OSError, match="damaged: ends before byte 2500"):
            file.read_into(memoryview(bytearray(2000)), 500)


def test_a_location_in_a_snapshot_can_be_pickled(folder: Path) -> None:
    location = parse_location(f"{folder}/repo!latest/{folder}/d1/orders-0/large")
    forget_places()
    again = pickle.loads(pickle.dumps(location))
    assert again == location
    assert str(again) == str(location)
    assert again.read() == LARGE


def test_a_name_of_a_location_is_the_location(folder: Path) -> None:
    name = back_up(folder, "d1")
    root = parse_location(f"{folder}/repo!latest")
    assert str(root) == f"{folder}/repo!{name}{folder}/d1"
    assert parse_location(str(root)) == root


def test_the_latest_stays_the_same_while_others_are_made(folder: Path) -> None:
    root = parse_location(f"{folder}/repo!latest")
    (folder / "d1/new").write_bytes(b"new")
    back_up(folder, "d1")
    assert "new" not in tree(root)
    assert "new" in tree(parse_location(f"{folder}/repo!latest"))


@pytest.mark.parametrize("text", ["repo!latest", "repo!latest/", "./repo/!latest//", "repo!YEAR"])
def test_a_snapshot_of_one_log_directory_is_that_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    year = next((folder / "repo/snapshots").iterdir()).name[:4]
    monkeypatch.chdir(folder)
    root = parse_location(text.replace("YEAR", year))
    monkeypatch.chdir("/")
    assert root == parse_location(f"{folder}/repo!latest/{folder}/d1")
    assert (root / "orders-0/large").read() == LARGE


def test_a_snapshot_of_several_log_directories_is_all_of_them(folder: Path) -> None:
    back_up(folder, "d1", "d2")
    whole = parse_location(f"{folder}/repo!latest")
    assert [each.name for each in whole.entries()] == [folder.parts[1]]
    both = parse_locations([f"{folder}/repo!latest/"])
    assert both == [parse_location(f"{folder}/repo!latest{folder}/d{each}") for each in "12"]
    assert (parse_location(f"{folder}/repo!latest/{folder}")).entries() == [
        Entry("d1", EntryKind.DIRECTORY),
        Entry("d2", EntryKind.DIRECTORY),
    ]


def test_what_has_the_very_name_is_no_snapshot(folder: Path) -> None:
    (folder / "repo!latest").mkdir()
    (folder / "repo!latest/file").write_bytes(b"x")
    assert parse_location(f"{folder}/repo!latest/file") == local(folder / "repo!latest/file")


@pytest.mark.parametrize("name", ["a!b", "a!latest", "!2026", "a!latest!2026-01", "a b!"])
def test_names_of_repositories_may_have_exclamation_marks(folder: Path, name: str) -> None:
    (folder / "repo").rename(folder / name)
    location = parse_location(f"{folder}/{name}!latest/{folder}/d1/orders-0/large")
    assert location.read() == LARGE


@given(text=st.text("a!/.latest2026-", max_size=12))
@settings(deadline=None)
def test_other_names_are_paths_of_this_machine(text: str) -> None:
    assert parse_location(f"nothing/{text}") == local(f"nothing/{text}")


def test_a_repository_may_be_in_an_archive(folder: Path) -> None:
    archive = pack(folder / "repo", folder / "packed.tar")
    location = parse_location(f"{archive}/!latest/{folder}/d1/orders-0/large")
    assert location.read() == LARGE
    assert parse_location(str(location)) == location


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("repo!1999", "no snapshot begins with '1999'"),
        ("repo!2026-13", "no snapshot begins with '2026-13'"),
        ("empty!latest", "has no snapshots yet"),
        ("no!latest", "is not a repository of kdump backup"),
    ],
)
def test_a_snapshot_that_is_not_there_is_said(folder: Path, text: str, what: str) -> None:
    for name in ("empty", "no"):
        (folder / name / "snapshots").mkdir(parents=True)
    shutil.copy(folder / "repo/kdump-repository.json", folder / "empty")
    with pytest.raises(KdumpError, match=what):
        parse_location(f"{folder}/{text}")


def test_the_beginning_of_several_names_is_refused(folder: Path) -> None:
    names = sorted(each.stem for each in (folder / "repo/snapshots").iterdir())
    (folder / f"repo/snapshots/{names[0][:-8]}00000000.json").touch()
    with pytest.raises(UsageProblem, match=f"2 snapshots begin with '{names[0][:10]}'"):
        parse_location(f"{folder}/repo!{names[0][:10]}")


def test_a_path_that_is_not_in_the_snapshot_is_said(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"the snapshot has {folder}/d1"):
        parse_location(f"{folder}/repo!latest/d1").status()
    root = parse_location(f"{folder}/repo!latest")
    assert (root / "nothing").kind() is None
    assert (root / "orders-0/large/x").kind() is None
    with pytest.raises(IsADirectoryError):
        (root / "orders-0").read()
    with pytest.raises(NotADirectoryError):
        (root / "orders-0/large").entries()


def test_a_damaged_snapshot_is_said(folder: Path) -> None:
    file = next((folder / "repo/snapshots").iterdir())
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(RepositoryError, match=f"{file}: damaged"):
        parse_location(f"{folder}/repo!latest")


def test_a_missing_piece_is_named_with_the_file_that_needs_it(folder: Path) -> None:
    piece = piece_of(folder, LARGE)
    piece.unlink()
    root = parse_location(f"{folder}/repo!latest")
    with pytest.raises(OSError, match=f"{piece}: missing") as raised:
        (root / "orders-0/large").read()
    assert raised.value.filename == f"{root}/orders-0/large"
    assert raised.value.errno == errno.EIO
    expected = (folder / "d1/meta.properties").read_bytes()
    assert (root / "meta.properties").read() == expected


@pytest.mark.parametrize("harm", ["flip", "shorten"])
def test_a_damaged_piece_is_named_with_the_file_that_needs_it(folder: Path, harm: str) -> None:
    piece = piece_of(folder, LARGE)
    data = bytearray(LARGE)
    data[-1] ^= 1
    piece.write_bytes(data if harm == "flip" else data[:-1])
    large = parse_location(f"{folder}/repo!latest/{folder}/d1/orders-0/large")
    with pytest.raises(OSError, match=f"{piece}: damaged") as raised:
        large.read()
    assert raised.value.filename == str(large)


def test_a_damaged_description_of_a_directory_loses_that_directory_only(folder: Path) -> None:
    document = document_of(folder, b'"large"')
    document.write_bytes(document.read_bytes() + b" ")
    root = parse_location(f"{folder}/repo!latest")
    with pytest.raises(OSError, match=f"{document}: damaged") as raised:
        (root / "orders-0").entries()
    assert raised.value.filename == f"{root}/orders-0"
    assert (root / "users-0").entries()


def test_a_snapshot_that_was_removed_meanwhile_is_said(folder: Path) -> None:
    root = parse_location(f"{folder}/repo!latest")
    (root / "orders-0").entries()
    name = back_up(folder, "d2")
    for each in (folder / "repo/snapshots").iterdir():
        if each.stem != name:
            each.unlink()
    shutil.rmtree(folder / "repo/data")
    with pytest.raises(OSError, match="the snapshot was removed while it was read"):
        (root / "orders-0/large").read()


def test_ranges_of_pieces_are_the_bytes_of_the_file(folder: Path) -> None:
    drawn = random.Random(0)
    file = folder / "d1/orders-0/grown"
    sizes = [1500, 300, 4000, 1]
    content = drawn.randbytes(sum(sizes))
    for at in range(len(sizes)):
        file.write_bytes(content[: sum(sizes[: at + 1])])
        back_up(folder, "d1")
    location = parse_location(f"{folder}/repo!latest/{folder}/d1/orders-0/grown")
    with location.open_file() as source:
        assert source.size_bytes == len(content)
        for _ in range(300):
            position, buffer = drawn.randrange(6500), bytearray(drawn.randrange(3000))
            count = source.read_into(memoryview(buffer), position)
            assert buffer[:count] == content[position : position + len(buffer)]
    assert location.read() == content
    piece = piece_of(folder, content[1800:-1])
    piece.write_bytes(content[1801:])
    with pytest.raises(OSError, match=f"{piece}: damaged"):
        read_in_windows(location)


def read_in_windows(location: Location) -> None:
    """Read a file as a scan does: each window has some bytes of the one before."""
    with location.open_file() as source:
        for position in range(0, source.size_bytes, 100):
            source.read_into(memoryview(bytearray(150)), position)
