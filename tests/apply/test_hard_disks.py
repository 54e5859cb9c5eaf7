"""Full, unreadable and read-only disks: kdump loses no data."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pickle
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from builders.compactable_directories import NOW_MS, last_values, plain_directory
from builders.freeing import EVERY_TOPIC
from builders.in_process import Outcome, run_kdump
from builders.log_dir_trees import original_of, seen_by_broker
from builders.mounts import mounted
from builders.recover_for_differ import recover as load_as_a_broker
from builders.recovery import log_name
from builders.repair_cases import PARTITION, bad_batch_in_the_middle
from builders.runbook import Followed
from builders.trees import Seen, tree_of
from builders.volatile_files import Stopped, VolatileFiles
from builders.written_files import plan_of, write_files
from kdump.apply.apply import apply_plan
from kdump.apply.files import free_bytes_at
from kdump.apply.undo import undo
from kdump.errors import KdumpError
from kdump.formats import names
from kdump.log.partition import read_partition
from kdump.storage.local_disk import LocalFile, local
from kdump.target.target_file import CopiedFrom, JoinedFrom

PAGE_BYTES = 4096
NOBODY = 65534


def kdump(*args: str | Path) -> Outcome:
    return run_kdump([*map(str, args)], Path.cwd())


def recover(*args: str | Path) -> Outcome:
    return kdump("recover", *args)


def all_but_lock(log_dir: Path) -> dict[str, Seen]:
    """Look at everything; the lock that a crash had left goes when another one is given back."""
    return {name: each for name, each in original_of(log_dir).items() if name != names.LOCK_FILE}


# ---- Full ----


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of two megabytes."""
    path = tmp_path / "disk"
    path.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=2m", "kdump-test", at=path):
        yield path


