"""A log directory that is being copied to this disk: its journal, and how files get their names.

A copy is the one change of a log directory that has no plan and no undo: before it, there is
nothing, and what it writes is larger than what a plan could write again after a failure. So each
file gets its name as soon as it is complete, and the next run begins where this one ended.

In the root are, as long as the copy is not complete:

``.kdump-copy.jsonl``
    The journal: what is copied, and a line for each file that has its name.
``.kdump_copy``
    The files that have no name yet. A broker refuses to start with a directory that is not named
    like a partition, and so does not take half of the logs for all of them.

What there is if the machine stops after each step:

1. A journal without files: the next run begins.
2. A file in ``.kdump_copy``: the next run deletes it.
3. A line, and its file has no name yet: the next run copies it again.
4. A line and its file: the next run keeps it if its size and times are those of the source.
5. All files, and a line that the copy is being cut at a moment: the next run cuts, and copies
   nothing again. With a line that it is cut, the next run ends the copy.
6. No ``.kdump_copy``, but the journal: all files are complete. The next run removes the journal.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from typing import IO, Annotated, Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict

from kdump.apply.files import DISK
from kdump.apply.lock import drop_leftover, hold_locks
from kdump.apply.pinned_directory import directory_of, status_of
from kdump.errors import KdumpError, UsageProblem, reason_of
from kdump.formats.json_document import DocumentError, JsonObject, read_document
from kdump.formats.json_struct import LATER, TimeNs, decode_struct
from kdump.formats.names import LOCK_FILE
from kdump.formats.safe_json import json_line
from kdump.phases import phase
from kdump.storage.local_disk import local
from kdump.storage.unfinished_file import UnfinishedFile, is_unfinished

JOURNAL: Final = ".kdump-copy.jsonl"
FOLDER: Final = ".kdump_copy"
FORMAT: Final = "kdump-copy"
VERSION: Final = 1
TEMPORARY_PREFIX: Final = "file-"

_CONTINUE: Final = "the files that are complete stay: run the same command again to continue"
_OWN: Final = frozenset({JOURNAL, FOLDER, LOCK_FILE})


class CopyError(KdumpError):
    """The directory of a copy cannot be written."""


class CopySource(Struct, frozen=True):
    """A file that is copied, as it was then.

    Attributes:
        size_bytes: its size, and that of the copy.
        modified_ns: its modification time, and that of the copy.
        changed_ns: when anything of it last changed; 0 if that is not known. A log that was
            rewritten can have the same size and modification time.
    """

    size_bytes: int
    modified_ns: TimeNs
    changed_ns: Annotated[TimeNs, LATER] = 0


class EarlierCopy(Struct):
    """What earlier runs of the same copy left.

    Attributes:
        files: the files that have their names, as their sources were.
        made: those among them that the source does not have.
        reports: of the directories that are complete, by name.
        cut_to_ms: the moment to which it is being cut: all files were complete, and may differ from
            their sources by now; None if it is not.
        is_cut: whether that is done.
        cut_with: the directories that are cut together with it, itself among them; empty if an
            earlier version of kdump wrote that.
    """

    request: Mapping[str, Any]
    files: dict[str, CopySource] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    cut_to_ms: int | None = None
    is_cut: bool = False
    cut_with: frozenset[str] = frozenset()

    def take(self, line: JsonObject) -> None:
        """Add a line of the journal.

        Raises:
            DocumentError: it is malformed.
        """
        if "directory" in line.fields:
            name = line.text("directory")
            report = line.optional(line.object, "report")
            if report is None:
                self.reports.pop(name, None)
            else:
                self.reports[name] = report.fields
            return
        if "cut_to_ms" in line.fields:
            self.is_cut = line.flag("is_cut")
            self.cut_to_ms = line.integer("cut_to_ms")
            together = line.texts("together") if "together" in line.fields else ()
            self.cut_with = frozenset(together)
            return
        path = line.text("file")
        if not is_in_a_copy(path):
            raise DocumentError(f"{line.path('file')}: is no file of a copy")
        if "size_bytes" not in line.fields:
            self.files.pop(path, None)
            return
        source = decode_struct(CopySource, line, is_open=True)
        if line.flag("is_made"):
            self.made.add(path)
        else:
            self.made.discard(path)
        self.files[path] = source


def read_earlier(path: Path) -> EarlierCopy | None:
    """What earlier runs left in a directory; None if it is missing or empty.

    Raises:
        UsageProblem: it is no directory, or has anything else in it.
        OSError: it cannot be read.
    """
    try:
        found = sorted({each.name for each in path.iterdir()} - {LOCK_FILE})
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise UsageProblem(f"{path}: is not a directory: name a new one") from None
    if JOURNAL in found:
        if (path / JOURNAL).is_symlink():
            raise UsageProblem(f"{path / JOURNAL}: is a link: name a new directory")
        return _read_journal(path / JOURNAL)
    others = [each for each in found if each not in _OWN and not _is_unfinished_journal(each)]
    if others:
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise UsageProblem(
            f"{path}: has {shown} in it, and is not an unfinished copy: name a new directory"
        )
    return None


def _read_journal(path: Path) -> EarlierCopy:
    lines = local(str(path)).read().splitlines(keepends=True)
    try:
        header = read_document(lines[0] if lines else b"", FORMAT, VERSION)
        earlier = EarlierCopy(header.object("request").fields)
    except DocumentError as error:
        raise UsageProblem(f"{path}: {error}: name a new directory") from None
    for line in lines[1:]:
        # The last lines may be incomplete.
        with contextlib.suppress(ValueError, DocumentError):
            earlier.take(JsonObject.of(json.loads(line), ""))
    return earlier


def is_there(path: Path, file: str, source: CopySource) -> bool:
    """Whether a file of a copy is there, with the size and time of its source."""
    try:
        status = (path / file).lstat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (source.size_bytes, source.modified_ns)


class UnfinishedCopy:
    """A directory to which files are copied, locked as a log directory.

    Attributes:
        folder: where files are before they have their names.
    """

    def __init__(self, path: Path, journal: IO[bytes]) -> None:
        self.path = path
        self.folder = path / FOLDER
        self._journal = journal
        self._unsynced: set[Path] = set()
        self._directories: set[str] = set()

    def remove_empty(self, wanted: AbstractSet[str]) -> None:
        """Remove the directories of earlier runs that have nothing in them and are not wanted.

        Raises:
            OSError: one cannot be listed or removed.
        """
        for path in self._directories_inside():
            if str(path.relative_to(self.path)) in wanted or any(path.iterdir()):
                continue
            DISK.remove_directory(path)
            self._unsynced = (self._unsynced - {path}) | {path.parent}

    def unknown(self, files: AbstractSet[str], directories: AbstractSet[str]) -> Iterator[Path]:
        """What is in the directory, and neither wanted nor of the copy itself.

        Args:
            files: the wanted ones, by their paths in the copy.
            directories: the wanted ones; what is in others is not looked at.

        Raises:
            OSError: a directory cannot be listed.
        """
        for each in ("", *sorted(directories)):
            with os.scandir(self.path / each) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            for entry in found:
                name = f"{each}/{entry.name}".lstrip("/")
                known = directories if entry.is_dir(follow_symlinks=False) else files
                if name not in known and name not in _OWN:
                    yield self.path / name

    def _directories_inside(self) -> list[Path]:
        """The directories of the copy, each after those in it; not what links lead to."""
        found: list[Path] = []
        left = [self.path]
        while left:
            with os.scandir(left.pop()) as entries:
                inside = [
                    Path(each)
                    for each in entries
                    if each.is_dir(follow_symlinks=False) and Path(each) != self.folder
                ]
            left += inside
            found += inside
        return found[::-1]

    def make_directories(self, names: Iterable[str]) -> None:
        """Make directories, each after the one around it."""
        for name in names:
            if name in self._directories:
                continue
            path = self.path / name
            with directory_of(path) as above, contextlib.suppress(FileExistsError):
                os.mkdir(path.name, 0o777, dir_fd=above)
            status = status_of(path)
            if status is None or not path.is_dir() or path.is_symlink():
                raise CopyError(f"{path}: is in the way: name a new directory")
            self._directories.add(name)
            # Names in it, too: those that an earlier run gave may not be durable yet.
            self._unsynced |= {path.parent, path}

    def place(
        self, temporary: str, file: str, source: CopySource, *, is_made: bool = False
    ) -> None:
        """Give a complete file its name.

        Args:
            source: how its source was.
            is_made: whether the source does not have it.
        """
        path = self.path / file
        # Before the file has its name: what has one is known to the next run, which removes it
        # again if the source does not have it any more.
        self._note({"file": file, **asdict(source), "is_made": is_made})
        DISK.rename(self.folder / Path(temporary).name, path)
        self._unsynced.add(path.parent)

    def make(self, file: str, content: bytes, modified_ns: int) -> None:
        """Write a small file that the source does not have."""
        with UnfinishedFile.beside(self.folder / "file", TEMPORARY_PREFIX, mode=0o666) as new:
            new.stream.write(content)
            new.set_modified(modified_ns)
            new.finish()
            self.place(new.keep(), file, CopySource(len(content), modified_ns), is_made=True)

    def remove(self, files: Iterable[str]) -> None:
        """Remove files that the source does not have any more.

        Raises:
            CopyError: one is behind a link, so not in the copy.
        """
        for file in files:
            path = self.path / file
            if any((self.path / each).is_symlink() for each in PurePath(file).parents):
                raise CopyError(f"{path}: is behind a link: name a new directory")
            # It may have been removed by somebody else, and its directory, too.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                DISK.unlink(path)
                self._unsynced.add(path.parent)
            self._note({"file": file})

    def note_report(self, directory: str, report: Mapping[str, Any] | None) -> None:
        """Note that a directory is complete, or with None that it is not any more."""
        self._note({"directory": directory, "report": report})

    def sync(self) -> None:
        """Make the names of all files durable."""
        DISK.sync(sorted(self._unsynced))
        self._unsynced.clear()

    def finish(self) -> None:
        """End the copy: all files are complete."""
        self.sync()
        self.drop_temporary()
        DISK.remove_directory(self.folder)
        DISK.sync([self.path])
        DISK.unlink(self.path / JOURNAL)
        DISK.sync([self.path])

    def drop_temporary(self) -> None:
        """Delete the files that were not finished."""
        for path in list(self.folder.iterdir()):
            DISK.unlink(path)

    def _note(self, line: Mapping[str, Any]) -> None:
        self._journal.write(json_line(line))


def name_in_journal(path: Path) -> str:
    """How a journal names the directory of a copy: the same for all paths to it."""
    return os.path.realpath(path)


def note_cut(path: Path, to_ms: int, together: Iterable[Path], *, is_cut: bool) -> None:
    """Note durably that a copy, whose files are complete, is being cut at a moment, or is cut.

    Args:
        together: all directories that are cut.
        is_cut: whether that is done.

    Raises:
        OSError: the disk fails.
    """
    with (path / JOURNAL).open("ab", buffering=0) as journal:
        names = [name_in_journal(each) for each in together]
        line = {"cut_to_ms": to_ms, "is_cut": is_cut, "together": names}
        journal.write(json_line(line))
        os.fsync(journal.fileno())


@contextlib.contextmanager
def begun_copy(path: Path, request: Mapping[str, Any]) -> Iterator[UnfinishedCopy]:
    """Begin a copy or continue one: lock the directory, which is made if it is missing.

    Raises:
        UsageProblem: it has other things in it by now, or the copy of something else.
        LockedError: a broker, or another kdump, works on it.
        CopyError: it cannot be written; says what to do.
    """
    try:
        with phase(f"making {path}"), contextlib.suppress(FileExistsError):
            path.mkdir()
        with hold_locks([path]):
            drop_leftover(path)
            with phase(f"looking at {path}"):
                _begin_or_continue(path, request)
            with (path / JOURNAL).open("ab", buffering=0) as journal:
                copy = UnfinishedCopy(path, journal)
                try:
                    yield copy
                except BaseException as stop:
                    with contextlib.suppress(OSError):
                        copy.drop_temporary()
                    if isinstance(stop, KeyboardInterrupt):
                        stop.add_note(f"{path}: not complete; {_CONTINUE}")
                    raise
    except OSError as failure:
        where = failure.filename if isinstance(failure.filename, str | Path) else path
        raise unwritable(Path(where), reason_of(failure)) from failure


def _begin_or_continue(path: Path, request: Mapping[str, Any]) -> None:
    earlier = read_earlier(path)
    if earlier is None:
        _begin_journal(path, request)
    elif earlier.request != request:
        # Whoever planned this copy looked before the lock was held.
        raise UsageProblem(
            f"{path}: a copy of something else was begun there meanwhile: name a new directory"
        )
    with contextlib.suppress(FileExistsError):
        (path / FOLDER).mkdir()
    if not _is_directory(path / FOLDER):
        raise CopyError(f"{path / FOLDER}: is in the way: name a new directory")
    for each in list((path / FOLDER).iterdir()):
        DISK.unlink(each)


def unwritable(path: Path, what: str) -> CopyError:
    """The failure of a copy whose disk fails."""
    return CopyError(f"{path}: {what}; {_CONTINUE}")


def is_in_a_copy(file: str) -> bool:
    """Whether a path of the journal is that of a file that a copy can have."""
    parts = file.split("/")
    if "\0" in file or not {"", ".", ".."}.isdisjoint(parts):
        return False
    return parts[0] not in _OWN


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_unfinished_journal(name: str) -> bool:
    return is_unfinished(name, f"{JOURNAL}.")


def _begin_journal(path: Path, request: Mapping[str, Any]) -> None:
    for each in list(path.iterdir()):
        if _is_unfinished_journal(each.name):
            DISK.unlink(each)
    header = json_line({"format": FORMAT, "version": VERSION, "request": request})
    with UnfinishedFile.beside(path / JOURNAL, f"{JOURNAL}.", mode=0o666) as new:
        new.stream.write(header)
        new.finish()
        new.rename(path / JOURNAL)
    DISK.sync([path])
