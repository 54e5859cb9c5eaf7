"""A log whose records a start hides is a loss, and is repaired: a real broker's directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_directories import offset_checkpoint
from kdump.broker.loader.load_context import LoadContext, load_context
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import names, producer_snapshot
from kdump.formats.names import TopicPartition
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import VerdictKind
from kdump.storage.local_disk import local

NAME = "codec-zstd-0"
RECORDS = 406
HIDDEN = (
    f"hide 18 batches (offsets 0–405, {RECORDS} records) of segment"  # noqa: RUF001
    " 00000000000000000000.log because the log would end at 0"
)


@pytest.fixture
def log_dir(fixtures: Path, tmp_path: Path) -> Path:
    """Return the log directory of a broker that was stopped cleanly, with one partition."""
    source = fixtures / "out" / "clean" / "d1"
    root = tmp_path / "d1"
    shutil.copytree(source / NAME, root / NAME)
    for name in (names.META_PROPERTIES, names.CLEAN_SHUTDOWN_MARKER):
        shutil.copyfile(source / name, root / name)
    line = offset_checkpoint({("codec-zstd", 0): RECORDS})
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.REPLICATION_OFFSET_CHECKPOINT):
        (root / name).write_bytes(line)
    return root


def with_wrong_index(log_dir: Path) -> Path:
    """Change one byte of the last entry of the active segment's offset index."""
    path = log_dir / NAME / f"{0:020d}.index"
    data = bytearray(path.read_bytes())
    data[-3] = 0xFF
    path.write_bytes(data)
    return log_dir


def outcome_of(
    log_dir: Path, policy: Policy = Policy.BROKER
) -> tuple[tuple[int, int] | None, VerdictKind]:
    """Return the bounds of the log after a start, and the verdict."""
    directory = read_log_directory(local(log_dir), DirectoryKind.LOG_DIRECTORY)
    (partition,) = directory.partitions
    context: LoadContext = load_context(directory, TopicPartition("codec-zstd", 0))
    outcome = repair_partition(partition, context, policy)
    kind = verdict(outcome, policy).kind
    if isinstance(outcome, Recovered):
        return (outcome.log_start_offset, outcome.log_end_offset), kind
    return None, kind


def test_a_preview_names_what_a_wrong_index_hides(log_dir: Path) -> None:
    outcome = run_kdump(["recover", "--dry-run", "."], with_wrong_index(log_dir))

    assert outcome.exit_status & 4
    assert f"a broker would {HIDDEN}" in outcome.stdout.decode()
    assert "--policy salvage" in outcome.stdout.decode()


def test_the_json_lists_the_hidden_batches(log_dir: Path) -> None:
    said = run_kdump(["recover", "--dry-run", "--output", "jsonl", "."], with_wrong_index(log_dir))

    (partition,) = [each for each in objects(said.stdout) if each["type"] == "partition"]
    assert partition["verdict_kind"] == "loss"
    (hidden,) = partition["hidden_batches"]
    assert hidden["file"] == f"{0:020d}.log"
    assert (hidden["first_offset"], hidden["last_offset"]) == (0, RECORDS - 1)
    assert (hidden["batches"], hidden["records"], hidden["damaged_bytes"]) == (18, RECORDS, 0)


def test_verify_predicts_it(log_dir: Path) -> None:
    outcome = run_kdump(["verify", "."], with_wrong_index(log_dir))

    assert outcome.exit_status == 4
    assert f"a broker would {HIDDEN}" in outcome.stdout.decode()


