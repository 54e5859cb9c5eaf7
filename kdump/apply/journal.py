"""What is durable before the first change: how to go on from any point, and how to go back.

Everything that kdump keeps lies in the log directory itself, as plain files, which a broker leaves
alone there (it would take a directory for a partition), and on the file system of the data, so
that keeping a file that goes is another name for it and no copy. Of run ``7``::

    .kdump-7.applying    what is being done: the journal, until all of it is done
    .kdump-7.applied     what was done, kept for an undo
    .kdump-7.undoing     what is being taken back
    .kdump-7-new-0 …     new content, moved to its name in due course
    .kdump-7-old-0 …     another name of a file as it was
    .kdump-7-cut         bytes that were cut off, or left out, one range behind the other

A journal appears complete and durable, or not at all. Files of a run without a journal are left
over from a run that was stopped before it changed anything, or after all was done.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import crc32c

from kdump.apply.files import Files, Metadata
from kdump.apply.steps import Step, StepKind
from kdump.errors import KdumpError
from kdump.formats.names import KDUMP_PREFIX

_FORMAT: Final = 1
_NAME: Final = re.compile(r"\.kdump-([0-9]+)([.-].*)", re.DOTALL)


class State(enum.Enum):
    """How far a run has come; the value is the suffix of its journal."""

    APPLYING = ".applying"
    APPLIED = ".applied"
    UNDOING = ".undoing"


@dataclass(frozen=True, slots=True)
class Run:
    """A length of bytes of a file, and where they are kept in the file of cut bytes."""

    position: int
    size_bytes: int
    kept_at: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What was behind ``position``; what is in none of ``runs`` was zeroes."""

    position: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file as it was that are in another file afterwards."""

    path: str
    start: int
    end: int
    position: int
    """Where they were."""


@dataclass(frozen=True, slots=True)
class Derived:
    """How a file as it was is made again from those that are there when all is done.

    Attributes:
        pieces: the bytes that are there; a single one where the file was only renamed.
        runs: those that are not.
        is_rename: whether it is the very same file.
    """

    pieces: tuple[Piece, ...]
    runs: tuple[Run, ...]
    is_rename: bool


@dataclass(frozen=True, slots=True)
class Before:
    """A file as it was.

    Attributes:
        size_bytes: of its content.
        metadata: of its content.
        is_own: whether the content was this name's alone.
        link: the other name that it was given; None where it was not, or not any more.
        cut: what is cut off from it; None where nothing is.
        derived: how to make it again without ``link``; None where it cannot be.
    """

    size_bytes: int
    metadata: Metadata
    is_own: bool
    link: str | None
    cut: Cut | None
    derived: Derived | None


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells a file from a later one of the same name.

    Attributes:
        size_bytes: of its content.
        modified_ns: when that was modified.
        checksum: CRC-32C of it, where it is small; None otherwise.
    """

    size_bytes: int
    modified_ns: int
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class Journal:
    """A run: what it is, its steps, and everything that they need.

    Paths are relative to the log directory.

    Attributes:
        number: of the run; later ones have greater numbers.
        command: what was run.
        created_ms: when.
        can_undo: whether what is lost is kept.
        lock: what ``.lock`` was like before, if it was left over.
        directories: those that are changed, and what they were like.
        before: the changed files that were there, by path.
        staged: the files of new content, by their paths, and where each goes.
        steps: how to go on.
        undo_steps: how to go back.
        marks: the files of the directories concerned. While the run goes on as they were before
            it, and when it is done as they are.
        after: while the run goes on, marks of what is changed by it, as it will be.
        meanwhile: likewise, of files that are something else until the partitions are done.
    """

    number: int
    command: str
    created_ms: int
    can_undo: bool
    lock: Metadata | None
    directories: dict[str, Metadata]
    before: dict[str, Before]
    staged: dict[str, str]
    steps: tuple[Step, ...]
    undo_steps: tuple[Step, ...]
    marks: dict[str, Mark]
    after: dict[str, Mark]
    meanwhile: dict[str, Mark]

    def own_name(self, suffix: str) -> str:
        """The name of one of the run's files."""
        return own_name(self.number, suffix)


def own_name(number: int, suffix: str) -> str:
    """The name of one of the files of a run."""
    return f"{KDUMP_PREFIX}{number}{suffix}"


CUT_SUFFIX: Final = "-cut"
_TEMPORARY: Final = "-journal"


def found_in(log_dir: Path) -> dict[int, dict[str, Path]]:
    """The files of all runs in a log directory: by number, then by what follows the number."""
    found: dict[int, dict[str, Path]] = {}
    for path in log_dir.iterdir():
        match = _NAME.fullmatch(path.name)
        if match:
            found.setdefault(int(match[1]), {})[match[2]] = path
    return dict(sorted(found.items()))


