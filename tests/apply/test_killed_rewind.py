"""A rewind that is killed is finished by the next run, and undone.

It is killed before the first and the last change of each kind (``kinds_of_changes``).
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.killed_process import KillableKdump, kinds_of_changes
from builders.log_dir_trees import original_of, seen_by_broker
from builders.rewindable_clusters import START_MS, TICK_MS, RandomCluster
from builders.samples import at_some_or_each_kind, moments_of_kinds
from kdump.formats import names

pytestmark = pytest.mark.slow


def kdump(*args: str | Path) -> int:
    return run_kdump([*map(str, args)], Path.cwd()).exit_status


@at_some_or_each_kind
def test_a_killed_rewind_is_finished_by_the_next_and_undone(
    quick_path: Path, killable: KillableKdump, is_each_kind: bool
) -> None:
    cluster = RandomCluster(2, ticks=30)
    originals = cluster.write(quick_path / "original", brokers=2)
    for each in originals:
        assert kdump("recover", "--no-undo", each) == 0
    log_dirs = [quick_path / each.name for each in originals]
    before = [original_of(each) for each in originals]
    words = ["rewind", f"--to={START_MS + 18 * TICK_MS}", *map(str, log_dirs)]

    def again() -> None:
        for original, log_dir in zip(originals, log_dirs, strict=True):
            shutil.rmtree(log_dir, ignore_errors=True)
            shutil.copytree(original, log_dir)

    again()
    kinds = kinds_of_changes(lambda: kdump(*words))
    done = [seen_by_broker(each) for each in log_dirs]
    for at in moments_of_kinds(kinds, is_each_kind=is_each_kind):
        again()
        assert killable.run_and_kill(words, at) == -signal.SIGKILL, at
        # The next run finishes the killed one, and what that had not begun.
        assert kdump(*words) in (0, 1), at
        assert [seen_by_broker(each) for each in log_dirs] == done, at
        for log_dir, old in zip(log_dirs, before, strict=True):
            assert kdump("undo", log_dir) == 0, at
            kdump("undo", "--discard", log_dir)
            after = original_of(log_dir)
            after.pop(names.LOCK_FILE, None)
            old.pop(names.LOCK_FILE, None)
            assert after == old, at
