"""What a journal may say.

A journal lies in the directory that it is about, so that whoever owns that directory can write one,
and root may be the one who runs kdump. A journal may therefore name entries of its own log
directory only: ``name``, or ``partition/name`` with a partition that it lists. It may name no file
of another run. Everything that a step needs has to be there before the first step is taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from kdump.apply.files import SET_ID_BITS
from kdump.apply.journal import (
    CUT_SUFFIX,
    BeforeImage,
    Derived,
    Journal,
    KeptRange,
    RunState,
)
from kdump.apply.journal_record import ROOT, JournalRecord, RecordKind
from kdump.formats.names import KDUMP_PREFIX, LOCK_FILE

_LONGEST_NAME_BYTES: Final = 255
_FORWARD: Final = {RecordKind.MOVE, RecordKind.REMOVE, RecordKind.CUT, RecordKind.SYNC}
_BACKWARD: Final = {
    RecordKind.MOVE,
    RecordKind.REMOVE,
    RecordKind.PUT,
    RecordKind.FILL,
    RecordKind.SYNC,
}


class RefusedJournalError(Exception):
    """That a journal is one that kdump does not act on; the text says why, after its path."""


def require_valid(journal: Journal, number: int, state: RunState) -> None:
    """Refuse a journal that says what no journal may say.

    Args:
        journal: which.
        number: of its run, by the name of its file.
        state: of its run, likewise.

    Raises:
        NotToBeObeyed: says what is wrong with it.
    """
    if journal.number != number:
        raise RefusedJournalError(f"is the journal of run {journal.number}")
    _Rules(journal, state).check()


@dataclass(frozen=True, slots=True)
class _Rules:
    journal: Journal
    state: RunState

    def check(self) -> None:
        self._check_directories()
        self._check_files()
        for path, before in self.journal.before_images.items():
            self._check_before(path, before)
        for step in self.journal.redo_records:
            self._check_step(step, _FORWARD)
        for step in self.journal.undo_records:
            self._check_step(step, _BACKWARD)
        self._check_undo()

    def _check_directories(self) -> None:
        if ROOT not in self.journal.directories:
            raise RefusedJournalError("does not name the log directory itself")
        for name in self.journal.directories:
            if name != ROOT and not _is_name(name):
                raise _foreign(name)

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
                raise RefusedJournalError(f"does not say what {before.link!r} is like")
        if before.cut is not None:
            self._require(before.cut.position <= before.size_bytes, path)
            self._check_runs(path, before, before.cut.kept_ranges)
        if before.derived is not None:
            self._check_derived(path, before, before.derived)

    def _check_derived(self, path: str, before: BeforeImage, derived: Derived) -> None:
        self._require(bool(derived.pieces), path)
        self._require(len(derived.pieces) == 1 or not derived.is_rename, path)
        for piece in derived.pieces:
            self._require_entry(piece.path)
            end = piece.position + piece.end - piece.start
            self._require(piece.start <= piece.end and end <= before.size_bytes, path)
        self._check_runs(path, before, derived.kept_ranges)

    def _check_runs(self, path: str, before: BeforeImage, runs: Iterable[KeptRange]) -> None:
        for run in runs:
            cut = self.journal.undo_files.get(self.journal.own_name(CUT_SUFFIX))
            kept_bytes = 0 if cut is None else cut.size_bytes
            is_there = run.kept_at + run.size_bytes <= kept_bytes
            self._require(is_there and run.position + run.size_bytes <= before.size_bytes, path)

    def _check_step(self, step: JournalRecord, kinds: set[RecordKind]) -> None:
        if step.kind not in kinds:
            raise RefusedJournalError(f"has a step {step.kind.value!r} where none can be")
        if step.kind is RecordKind.SYNC:
            for path in step.paths:
                if path not in self.journal.directories:
                    self._require_entry(path)
            return
        if step.kind is not RecordKind.FILL:
            self._require_entry(step.path)
        if step.kind in (RecordKind.MOVE, RecordKind.REMOVE):
            if step.source or step.kind is RecordKind.MOVE:
                self._require_source(step.source)
            return
        before = self.journal.before_images.get(step.source)
        if before is None:
            raise RefusedJournalError(f"does not say what {step.source!r} was like")
        if step.kind is RecordKind.PUT:
            is_left = before.link is not None
            is_left |= self.state is RunState.APPLIED and before.derived is not None
            self._require(is_left, step.source)
        elif before.cut is None:
            raise self._contradiction(step.source)
        elif step.kind is RecordKind.CUT:
            self._require(step.size_bytes == before.cut.position, step.source)

    def _check_undo(self) -> None:
        journal = self.journal
        if not journal.can_undo and (journal.undo_records or self.state is not RunState.APPLYING):
            raise RefusedJournalError("contradicts itself about its undo")
        if self.state is RunState.APPLIED and (
            journal.redo_records or journal.staged or journal.interim
        ):
            raise RefusedJournalError("has steps left, and says that its run is complete")

    def _require_source(self, path: str) -> None:
        if not self._is_own(path, "new"):
            self._require_entry(path)

    def _require_entry(self, path: str) -> None:
        """Refuse what is no file in the log directory, or in a partition that is listed."""
        directory, _, name = path.rpartition("/")
        if not _is_name(name):
            raise _foreign(path)
        if directory:
            if directory not in self.journal.directories or directory == ROOT:
                raise _foreign(path)
        elif "/" in path or name == LOCK_FILE or name.startswith(KDUMP_PREFIX):
            raise _foreign(path)

    def _is_own(self, name: str, kind: str) -> bool:
        pattern = re.escape(self.journal.own_name(f"-{kind}-")) + "[0-9]{1,18}"
        return re.fullmatch(pattern, name) is not None

    def _require(self, condition: bool, path: str) -> None:
        if not condition:
            raise self._contradiction(path)

    def _contradiction(self, path: str) -> RefusedJournalError:
        return RefusedJournalError(f"contradicts itself about {path!r}")


def _is_name(name: str) -> bool:
    """Whether it can be the name of an entry of a directory, and of no other one."""
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
