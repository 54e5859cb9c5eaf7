"""Check a repository: read everything, and compare it with its SHA-256."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from kdump.engine.engine_choice import results_here
from kdump.engine.job import Split
from kdump.engine.progress import SILENT, Progress
from kdump.errors import reason_of
from kdump.phases import phase
from kdump.repository.known_places import place_at
from kdump.repository.repository_place import HeldLock
from kdump.repository.repository_writer import keep_as_damaged, unneeded_pieces
from kdump.storage.places import concurrent_reads
from kdump.storage.repository import Repository, RepositoryError, sha256_of
from kdump.storage.repository_documents import RepositoryPiece, stored_bytes

_TOGETHER_PIECES: Final = 64
_TOGETHER_BYTES: Final = 16 << 20


class PiecesSplit(Split, frozen=True, kw_only=True):
    """Pieces to read."""

    repository: Repository
    pieces: tuple[RepositoryPiece, ...]


class PieceProblem(Struct, frozen=True):
    """A piece that is not as it was stored.

    Attributes:
        is_damaged: whether it is there, and its bytes are lost.
    """

    what: str
    is_damaged: bool = False


class PiecesJob(Struct, frozen=True):
    """Reads pieces, and says what is wrong with each that is not as it was stored."""

    def run(self, split: PiecesSplit, /) -> dict[RepositoryPiece, PieceProblem]:
        found = {each: problem_of(split.repository, each) for each in split.pieces}
        return {each: problem for each, problem in found.items() if problem is not None}


def problem_of(repository: Repository, piece: RepositoryPiece) -> PieceProblem | None:
    """What is wrong with a piece; None if it is as it was stored.

    Raises:
        OSError: an object store does not answer.
    """
    try:
        with repository.location(piece).open_file() as source:
            if source.size_bytes != piece.size_bytes:
                what = f"damaged: has {source.size_bytes} bytes, not {piece.size_bytes}"
                return PieceProblem(what, is_damaged=True)
            digest = sha256_of(source, 0, piece.size_bytes)
    except FileNotFoundError:
        return PieceProblem("missing")
    except OSError as failure:
        if repository.gave_no_answer(failure):
            raise
        what = f"cannot be read: {reason_of(failure)}"
        return PieceProblem(what, is_damaged=failure.errno == errno.EIO)
    if digest == piece.sha256:
        return None
    return PieceProblem("damaged: its SHA-256 is not its name", is_damaged=True)


class RepositoryProblem(Struct, frozen=True):
    """Something that is not as it was stored.

    Attributes:
        path: the file in the repository.
        snapshots: those that need it.
        files: in them, a few of those that cannot be restored.
        more_files: how many more.
        is_damaged: whether it is a piece that is in the way of a new one.
        kept_as: the name that it got; None if it still has its own.
    """

    path: str
    what: str
    snapshots: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    more_files: int = 0
    is_damaged: bool = False
    kept_as: str | None = None


class RepositoryCheck(Struct):
    """The result of a check.

    Attributes:
        problems: what is damaged, missing or cannot be read.
        snapshots: how many there are.
        damaged_snapshots: those that cannot be restored as a whole.
        pieces: how many pieces were read.
        size_bytes: in them.
        unneeded_pieces: how many there are that no snapshot needs, from runs that were interrupted.
        unneeded_bytes: in them.
    """

    problems: list[RepositoryProblem] = field(default_factory=list)
    snapshots: int = 0
    damaged_snapshots: list[str] = field(default_factory=list)
    pieces: int = 0
    size_bytes: int = 0
    unneeded_pieces: int = 0
    unneeded_bytes: int = 0


class _Needs(Struct):
    """Who needs a piece.

    Attributes:
        snapshots: those that name it as a root.
        documents: the directories that name it.
        paths: of the files or directories that it is of.
    """

    snapshots: dict[str, None] = field(default_factory=dict)
    documents: dict[RepositoryPiece, None] = field(default_factory=dict)
    paths: dict[str, None] = field(default_factory=dict)


_SHOWN_FILES: Final = 3


class _Check:
    def __init__(self, repository: Repository, lock: HeldLock | None) -> None:
        self.repository = repository
        self.where = place_at(repository.path)
        self.lock = lock
        self.result = RepositoryCheck()
        self.needs: dict[RepositoryPiece, _Needs] = {}
        self.read: set[RepositoryPiece] = set()
        self.unread: dict[RepositoryPiece, str] = {}

    def read_snapshots(self) -> None:
        """Find out which pieces the snapshots need."""
        names = self.repository.snapshot_ids()
        self.result.snapshots = len(names)
        for name in names:
            try:
                snapshot = self.repository.snapshot(name)
            except RepositoryError as failure:
                file, _, what = str(failure).partition(": ")
                self._problem(RepositoryProblem(file, what, (name,)))
                continue
            except OSError as failure:
                if self.repository.gave_no_answer(failure):
                    raise
                file = str(self.repository.snapshot_file(name))
                what = f"cannot be read: {reason_of(failure)}"
                self._problem(RepositoryProblem(file, what, (name,)))
                continue
            for log_dir in snapshot.log_dirs:
                self._needs(log_dir.root, log_dir.path).snapshots[name] = None
                self._read(log_dir.path, log_dir.root)

    def _read(self, log_dir: str, root: RepositoryPiece) -> None:
        """Read the documents that were not read yet: most are of several snapshots."""
        for each in self.repository.directories(root, self.read, threads=concurrent_reads()):
            where = f"{log_dir}/{each.path}".rstrip("/")
            document = each.document
            if each.directory is None:
                # Usually found again when all pieces are read, and then named better.
                self.unread[document] = each.failure.partition(": ")[2]
                continue
            for file in each.directory.files:
                for piece in file.pieces:
                    self._needs(piece, f"{where}/{file.name}").documents[document] = None
            for inner in each.directory.directories:
                self._needs(inner.document, f"{where}/{inner.name}").documents[document] = None

    def _needs(self, piece: RepositoryPiece, path: str) -> _Needs:
        needs = self.needs.get(piece)
        if needs is None:
            needs = self.needs[piece] = _Needs()
        needs.paths[path] = None
        return needs

    def _snapshots_of(self, piece: RepositoryPiece) -> tuple[str, ...]:
        """The snapshots that cannot be restored without a piece."""
        found: set[str] = set()
        known = {piece}
        left = [piece]
        while left:
            needs = self.needs[left.pop()]
            found |= needs.snapshots.keys()
            left += needs.documents.keys() - known
            known |= needs.documents.keys()
        return tuple(sorted(found))

    def read_pieces(self, progress: Progress) -> None:
        """Compare the bytes of all pieces that are needed."""
        splits = list(self._splits())
        self.result.pieces = len(self.needs)
        self.result.size_bytes = sum(each.size_bytes for each in splits)
        with (
            phase(f"reading {self.repository.path}"),
            results_here(PiecesJob(), splits, progress) as results,
        ):
            problems = {each: found for _, of_split in results for each, found in of_split.items()}
        unread = {each: PieceProblem(what) for each, what in self.unread.items()}
        kept_as = {}
        if self.lock is not None:
            damaged = [each for each, problem in problems.items() if problem.is_damaged]
            kept_as = keep_as_damaged(self.where, self.lock, sorted(damaged))
        for piece, problem in sorted({**unread, **problems}.items(), key=lambda each: each[0]):
            paths = tuple(self.needs[piece].paths)
            self._problem(
                RepositoryProblem(
                    str(self.repository.location(piece)),
                    problem.what,
                    self._snapshots_of(piece),
                    paths[:_SHOWN_FILES],
                    len(paths[_SHOWN_FILES:]),
                    problem.is_damaged,
                    kept_as.get(piece),
                )
            )

    def _splits(self) -> Iterator[PiecesSplit]:
        together: list[RepositoryPiece] = []
        for each in sorted(self.needs):
            together.append(each)
            if len(together) >= _TOGETHER_PIECES or stored_bytes(together) >= _TOGETHER_BYTES:
                yield self._split(together)
                together = []
        if together:
            yield self._split(together)

    def _split(self, pieces: list[RepositoryPiece]) -> PiecesSplit:
        first = self.repository.location(pieces[0])
        return PiecesSplit(
            first,
            size_bytes=stored_bytes(pieces),
            label=first.name[:8],
            repository=self.repository,
            pieces=tuple(pieces),
        )

    def count_unneeded(self) -> None:
        """Count the pieces that no snapshot needs."""
        needed = {each.sha256 for each in self.needs}
        for each, _ in unneeded_pieces(self.where, needed):
            self.result.unneeded_pieces += 1
            self.result.unneeded_bytes += each.size_bytes

    def _problem(self, problem: RepositoryProblem) -> None:
        self.result.problems.append(problem)
        known = self.result.damaged_snapshots
        known += [each for each in problem.snapshots if each not in known]


def check_repository(
    repository: Repository, progress: Progress = SILENT, *, repair: HeldLock | None = None
) -> RepositoryCheck:
    """Read all snapshots and the pieces that they need.

    Args:
        repository: locked to read, or with ``repair`` to remove.
        repair: the lock with which damaged pieces get other names, so that a backup stores them
            again; None to change nothing.

    Raises:
        RepositoryError: a damaged piece cannot be renamed.
        OSError: the repository cannot be listed.
    """
    check = _Check(repository, repair)
    with phase(f"reading the snapshots of {repository.path}"):
        check.read_snapshots()
    check.read_pieces(progress)
    with phase(f"listing {repository.path}"):
        check.count_unneeded()
    return check.result
