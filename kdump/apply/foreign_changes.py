"""Whether a directory is still as a run left it, or somebody else has been there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import crc32c

from kdump.apply.journal import Fingerprint, Journal
from kdump.apply.journal_record import ROOT
from kdump.apply.operations import states_of
from kdump.apply.pinned_directory import status_of
from kdump.apply.segment_names import CLEANED, SWAP
from kdump.formats.names import KDUMP_PREFIX, LOCK_FILE
from kdump.phases import during
from kdump.storage.regular_files import read_file

CHECKSUMMED_BYTES: Final = 64 << 10
"""Files up to this size are compared by their content as well: kdump itself replaces such files,
and keeps their times."""
_SHOWN: Final = 5


@during("examining files")
def fingerprints_of(
    log_dir: Path, directories: Iterable[str], *, with_checksums: bool
) -> dict[str, Fingerprint]:
    """The files in directories below ``log_dir`` (``.`` is itself), by path.

    Raises:
        OSError: something cannot be read.
    """
    fingerprints = {}
    for directory in directories:
        is_root = directory == ROOT
        for name, state in states_of(log_dir / directory).items():
            if is_root and (name == LOCK_FILE or name.startswith(KDUMP_PREFIX)):
                continue
            path = name if is_root else f"{directory}/{name}"
            is_small = with_checksums and state.size_bytes <= CHECKSUMMED_BYTES
            checksum = crc32c.crc32c(read_file(log_dir / path)) if is_small else None
            fingerprints[path] = Fingerprint(state.size_bytes, state.metadata.modified_ns, checksum)
    return fingerprints


def changed_since(log_dir: Path, journal: Journal) -> list[str]:
    """What is not as the completed run ``journal`` left it, a phrase for each file."""
    missing = [path for path in journal.directories if not (log_dir / path).is_dir()]
    if missing:
        return [f"{path} is gone" for path in missing]
    now = fingerprints_of(log_dir, journal.directories, with_checksums=True)
    return _compared(journal.fingerprints, now)


def _compared(then: Mapping[str, Fingerprint], now: Mapping[str, Fingerprint]) -> list[str]:
    found = [f"{path} is new" for path in sorted(now.keys() - then.keys())]
    found += [f"{path} is gone" for path in sorted(then.keys() - now.keys())]
    found += [
        f"{path} has changed"
        for path in sorted(then.keys() & now.keys())
        if then[path] != now[path]
    ]
    return found


def changed_during(log_dir: Path, journal: Journal) -> list[str]:
    """What neither the interrupted run ``journal`` nor its undoing can have left like this."""
    missing = [path for path in journal.directories if not (log_dir / path).is_dir()]
    if missing:
        return [f"{path} is gone" for path in missing]
    now = fingerprints_of(log_dir, journal.directories, with_checksums=False)
    changed_paths = journal.before_images.keys() | journal.after.keys() | journal.interim.keys()
    changed_paths |= journal.staged.keys()
    found = [
        f"{path} has changed" if path in now else f"{path} is gone"
        for path, mark in journal.fingerprints.items()
        if path not in changed_paths and now.get(path) != mark
    ]
    for path, mark in now.items():
        if path in journal.fingerprints and path not in changed_paths:
            continue
        if not any(_may_be(mark, each) for each in _possible(path, journal)):
            is_known = path in journal.fingerprints or path in journal.after
            found.append(f"{path} has changed" if is_known else f"{path} is new")
    return sorted(found)


def _possible(path: str, journal: Journal) -> Iterable[tuple[int, int, int | None]]:
    """Least and greatest size and time that a changed file may have."""
    for name in (path, path.removesuffix(CLEANED), path.removesuffix(SWAP)):
        if name in journal.after:
            mark = journal.after[name]
            yield mark.size_bytes, mark.size_bytes, mark.modified_ns
    if path in journal.interim:
        mark = journal.interim[path]
        yield mark.size_bytes, mark.size_bytes, mark.modified_ns
    # A file may stand for a moment under the name that another one is to have.
    for name in (path, path + SWAP, path + CLEANED):
        before = journal.before_images.get(name)
        if before is not None:
            yield before.size_bytes, before.size_bytes, before.metadata.modified_ns
            if before.cut is not None:
                yield before.cut.position, before.size_bytes, None
    for step in journal.redo_records:
        if step.kind.value == "cut" and step.path == path:
            yield step.size_bytes, step.size_bytes, None


def _may_be(mark: Fingerprint, possible: tuple[int, int, int | None]) -> bool:
    least, most, modified_ns = possible
    return least <= mark.size_bytes <= most and modified_ns in (None, mark.modified_ns)


def lost_content(log_dir: Path, journal: Journal) -> list[str]:
    """New content of an interrupted run that is not as it was written, or is nowhere.

    A broker deletes what is incomplete.
    """
    found = []
    for name, path in journal.staged.items():
        status = status_of(log_dir / name) if name.startswith(KDUMP_PREFIX) else None
        if status is not None:
            fingerprints = (journal.after.get(path), journal.interim.get(path))
            if Fingerprint(status.st_size, status.st_mtime_ns) not in fingerprints:
                found.append(f"the new content of {path} has changed")
            continue
        places = (name, path + CLEANED, path + SWAP)
        is_there = any((log_dir / place).exists() for place in places)
        # What is only there meanwhile may be gone rightly.
        if not is_there and path in journal.after and _is_as_before(log_dir, path, journal):
            found.append(f"the new content of {path} is gone")
    return found


def _is_as_before(log_dir: Path, path: str, journal: Journal) -> bool:
    target = log_dir / path
    if not target.exists():
        return True
    before = journal.before_images.get(path)
    if before is None:
        return False
    if before.link is not None and (log_dir / before.link).exists():
        return target.samefile(log_dir / before.link)
    state = target.stat()
    mark = Fingerprint(state.st_size, state.st_mtime_ns)
    return mark not in (journal.after[path], journal.interim.get(path))


def summarized(changes: list[str]) -> str:
    """The first few changes in a phrase."""
    more = len(changes) - _SHOWN
    return ", ".join(changes[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
