"""Commands read a snapshot in a repository as they read what is restored from it."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.broker_damage import BrokerDamage
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.metadata_log import topic_record, write_metadata_log
from builders.rewindable_clusters import RandomCluster
from builders.samples import seeds
from builders.two_disks import write_two_disks
from kdump.api import open_log_dir
from kdump.apply.directory_lock import lock_directory
from kdump.errors import ExitStatus
from kdump.processes.worker_pool import close_kept
from kdump.storage.entries import Entry
from kdump.storage.snapshot_place import SnapshotPlace

READING: Final = (
    "checkpoint show --output jsonl",
    "diff --output jsonl",
    "export --format jsonl --output jsonl --out OUT",
    "grep --output jsonl .",
    "groups --output jsonl --members",
    "identity --output jsonl",
    "info --output jsonl --deep",
    "lookup --output jsonl --timestamp max",
    "ls --output jsonl",
    "metadata show --output jsonl",
    "metadata history --output jsonl",
    "quorum show --output jsonl",
    "txns --output jsonl",
    "verify --output jsonl --now 2026-11-22",
)
"""The log directories of a snapshot follow; OUT is a new directory.

Text and reports are left out: they advise a copy of what is not on a local disk.
"""


def answer(line: str, places: list[str], bases: list[str], folder: Path) -> tuple[int, str]:
    """Run a command on log directories; its status, and what it wrote, without their names."""
    folder.mkdir()
    out = folder / "out"
    outcome = run_kdump([*line.replace("OUT", str(out)).split(), *places], folder)
    files = [out] if out.is_file() else sorted(each for each in out.rglob("*") if each.is_file())
    made = [each.read_bytes() for each in files if each.name != "_manifest.json"]
    said = b"".join((outcome.stdout, outcome.stderr, *made)).decode(errors="backslashreplace")
    for number, base in enumerate(bases):
        said = said.replace(base, f"BASE{number}")
    said = said.replace(str(out), "OUT")
    said = re.sub(
        r'"(seconds|created_ms|free_bytes|needed_bytes)": ?[\d.]+|[\d.]+ s\b|[\d.]+ [kKMG]?i?B/s',
        "",
        said,
    )
    return outcome.exit_status, said


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(0, count=20, in_main=4))
def test_a_snapshot_is_read_as_what_is_restored_from_it(quick_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    log_dirs = RandomCluster(seed, ticks=40).write(quick_path / "cluster", brokers=2)
    write_metadata_log(log_dirs[0], [topic_record("orders", seed + 1)])
    damage = BrokerDamage(drawn, log_dirs)
    for _ in range(drawn.randrange(7)):
        damage.change()
    made = run_kdump(
        ["backup", "create", "--output=jsonl", "repo", *map(str, log_dirs)], quick_path
    )
    name = objects(made.stdout)[-1]["snapshot"]
    assert name is not None, made.stderr
    stored = [f"{quick_path}/repo!{name}{each}" for each in log_dirs]
    # Under names that are as long: some are in columns of texts.
    restored = [str(_of_length(quick_path / f"r{at}", len(each))) for at, each in enumerate(stored)]
    intos = [word for each in restored for word in ("--into", each)]
    outcome = run_kdump(["backup", "restore", *intos, "repo"], quick_path)
    assert not outcome.exit_status & ExitStatus.OPERATIONAL_ERROR, outcome.stderr
    for number, line in enumerate(READING):
        expected = answer(line, restored, restored, quick_path / f"a{number}")
        found = answer(line, [f"{quick_path}/repo!latest"], stored, quick_path / f"b{number}")
        assert found == expected, (line, damage.done)


def _of_length(path: Path, length: int) -> Path:
    """A new directory's path of this length, in a directory that there is."""
    while len(str(path)) < length:
        left = length - len(str(path)) - 1
        path = path / ("d" * (left if left <= 200 else 100))
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def folder(quick_path: Path) -> Path:
    """Return the directory around ``d1`` and ``d2``, which are backed up to ``repo``."""
    write_two_disks(quick_path)
    shutil.rmtree(quick_path / "model")
    assert not run_kdump(["backup", "create", "repo", "d1", "d2"], quick_path).exit_status
    return quick_path


LIST: Final = ("backup", "list", "repo", "--output=jsonl")


def kdump(folder: Path, *words: str) -> Outcome:
    return run_kdump(words, folder)


def test_a_command_that_takes_one_log_directory_wants_its_name(folder: Path) -> None:
    outcome = kdump(folder, "copy", "repo!latest", "new")
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"has several log directories: name one: repo!2" in outcome.stderr
    place = f"repo!latest{folder}/d1"
    assert kdump(folder, "copy", place, "new").exit_status == 0
    assert kdump(folder, "diff", "new", "d1").exit_status == 0


def test_a_snapshot_that_does_not_exist_is_answered_with_those_that_do(folder: Path) -> None:
    there = [each["snapshot"] for each in objects(kdump(folder, *LIST).stdout)]
    outcome = kdump(folder, "ls", "repo!nope")
    assert outcome.exit_status == ExitStatus.USAGE
    said = outcome.stderr.decode()
    assert f"no snapshot begins with 'nope': there is {there[-1]};" in said


