"""Who reads records names the checkpoint whose offsets are missing: deleted records come back."""

from __future__ import annotations

from pathlib import Path

import pytest

import kdump
from builders.batches import batches
from builders.in_process import Outcome, run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.source_tables import offsets_of
from kdump.errors import KdumpError
from kdump.formats import names

COMMANDS = {
    "export": ("export", "logs", "--out", "out"),
    "grep": ("grep", ".", "logs", "logs/orders-0"),
    "query": ("query", "SELECT COUNT(*) FROM records", "logs"),
    "ls": ("ls", "logs"),
    "lookup": ("lookup", "--offset", "3", "logs"),
}
FAILURES = [("malformed", 4), ("unreadable", 8)]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a clean log directory with a partition whose first records are deleted."""
    path = write_log_directory(tmp_path / "logs", log_start_offsets={("orders", 0): 4})
    write_partition(path / "orders-0", {0: b"".join(batches(3))})
    return path


def spoil(checkpoint: Path, how: str) -> None:
    if how == "malformed":
        checkpoint.write_bytes(bytes(10))
    else:
        checkpoint.unlink()
        checkpoint.symlink_to("gone")


def run(command: str, log_dir: Path) -> Outcome:
    return run_kdump(COMMANDS[command], log_dir.parent)


def times_named(outcome: Outcome, name: str) -> int:
    return outcome.stderr.decode().count(f"{name}: ")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("how", "status"), FAILURES)
def test_a_log_start_checkpoint_is_named(
    command: str, how: str, status: int, log_dir: Path
) -> None:
    spoil(log_dir / names.LOG_START_OFFSET_CHECKPOINT, how)
    outcome = run(command, log_dir)
    assert outcome.exit_status == status
    assert times_named(outcome, names.LOG_START_OFFSET_CHECKPOINT) >= 1


@pytest.mark.parametrize(("how", "status"), FAILURES)
def test_an_export_is_incomplete_then(how: str, status: int, log_dir: Path) -> None:
    spoil(log_dir / names.LOG_START_OFFSET_CHECKPOINT, how)
    assert b"not complete" in run("export", log_dir).stdout
    assert not (log_dir.parent / "out/_SUCCESS").exists()


def test_recovery_points_are_not_needed_after_a_clean_shutdown(log_dir: Path) -> None:
    spoil(log_dir / names.RECOVERY_POINT_CHECKPOINT, "malformed")
    assert run("grep", log_dir).exit_status == 0
    (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()
    outcome = run("grep", log_dir)
    assert outcome.exit_status == 4
    assert times_named(outcome, names.RECOVERY_POINT_CHECKPOINT) >= 1


@pytest.mark.parametrize(("how", "status"), FAILURES)
def test_the_data_source_fails_or_logs_it(
    how: str, status: int, log_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert min(offsets_of(log_dir)) == 4
    spoil(log_dir / names.LOG_START_OFFSET_CHECKPOINT, how)
    with pytest.raises(KdumpError, match=names.LOG_START_OFFSET_CHECKPOINT) as failure:
        offsets_of(log_dir)
    assert failure.value.exit_status == status
    assert not caplog.records
    assert min(offsets_of(log_dir, mode="DROPMALFORMED")) == 0
    (logged,) = caplog.records
    assert names.LOG_START_OFFSET_CHECKPOINT in logged.getMessage()


def test_records_of_a_partition_fail_in_python(log_dir: Path) -> None:
    spoil(log_dir / names.LOG_START_OFFSET_CHECKPOINT, "malformed")
    (partition,) = kdump.open_log_dir(log_dir).partitions
    with pytest.raises(kdump.KdumpError, match=names.LOG_START_OFFSET_CHECKPOINT):
        partition.records().read_all()
    assert partition.records(on_damage="skip").read_all().num_rows > 0