def test_each_bit_of_the_last_entry_that_hides_records_is_a_loss(log_dir: Path) -> None:
    path = log_dir / NAME / f"{0:020d}.index"
    valid = path.read_bytes()
    hiding = 0
    for bit in range(64):
        data = bytearray(valid)
        data[len(data) - 8 + bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        bounds, kind = outcome_of(log_dir)
        if bounds == (0, RECORDS):
            assert kind is VerdictKind.VALID, bit
            continue
        hiding += 1
        assert kind in (VerdictKind.LOSS, VerdictKind.REFUSED), bit
        assert outcome_of(log_dir, Policy.SALVAGE) == ((0, RECORDS), VerdictKind.REBUILT), bit
    assert hiding > 40


@pytest.mark.parametrize("repair", [("recover", "--policy", "salvage"), ("verify", "--repair")])
def test_a_repair_ends_the_cause(log_dir: Path, repair: tuple[str, ...]) -> None:
    run_kdump([*repair, "."], with_wrong_index(log_dir))

    assert outcome_of(log_dir) == ((0, RECORDS), VerdictKind.VALID)
    assert run_kdump(["verify", "."], log_dir).exit_status == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_start_offset_after_the_first_epoch_is_a_loss(log_dir: Path, is_clean: bool) -> None:
    path = log_dir / names.LOG_START_OFFSET_CHECKPOINT
    path.write_bytes(offset_checkpoint({("codec-zstd", 0): 200}))
    if not is_clean:
        (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()

    assert outcome_of(log_dir) == ((200, RECORDS), VerdictKind.LOSS)
    assert outcome_of(log_dir, Policy.SALVAGE) == ((200, RECORDS), VerdictKind.LOSS)
    assert run_kdump(["verify", "."], log_dir).exit_status == 4


def test_a_log_start_offset_that_epochs_confirm_is_none(log_dir: Path) -> None:
    path = log_dir / names.LOG_START_OFFSET_CHECKPOINT
    path.write_bytes(offset_checkpoint({("codec-zstd", 0): 200}))
    (log_dir / NAME / names.LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\n1\n0 200\n")

    assert outcome_of(log_dir) == ((200, RECORDS), VerdictKind.VALID)
    assert outcome_of(log_dir, Policy.SALVAGE)[0] == (200, RECORDS)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "repair",
    [
        ("recover",),
        ("recover", "--policy", "salvage"),
        ("verify", "--repair"),
        ("verify", "--repair", "--policy", "salvage"),
    ],
)
def test_a_repair_keeps_deleted_records_deleted(
    log_dir: Path, repair: tuple[str, ...], is_clean: bool
) -> None:
    """The leader epochs are older than the deletion."""
    path = log_dir / names.LOG_START_OFFSET_CHECKPOINT
    path.write_bytes(offset_checkpoint({("codec-zstd", 0): 200}))
    if not is_clean:
        (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()

    run_kdump([*repair, "."], log_dir)

    bounds, kind = outcome_of(log_dir)
    assert bounds == (200, RECORDS)
    assert kind in (VerdictKind.VALID, VerdictKind.UNCLEAN)
    epochs = (log_dir / NAME / names.LEADER_EPOCH_CHECKPOINT).read_text().splitlines()[2:]
    assert epochs[0] == "0 200"


def test_the_finding_names_the_epochs_that_are_older_than_a_deletion(log_dir: Path) -> None:
    path = log_dir / names.LOG_START_OFFSET_CHECKPOINT
    path.write_bytes(offset_checkpoint({("codec-zstd", 0): 200}))

    said = run_kdump(["verify", "--output", "jsonl", "."], log_dir)

    (finding,) = [each for each in objects(said.stdout) if each["type"] == "finding"]
    assert finding["code"] == "log-start-contradiction"
    assert finding["path"].endswith(f"{NAME}/{names.LEADER_EPOCH_CHECKPOINT}")


@pytest.mark.parametrize("repair", [("recover", "--policy", "salvage"), ("verify", "--repair")])
def test_a_log_that_ends_before_its_start_begins_with_its_epochs(
    log_dir: Path, repair: tuple[str, ...]
) -> None:
    path = log_dir / names.LOG_START_OFFSET_CHECKPOINT
    path.write_bytes(offset_checkpoint({("codec-zstd", 0): RECORDS + 1}))
    (log_dir / NAME / names.LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\n1\n0 200\n")

    run_kdump([*repair, "."], log_dir)

    assert outcome_of(log_dir) == ((200, RECORDS), VerdictKind.VALID)


def test_an_empty_segment_in_the_middle_hides_what_follows(log_dir: Path) -> None:
    (log_dir / NAME / f"{100:020d}.log").touch()

    bounds, kind = outcome_of(log_dir)

    assert (bounds, kind) == ((0, 100), VerdictKind.LOSS)
    assert outcome_of(log_dir, Policy.SALVAGE)[0] == (0, RECORDS)


def test_a_transaction_that_only_a_snapshot_has_is_a_loss(log_dir: Path) -> None:
    entry = ProducerEntry(7, 0, 0, 100, 0, 1, 0, 100)
    path = log_dir / NAME / f"{RECORDS:020d}.snapshot"
    path.write_bytes(producer_snapshot.encode([entry]))

    said = run_kdump(["recover", "--dry-run", "."], log_dir)

    assert "keep the transaction of producer 7 at offset 100 open" in said.stdout.decode()
    assert outcome_of(log_dir)[1] is VerdictKind.LOSS
    run_kdump(["recover", "--policy", "salvage", "."], log_dir)
    assert outcome_of(log_dir)[1] is VerdictKind.VALID
