"""A run that is killed can be finished and undone."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.killed_process import KillableKdump, changes_of
from builders.log_dir_trees import original_of, seen_by_broker
from builders.repair_cases import Case, bad_batch_in_the_middle, compaction_interrupted
from builders.samples import at_some_or_all, moments_of
from builders.trees import Seen
from kdump.formats import names

pytestmark = pytest.mark.slow

cases = pytest.mark.parametrize("case", [bad_batch_in_the_middle, compaction_interrupted])


def kdump(*args: str | Path) -> int:
    return run_kdump([*map(str, args)], Path.cwd()).exit_status


def without_lock(seen: dict[str, Seen]) -> dict[str, Seen]:
    """Ignore lock files, which a killed run leaves and a finished run deletes."""
    return {name: each for name, each in seen.items() if name != names.LOCK_FILE}


@at_some_or_all
@cases
def test_a_killed_recovery_is_finished_by_the_next_and_undone(
    quick_path: Path, killable: KillableKdump, case: Case, is_all: bool
) -> None:
    original, log_dir = quick_path / "original", quick_path / "logs"
    case(original)
    before = original_of(original)
    shutil.copytree(original, log_dir)
    count = changes_of(lambda: kdump("recover", log_dir))
    recovered = seen_by_broker(log_dir)
    assert recovered != seen_by_broker(original)

    for at in moments_of(range(count), is_all=is_all):
        shutil.rmtree(log_dir)
        shutil.copytree(original, log_dir)
        assert killable.run_and_kill(["recover", log_dir], at) == -signal.SIGKILL, at

        assert kdump("recover", log_dir) & 8 == 0, at
        assert seen_by_broker(log_dir) == recovered, at
        assert kdump("undo", log_dir) == 0, at
        assert without_lock(original_of(log_dir)) == without_lock(before), at


@at_some_or_all
@cases
def test_a_killed_undo_is_finished_by_the_next(
    quick_path: Path, killable: KillableKdump, case: Case, is_all: bool
) -> None:
    original, log_dir = quick_path / "original", quick_path / "logs"
    case(original)
    before = original_of(original)
    shutil.copytree(original, log_dir)
    kdump("recover", log_dir)
    count = changes_of(lambda: kdump("undo", log_dir))
    assert original_of(log_dir) == before

    for at in moments_of(range(count), is_all=is_all):
        shutil.rmtree(log_dir)
        shutil.copytree(original, log_dir)
        kdump("recover", log_dir)
        assert killable.run_and_kill(["undo", log_dir], at) == -signal.SIGKILL, at

        # After the last change there is nothing left to undo.
        assert kdump("undo", log_dir) in (0, 8), at
        assert without_lock(original_of(log_dir)) == without_lock(before), at
