"""A directory with something to repair, and a machine that may stop during the repair."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from builders.apply_target import apply_target
from builders.log_dir_trees import original_of, seen_by_broker
from builders.repair_cases import Case, aged
from builders.samples import moments_of
from builders.trees import Seen
from builders.volatile_files import VolatileFiles
from kdump.apply.apply import apply_plan
from kdump.apply.files import Files
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.plan import TargetDirectory, TargetPartition, make_plan
from kdump.apply.runs import list_undos
from kdump.apply.segment_names import CLEANED
from kdump.apply.undo import undo
from kdump.errors import KdumpError
from kdump.target.target_file import RenamedFrom


class HastyDisk(Files):
    """The disk without syncs, to save time."""

    def sync(self, paths: Iterable[Path]) -> None:
        pass


class Bench:
    """A directory with something to repair, and any number of copies of it."""

    def __init__(self, path: Path, case: Case) -> None:
        self._original = path / "original"
        self._target = case(self._original)
        aged(self._original)
        self._copied = original_of(self._original)
        self._is_untouched = False
        self.before = self.original(self._original)
        self.attic = path / "attic"
        self.attic.mkdir()
        self.path = path / "logs"
        self.disk: Files = HastyDisk()
        self.restart()
        self._make_real_carelessly()
        self.repaired = seen_by_broker(self.path)
        self.restart()

    def original(self, path: Path | None = None) -> dict[str, Seen]:
        """Read all that an undo restores, without files prepared for the repair."""
        ready = {
            f"{change.path.name}/{each.name}"
            for change in self._target.partitions
            for each in change.files.values()
            if isinstance(each, RenamedFrom) and each.name.endswith(CLEANED)
        }
        seen = original_of(self.path if path is None else path)
        self._is_untouched = path is None and seen == self._copied
        return {name: each for name, each in seen.items() if name not in ready}

    def restart(self) -> None:
        """Restore the directory to its state before the repair.

        Nothing is copied if :meth:`original` has just found it unchanged.
        """
        was_untouched, self._is_untouched = self._is_untouched, False
        if was_untouched:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self._original, self.path)

    @property
    def target(self) -> TargetDirectory:
        changes = (
            TargetPartition(self.path / each.path.name, each.files)
            for each in self._target.partitions
        )
        target = self._target
        return TargetDirectory(self.path, tuple(changes), target.root, target.interim)

    def _make_real_carelessly(self) -> None:
        for change in self.target.partitions:
            apply_target(change.path, change.files)
        apply_target(self.path, self.target.root)

    def apply(self, files: Files | None = None, *, keep_undo: bool = True) -> str | None:
        plan = make_plan(self.target)
        disk = self.disk if files is None else files
        return apply_plan(plan, keep_undo=keep_undo, command="kdump recover", files=disk)

    def volatile(self) -> VolatileFiles:
        return VolatileFiles(self.path, self.attic)

    def count(self, work: Callable[[Files], object]) -> int:
        """Count the operations of ``work``."""
        return len(self.volatile().operations_of(work))

    def stops(self, work: Callable[[Files], object], *, unsynced: bool) -> list[int]:
        """Return the numbers of operations to stop after, so that every outcome is covered.

        If unsynced changes are lost, only syncs make a difference.
        """
        operations = self.volatile().operations_of(work)
        return [
            at
            for at in range(len(operations))
            if not unsynced or at == 0 or operations[at - 1].startswith("sync ")
        ]

    def stop(self, work: Callable[[Files], object], after: int, *, unsynced: bool) -> str:
        """Stop the machine in ``work`` after ``after`` operations; return the last of them."""
        files = self.volatile()
        files.stop_in(work, after, unsynced=unsynced)
        return files.operations[-1] if files.operations else "nothing"

    def finish_or_run_again(self) -> None:
        """Finish an interrupted run, or run the repair, as every command does."""
        finish_interrupted(self.path, files=self.disk)
        if not list_undos(self.path):
            self.apply()

    def undo(self) -> None:
        undo(self.path, files=self.disk)

    def kdumps(self) -> list[str]:
        return [path.name for path in self.path.glob(".kdump-*")]

    def check_interrupted_undos(self, *, unsynced: bool, is_all: bool) -> None:
        """Require that the next run finishes an undo that was interrupted at any operation."""

        def take_back(files: Files) -> None:
            undo(self.path, files=files)

        self.apply()
        for at in moments_of(self.stops(take_back, unsynced=unsynced), is_all=is_all):
            self.restart()
            self.apply()
            self.stop(take_back, at, unsynced=unsynced)

            finish_interrupted(self.path, files=self.disk)
            if list_undos(self.path):
                self.undo()

            assert self.original() == self.before, at
            assert self.kdumps() == [], at

    def check_failures(self, failure: int, *, is_all: bool) -> None:
        """Require that any operation that fails leaves the original or the target state.

        Args:
            failure: the number of the error.
            is_all: whether each operation fails, rather than a sample of them.
        """
        for at in moments_of(range(self.count(self.apply)), is_all=is_all):
            self.restart()
            files = self.volatile()
            files.fail_at, files.failure = at, failure
            said = ""
            try:
                self.apply(files)
            except KdumpError as failed:
                said = str(failed)
            if said:
                assert "nothing has been changed" in said or "as it was" in said
                assert self.original() == self.before, at
                assert self.kdumps() == [], at
            else:
                assert seen_by_broker(self.path) == self.repaired, at
            files.forget_attic()
