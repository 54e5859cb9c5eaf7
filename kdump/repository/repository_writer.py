"""Write a repository: pieces, then the documents that name them, then the snapshot.

What there is if the machine stops after each step:

1. No ``kdump-repository.json``: the next run makes what is missing.
2. A temporary file: the next run deletes it, if the place does not.
3. A piece under its name that no snapshot needs: the next run finds by the notes in
   ``unfinished`` which files it need not read again, if the pieces are there.
4. All pieces, and no snapshot: as after 3.
5. A snapshot: everything that it needs is durable. The next run deletes the notes.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Final

from kdump.errors import StoreGoneError, UsageProblem, reason_of
from kdump.formats.json_document import DocumentError, JsonObject
from kdump.formats.names import OF_FILE_SYSTEMS
from kdump.formats.safe_json import json_line
from kdump.phases import phase
from kdump.repository.repository_place import HeldLock, RepositoryPlace
from kdump.storage.repository import (
    DATA,
    REPOSITORY_FILE,
    SNAPSHOTS,
    UNFINISHED,
    Repository,
    RepositoryError,
    piece_name,
    snapshot_id,
)
from kdump.storage.repository_documents import (
    BackedUpDirectory,
    BackedUpFile,
    RepositoryPiece,
    Snapshot,
    repository_document,
)
from kdump.storage.sparse_writer import WriteFailedError

DAMAGED_SUFFIX: Final = ".damaged"

_CONTINUE: Final = "what is stored stays: run the same command again to continue"
_OWN: Final = frozenset({DATA, SNAPSHOTS, UNFINISHED})
_DOCUMENTS_TOGETHER: Final = 512
_OPEN_TOGETHER: Final = 64
_PIECE: Final = re.compile(f"{DATA}/[0-9a-f]{{2}}/([0-9a-f]{{64}})")
_NOTES: Final = re.compile(rf"{UNFINISHED}/progress[-0-9a-z]*\.jsonl")

_SIZE_BYTES: Final = 8

FilesByPath = dict[str, BackedUpFile]


def pieces_in(place: RepositoryPlace) -> Iterator[tuple[RepositoryPiece, float]]:
    """All pieces that are in a repository, by their names and sizes, and their ages in seconds.

    Raises:
        OSError: they cannot be listed.
    """
    for each in place.files(DATA):
        if match := _PIECE.fullmatch(each.name):
            yield RepositoryPiece(match[1], each.size_bytes), each.age_s


def unneeded_pieces(
    place: RepositoryPlace, needed: Container[str]
) -> Iterator[tuple[RepositoryPiece, float]]:
    """Yield the pieces that are not needed, and their ages in seconds.

    Args:
        needed: SHA-256 of those that are.

    Raises:
        OSError: they cannot be listed.
    """
    return (each for each in pieces_in(place) if each[0].sha256 not in needed)


def _key_of(piece: RepositoryPiece) -> bytes:
    """A piece in a third of the memory: a repository may have a million."""
    return bytes.fromhex(piece.sha256) + piece.size_bytes.to_bytes(_SIZE_BYTES)


class RepositoryWriter:
    """A repository that is locked and written to.

    Attributes:
        repository: for reading.
        earlier: the files that a run without a snapshot has stored, by log directory and path.
    """

    def __init__(self, where: RepositoryPlace, repository: Repository, lock: HeldLock) -> None:
        self.where = where
        self.repository = repository
        self._lock = lock
        self._notes = set(_notes_in(where))
        self.earlier = _read_notes(where, sorted(self._notes))
        self._is_continued = bool(self._notes)
        self._lines: list[bytes] = []
        self._unsettled = set[str]()
        self._documents: dict[RepositoryPiece, bytes] = {}
        self._known: set[RepositoryPiece] = set()
        # Before any piece is added: some places give it its name at once.
        self._stored = {_key_of(each) for each, _ in pieces_in(where)} if where.is_listed else None

    def has(self, piece: RepositoryPiece) -> bool:
        """Whether a piece is there, with its size; its bytes are not looked at."""
        if self._stored is None:
            return self.repository.has(piece)
        return _key_of(piece) in self._stored

    def place(self, kept: Sequence[tuple[str, RepositoryPiece]]) -> None:
        """Give pieces their names; see :meth:`RepositoryPlace.place`.

        Args:
            kept: as :meth:`RepositoryPlace.keep` has kept them.
        """
        self.where.place(kept)
        for _, piece in kept:
            self._unsettled.add(piece_name(piece).rpartition("/")[0])
            if self._stored is not None:
                self._stored.add(_key_of(piece))

    def note(self, log_dir: str, directory: str, file: BackedUpFile) -> None:
        """Note for the next run that a file is stored; see :meth:`write_notes`."""
        line = {"log_dir": log_dir, "directory": directory, "file": file.fields()}
        self._lines.append(json_line(line))

    def write_notes(self) -> None:
        """Write what was noted since the last call.

        Raises:
            OSError: it cannot be written.
        """
        lines, self._lines = self._lines, []
        if lines:
            self._notes.add(self.where.note(lines))

    def know(self, document: RepositoryPiece) -> None:
        """Note that a document is there, and was read."""
        self._known.add(document)

    def add_directory(self, directory: BackedUpDirectory) -> tuple[RepositoryPiece, int]:
        """Store the document of a directory; returns its piece, and how many bytes are new."""
        data = directory.document()
        piece = RepositoryPiece(hashlib.sha256(data).hexdigest(), len(data))
        if piece in self._known:
            return piece, 0
        self._documents[piece] = data
        self._known.add(piece)
        if len(self._documents) >= _DOCUMENTS_TOGETHER:
            self._place_documents()
        return piece, len(data)

    def _place_documents(self) -> None:
        kept: list[tuple[str, RepositoryPiece]] = []
        left = iter(self._documents.items())
        while together := list(itertools.islice(left, _OPEN_TOGETHER)):
            with contextlib.ExitStack() as stack:
                new = []
                for piece, data in together:
                    file = stack.enter_context(self.where.new_piece())
                    file.stream.write(data)
                    new.append((file, piece))
                names = self.where.keep(new)
            kept += zip(names, (piece for piece, _ in together), strict=True)
        self.place(kept)
        if self._documents and self.where.is_listed:
            from kdump.storage.document_cache import DocumentCache

            with contextlib.closing(DocumentCache(os.environ)) as cache:
                for piece, data in self._documents.items():
                    cache.keep(piece.sha256, data)
        self._documents.clear()

    def add_snapshot(self, snapshot: Snapshot) -> str:
        """Store a snapshot, after everything that it needs is durable; returns its name.

        Raises:
            RepositoryError: another kdump may have removed what it needs.
            OSError: it cannot be written.
        """
        self._place_documents()
        # A run without a snapshot may have left names that are not durable.
        self.where.settle(None if self._is_continued else {DATA, *self._unsettled})
        document = snapshot.document()
        name = snapshot_id(snapshot, document)
        self._lock.require_held()
        self.where.put(f"{SNAPSHOTS}/{name}.json", document)
        with contextlib.suppress(OSError, StoreGoneError):
            # There is a snapshot: what is left of the notes is read and deleted by the next run.
            self.where.delete(sorted(self._notes))
        return name


@contextlib.contextmanager
def begun_backup(where: RepositoryPlace, now_ms: int) -> Iterator[RepositoryWriter]:
    """Lock a repository to write to it; it is made if it is missing.

    Raises:
        UsageProblem: it has something else in it.
        RepositoryError: another kdump writes to it, or it cannot be written; says what to do.
    """
    path = where.location
    try:
        with phase(f"looking at {path}"):
            where.make()
            is_there = _is_there(where)
        with where.locked_to_write() as lock:
            with phase(f"looking at {path}"):
                if not is_there:
                    _prepare(where, now_ms)
                writer = RepositoryWriter(where, Repository.opened(path), lock)
                where.drop_unfinished()
            try:
                yield writer
            except KeyboardInterrupt as stop:
                stop.add_note(f"{path}: no snapshot was made; {_CONTINUE}")
                raise
            finally:
                with phase(f"clearing {path}"), contextlib.suppress(OSError):
                    where.drop_unfinished()
    except WriteFailedError as failure:
        raise unwritable(path, str(failure)) from failure
    except OSError as failure:
        named = isinstance(failure.filename, str | Path)
        raise unwritable(failure.filename if named else path, reason_of(failure)) from failure


def unwritable(path: object, what: str) -> RepositoryError:
    """The failure of a repository that cannot be written."""
    return RepositoryError(f"{path}: {what}; no snapshot was made; {_CONTINUE}")


def _is_there(where: RepositoryPlace) -> bool:
    """Whether a place is a repository already, and not the beginning of one.

    Raises:
        UsageProblem: it has something else in it.
        OSError: it cannot be listed.
    """
    found = where.found() - OF_FILE_SYSTEMS
    if REPOSITORY_FILE in found:
        return where.is_listed or found >= _OWN
    if others := sorted(found - _OWN):
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise UsageProblem(
            f"{where.location}: has {shown} in it, and is not a repository: name a new directory"
        )
    return False


def _prepare(where: RepositoryPlace, now_ms: int) -> None:
    """Make what a repository has, as far as it is missing.

    Raises:
        UsageProblem: the place has something else in it.
        OSError: it cannot be written.
    """
    where.make_folders(sorted(_OWN))
    if REPOSITORY_FILE not in where.found():
        where.put(REPOSITORY_FILE, repository_document(now_ms))


def read_progress(where: RepositoryPlace) -> dict[str, FilesByPath]:
    """The files that a run without a snapshot has stored, by log directory and path.

    Raises:
        OSError: they cannot be read.
    """
    return _read_notes(where, sorted(_notes_in(where)))


def _notes_in(where: RepositoryPlace) -> Iterator[str]:
    return (each.name for each in where.files(UNFINISHED) if _NOTES.fullmatch(each.name))


def _read_notes(where: RepositoryPlace, names: Sequence[str]) -> dict[str, FilesByPath]:
    found: dict[str, FilesByPath] = defaultdict(dict)
    for name in names:
        for text in (where.location / name).read().splitlines():
            # The last lines may be incomplete.
            with contextlib.suppress(ValueError, DocumentError):
                line = JsonObject.of(json.loads(text), "")
                file = BackedUpFile.decoded(line.object("file"))
                path = f"{line.text('directory')}/{file.name}".lstrip("/")
                found[line.text("log_dir")][path] = file
    return found


def keep_as_damaged(
    where: RepositoryPlace, lock: HeldLock, pieces: Sequence[RepositoryPiece]
) -> dict[RepositoryPiece, str]:
    """Rename damaged pieces, so that the next backup stores them again.

    Returns:
        Their new paths.

    Raises:
        RepositoryError: they cannot be renamed; says what to do.
    """
    path = where.location
    new_paths = {}
    try:
        with phase(f"renaming damaged pieces of {path}"):
            for each in pieces:
                lock.require_held()
                new_name = f"{piece_name(each)}{DAMAGED_SUFFIX}"
                where.move(piece_name(each), new_name)
                new_paths[each] = str(path / new_name)
            where.settle({piece_name(each).rpartition("/")[0] for each in pieces})
    except OSError as failure:
        raise RepositoryError(
            f"{failure.filename or path}: {reason_of(failure)}; run the same"
            " command again once it can be written"
        ) from failure
    return new_paths


def remove(
    where: RepositoryPlace,
    lock: HeldLock,
    snapshots: Sequence[str],
    pieces: Sequence[RepositoryPiece],
) -> None:
    """Remove snapshots, and then the pieces that only they need.

    Raises:
        RepositoryError: they cannot be removed; says what to do.
    """
    path = where.location
    files = [f"{SNAPSHOTS}/{name}.json" for name in snapshots]
    try:
        with phase(f"removing snapshots from {path}"):
            where.delete(files, lock.require_held)
            # What they need goes only after they are gone for good.
            where.settle([SNAPSHOTS])
        with phase(f"removing what no snapshot needs from {path}", len(pieces)) as removing:
            where.drop_unfinished()
            where.delete(map(piece_name, removing.over(pieces)), lock.require_held)
    except OSError as failure:
        what = reason_of(failure)
        raise RepositoryError(
            f"{failure.filename or path}: {what}; what was not removed is still there: run the"
            " same command again to continue"
        ) from failure
