"""``kdump copy``: a log directory from anywhere is the same on this disk, whatever happens."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.lock_holder import held_elsewhere
from builders.log_directories import write_log_directory
from builders.packed import pack
from builders.trees import contents_of
from builders.two_disks import CHECKPOINTS, lines_of, write_two_disks
from kdump.apply.files import Files
from kdump.apply.unfinished_copy import FOLDER, JOURNAL, UnfinishedCopy
from kdump.errors import ExitStatus
from kdump.formats import names
from kdump.jobs.copy import copy as copy_module
from kdump.storage.entries import Entry
from kdump.storage.local_disk import LocalDisk
from kdump.storage.sparse_writer import SparseWriter, WriteFailedError

LOG: Final = f"users-0/{0:020d}.log"


@pytest.fixture
def folder(quick_path: Path) -> Path:
    """Return the directory around ``d1``, which is to be copied."""
    write_two_disks(quick_path / "node")
    shutil.rmtree(quick_path / "node/model")
    return quick_path / "node"


def copy(folder: Path, *args: str) -> Outcome:
    return run_kdump(["copy", *args], folder)


def rows(folder: Path, *args: str) -> list[dict[str, Any]]:
    return objects(copy(folder, *args, "--output", "jsonl").stdout)


def summary(folder: Path, *args: str) -> dict[str, Any]:
    return rows(folder, *args)[-1]


def kept(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content and the modification time of every file that is copied."""
    return {
        name: (content, (directory / name).stat().st_mtime_ns)
        for name, content in contents_of(directory).items()
        if name != names.LOCK_FILE
    }


def damage(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)


def later(path: Path) -> None:
    """Let a file look as if it had been written now."""
    os.utime(path)


# Content


@pytest.mark.parametrize("packed", ["d1", "a.tar", "a.tar.gz"])
def test_a_copy_has_every_file_with_its_time(folder: Path, packed: str) -> None:
    (folder / "d1/notes.txt").write_text("mine")
    source = packed
    if packed != "d1":
        with (
            tarfile.open(folder / packed, "w:gz", format=tarfile.PAX_FORMAT)
            if packed.endswith("gz")
            else tarfile.open(folder / packed, "w", format=tarfile.PAX_FORMAT)
        ) as archive:
            archive.add(folder / "d1", "data/d1")
        source = f"{packed}!/data/d1"
    outcome = run_kdump(["--spool", ".", "copy", source, "new"], folder)
    assert outcome.exit_status == 0, outcome.stderr
    found, expected = kept(folder / "new"), kept(folder / "d1")
    assert {name: each[0] for name, each in found.items()} == {
        name: each[0] for name, each in expected.items()
    }
    # A tar of Python has times as floating-point numbers.
    for name, (_, modified_ns) in found.items():
        assert abs(modified_ns - expected[name][1]) < (1 if packed == "d1" else 1000)


def test_a_real_directory_is_copied_and_verified_alike(fixtures: Path, tmp_path: Path) -> None:
    source = fixtures / "out" / "clean" / "d1"
    assert copy(tmp_path, str(source), "new").exit_status == 0
    assert kept(tmp_path / "new") == kept(source)
    for line in ("verify", "recover --dry-run"):
        said = [
            run_kdump([*line.split(), str(path), "--output", "jsonl"], tmp_path).stdout.replace(
                str(path).encode(), b"DIR"
            )
            for path in (source, tmp_path / "new")
        ]
        rows_said = [
            [{**row, "seconds": 0, "needed_bytes": 0} for row in objects(each)] for each in said
        ]
        assert rows_said[0] == rows_said[1]


def test_a_selection_has_its_lines_the_metadata_and_kafkas_own_files(folder: Path) -> None:
    metadata = folder / "d1/__cluster_metadata-0"
    shutil.copytree(folder / "d1/orders-0", metadata)
    (folder / "d1/notes.txt").write_text("mine")
    outcome = copy(folder, "--topic", "users", "d1", "new")
    assert b"new: complete" in outcome.stdout
    found, source = kept(folder / "new"), kept(folder / "d1")
    expected = {
        name: each
        for name, each in source.items()
        if not name.startswith(("orders-0/", "notes.txt")) and name not in CHECKPOINTS
    }
    assert {name: each for name, each in found.items() if name not in CHECKPOINTS} == expected
    wanted = {"users-0", "users-1"}
    assert lines_of(folder / "new") == {
        name: {key: offset for key, offset in lines.items() if key in wanted}
        for name, lines in lines_of(folder / "d1").items()
    }


