"""A copy that is killed is continued by the next run, and no broker starts with a part of it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.killed_process import KillableKdump, changes_of
from builders.samples import at_some_or_all, moments_of
from builders.trees import contents_of
from builders.two_disks import write_two_disks
from kdump.apply.unfinished_copy import FOLDER, JOURNAL
from kdump.formats.names import LOCK_FILE


@pytest.mark.slow
@at_some_or_all
def test_a_killed_copy_is_continued_by_the_next(
    quick_path: Path, killable: KillableKdump, is_all: bool
) -> None:
    source, target = quick_path / "d1", quick_path / "new"
    write_two_disks(quick_path)
    command = ["copy", str(source), str(target)]
    count = changes_of(lambda: run_kdump(command, quick_path))
    expected = contents_of(source)
    assert contents_of(target) == expected

    for at in moments_of(range(count), is_all=is_all):
        shutil.rmtree(target)
        assert killable.run_and_kill(command, at) == -signal.SIGKILL, at
        found = contents_of(target)
        own = {name for name in found if name.startswith((FOLDER, JOURNAL, LOCK_FILE))}
        for name in found.keys() - own:
            assert found[name] == expected[name], (at, name)
        if found.keys() - own != expected.keys():
            assert (target / FOLDER).is_dir() or not found.keys() - own, at
        outcome = run_kdump(command, quick_path)
        again = contents_of(target)
        if at < count - 2:
            assert outcome.exit_status == 0, (at, outcome.stderr)
        assert {name: again[name] for name in again if name != LOCK_FILE} == expected, at
