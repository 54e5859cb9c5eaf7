"""A local disk lists, opens and reads regular files, and refuses everything else."""

from __future__ import annotations

import errno
import os
import pickle
import socket
from pathlib import Path

import pytest

from kdump.storage.entries import Entry, EntryKind, SpecialFileError
from kdump.storage.local_disk import local
from kdump.storage.ownership import Ownership

MIB = 1 << 20


def listed(path: Path) -> dict[str, Entry]:
    return {entry.name: entry for entry in local(path).entries()}


def test_a_file_is_listed_with_its_size_and_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    os.utime(tmp_path / "file", ns=(0, 1_700_000_000_123_456_789))
    entry = listed(tmp_path)["file"]
    status = (tmp_path / "file").stat()
    assert entry == Entry(
        "file",
        EntryKind.FILE,
        False,
        5,
        1_700_000_000_123_456_789,
        file_id=status.st_ino,
        changed_ns=status.st_ctime_ns,
        ownership=Ownership(status.st_uid, status.st_gid, status.st_mode & 0o7777),
    )
    assert entry.modified_ms == 1_700_000_000_123


def test_a_hole_worth_skipping_is_listed_with_the_file(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(4 * MIB)
    assert listed(tmp_path)["file"].hole_bytes == 4 * MIB


def test_a_link_is_listed_as_its_target(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-directory").symlink_to("directory")
    entries = listed(tmp_path)
    as_linked = entries["file"]._replace(name="to-file", is_link=True, ownership=None)
    assert entries["to-file"] == as_linked
    assert entries["to-directory"] == Entry("to-directory", EntryKind.DIRECTORY, is_link=True)


@pytest.mark.parametrize("target", ["nothing", "link", "file/inside"])
def test_a_dangling_link_is_listed_as_broken(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(target)
    entry = listed(tmp_path)["link"]
    assert (entry.kind, entry.is_link) == (EntryKind.BROKEN_LINK, True)
    assert (entry.error is None) == (target == "nothing")
    assert local(tmp_path / "link").kind() is None


def test_special_files_are_listed_by_kind_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    (tmp_path / "device").symlink_to("/dev/null")
    kinds = {name: entry.kind for name, entry in listed(tmp_path).items()}
    assert kinds == {
        "fifo": EntryKind.FIFO,
        "socket": EntryKind.SOCKET,
        "device": EntryKind.DEVICE,
    }
    for name, kind in kinds.items():
        location = local(tmp_path / name)
        for refused in (location.open_file, location.read):
            with pytest.raises(SpecialFileError, match=f"a {kind.value}, not a regular file"):
                refused()


def test_a_directory_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        local(tmp_path).open_file()


def test_a_missing_file_has_no_kind_and_no_status(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("missing", "file/below", "a\0null"):
        assert local(tmp_path / name).kind() is None
    with pytest.raises(FileNotFoundError):
        local(tmp_path / "missing").status()


def test_an_open_file_returns_ranges_and_the_number_of_bytes_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    with local(tmp_path / "file").open_file() as file:
        buffer = bytearray(6)
        assert (file.size_bytes, file.read_into(memoryview(buffer), 7)) == (10, 3)
        assert (bytes(buffer[:3]), file.reached_bytes) == (b"789", 10)


def test_a_failed_read_names_the_file_and_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")

    def failing(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with local(tmp_path / "file").open_file() as file, monkeypatch.context() as patch:
        patch.setattr(os, "preadv", failing)
        with pytest.raises(OSError, match=r"reading at byte 4\)") as caught:
            file.read_into(memoryview(bytearray(2)), 4)
    assert caught.value.filename == str(tmp_path / "file")


def test_errors_of_special_files_can_be_pickled(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SpecialFileError) as caught:
        local(tmp_path / "fifo").read()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.filename) == (str(caught.value), str(tmp_path / "fifo"))


def test_what_replaced_a_file_after_it_was_listed_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SpecialFileError):
        local(tmp_path / "fifo").read_listed()


def test_a_file_that_grew_after_it_was_listed_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"more")
    assert local(tmp_path / "file").read_listed() == b"more"