def fill(disk: Path, *, but_pages: int) -> Path:
    """Fill the disk except for a few pages."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):  # that there is no space left
            while file.write(b"x" * PAGE_BYTES):
                pass
        file.truncate((file.tell() // PAGE_BYTES - but_pages) * PAGE_BYTES)
    return filler


def test_on_a_full_disk_nothing_is_started(small_disk: Path) -> None:
    log_dir = small_disk / "logs"
    bad_batch_in_the_middle(log_dir)
    before = all_but_lock(log_dir)
    filler = fill(small_disk, but_pages=0)

    outcome = recover(log_dir)

    assert outcome.exit_status == 8
    said = rb"needs [0-9]+ bytes of free space, has 0; nothing has been changed; free some space"
    assert re.search(said, outcome.stderr)
    assert b"--no-undo" not in outcome.stderr  # without undo data it needs space, too
    without_undo = recover("--no-undo", log_dir)
    assert without_undo.exit_status == 8
    assert b"free some space, or select fewer partitions" in without_undo.stderr
    assert all_but_lock(log_dir) == before
    filler.unlink()
    assert recover(log_dir).exit_status & 8 == 0


def test_a_disk_that_fills_up_meanwhile_leaves_the_directory_unchanged(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = small_disk / "logs"
    bad_batch_in_the_middle(log_dir)
    before = all_but_lock(log_dir)
    # Space that is free at first is used up later.
    real = os.statvfs(small_disk)
    monkeypatch.setattr(os, "statvfs", lambda _: real)
    statuses = []
    for pages in range(40):
        filler = fill(small_disk, but_pages=pages)
        outcome = recover(log_dir)
        filler.unlink()
        statuses.append(outcome.exit_status)
        if outcome.exit_status != 8:
            break
        assert b"No space left on device" in outcome.stderr
        said = rb"(nothing has been changed|as it was); needs [0-9]+ bytes of free space"
        assert re.search(said, outcome.stderr), outcome.stderr
        assert all_but_lock(log_dir) == before, pages
    assert len(statuses) > 2
    assert statuses[-1] & 8 == 0


def compact(root: Path, *options: str) -> Outcome:
    return kdump("compact", root, "--topic=a", "--topic=b", "--force", *options)


def take_inodes(disk: Path, *, but: int) -> Path:
    """Create files until ``but`` more fit."""
    taken = disk / "taken"
    taken.mkdir()
    with contextlib.suppress(OSError):  # that there are no inodes left
        for number in itertools.count():
            (taken / str(number)).touch()
    for each in list(taken.iterdir())[:but]:
        each.unlink()
    return taken


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--undo",)], ids=["no-undo", "undo"])
def test_without_inodes_a_compaction_leaves_nothing_behind(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=20m,nr_inodes=100", "kdump-test", at=disk):
        root = plain_directory(disk / "logs", ("a", "b"))
        said = ""
        for free in range(40):
            taken = take_inodes(disk, but=free)
            outcome = compact(root, *options)
            shutil.rmtree(taken)
            assert not list(root.rglob("*.cleaned")), free
            said += outcome.stderr.decode()
            if outcome.exit_status == 0:
                break
        assert "so inodes (see df -i) or a quota are exhausted" in said
        assert ("or run it with --no-undo" in said) == bool(options)


def test_after_a_recovery_nothing_is_called_unchanged(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=20m,nr_inodes=100", "kdump-test", at=disk):
        root = plain_directory(disk / "logs", ("a", "b"))
        saved = tmp_path / "saved"
        shutil.copytree(root, saved)
        said = []
        for free in range(4, 20):
            shutil.rmtree(root)
            shutil.copytree(saved, root)
            (root / names.CLEAN_SHUTDOWN_MARKER).unlink()
            taken = take_inodes(disk, but=free)
            outcome = compact(root, "--recover")
            shutil.rmtree(taken)
            if (root / names.CLEAN_SHUTDOWN_MARKER).exists() and outcome.exit_status & 8:
                said.append(outcome.stderr.decode())
        assert said
        for each in said:
            assert "nothing has been changed" not in each
            assert "change made" in each or "changes made" in each


def test_on_a_full_disk_leftover_files_are_deleted_first(small_disk: Path) -> None:
    root = plain_directory(small_disk / "logs", ("a", "b"))
    first, *_, last = sorted((root / "a-0").glob("*.log"))
    fill(small_disk, but_pages=0)
    assert free_bytes_at(root) == 0

    freed = kdump("retain", *EVERY_TOPIC, "--free", "3000", root)

    assert freed.exit_status == 0, freed.stderr
    assert free_bytes_at(root) > 0
    assert not first.exists()
    assert last.exists()
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert kdump("verify", root).exit_status == 0


def test_on_a_disk_that_is_almost_full_compaction_frees_space(small_disk: Path) -> None:
    root = plain_directory(small_disk / "logs", ("a", "b"), segments=5)
    expected = last_values(root / "a-0")
    fill(small_disk, but_pages=300)
    before = free_bytes_at(root)

    assert (
        kdump(
            "compact", *EVERY_TOPIC, "--config=cleanup.policy=compact", "--now", str(NOW_MS), root
        ).exit_status
        == 0
    )

    assert free_bytes_at(root) > before
    assert last_values(root / "a-0") == {k: v for k, v in expected.items() if k is not None}
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert kdump("verify", root).exit_status == 0


def test_on_a_full_disk_nothing_is_deleted_that_an_undo_needs(small_disk: Path) -> None:
    root = plain_directory(small_disk / "logs")
    fill(small_disk, but_pages=0)
    before = original_of(root)

    outcome = kdump("retain", *EVERY_TOPIC, "--free", "1", "--undo", root)

    assert outcome.exit_status == 8
    assert b"nothing has been changed" in outcome.stderr
    assert original_of(root) == before


@pytest.mark.parametrize("at", range(4))
def test_an_interruption_during_early_removals_affects_only_leftover_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    root = plain_directory(tmp_path / "logs")
    attic = tmp_path / "attic"
    attic.mkdir()
    files = VolatileFiles(root, attic, stop_after=at)
    monkeypatch.setattr("kdump.apply.disk_space.free_bytes_at", lambda _: 0)
    monkeypatch.setattr("kdump.jobs.writing.execution.apply_plan", partial(apply_plan, files=files))
    expected = last_values(root / "users-0")

    with pytest.raises(Stopped):
        kdump("retain", *EVERY_TOPIC, "--free", "1", root)

    monkeypatch.undo()
    assert kdump("retain", *EVERY_TOPIC, "--free", "1", root).exit_status == 0
    assert not read_partition(local(root / "users-0"), None).leftovers
    assert kdump("verify", root).exit_status == 0
    assert last_values(root / "users-0") == {k: v for k, v in expected.items() if k is not None}


def test_an_undo_on_a_full_disk_changes_nothing_and_takes_no_space(small_disk: Path) -> None:
    log_dir = small_disk / "logs"
    name = log_name(0)
    write_files(log_dir, {name: b"a" * 100_000})
    with (log_dir / PARTITION / name).open("r+b") as file:
        file.seek(1_100_000)  # a hole, so that the file fits the disk twice
        file.write(b"b" * 100_000)
    before = seen_by_broker(log_dir)
    kept = JoinedFrom((CopiedFrom(name, 0, 100_000),))
    apply_plan(plan_of(log_dir, {name: kept}), keep_undo=True, command="kdump recover")
    after = original_of(log_dir)
    filler = fill(small_disk, but_pages=30)
    free_bytes = free_bytes_at(small_disk)

    with pytest.raises(KdumpError, match="No space left on device; nothing has been changed"):
        undo(log_dir)

    assert original_of(log_dir) == after
    assert free_bytes_at(small_disk) == free_bytes
    filler.unlink()
    undo(log_dir)
    assert seen_by_broker(log_dir) == before


# ---- Full after an unclean shutdown ----


def with_leftovers(log_dir: Path) -> Path:
    """A damaged directory in which files wait for their deletion, and a deleted topic."""
    bad_batch_in_the_middle(log_dir)
    for number in range(3):
        (log_dir / PARTITION / f"{log_name(number)}.deleted").write_bytes(b"x" * 20_000)
        (log_dir / PARTITION / f"{log_name(300 + number)}.cleaned").write_bytes(b"x" * 20_000)
        (log_dir / PARTITION / f"{log_name(300 + number)}.swap").write_bytes(b"x" * 20_000)
    gone = log_dir / "gone-0.184f5a4c945d4277a4671794019b3c74-delete"
    gone.mkdir()
    (gone / log_name(0)).write_bytes(b"x" * 20_000)
    return log_dir


@pytest.mark.slow
def test_the_runbook_works_on_a_full_disk_from_its_first_line(
    small_disk: Path, tmp_path: Path, fixtures: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=86400000\n")
    crashed = map(str, (fixtures / "out/crashed").glob("d*"))
    copy = ["cp", "-a", "--sparse=always", *crashed, str(small_disk)]
    subprocess.run(copy, check=True)
    log_dirs = [small_disk / "d2", small_disk / "d1"]
    assert [*log_dirs[1].glob("*/*.deleted")]
    fill(small_disk, but_pages=0)

    both = shlex.join(map(str, log_dirs))
    followed = Followed("disk-full", tmp_path, {"FILE": properties, "DIR...": both})
    steps = ("verify", "ls", "query", "recover", "recover", "resolve")
    changes = ("retain", "retain", "compact", "compact")
    for outcome in followed.run(*steps, *changes):
        assert outcome.exit_status & 24 == 0, outcome.stderr
    assert len(followed.left) == 1

    assert free_bytes_at(small_disk) > 100_000
    for log_dir in log_dirs:
        assert (log_dir / names.CLEAN_SHUTDOWN_MARKER).exists()
        assert not (log_dir / names.LOCK_FILE).exists()
    assert kdump("verify", *log_dirs).exit_status == 0


def test_only_as_many_files_are_deleted_early_as_needed(small_disk: Path) -> None:
    log_dir = with_leftovers(small_disk / "logs")
    fill(small_disk, but_pages=0)
    outcome = kdump("resolve", "--no-undo", log_dir)
    assert outcome.exit_status == 1, outcome.stderr
    assert not [*log_dir.glob("*/*.deleted"), *log_dir.glob("*/*.cleaned")]


def test_with_an_undo_a_full_disk_is_left_unchanged(small_disk: Path) -> None:
    log_dir = with_leftovers(small_disk / "logs")
    before = all_but_lock(log_dir)
    fill(small_disk, but_pages=0)

    outcome = recover(log_dir)

    assert outcome.exit_status == 8
    assert b"no space for undo data; nothing has been changed" in outcome.stderr
    assert b"--no-undo" in outcome.stderr
    assert all_but_lock(log_dir) == before


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files after a recovery with enough space."""
    log_dir = with_leftovers(tmp_path_factory.mktemp("roomy") / "logs")
    assert recover("--no-undo", "--now", str(NOW_MS), log_dir).exit_status == 1
    return seen_by_broker(log_dir)


