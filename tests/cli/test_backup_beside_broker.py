"""``kdump backup create`` beside a broker: a snapshot is what it leaves when it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batch, record
from builders.in_process import Outcome, run_kdump
from builders.index_files import offset_index_bytes
from builders.killed_process import KillableKdump, changes_of
from builders.lock_holder import held_elsewhere
from builders.log_directories import write_log_directory
from builders.metadata_log import (
    partition_change_record,
    partition_record,
    remove_topic_record,
    topic_record,
    write_metadata_log,
)
from builders.samples import at_some_or_all, moments_of, seeds
from builders.simulated_broker import SimulatedBroker, SteppedDisk
from builders.trees import tree_of
from builders.verified import file, write_topic_id
from kdump.errors import ExitStatus, KdumpError
from kdump.formats import names
from kdump.formats.checkpoints import (
    EpochEntry,
    OffsetEntry,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from kdump.formats.names import FileKind, TopicPartition
from kdump.formats.partition_metadata import (
    PartitionMetadata,
    decode_partition_metadata,
    encode_partition_metadata,
)
from kdump.jobs.backup.backup import back_up
from kdump.jobs.backup.directory_backup import BackupRequest, BackupResult
from kdump.jobs.backup.living_backup import LivingDirectory
from kdump.log.directory import PartitionPlace, read_log_directory, read_lone_partition
from kdump.log.living_windows import partition_windows
from kdump.log.lock_holders import ReadAs, forget_holders
from kdump.repository.known_places import place_at
from kdump.scan.batches import Window
from kdump.storage.local_disk import local
from kdump.storage.location import Location

NOW_MS: Final = 1_700_000_000_000
EXPECTED: Final = {
    *("checkpoint-empty", "directory-future", "directory-future-alone", "partition-twice"),
    *("offset-gap", "producer-sequence-gap"),
}
"""What is found where a broker is simulated: it moves replicas inside of a log directory, and
cleans a log without a checkpoint."""


def backed_up(
    log_dirs: Sequence[Path],
    repository: Path,
    step: Callable[[], None],
    now_ms: int,
    reading: ReadAs = ReadAs.AS_FOUND,
) -> BackupResult:
    """Back up log directories, while something else happens before and during each reading."""
    disk = SteppedDisk(step)
    found = [read_log_directory(Location(disk, str(each))) for each in log_dirs]
    request = BackupRequest(place_at(local(repository)), found, "host", "0", now_ms, reading)
    return back_up(request, lambda: now_ms)


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.stdout.splitlines()]


def restored(
    repository: Path, result: BackupResult, *into: Path, status: ExitStatus = ExitStatus.SOUND
) -> Path:
    assert result.unreadable == []
    assert result.snapshot is not None
    targets = [word for each in into for word in ("--into", str(each))]
    outcome = run_kdump(
        ["backup", "restore", str(repository), "--snapshot", result.snapshot, *targets],
        into[0].parent,
    )
    assert outcome.exit_status == status, outcome.stderr
    return into[0]


def offsets(partition: Path) -> list[int]:
    """The base offsets of the batches of a partition, which all have to be valid."""
    found: list[int] = []
    for step in partition_windows(read_lone_partition(local(partition), partition.name)):
        assert isinstance(step, Window), step
        found += map(int, step.batches.base_offset)
    return found


@pytest.mark.parametrize("seed", seeds(0, count=50, in_main=5))
def test_every_snapshot_is_what_a_killed_broker_leaves(
    seed: int, locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = SimulatedBroker(locked_dir, seed)
    broker.steps(150 + 40 * (seed % 7))
    for module in ("jobs.backup.living_backup", "log.settled_listing"):
        monkeypatch.setattr(f"kdump.{module}.wait", lambda _: broker.steps(60))
    monkeypatch.setattr("kdump.engine.local.usable_cpus", lambda: 1)
    rng = random.Random(seed)
    for number in range(3):
        forget_holders()
        before = broker.ends()
        result = backed_up(
            [locked_dir],
            tmp_path / "repo",
            lambda: broker.steps(rng.randrange(2)),
            NOW_MS + number,
        )
        new = restored(tmp_path / "repo", result, tmp_path / f"new{number}")
        found = run_kdump(["verify", "--output=jsonl", str(new)], tmp_path)
        bad = [row for row in rows(found) if row["type"] == "finding"]
        assert {row["code"]: row for row in bad if row["code"] not in EXPECTED} == {}
        assert result.log_dirs[0].is_in_use
        for name in ("kept-0", "retained-0"):
            stored = offsets(new / name)
            assert stored == list(range(stored[0], stored[-1] + 1, 3))
            assert stored[-1] + 3 >= before[name]
        assert offsets(new / "kept-0")[0] == 0
        assert offsets(new / "cleaned-0")[-1] + 3 >= before["cleaned-0"]


def write_log(path: Path, generation: int, first: int, last: int) -> None:
    """Write batches of a leader, with an index entry for each but the first, as it appends them."""
    log = file(path, 0, FileKind.LOG)
    with log.open("ab") as stream:
        entries = []
        for offset in range(first, last):
            if stream.tell():
                entries.append((offset, stream.tell()))
            value = b"%02d of %d" % (offset, generation)
            stream.write(batch([record(offset, value=value)], partition_leader_epoch=generation))
            stream.flush()
    index = file(path, 0, FileKind.OFFSET_INDEX)
    before = index.read_bytes() if index.exists() else b""
    index.write_bytes((before + offset_index_bytes(entries)).ljust(1024, b"\0"))
    times = file(path, 0, FileKind.TIME_INDEX)
    known = times.read_bytes().rstrip(b"\0") if times.exists() else b""
    times.write_bytes(known.ljust(1200, b"\0"))


def epochs(path: Path, entries: list[tuple[int, int]]) -> None:
    content = encode_leader_epoch_checkpoint(EpochEntry(*each) for each in entries)
    (path / names.LEADER_EPOCH_CHECKPOINT).write_bytes(content)


def write_old(path: Path) -> None:
    path.mkdir()
    write_log(path, 0, 0, 30)
    epochs(path, [(0, 0)])
    write_topic_id(path)


def truncate(path: Path) -> None:
    """Truncate a log to its first batches, and append others that are as long."""
    log, index = file(path, 0, FileKind.LOG), file(path, 0, FileKind.OFFSET_INDEX)
    size = len(log.read_bytes()) // 3
    os.truncate(log, size)
    index.write_bytes(index.read_bytes()[: 9 * 8])
    write_log(path, 1, 10, 40)
    epochs(path, [(0, 0), (1, 10)])


def create_again(path: Path) -> None:
    """Delete a topic, and create one of the same name."""
    path.rename(path.with_name(f"{path.name}.{'0' * 32}-delete"))
    path.mkdir()
    write_log(path, 1, 0, 30)
    epochs(path, [(1, 0)])
    write_id(path, 77)


def write_id(path: Path, number: int) -> None:
    content = encode_partition_metadata(PartitionMetadata(0, uuid.UUID(int=number)))
    (path / names.PARTITION_METADATA).write_bytes(content)


def generations(partition: Path) -> list[int]:
    """Which leader wrote each record; its value and its batch have to say the same."""
    found: list[int] = []
    for step in partition_windows(read_lone_partition(local(partition), partition.name)):
        assert isinstance(step, Window), step
        found += map(int, step.batches.partition_leader_epoch)
    return found


@at_some_or_all
@pytest.mark.parametrize("change", [truncate, create_again])
def test_no_snapshot_has_a_mixture_of_two_logs(
    change: Callable[[Path], None],
    is_all: bool,
    locked_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kdump.engine.local.usable_cpus", lambda: 1)
    monkeypatch.setattr("kdump.jobs.backup.living_backup.wait", lambda _: None)
    path = locked_dir / "t-0"
    write_log_directory(locked_dir, clean=False)
    forget_holders()
    write_old(path)
    asked: list[None] = []
    backed_up([locked_dir], tmp_path / "unchanged", lambda: asked.append(None), NOW_MS)
    for moment in moments_of(range(len(asked)), is_all=is_all, samples=10):
        for each in locked_dir.glob("t-*"):
            shutil.rmtree(each)
        write_old(path)
        steps = iter(range(len(asked)))

        def step(steps: Iterator[int] = steps, moment: int = moment) -> None:
            if next(steps, None) == moment:
                change(path)

        repository = tmp_path / f"repo{moment}"
        result = backed_up([locked_dir], repository, step, NOW_MS)
        new = restored(repository, result, tmp_path / f"new{moment}") / "t-0"
        found = generations(new)
        first = decode_partition_metadata((new / names.PARTITION_METADATA).read_bytes())
        if change is truncate:
            assert found == [0] * 30 or ([0] * 10 + [1] * 30)[: len(found)] == found[:40]
            assert len(found) >= 30
        else:
            assert found == [int(first.topic_id == uuid.UUID(int=77))] * 30
        lines = decode_leader_epoch_checkpoint((new / names.LEADER_EPOCH_CHECKPOINT).read_bytes())
        assert {each.epoch for each in lines} >= {*found}
        verified = run_kdump(["verify", "--output=jsonl", str(new.parent)], tmp_path)
        bad = [row for row in rows(verified) if row["type"] == "finding"]
        assert [row for row in bad if row["severity"] != "info"] == []


@at_some_or_all
def test_a_replica_that_moves_is_stored_once(
    is_all: bool, locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.engine.local.usable_cpus", lambda: 1)
    monkeypatch.setattr("kdump.jobs.backup.living_backup.wait", lambda _: None)
    disks = [locked_dir / "d1", locked_dir / "d2"]

    def prepare() -> Iterator[Callable[[], object]]:
        """Write both directories; yields what a broker does then, as it renames both replicas."""
        for each in disks:
            shutil.rmtree(each, ignore_errors=True)
            write_log_directory(each, clean=False)
        old, copy = disks[0] / "t-0", disks[1] / f"t-0.{'1' * 32}-future"
        write_old(old)
        write_old(copy)
        yield lambda: copy.rename(disks[1] / "t-0")
        yield lambda: old.rename(disks[0] / f"t-0.{'0' * 32}-delete")

    def stored(repository: Path, step: Callable[[], None]) -> BackupResult:
        forget_holders()
        return backed_up(disks, repository, step, NOW_MS, ReadAs.LIVING)

    list(prepare())
    asked: list[None] = []
    stored(tmp_path / "unchanged", lambda: asked.append(None))
    for moment in moments_of(range(len(asked)), is_all=is_all, samples=10):
        moves = [*prepare()]
        steps = iter(range(len(asked)))

        def step(
            steps: Iterator[int] = steps,
            moment: int = moment,
            moves: list[Callable[[], object]] = moves,
        ) -> None:
            if next(steps, -1) >= moment and moves:
                moves.pop(0)()

        repository = tmp_path / f"repo{moment}"
        result = stored(repository, step)
        into = [tmp_path / f"new{moment}-{each.name}" for each in disks]
        restored(repository, result, *into)
        assert len([each for each in into if (each / "t-0").exists()]) == 1
        assert len([path for each in into for path in each.glob("t-0/*.log")]) == 1


@pytest.mark.slow
@at_some_or_all
def test_after_a_kill_the_next_run_goes_on(
    is_all: bool, locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    broker = SimulatedBroker(locked_dir, 1)
    broker.steps(400)
    args = ["backup", "create", "repo", str(locked_dir)]
    while run_kdump(args, tmp_path).exit_status:
        broker.steps(1)  # it was just writing a batch
    shutil.rmtree(tmp_path / "repo")
    count = changes_of(lambda: run_kdump(args, tmp_path))
    before = tree_of(locked_dir)
    with KillableKdump() as killable:
        for at in moments_of(range(count), is_all=is_all):
            shutil.rmtree(tmp_path / "repo")
            assert killable.run_and_kill(args, at) == -signal.SIGKILL
            assert run_kdump(args, tmp_path).exit_status == 0
            assert tree_of(locked_dir) == before
            assert run_kdump(["backup", "check", "repo"], tmp_path).exit_status == 0
            into = tmp_path / f"new{at}"
            words = ["backup", "restore", "repo", "--into", into.name]
            assert run_kdump(words, tmp_path).exit_status == 0
            verified = run_kdump(["verify", "--output=jsonl", str(into)], tmp_path)
            bad = [row for row in rows(verified) if row["type"] == "finding"]
            assert {row["code"]: row for row in bad if row["code"] not in EXPECTED} == {}


def test_what_did_not_change_is_not_read_again(locked_dir: Path, tmp_path: Path) -> None:
    broker = SimulatedBroker(locked_dir, 2)
    broker.steps(900)
    create = ["backup", "create", "repo", str(locked_dir), "--output=jsonl"]
    first = created(run_kdump(create, tmp_path))
    second = created(run_kdump(create, tmp_path))
    logs = len(list(locked_dir.glob("*/*.log")))
    assert first["read_files"] == first["files"] > second["read_files"]
    # Small files that a broker replaces, and the indexes of the last segments.
    assert second["added_bytes"] == 0
    assert logs > 10


def created(outcome: Outcome) -> dict[str, Any]:
    (row,) = [row for row in rows(outcome) if row["type"] == "created"]
    return row


def test_list_and_restore_say_that_a_broker_was_running(locked_dir: Path, tmp_path: Path) -> None:
    SimulatedBroker(locked_dir, 3).steps(200)
    (locked_dir / names.CLEAN_SHUTDOWN_MARKER).touch()
    done = run_kdump(["backup", "create", "repo", str(locked_dir)], tmp_path)
    assert b"as its broker would leave it if it were killed" in done.stdout
    (listed,) = [
        row
        for row in rows(run_kdump(["backup", "list", "repo", "--output=jsonl"], tmp_path))
        if row["type"] == "log_directory"
    ]
    assert listed["is_in_use"] is True
    restored = run_kdump(["backup", "restore", "repo", "--into", "new"], tmp_path)
    assert b"a broker recovers it at its start" in restored.stdout
    begun = re.search(rb"to cut all .* restore with --to (\S+)\n", restored.stdout)
    assert begun is not None
    options = ["--into", "cut", "--to", begun[1].decode()]
    cut = run_kdump(["backup", "restore", "repo", *options], tmp_path)
    assert (cut.exit_status, b"restore with --to" in cut.stdout) == (ExitStatus.SOUND, False)
    assert not (tmp_path / "new" / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert not (tmp_path / "new" / names.LOCK_FILE).exists()


def test_a_directory_that_kdump_is_changing_is_refused(locked_dir: Path, tmp_path: Path) -> None:
    SimulatedBroker(locked_dir, 3).steps(20)
    (locked_dir / ".kdump-7.applying").touch()
    done = run_kdump(["backup", "create", "repo", str(locked_dir)], tmp_path)
    assert done.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"run 7 of kdump is changing it, or was stopped before its end" in done.stderr
    assert run_kdump(["backup", "list", "repo"], tmp_path).stdout == b""


def test_checkpoints_say_no_more_than_what_is_stored(locked_dir: Path, tmp_path: Path) -> None:
    write_log_directory(
        locked_dir,
        clean=False,
        recovery_points={("t", 0): 31, ("gone", 0): 7},
        log_start_offsets={("t", 0): 99},
        high_watermarks={("t", 0): 29},
    )
    write_old(locked_dir / "t-0")
    log = file(locked_dir / "t-0", 0, FileKind.LOG)
    log.write_bytes(log.read_bytes()[:-1])
    run_kdump(["backup", "create", "repo", str(locked_dir)], tmp_path)
    run_kdump(["backup", "restore", "repo", "--into", "new"], tmp_path)
    key = names.TopicPartition("t", 0)
    for name, offset in (
        (names.RECOVERY_POINT_CHECKPOINT, 29),
        (names.LOG_START_OFFSET_CHECKPOINT, 29),
        (names.REPLICATION_OFFSET_CHECKPOINT, 29),
    ):
        assert decode_offset_checkpoint((tmp_path / "new" / name).read_bytes()) == [(key, offset)]
    assert offsets(tmp_path / "new/t-0") == list(range(29))


@at_some_or_all
def test_a_broker_may_be_killed_meanwhile(
    is_all: bool, quick_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.engine.local.usable_cpus", lambda: 1)
    for number, moment in enumerate(moments_of(range(0, 700, 20), is_all=is_all)):
        root = quick_path / f"log{number}"
        root.mkdir()
        broker = SimulatedBroker(root, number)
        broker.steps(300 + number)
        before = broker.ends()
        steps = iter(range(moment))
        with contextlib.ExitStack() as running:
            running.enter_context(held_elsewhere(root))
            forget_holders()

            def step(
                broker: SimulatedBroker = broker,
                steps: Iterator[int] = steps,
                running: contextlib.ExitStack = running,
            ) -> None:
                if next(steps, None) is None:
                    running.close()
                else:
                    broker.step()

            repository = tmp_path / f"repo{number}"
            result = backed_up([root], repository, step, NOW_MS, ReadAs.LIVING)
        new = restored(repository, result, tmp_path / f"new{number}")
        found = run_kdump(["verify", "--output=jsonl", str(new)], tmp_path)
        bad = [row for row in rows(found) if row["type"] == "finding"]
        others = {row["code"]: row for row in bad if row["code"] not in EXPECTED}
        if not [*new.glob("cleaned-0/*.swap")]:
            assert others == {}
        assert all("cleaned-0/" in row["path"] for row in others.values())
        for name in ("moved-0", "passing-0"):
            shutil.rmtree(new / name, ignore_errors=True)
        outcome = run_kdump(["recover", str(new)], tmp_path)
        assert outcome.exit_status & ~ExitStatus.REPAIRED == 0, outcome.stdout
        kept = {name: offsets(new / name)[-1] + 3 for name in ("kept-0", "cleaned-0")}
        assert all(kept[name] >= before[name] for name in kept)
    forget_holders()


def backed_up_while(
    log_dir: Path, repository: Path, change: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> BackupResult:
    """Back up a log directory that changes once some of its topics are stored."""
    store = LivingDirectory.store
    left = [change]

    def stored(self: LivingDirectory, is_wanted: Callable[[PartitionPlace], bool]) -> None:
        store(self, is_wanted)
        while left:
            left.pop()()

    monkeypatch.setattr(LivingDirectory, "store", stored)
    return backed_up([log_dir], repository, lambda: None, NOW_MS)


def test_a_line_of_a_deleted_topic_is_not_that_of_the_next_one(
    locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {("kept", 0): 3, ("t", 0): 20}
    write_log_directory(locked_dir, clean=False, log_start_offsets=lines)
    for name in ("kept-0", "t-0"):
        write_old(locked_dir / name)

    def change() -> None:
        create_again(locked_dir / "t-0")

    result = backed_up_while(locked_dir, tmp_path / "repo", change, monkeypatch)
    new = restored(tmp_path / "repo", result, tmp_path / "new")
    stored = decode_offset_checkpoint((new / names.LOG_START_OFFSET_CHECKPOINT).read_bytes())
    assert stored == [(names.TopicPartition("kept", 0), 3)]
    assert generations(new / "t-0") == [1] * 30


def test_the_cleaner_has_come_to_where_it_was_when_a_partition_was_read(
    locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise replicas of a snapshot would differ before the line, and could not be compared."""
    write_log_directory(locked_dir, clean=False)
    write_old(locked_dir / "t-0")
    checkpoint, key = locked_dir / names.CLEANER_OFFSET_CHECKPOINT, names.TopicPartition("t", 0)
    store, offset, then = LivingDirectory.store, 10, list[int]()

    def stored(self: LivingDirectory, is_wanted: Callable[[PartitionPlace], bool]) -> None:
        nonlocal offset
        store(self, is_wanted)
        if "t-0" in self.stored:
            then.append(offset)
        offset += 1
        checkpoint.write_bytes(encode_offset_checkpoint([OffsetEntry(key, offset)]))

    monkeypatch.setattr(LivingDirectory, "store", stored)
    result = backed_up([locked_dir], tmp_path / "repo", lambda: None, NOW_MS)
    new = restored(tmp_path / "repo", result, tmp_path / "new")
    lines = decode_offset_checkpoint((new / names.CLEANER_OFFSET_CHECKPOINT).read_bytes())
    assert lines == [(key, then[0])]
    assert 10 < then[0] < offset


