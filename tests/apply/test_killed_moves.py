"""A move that is killed is finished by the next run; no partition is ever without a whole log.

It is killed before the first and the last change of each kind (``kinds_of_changes``).
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.killed_process import KillableKdump, kinds_of_changes
from builders.log_dir_trees import seen_by_broker
from builders.samples import at_some_or_each_kind, moments_of_kinds
from builders.two_disks import lines_of, live_in, write_two_disks
from kdump.apply.runs import list_undos
from kdump.formats import names

undo_or_not = pytest.mark.parametrize("undo", ["--undo", "--no-undo"])


class Node:
    """The two disks of a broker, before and while partitions move."""

    def __init__(self, folder: Path) -> None:
        self._original = folder / "original"
        write_two_disks(self._original)
        self.path = folder / "node"
        self.restart()
        self.before = self._live()
        self.lines = lines_of(self.path / "d1")

    def restart(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self._original, self.path)

    def run(self, args: Sequence[str | Path]) -> int:
        return run_kdump([*map(str, args)], self.path).exit_status

    def drain(self, undo: str) -> list[str | Path]:
        """The command that moves everything to the other disk."""
        return ["move", "--drain", self.path / "d1", "--to", self.path / "d2", undo]

    def disks(self) -> list[dict[str, bytes]]:
        return [seen_by_broker(self.path / name) for name in ("d1", "d2")]

    def _live(self) -> dict[str, dict[str, bytes]]:
        return live_in(self.path / "d1") | live_in(self.path / "d2")

    def require_whole(self, at: int) -> None:
        """Check that every log is there, complete wherever it is, and that no line misleads."""
        found = [live_in(self.path / name) for name in ("d1", "d2")]
        assert {name for each in found for name in each} == set(self.before), at
        for each in found:
            for name, content in each.items():
                assert content == self.before[name], (at, name)
        start = names.LOG_START_OFFSET_CHECKPOINT
        for directory, partitions in zip(("d1", "d2"), found, strict=True):
            assert (self.path / directory / names.CLEAN_SHUTDOWN_MARKER).exists(), at
            lines = lines_of(self.path / directory)[start]
            for name in partitions.keys() - {"other-0"}:
                assert lines[name] == self.lines[start][name], (at, name)


@pytest.mark.slow
@at_some_or_each_kind
@undo_or_not
def test_a_killed_move_is_finished_by_the_next(
    quick_path: Path, killable: KillableKdump, undo: str, is_each_kind: bool
) -> None:
    node = Node(quick_path)
    command = node.drain(undo)
    kinds = kinds_of_changes(lambda: node.run(command))
    moved = node.disks()

    for at in moments_of_kinds(kinds, is_each_kind=is_each_kind):
        node.restart()
        assert killable.run_and_kill(command, at) == -signal.SIGKILL, at
        node.require_whole(at)
        assert node.run(command) == 0, at
        assert node.disks() == moved, at


@pytest.mark.slow
@at_some_or_each_kind
def test_a_killed_move_is_undone(
    quick_path: Path, killable: KillableKdump, is_each_kind: bool
) -> None:
    node = Node(quick_path)
    original = node.disks()
    command = node.drain("--undo")
    kinds = kinds_of_changes(lambda: node.run(command))

    for at in moments_of_kinds(kinds, is_each_kind=is_each_kind):
        node.restart()
        assert killable.run_and_kill(command, at) == -signal.SIGKILL, at
        for name in ("d1", "d2"):
            if list_undos(node.path / name):
                assert node.run(["undo", name]) == 0, (at, name)
            node.require_whole(at)
        assert node.disks() == original, at


@pytest.mark.slow
@at_some_or_each_kind
def test_a_killed_undo_of_a_move_loses_nothing(
    quick_path: Path, killable: KillableKdump, is_each_kind: bool
) -> None:
    node = Node(quick_path)
    original = node.disks()
    command = node.drain("--undo")
    node.run(command)
    moments = set[int]()
    for name in ("d1", "d2"):
        kinds = kinds_of_changes(partial(node.run, ["undo", name]))
        moments.update(moments_of_kinds(kinds, is_each_kind=is_each_kind, samples=3))

    for at in sorted(moments):
        node.restart()
        node.run(command)
        for name in ("d1", "d2"):
            killable.run_and_kill(["undo", node.path / name], at)
            node.require_whole(at)
            if list_undos(node.path / name):
                assert node.run(["undo", name]) == 0, (at, name)
        assert node.disks() == original, at
