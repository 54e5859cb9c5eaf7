"""What the exit statuses of repairs, of their previews and of verify say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from builders.in_process import run_kdump
from builders.verified import NOW_MS, LogModel, file
from kdump.formats import names
from kdump.formats.names import FileKind

DENSE: Final = ("--config", "index.interval.bytes=0")
COMMANDS: Final = {
    "recover": ("recover", "--now", str(NOW_MS)),
    "resolve": ("resolve",),
    "verify --repair": ("verify", "--repair", "--now", str(NOW_MS)),
    "rebuild-index": ("rebuild-index",),
}

Happening = Callable[[Path], None]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Give a log directory to which there is nothing to do."""
    root = LogModel().write(tmp_path / "logs").parent
    for path in (root / "orders-0").glob("*index"):
        path.unlink()
    run_kdump(["rebuild-index", "--no-undo", *DENSE, str(root)], tmp_path)
    return root


def status(command: str, *options: str | Path) -> int:
    return run_kdump([*COMMANDS[command], *DENSE, *map(str, options)], Path.cwd()).exit_status


def partition(root: Path) -> Path:
    return root / "orders-0"


def become_unclean(root: Path) -> None:
    (root / names.CLEAN_SHUTDOWN_MARKER).unlink()


def lose_an_index(root: Path) -> None:
    file(partition(root), 0, FileKind.OFFSET_INDEX).unlink()


def leave_a_swap(root: Path) -> None:
    index = file(partition(root), 0, FileKind.OFFSET_INDEX)
    shutil.copy(index, f"{index}.cleaned")


def damage_the_last_batch(root: Path) -> None:
    become_unclean(root)
    log = file(partition(root), 12, FileKind.LOG)
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    (root / names.RECOVERY_POINT_CHECKPOINT).unlink()


def lose_the_topic_id(root: Path) -> None:
    (partition(root) / names.PARTITION_METADATA).unlink()


NOTHING: Final[Happening] = lambda root: None  # noqa: E731 - a happening like the others


@pytest.mark.parametrize(
    ("command", "happening", "previewed", "done"),
    [
        ("recover", NOTHING, 0, 0),
        ("recover", become_unclean, 1, 0),
        ("recover", lose_an_index, 1, 1),
        ("recover", damage_the_last_batch, 4, 1),
        ("recover", lose_the_topic_id, 4, 4),
        ("resolve", NOTHING, 0, 0),
        ("resolve", leave_a_swap, 1, 1),
        ("verify --repair", NOTHING, 0, 0),
        ("verify --repair", lose_an_index, 1, 1),
        ("verify --repair", leave_a_swap, 1, 1),
        ("verify --repair", damage_the_last_batch, 4, 1),
        ("verify --repair", lose_the_topic_id, 4, 4),
        ("rebuild-index", NOTHING, 0, 0),
        ("rebuild-index", lose_an_index, 1, 1),
    ],
)
def test_a_preview_says_whether_there_is_something_to_do_and_whether_records_are_lost(
    command: str, happening: Happening, previewed: int, done: int, log_dir: Path
) -> None:
    happening(log_dir)
    assert status(command, "--dry-run", log_dir) == previewed
    assert status(command, log_dir) == done


def test_something_that_is_left_outweighs_what_can_be_done(log_dir: Path) -> None:
    shutil.copytree(partition(log_dir), log_dir / "orders-1")
    lose_an_index(log_dir)
    (log_dir / "orders-1" / names.PARTITION_METADATA).unlink()
    assert status("verify --repair", "--dry-run", log_dir) == 4
    assert status("verify --repair", log_dir) == 5


@pytest.mark.parametrize(("strict", "expected"), [(False, 0), (True, 4)])
def test_a_warning_is_damage_for_strict_eyes(strict: bool, expected: int, log_dir: Path) -> None:
    leave_a_swap(log_dir)
    options = ["--strict"] if strict else []
    verified = run_kdump(["verify", *options, "--now", str(NOW_MS), str(log_dir)], Path.cwd())
    assert verified.exit_status == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_where_there_is_nothing_to_do_a_crashs_lock_file_stays(command: str, log_dir: Path) -> None:
    (log_dir / names.LOCK_FILE).touch()
    assert status(command, log_dir) == 0
    assert (log_dir / names.LOCK_FILE).exists()


def test_a_recovery_takes_a_crashs_lock_file_away(log_dir: Path) -> None:
    become_unclean(log_dir)
    (log_dir / names.LOCK_FILE).touch()
    status("recover", log_dir)
    assert not (log_dir / names.LOCK_FILE).exists()
