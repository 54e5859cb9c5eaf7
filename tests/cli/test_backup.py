"""``kdump backup``: every snapshot is restored byte for byte, whatever happened meanwhile."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.killed_process import CHANGES, KillableKdump, changes_of
from builders.lock_holder import held_elsewhere
from builders.log_directories import TOPIC_ID
from builders.metadata_log import topic_record, write_metadata_log
from builders.samples import at_some_or_all, moments_of, seeds
from builders.trees import tree_of
from builders.two_disks import write_two_disks
from kdump.apply.directory_lock import lock_directory
from kdump.apply.files import Files
from kdump.errors import ExitStatus
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.snapshot_writer import SnapshotHead, encode_snapshot
from kdump.jobs.backup import prune
from kdump.processes.worker_pool import close_kept
from kdump.repository.repository_writer import RepositoryWriter
from kdump.storage.sparse_writer import SparseWriter, WriteFailedError

LOG: Final = f"users-0/{0:020d}.log"


@pytest.fixture
def folder(quick_path: Path) -> Path:
    """Return the directory around ``d1``, which is to be backed up."""
    write_two_disks(quick_path / "node")
    shutil.rmtree(quick_path / "node/model")
    return quick_path / "node"


def backup(folder: Path, *args: str) -> Outcome:
    return run_kdump(["backup", *args], folder)


def rows(folder: Path, *args: str) -> list[dict[str, Any]]:
    return objects(backup(folder, *args, "--output", "jsonl").stdout)


def created(folder: Path, *log_dirs: str) -> dict[str, Any]:
    return rows(folder, "create", "repo", *(log_dirs or ("d1",)))[-1]


def pieces(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "repo/data").rglob("*") if path.is_file())


def test_a_snapshot_is_restored_byte_for_byte_with_modes_and_times(folder: Path) -> None:
    (folder / "d1/users-0/odd name").write_bytes(b"mine" * 1000)
    (folder / "d1/users-0/odd name").chmod(0o640)
    (folder / "d1/inner/empty").mkdir(parents=True)
    (folder / "d1/inner").chmod(0o750)
    before = tree_of(folder / "d1")
    assert backup(folder, "create", "repo", "d1").exit_status == 0
    assert tree_of(folder / "d1") == before
    assert backup(folder, "restore", "repo", "--into", "new").exit_status == 0
    assert tree_of(folder / "new") == before


def test_times_that_64_bits_of_nanoseconds_cannot_have_are_restored(folder: Path) -> None:
    for name in (LOG, "users-0", "."):
        os.utime(folder / "d1" / name, (10_000_000_000, 10_000_000_000))
    created(folder)
    assert created(folder)["read_files"] == 0
    assert backup(folder, "check", "repo").exit_status == 0
    assert backup(folder, "prune", "repo", "--keep-last", "1").exit_status == 0
    assert backup(folder, "restore", "repo", "--into", "new").exit_status == 0
    assert tree_of(folder / "new") == tree_of(folder / "d1")
    assert backup(folder, "restore", "repo", "--into", "new").exit_status == 0


def test_a_snapshot_of_a_directory_with_a_negative_node_id_is_restored(folder: Path) -> None:
    (folder / "d1/meta.properties").write_text("version=1\ncluster.id=c\nnode.id=-1\n")
    created(folder)
    assert backup(folder, "restore", "repo", "--into", "new").exit_status == 0


def test_a_topic_is_restored_with_its_lines_of_the_checkpoints(folder: Path) -> None:
    created(folder)
    before = tree_of(folder / "d1")
    restored = backup(folder, "restore", "repo", "--topic", "users", "--into", "new")
    assert restored.exit_status == 0, restored.stderr
    after = tree_of(folder / "new")
    assert {path for path in after if path.startswith("users-0")} == {
        path for path in before if path.startswith("users-0")
    }
    assert not [path for path in after if path.startswith("orders")]
    assert [path for path in before if path.startswith("orders")]
    for name in names.OFFSET_CHECKPOINTS & before.keys():
        lines = decode_offset_checkpoint((folder / "d1" / name).read_bytes())
        kept = decode_offset_checkpoint((folder / "new" / name).read_bytes())
        assert kept == [each for each in lines if each.topic_partition.topic == "users"]
    assert run_kdump(["verify", "new"], folder).exit_status == 0


def test_a_restore_leaves_out_the_log_directories_that_have_nothing_selected(folder: Path) -> None:
    created(folder, "d1", "d2")
    assert not backup(folder, "restore", "repo", "--topic=other", "--into", "new").exit_status
    assert (folder / "new/other-0").is_dir()


def test_a_restore_of_nothing_is_refused(folder: Path) -> None:
    created(folder)
    nothing = backup(folder, "restore", "repo", "--topic", "nope", "--into", "new")
    assert nothing.exit_status == ExitStatus.USAGE
    assert b"matches --topic nope" in nothing.stderr
    assert not (folder / "new").exists()


def test_a_log_directory_without_the_selected_partitions_is_named(folder: Path) -> None:
    created(folder, "d1", "d2")
    d1, d2 = str(folder / "d1"), str(folder / "d2")
    words = ("restore", "--topic", "other", "--into", "new", "repo")
    for chosen, status in ((d1, ExitStatus.USAGE), (d2, ExitStatus.SOUND)):
        outcome = backup(folder, *words, "--log-dir", chosen)
        assert outcome.exit_status == status
        wanted = f"kdump: --log-dir: no selected partition is there, but in {d2}\n"
        assert outcome.stderr.decode() == (wanted if chosen == d1 else "")


def test_nothing_is_read_again_that_has_not_changed(folder: Path) -> None:
    first = created(folder)
    assert first["read_files"] == first["files"]
    stored = pieces(folder)
    second = created(folder)
    assert (second["read_files"], second["added_bytes"]) == (0, 0)
    assert pieces(folder) == stored


def test_only_what_was_appended_is_added(folder: Path) -> None:
    log = folder / "d1" / LOG
    log.write_bytes(log.read_bytes() * 50)
    created(folder)
    size_bytes = log.stat().st_size
    with log.open("ab") as stream:
        stream.write(bytes(range(256)) * 8)
    before = set(pieces(folder))
    created(folder)
    sizes = [path.stat().st_size for path in set(pieces(folder)) - before]
    assert 2048 in sizes
    assert max(sizes) < size_bytes
    backup(folder, "restore", "repo", "--into", "new")
    assert tree_of(folder / "new") == tree_of(folder / "d1")


def test_the_same_bytes_of_replicas_are_stored_once(folder: Path) -> None:
    shutil.copytree(folder / "d1", folder / "d2", dirs_exist_ok=True)
    shutil.rmtree(folder / "d2")
    shutil.copytree(folder / "d1", folder / "d2")
    log = folder / "d1" / LOG
    log.write_bytes(log.read_bytes() * 50)
    shutil.copyfile(log, folder / "d2" / LOG)
    created(folder, "d1", "d2")
    assert sum(path.stat().st_size == log.stat().st_size for path in pieces(folder)) == 1


@pytest.mark.parametrize("seed", seeds(1, count=20, in_main=4))
def test_every_snapshot_of_a_changing_directory_is_restored(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = folder / "d1"
    expected = []
    for _ in range(5):
        for _ in range(chance.randrange(4)):
            files = sorted(path for path in root.rglob("*") if path.is_file())
            path = chance.choice(files)
            kind = chance.randrange(5)
            if kind == 0:
                path.write_bytes(path.read_bytes() + chance.randbytes(chance.randrange(5000)))
            elif kind == 1:
                path.write_bytes(path.read_bytes()[: chance.randrange(3000)])
            elif kind == 2:
                path.unlink()
            elif kind == 3:
                path.with_name(f"new-{chance.randrange(9)}").write_bytes(chance.randbytes(3000))
            else:
                path.write_bytes(chance.randbytes(path.stat().st_size))
        said = created(folder)
        assert said["snapshot"] is not None
        expected.append((said["snapshot"], tree_of(root)))
    for number, (name, found) in enumerate(expected):
        backup(folder, "restore", "repo", "--snapshot", name, "--into", f"new{number}")
        assert tree_of(folder / f"new{number}") == found
    assert backup(folder, "check", "repo").exit_status == 0
    assert backup(folder, "prune", "repo", "--keep-last", "2").exit_status == 0
    assert expected[-1][0] in {row["snapshot"] for row in rows(folder, "list", "repo")}
    require_restorable(folder, dict(expected))


def test_damage_is_stored_as_it_is_and_named(folder: Path) -> None:
    log = folder / "d1" / LOG
    log.write_bytes(log.read_bytes()[:-1] + b"!")
    for _ in range(2):
        outcome = backup(folder, "create", "repo", "d1")
        assert outcome.exit_status == ExitStatus.DAMAGE_LEFT
        assert LOG.encode() in outcome.stdout
    assert [row["damaged_files"] for row in rows(folder, "list", "repo")] == [1, 1]
    outcome = backup(folder, "restore", "repo", "--into", "new")
    assert outcome.exit_status == ExitStatus.DAMAGE_LEFT
    assert tree_of(folder / "new") == tree_of(folder / "d1")


def test_a_damaged_snapshot_of_the_metadata_is_stored_as_it_is_and_named(folder: Path) -> None:
    values = [topic_record("orders", TOPIC_ID.int)]
    metadata = write_metadata_log(folder / "d1", values)
    *batches, _ = encode_snapshot(SnapshotHead(0, 0, 0), values)
    snapshot = metadata.path.local_path / "00000000000000000001-0000000000.checkpoint"
    snapshot.write_bytes(b"".join(batches))
    for _ in range(2):
        outcome = backup(folder, "create", "repo", "d1")
        assert outcome.exit_status == ExitStatus.DAMAGE_LEFT
        assert snapshot.name.encode() in outcome.stdout


@pytest.mark.parametrize("harm", ["flip", "lose", "shorten"])
def test_a_damaged_piece_is_found_by_a_check_and_not_restored(folder: Path, harm: str) -> None:
    (folder / "d1/users-0/notes").write_bytes(b"mine" * 1000)
    created(folder)
    piece = next(path for path in pieces(folder) if path.read_bytes() == b"mine" * 1000)
    content = piece.read_bytes()
    if harm == "lose":
        piece.unlink()
    else:
        piece.write_bytes(b"M" + content[1:] if harm == "flip" else content[1:])
    outcome = backup(folder, "check", "repo")
    assert outcome.exit_status == ExitStatus.DAMAGE_LEFT
    assert b"users-0/notes" in outcome.stdout
    outcome = backup(folder, "restore", "repo", "--into", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"users-0/notes" in outcome.stderr
    assert not (folder / "new/users-0/notes").exists()
    assert (folder / "new/.kdump_copy").exists()
    piece.write_bytes(content)
    assert backup(folder, "restore", "repo", "--into", "new").exit_status == 0
    assert tree_of(folder / "new") == tree_of(folder / "d1")


def test_what_was_damaged_in_a_repository_is_stored_again_once_it_is_out_of_the_way(
    folder: Path,
) -> None:
    notes = folder / "d1/users-0/notes"
    notes.write_bytes(b"mine" * 1000)
    created(folder)
    notes.write_bytes(b"mine" * 1000 + bytes(2000))
    name = created(folder)["snapshot"]
    piece = next(path for path in pieces(folder) if path.read_bytes() == bytes(2000))
    damaged = piece.with_name(f"{piece.name}.damaged")
    piece.rename(damaged)
    damaged.write_bytes(b"!" + bytes(1999))
    assert name in backup(folder, "check", "repo").stdout.decode()
    assert created(folder)["snapshot"] is not None
    assert backup(folder, "restore", "repo", "--into", "new").exit_status == 0
    assert tree_of(folder / "new") == tree_of(folder / "d1")


def test_repair_makes_way_for_what_a_log_directory_still_has(folder: Path) -> None:
    created(folder)
    for piece in pieces(folder):
        content = piece.read_bytes()
        piece.write_bytes(b"!" + content[1:])
        outcome = backup(folder, "check", "repo", "--repair")
        assert outcome.exit_status == ExitStatus.DAMAGE_LEFT
        damaged = piece.with_name(f"{piece.name}.damaged")
        assert f"renamed to {damaged}\n" in outcome.stdout.decode()
        assert damaged.read_bytes() == b"!" + content[1:]
        assert created(folder)["snapshot"] is not None
        assert piece.read_bytes() == content
        assert backup(folder, "check", "repo").exit_status == 0


@pytest.mark.parametrize("kept", [0, 6000, 9000])
def test_pieces_that_are_missing_are_stored_again_from_a_file_that_has_grown(
    folder: Path, kept: int
) -> None:
    notes = folder / "d1/users-0/notes"
    content = random.Random(1).randbytes(12000)
    for size_bytes in (3000, 6000, 9000):
        notes.write_bytes(content[:size_bytes])
        created(folder)
    before = pieces(folder)
    for piece in before:
        if piece.read_bytes() in {content[:3000], content[3000:6000]}:
            piece.unlink()
    notes.write_bytes(content[:kept] + content[kept:][::-1])
    created(folder)
    is_whole = backup(folder, "check", "repo").exit_status == 0
    assert is_whole == (kept >= 6000)
    assert backup(folder, "restore", "repo", "--into", "new").exit_status == 0
    assert tree_of(folder / "new") == tree_of(folder / "d1")


def test_repair_changes_nothing_if_nothing_is_damaged(folder: Path) -> None:
    created(folder)
    before = tree_of(folder)
    assert backup(folder, "check", "repo", "--repair").exit_status == 0
    assert tree_of(folder) == before


def test_repair_refuses_a_repository_that_is_in_use(folder: Path) -> None:
    created(folder)
    lock = lock_directory(folder / "repo")
    outcome = backup(folder, "check", "repo", "--repair")
    close_kept(lock)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"another kdump writes to this repository" in outcome.stderr


def test_a_check_says_how_to_store_again_what_is_damaged_or_missing(folder: Path) -> None:
    (folder / "d1/users-0/notes").write_bytes(b"mine" * 1000)
    created(folder)
    piece = next(path for path in pieces(folder) if path.read_bytes() == b"mine" * 1000)
    piece.write_bytes(b"!")
    assert b"next: kdump backup check --repair repo, then kdump backup create repo with" in (
        backup(folder, "check", "repo").stdout
    )
    assert b"next: kdump backup create repo with" in (
        backup(folder, "check", "repo", "--repair").stdout
    )
    assert b"next: kdump backup create repo with" in backup(folder, "check", "repo").stdout


def test_every_flipped_file_of_a_repository_is_found(folder: Path) -> None:
    created(folder)
    for path in (*pieces(folder), *(folder / "repo/snapshots").iterdir()):
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        outcome = backup(folder, "check", "repo")
        assert outcome.exit_status == ExitStatus.DAMAGE_LEFT, path
        path.write_bytes(content)
    assert backup(folder, "check", "repo").exit_status == 0


def test_a_full_disk_keeps_what_is_stored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "d1/users-0/notes").write_bytes(b"mine" * 1000)
    with monkeypatch.context() as patch:

        def fail(self: SparseWriter, data: memoryview) -> None:
            raise WriteFailedError(OSError(errno.ENOSPC, "No space left on device"))

        patch.setattr(SparseWriter, "write", fail)
        outcome = backup(folder, "create", "repo", "d1")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"No space left on device; no snapshot was made" in outcome.stderr
    assert rows(folder, "list", "repo") == []
    assert created(folder)["snapshot"] is not None


@pytest.mark.slow
@at_some_or_all
@pytest.mark.parametrize("command", ["create", "restore"])
def test_a_disk_that_is_full_at_any_change_ends_the_run_and_the_next_goes_on(
    folder: Path, command: str, *, is_all: bool
) -> None:
    if command == "create":
        args, made = ["create", "repo", "d1"], folder / "repo"
    else:
        args, made = ["restore", "repo", "--into", "new"], folder / "new"
        created(folder)
    count = changes_of(lambda: backup(folder, *args))
    for at in moments_of(range(count), is_all=is_all):
        shutil.rmtree(made)
        with full_from(at) as failed:
            outcome = backup(folder, *args)
        if not failed:
            continue  # nothing but deletions was left
        assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
        assert b"No space left on device" in outcome.stderr
        assert b"Traceback" not in outcome.stderr
        assert backup(folder, *args).exit_status == 0
        assert backup(folder, "check", "repo").exit_status == 0
        shutil.rmtree(folder / "other", ignore_errors=True)
        backup(folder, "restore", "repo", "--into", "other")
        assert tree_of(folder / "other") == tree_of(folder / "d1")
        if command == "restore":
            assert tree_of(folder / "new") == tree_of(folder / "d1")


@contextlib.contextmanager
def full_from(at: int) -> Iterator[list[str]]:
    """Let changes from number ``at`` on find a full disk, but those that free space."""
    left = at
    failed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            change = getattr(Files, name)

            def changed(
                disk: Files, *args: Any, change: Callable[..., None] = change, name: str = name
            ) -> None:
                nonlocal left
                if not left and name not in ("unlink", "remove_directory"):
                    failed.append(name)
                    raise OSError(errno.ENOSPC, "No space left on device")
                left = max(0, left - 1)
                change(disk, *args)

            patch.setattr(Files, name, changed)
        yield failed


@pytest.mark.slow
def test_directories_of_real_brokers_are_restored_byte_for_byte(
    folder: Path, fixtures: Path
) -> None:
    """Stopped cleanly and killed, from Kafka 0.8 to 4.4."""
    log_dirs = sorted(path.parent for path in fixtures.rglob("meta.properties"))
    targets = [f"restored/{number}" for number in range(len(log_dirs))]
    (folder / "restored").mkdir()
    backup(folder, "create", "repo", *map(str, log_dirs))
    assert backup(folder, "check", "repo").exit_status == 0
    intos = [word for target in targets for word in ("--into", target)]
    restored = backup(folder, "restore", "repo", *intos)
    assert not restored.exit_status & ExitStatus.OPERATIONAL_ERROR
    for log_dir, target in zip(log_dirs, targets, strict=True):
        before = tree_of(log_dir)
        before.pop(".lock", None)  # of a broker that was killed
        assert tree_of(folder / target) == before, log_dir


def test_a_topic_that_was_deleted_and_created_again_is_restored_as_it_was_each_time(
    folder: Path,
) -> None:
    log = folder / "d1" / LOG
    contents = [bytes([number]) * 5000 for number in range(3)]
    contents.append(contents[0][:3000])
    contents.append(contents[3] + b"other" * 1000)
    trees = {}
    for content in contents:
        log.write_bytes(content)
        trees[created(folder)["snapshot"]] = tree_of(folder / "d1")
    for number, (name, expected) in enumerate(trees.items()):
        backup(folder, "restore", "repo", "--snapshot", name, "--into", f"new{number}")
        assert tree_of(folder / f"new{number}") == expected


def test_names_that_are_not_utf_8_are_kept_however_long_they_are(folder: Path) -> None:
    (folder / "d1/users-0" / ("\udcff" * 255)).write_bytes(b"mine" * 1000)
    assert backup(folder, "create", "repo", "d1").exit_status == 0
    assert backup(folder, "restore", "repo", "--into", "new").exit_status == 0
    assert tree_of(folder / "new") == tree_of(folder / "d1")


@pytest.mark.parametrize(
    "name", ["..", "../out", "/out", "users-0/out", "", "out\0", ".lock", ".kdump-copy.jsonl"]
)
def test_a_name_that_leads_out_of_its_directory_is_refused(folder: Path, name: str) -> None:
    (folder / "d1/notes").write_bytes(b"mine" * 1000)
    created(folder)
    forge_root(folder / "repo", b'"notes"', json.dumps(name).encode())
    before = sorted(folder.iterdir())
    outcome = backup(folder, "restore", "repo", "--into", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert sorted(folder.iterdir()) == before


def forge_root(repository: Path, old: bytes, new: bytes) -> None:
    """Replace words in the description of the root of the only log directory; all digests fit."""
    (path,) = (repository / "snapshots").iterdir()
    snapshot = path.read_bytes()
    digest = json.loads(snapshot)["log_dirs"][0]["root"]["sha256"].encode()
    root = (repository / "data" / digest[:2].decode() / digest.decode()).read_bytes()
    assert old in root
    root = root.replace(old, new)
    forged = hashlib.sha256(root).hexdigest()
    (repository / "data" / forged[:2]).mkdir(exist_ok=True)
    (repository / "data" / forged[:2] / forged).write_bytes(root)
    snapshot = snapshot.replace(digest, forged.encode())
    path.unlink()
    end = hashlib.sha256(snapshot).hexdigest()[:8]
    path.with_name(path.name[: -len("01234567.json")] + f"{end}.json").write_bytes(snapshot)


def test_a_restore_that_was_stopped_before_the_next_backup_names_its_snapshot(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ["restore", "repo", "--into", "new1", "--into", "new2"]
    name = created(folder, "d1", "d2")["snapshot"]
    before = tree_of(folder / "d2")
    with monkeypatch.context() as patch:
        rename = Files.rename

        def fail(self: Files, path: Path, new_path: Path) -> None:
            if "new2" in str(new_path):
                raise OSError(errno.EIO, "Input/output error")
            rename(self, path, new_path)

        patch.setattr(Files, "rename", fail)
        assert backup(folder, *args).exit_status == ExitStatus.OPERATIONAL_ERROR
    for log_dir in ("d1", "d2"):
        (folder / log_dir / "notes").write_bytes(b"mine")
    created(folder, "d1", "d2")
    outcome = backup(folder, *args)
    assert outcome.exit_status == ExitStatus.USAGE
    assert f"new2: is the beginning of a restore of {name}" in outcome.stderr.decode()
    assert f"--snapshot {name}" in outcome.stderr.decode()
    assert backup(folder, *args, "--snapshot", name).exit_status == 0
    assert tree_of(folder / "new2") == before


def test_nothing_is_restored_through_a_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created(folder)
    with monkeypatch.context() as patch:

        def stop(self: Files, *args: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(Files, "rename", stop)
        backup(folder, "restore", "repo", "--into", "new")
    elsewhere = folder / "elsewhere"
    (folder / "new/users-0").rename(elsewhere)
    (folder / "new/users-0").symlink_to(elsewhere)
    outcome = backup(folder, "restore", "repo", "--into", "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"users-0: is in the way" in outcome.stderr
    assert list(elsewhere.iterdir()) == []


def test_a_directory_that_has_everything_already_is_left_as_it_is(folder: Path) -> None:
    created(folder)
    args = ["restore", "repo", "--into", "new"]
    backup(folder, *args)
    again = backup(folder, *args)
    assert again.exit_status == 0
    assert b"complete" in again.stdout
    assert tree_of(folder / "new") == tree_of(folder / "d1")


@pytest.mark.parametrize("harm", ["grow", "touch", "flip", "add", "lose"])
def test_a_directory_that_has_anything_else_is_refused(folder: Path, harm: str) -> None:
    created(folder)
    args = ["restore", "repo", "--into", "new"]
    backup(folder, *args)
    log = folder / "new" / LOG
    status = log.stat()
    content = log.read_bytes()
    if harm == "grow":
        log.write_bytes(content + b"!")
    elif harm == "touch":
        log.touch()
    elif harm == "flip":
        log.write_bytes(content[:-1] + b"!")
        os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif harm == "add":
        (folder / "new/users-0/more").touch()
    else:
        log.unlink()
    before = tree_of(folder / "new")
    outcome = backup(folder, *args)
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"name a new directory" in outcome.stderr
    assert tree_of(folder / "new") == before


def test_two_at_once_and_with_stopped_a_running_broker_are_refused(folder: Path) -> None:
    created(folder)
    lock = lock_directory(folder / "repo")
    outcome = backup(folder, "create", "repo", "d1")
    close_kept(lock)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"another kdump writes to this repository" in outcome.stderr
    with held_elsewhere(folder / "d1"):
        outcome = backup(folder, "create", "repo", "d1", "--stopped")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"stop the broker first" in outcome.stderr


@pytest.mark.parametrize(
    "line",
    [
        "create d1/repo d1",
        "create . d1",
        "create d1/users-0 d1",
        "create s3://bucket/repo d1",
        "restore repo --into repo/new",
        "restore repo --into new --into other",
        "restore repo --into new --snapshot 1999",
        "list d1",
    ],
)
def test_what_cannot_be_meant_is_refused(folder: Path, line: str) -> None:
    created(folder)
    before = tree_of(folder)
    assert backup(folder, *line.split()).exit_status & (
        ExitStatus.USAGE | ExitStatus.OPERATIONAL_ERROR
    )
    assert tree_of(folder) == before


@pytest.mark.parametrize(
    "targets", [("n", "n"), ("n", "n/sub"), ("n/sub", "n"), ("q/../n", "n"), ("link", "n")]
)
def test_targets_that_overlap_are_refused(folder: Path, targets: tuple[str, str]) -> None:
    created(folder, "d1", "d2")
    (folder / "n").mkdir()
    (folder / "q").mkdir()
    (folder / "link").symlink_to("n")
    before = tree_of(folder)
    outcome = backup(folder, "restore", "repo", *(f"--into={each}" for each in targets))
    assert outcome.exit_status == ExitStatus.USAGE
    assert f"--into {targets[1]}: overlaps {targets[0]}".encode() in outcome.stderr
    assert tree_of(folder) == before


def three_snapshots(folder: Path) -> dict[str, Any]:
    """Make three snapshots of a directory that changes; return what each has."""
    trees = {}
    for number in range(3):
        (folder / f"d1/users-0/notes{number}").write_bytes(bytes([number]) * 3000)
        (folder / f"d1/users-0/notes{number - 1}").unlink(missing_ok=True)
        trees[created(folder)["snapshot"]] = tree_of(folder / "d1")
    return trees


def require_restorable(folder: Path, trees: dict[str, Any]) -> None:
    """Compare what the repository has with what was backed up."""
    assert backup(folder, "check", "repo").exit_status == 0
    for name in {row["snapshot"] for row in rows(folder, "list", "repo")}:
        backup(folder, "restore", "repo", "--snapshot", name, "--into", "kept")
        assert tree_of(folder / "kept") == trees[name]
        shutil.rmtree(folder / "kept")


@pytest.fixture
def without_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let prune remove what was stored just now."""
    monkeypatch.setattr(prune, "YOUNG_SECONDS", -3600)


