"""The commands that repair one part: indexes, leftover files, snapshots, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import offset_checkpoint
from builders.trees import contents_of, tree_of
from builders.verified import END_OFFSET, LogModel, file
from kdump.apply.lock import hold_locks
from kdump.cli.commands.checkpoint import CHECKPOINTS
from kdump.formats import names, producer_snapshot
from kdump.formats.names import FileKind

DENSE = ("--config", "index.interval.bytes=0")
"""Gives small segments index entries."""
INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


def kdump(*args: str | Path) -> Outcome:
    return run_kdump([str(arg) for arg in args], Path.cwd())


def rows(*args: str | Path) -> list[dict[str, Any]]:
    outcome = kdump(*args, "--output", "jsonl")
    assert outcome.stderr == b""
    return objects(outcome.stdout)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a clean log directory, with indexes as Kafka writes them."""
    root = LogModel().write(tmp_path / "logs").parent
    for path in (root / "orders-0").glob("*index"):
        path.unlink()
    kdump("rebuild-index", "--no-undo", *DENSE, root)
    return root


@pytest.fixture
def partition(log_dir: Path) -> Path:
    return log_dir / "orders-0"


# rebuild-index


def test_lost_indexes_are_rebuilt(log_dir: Path, partition: Path) -> None:
    valid = contents_of(log_dir)
    for kind in INDEXES:
        file(partition, 0, kind).unlink()

    assert kdump("rebuild-index", "--no-undo", *DENSE, partition).exit_status == 1

    assert contents_of(log_dir) == valid


def test_only_the_given_segment_gets_indexes(log_dir: Path, partition: Path) -> None:
    valid = contents_of(log_dir)
    for base_offset in (0, 12):
        file(partition, base_offset, FileKind.OFFSET_INDEX).unlink()

    kdump("rebuild-index", "--no-undo", *DENSE, file(partition, 12, FileKind.LOG))

    missing = valid.keys() - contents_of(log_dir).keys()
    assert missing == {"orders-0/00000000000000000000.index"}


def test_valid_indexes_are_unchanged(log_dir: Path) -> None:
    before = tree_of(log_dir / "orders-0")

    assert kdump("rebuild-index", *DENSE, log_dir).exit_status == 0

    assert tree_of(log_dir / "orders-0") == before


def test_a_damaged_log_keeps_its_indexes(log_dir: Path, partition: Path) -> None:
    log = file(partition, 0, FileKind.LOG)
    content = bytearray(log.read_bytes())
    content[-2] ^= 1
    log.write_bytes(content)
    file(partition, 0, FileKind.OFFSET_INDEX).unlink()
    before = contents_of(log_dir)

    (said, *_) = rows("rebuild-index", *DENSE, partition)

    assert [refusal["file"] for refusal in said["refusals"]] == [log.name]
    assert kdump("rebuild-index", *DENSE, partition).exit_status == 4
    assert contents_of(log_dir) == before


def test_a_file_that_is_not_a_log_is_refused(partition: Path) -> None:
    index = file(partition, 0, FileKind.OFFSET_INDEX)
    assert kdump("rebuild-index", index).exit_status == 8


@pytest.mark.parametrize(
    "command", [("rebuild-index",), ("resolve",), ("snapshot", "rebuild")], ids=" ".join
)
def test_topics_with_remote_storage_are_left_unchanged_and_named(
    log_dir: Path, partition: Path, command: tuple[str, ...]
) -> None:
    file(partition, 0, FileKind.OFFSET_INDEX).unlink()
    before = tree_of(partition)

    outcome = kdump(*command, log_dir, "--config", "remote.storage.enable=true")

    assert outcome.exit_status == 4
    assert b"remote.storage.enable" in outcome.stdout
    assert tree_of(partition) == before


BROKEN = pytest.mark.parametrize(
    ("command", "broken"),
    [
        (("rebuild-index", *DENSE), "00000000000000000000.index"),
        (("resolve",), "00000000000000000012.log.deleted"),
        (("snapshot", "rebuild"), "00000000000000000012.snapshot"),
    ],
)
"""Each command, with a file that it repairs when it is rubbish."""


