"""``kdump lookup`` answers one question for each replica."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.in_process import Outcome, run_kdump, run_on_terminal
from builders.json_answers import objects
from builders.log_directories import write_log_directory, write_partition
from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry, encode_leader_epoch_checkpoint
from kdump.formats.record_batch import TRANSACTIONAL_FLAG

PARTITION: Final = ("orders", 0)
EPOCHS: Final = {
    names.LEADER_EPOCH_CHECKPOINT: encode_leader_epoch_checkpoint(
        [EpochEntry(0, 0), EpochEntry(4, 6)]
    )
}
LOG: Final = b"".join(batches(2))
"""Offsets 0 to 5 in batches of three."""


def log_directory(
    path: Path, log: bytes = LOG, *, clean: bool = True, mark: int | None = 6, start: int = 0
) -> Path:
    offsets = {PARTITION: mark} if mark is not None else {}
    write_log_directory(
        path, clean=clean, high_watermarks=offsets, log_start_offsets={PARTITION: start}
    )
    write_partition(path / "orders-0", {0: log}, others=EPOCHS)
    return path


def lookup(*args: str | Path) -> Outcome:
    return run_kdump(["lookup", *map(str, args)], Path.cwd())


def row(*args: str | Path) -> dict[str, Any]:
    outcome = lookup("--output", "jsonl", *args)
    (found,) = objects(outcome.stdout)
    return found


def test_an_answer_says_where_the_record_is_and_where_its_epoch_ends(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "logs")
    found = row("--offset", "4", path)
    expected = {
        "offset": 4,
        "timestamp_ms": BASE_TIMESTAMP_MS + 4,
        "leader_epoch": 0,
        "epoch_end_offset": 6,
        "file": str(path / "orders-0" / f"{0:020d}.log"),
        "position": len(LOG) // 2,
        "batch_base_offset": 3,
        "batch_last_offset": 5,
        "key_bytes": 3,
        "value_bytes": 5,
        "is_checksum_verified": True,
        "bound": None,
        "notes": [],
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        (("--offset", "6"), None),
        (("--timestamp", "earliest"), 0),
        (("--timestamp", "-2"), 0),
        (("--timestamp", "latest"), 6),
        (("--timestamp", "max"), 5),
        (("--timestamp", "max-timestamp"), 5),
        (("--timestamp", "earliest-local"), 0),
        (("--timestamp", "latest-tiered"), None),
        (("--timestamp", "earliest-pending-upload"), None),
        (("--timestamp", str(BASE_TIMESTAMP_MS + 2)), 2),
        (("--timestamp", "2026-01-01T00:00:00.003Z"), 3),
        (("--timestamp", "2026-01-01T00:00:01Z"), None),
    ],
)
def test_an_offset_or_a_time_has_one_answer(
    asked: tuple[str, ...], offset: int | None, tmp_path: Path
) -> None:
    assert row(*asked, log_directory(tmp_path / "logs"))["offset"] == offset


def test_offsets_before_the_log_start_have_no_answer(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "logs", start=2)
    found = row("--offset", "1", path)
    assert (found["offset"], found["notes"]) == (None, ["the log starts at offset 2"])
    assert row("--timestamp", "earliest", path)["offset"] == 2


def test_consumers_get_nothing_at_or_after_the_high_watermark(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "logs", mark=4)
    latest = row("--timestamp", "latest", path)
    assert (latest["offset"], latest["bound"]) == (4, "high_watermark")
    newest = row("--timestamp", "max", path)
    assert (newest["offset"], newest["record_offset"]) == (None, 5)
    assert row("--offset", "5", path)["offset"] == 5


@pytest.mark.parametrize(("clean", "mark"), [(False, 4), (True, None), (False, None)])
def test_a_high_watermark_that_is_stale_or_missing_does_not_hide_records(
    clean: bool, mark: int | None, tmp_path: Path
) -> None:
    found = row("--timestamp", "latest", log_directory(tmp_path / "l", clean=clean, mark=mark))
    assert (found["offset"], found["bound"]) == (6, "log_end_offset")
    assert found["high_watermark"] == mark
    assert found["notes"]


def test_readers_of_committed_records_stop_at_the_first_open_transaction(tmp_path: Path) -> None:
    in_transaction = batch(
        [record(6), record(7)],
        attributes=TRANSACTIONAL_FLAG,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
    )
    path = log_directory(tmp_path / "logs", LOG + in_transaction, mark=8)
    committed = ("--isolation-level", "read_committed")
    found = row("--timestamp", "latest", *committed, path)
    assert (found["offset"], found["bound"]) == (6, "last_stable_offset")
    assert row("--timestamp", "max", *committed, path)["offset"] is None
    assert row("--timestamp", "max", path)["offset"] == 7


def test_damage_is_reported_with_its_file_and_bytes(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "logs", LOG[:-1])
    outcome = lookup("--offset", "4", path)
    log = path / "orders-0" / f"{0:020d}.log"
    assert outcome.exit_status == 4
    assert f"{log}: bytes {len(LOG) // 2} to {len(LOG) - 1}: ".encode() in outcome.stderr
    assert b"the log ends at offset 3" in outcome.stdout


def damaged_directory(path: Path, damaged: int) -> Path:
    """Write a log of four batches, offsets 0 to 11, with one whose checksum is wrong."""
    log = batches(4)
    log[damaged] = log[damaged][:-1] + b"?"
    return log_directory(path, b"".join(log), mark=12)


def test_an_offset_in_a_damaged_batch_is_lost_rather_than_absent(tmp_path: Path) -> None:
    found = row("--offset", "4", damaged_directory(tmp_path / "logs", 1))
    size = len(LOG) // 2
    assert (found["offset"], found["is_lost"]) == (6, True)
    note = (
        f"offset 4 is lost: bytes {size} to {2 * size} of {0:020d}.log, where it was, are damaged"
    )
    assert found["notes"] == [f"{note}; the next record has 6"]


@pytest.mark.parametrize("offset", [2, 6, 9])
def test_an_offset_beside_a_damaged_batch_is_not_lost(offset: int, tmp_path: Path) -> None:
    found = row("--offset", str(offset), damaged_directory(tmp_path / "logs", 1))
    assert (found["offset"], found["is_lost"], found["notes"]) == (offset, False, [])


def test_an_offset_that_compaction_removed_after_damage_is_not_lost(tmp_path: Path) -> None:
    first, damaged, _ = batches(3)
    path = tmp_path / "logs"
    rest = batch([record(6), record(8)])
    found = row("--offset", "7", log_directory(path, first + damaged[:-1] + b"?" + rest, mark=9))
    assert (found["offset"], found["is_lost"]) == (8, False)
    assert found["notes"] == ["offset 7 has no record: the next one has 8"]


def test_an_offset_in_damage_before_another_segment_is_lost(tmp_path: Path) -> None:
    first, second, third = batches(3)
    path = log_directory(tmp_path / "logs", mark=9)
    logs = {0: first + second[:-1], 6: third}
    shutil.rmtree(path / "orders-0")
    write_partition(path / "orders-0", logs, others=EPOCHS)
    found = row("--offset", "5", path)
    assert (found["offset"], found["is_lost"]) == (6, True)


def test_an_offset_after_the_end_may_be_in_the_damage_that_follows(tmp_path: Path) -> None:
    found = row("--offset", "10", damaged_directory(tmp_path / "logs", 3))
    size = len(LOG) // 2
    assert (found["offset"], found["is_lost"]) == (None, False)
    note = f"offset 10 may be lost: bytes {3 * size} to {4 * size} of {0:020d}.log are damaged"
    assert found["notes"] == [f"the log ends at offset 9; {note}"]


def test_a_malformed_epoch_checkpoint_hides_only_the_end_of_the_epoch(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "logs")
    (path / "orders-0" / names.LEADER_EPOCH_CHECKPOINT).write_bytes(b"garbage")
    outcome = lookup("--offset", "4", "--output", "jsonl", path)
    (found,) = objects(outcome.stdout)
    assert (found["offset"], found["epoch_end_offset"]) == (4, None)
    assert outcome.exit_status == 4


def test_epochs_after_the_end_of_the_log_do_not_count(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "logs", LOG[: len(LOG) // 2])
    found = row("--offset", "1", path)
    assert (found["leader_epoch"], found["epoch_end_offset"]) == (0, 3)


def test_a_log_that_ends_before_its_start_has_no_records(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "logs", start=10)
    assert row("--timestamp", "max", path)["offset"] is None
    assert row("--timestamp", "latest", "--partition", "0", path)["log_end_offset"] == 10


def test_a_file_that_must_not_be_opened_is_an_operational_error(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "logs")
    log = path / "orders-0" / f"{0:020d}.log"
    log.unlink()
    os.mkfifo(log)
    outcome = lookup("--offset", "4", path)
    assert (outcome.exit_status, outcome.stdout) == (8, b"")


def test_a_partition_without_segments_is_empty(tmp_path: Path) -> None:
    path = write_log_directory(tmp_path / "logs")
    write_partition(path / "orders-0")
    assert row("--timestamp", "latest", path)["offset"] == 0
    assert row("--timestamp", "max", path)["offset"] is None


def test_replicas_with_different_answers_are_named_with_the_one_that_should_lead(
    tmp_path: Path,
) -> None:
    one = log_directory(tmp_path / "one")
    other = log_directory(tmp_path / "other", LOG[: len(LOG) // 2], mark=3)
    outcome = lookup("--timestamp", "latest", one, other)
    last = outcome.stdout.decode().splitlines()[-1]
    assert last == (
        f"orders-0: the replicas have different answers; the most advanced one is in {one}"
    )


def test_a_single_answer_is_a_block_that_fits_a_narrow_terminal(tmp_path: Path) -> None:
    log_directory(tmp_path / "logs")
    lines = run_on_terminal(["lookup", "--offset", "4", "logs"], tmp_path, 60)
    assert max(map(len, lines)) <= 60
    assert any(line.split() == ["Offset:", "4"] for line in lines)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--offset", "1", "--timestamp", "latest"),
        ("--offset", "1", "--isolation-level", "read_committed"),
        ("--timestamp", "yesterday"),
    ],
    ids=str,
)
def test_a_question_that_is_none_is_a_usage_error(args: tuple[str, ...], tmp_path: Path) -> None:
    outcome = lookup(*args, log_directory(tmp_path / "logs"))
    assert (outcome.exit_status, outcome.stdout) == (16, b"")
