"""Steps: what a plan is carried out by, and what it is taken back by.

A step is a change that is made at once, and that makes no difference when it is made again after
those behind it. Which steps there are is settled before the first of them and made durable in the
journal, so that somebody else can go on after a crash.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kdump.apply.operations import DirectoryPlan, Operation, OperationKind, Phase
from kdump.apply.segment_names import SEGMENT_SUFFIXES
from kdump.formats.names import leading_offset

ROOT = "."


class RecordKind(enum.Enum):
    """What a step does; the value is its word in the journal."""

    MOVE = "move"
    """Rename ``source`` to ``path``, if it is there."""
    REMOVE = "remove"
    """Take ``path`` away; only as long as ``source`` is there, if one is given."""
    CUT = "cut"
    """Truncate ``path``, which was ``source`` before, to ``size_bytes``."""
    SYNC = "sync"
    """Make ``paths`` durable."""
    PUT = "put"
    """Let ``path`` be the file that was ``source`` before."""
    FILL = "fill"
    """Give the file that was ``source`` before what was cut off."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One step; paths are relative to the log directory, which is ``.`` itself."""

    kind: RecordKind
    path: str = ""
    source: str = ""
    size_bytes: int = 0
    paths: tuple[str, ...] = ()


def relative(log_dir: Path, directory: Path, name: str) -> str:
    """The path of a file as steps have it."""
    return name if directory == log_dir else f"{directory.name}/{name}"


@dataclass(frozen=True, slots=True)
class ChangedDirectory:
    """One directory of a plan, with what its steps are made of.

    Attributes:
        plan: what is done.
        prefix: what paths in it begin with.
        staged: where the new content that operations put in place lies ready.
    """

    plan: DirectoryPlan
    prefix: str
    staged: Mapping[Operation, str]

    @property
    def path(self) -> str:
        return self.prefix.removesuffix("/") or ROOT

    def of(self, *phases: Phase) -> list[Operation]:
        return [each for each in self.plan.operations if each.phase in phases]

    def rewrites(self) -> list[list[Operation]]:
        found: dict[int, list[Operation]] = {}
        for each in self.of(Phase.REWRITE):
            found.setdefault(each.rewrite or 0, []).append(each)
        return [found[number] for number in sorted(found)]

    def had(self, name: str) -> bool:
        return name in self.plan.states

    def path_of(self, name: str) -> str:
        return self.prefix + name

    def move(self, source: str, name: str) -> JournalRecord:
        return JournalRecord(RecordKind.MOVE, self.path_of(name), self.path_of(source))

    def remove(self, name: str) -> JournalRecord:
        return JournalRecord(RecordKind.REMOVE, self.path_of(name))

    def sync(self) -> JournalRecord:
        return JournalRecord(RecordKind.SYNC, paths=(self.path,))

    def put(self, name: str, before: str | None = None) -> JournalRecord:
        return JournalRecord(RecordKind.PUT, self.path_of(name), self.path_of(before or name))

    def do(self, operation: Operation) -> JournalRecord:
        """The step of an operation that has one."""
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
        """What is truncated: files that stay, and files that were renamed."""
        return [
            self.cut(before, each)
            for each in self.plan.operations
            if (before := cut_file(self.plan, each)) is not None
        ]


def cut_file(plan: DirectoryPlan, operation: Operation) -> str | None:
    """The name that a file which an operation truncates has before; None if it does not."""
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
    """Sorts files of segments: by offset, and of each segment the log first."""
    kinds = [at for at, suffix in enumerate(SEGMENT_SUFFIXES) if name.endswith(suffix)]
    return leading_offset(name) or 0, kinds[0] if kinds else len(SEGMENT_SUFFIXES), name