@BROKEN
def test_a_run_does_what_its_dry_run_previewed_and_can_be_undone(
    log_dir: Path, partition: Path, command: tuple[str, ...], broken: str
) -> None:
    (partition / broken).write_bytes(b"rubbish!")
    before = contents_of(log_dir)
    times = tree_of(log_dir)

    predicted = rows(*command, "--dry-run", log_dir)
    assert tree_of(log_dir) == times
    assert kdump(*command, "--dry-run", log_dir).exit_status == 1
    done = rows(*command, log_dir)

    def operations(said: list[dict[str, Any]]) -> list[Any]:
        return [row["operations"] for row in said if row["type"] == "partition"]

    assert operations(predicted) == operations(done) != [[]]
    assert contents_of(log_dir) != before
    assert kdump("undo", log_dir).exit_status == 0
    assert contents_of(log_dir) == before


@BROKEN
@pytest.mark.parametrize(
    ("below", "given", "log_dir_said"),
    [
        ("", "logs", "logs"),
        ("", "logs/orders-0", "logs"),
        ("", "linked/orders-0", "linked"),
        ("logs", ".", "."),
        ("logs", "orders-0", "."),
        ("logs", "../logs/orders-0", "../logs"),
        ("logs/orders-0", "..", ".."),
        ("logs/orders-0", ".", ".."),
        ("logs/orders-0/deeper", "..", "../.."),
    ],
)
def test_relative_paths_are_printed_as_given(
    log_dir: Path,
    partition: Path,
    command: tuple[str, ...],
    broken: str,
    below: str,
    given: str,
    log_dir_said: str,
) -> None:
    (log_dir.parent / "linked").symlink_to(log_dir)
    (partition / "deeper").mkdir()
    (partition / broken).write_bytes(b"rubbish!")
    before = contents_of(log_dir)
    cwd = log_dir.parent / below

    predicted = run_kdump([*command, "--dry-run", given, "--output", "jsonl"], cwd)
    text = run_kdump([*command, "--verbose", given], cwd)

    said = objects(predicted.stdout)
    assert {row["log_dir"] for row in said if "log_dir" in row} == {log_dir_said}
    assert [row["directory"] for row in said if row["type"] == "partition"] == ["orders-0"]
    assert f"{Path(log_dir_said) / 'orders-0'}: 1 change\n" in text.stdout.decode()
    assert str(log_dir.parent) not in (predicted.stdout + text.stdout + text.stderr).decode()
    assert contents_of(log_dir) != before
    assert run_kdump(["undo", log_dir_said], cwd).exit_status == 0
    assert contents_of(log_dir) == before


@pytest.mark.parametrize(
    ("below", "directory", "log_dir_said"),
    [("", "logs/orders-0/", "logs"), ("logs", "orders-0/", "."), ("logs/orders-0", "", "..")],
)
def test_the_log_directory_of_a_relative_segment_is_relative(
    log_dir: Path, partition: Path, below: str, directory: str, log_dir_said: str
) -> None:
    index = file(partition, 0, FileKind.OFFSET_INDEX)
    index.unlink()
    log = file(partition, 0, FileKind.LOG).name

    outcome = run_kdump(
        ["rebuild-index", *DENSE, f"{directory}{log}", "--output", "jsonl"], log_dir.parent / below
    )

    said = objects(outcome.stdout)
    assert {row["log_dir"] for row in said if "log_dir" in row} == {log_dir_said}
    assert index.exists()


@pytest.mark.parametrize("name", ["linked-0", "orders-0"])
def test_a_segment_reached_through_a_link_is_repaired_where_it_is(
    log_dir: Path, partition: Path, name: str
) -> None:
    index = file(partition, 0, FileKind.OFFSET_INDEX)
    index.unlink()
    log = file(partition, 0, FileKind.LOG).name
    (log_dir.parent / "elsewhere").mkdir()
    (log_dir.parent / "elsewhere" / name).symlink_to(partition)

    outcome = run_kdump(
        ["rebuild-index", *DENSE, f"elsewhere/{name}/{log}", "--output", "jsonl"], log_dir.parent
    )

    said = objects(outcome.stdout)
    assert {row["log_dir"] for row in said if "log_dir" in row} == {str(log_dir)}
    assert index.exists()


