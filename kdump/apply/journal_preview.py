"""Preview what the records of a journal will do to files, without executing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

from kdump.apply.directory_places import place_of
from kdump.apply.journal import Journal
from kdump.apply.journal_record import DIRECTORY_KINDS, JournalRecord, RecordKind
from kdump.apply.pinned_directory import status_of
from kdump.formats.names import KDUMP_PREFIX, LOCK_FILE


class Restored(Struct, frozen=True):
    """A file, or a whole directory, that finishing or undoing a run changes.

    Attributes:
        path: relative to the log directory; ends in a slash if it is a directory.
        is_removed: whether the file does not exist afterwards.
        size_bytes: of the file afterwards; 0 if it does not exist.
    """

    path: str
    is_removed: bool
    size_bytes: int


def changed_by_undo(log_dir: Path, journal: Journal) -> list[Restored]:
    """All files that undoing the run changes, in order of their paths.

    Raises:
        OSError: the status of a file cannot be read.
    """
    restored = _changed(log_dir, journal, is_redo=False)
    if journal.lock is not None:
        restored.append(Restored(LOCK_FILE, is_removed=False, size_bytes=0))
    return sorted(restored, key=lambda each: each.path)


def changed_by_redo(log_dir: Path, journal: Journal) -> list[Restored]:
    """All files that finishing the run changes, in order of their paths.

    Raises:
        OSError: the status of a file cannot be read.
    """
    return _changed(log_dir, journal, is_redo=True)


def _changed(log_dir: Path, journal: Journal, *, is_redo: bool) -> list[Restored]:
    """All files of the run, and whatever else its records change."""
    moves = {each.key for each in journal.moves}
    every = journal.redo_records if is_redo else journal.undo_records
    then = _predict_names(
        log_dir,
        journal,
        (
            each
            for each in every
            if each.kind not in DIRECTORY_KINDS and each.path.partition("/")[0] not in moves
        ),
    )
    found = _moved(log_dir, journal, is_redo=is_redo)
    paths = then.keys() | journal.before_images.keys() | journal.after.keys()
    for path in sorted(each for each in paths if each.partition("/")[0] not in moves):
        content = then.get(path, _Content(path))
        if path not in then and status_of(log_dir / path) is None:
            content = None
        if content is None:
            size_bytes = 0
        elif is_redo and path in journal.after:
            size_bytes = journal.after[path].size_bytes
        else:
            size_bytes = _size_of(log_dir, journal, content)
        found.append(Restored(path, content is None, size_bytes))
    return sorted(found, key=lambda each: each.path)


def _moved(log_dir: Path, journal: Journal, *, is_redo: bool) -> list[Restored]:
    """The directories that get or lose their names, each with the bytes in it."""
    sizes: Counter[str] = Counter()
    for path, each in (journal.fingerprints | journal.after).items():
        sizes[path.partition("/")[0]] += each.size_bytes
    found = []
    for move in journal.moves:
        now, then = place_of(log_dir, move), move.after if is_redo else move.before
        if now == then:
            continue
        if now is not None:
            found.append(Restored(f"{now}/", is_removed=True, size_bytes=0))
        if then is not None:
            found.append(Restored(f"{then}/", is_removed=False, size_bytes=sizes[move.key]))
    return found


def _size_of(log_dir: Path, journal: Journal, content: _Content) -> int:
    before = journal.before_images.get(content.name)
    if before is not None and content.is_before:
        return before.size_bytes
    status = status_of(log_dir / content.name)
    return 0 if status is None else status.st_size


class _Content(Struct, frozen=True):
    """The content of a name: a current file, or a before-image.

    Attributes:
        is_before: whether it is the file's before-image, not its current content.
    """

    name: str
    is_before: bool = False


def _predict_names(
    log_dir: Path, journal: Journal, records: Iterable[JournalRecord]
) -> dict[str, _Content | None]:
    """Predict the content of every name that ``records`` change; None where it is deleted."""
    names = _Names(log_dir)
    for record in records:
        match record.kind:
            case RecordKind.MOVE:
                names.move(record.source, record.path)
            case RecordKind.REMOVE:
                if not record.source or names.at(record.source) is not None:
                    names.give(record.path, None)
            case RecordKind.PUT:
                names.give(record.path, _Content(record.source, is_before=True))
            case RecordKind.CUT:
                names.give(record.path, _Content(record.path, is_before=True))
            case RecordKind.FILL:
                link = journal.before_images[record.source].link
                if link is None:
                    names.give(record.source, _Content(record.source, is_before=True))
            case _:
                pass
    return names.changed()


class _Names(Struct):
    log_dir: Path
    _now: dict[str, _Content | None] = field(default_factory=dict)
    _then: dict[str, _Content | None] = field(default_factory=dict)

    def at(self, name: str) -> _Content | None:
        if name not in self._then:
            is_there = status_of(self.log_dir / name) is not None
            self._now[name] = self._then[name] = _Content(name) if is_there else None
        return self._then[name]

    def give(self, name: str, content: _Content | None) -> None:
        self.at(name)
        self._then[name] = content

    def move(self, source: str, name: str) -> None:
        content = self.at(source)
        if content is not None:
            self.give(source, None)
            self.give(name, content)

    def changed(self) -> dict[str, _Content | None]:
        return {
            name: content
            for name, content in self._then.items()
            if content != self._now[name] and not name.startswith(KDUMP_PREFIX)
        }
