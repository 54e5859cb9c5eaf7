"""A journal as a value: what a run does, and everything that it takes to go on, or to go back."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from kdump.apply.files import Metadata
from kdump.apply.journal_record import JournalRecord
from kdump.formats.names import KDUMP_PREFIX


class RunState(enum.Enum):
    """How far a run has come; the value is the suffix of its journal."""

    APPLYING = ".applying"
    APPLIED = ".applied"
    UNDOING = ".undoing"


@dataclass(frozen=True, slots=True)
class KeptRange:
    """A length of bytes of a file, and where they are kept in the file of cut bytes."""

    position: int
    size_bytes: int
    kept_at: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What was behind ``position``; what is in none of ``runs`` was zeroes."""

    position: int
    kept_ranges: tuple[KeptRange, ...]


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
    kept_ranges: tuple[KeptRange, ...]
    is_rename: bool


@dataclass(frozen=True, slots=True)
class BeforeImage:
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
class Fingerprint:
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

    Paths are relative to the log directory: ``name``, or ``partition/name``.

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
        kept: marks of the run's own files without which there is no way back, by name.
        is_trusted: whether it belongs to root, or to whoever runs kdump, and not only to the owner
            of the log directory. Not part of what is written.
    """

    number: int
    command: str
    created_ms: int
    can_undo: bool
    lock: Metadata | None
    directories: dict[str, Metadata]
    before_images: dict[str, BeforeImage]
    staged: dict[str, str]
    redo_records: tuple[JournalRecord, ...]
    undo_records: tuple[JournalRecord, ...]
    fingerprints: dict[str, Fingerprint]
    after: dict[str, Fingerprint]
    interim: dict[str, Fingerprint]
    undo_files: dict[str, Fingerprint]
    is_trusted: bool = True

    def own_name(self, suffix: str) -> str:
        """The name of one of the run's files."""
        return own_name(self.number, suffix)


def own_name(number: int, suffix: str) -> str:
    """The name of one of the files of a run."""
    return f"{KDUMP_PREFIX}{number}{suffix}"


CUT_SUFFIX: Final = "-cut"
PUT_SUFFIX: Final = "-put"


def names_while_cut(path: str, before: BeforeImage, journal: Journal) -> set[str]:
    """All names that a file can have while it is renamed, and then cut, or the other way round."""
    names = {path, journal.own_name(PUT_SUFFIX), *([before.link] if before.link else [])}
    if before.derived is not None and before.derived.is_rename:
        names |= {piece.path for piece in before.derived.pieces}
    return names