def test_a_directory_given_by_several_paths_is_repaired_once(
    log_dir: Path, partition: Path
) -> None:
    (log_dir.parent / "linked").symlink_to(log_dir)
    file(partition, 0, FileKind.OFFSET_INDEX).unlink()
    paths = ["logs/orders-0", "linked", str(log_dir), "linked/orders-0", "logs/../logs"]

    outcome = run_kdump(["rebuild-index", *DENSE, *paths, "--output", "jsonl"], log_dir.parent)

    said = objects(outcome.stdout)
    assert [row["log_dir"] for row in said if row["type"] == "directory"] == ["logs"]
    assert [row["directory"] for row in said if row["type"] == "partition"] == ["orders-0"]
    assert outcome.exit_status == 1


def test_a_relative_partition_locks_the_directory_around_it(log_dir: Path, partition: Path) -> None:
    file(partition, 0, FileKind.OFFSET_INDEX).unlink()
    with hold_locks([log_dir]):
        outcome = run_kdump(["rebuild-index", *DENSE, "orders-0"], log_dir)

    assert b"holds the lock of the directory" in outcome.stderr
    assert not file(partition, 0, FileKind.OFFSET_INDEX).exists()


# resolve


def test_only_leftover_files_are_resolved(log_dir: Path, partition: Path) -> None:
    valid = contents_of(log_dir)
    (partition / "00000000000000000012.log.cleaned").write_bytes(b"half")
    (partition / "00000000000000000000.log.deleted").write_bytes(b"old")
    (partition / "00000000000000000099.index").write_bytes(b"")

    (said, *_) = rows("resolve", "--no-undo", log_dir)

    assert {each["file"]: each["outcome"] for each in said["leftovers"]} == {
        "00000000000000000012.log.cleaned": "deleted",
        "00000000000000000000.log.deleted": "deleted",
        "00000000000000000099.index": "deleted",
    }
    assert contents_of(log_dir) == valid


def test_deleted_topics_are_removed_only_on_request(log_dir: Path, partition: Path) -> None:
    deleted = log_dir / f"payments-0.{'0' * 32}-delete"
    deleted.mkdir()
    log = file(deleted, 0, FileKind.LOG)
    log.write_bytes(b"gone")

    assert kdump("resolve", log_dir).exit_status == 0
    assert log.exists()
    assert kdump("resolve", "--drop-deleted", log_dir).exit_status == 1
    assert not log.exists()
    assert file(partition, 0, FileKind.LOG).exists()


# snapshot


def test_lost_snapshots_are_rebuilt(log_dir: Path, partition: Path) -> None:
    kdump("snapshot", "rebuild", "--no-undo", log_dir)
    valid = contents_of(log_dir)
    for offset in (12, END_OFFSET):
        file(partition, offset, FileKind.PRODUCER_SNAPSHOT).unlink()

    assert kdump("snapshot", "rebuild", "--no-undo", partition).exit_status == 1

    assert contents_of(log_dir) == valid


# checkpoint


def test_checkpoints_are_shown_by_partition(log_dir: Path) -> None:
    (row,) = rows("checkpoint", "show", log_dir)
    assert row == {
        "type": "partition",
        "log_dir": str(log_dir),
        "topic": "orders",
        "partition": 0,
        "recovery_point": END_OFFSET,
        "log_start_offset": None,
        "high_watermark": END_OFFSET,
        "cleaner_offset": None,
        "is_there": True,
    }


def test_checkpoint_show_prints_no_table_for_a_directory_that_is_not_there(tmp_path: Path) -> None:
    outcome = kdump("checkpoint", "show", tmp_path / "nothing")
    assert outcome.exit_status == 8
    assert outcome.stdout == b""


