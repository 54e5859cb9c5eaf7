"""The journal of a run as a value: what the run does, and what it takes to finish or undo it."""

from __future__ import annotations

import enum
from typing import Annotated, Final

from msgspec import Meta, Struct

from kdump.apply.files import Attributes, Metadata, Number
from kdump.apply.journal_record import JournalRecord
from kdump.formats.names import KDUMP_PREFIX, PartitionState


class RunState(enum.Enum):
    """How far a run has come; the value is the suffix of its journal file."""

    APPLYING = ".applying"
    APPLIED = ".applied"
    UNDOING = ".undoing"


class KeptRange(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A byte range of a file that the run's ``-cut`` file keeps.

    Attributes:
        position: where the range starts in the original file.
        kept_at: where the range starts in the ``-cut`` file.
    """

    position: Number
    size_bytes: Number
    kept_at: Number


class Cut(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A truncation, and the bytes that it removes.

    Attributes:
        position: size of the file after the truncation, in bytes.
        kept_ranges: the removed bytes; what is in none of them was zeroes.
    """

    position: Number
    kept_ranges: tuple[KeptRange, ...]


class Piece(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A byte range of an original file that another file contains after the run.

    Attributes:
        path: the file that contains it after the run.
        start: where the range starts in that file.
        end: where it ends in that file.
        position: where it started in the original file.
    """

    path: str
    start: Number
    end: Number
    position: Number


class Derived(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How to recreate an original file from the files that exist after the run.

    Attributes:
        pieces: the bytes that still exist; a single piece where the file was only renamed.
        kept_ranges: the bytes that exist only in the ``-cut`` file.
        is_rename: whether the original file itself still exists, under another name.
    """

    pieces: tuple[Piece, ...]
    kept_ranges: tuple[KeptRange, ...]
    is_rename: bool


class BeforeImage(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file as it was before the run.

    Attributes:
        size_bytes: of its content.
        metadata: of its content.
        is_own: whether no other name had the same content: no symbolic link, no other hard link.
        link: the run's own name for it (``-old-N``), a hard link; None if it has none, or no
            longer.
        cut: what a truncation removes from it; None if it is not truncated.
        derived: how to recreate it without ``link``; None if that is impossible.
    """

    size_bytes: Number
    metadata: Metadata
    is_own: bool
    link: str | None
    cut: Cut | None
    derived: Derived | None


class Fingerprint(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Size and time of a file, which tell whether it is still the same.

    Attributes:
        size_bytes: of its content.
        modified_ns: time of the last modification.
        checksum: CRC-32C of the content, where the file is small; else None.
    """

    size_bytes: Number
    modified_ns: int
    checksum: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None


class DirectoryMove(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A directory that the run creates, renames or removes: the names that it has one by one.

    Attributes:
        before: its name before the run; None if the run creates it.
        between: its name while it is filled or emptied; None if it is neither.
        after: its name after the run; None if nothing is left of it.
        is_kept: whether it is undo data after the run.
        metadata: mode, owner and times that it gets when it is created, or had before.
        attributes: extended attributes that it gets when it is created.
    """

    before: str | None
    between: str | None
    after: str | None
    is_kept: bool
    metadata: Metadata
    attributes: Attributes = ()

    @property
    def key(self) -> str:
        """The name by which the journal calls it, wherever it is: the first of its names."""
        key = self.between if self.before is None else self.before
        assert key is not None
        return key

    @property
    def released(self) -> str | None:
        """The name of undo data while it is discarded; None of a directory that is none."""
        if not self.is_kept or self.after is None:
            return None
        return self.after.removesuffix(PartitionState.STRAY.value) + PartitionState.DELETE.value

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, in the order of the run."""
        every = (self.before, self.between, self.after, self.released)
        return tuple(name for name in every if name is not None)


class Journal(Struct, frozen=True):
    """A run: what it is, its redo and undo records, and everything that they need.

    Paths are relative to the log directory: ``name``, or ``partition/name``. Files in a directory
    that moves are named by its key, wherever it is.

    Attributes:
        number: of the run; later runs have greater numbers.
        can_undo: whether the run keeps undo data.
        lock: metadata of the ``.lock`` file that a crash had left, if there was one.
        directories: the directories that change, and their metadata before the run.
        before_images: the files that change, as they were, by path.
        staged: the files with new content, by path, and where each of them goes.
        redo_records: what finishes the run.
        undo_records: what undoes it.
        fingerprints: of all files in ``directories``: before the run as long as it is not
            complete, after it once it is.
        after: as long as the run is not complete, fingerprints of the changed files as they will
            be.
        interim: likewise, of files in the root that have interim content while partitions change.
        undo_files: fingerprints of the run's own files that an undo needs, by name.
        moves: the directories that the run creates, renames or removes.
        is_trusted: whether the journal belongs to root or to the user who runs kdump, and not only
            to the owner of the log directory. Not part of the file.
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
    moves: tuple[DirectoryMove, ...] = ()
    is_trusted: bool = True

    def own_name(self, suffix: str) -> str:
        """The name of one of the run's own files."""
        return own_name(self.number, suffix)


def own_name(number: int, suffix: str) -> str:
    """The name of one of the own files of run ``number``."""
    return f"{KDUMP_PREFIX}{number}{suffix}"


CUT_SUFFIX: Final = "-cut"
"""Of the file that keeps truncated and dropped bytes."""
PUT_SUFFIX: Final = "-put"
"""Of the temporary name of a file that is about to be renamed back."""


def names_while_cut(path: str, before: BeforeImage, journal: Journal) -> set[str]:
    """All names that a file can have while it is renamed and truncated, in either order."""
    names = {path, journal.own_name(PUT_SUFFIX), *([before.link] if before.link else [])}
    if before.derived is not None and before.derived.is_rename:
        names |= {piece.path for piece in before.derived.pieces}
    return names
