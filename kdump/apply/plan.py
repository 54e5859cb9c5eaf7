"""From what is wanted to what has to be done.

A plan is a value: it is shown to people, printed for programs, and applied. Making one only reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kdump.apply.early_removals import early_removals
from kdump.apply.operation_order import partition_operations, root_operations
from kdump.apply.operations import DirectoryPlan, Operation, OperationKind, Phase, states_of
from kdump.apply.segment_names import CLEANED
from kdump.errors import KdumpError
from kdump.target.target_file import TargetFile


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """A partition's directory, and what becomes of its files; those not named stay."""

    path: Path
    files: Mapping[str, TargetFile]


@dataclass(frozen=True, slots=True)
class TargetDirectory:
    """A log directory as it is to be.

    Attributes:
        path: the log directory.
        partitions: those of its partitions that change; each ``path`` is a directory in it.
        root: what becomes of the files in the log directory itself; those not named stay.
        first: what files of the log directory itself hold as long as partitions change: durable
            before the first of them does, and until the last has. In the end they are what
            ``root`` says, or as they were. Without any change to a partition they are not needed.
        may_go_early: segments that go in any case, and may go before all else where there is no
            room for anything: some that a log begins with, from the first one on. Of each the
            files, the log before its indexes.
    """

    path: Path
    partitions: tuple[TargetPartition, ...]
    root: Mapping[str, TargetFile]
    first: Mapping[str, TargetFile] = field(default_factory=dict)
    may_go_early: tuple[tuple[Path, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done in a log directory.

    The partitions' operations go side by side, each partition's in its order. Before them the
    marker of a clean stop goes, unless it is to stay untouched, and files of the root are as they
    have to be meanwhile; after them come the checkpoints, and then the marker.

    Attributes:
        path: the log directory.
        partitions: those in which something is done.
        root: what is done in the log directory itself.
        may_go_early: files that may go before all else where there is no room for anything:
            leftovers, then what :attr:`TargetDirectory.may_go_early` says.
    """

    path: Path
    partitions: tuple[DirectoryPlan, ...]
    root: DirectoryPlan
    may_go_early: tuple[tuple[Path, ...], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the directory is as it is wanted."""
        return not self.partitions and not self.root.operations

    @property
    def directories(self) -> tuple[DirectoryPlan, ...]:
        """The partitions, then the root."""
        return (*self.partitions, self.root)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All that is done."""
        every = (operation for each in self.directories for operation in each.operations)
        return tuple(sorted(every, key=lambda each: each.phase is not Phase.FIRST))

    @property
    def lost_bytes(self) -> int:
        """How much that is there now is nowhere afterwards: what an undo has to keep."""
        return sum(operation.lost_bytes for operation in self.operations)

    @property
    def needed_bytes(self) -> int:
        """How much space is taken at most before any is given back.

        What lies ready has its space already, and what it replaces is not copied.
        """
        return self.space_bytes(keep_undo=True)

    def space_bytes(self, *, keep_undo: bool) -> int:
        """The same with or without what an undo needs."""
        written = (OperationKind.CREATE, OperationKind.REPLACE)
        kept = (OperationKind.CUT, OperationKind.RENAME) if keep_undo else ()
        return sum(
            operation.size_bytes if operation.kind in written else operation.lost_bytes
            for operation in self.operations
            if operation.kind in written + kept and not (operation.source or "").endswith(CLEANED)
        )

    def without_removals(self, removed: Collection[Path]) -> Plan:
        """What is left to do when the files ``removed``, which were to go, are gone."""
        partitions = (_without_removals(each, removed) for each in self.partitions)
        left = tuple(each for each in partitions if each.operations)
        return replace(self, partitions=left, may_go_early=())

    def describe(self) -> Iterator[str]:
        """A line for each operation, for people."""
        for operation in self.operations:
            yield f"{operation.directory}: {operation.describe()}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each operation, for programs."""
        for operation in self.operations:
            yield {
                "action": operation.kind.value,
                "directory": str(operation.directory),
                "file": operation.name,
                "source": operation.source,
                "size_bytes": operation.size_bytes,
                "lost_bytes": operation.lost_bytes,
                "rewrite": operation.rewrite,
            }


def _without_removals(directory: DirectoryPlan, removed: Collection[Path]) -> DirectoryPlan:
    gone = {path.name for path in removed if path.parent == directory.path}
    return DirectoryPlan(
        directory.path,
        {name: state for name, state in directory.states.items() if name not in gone},
        tuple(
            each
            for each in directory.operations
            if each.kind is not OperationKind.REMOVE or each.name not in gone
        ),
    )


def make_plan(target: TargetDirectory) -> Plan:
    """Say what has to be done; reads the directories, changes nothing.

    Raises:
        KdumpError: a partition is a symbolic link, or lies on another file system than its log
            directory; or a file is not what the wanted state assumes.
        OSError: something cannot be read.
    """
    planned = []
    for change in target.partitions:
        if change.path.parent != target.path:
            raise ValueError(f"{change.path} is not a partition in {target.path}")
        states = states_of(change.path)
        operations = partition_operations(change.path, change.files, states)
        if operations:
            require_in_place(change.path)
            planned.append(DirectoryPlan(change.path, states, operations))
    states = states_of(target.path)
    first = target.first if planned else {}
    operations = root_operations(
        target.path, target.root, states, first=first, has_partitions=bool(planned)
    )
    return Plan(
        target.path,
        tuple(planned),
        DirectoryPlan(target.path, states, operations),
        (*early_removals(planned), *target.may_go_early),
    )


def require_in_place(partition: Path) -> None:
    """Refuse to write to a partition that does not lie in its log directory.

    A broker follows a symbolic link to a partition. Nothing is written through one: whoever owns
    the log directory could let it lead anywhere, at any moment, and what is kept for an undo has to
    lie on the same file system.

    Args:
        partition: the directory of the partition, by its path in the log directory.

    Raises:
        KdumpError: it is a symbolic link, or lies on another file system.
        OSError: it is not there.
    """
    status = partition.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise KdumpError(
            f"{partition}: is a symbolic link to {os.fsdecode(partition.readlink())}, and kdump "
            "changes only what lies in the log directory itself; nothing has been changed; move "
            "the directory to the place of the link, or name other partitions"
        )
    if status.st_dev != partition.parent.stat().st_dev:
        raise KdumpError(
            f"{partition}: lies on another file system than its log directory, so that nothing can "
            "be moved between the two; work on a copy that is on one"
        )
