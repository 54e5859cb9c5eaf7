"""Taking the steps of a run, forwards or backwards, from the beginning or from anywhere."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kdump.apply.files import Content, FileRange, Files
from kdump.apply.journal import (
    CUT_SUFFIX,
    PUT_SUFFIX,
    BeforeImage,
    Journal,
    KeptRange,
    names_while_cut,
)
from kdump.apply.journal_record import JournalRecord, RecordKind
from kdump.apply.pinned_directory import identity_of, is_same, status_at, status_of
from kdump.phases import Phase, phase

MANY_REMOVALS: Final = 256
"""From how many files on the partitions that they go from are worked on side by side."""
_REMOVING_THREADS: Final = 16
"""A busy disk lets every removal wait for its turn, and many at once hardly longer than one."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Takes steps in a log directory; each of them may have been taken before."""

    log_dir: Path
    journal: Journal
    files: Files

    def forwards(self) -> None:
        """Do what the run does."""
        self._take(self.journal.redo_records)

    def backwards(self) -> None:
        """Take it back; every file that was taken from its name has another one."""
        self._take(self.journal.undo_records)

    def _take(self, steps: tuple[JournalRecord, ...]) -> None:
        actions = {
            RecordKind.MOVE: self._move,
            RecordKind.REMOVE: self._remove,
            RecordKind.CUT: self._cut,
            RecordKind.SYNC: self._sync,
            RecordKind.PUT: self._put,
            RecordKind.FILL: self._fill,
        }
        with phase(f"changing files in {self.log_dir}", len(steps)) as changing:
            for kind, alike in itertools.groupby(steps, key=lambda step: step.kind):
                if kind is RecordKind.REMOVE:
                    self._remove_all(list(alike), changing)
                    continue
                for step in changing.over(alike):
                    actions[kind](step)

    def _remove_all(self, steps: list[JournalRecord], changing: Phase) -> None:
        """Remove files, those of each directory in their order; of many, side by side."""
        by_directory: dict[str, list[JournalRecord]] = {}
        for step in steps:
            by_directory.setdefault(step.path.rpartition("/")[0], []).append(step)
        if len(steps) < MANY_REMOVALS or len(by_directory) == 1:
            self._remove_in_order(steps, changing)
            return
        with ThreadPoolExecutor(_REMOVING_THREADS) as pool:
            remove = functools.partial(self._remove_in_order, changing=changing)
            for _ in pool.map(remove, by_directory.values()):
                pass

    def _remove_in_order(self, steps: list[JournalRecord], changing: Phase) -> None:
        for step in changing.over(steps):
            self._remove(step)

    def _move(self, step: JournalRecord) -> None:
        source, target = self.log_dir / step.source, self.log_dir / step.path
        if status_of(source) is None:
            return
        if is_same(source, target):
            # rename() leaves two names of one file as they are.
            self.files.unlink(source)
        else:
            self.files.rename(source, target)

    def _remove(self, step: JournalRecord) -> None:
        if step.source and status_of(self.log_dir / step.source) is None:
            return
        self.files.unlink(self.log_dir / step.path)

    def _cut(self, step: JournalRecord) -> None:
        path, before = self.log_dir / step.path, self.journal.before_images[step.source]
        names = self._names_of(step.source, before)
        if status_at(path).st_size > step.size_bytes:
            self.files.truncate(path, step.size_bytes, names)
        self.files.set_metadata(path, before.metadata, names)

    def _names_of(self, path: str, before: BeforeImage) -> list[Path]:
        return [self.log_dir / name for name in names_while_cut(path, before, self.journal)]

    def _sync(self, step: JournalRecord) -> None:
        if step.paths:
            self.files.sync(self.log_dir / self._place(path) for path in step.paths)

    def _place(self, path: str) -> str:
        """Where the file is that was cut: under its other name, if it was given one."""
        before = self.journal.before_images.get(path)
        return before.link if before and before.cut and before.link else path

    def _put(self, step: JournalRecord) -> None:
        link = self.journal.before_images[step.source].link
        assert link is not None, f"{step.source} was not kept"
        kept, target = self.log_dir / link, self.log_dir / step.path
        if is_same(kept, target):
            return
        other = self.log_dir / self.journal.own_name(PUT_SUFFIX)
        if status_of(other) is not None:
            self.files.unlink(other)
        self.files.link(kept, other)
        self.files.rename(other, target)

    def _fill(self, step: JournalRecord) -> None:
        before = self.journal.before_images[step.source]
        assert before.cut is not None, f"{step.source} was not cut"
        path = self.log_dir / self._place(step.source)
        names = self._names_of(step.source, before)
        restore(path, before, before.cut.kept_ranges, self.log_dir, self.journal, self.files, names)


def restore(
    path: Path,
    before: BeforeImage,
    runs: tuple[KeptRange, ...],
    log_dir: Path,
    journal: Journal,
    files: Files,
    names: Sequence[Path] = (),
) -> None:
    """Give a file the kept bytes, the size and the metadata that it had; durable is for later."""
    kept = log_dir / journal.own_name(CUT_SUFFIX)
    identity = identity_of(status_at(kept)) if runs else None
    if status_at(path).st_size != before.size_bytes:
        files.truncate(path, before.size_bytes, names)
    for run in runs:
        content: Content = [FileRange(kept, run.kept_at, run.kept_at + run.size_bytes, identity)]
        files.write_at(path, run.position, content, names)
    files.set_metadata(path, before.metadata, names)