@pytest.mark.slow
@pytest.mark.parametrize("at", range(13))
def test_after_an_interruption_during_early_removals_the_next_run_has_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, recovered: dict[str, bytes]
) -> None:
    log_dir = with_leftovers(tmp_path / "logs")
    attic = tmp_path / "attic"
    attic.mkdir()
    files = VolatileFiles(log_dir, attic, stop_after=at)
    # There is enough space once half of the leftover files are deleted.
    rooms = itertools.chain([0] * 5, itertools.repeat(1 << 30))
    monkeypatch.setattr("kdump.apply.disk_space.free_bytes_at", lambda _: next(rooms))
    monkeypatch.setattr("kdump.jobs.writing.execution.apply_plan", partial(apply_plan, files=files))
    with pytest.raises(Stopped):
        recover("--no-undo", "--now", str(NOW_MS), log_dir)
    monkeypatch.undo()

    as_left = shutil.copytree(log_dir, tmp_path / "as-left")
    assert recover("--no-undo", "--now", str(NOW_MS), log_dir).exit_status in (0, 1)
    assert seen_by_broker(log_dir) == recovered
    # A broker that is started instead finds every valid batch that it would have kept.
    load_as_a_broker(as_left)
    logs = {name: data for name, data in recovered.items() if name.endswith(".log")}
    assert {name: seen_by_broker(as_left).get(name) for name in logs} == logs


