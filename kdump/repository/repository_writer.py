"""Write a repository: pieces, then the documents that name them, then the snapshot.

What there is if the machine stops after each step:

1. Directories without ``kdump-repository.json``: the next run makes what is missing.
2. A file in ``unfinished``: the next run deletes it.
3. A piece under its name that no snapshot needs: the next run finds by the lines of
   ``unfinished/progress.jsonl`` which files it need not read again, if the pieces are there.
4. All pieces, and no snapshot: as after 3.
5. A snapshot: everything that it needs is durable. The next run deletes the progress.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from kdump.apply.files import DISK
from kdump.errors import UsageProblem, reason_of
from kdump.formats.json_document import DocumentError, JsonObject
from kdump.formats.names import OF_FILE_SYSTEMS
from kdump.formats.safe_json import json_line
from kdump.phases import phase
from kdump.repository.repository_locks import locked_to_write
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.storage.repository import (
    DATA,
    REPOSITORY_FILE,
    SNAPSHOTS,
    UNFINISHED,
    Repository,
    RepositoryError,
    snapshot_id,
)
from kdump.storage.repository_documents import (
    BackedUpDirectory,
    BackedUpFile,
    RepositoryPiece,
    Snapshot,
    repository_document,
)
from kdump.storage.unfinished_file import UnfinishedFile, is_unfinished

TEMPORARY_PREFIX: Final = "file-"
PROGRESS: Final = "progress.jsonl"
DAMAGED_SUFFIX: Final = ".damaged"

_CONTINUE: Final = "what is stored stays: run the same command again to continue"
_OWN: Final = frozenset({DATA, SNAPSHOTS, UNFINISHED})
_DOCUMENTS_TOGETHER: Final = 512

FilesByPath = dict[str, BackedUpFile]


def new_piece(folder: Path) -> UnfinishedFile:
    """Create the temporary file of a piece, which only its owner can read.

    Raises:
        OSError: it cannot be created.
    """
    return UnfinishedFile.beside(folder / "file", TEMPORARY_PREFIX, mode=0o600)


class RepositoryWriter:
    """A repository that is locked and written to.

    Attributes:
        repository: for reading.
        folder: where files are before they have their names.
        earlier: the files that a run without a snapshot has stored, by log directory and path.
    """

    def __init__(self, path: Path, repository: Repository, progress: IO[bytes]) -> None:
        self.path = path
        self.repository = repository
        self.folder = path / UNFINISHED
        self.earlier = read_progress(path)
        self._progress = progress
        self._unsynced = set(self._of_earlier_runs())
        self._documents: list[tuple[str, RepositoryPiece]] = []
        self._known: set[RepositoryPiece] = set()

    def _of_earlier_runs(self) -> Iterator[Path]:
        """Directories where a run without a snapshot may have left names that are not durable."""
        if self.earlier:
            data = self.path / DATA
            yield data
            yield from (each for each in data.iterdir() if each.is_dir())

    def place(self, temporary: str, piece: RepositoryPiece) -> None:
        """Give a piece its name: one that is there is replaced, because it may be damaged.

        Args:
            temporary: the path of its file, which is durable.
        """
        path = self.path / DATA / piece.sha256[:2] / piece.sha256
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._unsynced.add(path.parent.parent)
        DISK.rename(Path(temporary), path)
        self._unsynced.add(path.parent)

    def note(self, log_dir: str, directory: str, file: BackedUpFile) -> None:
        """Note for the next run that a file is stored; not synced, because that run looks."""
        line = {"log_dir": log_dir, "directory": directory, "file": file.fields()}
        self._progress.write(json_line(line))

    def know(self, document: RepositoryPiece) -> None:
        """Note that a document is there, and was read."""
        self._known.add(document)

    def add_directory(self, directory: BackedUpDirectory) -> tuple[RepositoryPiece, int]:
        """Store the document of a directory; returns its piece, and how many bytes are new."""
        data = directory.document()
        piece = RepositoryPiece(hashlib.sha256(data).hexdigest(), len(data))
        if piece in self._known:
            return piece, 0
        with new_piece(self.folder) as new:
            new.stream.write(data)
            new.close()
            self._documents.append((new.keep(), piece))
        self._known.add(piece)
        if len(self._documents) >= _DOCUMENTS_TOGETHER:
            self._place_documents()
        return piece, len(data)

    def _place_documents(self) -> None:
        documents, self._documents = self._documents, []
        DISK.sync([Path(temporary) for temporary, _ in documents])
        for temporary, piece in documents:
            self.place(temporary, piece)

    def add_snapshot(self, snapshot: Snapshot) -> str:
        """Store a snapshot, after everything that it needs is durable; returns its name."""
        self._place_documents()
        DISK.sync(sorted(self._unsynced))
        document = snapshot.document()
        name = snapshot_id(snapshot, document)
        with new_piece(self.folder) as new:
            new.stream.write(document)
            new.finish()
            DISK.rename(new.path, self.path / SNAPSHOTS / f"{name}.json")
            new.keep()
        DISK.sync([self.path / SNAPSHOTS])
        DISK.unlink(self.folder / PROGRESS)
        return name


def drop_temporary(path: Path) -> None:
    """Delete the files that earlier runs did not finish."""
    for each in list((path / UNFINISHED).iterdir()):
        if is_unfinished(each.name, TEMPORARY_PREFIX):
            DISK.unlink(each)


@contextlib.contextmanager
def begun_backup(path: Path, now_ms: int) -> Iterator[RepositoryWriter]:
    """Lock a repository to write to it; it is made if it is missing.

    Args:
        path: absolute, without links.
        now_ms: the current time.

    Raises:
        UsageProblem: the directory has something else in it.
        RepositoryError: another kdump writes to it, or its disk fails; says what to do.
    """
    try:
        with phase(f"looking at {path}"), contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            DISK.sync([path.parent])
        with locked_to_write(path):
            with phase(f"looking at {path}"):
                _prepare(path, now_ms)
                progress = (path / UNFINISHED / PROGRESS).open("ab", buffering=0)
            with progress:
                with phase(f"looking at {path}"):
                    repository = Repository.opened(local(str(path)))
                    writer = RepositoryWriter(path, repository, progress)
                    drop_temporary(path)
                try:
                    yield writer
                except KeyboardInterrupt as stop:
                    stop.add_note(f"{path}: no snapshot was made; {_CONTINUE}")
                    raise
                finally:
                    with phase(f"clearing {path}"), contextlib.suppress(OSError):
                        drop_temporary(path)
    except OSError as failure:
        where = failure.filename if isinstance(failure.filename, str | Path) else path
        raise unwritable(Path(where), reason_of(failure)) from failure


def unwritable(path: Path, what: str) -> RepositoryError:
    """The failure of a repository whose disk fails."""
    return RepositoryError(f"{path}: {what}; no snapshot was made; {_CONTINUE}")


def _prepare(path: Path, now_ms: int) -> None:
    """Make what a repository has, as far as it is missing.

    Raises:
        UsageProblem: the directory has something else in it.
        OSError: the disk fails.
    """
    found = {each.name for each in path.iterdir()} - OF_FILE_SYSTEMS
    if REPOSITORY_FILE not in found and (others := sorted(found - _OWN)):
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise UsageProblem(
            f"{path}: has {shown} in it, and is not a repository: name a new directory"
        )
    for name in sorted(_OWN - found):
        (path / name).mkdir(mode=0o700)
    if REPOSITORY_FILE in found:
        return
    with new_piece(path / UNFINISHED) as new:
        new.stream.write(repository_document(now_ms))
        new.finish()
        DISK.sync([path])
        DISK.rename(new.path, path / REPOSITORY_FILE)
        new.keep()
    DISK.sync([path])


def read_progress(path: Path) -> dict[str, FilesByPath]:
    """The files that a run without a snapshot has stored, by log directory and path.

    Raises:
        OSError: they cannot be read.
    """
    found: dict[str, FilesByPath] = defaultdict(dict)
    try:
        lines: Iterable[bytes] = local(str(path / UNFINISHED / PROGRESS)).read().splitlines()
    except FileNotFoundError:
        return found
    for text in lines:
        # The last lines may be incomplete.
        with contextlib.suppress(ValueError, DocumentError):
            line = JsonObject.of(json.loads(text), "")
            file = BackedUpFile.decoded(line.object("file"))
            name = f"{line.text('directory')}/{file.name}".lstrip("/")
            found[line.text("log_dir")][name] = file
    return found


def keep_as_damaged(
    repository: Repository, pieces: Sequence[RepositoryPiece]
) -> dict[RepositoryPiece, str]:
    """Rename damaged pieces, so that the next backup stores them again; the repository is locked.

    Returns:
        Their new paths.

    Raises:
        RepositoryError: the disk fails; says what to do.
    """
    new_paths = {}
    try:
        with phase(f"renaming damaged pieces of {repository.path}"):
            for each in pieces:
                path = repository.location(each).local_path
                new_path = path.with_name(f"{path.name}{DAMAGED_SUFFIX}")
                DISK.rename(path, new_path)
                new_paths[each] = str(new_path)
            DISK.sync(sorted({Path(each).parent for each in new_paths.values()}))
    except OSError as failure:
        raise RepositoryError(
            f"{failure.filename or repository.path}: {reason_of(failure)}; run the same"
            " command again once this disk can be written"
        ) from failure
    return new_paths


def remove(repository: Repository, snapshots: Sequence[str], pieces: Sequence[Location]) -> None:
    """Remove snapshots, and then the pieces that only they need; the repository is locked.

    Raises:
        RepositoryError: the disk fails; says what to do.
    """
    path = repository.path.local_path
    files = [repository.snapshot_file(name).local_path for name in snapshots]
    try:
        with phase(f"removing snapshots from {path}"):
            for each in files:
                DISK.unlink(each)
            # What they need goes only after they are gone for good.
            DISK.sync([repository.snapshots_folder.local_path])
        with phase(f"removing what no snapshot needs from {path}", len(pieces)) as removing:
            drop_temporary(path)
            for piece in removing.over(pieces):
                DISK.unlink(piece.local_path)
    except OSError as failure:
        what = reason_of(failure)
        raise RepositoryError(
            f"{failure.filename or path}: {what}; what was not removed is still there: run the"
            " same command again to continue"
        ) from failure