@pytest.mark.usefixtures("without_margin")
def test_prune_removes_snapshots_and_what_only_they_need(folder: Path) -> None:
    trees = three_snapshots(folder)
    before = tree_of(folder / "repo")
    preview = rows(folder, "prune", "repo", "--keep-last", "2", "--dry-run")
    assert tree_of(folder / "repo") == before
    pruned = rows(folder, "prune", "repo", "--keep-last", "2")
    assert pruned[:-1] == preview[:-1]
    assert pruned[-1] == {**preview[-1], "is_preview": False}
    assert [row["kept_by"] for row in pruned[:-1]] == [[], ["last"], ["last"]]
    assert pruned[-1]["removed_bytes"] >= 3000
    assert {row["snapshot"] for row in rows(folder, "list", "repo")} == {*sorted(trees)[1:]}
    assert rows(folder, "check", "repo")[-1]["unneeded_pieces"] == 0
    require_restorable(folder, trees)


def store_two_days_ago(folder: Path) -> None:
    """Let all pieces be so old that prune may remove them."""
    then = time.time() - 2 * 86_400
    for each in pieces(folder):
        os.utime(each, (then, then))


def test_prune_keeps_what_was_stored_in_the_last_day(folder: Path) -> None:
    trees = three_snapshots(folder)
    before = {*pieces(folder)}
    pruned = rows(folder, "prune", "repo", "--keep-last", "1")[-1]
    assert pruned["removed_snapshots"] == 2
    assert pruned["removed_pieces"] == 0
    young = pruned["young_pieces"]
    assert {*pieces(folder)} == before
    store_two_days_ago(folder)
    pruned = rows(folder, "prune", "repo", "--keep-last", "1")[-1]
    assert (pruned["removed_pieces"], pruned["young_pieces"]) == (young, 0)
    require_restorable(folder, trees)