def test_each_log_directory_of_a_snapshot_can_be_named(folder: Path) -> None:
    listed = objects(kdump(folder, "ls", "--output=jsonl", f"repo!latest{folder}/d2/").stdout)
    expected = objects(kdump(folder, "ls", "--output=jsonl", "d2").stdout)
    assert [each.get("directory") for each in listed] == [
        each.get("directory") for each in expected
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("running_spark")
def test_a_query_takes_all_log_directories_of_a_snapshot(folder: Path) -> None:
    words = ["query", "--output=jsonl", "SELECT count(*) FROM records"]
    found = kdump(folder, *words, "repo!latest")
    assert found.exit_status == 0, found.stderr
    assert found.stdout == kdump(folder, *words, "d1", "d2").stdout


def test_the_library_takes_all_log_directories_of_a_snapshot(folder: Path) -> None:
    found = open_log_dir(f"{folder}/repo!latest")
    assert len(found.paths) == 2
    one = open_log_dir(f"{folder}/repo!latest{folder}/d1")
    here = open_log_dir(folder / "d1")
    assert [each.bounds() for each in one.partitions] == [each.bounds() for each in here.partitions]


@pytest.mark.parametrize("line", ["ls", "grep x", "query SELECT(1)", "dump-segment"])
def test_a_snapshot_is_not_read_while_snapshots_are_removed(folder: Path, line: str) -> None:
    lock = lock_directory(folder / "repo/data")
    outcome = kdump(folder, *line.split(), "repo!latest")
    close_kept(lock)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"another kdump removes snapshots from this repository" in outcome.stderr


@pytest.mark.parametrize("command", [["ls"], ["grep", "x"], ["verify"]])
def test_nothing_is_removed_while_a_snapshot_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    entries = SnapshotPlace.entries
    tried = []

    def listed(place: SnapshotPlace, path: str) -> list[Entry]:
        with contextlib.suppress(BlockingIOError):
            close_kept(lock_directory(folder / "repo/data"))
            tried.append("removed")
        return entries(place, path)

    monkeypatch.setattr(SnapshotPlace, "entries", listed)
    kdump(folder, *command, "repo!latest")
    assert not tried
    close_kept(lock_directory(folder / "repo/data"))  # released at the end


def test_a_repository_that_cannot_be_locked_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("kdump.repository.repository_locks.lock_directory", refused)
    assert kdump(folder, "ls", "repo!latest").exit_status == 0


def test_what_is_damaged_in_a_repository_is_said_and_the_rest_is_read(folder: Path) -> None:
    place = f"repo!latest{folder}/d1"
    listed = objects(kdump(folder, "ls", "--output=jsonl", place).stdout)
    harmed = _document(folder, "users-0")
    harmed.unlink()
    outcome = kdump(folder, "ls", "--output=jsonl", place)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    said = outcome.stderr.decode()
    assert re.search(rf"repo!\S+/d1/users-0: \S*{harmed.name}: missing", said), said
    left = objects(outcome.stdout)
    assert [each for each in listed if each.get("topic") != "users"][1:-1] == [
        each for each in left if each.get("topic") != "users"
    ][1:-1]


def _document(folder: Path, name: str) -> Path:
    """The piece that describes a partition of ``d1``."""
    snapshot = next((folder / "repo/snapshots").iterdir())
    log_dirs = json.loads(snapshot.read_bytes())["log_dirs"]
    root = next(each["root"]["sha256"] for each in log_dirs if each["path"].endswith("/d1"))
    document = json.loads(_piece(folder, root).read_bytes())
    return next(
        _piece(folder, each["sha256"]) for each in document["directories"] if each["name"] == name
    )


def _piece(folder: Path, sha256: str) -> Path:
    return folder / "repo/data" / sha256[:2] / sha256


def test_two_snapshots_of_one_moment_are_told_apart_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.cli.commands.backup.current_time_ms", lambda: 1_790_000_000_123)
    for log_dir in ("d1", "d2"):
        assert not kdump(folder, "backup", "create", "second", log_dir).exit_status
    names = sorted(each.stem for each in (folder / "second/snapshots").iterdir())
    assert names[0].rpartition("-")[0] == names[1].rpartition("-")[0]
    ambiguous = kdump(folder, "ls", f"second!{names[0].rpartition('-')[0]}")
    assert b"2 snapshots begin" in ambiguous.stderr
    for name in names:
        assert kdump(folder, "ls", f"second!{name}").exit_status == 0


def test_the_latest_is_not_known_while_one_has_a_later_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("kdump.cli.commands.backup.current_time_ms", lambda: 4_000_000_000_000)
        kdump(folder, "backup", "create", "repo", "d1")
    outcome = kdump(folder, "ls", "repo!latest")
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"name a snapshot instead of the latest" in outcome.stderr
    assert kdump(folder, "ls", "repo!2096").exit_status == 0
