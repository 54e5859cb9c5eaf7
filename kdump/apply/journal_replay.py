"""Replay the redo or undo records of a journal, from the beginning or after an interruption."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kdump.apply.directory_places import Places, place_of
from kdump.apply.files import FileRange, Files
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
"""From this many removals on, partitions are worked on in parallel."""
_REMOVING_THREADS: Final = 16
"""On a busy disk every removal waits; many at once wait hardly longer than one."""


@dataclass(slots=True)
class Replay:
    """Executes records in a log directory; any of them may have been executed before."""

    log_dir: Path
    journal: Journal
    files: Files
    _places: Places = field(init=False)

    def __post_init__(self) -> None:
        self._places = Places.of(self.log_dir, self.journal.moves)

    def forwards(self) -> None:
        """Execute the redo records."""
        self._execute(self.journal.redo_records)

    def backwards(self) -> None:
        """Execute the undo records; each before-image that a record puts back has a link."""
        self._execute(self.journal.undo_records)

    def _execute(self, records: tuple[JournalRecord, ...]) -> None:
        actions = {
            RecordKind.MOVE: self._move,
            RecordKind.REMOVE: self._remove,
            RecordKind.CUT: self._cut,
            RecordKind.SYNC: self._sync,
            RecordKind.PUT: self._put,
            RecordKind.FILL: self._fill,
            RecordKind.MAKE: self._make,
            RecordKind.SHIFT: self._shift,
            RecordKind.DROP: self._drop,
        }
        with phase(f"changing files in {self.log_dir}", len(records)) as changing:
            for kind, alike in itertools.groupby(records, key=lambda record: record.kind):
                if kind is RecordKind.REMOVE:
                    self._remove_all(list(alike), changing)
                    continue
                for record in changing.over(alike):
                    actions[kind](record)

    def _remove_all(self, records: list[JournalRecord], changing: Phase) -> None:
        """Remove files: those of one directory in order, many directories in parallel."""
        by_directory: dict[str, list[JournalRecord]] = {}
        for record in records:
            by_directory.setdefault(record.path.rpartition("/")[0], []).append(record)
        if len(records) < MANY_REMOVALS or len(by_directory) == 1:
            self._remove_in_order(records, changing)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_REMOVING_THREADS) as pool:
            remove = functools.partial(self._remove_in_order, changing=changing)
            for _ in pool.map(remove, by_directory.values()):
                pass

    def _remove_in_order(self, records: list[JournalRecord], changing: Phase) -> None:
        for record in changing.over(records):
            self._remove(record)

    def _move(self, record: JournalRecord) -> None:
        source, path = self.log_dir / record.source, self._places.now(record.path)
        if path is None or status_of(source) is None:
            return
        target = self.log_dir / path
        if is_same(source, target):
            # rename() does nothing if both names are links to the same file.
            self.files.unlink(source)
        else:
            self.files.rename(source, target)

    def _remove(self, record: JournalRecord) -> None:
        if record.source and status_of(self.log_dir / record.source) is None:
            return
        move = self._places.moves.get(record.path.partition("/")[0])
        if move is None:
            self.files.unlink(self.log_dir / record.path)
        elif move.between and place_of(self.log_dir, move) == move.between:
            # Never in a directory that is in use.
            name = record.path.removeprefix(f"{move.key}/")
            self.files.unlink(self.log_dir / move.between / name)

    def _make(self, record: JournalRecord) -> None:
        move = self._places.moves[record.source]
        if place_of(self.log_dir, move) in (None, record.path):
            self.files.make_directory(self.log_dir / record.path, move.metadata, move.attributes)

    def _shift(self, record: JournalRecord) -> None:
        place = place_of(self.log_dir, self._places.moves[record.source])
        if place not in (None, record.path):
            self.files.rename_directory(self.log_dir / str(place), self.log_dir / record.path)

    def _drop(self, record: JournalRecord) -> None:
        if place_of(self.log_dir, self._places.moves[record.source]) == record.path:
            self.files.remove_directory(self.log_dir / record.path)

    def _cut(self, record: JournalRecord) -> None:
        path, before = self.log_dir / record.path, self.journal.before_images[record.source]
        names = self._names_of(record.source, before)
        if status_at(path).st_size > record.size_bytes:
            self.files.truncate(path, record.size_bytes, names)
        self.files.set_metadata(path, before.metadata, names)

    def _names_of(self, path: str, before: BeforeImage) -> list[Path]:
        return [self.log_dir / name for name in names_while_cut(path, before, self.journal)]

    def _sync(self, record: JournalRecord) -> None:
        now = [self._places.now(self._place(path)) for path in record.paths]
        if any(now):
            self.files.sync(self.log_dir / path for path in now if path is not None)

    def _place(self, path: str) -> str:
        """Where the truncated file is: at its link, if it has one."""
        before = self.journal.before_images.get(path)
        return before.link if before and before.cut and before.link else path

    def _put(self, record: JournalRecord) -> None:
        link = self.journal.before_images[record.source].link
        assert link is not None, f"{record.source} has no link"
        kept, target = self.log_dir / link, self.log_dir / record.path
        if is_same(kept, target):
            return
        other = self.log_dir / self.journal.own_name(PUT_SUFFIX)
        if status_of(other) is not None:
            self.files.unlink(other)
        self.files.link(kept, other)
        self.files.rename(other, target)

    def _fill(self, record: JournalRecord) -> None:
        before = self.journal.before_images[record.source]
        assert before.cut is not None, f"{record.source} was not truncated"
        path = self.log_dir / self._place(record.source)
        names = self._names_of(record.source, before)
        self.restore(path, before, before.cut.kept_ranges, names)

    def restore(
        self,
        path: Path,
        before: BeforeImage,
        ranges: Sequence[KeptRange],
        names: Sequence[Path] = (),
    ) -> None:
        """Restore kept bytes, size and metadata of a file; the caller makes that durable.

        Args:
            before: its before-image.
            ranges: the bytes that the run keeps.
            names: further names that the file may have.

        Raises:
            OSError: the file cannot be changed, or has other hard links.
        """
        kept = self.log_dir / self.journal.own_name(CUT_SUFFIX)
        identity = identity_of(status_at(kept)) if ranges else None
        if status_at(path).st_size != before.size_bytes:
            self.files.truncate(path, before.size_bytes, names)
        for each in ranges:
            end = each.kept_at + each.size_bytes
            content = [FileRange(kept, each.kept_at, end, identity)]
            self.files.write_at(path, each.position, content, names)
        self.files.set_metadata(path, before.metadata, names)