def test_the_directory_of_a_partition_is_copied_into_a_log_directory(folder: Path) -> None:
    assert copy(folder, "d1/users-1", "new").exit_status == 0
    assert [each.name for each in (folder / "new").iterdir() if each.is_dir()] == ["users-1"]
    assert set(lines_of(folder / "new")[CHECKPOINTS[0]]) == {"users-1"}
    assert (folder / "new/.kafka_cleanshutdown").exists()


def test_damage_is_copied_and_reported_as_verify_reports_it(folder: Path) -> None:
    damage(folder / "d1" / LOG)
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.DAMAGE_LEFT
    assert kept(folder / "new") == kept(folder / "d1")
    assert b"copied as in the source" in outcome.stdout
    verified = objects(run_kdump(["verify", "new", "--output", "jsonl"], folder).stdout)
    codes = {row["code"] for row in verified if row["type"] == "finding"}
    shutil.rmtree(folder / "new")
    copied = {row["code"] for row in rows(folder, "d1", "new") if row["type"] == "finding"}
    assert copied == codes
    assert "batch-checksum" in copied


def test_holes_and_zeroes_take_no_space(folder: Path) -> None:
    log = folder / "d1" / LOG
    with log.open("ab") as file:
        file.write(bytes(1 << 20))
        file.truncate(64 << 20)
    assert b"new: complete" in copy(folder, "d1", "new").stdout
    new = (folder / "new" / LOG).stat()
    assert new.st_size == 64 << 20
    assert new.st_blocks * 512 < 256 << 10


def test_what_is_no_regular_file_is_named_and_left_out(folder: Path) -> None:
    os.mkfifo(folder / "d1/users-0/pipe")
    (folder / "d1/gone").symlink_to("nowhere")
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"d1/users-0/pipe: not copied: a FIFO, not a regular file" in outcome.stderr
    assert b"d1/gone: not copied: a broken link, not a regular file" in outcome.stderr
    assert b"new: complete" in outcome.stdout


def test_a_directory_with_the_name_of_the_lock_is_named_and_left_out(folder: Path) -> None:
    expected = kept(folder / "d1")
    (folder / "d1/.lock").unlink(missing_ok=True)
    (folder / "d1/.lock").mkdir()
    (folder / "d1/.lock/x").write_text("x")
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"kdump: d1/.lock: not copied: a directory, but the lock" in outcome.stderr
    assert kept(folder / "new") == expected


@pytest.mark.parametrize("command", [["copy", "d1", "new"], ["backup", "create", "new", "d1"]])
def test_a_lock_that_leads_to_itself_makes_no_copy_incomplete(
    folder: Path, command: list[str]
) -> None:
    (folder / "d1" / names.LOCK_FILE).symlink_to(names.LOCK_FILE)
    outcome = run_kdump(command, folder)
    assert b"d1/.lock: not " in outcome.stderr
    assert b"a broken link, not a regular file" in outcome.stderr
    assert b"run the same command again" not in outcome.stdout + outcome.stderr


def test_a_partition_behind_a_link_is_copied(folder: Path) -> None:
    (folder / "d1/users-0").rename(folder / "moved")
    (folder / "d1/users-0").symlink_to(folder / "moved")
    assert copy(folder, "d1", "new").exit_status == 0
    assert contents_of(folder / "new/users-0") == contents_of(folder / "moved")


# Going on


def stop(_copy: UnfinishedCopy) -> None:
    raise KeyboardInterrupt


