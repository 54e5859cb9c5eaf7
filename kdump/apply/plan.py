"""Plans: the operations that turn a log directory into its target state.

A plan is a value: it is shown to people, printed for programs, and applied. Making one only reads.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.directory_changes import DirectoryChange
from kdump.apply.directory_plans import DirectoryChanges, plan_directory_changes
from kdump.apply.early_removals import find_early_removals
from kdump.apply.operation_order import partition_operations, root_operations
from kdump.apply.operations import (
    DirectoryPlan,
    FileStates,
    Operation,
    OperationKind,
    OperationPhase,
    states_of,
)
from kdump.apply.pinned_directory import has_no_mounts_below, is_on_mount_of
from kdump.apply.segment_names import is_staged
from kdump.errors import KdumpError
from kdump.target.target_file import CopiedFrom, JoinedFrom, Kept, StagedBytes, TargetFile

_SHOWN: Final = Kept()


class TargetPartition(Struct, frozen=True):
    """The target state of a partition's directory; files that are not named stay unchanged."""

    path: Path
    files: Mapping[str, TargetFile]


class TargetDirectory(Struct, frozen=True):
    """The target state of a log directory.

    Attributes:
        partitions: its partitions that change; each ``path`` is a directory in it.
        root: target state of the files in the log directory itself; files that are not named stay
            unchanged.
        interim: interim content of files in the log directory itself: durable before the first
            partition changes, and kept until the last one has changed. Afterwards these files get
            the state that ``root`` names, or their old content. Ignored if no partition changes.
        early_removals: segments that can be deleted before anything else if the disk is full: some
            at the start of a log, from the first one up. Of each its files, the log before its
            indexes.
        directories: target state of directories that are created, renamed or removed, by their
            names afterwards (or before, if they are removed). None of these is in ``partitions``.
        freed: names of directories that an earlier plan of the same command removes: a preview
            makes this plan while they are still there.
        needs_undo: whether undo data is all that is left of a log that is replaced, so that nobody
            is advised to go without.
    """

    path: Path
    partitions: tuple[TargetPartition, ...]
    root: Mapping[str, TargetFile]
    interim: Mapping[str, TargetFile] = field(default_factory=dict)
    early_removals: tuple[tuple[Path, ...], ...] = ()
    directories: Mapping[str, DirectoryChange] = field(default_factory=dict)
    freed: frozenset[str] = frozenset()
    needs_undo: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The operations in a log directory.

    Partitions change side by side, each in the order of its operations. Before them, the clean
    shutdown marker is deleted, unless the plan does not touch it, and files of the root get their
    interim content. After them directories are renamed, then come the checkpoints, and then the
    marker.

    Attributes:
        early_removals: files that can be deleted before anything else if the disk is full: leftover
            files, then those of :attr:`TargetDirectory.early_removals`.
        needs_undo: as in :class:`TargetDirectory`.
    """

    path: Path
    partitions: tuple[DirectoryPlan, ...]
    root: DirectoryPlan
    early_removals: tuple[tuple[Path, ...], ...] = ()
    changes: DirectoryChanges = dataclasses.field(default_factory=DirectoryChanges)
    needs_undo: bool = False
    operations: tuple[Operation, ...] = dataclasses.field(init=False, repr=False, compare=False)
    """All operations, in order."""

    def __post_init__(self) -> None:
        changed = (operation for each in self.partitions for operation in each.operations)
        created = (operation for each in self.changes.created for operation in each.operations)
        every = (*created, *changed, *self.changes.operations, *self.root.operations)
        # Whoever shows or applies a plan goes through them several times.
        in_order = tuple(sorted(every, key=lambda each: each.phase is not OperationPhase.INTERIM))
        object.__setattr__(self, "operations", in_order)

    @property
    def is_empty(self) -> bool:
        """Whether the directory already has its target state."""
        return not (self.partitions or self.root.operations or self.changes.operations)

    @property
    def directories(self) -> tuple[DirectoryPlan, ...]:
        """The partitions whose files change, then the root."""
        return (*self.partitions, self.root)

    @property
    def with_new_files(self) -> tuple[DirectoryPlan, ...]:
        """The same, and the directories that are created."""
        return (*self.changes.created, *self.directories)

    @property
    def early_content(self) -> dict[str, int]:
        """The files in the log directory that have new content already, and their sizes."""
        targets = (each.target for each in self.operations)
        return {
            each.name: each.size_bytes
            for each in targets
            if isinstance(each, StagedBytes) and each.name
        }

    @property
    def staged_files(self) -> list[Path]:
        """The files in partitions that were staged for this plan (:mod:`kdump.apply.staging`)."""
        return [
            directory.path / each.source
            for directory in self.partitions
            for each in directory.operations
            if each.source is not None and is_staged(each.name, each.source)
        ]

    @property
    def lost_bytes(self) -> int:
        """Bytes that exist now and nowhere afterwards: undo data has to keep them."""
        return sum(operation.lost_bytes for operation in self.operations)

    @property
    def needed_bytes(self) -> int:
        """The most space that is needed before any is freed, in bytes.

        Staged files are not counted: they already have their space, and what they replace is not
        copied.
        """
        return self.space_bytes(keep_undo=True)

    def space_bytes(self, *, keep_undo: bool) -> int:
        """The same, with or without undo data."""
        return space_bytes(self.operations, keep_undo=keep_undo)

    def without_removals(self, removed: Collection[Path]) -> Plan:
        """The rest of the plan after the files ``removed`` have been deleted early."""
        partitions = (_without_removals(each, removed) for each in self.partitions)
        left = tuple(each for each in partitions if each.operations)
        return Plan(self.path, left, self.root, changes=self.changes, needs_undo=self.needs_undo)

    def without_contents(self) -> Plan:
        """The same operations, to be shown only: a run of many plans keeps all until its end."""
        operations = tuple(
            replace(each, name=sys.intern(each.name), target=_SHOWN) for each in self.operations
        )
        return Plan(self.path, (), DirectoryPlan(self.path, {}, operations))

    def describe(self) -> Iterator[str]:
        """A line for each operation, for people."""
        for operation in self.operations:
            yield f"{operation.directory}: {operation.describe()}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each operation, for programs."""
        return (operation.row() for operation in self.operations)


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


