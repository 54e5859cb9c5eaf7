"""Records of the journal: redo records carry out a plan, undo records undo it.

Each record is one change. Replaying a record again, even after later ones, changes nothing. All
records are determined, and durable in the journal, before the first of them is executed, so another
process can continue after a crash.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from kdump.apply.files import Number
from kdump.apply.operations import DirectoryPlan, Operation, OperationKind, OperationPhase
from kdump.apply.segment_names import SEGMENT_SUFFIXES
from kdump.formats.names import leading_offset

ROOT = "."


class RecordKind(enum.Enum):
    """What a record does; the value is its word in the journal."""

    MOVE = "move"
    """Rename ``source`` to ``path``, if ``source`` exists."""
    REMOVE = "remove"
    """Delete ``path``; if a ``source`` is given, only as long as that exists."""
    CUT = "cut"
    """Truncate ``path``, whose before-image is ``source``, to ``size_bytes``."""
    SYNC = "sync"
    """Make ``paths`` durable."""
    PUT = "put"
    """Put the before-image of ``source`` at ``path``."""
    FILL = "fill"
    """Write back what was truncated from the before-image of ``source``."""
    MAKE = "make"
    """Create the directory ``source`` as ``path``, unless it exists under any of its names."""
    SHIFT = "shift"
    """Rename the directory ``source`` from the name that it has to ``path``, if it exists."""
    DROP = "drop"
    """Remove the directory ``source``, which is empty, if it exists as ``path``."""


DIRECTORY_KINDS: Final = frozenset({RecordKind.MAKE, RecordKind.SHIFT, RecordKind.DROP})
"""Records about a directory that moves: ``source`` is its key, ``path`` one of its names."""


class JournalRecord(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One record; paths are relative to the log directory, which itself is ``.``."""

    kind: RecordKind
    path: str = ""
    source: str = ""
    size_bytes: Number = 0
    paths: tuple[str, ...] = ()


def relative(log_dir: Path, directory: Path, name: str) -> str:
    """The path of a file as records have it; always the same object, as a journal has it often."""
    return sys.intern(name if directory == log_dir else f"{directory.name}/{name}")


class ChangedDirectory(Struct, frozen=True):
    """Makes the records of one directory of a plan.

    Attributes:
        prefix: that paths in it begin with.
        staged: path of the new content of each operation that has any.
    """

    plan: DirectoryPlan
    prefix: str
    staged: Mapping[Operation, str]

    @property
    def path(self) -> str:
        return self.prefix.removesuffix("/") or ROOT

    def of(self, *phases: OperationPhase) -> list[Operation]:
        return [each for each in self.plan.operations if each.phase in phases]

    def rewrites(self) -> list[list[Operation]]:
        found: dict[int, list[Operation]] = {}
        for each in self.of(OperationPhase.REWRITE):
            found.setdefault(each.rewrite or 0, []).append(each)
        return [found[number] for number in sorted(found)]

    def had(self, name: str) -> bool:
        return name in self.plan.states

    def path_of(self, name: str) -> str:
        return sys.intern(self.prefix + name)

    def move(self, source: str, name: str) -> JournalRecord:
        return JournalRecord(RecordKind.MOVE, self.path_of(name), self.path_of(source))

    def remove(self, name: str) -> JournalRecord:
        return JournalRecord(RecordKind.REMOVE, self.path_of(name))

    def sync(self) -> JournalRecord:
        return JournalRecord(RecordKind.SYNC, paths=(self.path,))

    def put(self, name: str, before: str | None = None) -> JournalRecord:
        return JournalRecord(RecordKind.PUT, self.path_of(name), self.path_of(before or name))

    def do(self, operation: Operation) -> JournalRecord:
        """The redo record of an operation."""
        name = operation.name
        if operation.kind is OperationKind.REMOVE:
            return self.remove(name)
        if operation.kind is OperationKind.CUT:
            return self.cut(name, operation)
        if operation.source is not None:
            return self.move(operation.source, name)
        return JournalRecord(RecordKind.MOVE, self.path_of(name), self.staged[operation])

    def cut(self, before: str, operation: Operation) -> JournalRecord:
        path, source = self.path_of(operation.name), self.path_of(before)
        return JournalRecord(RecordKind.CUT, path, source, operation.size_bytes)

    def cuts(self) -> list[JournalRecord]:
        """Records of all truncations, those of renamed files included."""
        return [
            self.cut(before, each)
            for each in self.plan.operations
            if (before := cut_file(self.plan, each)) is not None
        ]


def cut_file(plan: DirectoryPlan, operation: Operation) -> str | None:
    """The original name of the file that an operation truncates; None if it truncates none."""
    if operation.kind is OperationKind.CUT:
        return operation.name
    source = operation.source
    if source is not None and operation.size_bytes < plan.states[source].size_bytes:
        return source
    return None


def sync_of(paths: Iterable[str]) -> JournalRecord:
    """Make files or directories durable."""
    return JournalRecord(RecordKind.SYNC, paths=tuple(paths))


def position(name: str) -> tuple[int, int, str]:
    """Sort key of segment files: by offset, and within a segment the log first."""
    kinds = [at for at, suffix in enumerate(SEGMENT_SUFFIXES) if name.endswith(suffix)]
    return leading_offset(name) or 0, kinds[0] if kinds else len(SEGMENT_SUFFIXES), name