def stop_at(count: int, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]) -> None:
    """Let a copy stop before it gives the file number ``count`` its name."""
    left = count
    place = UnfinishedCopy.place

    def stopping(self: UnfinishedCopy, *args: Any, **named: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise failure
        place(self, *args, **named)

    monkeypatch.setattr(UnfinishedCopy, "place", stopping)


@pytest.mark.parametrize("count", [0, 1, 9])
def test_a_stopped_copy_goes_on_where_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    with monkeypatch.context() as patch:
        stop_at(count, patch, KeyboardInterrupt)
        outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == 130
    assert b"new: not complete; the files that are complete stay" in outcome.stderr
    assert (folder / "new" / FOLDER).is_dir()
    assert not (folder / "new/.lock").exists()
    assert summary(folder, "d1", "new")["kept_files"] >= max(0, count - 3)
    assert kept(folder / "new") == kept(folder / "d1")


def test_directories_of_files_that_an_earlier_run_named_are_synced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure after the last run must not take back what an earlier one renamed."""
    with monkeypatch.context() as patch:
        patch.setattr(UnfinishedCopy, "finish", stop)
        copy(folder, "d1", "new")
    synced: set[Path] = set()
    with monkeypatch.context() as patch:
        sync = Files.sync

        def noting(self: Files, paths: Iterable[Path]) -> None:
            every = list(paths)
            synced.update(every)
            sync(self, every)

        patch.setattr(Files, "sync", noting)
        assert copy(folder, "d1", "new").exit_status == 0
    directories = {path for path in (folder / "new").rglob("*") if path.is_dir()}
    assert {folder / "new", *directories} <= {folder / path for path in synced}


def test_a_copy_of_something_else_that_was_begun_meanwhile_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked at the directory before one of them took the lock."""
    existing = copy_module._existing
    is_begun = False

    def begin_other(target: Any) -> Path:
        nonlocal is_begun
        if not is_begun:
            is_begun = True
            with pytest.MonkeyPatch.context() as patch:
                stop_at(5, patch, KeyboardInterrupt)
                copy(folder, "d2", "new")
        return existing(target)

    monkeypatch.setattr(copy_module, "_existing", begin_other)
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"new: a copy of something else was begun there meanwhile" in outcome.stderr
    monkeypatch.undo()
    assert copy(folder, "d2", "new").exit_status == 0
    assert kept(folder / "new") == kept(folder / "d2")


@pytest.mark.parametrize(
    "line",
    [
        '{"file":"users-0/x","size_bytes":3,"modified_ns":null,"is_made":false}',
        '{"file":"users-0/x","size_bytes":3,"modified_ns":[],"is_made":false}',
        '{"file":"users-0/x","size_bytes":{},"modified_ns":1,"is_made":1}',
        '{"directory":7,"report":[]}',
        "7",
        '{"file":',
    ],
)
def test_a_malformed_line_of_the_journal_is_ignored(folder: Path, line: str) -> None:
    begin(folder)
    with (folder / "new" / JOURNAL).open("a") as journal:
        journal.write(f"{line}\n")
    assert copy(folder, "d1", "new").exit_status == 0
    assert kept(folder / "new") == kept(folder / "d1")


def test_a_source_that_changed_since_is_copied_again_and_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "d1/orders-0/other").write_text("old")
    with monkeypatch.context() as patch:
        stop_at(15, patch, KeyboardInterrupt)
        copy(folder, "d1", "new")
    assert (folder / "new/orders-0/other").exists()
    (folder / "d1/orders-0/other").unlink()
    changed = next(path for path in (folder / "d1/orders-0").iterdir() if path.suffix == ".log")
    later(changed)
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == 0
    assert f"orders-0/{changed.name}: changed since it was copied".encode() in outcome.stderr
    assert b"orders-0/other: not in the source any more" in outcome.stderr
    assert kept(folder / "new") == kept(folder / "d1")


def test_a_source_that_was_replaced_with_its_size_and_time_is_copied_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_at(15, patch, KeyboardInterrupt)
        copy(folder, "d1", "new")
    copied = next(each for each in (folder / "new/orders-0").iterdir() if each.stat().st_size)
    source = folder / "d1/orders-0" / copied.name
    status, new = source.stat(), source.with_name("new")
    new.write_bytes(bytes(byte ^ 1 for byte in source.read_bytes()))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(source)

    outcome = copy(folder, "d1", "new")

    assert f"orders-0/{source.name}: changed since it was copied".encode() in outcome.stderr
    assert copied.read_bytes() == source.read_bytes()


