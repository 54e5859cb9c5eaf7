"""Find out whether anybody else has changed a directory since a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kdump.apply.directory_places import Places
from kdump.apply.fingerprints import fingerprints_of, is_note
from kdump.apply.journal import Fingerprint, Journal
from kdump.apply.journal_record import RecordKind
from kdump.apply.pinned_directory import status_of
from kdump.apply.segment_names import CLEANED, SWAP
from kdump.formats.names import KDUMP_PREFIX
from kdump.words import first_of

_SHOWN: Final = 5


def changed_since(log_dir: Path, journal: Journal) -> list[str]:
    """Compare a directory with what a complete run left; gives a phrase for each difference."""
    missing = [path for path in journal.directories if not (log_dir / path).is_dir()]
    if missing:
        return [f"{path} is gone" for path in missing]
    now = fingerprints_now(log_dir, journal, with_checksums=True)
    return _compared(_recorded(journal), now, Places.of(log_dir, journal.moves))


def fingerprints_now(
    log_dir: Path, journal: Journal, *, with_checksums: bool
) -> dict[str, Fingerprint]:
    """Take fingerprints of what the run of a journal leaves, or its undo finds.

    Raises:
        OSError: something cannot be read.
    """
    return fingerprints_of(
        log_dir,
        journal.directories,
        journal.moves,
        touched=_touched(journal),
        with_checksums=with_checksums,
    )


def _recorded(journal: Journal) -> dict[str, Fingerprint]:
    """The fingerprints in a journal; one of an earlier kdump has those of notes, too."""
    touched = _touched(journal)
    found = journal.fingerprints.items()
    return {path: mark for path, mark in found if not is_note(path, touched)}


def _touched(journal: Journal) -> set[str]:
    """The files that a run or its undo changes."""
    return {
        *journal.before_images.keys(),
        *journal.after.keys(),
        *journal.interim.keys(),
        *journal.staged.keys(),
    }


def _compared(
    then: Mapping[str, Fingerprint], now: Mapping[str, Fingerprint], places: Places
) -> list[str]:
    found = [f"{places.shown(path)} is new" for path in sorted(now.keys() - then.keys())]
    found += [f"{places.shown(path)} is gone" for path in sorted(then.keys() - now.keys())]
    found += [
        f"{places.shown(path)} has changed"
        for path in sorted(then.keys() & now.keys())
        if then[path] != now[path]
    ]
    return found


def changed_during(log_dir: Path, journal: Journal) -> list[str]:
    """Find what neither the interrupted run ``journal`` nor its undo can have caused."""
    missing = [path for path in journal.directories if not (log_dir / path).is_dir()]
    if missing:
        return [f"{path} is gone" for path in missing]
    now = fingerprints_now(log_dir, journal, with_checksums=False)
    touched = _touched(journal)
    then = _recorded(journal)
    places = Places.of(log_dir, journal.moves)
    deleted = _deleted_with_directories(journal)
    found = [
        f"{places.shown(path)} has changed" if path in now else f"{places.shown(path)} is gone"
        for path, mark in then.items()
        if path not in touched
        and now.get(path) != mark
        and not (path not in now and path in deleted)
    ]
    for path, mark in now.items():
        if path in journal.fingerprints and path not in touched:
            continue
        if not any(_may_be(mark, each) for each in _possible(path, journal)):
            is_known = path in journal.fingerprints or path in journal.after
            what = "has changed" if is_known else "is new"
            found.append(f"{places.shown(path)} {what}")
    return sorted(found)


def _deleted_with_directories(journal: Journal) -> set[str]:
    """The files that an interrupted run may have deleted in a directory that it removes."""
    removed = {each.key for each in journal.moves if each.after is None}
    return {
        record.path
        for record in journal.redo_records
        if record.kind is RecordKind.REMOVE and record.path.partition("/")[0] in removed
    }


def _possible(path: str, journal: Journal) -> Iterable[tuple[int, int, int | None]]:
    """Smallest size, largest size and time that a changed file can have; None is any time."""
    for name in (path, path.removesuffix(CLEANED), path.removesuffix(SWAP)):
        if name in journal.after:
            mark = journal.after[name]
            yield mark.size_bytes, mark.size_bytes, mark.modified_ns
    if path in journal.interim:
        mark = journal.interim[path]
        yield mark.size_bytes, mark.size_bytes, mark.modified_ns
    # A file can have the name of its successor for a moment.
    for name in (path, path + SWAP, path + CLEANED):
        before = journal.before_images.get(name)
        if before is not None:
            yield before.size_bytes, before.size_bytes, before.metadata.modified_ns
            if before.cut is not None:
                yield before.cut.position, before.size_bytes, None
    for record in journal.redo_records:
        if record.kind.value == "cut" and record.path == path:
            yield record.size_bytes, record.size_bytes, None


def _may_be(mark: Fingerprint, possible: tuple[int, int, int | None]) -> bool:
    least, most, modified_ns = possible
    return least <= mark.size_bytes <= most and modified_ns in (None, mark.modified_ns)


def lost_content(log_dir: Path, journal: Journal) -> list[str]:
    """Find new content of an interrupted run that is missing or changed.

    A broker deletes incomplete segments when it starts.
    """
    found = []
    places = Places.of(log_dir, journal.moves)
    for name, path in journal.staged.items():
        status = status_of(log_dir / name) if name.startswith(KDUMP_PREFIX) else None
        if status is not None:
            fingerprints = (journal.after.get(path), journal.interim.get(path))
            if Fingerprint(status.st_size, status.st_mtime_ns) not in fingerprints:
                found.append(f"the new content of {path} has changed")
            continue
        now = places.now(path)
        names = (name, path + CLEANED, path + SWAP)
        is_there = any((log_dir / each).exists() for each in names)
        # Interim content may have been replaced already.
        if not is_there and path in journal.after and _is_as_before(log_dir, path, now, journal):
            found.append(f"the new content of {places.shown(path)} is gone")
    return found


def _is_as_before(log_dir: Path, path: str, now: str | None, journal: Journal) -> bool:
    if now is None:
        return True
    target = log_dir / now
    if not target.exists():
        return True
    before = journal.before_images.get(path)
    if before is None:
        return False
    link = None if before.link is None else log_dir / before.link
    if link is not None and link.exists() and target.samefile(link):
        return True
    # The link may be a copy (:meth:`Files.link`).
    state = target.stat()
    mark = Fingerprint(state.st_size, state.st_mtime_ns)
    return mark not in (journal.after[path], journal.interim.get(path))


def summarized(changes: list[str]) -> str:
    """Join the first few changes."""
    return first_of(changes, _SHOWN)
