"""``kdump transplant``: what the copy has, what is refused, and what an undo gives back."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.batches import batch, record
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import original_of
from builders.log_directories import (
    TOPIC_ID_TEXT,
    begin_epochs_at,
    offset_checkpoint,
    write_log_directory,
    write_partition,
)
from builders.metadata_log import (
    config_record,
    partition_record,
    topic_record,
    write_metadata_log,
)
from builders.recovery import marker, of_producer
from builders.trees import contents_of
from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry, encode_leader_epoch_checkpoint
from kdump.formats.uuids import format_uuid
from kdump.repair.transplant import lowered_epochs

LOG = f"{0:020d}.log"
OTHER_ID = format_uuid(UUID(int=7))
EPOCHS = [0, 0, 4, 4, 6]
NODE_ID = 7
DIRECTORY = 9


def kdump(*args: str | Path, cwd: Path | None = None) -> Outcome:
    return run_kdump([*map(str, args)], cwd or Path.cwd())


def transplant(source: Path, into: Path, *args: str | Path) -> Outcome:
    return kdump("transplant", source, "--into", into, *args)


def row_of(outcome: Outcome) -> dict[str, Any]:
    return next(each for each in objects(outcome.stdout) if each["type"] == "partition")


def write_source(path: Path, batches: Sequence[bytes] | None = None, *, clean: bool = True) -> Path:
    """Write the log directory of the old cluster with ``orders-0``."""
    parts = batches or [
        batch([record(at)], partition_leader_epoch=epoch) for at, epoch in enumerate(EPOCHS)
    ]
    end = len(parts)
    write_log_directory(
        path,
        clean=clean,
        recovery_points={("orders", 0): end},
        high_watermarks={("orders", 0): end},
    )
    checkpoint = [EpochEntry(0, 0), EpochEntry(4, 2), EpochEntry(6, 4)]
    others = (
        {}
        if batches
        else {names.LEADER_EPOCH_CHECKPOINT: encode_leader_epoch_checkpoint(checkpoint)}
    )
    return write_partition(path / "orders-0", {0: b"".join(parts)}, others=others)


def write_target(path: Path, *, replicas: Sequence[int] = (NODE_ID,)) -> Path:
    """Write a log directory of the new cluster, whose metadata has the topic ``new``."""
    points = {("other", 3): 5}
    write_log_directory(path, recovery_points=points, high_watermarks=points)
    properties = (path / names.META_PROPERTIES).read_text()
    (path / names.META_PROPERTIES).write_text(properties.replace("a-cluster", "the-new-one"))
    directories = [DIRECTORY] * len(replicas)
    records = [topic_record("new", 7), partition_record(7, 0, replicas, directories)]
    write_metadata_log(path, records)
    return path


@pytest.fixture
def source(quick_path: Path) -> Path:
    return write_source(quick_path / "old")


@pytest.fixture
def target(quick_path: Path) -> Path:
    return write_target(quick_path / "new")


TO_NEW = ("--topic", "new")


def test_the_copy_has_the_ids_and_epochs_of_the_target(source: Path, target: Path) -> None:
    before = contents_of(source)
    outcome = transplant(source, target, *TO_NEW, "--output", "jsonl")
    assert outcome.exit_status == 1
    copy = target / "new-0"
    expected = [batch([record(at)], partition_leader_epoch=0) for at in range(len(EPOCHS))]
    assert (copy / LOG).read_bytes() == b"".join(expected)
    assert OTHER_ID in (copy / names.PARTITION_METADATA).read_text()
    assert (copy / names.LEADER_EPOCH_CHECKPOINT).read_text() == "0\n1\n0 0\n"
    row = row_of(outcome)
    assert (row["highest_leader_epoch"], row["lowered_to_epoch"]) == (6, 0)
    assert (row["log_start_offset"], row["log_end_offset"]) == (0, 5)
    assert contents_of(source) == before


def test_producers_are_forgotten_where_a_recovery_would_begin(source: Path, target: Path) -> None:
    transplant(source, target, *TO_NEW)
    snapshots = [path.name for path in (target / "new-0").glob("*.snapshot")]
    assert snapshots == [f"{5:020d}.snapshot"]
    assert (target / "new-0" / f"{5:020d}.log").read_bytes() == b""
    found = kdump("dump-segment", "--files", str(target / "new-0" / snapshots[0]))
    assert b"producerId" not in found.stdout


def test_the_lines_of_the_checkpoints_come_along(source: Path, target: Path) -> None:
    starts = {("orders", 0): 3}
    log_dir = source.parent
    (log_dir / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint(starts))
    begin_epochs_at(source, 3)
    (log_dir / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({("orders", 0): 4}))
    transplant(source, target, *TO_NEW)
    lines = {name: (target / name).read_text().splitlines() for name in CHECKPOINTS}
    assert lines[names.RECOVERY_POINT_CHECKPOINT][2:] == ["other 3 5", "new 0 5"]
    assert lines[names.REPLICATION_OFFSET_CHECKPOINT][2:] == ["other 3 5", "new 0 5"]
    assert lines[names.LOG_START_OFFSET_CHECKPOINT][2:] == ["new 0 3"]
    assert lines[names.CLEANER_OFFSET_CHECKPOINT][2:] == ["new 0 4"]


CHECKPOINTS = (
    *(names.RECOVERY_POINT_CHECKPOINT, names.REPLICATION_OFFSET_CHECKPOINT),
    *(names.LOG_START_OFFSET_CHECKPOINT, names.CLEANER_OFFSET_CHECKPOINT),
)


def test_the_same_cluster_keeps_producers_and_epochs(quick_path: Path, source: Path) -> None:
    again = write_log_directory(quick_path / "again")
    args = ("--topic-id", TOPIC_ID_TEXT, "--leader-epoch", "6", "--output", "jsonl")
    row = row_of(transplant(source, again, *args))
    assert (row["keeps_producers"], row["lowered_to_epoch"]) == (True, None)
    assert (again / "orders-0" / LOG).read_bytes() == (source / LOG).read_bytes()
    before = (source / names.LEADER_EPOCH_CHECKPOINT).read_bytes()
    assert (again / "orders-0" / names.LEADER_EPOCH_CHECKPOINT).read_bytes() == before


def test_the_undo_gives_back_the_target(source: Path, target: Path) -> None:
    before = original_of(target)
    assert transplant(source, target, *TO_NEW).exit_status == 1
    assert kdump("undo", target).exit_status == 0
    assert kdump("undo", "--discard", target).exit_status == 0
    assert original_of(target) == before


def test_an_empty_directory_of_the_partition_is_replaced(source: Path, target: Path) -> None:
    write_partition(target / "new-0", {0: b""})
    before = original_of(target)
    assert transplant(source, target, *TO_NEW).exit_status == 1
    assert OTHER_ID in (target / "new-0" / names.PARTITION_METADATA).read_text()
    for _ in range(2):
        assert kdump("undo", target).exit_status == 0
    kdump("undo", "--discard", target)
    assert original_of(target) == before


def test_a_source_whose_offsets_go_back_is_refused(quick_path: Path, target: Path) -> None:
    """A broker takes it after a clean shutdown, and fails when it recovers the log."""
    source = write_source(quick_path / "old", [batch([record(at)]) for at in (0, 7, 2, 3)])
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 4
    assert b"a batch with an offset before that of another" in outcome.stderr


@pytest.mark.parametrize("of_segment", [True, False])
def test_a_log_whose_records_were_deleted_later_is_not_replaced(
    source: Path, target: Path, of_segment: bool
) -> None:
    """Its offsets would be given out again."""
    later = len(EPOCHS) + 1
    write_partition(target / "new-0", {later if of_segment else 0: b""})
    if not of_segment:
        checkpoint = target / names.LOG_START_OFFSET_CHECKPOINT
        checkpoint.write_bytes(offset_checkpoint({("new", 0): later}))
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 8
    assert b"offsets would be given out again" in outcome.stderr


def test_the_empty_directory_says_the_topic_id_and_an_epoch(quick_path: Path, source: Path) -> None:
    other = write_log_directory(quick_path / "disk-2")
    checkpoint = encode_leader_epoch_checkpoint([EpochEntry(2, 0)])
    others = {names.LEADER_EPOCH_CHECKPOINT: checkpoint}
    write_partition(other / "new-0", {0: b""}, others=others)
    row = row_of(transplant(source, other, *TO_NEW, "--output", "jsonl"))
    assert (row["topic_id"], row["lowered_to_epoch"]) == (TOPIC_ID_TEXT, 2)


def test_a_preview_changes_nothing_and_names_the_same_changes(source: Path, target: Path) -> None:
    write_partition(target / "new-0", {0: b""})
    before = original_of(target)
    previewed = transplant(source, target, *TO_NEW, "--dry-run", "--output", "jsonl")
    assert previewed.exit_status == 1
    assert original_of(target) == before
    done = transplant(source, target, *TO_NEW, "--output", "jsonl")

    def operations(outcome: Outcome) -> list[Any]:
        rows = [each for each in objects(outcome.stdout) if each["type"] == "directory"]
        return [each["operations"] for each in rows]

    assert operations(previewed) == operations(done)


# ---- Transactions


def hanging() -> list[bytes]:
    return [
        of_producer(0, 8, transactional=True),
        marker(1, 8, commit=True),
        batch([record(2)]),
        of_producer(3, 9, transactional=True),
        batch([record(4)]),
    ]


def test_an_open_transaction_is_refused_with_both_ways_out(quick_path: Path, target: Path) -> None:
    source = write_source(quick_path / "old", hanging(), clean=False)
    before = original_of(target)
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 4
    assert b"has 1 open transaction from offset 3 on (producer 9)" in outcome.stderr
    assert original_of(target) == before


def test_an_open_transaction_is_aborted(quick_path: Path, target: Path) -> None:
    source = write_source(quick_path / "old", hanging(), clean=False)
    args = ("--open-transactions", "abort", "--output", "jsonl")
    row = row_of(transplant(source, target, *TO_NEW, *args))
    assert (row["source_end_offset"], row["log_end_offset"]) == (5, 6)
    copy = target / "new-0"
    assert b"".join(hanging()) == (copy / LOG).read_bytes()
    assert (copy / f"{5:020d}.txnindex").stat().st_size == 34
    assert b"0 open transactions" in kdump("txns", "--partition", "new-0", target).stdout


def test_an_open_transaction_is_cut(quick_path: Path, target: Path) -> None:
    source = write_source(quick_path / "old", hanging(), clean=False)
    args = ("--open-transactions", "truncate", "--output", "jsonl")
    row = row_of(transplant(source, target, *TO_NEW, *args))
    assert (row["source_end_offset"], row["log_end_offset"]) == (5, 3)
    assert (target / "new-0" / LOG).read_bytes() == b"".join(hanging()[:3])


# ---- Sources


def test_a_source_after_a_crash_is_recovered_on_the_way(quick_path: Path, target: Path) -> None:
    source = write_source(quick_path / "old", clean=False)
    log = (source / LOG).read_bytes()
    (source / LOG).write_bytes(log + bytes(4096))
    assert transplant(source, target, *TO_NEW).exit_status == 1
    assert (target / "new-0" / LOG).stat().st_size == len(log)
    assert (source / LOG).stat().st_size == len(log) + 4096


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_damaged_source_is_refused(clean: bool, quick_path: Path, target: Path) -> None:
    source = write_source(quick_path / "old", clean=clean)
    log = bytearray((source / LOG).read_bytes())
    log[100] ^= 1
    (source / LOG).write_bytes(log)
    before = original_of(target)
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 4
    assert b"kdump " in outcome.stderr
    assert original_of(target) == before


def test_a_copy_of_a_directory_of_any_name_is_taken(
    quick_path: Path, source: Path, target: Path
) -> None:
    shutil.copytree(source, quick_path / "backup")
    outcome = transplant(quick_path / "backup", target, *TO_NEW)
    assert outcome.exit_status == 16
    assert b"give --topic and --partition" in outcome.stderr
    args = (*TO_NEW, "--partition", "0")
    assert transplant(quick_path / "backup", target, *args).exit_status == 1


def test_a_file_that_changes_while_it_is_copied_is_noticed(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = lowered_epochs.StoredRange.pieces

    def interfered(self: lowered_epochs.StoredRange) -> Iterator[bytes]:
        if self.location.name == LOG:
            with (source / LOG).open("ab") as log:
                log.write(b"more")
        return read(self)

    monkeypatch.setattr(lowered_epochs.StoredRange, "pieces", interfered)
    before = original_of(target)
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 8
    assert b"was changed while it was read" in outcome.stderr
    assert original_of(target) == before


# ---- Refusals


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ((), "no such topic in the target's metadata"),
        (("--topic", "new", "--partition", "1"), "no such partition"),
        (("--topic", "new", "--topic-id", TOPIC_ID_TEXT), "rename the directory to -stray"),
        (("--topic", "a b"), "no partition can have this name"),
        (("--topic", "../x"), "no partition can have this name"),
        (("--topic", names.CLUSTER_METADATA_TOPIC), "metadata cannot be transplanted"),
        (("--topic-id", "zzz"), "not a topic id"),
    ],
)
def test_what_the_target_would_not_keep_is_refused(
    args: Sequence[str], what: str, source: Path, target: Path
) -> None:
    before = original_of(target)
    outcome = transplant(source, target, *args)
    assert outcome.exit_status == 16
    assert what in outcome.stderr.decode()
    assert original_of(target) == before


def test_a_target_that_is_no_replica_is_refused(quick_path: Path, source: Path) -> None:
    target = write_target(quick_path / "new", replicas=(1, 2))
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 16
    assert b"its replicas are on 1, 2, not on node 7" in outcome.stderr


def test_another_disk_of_the_broker_that_has_the_partition_is_named(
    quick_path: Path, source: Path
) -> None:
    target = write_log_directory(quick_path / "new")
    records = [topic_record("new", 7), partition_record(7, 0, [NODE_ID], [1 << 90])]
    write_metadata_log(target, records)
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 16
    assert b"transplant into that one" in outcome.stderr


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_a_target_with_remote_storage_is_refused(
    quick_path: Path, source: Path, value: str
) -> None:
    target = write_log_directory(quick_path / "new")
    records = [
        topic_record("new", 7),
        config_record(2, "new", "remote.storage.enable", value),
        partition_record(7, 0, [NODE_ID], [DIRECTORY]),
    ]
    write_metadata_log(target, records)
    outcome = transplant(source, target, *TO_NEW)
    assert b"remote.storage.enable is set for its topic" in outcome.stderr
    assert not (target / "new-0").exists()


def test_records_in_the_target_are_never_replaced(source: Path, target: Path) -> None:
    write_partition(target / "new-0", {0: batch([record(0)])})
    before = original_of(target)
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 8
    assert b"has records already" in outcome.stderr
    assert original_of(target) == before


def test_the_same_command_again_finds_its_copy(source: Path, target: Path) -> None:
    assert transplant(source, target, *TO_NEW).exit_status == 1
    before = original_of(target)
    again = transplant(source, target, *TO_NEW)
    assert again.exit_status == 0
    assert b"has this copy already" in again.stdout
    assert original_of(target) == before


def test_what_is_not_known_is_asked_for(quick_path: Path, source: Path) -> None:
    empty = write_log_directory(quick_path / "empty")
    assert b"give --topic-id" in transplant(source, empty).stderr
    outcome = transplant(source, empty, "--topic-id", OTHER_ID)
    assert outcome.exit_status == 16
    assert b"give --leader-epoch" in outcome.stderr
    args = ("--topic-id", OTHER_ID, "--leader-epoch", "5")
    outcome = transplant(source, empty, *args)
    assert outcome.exit_status == 1
    assert b"says in which log directory of the broker orders-0 is" in outcome.stdout


def test_each_replica_is_named(quick_path: Path, source: Path) -> None:
    target = write_target(quick_path / "new", replicas=(NODE_ID, 8))
    assert (
        b"copy it to all replicas, nodes 7, 8 with --leader-epoch 0"
        in transplant(source, target, *TO_NEW).stdout
    )


# ---- Stops


def test_a_full_disk_leaves_the_target_as_it_was(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object) -> Iterator[bytes]:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = original_of(target)
    monkeypatch.setattr(lowered_epochs.TransplantedFile, "pieces", full)
    outcome = transplant(source, target, *TO_NEW)
    assert outcome.exit_status == 8
    assert original_of(target) == before