def test_a_checkpoint_that_is_first_written_meanwhile_is_not_stored(
    locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log_directory(locked_dir, clean=False)
    write_old(locked_dir / "t-0")
    checkpoint, key = locked_dir / names.RECOVERY_POINT_CHECKPOINT, names.TopicPartition("t", 0)
    checkpoint.unlink()

    def change() -> None:
        checkpoint.write_bytes(encode_offset_checkpoint([OffsetEntry(key, 30)]))

    result = backed_up_while(locked_dir, tmp_path / "repo", change, monkeypatch)
    new = restored(tmp_path / "repo", result, tmp_path / "new")
    stored = (new / names.RECOVERY_POINT_CHECKPOINT).read_bytes()
    assert decode_offset_checkpoint(stored) == []


def test_a_topic_that_has_the_directory_number_of_a_deleted_one_is_another(
    locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log_directory(locked_dir, clean=False)
    path = locked_dir / "__transaction_state-0"
    write_old(path)

    def change() -> None:
        write_id(path, 77)
        for each in path.glob("0*"):
            each.unlink()
        write_log(path, 1, 0, 12)
        epochs(path, [(1, 0)])

    result = backed_up_while(locked_dir, tmp_path / "repo", change, monkeypatch)
    new = restored(tmp_path / "repo", result, tmp_path / "new")
    assert generations(new / path.name) == [1] * 12


@pytest.mark.parametrize(
    ("topic", "joins", "ends"),
    [("t", [7], (20, 10)), ("t", [], (10, 10)), ("__consumer_offsets", [7], (20, 20))],
    ids=["in-sync", "not-in-sync", "offsets-in-sync"],
)
def test_a_replica_that_gets_in_sync_meanwhile_has_what_was_acknowledged(
    topic: str,
    joins: list[int],
    ends: tuple[int, int],
    locked_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_log_directory(locked_dir, clean=False)
    paths = [locked_dir / f"{topic}-0", locked_dir / "other-0"]
    for path in paths:
        path.mkdir()
        write_log(path, 0, 0, 10)
    created = [topic_record(topic, 1), partition_record(1, 0, [8, 7], [])]
    left = partition_change_record(1, 0, isr=[8])
    write_metadata_log(locked_dir, [*created, left])
    store = LivingDirectory.store
    changes = [True]

    def stored(self: LivingDirectory, is_wanted: Callable[[PartitionPlace], bool]) -> None:
        store(self, is_wanted)
        if self.stored.keys() >= {each.name for each in paths} and changes:
            changes.pop()
            for path in paths:
                write_log(path, 0, 10, 20)
            joined = partition_change_record(1, 0, isr=[8, *joins])
            shutil.rmtree(locked_dir / "__cluster_metadata-0")
            write_metadata_log(locked_dir, [*created, left, joined])

    monkeypatch.setattr(LivingDirectory, "store", stored)
    result = backed_up([locked_dir], tmp_path / "repo", lambda: None, NOW_MS)
    new = restored(tmp_path / "repo", result, tmp_path / "new")
    found = tuple(len(offsets(new / path.name)) for path in paths)
    assert found == ends
    assert len(offsets(new / "__cluster_metadata-0")) == 4


@pytest.fixture
def disks(locked_dir: Path) -> dict[int, Path]:
    """Return the log directories of brokers 7 and 8, each with a replica of a partition."""
    found = {node: locked_dir / f"b{node}" for node in (7, 8)}
    for node, disk in found.items():
        write_log_directory(disk, clean=False)
        properties = disk / names.META_PROPERTIES
        text = properties.read_text().replace("node.id=7", f"node.id={node}")
        properties.write_text(text.replace("=V1d", f"=V{node}d"))
        (disk / "t-0").mkdir()
    return found


@pytest.mark.parametrize("leaders", [(7,), (8,), (7, 8), (8, 7), (7, 8, 7), (8, 7, 8)], ids=str)
@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves"])
def test_the_leader_has_all_that_the_other_has(
    leaders: tuple[int, ...],
    moves: bool,
    disks: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both replicas grow after each reading, others lead meanwhile, and one may move."""
    monkeypatch.setattr("kdump.jobs.backup.living_backup.wait", lambda _: None)
    second = disks[8].with_name("b8-d2")
    write_log_directory(second, clean=False)
    shutil.copy(disks[8] / names.META_PROPERTIES, second)
    replicas = {node: disk / "t-0" for node, disk in disks.items()}
    end = 0
    metadata = [topic_record("t", 1), partition_record(1, 0, [7, 8], [], leader=leaders[0])]
    later = [partition_change_record(1, 0, leader=leader) for leader in leaders[1:]]

    def grow() -> None:
        nonlocal end
        for path in replicas.values():
            write_log(path, 0, end, end + 5)
        end += 5

    store = LivingDirectory.store

    def stored(self: LivingDirectory, is_wanted: Callable[[PartitionPlace], bool]) -> None:
        store(self, is_wanted)
        grow()
        is_read = "t-0" in self.stored and self.root.name == disks[8].name
        if moves and is_read and replicas[8].parent == disks[8]:
            replicas[8] = replicas[8].rename(second / "t-0")
        if "t-0" in self.stored and later:
            metadata.append(later.pop(0))
            for disk in disks.values():
                shutil.rmtree(disk / "__cluster_metadata-0")
                write_metadata_log(disk, metadata)

    grow()
    for disk in disks.values():
        write_metadata_log(disk, metadata)
    monkeypatch.setattr(LivingDirectory, "store", stored)
    result = backed_up(
        [*disks.values(), second], tmp_path / "repo", lambda: None, NOW_MS, ReadAs.LIVING
    )
    assert not later
    assert (replicas[8].parent == second) == moves
    into = [tmp_path / f"new-{each}" for each in (7, 8, "8-d2")]
    restored(tmp_path / "repo", result, *into)
    of_7, of_8 = (len(offsets(each / "t-0")) for each in into if (each / "t-0").exists())
    assert (of_7 >= of_8) if leaders[-1] == 7 else (of_8 >= of_7)


@pytest.mark.parametrize(
    ("elected", "given_up"),
    [([*range(10)], []), ([0] * 20, ["t-0"])],
    ids=["each-once", "the-same-again-and-again"],
)
def test_replicas_may_become_leaders_one_after_another(
    elected: list[int],
    given_up: list[str],
    disks: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a broker catches up: after each reading, another partition has another leader."""
    monkeypatch.setattr("kdump.jobs.backup.living_backup.wait", lambda _: None)
    parts = [partition_record(1, number, [7, 8], [], leader=7) for number in range(10)]
    metadata = [topic_record("t", 1), *parts]
    leader = dict.fromkeys(range(10), 7)
    for disk in disks.values():
        for number in range(10):
            (disk / f"t-{number}").mkdir(exist_ok=True)
            write_log(disk / f"t-{number}", 0, 0, 5)
        write_metadata_log(disk, metadata)
    left = elected.copy()
    store = LivingDirectory.store

    def stored(self: LivingDirectory, is_wanted: Callable[[PartitionPlace], bool]) -> None:
        before = {*self.stored}
        store(self, is_wanted)
        is_last = self.root.name == disks[8].name
        if is_last and "__cluster_metadata-0" in {*self.stored} - before and left:
            number = left.pop(0)
            leader[number] = 15 - leader[number]
            metadata.append(partition_change_record(1, number, leader=leader[number]))
            for disk in disks.values():
                shutil.rmtree(disk / "__cluster_metadata-0")
                write_metadata_log(disk, metadata)

    monkeypatch.setattr(LivingDirectory, "store", stored)
    result = backed_up([*disks.values()], tmp_path / "repo", lambda: None, NOW_MS, ReadAs.LIVING)
    assert (left == []) == (not given_up)
    assert {line.partition(":")[0].rpartition("/")[2] for line in result.unreadable} == {*given_up}
    assert all("became the leader after it was read" in line for line in result.unreadable)
    assert (result.snapshot is None) == bool(given_up)


@pytest.mark.parametrize("cleaned", [7, 8])
@pytest.mark.parametrize("leader", [7, 8])
def test_a_replica_has_what_came_before_another_was_cleaned(
    leader: int,
    cleaned: int,
    disks: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else, as leader, it takes the later values for which the other has lost the earlier."""
    monkeypatch.setattr("kdump.jobs.backup.living_backup.wait", lambda _: None)
    created = [topic_record("t", 1), partition_record(1, 0, [7, 8], [], leader=leader)]
    for disk in disks.values():
        write_metadata_log(disk, created)
        write_log(disk / "t-0", 0, 0, 10)
    store = LivingDirectory.store
    changes = [True]

    def stored(self: LivingDirectory, is_wanted: Callable[[PartitionPlace], bool]) -> None:
        store(self, is_wanted)
        if "t-0" in self.stored and changes:
            changes.pop()
            for disk in disks.values():
                write_log(disk / "t-0", 0, 10, 40)
            path = disks[cleaned] / "t-0"
            for each in path.glob(f"{0:020d}.*"):
                each.unlink()
            write_log(path, 0, 28, 30)
            last = b"".join(batch([record(each)]) for each in range(30, 40))
            file(path, 30, FileKind.LOG).write_bytes(last)
            checkpoint = encode_offset_checkpoint([OffsetEntry(TopicPartition("t", 0), 30)])
            (disks[cleaned] / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(checkpoint)

    monkeypatch.setattr(LivingDirectory, "store", stored)
    result = backed_up([*disks.values()], tmp_path / "repo", lambda: None, NOW_MS, ReadAs.LIVING)
    assert not changes
    into = [tmp_path / f"new-{each}" for each in disks]
    restored(tmp_path / "repo", result, *into)
    ends = [offsets(each / "t-0")[-1] + 1 for each in into]
    bases = [[int(each.stem) for each in (path / "t-0").glob("*.log")] for path in into]
    is_cleaned = 30 in bases[[*disks].index(cleaned)]
    assert min(ends) >= (30 if is_cleaned else 10)


def test_a_topic_that_is_created_again_before_the_metadata_is_stored_as_they_know_it(
    locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log_directory(locked_dir, clean=False)
    paths = [locked_dir / f"{topic}-0" for topic in ("t", "late", "gone", "kept", "unknown")]
    created = []
    for number, path in enumerate(paths, start=1):
        write_old(path)
        write_id(path, number)
        created += [topic_record(path.name[:-2], number), partition_record(number, 0, [7, 8], [])]
    write_metadata_log(locked_dir, created[:8])
    leave_replaced = LivingDirectory.leave_replaced
    changes = [True]

    def left(self: LivingDirectory) -> None:
        leave_replaced(self)
        if changes:
            changes.pop()
            create_again(paths[0])
            # Of the others, the metadata know already what the broker is about to do.
            removed = map(remove_topic_record, (1, 2, 3))
            again = [topic_record("t", 77), topic_record("late", 78)]
            parts = [partition_record(number, 0, [7, 8], []) for number in (77, 78)]
            shutil.rmtree(locked_dir / "__cluster_metadata-0")
            write_metadata_log(locked_dir, [*created[:8], *removed, *again, *parts])

    monkeypatch.setattr(LivingDirectory, "leave_replaced", left)
    result = backed_up([locked_dir], tmp_path / "repo", lambda: None, NOW_MS)
    new = restored(tmp_path / "repo", result, tmp_path / "new")
    assert generations(new / "t-0") == [1] * 30
    assert {name: (new / f"{name}-0").exists() for name in ("late", "gone", "kept", "unknown")} == {
        "late": False,
        "gone": False,
        "kept": True,
        "unknown": True,
    }
    assert len(offsets(new / "__cluster_metadata-0")) == 15


def test_a_replica_that_moves_while_others_are_stored_again_is_stored(
    locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.jobs.backup.living_backup.wait", lambda _: None)
    disks = [locked_dir / "d1", locked_dir / "d2"]
    for each in disks:
        write_log_directory(each, clean=False)
    old, copy = disks[0] / "t-0", disks[1] / f"t-0.{'1' * 32}-future"
    committed = disks[0] / "__consumer_offsets-0"
    write_old(old)
    write_old(copy)
    committed.mkdir()
    write_log(committed, 0, 0, 10)
    created = [topic_record("__consumer_offsets", 1), partition_record(1, 0, [8, 7], [])]
    left, joined = (partition_change_record(1, 0, isr=isr) for isr in ([8], [8, 7]))
    write_metadata_log(disks[0], [*created, left])
    store, leave = LivingDirectory.store, LivingDirectory.leave
    joins = [True]
    moves: list[Callable[[], object]] = [
        lambda: old.rename(disks[0] / f"t-0.{'0' * 32}-delete"),
        lambda: copy.rename(disks[1] / "t-0"),
    ]

    def stored(self: LivingDirectory, is_wanted: Callable[[PartitionPlace], bool]) -> None:
        store(self, is_wanted)
        if self.stored.keys() >= {old.name, committed.name} and joins:
            joins.pop()
            shutil.rmtree(disks[0] / "__cluster_metadata-0")
            write_metadata_log(disks[0], [*created, left, joined])

    def to_store_again(
        self: LivingDirectory, is_left: Callable[[PartitionPlace], bool]
    ) -> list[str]:
        found = leave(self, is_left)
        while moves:
            moves.pop()()
        return found

    monkeypatch.setattr(LivingDirectory, "store", stored)
    monkeypatch.setattr(LivingDirectory, "leave", to_store_again)
    result = backed_up(disks, tmp_path / "repo", lambda: None, NOW_MS, ReadAs.LIVING)
    assert not joins
    assert not moves
    into = [tmp_path / f"new-{each.name}" for each in disks]
    restored(tmp_path / "repo", result, *into)
    assert [(each / "t-0").exists() for each in into] == [False, True]
    assert generations(into[1] / "t-0") == [0] * 30


def test_a_run_of_kdump_that_ends_meanwhile_is_refused(
    locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log_directory(locked_dir, clean=False)
    write_old(locked_dir / "t-0")

    def change() -> None:
        (locked_dir / ".kdump-1.applied").touch()

    with pytest.raises(KdumpError, match="run 1 of kdump has changed it meanwhile"):
        backed_up_while(locked_dir, tmp_path / "repo", change, monkeypatch)


def test_what_is_damaged_or_no_file_is_named(locked_dir: Path, tmp_path: Path) -> None:
    write_log_directory(locked_dir, clean=False)
    (locked_dir / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(b"garbage")
    for name in ("middle-0", "tail-0"):
        path = locked_dir / name
        path.mkdir()
        write_topic_id(path)
        content = bytearray(b"".join(batch([record(offset, value=b"v")]) for offset in range(5)))
        content[-3 if name == "tail-0" else len(content) // 2] ^= 0xFF
        file(path, 0, FileKind.LOG).write_bytes(content)
    (locked_dir / "middle-0" / "folder").mkdir()
    (locked_dir / "x-0").symlink_to("nowhere")
    result = backed_up([locked_dir], tmp_path / "repo", lambda: None, NOW_MS)
    damaged = [path.parent.name for path, _ in result.damage]
    assert damaged == ["middle-0"]
    left_out = {str(Path(each).relative_to(locked_dir)) for each in result.left_out}
    assert left_out == {"x-0", "middle-0/folder", "tail-0/00000000000000000000.log"}
    new = restored(tmp_path / "repo", result, tmp_path / "new", status=ExitStatus.DAMAGE_LEFT)
    assert (new / names.CLEANER_OFFSET_CHECKPOINT).read_bytes() == b"garbage"


def test_an_emptied_partition_of_an_old_broker_keeps_its_offset(
    locked_dir: Path, tmp_path: Path
) -> None:
    write_log_directory(locked_dir, clean=False)
    (locked_dir / "old-0").mkdir()
    file(locked_dir / "old-0", 12345, FileKind.LOG).touch()
    result = backed_up([locked_dir], tmp_path / "repo", lambda: None, NOW_MS)
    new = restored(tmp_path / "repo", result, tmp_path / "new")
    assert file(new / "old-0", 12345, FileKind.LOG).exists()


def test_a_log_with_a_half_written_batch_may_be_deleted_meanwhile(
    locked_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.engine.local.usable_cpus", lambda: 1)
    monkeypatch.setattr("kdump.jobs.backup.living_backup.wait", lambda _: None)
    write_log_directory(locked_dir, clean=False)
    path = locked_dir / "t-0"

    def prepare() -> None:
        for each in locked_dir.glob("t-*"):
            shutil.rmtree(each)
        write_old(path)
        log = file(path, 0, FileKind.LOG)
        log.write_bytes(log.read_bytes()[:-1])

    prepare()
    asked: list[None] = []
    result = backed_up([locked_dir], tmp_path / "kept", lambda: asked.append(None), NOW_MS)
    assert list(result.left_out) == [str(file(path, 0, FileKind.LOG))]
    for moment in range(len(asked)):
        prepare()
        steps = iter(range(len(asked)))

        def step(steps: Iterator[int] = steps, moment: int = moment) -> None:
            if next(steps, None) == moment:
                path.rename(path.with_name(f"{path.name}.{'0' * 32}-delete"))

        result = backed_up([locked_dir], tmp_path / f"repo{moment}", step, NOW_MS)
        assert result.unreadable == []
        assert len(result.left_out) == result.log_dirs[0].partitions