@pytest.fixture
def of_the_future(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a snapshot that was made while the clock was wrong by a day."""
    with monkeypatch.context() as patch:
        now_ms = round((time.time() + 86400) * 1000)
        patch.setattr("kdump.cli.commands.backup.current_time_ms", lambda: now_ms)
        name: str = created(folder)["snapshot"]
    return name


def test_a_snapshot_with_a_later_time_is_named_and_not_taken_for_the_newest(
    folder: Path, of_the_future: str
) -> None:
    outcome = backup(folder, "create", "repo", "d1")
    assert outcome.exit_status == 0
    what = f"kdump: repo: snapshot {of_the_future} has a later time than now"
    assert what in outcome.stderr.decode()
    outcome = backup(folder, "restore", "repo", "--into", "new")
    assert outcome.exit_status == ExitStatus.USAGE
    assert of_the_future in outcome.stderr.decode()
    assert b"--snapshot" in outcome.stderr
    assert not (folder / "new").exists()
    name = rows(folder, "list", "repo")[0]["snapshot"]
    args = ["restore", "repo", "--into", "new", "--snapshot", name]
    assert backup(folder, *args).exit_status == 0


def test_prune_keeps_the_last_snapshots_beside_one_with_a_later_time(
    folder: Path, of_the_future: str
) -> None:
    names = [created(folder)["snapshot"] for _ in range(2)]
    pruned = rows(folder, "prune", "repo", "--keep-last", "1")
    kept_by = {row["snapshot"]: row["kept_by"] for row in pruned[:-1]}
    assert kept_by == {names[0]: [], names[1]: ["last"], of_the_future: ["future"]}
    left = backup(folder, "prune", "repo", "--keep-last", "1")
    assert of_the_future in left.stderr.decode()
    assert {row["snapshot"] for row in rows(folder, "list", "repo")} == {names[1], of_the_future}


def test_prune_needs_to_be_told_what_to_keep(folder: Path) -> None:
    created(folder)
    outcome = backup(folder, "prune", "repo")
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"--keep-last, --keep-hourly" in outcome.stderr
    assert backup(folder, "prune", "repo", "--keep-last", "0").exit_status == ExitStatus.USAGE


@pytest.mark.parametrize("harmed", ["snapshots", "data"])
def test_prune_removes_nothing_if_a_kept_snapshot_cannot_be_read(folder: Path, harmed: str) -> None:
    three_snapshots(folder)
    newest = max((folder / "repo/snapshots").iterdir())
    if harmed == "data":
        digest = json.loads(newest.read_bytes())["log_dirs"][0]["root"]["sha256"]
        newest = folder / "repo/data" / digest[:2] / digest
    newest.write_bytes(newest.read_bytes()[:-2])
    before = tree_of(folder / "repo")
    outcome = backup(folder, "prune", "repo", "--keep-last", "1")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"nothing was removed" in outcome.stderr
    assert tree_of(folder / "repo") == before


def test_prune_keeps_what_an_unfinished_backup_has_stored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(folder)
    (folder / "d1/users-0/notes").write_bytes(b"mine" * 1000)
    with monkeypatch.context() as patch:

        def fail(self: RepositoryWriter, snapshot: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(RepositoryWriter, "add_snapshot", fail)
        backup(folder, "create", "repo", "d1")
    backup(folder, "prune", "repo", "--keep-last", "1")
    assert any(path.read_bytes() == b"mine" * 1000 for path in pieces(folder))
    assert created(folder)["read_files"] == 0


@pytest.mark.parametrize(("held", "who"), [(".", "writes to"), ("data", "reads")])
def test_prune_waits_for_nobody(folder: Path, held: str, who: str) -> None:
    created(folder)
    lock = lock_directory(folder / "repo" / held, is_shared=True)
    outcome = backup(folder, "prune", "repo", "--keep-last", "1")
    close_kept(lock)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert f"another kdump {who} this repository".encode() in outcome.stderr


@pytest.mark.parametrize("line", ["check repo", "restore repo --into new"])
def test_who_reads_a_repository_refuses_it_while_snapshots_are_removed(
    folder: Path, line: str
) -> None:
    created(folder)
    lock = lock_directory(folder / "repo/data")
    outcome = backup(folder, *line.split())
    close_kept(lock)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"another kdump removes snapshots from this repository" in outcome.stderr


def test_who_reads_a_repository_does_not_keep_others_from_it(folder: Path) -> None:
    created(folder)
    lock = lock_directory(folder / "repo/data", is_shared=True)
    statuses = [
        backup(folder, *line.split()).exit_status
        for line in ("check repo", "restore repo --into new", "create repo d1")
    ]
    close_kept(lock)
    assert statuses == [0, 0, 0]


@pytest.mark.slow
@at_some_or_all
def test_a_prune_that_was_killed_leaves_whole_snapshots_and_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_all: bool
) -> None:
    monkeypatch.chdir(folder)
    trees = three_snapshots(folder)
    store_two_days_ago(folder)
    shutil.copytree(folder / "repo", folder / "before")
    args = ["backup", "prune", "repo", "--keep-last", "1"]
    count = changes_of(lambda: run_kdump(args, folder))
    with KillableKdump() as killable:
        for at in moments_of(range(count), is_all=is_all):
            shutil.rmtree(folder / "repo")
            shutil.copytree(folder / "before", folder / "repo")
            assert killable.run_and_kill(args, at) == -signal.SIGKILL
            require_restorable(folder, trees)
            assert run_kdump(args, folder).exit_status == 0
            assert rows(folder, "list", "repo")[0]["snapshot"] == max(trees)
            assert rows(folder, "check", "repo")[-1]["unneeded_pieces"] == 0
            require_restorable(folder, trees)


@pytest.mark.slow
@at_some_or_all
def test_after_a_kill_the_next_run_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_all: bool
) -> None:
    monkeypatch.chdir(folder)
    log = folder / "d1" / LOG
    for number in range(3):
        (folder / f"d1/users-0/notes{number}").write_bytes(bytes([number]) * 3000)
    args = ["backup", "create", "repo", "d1"]
    count = changes_of(lambda: run_kdump(args, folder))
    first = tree_of(folder / "d1")
    shutil.copytree(folder / "repo", folder / "one")
    with log.open("ab") as stream:
        stream.write(b"tail" * 1000)
    changed = tree_of(folder / "d1")
    with KillableKdump() as killable:
        for at in moments_of(range(count), is_all=is_all):
            for begun in (False, True):
                shutil.rmtree(folder / "repo")
                if begun:
                    shutil.copytree(folder / "one", folder / "repo")
                killed = killable.run_and_kill(args, at)
                assert killed == -signal.SIGKILL or begun
                if begun:
                    shutil.rmtree(folder / "new", ignore_errors=True)
                    name = rows(folder, "list", "repo")[0]["snapshot"]
                    backup(folder, "restore", "repo", "--snapshot", name, "--into", "new")
                    assert tree_of(folder / "new") == first
                assert created(folder)["snapshot"] is not None
                assert backup(folder, "check", "repo").exit_status == 0
                shutil.rmtree(folder / "new", ignore_errors=True)
                backup(folder, "restore", "repo", "--into", "new")
                assert tree_of(folder / "new") == changed


@pytest.mark.slow
@at_some_or_all
def test_a_restore_that_was_killed_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_all: bool
) -> None:
    monkeypatch.chdir(folder)
    created(folder)
    args = ["backup", "restore", "repo", "--into", "new"]
    count = changes_of(lambda: run_kdump(args, folder))
    with KillableKdump() as killable:
        for at in moments_of(range(count), is_all=is_all):
            shutil.rmtree(folder / "new")
            assert killable.run_and_kill(args, at) == -signal.SIGKILL
            assert run_kdump(args, folder).exit_status == 0
            assert tree_of(folder / "new") == tree_of(folder / "d1")
