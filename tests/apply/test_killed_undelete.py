"""An undelete that is killed can be finished and undone."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.killed_process import KillableKdump, changes_of
from builders.log_dir_trees import original_of, seen_by_broker
from builders.samples import at_some_or_all, moments_of
from builders.stray_directories import stray, stray_log_directory
from builders.trees import Seen
from kdump.formats import names


def kdump(*args: str | Path) -> int:
    return run_kdump([*map(str, args)], Path.cwd()).exit_status


def without_lock(path: Path) -> dict[str, Seen]:
    """Ignore the lock file, which a killed run leaves."""
    return {name: each for name, each in original_of(path).items() if name != names.LOCK_FILE}


@pytest.mark.slow
@at_some_or_all
def test_a_killed_undelete_is_finished_by_the_next_and_undone(
    quick_path: Path, killable: KillableKdump, is_all: bool
) -> None:
    original = stray_log_directory(
        quick_path / "original", {stray("orders-0"): 1, f"users-1.{'a' * 32}-delete": 2, "old-0": 3}
    )
    log_dir = quick_path / "logs"
    before = without_lock(original)
    shutil.copytree(original, log_dir)
    count = changes_of(lambda: kdump("undelete", log_dir))
    restored = seen_by_broker(log_dir)
    assert any(name.startswith("orders-0/") for name in restored)

    for at in moments_of(range(count), is_all=is_all):
        for command in ("undelete", "undo"):
            shutil.rmtree(log_dir)
            shutil.copytree(original, log_dir)
            assert killable.run_and_kill(["undelete", log_dir], at) == -signal.SIGKILL, at
            if command == "undelete":
                assert kdump("undelete", log_dir) & 8 == 0, at
                assert seen_by_broker(log_dir) == restored, at
            elif kdump("undo", "--list", log_dir) == 0 and [*log_dir.glob(".kdump-*.appl*")]:
                assert kdump("undo", log_dir) == 0, at
                assert without_lock(log_dir) == before, at
