"""What a journal may contain.

A journal is in the directory that it describes. So the owner of that directory can forge one, and
root may be the user who runs kdump. A journal may therefore name only entries of its own log
directory: ``name``, or ``partition/name`` with a partition that it lists. It may not name a file of
another run. It must define everything that one of its records refers to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from kdump.apply.files import KEPT_ATTRIBUTES, SET_ID_BITS
from kdump.apply.journal import (
    CUT_SUFFIX,
    BeforeImage,
    Derived,
    DirectoryMove,
    Journal,
    KeptRange,
    RunState,
)
from kdump.apply.journal_record import DIRECTORY_KINDS, ROOT, JournalRecord, RecordKind
from kdump.formats.names import KDUMP_PREFIX, LOCK_FILE, PartitionState

_LONGEST_NAME_BYTES: Final = 255
_REDO: Final = {
    RecordKind.MOVE,
    RecordKind.REMOVE,
    RecordKind.CUT,
    RecordKind.SYNC,
    RecordKind.MAKE,
    RecordKind.SHIFT,
    RecordKind.DROP,
}
_UNDO: Final = {
    RecordKind.MOVE,
    RecordKind.REMOVE,
    RecordKind.PUT,
    RecordKind.FILL,
    RecordKind.SYNC,
    RecordKind.SHIFT,
    RecordKind.DROP,
}


class RefusedJournalError(Exception):
    """A journal that kdump does not execute; the text says why, to be put after its path."""


def require_valid(journal: Journal, number: int, state: RunState) -> None:
    """Refuse a journal that contains something that no journal may contain.

    Args:
        number: of its run, by the name of its file.
        state: of its run, likewise.

    Raises:
        NotToBeObeyed: says what is wrong with it.
    """
    if journal.number != number:
        raise RefusedJournalError(f"is the journal of run {journal.number}")
    _Rules(journal, state).check()


@dataclass(slots=True)
class _Rules:
    journal: Journal
    state: RunState
    _moves: dict[str, DirectoryMove] = field(init=False)

    def __post_init__(self) -> None:
        self._moves = {each.key: each for each in self.journal.moves}

    def check(self) -> None:
        self._check_directories()
        self._check_moves()
        self._check_files()
        for path, before in self.journal.before_images.items():
            self._check_before(path, before)
        for record in self.journal.redo_records:
            self._check_record(record, _REDO)
        for record in self.journal.undo_records:
            self._check_record(record, _UNDO)
        self._check_undo()

    def _check_directories(self) -> None:
        if ROOT not in self.journal.directories:
            raise RefusedJournalError("does not name the log directory itself")
        for name in self.journal.directories:
            if name != ROOT and not _is_name(name):
                raise _foreign(name)

    def _check_moves(self) -> None:
        seen = {name for name in self.journal.directories if name != ROOT}
        for move in self.journal.moves:
            for name in move.names:
                if not _is_name(name) or name in seen or _is_file_of_root(name):
                    raise _foreign(name)
                seen.add(name)
            self._check_move(move)

    def _check_move(self, move: DirectoryMove) -> None:
        """A run creates, renames, keeps or deletes a directory; and has its own names for it."""
        is_own = move.between is None or self._is_own_directory(
            move.between, "new" if move.before is None else "old", PartitionState.DELETE
        )
        if move.before is None:
            is_complete = move.after is not None and not move.is_kept
        elif move.between is not None:
            is_complete = move.after is None and not move.is_kept and not self.journal.can_undo
        else:
            is_complete = move.after is not None
            is_own = not move.is_kept or (
                self.journal.can_undo
                and self._is_own_directory(str(move.after), "old", PartitionState.STRAY)
            )
        self._require(is_own and is_complete, move.key)
        if move.metadata.mode & SET_ID_BITS:
            raise RefusedJournalError(f"gives set-id bits to {move.key!r}")
        for name, _ in move.attributes:
            if not name.startswith(KEPT_ATTRIBUTES):
                raise RefusedJournalError(f"gives the attribute {name!r} to {move.key!r}")

    def _is_own_directory(self, name: str, what: str, state: PartitionState) -> bool:
        run = KDUMP_PREFIX.lstrip(".") + str(self.journal.number)
        pattern = rf".+\.{re.escape(run)}-{what}-[0-9]{{1,18}}{state.value}"
        return re.fullmatch(pattern, name, re.DOTALL) is not None

    def _check_files(self) -> None:
        journal = self.journal
        every = chain(
            journal.before_images,
            journal.fingerprints,
            journal.after,
            journal.interim,
            journal.staged.values(),
        )
        for path in every:
            self._require_entry(path)
        for name in journal.staged:
            if not self._is_own(name, "new"):
                self._require_entry(name)
        for name in journal.undo_files:
            if name != journal.own_name(CUT_SUFFIX) and not self._is_own(name, "old"):
                raise _foreign(name)

    def _check_before(self, path: str, before: BeforeImage) -> None:
        if before.metadata.mode & SET_ID_BITS:
            raise RefusedJournalError(f"gives set-id bits to {path!r}")
        if before.link is not None:
            if not self._is_own(before.link, "old"):
                raise _foreign(before.link)
            if before.link not in self.journal.undo_files:
                raise RefusedJournalError(f"has no fingerprint of {before.link!r}")
        if before.cut is not None:
            self._require(before.cut.position <= before.size_bytes, path)
            self._check_ranges(path, before, before.cut.kept_ranges)
        if before.derived is not None:
            self._check_derived(path, before, before.derived)

    def _check_derived(self, path: str, before: BeforeImage, derived: Derived) -> None:
        self._require(bool(derived.pieces), path)
        self._require(len(derived.pieces) == 1 or not derived.is_rename, path)
        for piece in derived.pieces:
            self._require_entry(piece.path)
            end = piece.position + piece.end - piece.start
            self._require(piece.start <= piece.end and end <= before.size_bytes, path)
        self._check_ranges(path, before, derived.kept_ranges)

    def _check_ranges(self, path: str, before: BeforeImage, ranges: Iterable[KeptRange]) -> None:
        for kept in ranges:
            cut = self.journal.undo_files.get(self.journal.own_name(CUT_SUFFIX))
            kept_bytes = 0 if cut is None else cut.size_bytes
            is_there = kept.kept_at + kept.size_bytes <= kept_bytes
            self._require(is_there and kept.position + kept.size_bytes <= before.size_bytes, path)

    def _check_record(self, record: JournalRecord, kinds: set[RecordKind]) -> None:
        if record.kind not in kinds:
            raise RefusedJournalError(f"has a record {record.kind.value!r} in the wrong place")
        if record.kind is RecordKind.SYNC:
            for path in record.paths:
                if path not in self.journal.directories and path not in self._moves:
                    self._require_entry(path)
            return
        if record.kind in DIRECTORY_KINDS:
            self._check_directory_record(record)
            return
        if record.kind is not RecordKind.FILL:
            self._require_entry(record.path)
        if record.kind in (RecordKind.MOVE, RecordKind.REMOVE):
            if record.source or record.kind is RecordKind.MOVE:
                self._require_source(record.source)
            return
        before = self.journal.before_images.get(record.source)
        if before is None:
            raise RefusedJournalError(f"has no before-image of {record.source!r}")
        if record.kind is RecordKind.PUT:
            is_left = before.link is not None
            is_left |= self.state is RunState.APPLIED and before.derived is not None
            self._require(is_left, record.source)
        elif before.cut is None:
            raise self._contradiction(record.source)
        elif record.kind is RecordKind.CUT:
            self._require(record.size_bytes == before.cut.position, record.source)

    def _check_directory_record(self, record: JournalRecord) -> None:
        move = self._moves.get(record.source)
        if move is None or record.path not in (move.before, move.between, move.after):
            raise _foreign(record.path)
        if record.kind is not RecordKind.SHIFT:
            self._require(record.path == move.between, record.path)
            is_new = move.before is None
            self._require(is_new or record.kind is RecordKind.DROP, record.path)

    def _check_undo(self) -> None:
        journal = self.journal
        if not journal.can_undo and (journal.undo_records or self.state is not RunState.APPLYING):
            raise RefusedJournalError("contradicts itself about its undo")
        if self.state is RunState.APPLIED and (
            journal.redo_records or journal.staged or journal.interim
        ):
            raise RefusedJournalError("has records left, and its run is complete")

    def _require_source(self, path: str) -> None:
        if not self._is_own(path, "new"):
            self._require_entry(path)

    def _require_entry(self, path: str) -> None:
        """Refuse what is not the path of a file in the log directory or in a listed partition."""
        directory, _, name = path.rpartition("/")
        if not _is_name(name):
            raise _foreign(path)
        if directory:
            is_listed = directory in self.journal.directories or directory in self._moves
            if not is_listed or directory == ROOT:
                raise _foreign(path)
        elif "/" in path or _is_file_of_root(name):
            raise _foreign(path)

    def _is_own(self, name: str, kind: str) -> bool:
        pattern = re.escape(self.journal.own_name(f"-{kind}-")) + "[0-9]{1,18}"
        return re.fullmatch(pattern, name) is not None

    def _require(self, condition: bool, path: str) -> None:
        if not condition:
            raise self._contradiction(path)

    def _contradiction(self, path: str) -> RefusedJournalError:
        return RefusedJournalError(f"contradicts itself about {path!r}")


def _is_file_of_root(name: str) -> bool:
    """Whether it is the name of the lock file, or of a file of a run."""
    return name == LOCK_FILE or name.startswith(KDUMP_PREFIX)


def _is_name(name: str) -> bool:
    """Whether it is a valid name of a single directory entry."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(os.fsencode(name)) <= _LONGEST_NAME_BYTES
    except UnicodeEncodeError:
        return False


def _foreign(path: str) -> RefusedJournalError:
    shown = f"{path[:200]!r}"
    return RefusedJournalError(
        f"names {shown}, which a journal of this log directory must not name"
    )