def _takes_staged(operation: Operation) -> bool:
    return operation.source is not None and is_staged(operation.name, operation.source)


def space_bytes(operations: Iterable[Operation], *, keep_undo: bool) -> int:
    """The most space that operations need before any is freed, with or without undo data."""
    written = (OperationKind.CREATE, OperationKind.REPLACE)
    kept = (OperationKind.CUT, OperationKind.RENAME) if keep_undo else ()
    return sum(
        operation.size_bytes if operation.kind in written else operation.lost_bytes
        for operation in operations
        if operation.kind in written + kept and not _takes_staged(operation)
    )


def make_plan(target: TargetDirectory) -> Plan:
    """Make the plan that leads to the target state. Reads the directories, changes nothing.

    Raises:
        KdumpError: a partition is a symbolic link, or on another file system or mount than its log
            directory; or a file does not have the content that ``target`` refers to.
        OSError: something cannot be read.
    """
    in_place = InPlace.below(target.path)
    found = (plan_partition(target.path, change, in_place) for change in target.partitions)
    planned = [each for each in found if each.operations]
    changes = plan_directory_changes(target.path, target.directories, target.freed)
    for name in changes.existing:
        require_in_place(target.path / name)
    return Plan(
        target.path,
        tuple(planned),
        plan_root(target, has_partitions=bool(planned or changes.operations)),
        (*find_early_removals(planned), *target.early_removals),
        changes,
        target.needs_undo,
    )


def plan_partition(
    log_dir: Path,
    change: TargetPartition,
    in_place: InPlace,
    files: Iterable[str] | None = None,
) -> DirectoryPlan:
    """Make the part of a plan for one partition; without operations if nothing changes.

    Args:
        in_place: of the log directory.
        files: the names of the files in the partition, if it was just listed.

    Raises:
        KdumpError: as :func:`make_plan`.
        OSError: likewise.
    """
    if change.path.parent != log_dir:
        raise ValueError(f"{change.path} is not a partition in {log_dir}")
    states = states_of(change.path) if files is None else FileStates(change.path, files)
    operations = partition_operations(change.path, change.files, states)
    if operations:
        if not in_place.has(change.path.name):
            require_in_place(change.path)
        _look_at_changed(states, operations)
    return DirectoryPlan(change.path, states, operations)


def plan_root(target: TargetDirectory, *, has_partitions: bool) -> DirectoryPlan:
    """Make the part of a plan for the log directory itself.

    Args:
        target: its target state; that of its partitions is not looked at.
        has_partitions: whether any of them changes.

    Raises:
        KdumpError: as :func:`make_plan`.
        OSError: likewise.
    """
    states = states_of(target.path)
    interim = target.interim if has_partitions else {}
    operations = root_operations(
        target.path, target.root, states, interim=interim, has_partitions=has_partitions
    )
    _look_at_changed(states, operations)
    return DirectoryPlan(target.path, states, operations)


def _look_at_changed(states: FileStates, operations: Iterable[Operation]) -> None:
    """Look at the files that operations change or read, before any of them does."""
    for each in operations:
        states.look_at([each.name, each.source or each.name])
        if isinstance(each.target, CopiedFrom):
            states.look_at([each.target.name])
        elif isinstance(each.target, JoinedFrom):
            states.look_at(piece.name for piece in each.target.pieces)


class InPlace(Struct, frozen=True):
    """Which partitions are known to be inside their log directory; others are looked at.

    That they are is known without opening each if no mount point is below the log directory.

    Attributes:
        has_no_mounts: whether none is.
        links: the symbolic links in the log directory.
    """

    has_no_mounts: bool
    links: frozenset[str]

    @classmethod
    def below(cls, log_dir: Path) -> InPlace:
        """Look at a log directory.

        Raises:
            OSError: it cannot be listed.
        """
        with os.scandir(log_dir) as entries:
            links = frozenset(entry.name for entry in entries if entry.is_symlink())
        return cls(has_no_mounts_below(log_dir), links)

    def has(self, name: str) -> bool:
        """Whether the partition in the directory ``name`` is known to be inside."""
        return self.has_no_mounts and name not in self.links


def require_in_place(partition: Path) -> None:
    """Refuse to write to a partition that is not inside its log directory.

    A broker follows a symbolic link to a partition. kdump does not write through one: the owner of
    the log directory could point it anywhere, at any moment, and undo data has to be on the same
    file system.

    Args:
        partition: the directory of the partition, by its path in the log directory.

    Raises:
        KdumpError: it is a symbolic link, or on another file system or mount.
        OSError: it is not there.
    """
    status = partition.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise KdumpError(
            f"{partition}: is a symbolic link to {os.fsdecode(partition.readlink())}, and kdump "
            "changes only what is in the log directory itself; nothing has been changed; replace "
            "the link by the directory, or select other partitions"
        )
    if not is_on_mount_of(partition, partition.parent):
        raise KdumpError(
            f"{partition}: is on another file system or mount than its log directory, so files "
            "cannot be renamed between the two; nothing has been changed; work on a copy on a "
            "single file system"
        )
