"""A partition that is a symbolic link to nothing is named by whoever would read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.source_tables import offsets_of
from kdump.errors import ExitStatus, KdumpError
from kdump.formats import names

SAID = "orders-0: a symbolic link to nothing: a broker starts without this partition"
COMMANDS = {
    "ls": ("ls", "logs"),
    "info": ("info", "logs"),
    "export": ("export", "logs", "--out", "out"),
    "grep": ("grep", ".", "logs"),
    "lookup": ("lookup", "--offset", "3", "logs"),
    "groups": ("groups", "logs"),
    "query": ("query", "SELECT COUNT(*) FROM records", "logs"),
    "diff": ("diff", "logs", "logs/orders-1"),
}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a clean log directory with a partition, and one whose disk is not mounted."""
    ends = {("orders", 0): 9, ("orders", 1): 9}
    path = write_log_directory(tmp_path / "logs", recovery_points=ends, high_watermarks=ends)
    write_partition(path / "orders-1", {0: b"".join(batches(3))})
    (path / "orders-0").symlink_to("/not-mounted/orders-0")
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_named_and_an_error(command: str, log_dir: Path) -> None:
    outcome = run_kdump(COMMANDS[command], log_dir.parent)
    assert outcome.exit_status & 8
    assert SAID in outcome.stderr.decode()


@pytest.mark.parametrize("command", ["ls", "grep", "export"])
def test_it_is_not_named_if_it_is_not_selected(command: str, log_dir: Path) -> None:
    outcome = run_kdump((*COMMANDS[command], "--partition", "orders-1"), log_dir.parent)
    assert (outcome.exit_status, outcome.stderr) == (0, b"")


def test_the_data_source_fails_or_reads_the_others(log_dir: Path) -> None:
    with pytest.raises(KdumpError, match=SAID):
        offsets_of(log_dir)
    assert offsets_of(log_dir / "orders-1") == list(range(9))


def test_verify_names_it_once(log_dir: Path) -> None:
    outcome = run_kdump(("verify", "logs"), log_dir.parent)
    assert outcome.exit_status & 8
    assert (outcome.stdout + outcome.stderr).count(b"[file-unreadable]") == 1


def test_it_is_not_left_out_of_a_cut(log_dir: Path) -> None:
    outcome = run_kdump(("rewind", "--to", "2020-01-01", "logs"), log_dir.parent)
    assert outcome.exit_status & ExitStatus.DAMAGE_LEFT
    assert "logs/orders-0: cannot be listed; nothing was changed" in outcome.stderr.decode()


def test_recover_does_what_a_broker_does_and_says_so(log_dir: Path) -> None:
    """LogManager loads only what isDirectory, and writes the checkpoints of what it loaded."""
    (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()
    checkpoint = log_dir / names.RECOVERY_POINT_CHECKPOINT

    preview = run_kdump(("recover", "--dry-run", "logs"), log_dir.parent)
    assert preview.exit_status & 8
    assert (
        "starts without this partition, and removes its lines"
        in (preview.stdout + preview.stderr).decode()
    )
    assert b"orders 0" in checkpoint.read_bytes()

    outcome = run_kdump(("recover", "logs"), log_dir.parent)
    assert outcome.exit_status & 8
    assert (
        "starts without this partition, and removes its lines"
        in (outcome.stdout + outcome.stderr).decode()
    )
    assert b"orders 0" not in checkpoint.read_bytes()
    assert (log_dir / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert (log_dir / "orders-0").is_symlink()
