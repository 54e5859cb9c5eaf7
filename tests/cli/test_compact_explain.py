"""``kdump compact --dry-run --explain`` says what the log cleaner would do next, and why not."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.compactable_directories import NOW_MS, closed, plain_directory
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.trees import tree_of
from kdump.formats import names, record_batch
from kdump.formats.checkpoints import encode_offset_checkpoint
from kdump.formats.names import TopicPartition

COMPACTED = "--config=cleanup.policy=compact"
ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 0)


def explain(*args: str | Path) -> Outcome:
    command = ["compact", "--dry-run", "--explain", *map(str, args), "--now", str(NOW_MS)]
    return run_kdump(command, Path.cwd())


def rows(*args: str | Path) -> list[dict[str, Any]]:
    return objects(explain(*args, "--output", "json").stdout)


def write_lines(directory: Path, name: str, lines: Mapping[TopicPartition, int]) -> None:
    content = encode_offset_checkpoint(lines.items())
    (directory / name).write_bytes(content)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a clean log directory; most of ``orders-0`` was cleaned before."""
    root = plain_directory(tmp_path / "logs", ("orders", "users"))
    write_lines(root, names.CLEANER_OFFSET_CHECKPOINT, {ORDERS: 25})
    return root


def test_the_log_with_the_greatest_dirty_ratio_comes_first_and_nothing_is_written(
    root: Path,
) -> None:
    before = tree_of(root)

    found = explain(root, COMPACTED)

    heading, first, second, *_ = found.stdout.decode().splitlines()
    assert heading.split() == ["Turn", "Partition", "Size", "Ratio", "Cleaner"]
    assert first.split()[:2] == ["1", "users-0"]
    assert second.split()[:2] == ["2", "orders-0"]
    assert "never cleaned" in first
    assert "never cleaned" not in second
    assert found.exit_status == 0
    assert tree_of(root) == before


def test_a_program_gets_the_offsets_bytes_and_ratio_of_each_log(root: Path) -> None:
    users, orders, broker = rows(root, COMPACTED)

    assert (users["state"], users["turn"], users["cleanable_ratio"]) == ("queued", 1, 1.0)
    assert (orders["first_dirty_offset"], orders["end_offset"]) == (25, 60)
    assert orders["cleanable_ratio"] == orders["cleanable_bytes"] / orders["total_bytes"]
    begun = [root / "orders-0" / f"{base:020d}.log" for base in (0, 20)]
    assert orders["clean_bytes"] == sum(log.stat().st_size for log in begun)
    assert (broker["type"], broker["queued"], broker["compacted"]) == ("explained_broker", 2, 2)


def test_a_selected_log_keeps_its_turn_among_all_logs_of_the_broker(root: Path) -> None:
    orders, broker = rows(root, COMPACTED, "--topic", "orders")

    assert (orders["topic"], orders["turn"]) == ("orders", 2)
    assert (broker["partitions"], broker["queued"]) == (1, 2)


def test_a_log_below_its_ratio_waits_until_it_exceeds_the_maximum_lag(root: Path) -> None:
    ratio = "--config=min.cleanable.dirty.ratio=0.9"

    _, waiting, _ = rows(root, COMPACTED, ratio)
    _, forced, _ = rows(root, COMPACTED, ratio, "--config=max.compaction.lag.ms=60000")

    assert (waiting["state"], waiting["turn"]) == ("below ratio", None)
    assert (forced["state"], forced["turn"], forced["is_forced"]) == ("queued", 2, True)
    assert forced["compaction_delay_ms"] == NOW_MS - 60_000 - forced["earliest_dirty_timestamp_ms"]


def hanging_directory(path: Path) -> Path:
    """Give a directory with an open transaction of producer 77 in the first of three segments."""
    partition = path / "__consumer_offsets-0"
    partition.mkdir(parents=True)
    for base in (0, 100, 200):
        data = batch([record(base, b"k"), record(base + 1, b"l")])
        if base == 0:
            data += batch(
                [record(40, b"pending")],
                attributes=record_batch.TRANSACTIONAL_FLAG,
                producer_id=77,
                producer_epoch=3,
                base_sequence=0,
            )
        (partition / f"{base:020d}.log").write_bytes(data)
    return closed(path)


def test_an_open_transaction_is_named_as_what_the_cleaner_cannot_pass(tmp_path: Path) -> None:
    root = hanging_directory(tmp_path / "logs")

    row, broker = rows(root)
    text = explain(root).stdout.decode()

    assert (row["held_by"], row["held_at"]) == ("open transaction", 40)
    assert row["transaction"] == {
        "first_offset": 40,
        "producer_id": 77,
        "producer_epoch": 3,
        "start_time_ms": BASE_TIMESTAMP_MS + 40,
    }
    held_bytes = sum(log.stat().st_size for log in sorted(root.glob("*/*.log"))[:2])
    assert (row["held_bytes"], row["last_stable_offset"]) == (held_bytes, 40)
    assert broker["held_bytes"] == {"open transaction": held_bytes}
    assert "the cleaner cannot pass offset 40: open transaction of producer 77 since 2026-" in text
    assert f"kdump txns --hanging {root}" in text


def test_without_a_checkpointed_high_watermark_nothing_is_cleanable(root: Path) -> None:
    (root / names.REPLICATION_OFFSET_CHECKPOINT).unlink()

    held, _, _ = rows(root, COMPACTED)
    replicated, _, _ = rows(root, COMPACTED, "--high-watermark", "end")

    assert (held["held_by"], held["held_at"], held["state"]) == ("high watermark", 0, "empty")
    assert not held["has_high_watermark"]
    assert replicated["state"] == "queued"