@pytest.mark.parametrize(
    ("checkpoint", "name"),
    [
        ("recovery-point", names.RECOVERY_POINT_CHECKPOINT),
        ("log-start-offset", names.LOG_START_OFFSET_CHECKPOINT),
        ("replication-offset", names.REPLICATION_OFFSET_CHECKPOINT),
        ("cleaner-offset", names.CLEANER_OFFSET_CHECKPOINT),
    ],
)
def test_a_line_is_set_and_removed(log_dir: Path, checkpoint: str, name: str) -> None:
    others = {
        path: content for path, content in contents_of(log_dir).items() if not path.endswith(name)
    }

    assert kdump("checkpoint", "set", "--no-undo", log_dir, checkpoint, "orders-0=7").stderr == b""
    assert (log_dir / name).read_bytes() == offset_checkpoint({("orders", 0): 7})

    kdump("checkpoint", "set", "--no-undo", log_dir, checkpoint, "orders-0=none")
    assert (log_dir / name).read_bytes() == offset_checkpoint({})
    found = contents_of(log_dir)
    assert {path: found[path] for path in others} == others


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("orders-0=99", "past the end of the log, 18"),
        ("payments-0=1", "no partition payments-0"),
        ("orders-0=-1", "is not TOPIC-PARTITION=OFFSET"),
        ("orders=1", "is not TOPIC-PARTITION=OFFSET"),
        ("orders-0", "is not TOPIC-PARTITION=OFFSET"),
        ("orders-00=1", "is not TOPIC-PARTITION=OFFSET"),
        ("orders-0=1_0", "is not TOPIC-PARTITION=OFFSET"),
        ("orders-0=+1", "is not TOPIC-PARTITION=OFFSET"),
        ("orders-0=\u0661", "is not TOPIC-PARTITION=OFFSET"),
        ("orders-0=9223372036854775807", "past the end of the log, 18"),
        ("orders-0=9223372036854775808", "is not TOPIC-PARTITION=OFFSET"),
    ],
)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_harmful_and_useless_lines_are_refused(
    log_dir: Path, checkpoint: str, line: str, why: str
) -> None:
    before = contents_of(log_dir)

    outcome = kdump("checkpoint", "set", log_dir, checkpoint, line)

    assert outcome.exit_status == 16
    assert why in outcome.stderr.decode()
    assert contents_of(log_dir) == before


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_setting_a_line_of_a_damaged_checkpoint_is_refused_until_it_is_rebuilt(
    log_dir: Path, checkpoint: str
) -> None:
    (log_dir / CHECKPOINTS[checkpoint]).write_bytes(b"rubbish")
    line = ("checkpoint", "set", log_dir, checkpoint, "orders-0=1")

    outcome = kdump(*line)

    assert outcome.exit_status == 8
    assert f"kdump checkpoint rebuild {log_dir}".encode() in outcome.stderr
    assert kdump("checkpoint", "rebuild", log_dir).exit_status == 1
    assert kdump(*line).exit_status == 1
    assert b"orders 0 1\n" in (log_dir / CHECKPOINTS[checkpoint]).read_bytes()


def test_damaged_checkpoints_are_rebuilt_from_the_logs(log_dir: Path) -> None:
    valid = contents_of(log_dir)
    (log_dir / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"rubbish")
    (log_dir / names.LOG_START_OFFSET_CHECKPOINT).unlink()

    assert kdump("checkpoint", "rebuild", "--no-undo", log_dir).exit_status == 1

    assert contents_of(log_dir) == valid
    assert kdump("checkpoint", "rebuild", log_dir).exit_status == 0


def test_a_partition_has_no_checkpoints(partition: Path) -> None:
    assert kdump("checkpoint", "show", partition).exit_status == 16


@pytest.mark.slow
@pytest.mark.parametrize("command", [("rebuild-index",), ("snapshot", "rebuild")], ids=" ".join)
def test_nothing_is_repaired_in_clean_directories_of_a_broker(
    command: tuple[str, ...], fixtures: Path
) -> None:
    log_dirs = [fixtures / "out" / "clean" / name for name in ("d1", "d2")]
    assert kdump(*command, "--dry-run", *log_dirs).exit_status == 0


def test_producers_whose_state_is_lost_are_named(log_dir: Path, partition: Path) -> None:
    path = file(partition, END_OFFSET, FileKind.PRODUCER_SNAPSHOT)
    entries = producer_snapshot.decode(path.read_bytes()).entries
    unknown = replace(entries[0], producer_id=4711)
    content = bytearray(producer_snapshot.encode([*entries, unknown]))
    content[2] ^= 1  # its checksum, so that it does not count
    path.write_bytes(content)

    (said, *_) = rows("snapshot", "rebuild", "--dry-run", log_dir)

    assert said["forgotten_producers"] == [4711]
