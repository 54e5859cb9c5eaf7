"""``kdump backup`` in an object store: as in a directory, whatever the store does meanwhile."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.killed_process import KillableKdump, kinds_of_changes
from builders.lock_holder import held_elsewhere
from builders.object_server import ObjectServer, object_server
from builders.samples import at_some_or_each_kind, moments_of_kinds
from builders.trees import tree_of
from builders.two_disks import write_two_disks
from kdump.engine import local as local_engine
from kdump.errors import ExitStatus
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER
from kdump.jobs.backup import prune
from kdump.processes.known_process import this_process
from kdump.repository import store_locks, store_place
from kdump.storage import object_writer, store_connection
from kdump.storage.object_store import ObjectStore
from kdump.storage.places import parse_location
from kdump.storage.repository import RepositoryError

pytestmark = pytest.mark.slow

LOG: Final = f"users-0/{0:020d}.log"
URI: Final = "s3://disks/repo"


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def server(running: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    for module in (object_writer, store_connection):
        monkeypatch.setattr(module, "ATTEMPTS", 2)
    running.reset()
    yield running
    running.reset()
    running.delete_all()


@pytest.fixture
def folder(quick_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory around ``d1`` and ``d2``, which are to be backed up."""
    write_two_disks(quick_path / "node")
    shutil.rmtree(quick_path / "node/model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(quick_path / "cache"))
    (quick_path / "cache").mkdir()
    return quick_path / "node"


def backup(folder: Path, *args: str) -> Outcome:
    return run_kdump(["backup", *args], folder)


def rows(folder: Path, *args: str) -> list[dict[str, Any]]:
    return objects(backup(folder, *args, "--output", "jsonl").stdout)


def created(folder: Path, uri: str = URI) -> dict[str, Any]:
    return rows(folder, "create", uri, "d1", "d2")[-1]


def require_restored(folder: Path, uri: str = URI) -> None:
    """Restore both log directories, and compare them with what they were."""
    for name in ("new1", "new2"):
        shutil.rmtree(folder / name, ignore_errors=True)
    restored = backup(folder, "restore", uri, "--into", "new1", "--into", "new2")
    assert restored.exit_status in (ExitStatus.SOUND, ExitStatus.DAMAGE_LEFT), restored.stderr
    assert tree_of(folder / "new1") == tree_of(folder / "d1")
    assert tree_of(folder / "new2") == tree_of(folder / "d2")


def require_clean(folder: Path, uri: str = URI) -> None:
    checked = backup(folder, "check", uri)
    assert checked.exit_status == 0, checked.stdout


def locks_of(server: ObjectServer) -> list[str]:
    return [each for each in server.keys if "/locks/" in each]


def test_a_snapshot_is_restored_byte_for_byte_and_no_lock_is_left(
    folder: Path, server: ObjectServer
) -> None:
    (folder / "d1/users-0/odd name").write_bytes(b"mine" * 1000)
    (folder / "d1/users-0/odd name").chmod(0o640)
    added_bytes = created(folder)["added_bytes"]
    assert added_bytes == sum(
        size_bytes for key, size_bytes in server.sizes().items() if "/data/" in key
    )
    require_restored(folder)
    require_clean(folder)
    assert not locks_of(server)


def test_a_snapshot_is_made_beside_a_broker(folder: Path, server: ObjectServer) -> None:
    for name in ("d1", "d2"):
        (folder / name / CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)
    with held_elsewhere(folder / "d1"), held_elsewhere(folder / "d2"):
        first, second = created(folder), created(folder)
    assert second["snapshot"] is not None
    assert (first["added_bytes"] > 0, second["added_bytes"]) == (True, 0)
    assert backup(folder, "restore", URI, "--into", "new1", "--into", "new2").exit_status == 0
    found = run_kdump(["verify", "new1", "new2"], folder)
    assert found.exit_status == run_kdump(["verify", "d1", "d2"], folder).exit_status
    require_clean(folder)


@pytest.mark.parametrize("most_bytes", [1000, 4096, 5000])
def test_a_file_of_several_pieces_is_restored_and_may_grow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr(store_place, "MOST_PIECE_BYTES", most_bytes)
    log = folder / "d1" / LOG
    log.write_bytes(log.read_bytes() * 60)
    (folder / "d1/users-0/zeroes").write_bytes(bytes(4096) + b"end" + bytes(5000))
    os.truncate(folder / "d1/users-0/zeroes", 3 * 5000)
    created(folder)
    require_restored(folder)
    before = log.stat().st_size
    with log.open("ab") as stream:
        stream.write(b"tail" * 3000)
    assert 0 < created(folder)["added_bytes"] < before + 12_000
    require_restored(folder)
    require_clean(folder)


def test_a_backup_of_unchanged_disks_asks_for_no_piece(folder: Path, server: ObjectServer) -> None:
    created(folder)
    server.requests.clear()
    again = created(folder)
    assert (again["read_files"], again["added_bytes"]) == (0, 0)
    assert not [each for each in server.requests if "/data/" in each]
    assert server.count() <= 14


def test_a_restore_asks_once_for_each_piece(folder: Path, server: ObjectServer) -> None:
    for number in range(5):
        (folder / f"d1/users-0/notes{number}").write_bytes(bytes([number]) * 3000)
    created(folder)
    server.requests.clear()
    require_restored(folder)
    asked = [each for each in server.requests if each.startswith("HEAD") and "/data/" in each]
    assert asked
    assert sorted(asked) == sorted(set(asked))


def test_without_the_cache_documents_are_read_from_the_store(folder: Path) -> None:
    created(folder)
    shutil.rmtree(folder.parent / "cache")
    assert created(folder)["added_bytes"] == 0
    for each in (folder.parent / "cache/kdump").iterdir():
        each.write_bytes(b"damaged")
    assert created(folder)["added_bytes"] == 0
    require_clean(folder)
    require_restored(folder)


def test_a_document_that_is_lost_is_stored_again_although_the_cache_has_it(
    folder: Path, server: ObjectServer
) -> None:
    created(folder)
    server.delete([each for each in server.keys if "/data/" in each])
    assert backup(folder, "check", URI).exit_status == ExitStatus.DAMAGE_LEFT
    created(folder)
    require_clean(folder)
    require_restored(folder)


def test_what_is_damaged_in_a_store_makes_way_for_what_the_disks_still_have(
    folder: Path, server: ObjectServer
) -> None:
    (folder / "d1/users-0/notes").write_bytes(b"mine" * 1000)
    created(folder)
    largest = max(
        (each for each in server.keys if "/data/" in each), key=lambda each: server.sizes()[each]
    )
    server.put(largest, bytes(server.sizes()[largest]))
    assert backup(folder, "check", URI).exit_status == ExitStatus.DAMAGE_LEFT
    repaired = backup(folder, "check", "--repair", URI)
    assert b".damaged" in repaired.stdout
    assert f"{largest}.damaged" in server.keys
    created(folder)
    require_clean(folder)
    require_restored(folder)


def test_prune_keeps_what_was_stored_in_the_last_day(folder: Path, server: ObjectServer) -> None:
    (folder / "d1/users-0/notes").write_bytes(b"old" * 1000)
    created(folder)
    (folder / "d1/users-0/notes").write_bytes(b"new" * 1000)
    created(folder)
    before = [each for each in server.keys if "/data/" in each]
    pruned = rows(folder, "prune", URI, "--keep-last", "1")[-1]
    assert (pruned["removed_snapshots"], pruned["removed_pieces"]) == (1, 0)
    assert pruned["young_pieces"] > 0
    assert [each for each in server.keys if "/data/" in each] == before


@pytest.fixture
def without_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let prune remove what was stored just now."""
    monkeypatch.setattr(prune, "YOUNG_SECONDS", -3600)


@pytest.mark.usefixtures("without_margin")
def test_prune_removes_what_only_old_snapshots_need(folder: Path, server: ObjectServer) -> None:
    (folder / "d1/users-0/notes").write_bytes(b"old" * 1000)
    created(folder)
    (folder / "d1/users-0/notes").write_bytes(b"new" * 1000)
    created(folder)
    preview = rows(folder, "prune", URI, "--keep-last", "1", "--dry-run")[-1]
    before = server.keys
    pruned = rows(folder, "prune", URI, "--keep-last", "1")[-1]
    assert pruned["removed_pieces"] == preview["removed_pieces"] > 0
    gone = {*before} - {*server.keys}
    assert len([each for each in gone if "/data/" in each]) == pruned["removed_pieces"]
    require_clean(folder)
    require_restored(folder)
    assert not locks_of(server)


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("gs://disks/repo", b"a repository is a directory on a local disk, or in a bucket of S3"),
        ("s3://disks", b"has other in it, and is not a repository"),
        ("s3://nowhere/repo", b"s3://nowhere"),
    ],
)
def test_what_cannot_be_a_repository_is_refused(
    folder: Path, server: ObjectServer, uri: str, what: bytes
) -> None:
    server.put("other/file", b"mine")
    refused = backup(folder, "create", uri, "d1")
    assert refused.exit_status in (ExitStatus.USAGE, ExitStatus.OPERATIONAL_ERROR)
    assert what in refused.stderr
    assert server.keys == ["other/file"]


def refuse(methods: str, part: str, status: int) -> Callable[[str], Any]:
    """Answer some requests with a status."""

    def disturb(request: str) -> Any:
        method, path = request.split(" ", 1)
        return status if method in methods.split() and part in path else None

    return disturb


@pytest.mark.parametrize("part", ["/data/", "/snapshots/", "/locks/", "kdump-repository", "delete"])
@pytest.mark.parametrize("status", [500, 503, 403])
def test_a_store_that_refuses_to_write_ends_the_run_plainly_and_the_next_goes_on(
    folder: Path, server: ObjectServer, part: str, status: int
) -> None:
    server.disturb = refuse("PUT POST", part, status)
    failed = backup(folder, "create", URI, "d1", "d2")
    if part != "delete":
        assert failed.exit_status == ExitStatus.OPERATIONAL_ERROR
        said = failed.stderr.decode()
        assert "s3://disks/repo" in said
        assert re.search("no snapshot was made; .*run the same command again", said)
        assert not re.search("Traceback|testing|Secret|Errno", said)
    server.reset()
    if part == "delete":
        assert failed.exit_status == 0
        assert locks_of(server)
        server.delete(locks_of(server))
    assert created(folder)["snapshot"] is not None
    require_clean(folder)
    require_restored(folder)
    assert not [each for each in server.keys if "/unfinished/" in each]


@pytest.mark.parametrize("part", ["/data/", "/snapshots/2", "kdump-repository", "snapshots%2F"])
@pytest.mark.parametrize("status", [500, 403])
def test_a_store_that_gives_no_answer_is_not_taken_for_damage(
    folder: Path, server: ObjectServer, part: str, status: int
) -> None:
    created(folder)
    before = server.keys
    shutil.rmtree(folder.parent / "cache")
    server.disturb = refuse("GET HEAD", part, status)
    lines = (
        ["create", URI, "d1", "d2"],
        ["check", URI],
        ["check", "--repair", URI],
        ["prune", URI, "--keep-last", "1"],
    )
    for line in lines:
        failed = backup(folder, *line)
        assert failed.exit_status == ExitStatus.OPERATIONAL_ERROR, line
        said = failed.stderr.decode()
        assert "s3://disks/repo" in said
        assert not re.search("Traceback|testing|Secret|damaged|internal", said)
        assert not failed.stdout
    server.reset()
    assert server.keys == before


def lost(_data: bytes) -> bytes:
    raise ConnectionResetError


@pytest.mark.parametrize("instead", [500, lost], ids=["failed", "done, and the answer was lost"])
def test_what_failed_once_is_asked_for_again(
    folder: Path, server: ObjectServer, instead: Any
) -> None:
    seen = set[str]()

    def disturb(request: str) -> Any:
        if request in seen or not request.startswith(("PUT", "POST")):
            return None
        seen.add(request)
        return instead

    server.disturb = disturb
    assert created(folder)["snapshot"] is not None
    assert seen
    server.reset()
    require_clean(folder)
    require_restored(folder)
    assert not locks_of(server)


@at_some_or_each_kind
def test_after_a_kill_the_next_run_goes_on(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, *, is_each_kind: bool
) -> None:
    monkeypatch.chdir(folder)
    log = folder / "d1" / LOG
    for number in range(3):
        (folder / f"d1/users-0/notes{number}").write_bytes(bytes([number]) * 3000)
    first = folder / "first"
    shutil.copytree(folder / "d1", first)
    kinds = kinds_of_changes(lambda: created(folder, f"{URI}-begun"))
    with KillableKdump() as killable:
        for at in moments_of_kinds(kinds, is_each_kind=is_each_kind, samples=3):
            for is_begun in (False, True):
                uri = f"{URI}-{at}-{is_begun}"
                shutil.copytree(first, folder / "d1", dirs_exist_ok=True)
                if is_begun:
                    server.copy_all("repo-begun", uri.removeprefix(f"{server.uri}/"))
                with log.open("ab") as stream:
                    stream.write(b"tail" * 1000)
                killed = killable.run_and_kill(["backup", "create", uri, "d1", "d2"], at)
                assert killed == -signal.SIGKILL or is_begun
                if is_begun:
                    name = rows(folder, "list", uri)[0]["snapshot"]
                    shutil.rmtree(folder / "old", ignore_errors=True)
                    old = ["--snapshot", name, "--log-dir", str(folder / "d1"), "--into", "old"]
                    assert backup(folder, "restore", uri, *old).exit_status == 0
                    assert tree_of(folder / "old") == tree_of(first)
                    require_clean(folder, uri)
                assert created(folder, uri)["snapshot"] is not None
                require_clean(folder, uri)
                require_restored(folder, uri)
                assert not [each for each in server.keys if "/unfinished/" in each]
                assert not locks_of(server)


@at_some_or_each_kind
def test_a_prune_that_was_killed_leaves_whole_snapshots_and_goes_on(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, *, is_each_kind: bool
) -> None:
    monkeypatch.chdir(folder)
    settings = {prune.__name__: {"YOUNG_SECONDS": -3600}, object_writer.__name__: {"_TOGETHER": 1}}
    for name, values in settings.items():
        for constant, value in values.items():
            monkeypatch.setattr(f"{name}.{constant}", value)

    for number in range(3):
        (folder / "d1/users-0/notes").write_bytes(bytes([number]) * 3000)
        created(folder, f"{URI}-original")

    server.copy_all("repo-original", "repo-count")
    kinds = kinds_of_changes(lambda: backup(folder, "prune", f"{URI}-count", "--keep-last", "1"))
    with KillableKdump(settings) as killable:
        for at in moments_of_kinds(kinds, is_each_kind=is_each_kind, samples=3):
            uri = f"{URI}-{at}"
            server.copy_all("repo-original", f"repo-{at}")
            args = ["backup", "prune", uri, "--keep-last", "1"]
            assert killable.run_and_kill(args, at) == -signal.SIGKILL
            require_clean(folder, uri)
            require_restored(folder, uri)
            assert run_kdump(args, folder).exit_status == 0
            assert rows(folder, "check", uri)[-1]["unneeded_pieces"] == 0
            require_restored(folder, uri)


def test_large_pieces_of_a_run_that_was_stopped_are_not_sent_again(
    folder: Path, server: ObjectServer
) -> None:
    (folder / "d1/users-0/notes").write_bytes(random.Random(1).randbytes(3 << 20))
    server.disturb = refuse("PUT", "/snapshots/", 403)
    assert backup(folder, "create", URI, "d1", "d2").exit_status == ExitStatus.OPERATIONAL_ERROR
    server.delete([each for each in server.keys if "/unfinished/" in each])
    sent = {f"/disks/{each}" for each, size in server.sizes().items() if size > 1 << 20}
    server.reset()
    assert created(folder)["snapshot"] is not None
    assert len(sent) == 1
    assert not [each for each in server.requests if each.startswith("PUT") and each[4:] in sent]
    require_restored(folder)


def test_workers_send_pieces_too(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "SPAWNED_POOL_BYTES", 1)
    for number in range(4):
        data = random.Random(number).randbytes(9 << 20)
        (folder / f"d1/users-0/notes{number}").write_bytes(data)
    server.disturb = refuse("PUT", "/data/", 500)
    failed = backup(folder, "create", URI, "d1", "d2")
    assert failed.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert re.search(b"s3://disks/repo: .*500.*; no snapshot was made", failed.stderr)
    server.reset()
    assert created(folder)["added_bytes"] > 36 << 20
    require_clean(folder)
    require_restored(folder)


def held(**other: object) -> bytes:
    """Return the content of a lock of this process, or of another of this machine."""
    return json.dumps(this_process() | other).encode()


@pytest.mark.parametrize(
    ("lock", "refused"),
    [
        ("00000007", "create prune repair"),
        ("00000007-write-0123456789abcdef", "create prune repair"),
        ("00000007-remove-0123456789abcdef", "create prune repair check restore"),
        ("read-0123456789abcdef", "prune repair"),
        ("something else", ""),
    ],
)
def test_who_is_in_the_way_is_named_and_nothing_is_changed(
    folder: Path, server: ObjectServer, lock: str, refused: str
) -> None:
    created(folder)
    server.put(f"repo/locks/{lock}", held())
    lines = {
        "create": ["create", URI, "d1", "d2"],
        "prune": ["prune", URI, "--keep-last", "1"],
        "repair": ["check", "--repair", URI],
        "check": ["check", URI],
        "restore": ["restore", URI, "--into", "new1", "--into", "new2"],
    }
    for name, line in lines.items():
        before = server.keys
        found = backup(folder, *line)
        if name in refused.split():
            assert found.exit_status == ExitStatus.OPERATIONAL_ERROR, name
            assert f"pid {os.getpid()}".encode() in found.stderr
            assert b"wait until it ends" in found.stderr
            assert server.keys == before
        else:
            assert found.exit_status == 0, (name, found.stderr)


@pytest.mark.parametrize("lock", ["00000007", "00000007-remove-0123456789abcdef"])
def test_a_lock_of_a_process_that_is_gone_does_not_count(
    folder: Path, server: ObjectServer, lock: str
) -> None:
    server.put(f"repo/locks/{lock}", held(pid=2**22 + 1))
    assert created(folder)["snapshot"] is not None
    assert not locks_of(server)


def test_a_lock_of_another_machine_ends_by_the_clock_of_the_store(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("repo/locks/00000007", b'{"pid": 1, "host": "elsewhere", "boot_id": "x"}')
    refused = backup(folder, "create", URI, "d1")
    assert refused.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"pid 1 on elsewhere" in refused.stderr
    monkeypatch.setattr(store_locks, "DEAD_SECONDS", -1.0)
    assert created(folder)["snapshot"] is not None


@pytest.mark.parametrize("is_ignored", [False, True])
def test_of_two_at_once_at_most_one_makes_a_snapshot(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, is_ignored: bool
) -> None:
    """Both have listed the locks before the other has claimed one."""
    both_listed = threading.Barrier(2)
    both_done = threading.Barrier(2)
    claim = store_locks.StoreLock._claim

    def claimed(lock: store_locks.StoreLock, number: int) -> None:
        both_listed.wait(60)
        claim(lock, number)

    monkeypatch.setattr(store_locks.StoreLock, "_claim", claimed)
    if is_ignored:

        def written(writer: object_writer.ObjectWriter, path: str, body: bytes) -> bool:
            writer.put(path, body)
            both_done.wait(60)
            return True

        monkeypatch.setattr(object_writer.ObjectWriter, "create", written)
    location = parse_location(URI)
    assert isinstance(location.storage, ObjectStore)
    writer = location.storage.writer
    ended = list[str]()
    finish = threading.Barrier(2)

    def run() -> None:
        try:
            with store_locks.locked_store_to_write(location, writer):
                ended.append("held")
                finish.wait(60)
        except RepositoryError:
            ended.append("refused")
            finish.wait(60)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert ended.count("held") <= 1
    assert is_ignored or sorted(ended) == ["held", "refused"]
    assert not locks_of(server)


def test_a_lock_that_is_just_renewed_is_given_back(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_locks, "SIGN_SECONDS", 0.0)
    location = parse_location(URI)
    assert isinstance(location.storage, ObjectStore)
    for _ in range(10):
        with store_locks.locked_store_to_write(location, location.storage.writer):
            pass
        threads = [each for each in threading.enumerate() if each.name == "kdump lock"]
        for each in threads:
            each.join()
        assert not locks_of(server)


def test_a_lock_that_could_not_be_renewed_makes_no_snapshot_and_removes_nothing(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        (folder / "d1/users-0/notes").write_bytes(bytes([number]) * 3000)
        created(folder)
    before = server.keys
    monkeypatch.setattr(store_locks, "TRUSTED_SECONDS", -1.0)
    for line in (["create", URI, "d1"], ["prune", URI, "--keep-last", "1"]):
        failed = backup(folder, *line)
        assert failed.exit_status == ExitStatus.OPERATIONAL_ERROR
        assert b"the lock could not be renewed" in failed.stderr
    assert server.keys == before


def test_who_may_only_read_restores_without_a_lock(folder: Path, server: ObjectServer) -> None:
    created(folder)
    server.disturb = refuse("PUT POST", "", 403)
    require_restored(folder)
    require_clean(folder)
    refused = backup(folder, "prune", URI, "--keep-last", "1")
    assert refused.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"403" in refused.stderr


def test_credentials_of_a_uri_are_used_and_not_shown(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    options = f"scheme=http&endpoint_override=127.0.0.1%3A{server.port}&region=us-east-1"
    uri = f"s3://KEYID:Hidden%2FKey@disks/repo?{options}"
    assert created(folder, uri)["snapshot"] is not None
    (folder / "d1/users-0/notes").write_bytes(b"more" * 1000)
    server.disturb = refuse("PUT", "/data/", 403)
    failed = backup(folder, "create", uri, "d1", "d2")
    assert failed.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert not re.search(b"KEYID|Hidden", failed.stderr + failed.stdout)
    server.reset()
    assert created(folder, uri)["snapshot"] is not None
    require_restored(folder, uri)