def write_journal(log_dir: Path, journal: Journal, state: State, files: Files) -> None:
    """Make a journal durable; until that is done there is none.

    1. It has another name, and may be incomplete.
    2. It is complete and durable.
    3. It has its name, and so have, durably, all other files of the run.
    """
    body = json.dumps(_encoded(journal), separators=(",", ":")).encode()
    head = {"kdump": _FORMAT, "size_bytes": len(body), "crc32c": crc32c.crc32c(body)}
    temporary = log_dir / journal.own_name(_TEMPORARY)
    # 1.
    files.unlink(temporary)
    files.create(temporary, [json.dumps(head).encode() + b"\n", body])
    # 2.
    files.sync([temporary, log_dir])
    # 3.
    files.rename(temporary, log_dir / journal.own_name(state.value))
    files.sync([log_dir])


def read_journal(path: Path) -> Journal:
    """Read a journal.

    Raises:
        KdumpError: it is damaged, or of a later kdump.
        OSError: it cannot be read.
    """
    head, _, body = path.read_bytes().partition(b"\n")
    try:
        said = json.loads(head)
        if said["kdump"] != _FORMAT:
            raise KdumpError(f"{path}: is from another version of kdump, which can deal with it")
        if (said["size_bytes"], said["crc32c"]) != (len(body), crc32c.crc32c(body)):
            raise ValueError("checksum")
        return _decoded(json.loads(body))
    except (ValueError, KeyError, TypeError, IndexError) as problem:
        raise KdumpError(
            f"{path}: is damaged, so that nothing can be undone or finished with it; "
            "'kdump undo --discard' removes it"
        ) from problem


def _encoded(journal: Journal) -> dict[str, Any]:
    return {
        "number": journal.number,
        "command": journal.command,
        "created_ms": journal.created_ms,
        "can_undo": journal.can_undo,
        "lock": _of_metadata(journal.lock),
        "directories": {path: _of_metadata(each) for path, each in journal.directories.items()},
        "before": {path: _of_before(each) for path, each in journal.before.items()},
        "staged": journal.staged,
        "steps": [_of_step(each) for each in journal.steps],
        "undo_steps": [_of_step(each) for each in journal.undo_steps],
        "marks": _of_marks(journal.marks),
        "after": _of_marks(journal.after),
        "meanwhile": _of_marks(journal.meanwhile),
    }


def _decoded(said: dict[str, Any]) -> Journal:
    return Journal(
        number=said["number"],
        command=said["command"],
        created_ms=said["created_ms"],
        can_undo=said["can_undo"],
        lock=None if said["lock"] is None else Metadata(*said["lock"]),
        directories={path: Metadata(*each) for path, each in said["directories"].items()},
        before={path: _to_before(each) for path, each in said["before"].items()},
        staged=said["staged"],
        steps=tuple(map(_to_step, said["steps"])),
        undo_steps=tuple(map(_to_step, said["undo_steps"])),
        marks=_to_marks(said["marks"]),
        after=_to_marks(said["after"]),
        meanwhile=_to_marks(said["meanwhile"]),
    )


def _of_metadata(metadata: Metadata | None) -> list[int] | None:
    if metadata is None:
        return None
    return [
        metadata.mode,
        metadata.uid,
        metadata.gid,
        metadata.accessed_ns,
        metadata.modified_ns,
    ]


def _of_marks(marks: dict[str, Mark]) -> dict[str, list[int | None]]:
    return {
        path: [mark.size_bytes, mark.modified_ns, mark.checksum] for path, mark in marks.items()
    }


def _to_marks(said: dict[str, list[Any]]) -> dict[str, Mark]:
    return {path: Mark(*each) for path, each in said.items()}


def _of_step(step: Step) -> list[Any]:
    return [step.kind.value, step.path, step.source, step.size_bytes, step.paths]


def _to_step(said: list[Any]) -> Step:
    kind, path, source, size_bytes, paths = said
    return Step(StepKind(kind), path, source, size_bytes, tuple(paths))


def _of_runs(runs: Iterable[Run]) -> list[list[int]]:
    return [[run.position, run.size_bytes, run.kept_at] for run in runs]


def _to_runs(said: list[list[int]]) -> tuple[Run, ...]:
    return tuple(Run(*each) for each in said)


def _of_before(before: Before) -> list[Any]:
    cut, derived = before.cut, before.derived
    return [
        before.size_bytes,
        _of_metadata(before.metadata),
        before.is_own,
        before.link,
        None if cut is None else [cut.position, _of_runs(cut.runs)],
        None
        if derived is None
        else [
            [[piece.path, piece.start, piece.end, piece.position] for piece in derived.pieces],
            _of_runs(derived.runs),
            derived.is_rename,
        ],
    ]


def _to_before(said: list[Any]) -> Before:
    size_bytes, metadata, is_own, link, cut, derived = said
    return Before(
        size_bytes,
        Metadata(*metadata),
        is_own,
        link,
        None if cut is None else Cut(cut[0], _to_runs(cut[1])),
        None
        if derived is None
        else Derived(
            tuple(Piece(*piece) for piece in derived[0]), _to_runs(derived[1]), derived[2]
        ),
    )