def test_a_young_segment_is_named_with_the_time_at_which_it_becomes_cleanable(root: Path) -> None:
    lag_ms = NOW_MS - BASE_TIMESTAMP_MS

    row, _, _ = rows(root, COMPACTED, f"--config=min.compaction.lag.ms={lag_ms}")

    assert (row["held_by"], row["held_at"]) == ("compaction lag", 0)
    assert row["held_until_ms"] > NOW_MS
    again = ("--now", str(row["held_until_ms"]), f"--config=min.compaction.lag.ms={lag_ms}")
    command = ["compact", "--dry-run", "--explain", str(root), COMPACTED, *again, "--output=json"]
    later, _, _ = objects(run_kdump(command, Path.cwd()).stdout)
    assert later["held_at"] > 0


def test_a_checkpoint_past_the_end_of_the_log_makes_it_dirty_from_its_start(root: Path) -> None:
    write_lines(root, names.CLEANER_OFFSET_CHECKPOINT, {ORDERS: 1000})

    found = explain(root, COMPACTED, "--topic", "orders").stdout.decode()

    assert "the cleaner's checkpoint, 1000, is past the end of the log" in found


def test_a_damaged_first_batch_makes_a_log_uncleanable(root: Path) -> None:
    log = root / "users-0" / f"{20:020d}.log"
    content = bytearray(log.read_bytes())
    content[record_batch.LENGTH_START : record_batch.LENGTH_START + 4] = (3).to_bytes(4)
    log.write_bytes(content)

    found = explain(root, COMPACTED)
    orders, users, _ = rows(root, COMPACTED)

    assert found.exit_status == 4
    assert f"{root / 'users-0'}: the first batch has the impossible length 3" in (
        found.stderr.decode()
    )
    assert f"{log.name} at byte 0" in found.stderr.decode()
    assert (orders["turn"], users["turn"], users["state"]) == (1, None, "uncleanable")


def test_a_line_for_a_log_in_another_directory_ends_the_cleaner(root: Path, tmp_path: Path) -> None:
    other = plain_directory(tmp_path / "other", ("accounts",))
    write_lines(other, names.CLEANER_OFFSET_CHECKPOINT, {ORDERS: 15})

    repeated = explain(root, other, COMPACTED)
    write_lines(root, names.CLEANER_OFFSET_CHECKPOINT, {})
    misplaced = explain(root, other, COMPACTED)
    row = next(each for each in rows(root, other, COMPACTED) if each["topic"] == "orders")

    command = f"kdump checkpoint set {other} cleaner-offset orders-0=none"
    for found in (repeated, misplaced):
        assert found.exit_status == 4
        assert found.stderr.decode().strip().endswith(f"remove the line with: {command}")
    assert "after its next round" not in repeated.stderr.decode()
    assert "after its next round" in misplaced.stderr.decode()
    assert (row["checkpoint_offset"], row["checkpoint_line"]) == (15, "other directory")

    words = ["compact", "--dry-run", "--topic", "orders", COMPACTED, str(root), str(other)]
    compacted = run_kdump(words, tmp_path)
    assert compacted.exit_status == 4
    assert b"cleaner-line-misplaced" in compacted.stdout


def test_a_log_that_a_crash_cut_short_is_explained_up_to_its_last_batch(root: Path) -> None:
    (root / names.CLEAN_SHUTDOWN_MARKER).unlink()
    whole, *_ = rows(root, COMPACTED)
    active = root / "users-0" / f"{60:020d}.log"
    size_bytes = active.stat().st_size
    with active.open("ab") as log:
        log.write(batch([record(61, b"torn")])[:40])

    found = explain(root, COMPACTED)
    users, *_, broker = rows(root, COMPACTED)

    assert found.exit_status == 4
    assert f"{active}: the last 40 bytes, from byte {size_bytes} on" in found.stderr.decode()
    assert users["log_end_offset"] == whole["log_end_offset"]
    assert broker["unclean_log_dirs"] == [str(root)]
    assert f"kdump recover --dry-run {root}" in found.stdout.decode()


def test_each_broker_has_a_queue_of_its_own(root: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(root, tmp_path / "other"))
    for node_id, directory in enumerate((root, other), start=1):
        text = f"version=1\ncluster.id=abc\nnode.id={node_id}\n"
        (directory / names.META_PROPERTIES).write_text(text)
        for partition in directory.glob("*-0"):
            (partition / names.PARTITION_METADATA).write_text(
                "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
            )

    found = rows(root, other, COMPACTED)

    turns = [(each["node_id"], each["turn"]) for each in found if "turn" in each]
    assert turns == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_topics_whose_policy_is_unknown_are_named_unless_the_cleaner_knows_them(
    root: Path,
) -> None:
    orders, broker = rows(root)

    assert (orders["topic"], orders["cleanup_policy"]) == ("orders", None)
    assert broker["unknown_topics"] == ["users"]


def test_explaining_requires_a_preview(root: Path) -> None:
    found = run_kdump(["compact", "--explain", "--topic", "*", str(root)], Path.cwd())

    assert (found.exit_status, found.stdout) == (16, b"")
    assert "--explain requires --dry-run" in found.stderr.decode()