# ---- Unreadable ----


def test_a_read_error_in_a_segment_leaves_its_partition_and_the_others_are_repaired(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = quick_path / "logs"
    bad_batch_in_the_middle(log_dir)
    bad, at = log_dir / PARTITION / log_name(120), 1000
    before, others = original_of(log_dir), tree_of(log_dir / "other-0")
    read_into = LocalFile.read_into

    def failing(source: LocalFile, buffer: memoryview, position: int) -> int:
        if source.location.local_path.samefile(bad) and position <= at < position + len(buffer):
            what = f"{os.strerror(errno.EIO)} (reading at byte {at})"
            raise OSError(errno.EIO, what, str(source.location.local_path))
        return read_into(source, buffer, position)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFile, "read_into", failing)
        outcome = recover(log_dir)

    assert outcome.exit_status & 8
    assert f"{bad} cannot be read".encode() in outcome.stdout + outcome.stderr
    assert b"(reading at byte 1000)" in outcome.stdout + outcome.stderr
    now = original_of(log_dir)
    for name, seen in before.items():
        if name.startswith(f"{PARTITION}/"):
            assert now[name] == seen
    assert tree_of(log_dir / "other-0") != others
    assert not (log_dir / names.CLEAN_SHUTDOWN_MARKER).exists()
    # If the disk returns the data later, nothing has been lost.
    assert recover(log_dir).exit_status & 8 == 0
    assert (log_dir / names.CLEAN_SHUTDOWN_MARKER).exists()


# ---- Read-only ----


def as_nobody(args: list[str]) -> Outcome:
    """Run kdump in a child that has no rights but those of all; without root, in a mere child."""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if not child:
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                # What the answer is taken down in must be a place for everybody, too.
                tempfile.tempdir = "/dev/shm" if Path("/dev/shm").is_dir() else None
                pickle.dump(run_kdump(args, Path("/")), answer)
                answer.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        answer.seek(0)
        outcome = pickle.load(answer)
    assert isinstance(outcome, Outcome)
    return outcome


def test_a_directory_without_write_permission_is_left_unchanged_with_advice(
    quick_path: Path,
) -> None:
    log_dir = quick_path / "logs"
    bad_batch_in_the_middle(log_dir)
    quick_path.chmod(0o755)
    for folder in (log_dir, *filter(Path.is_dir, log_dir.iterdir())):
        folder.chmod(0o555)
    before = seen_by_broker(log_dir)
    # All that is imported later is now, because nobody may not be allowed to read it.
    shutil.copytree(log_dir, quick_path / "copy", copy_function=shutil.copyfile)
    assert recover(quick_path / "copy").exit_status & 8 == 0

    assert as_nobody(["recover", "--dry-run", str(log_dir)]).exit_status == 4
    outcome = as_nobody(["recover", str(log_dir)])

    assert outcome.exit_status == 8
    assert f"{log_dir}".encode() in outcome.stderr
    assert b"Permission denied" in outcome.stderr
    assert seen_by_broker(log_dir) == before
    for folder in (log_dir, *filter(Path.is_dir, log_dir.iterdir())):
        folder.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("args", [(), ("--no-undo",)], ids=["with an undo", "without"])
@pytest.mark.parametrize("pattern", [f"{PARTITION}/*.log", PARTITION])
def test_missing_write_permission_is_detected_before_anything_changes(
    quick_path: Path, pattern: str, args: tuple[str, ...]
) -> None:
    log_dir = quick_path / "logs"
    bad_batch_in_the_middle(log_dir)
    quick_path.chmod(0o755)
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    for path in log_dir.glob(pattern):
        path.chmod(path.stat().st_mode & ~0o222)
    before = seen_by_broker(log_dir)
    # All that is imported later is now, because nobody may not be allowed to read it.
    shutil.copytree(log_dir, quick_path / "copy", copy_function=shutil.copyfile)
    assert recover(quick_path / "copy").exit_status & 8 == 0

    outcome = as_nobody(["recover", *args, str(log_dir)])

    assert outcome.exit_status == 8
    assert b"Permission denied; nothing has been changed" in outcome.stderr
    assert seen_by_broker(log_dir) == before
    (log_dir / PARTITION).chmod(0o755)