def test_a_source_that_changes_meanwhile_makes_the_copy_incomplete(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        place = UnfinishedCopy.place

        def change(self: UnfinishedCopy, *args: Any, **named: Any) -> None:
            place(self, *args, **named)
            later(folder / "d1" / LOG)

        patch.setattr(UnfinishedCopy, "place", change)
        outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert f"{LOG}: changed while it was copied".encode() in outcome.stderr
    assert copy(folder, "d1", "new").exit_status == 0
    assert kept(folder / "new") == kept(folder / "d1")


# What the source and the copy do between two runs


def stopped_at_the_end(folder: Path) -> None:
    """Copy everything, and stop before the copy is finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UnfinishedCopy, "finish", stop)
        copy(folder, "d1", "new")


def require_continued(folder: Path) -> None:
    """Continue, and refuse a copy that has anything else than the source."""
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == 0, outcome.stderr
    assert kept(folder / "new") == kept(folder / "d1")
    assert directories_of(folder / "new") == directories_of(folder / "d1")


def directories_of(root: Path) -> set[Path]:
    return {each.relative_to(root) for each in root.rglob("*") if each.is_dir()}


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_directory_that_the_source_does_not_have_any_more_is_removed(
    folder: Path, is_lost: bool
) -> None:
    """Also if somebody removed it before: an empty one would be an empty partition to a broker."""
    (folder / "d1/users-0/a/b").mkdir(parents=True)
    (folder / "d1/users-0/a/b/x").write_text("x")
    stopped_at_the_end(folder)
    shutil.rmtree(folder / "d1/users-0")
    if is_lost:
        shutil.rmtree(folder / "new/users-0")
    require_continued(folder)


def test_a_directory_that_became_a_file_and_the_other_way_round(folder: Path) -> None:
    (folder / "d1/other/inside").mkdir(parents=True)
    (folder / "d1/other/inside/x").write_text("x")
    (folder / "d1/one").write_text("x")
    stopped_at_the_end(folder)
    shutil.rmtree(folder / "d1/other")
    (folder / "d1/other").write_text("a file")
    (folder / "d1/one").unlink()
    (folder / "d1/one").mkdir()
    (folder / "d1/one/x").write_text("x")
    require_continued(folder)


def test_a_file_that_was_just_named_when_the_copy_stopped_is_removed_with_its_source(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "d1/other").write_text("other")
    with monkeypatch.context() as patch:
        rename = Files.rename

        def stopping(self: Files, path: Path, new_path: Path) -> None:
            rename(self, path, new_path)
            if new_path.name == "other":
                raise KeyboardInterrupt

        patch.setattr(Files, "rename", stopping)
        copy(folder, "d1", "new")
    assert (folder / "new/other").exists()
    (folder / "d1/other").unlink()
    require_continued(folder)


@pytest.mark.parametrize("name", ["foreign", "users-0/foreign", "foreign-0/inside/x"])
def test_a_copy_with_something_else_in_it_is_not_complete(folder: Path, name: str) -> None:
    begin(folder)
    (folder / "new" / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "new" / name).write_text("x")
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    first = "foreign-0" if name.startswith("foreign-0") else name
    where = folder / "new" / first
    assert f"kdump: {where}: is not in the source: move it elsewhere\n" in outcome.stderr.decode()
    assert (folder / "new" / FOLDER).is_dir()
    where.rename(folder / "elsewhere")
    require_continued(folder)


@pytest.mark.parametrize("path", ["../victim", "/VICTIM", "users-0/../../victim", "", ".", "a//b"])
def test_a_path_of_the_journal_that_leads_out_of_the_copy_is_ignored(
    folder: Path, path: str
) -> None:
    (folder / "victim").write_text("precious")
    begin(folder)
    path = path.replace("/VICTIM", str(folder / "victim"))
    line = {"file": path, "size_bytes": 8, "modified_ns": 1, "is_made": False}
    with (folder / "new" / JOURNAL).open("a") as journal:
        journal.write(json.dumps(line) + "\n")
    require_continued(folder)
    assert (folder / "victim").read_text() == "precious"


@pytest.mark.parametrize(
    "change",
    [
        lambda report: report.clear(),
        lambda report: report.pop("worst"),
        lambda report: report.update(records="7"),
        lambda report: report.update(problems=[7]),
        lambda report: report.update(problems=[{"code": "no-such-code"}]),
        lambda report: report.update(new_field=1),
    ],
    ids=["empty", "field-less", "other-type", "no-problem", "other-code", "field-more"],
)
def test_a_report_of_another_version_is_made_again(
    folder: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    expected = [row for row in rows(folder, "d1", "new") if row["type"] == "partition"]
    shutil.rmtree(folder / "new")
    stopped_at_the_end(folder)
    journal = folder / "new" / JOURNAL
    lines = [json.loads(each) for each in journal.read_bytes().splitlines()]
    for line in lines:
        if line.get("directory") == "users-0" and line["report"] is not None:
            change(line["report"])
    journal.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert [row for row in rows(folder, "d1", "new") if row["type"] == "partition"] == expected


@pytest.mark.parametrize("name", [FOLDER, JOURNAL])
def test_nothing_is_written_where_a_link_in_the_copy_leads(folder: Path, name: str) -> None:
    begin(folder)
    (folder / "new" / name).rename(folder / "elsewhere")
    (folder / "new" / name).symlink_to(folder / "elsewhere")
    before = contents_of(folder)
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status & (ExitStatus.OPERATIONAL_ERROR | ExitStatus.USAGE)
    assert f"new/{name}: is ".encode() in outcome.stderr
    assert contents_of(folder) == before


def test_nothing_is_removed_where_a_link_in_the_copy_leads(folder: Path) -> None:
    (folder / "d1/a/b").mkdir(parents=True)
    (folder / "d1/a/b/x").write_text("x")
    stopped_at_the_end(folder)
    shutil.rmtree(folder / "d1/a")
    (folder / "new/a").rename(folder / "elsewhere")
    (folder / "new/a").symlink_to(folder / "elsewhere")
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"new/a/b/x: is behind a link: name a new directory" in outcome.stderr
    assert (folder / "elsewhere/b/x").read_text() == "x"


def test_a_failure_in_the_copy_names_the_file(folder: Path) -> None:
    begin(folder)
    (folder / "new" / FOLDER / "inside").mkdir()
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert f"{folder / 'new' / FOLDER / 'inside'}: Is a directory; ".encode() in outcome.stderr


def test_findings_of_an_earlier_run_are_not_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(folder / "d1" / LOG)
    whole = rows(folder, "d1", "whole")
    with monkeypatch.context() as patch:
        stop_at(20, patch, KeyboardInterrupt)
        copy(folder, "d1", "new")
    again = [
        {**row, "path": row["path"].replace("new/", "whole/")} if "path" in row else row
        for row in rows(folder, "d1", "new")
    ]
    assert again[:-1] == whole[:-1]


def test_a_file_that_cannot_be_read_leaves_the_copy_incomplete(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        append = SparseWriter.append

        def fail(self: SparseWriter, source: Any, end: int) -> None:
            if source.location.name == "notes" and source.location.parent.name == "users-0":
                raise OSError(errno.EIO, "Input/output error")
            append(self, source, end)

        patch.setattr(SparseWriter, "append", fail)
        outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"d1/users-0/notes: Input/output error" in outcome.stderr
    assert b"new: not complete, and no broker starts with it" in outcome.stdout
    assert b"directory-refused" in run_kdump(["verify", "new"], folder).stdout
    assert summary(folder, "d1", "new")["copied_files"] == 1
    assert kept(folder / "new") == kept(folder / "d1")


@pytest.mark.parametrize("args", [(), ("--topic", "users")])
def test_a_directory_that_cannot_be_listed_leaves_the_copy_incomplete(
    folder: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(UnfinishedCopy, "finish", stop)
        copy(folder, *args, "d1", "new")
    with monkeypatch.context() as patch:
        entries = LocalDisk.entries

        def fail(self: LocalDisk, path: str) -> list[Entry]:
            if path == "d1/users-0":
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return entries(self, path)

        patch.setattr(LocalDisk, "entries", fail)
        outcome = copy(folder, *args, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"d1/users-0: Permission denied" in outcome.stderr
    assert b"new: not complete, and no broker starts with it" in outcome.stdout
    assert (folder / "new/users-0/notes").exists()
    assert copy(folder, *args, "d1", "new").exit_status == 0
    assert contents_of(folder / "new/users-0") == contents_of(folder / "d1/users-0")


def test_a_full_disk_keeps_what_is_complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        write, left = SparseWriter.write, [3000]

        def fail(self: SparseWriter, data: memoryview) -> None:
            left[0] -= len(data)
            if left[0] < 0:
                raise WriteFailedError(OSError(errno.ENOSPC, "No space left on device"))
            write(self, data)

        patch.setattr(SparseWriter, "write", fail)
        outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"new: No space left on device; the files that are complete stay" in outcome.stderr
    assert not list((folder / "new" / FOLDER).iterdir())
    assert summary(folder, "d1", "new")["kept_files"] > 0
    assert kept(folder / "new") == kept(folder / "d1")


def test_too_little_space_is_said_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_module, "free_bytes_at", lambda _: 10)
    outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"bytes of free space, has 10; nothing was written" in outcome.stderr
    assert not (folder / "new").exists()


def test_what_is_to_be_copied_is_said_before(folder: Path) -> None:
    said = copy(folder, "d1", "new").stderr.decode()
    assert said.startswith(f"kdump: copying {len(kept(folder / 'd1'))} files, ")
    assert "to new, where " in said


def test_a_preview_writes_nothing(folder: Path) -> None:
    before = contents_of(folder)
    said = summary(folder, "--dry-run", "d1", "new")
    assert contents_of(folder) == before
    assert not (folder / "new").exists()
    assert said["copied_files"] == len(kept(folder / "d1"))
    assert not said["is_complete"]


# Refused


def begin(folder: Path) -> None:
    """Leave an unfinished copy of d1."""
    with pytest.MonkeyPatch.context() as patch:
        stop_at(5, patch, KeyboardInterrupt)
        copy(folder, "d1", "new")


def complete(folder: Path) -> None:
    copy(folder, "d1", "new")


@pytest.mark.parametrize(
    ("before", "args", "what"),
    [
        (complete, ("d1", "new"), "and is not an unfinished copy: name a new directory"),
        (begin, ("d2", "new"), "is an unfinished copy of something else: continue it with 'kdump"),
        (begin, ("d1", "new", "--topic", "users"), "is an unfinished copy of something else"),
        (None, ("d1", "d1"), "d1: is the source itself"),
        (None, ("d1", "d1/new"), "d1/new: is inside d1"),
        (None, ("d1", "."), ".: contains d1"),
        (None, ("d1", "d2/new"), "is inside the log directory"),
        (None, ("d1", "d2"), "and is not an unfinished copy"),
        (None, ("d1", "s3://bucket/new"), "is not on a local disk"),
        (None, ("d1", "a.tar!/new"), "is not on a local disk"),
        (None, ("d1", "new", "--topic", "nobody"), "no partition in d1 matches --topic nobody"),
    ],
)
def test_a_directory_that_is_no_place_for_a_copy_is_refused(
    folder: Path, before: Callable[[Path], None] | None, args: tuple[str, ...], what: str
) -> None:
    if before is not None:
        before(folder)
    state = contents_of(folder)
    (folder / "a.tar").write_bytes(b"")
    outcome = copy(folder, *args)
    assert outcome.exit_status == ExitStatus.USAGE
    assert what in outcome.stderr.decode()
    (folder / "a.tar").unlink()
    assert contents_of(folder) == state


def test_a_locked_directory_is_refused(folder: Path) -> None:
    (folder / "new").mkdir()
    with held_elsewhere(folder / "new"):
        outcome = copy(folder, "d1", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"new: locked by process" in outcome.stderr


def test_a_source_that_a_broker_uses_is_said(folder: Path) -> None:
    with held_elsewhere(folder / "d1"):
        outcome = copy(folder, "d1", "new")
    assert b"d1: in use by process" in outcome.stderr
    assert b"use 'kdump backup create'" in outcome.stderr
    assert outcome.exit_status == 0


def test_a_journal_of_somebody_else_is_refused(folder: Path) -> None:
    (folder / "new").mkdir()
    (folder / "new" / JOURNAL).write_text('{"format":"x"}\n')
    assert copy(folder, "d1", "new").exit_status == ExitStatus.USAGE


def test_a_partition_without_a_name_of_one_is_refused(folder: Path) -> None:
    (folder / "d1/users-0").rename(folder / "mine")
    outcome = copy(folder, "mine", "new")
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"mine: is not the name of a partition (TOPIC-PARTITION)" in outcome.stderr


def test_an_unfinished_copy_is_no_source(folder: Path) -> None:
    begin(folder)
    outcome = copy(folder, "new", "other")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"new: is an unfinished copy: complete it first" in outcome.stderr
    assert not (folder / "other").exists()


def test_hostile_names_and_times_of_an_archive_stay_inside_the_copy(folder: Path) -> None:
    with tarfile.open(folder / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for name, time_s in {
            "d/meta.properties": 1.0,
            "d/a-0/new\nline": 2.0**70,
            "d/a-0/\u202ertl": -5.0,
            "d/a-0/deep/er": 3.0,
            "d/a-0/../../../outside": 4.0,
            "/d/absolute": 5.0,
        }.items():
            member = tarfile.TarInfo(name)
            member.mtime = time_s
            archive.addfile(member)
    before = {path.name for path in folder.parent.iterdir()}
    outcome = copy(folder, "a.tar!/d", "new")
    assert b"new: complete" in outcome.stdout
    assert {path.name for path in folder.parent.iterdir()} == before
    assert contents_of(folder / "new") == {
        "a-0/deep/er": b"",
        "a-0/new\nline": b"",
        "a-0/\u202ertl": b"",
        "absolute": b"",
        "meta.properties": b"",
    }


def test_directories_in_directories_are_copied_at_any_depth(folder: Path) -> None:
    """More of them than Python's stack has frames, which also ``shutil.rmtree`` would need."""
    depth = 1100
    try:
        descriptor = os.open(folder / "d1", os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d", dir_fd=descriptor)
            inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        os.close(descriptor)
        assert copy(folder, "d1", "new").exit_status == 0
        assert (folder / "new" / "/".join(depth * "d")).is_dir()
    finally:
        subprocess.run(["rm", "-rf", folder / "d1/d", folder / "new"], check=True)


def test_an_empty_log_directory_is_copied(tmp_path: Path) -> None:
    write_log_directory(tmp_path / "d1")
    assert copy(tmp_path, "d1", "new").exit_status == 0
    assert kept(tmp_path / "new") == kept(tmp_path / "d1")


def cut_archives(folder: Path) -> Iterator[str]:
    """Archives of the directory without their second half."""
    pack(folder / "d1", folder / "whole.tar", "pax")
    data = (folder / "whole.tar").read_bytes()
    half = data[: len(data) // 2 // 512 * 512]
    (folder / "cut.tar").write_bytes(half)
    yield "cut.tar"
    (folder / "inside.tar").write_bytes(half[: half.rindex(b"users-") + 600])
    yield "inside.tar"
    packed = gzip.compress(data)
    (folder / "cut.tar.gz").write_bytes(packed[: len(packed) * 9 // 10])
    yield "cut.tar.gz"
    (folder / "sum.tar.gz").write_bytes(packed[:-8] + bytes(8))
    yield "sum.tar.gz"


def test_a_copy_of_a_cut_archive_holds_a_broker_back(folder: Path) -> None:
    (folder / "d1" / names.CLEAN_SHUTDOWN_MARKER).write_bytes(b'{"version":0,"brokerEpoch":1}')
    for number, archive in enumerate(cut_archives(folder)):
        target = folder / f"copy-{number}"
        # Again, too: the index of a large archive is kept, and so is the copy.
        for _ in range(2):
            outcome = run_kdump(["--spool", ".", "copy", f"{archive}!", str(target)], folder)
            assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR, archive
            assert b"source incomplete: more may be missing than is known" in outcome.stdout
            assert b": complete\n" not in outcome.stdout
            assert b"no damage" not in outcome.stdout
            assert (target / FOLDER).is_dir()
            assert not (target / names.CLEAN_SHUTDOWN_MARKER).exists()
        words = ["--spool", ".", "copy", f"{archive}!", str(target), "--output", "jsonl"]
        found = objects(run_kdump(words, folder).stdout)
        assert (found[-1]["is_complete"], found[-1]["is_source_complete"]) == (False, False)
        assert "source incomplete" in {each.get("kind") for each in found}
