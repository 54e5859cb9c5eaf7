"""Plan the directories that are created, renamed or removed as a whole."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct, field

from kdump.apply.directory_changes import (
    CreatedDirectory,
    DirectoryChange,
    RemovedDirectory,
    RenamedDirectory,
)
from kdump.apply.files import Metadata
from kdump.apply.operations import (
    DirectoryPlan,
    NewDirectoryMetadata,
    Operation,
    OperationKind,
    OperationPhase,
)
from kdump.errors import KdumpError
from kdump.formats.names import is_accepted_name


class DirectoryChanges(Struct, frozen=True):
    """The directories that a plan creates, renames or removes.

    Attributes:
        operations: one for each of them.
        created: the files of those that are created.
        removed: the files of those that are removed, by name of the directory.
    """

    operations: tuple[Operation, ...] = ()
    created: tuple[DirectoryPlan, ...] = ()
    removed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def existing(self) -> list[str]:
        """Names of the directories that are renamed or removed."""
        return [
            each.source or each.name
            for each in self.operations
            if each.kind is not OperationKind.CREATE_DIRECTORY
        ]


def plan_directory_changes(
    log_dir: Path, target: Mapping[str, DirectoryChange], freed: Collection[str] = ()
) -> DirectoryChanges:
    """Plan the changes of the directories of partitions. Only reads.

    Args:
        target: the target state of the directories.
        freed: names that are still taken, and will be free when the plan is applied.

    Raises:
        KdumpError: a directory is missing, is in the way, or has something in it that no
            partition has.
        OSError: a directory cannot be read.
    """
    operations, created, removed = [], [], {}
    for name, change in sorted(target.items()):
        for each in (name, change.source if isinstance(change, RenamedDirectory) else name):
            if not is_accepted_name(each):
                raise ValueError(f"{each}: a broker would refuse such a directory")
        match change:
            case CreatedDirectory():
                if name not in freed:
                    _require_free(log_dir / name)
                plan = _created(log_dir, name, change)
                created.append(plan)
                size_bytes = sum(each.size_bytes for each in plan.operations)
                operations.append(_operation(log_dir, name, change, size_bytes=size_bytes))
            case RenamedDirectory(source):
                _require_free(log_dir / name)
                _require_directory(log_dir / source)
                operations.append(_operation(log_dir, name, change, source=source))
            case RemovedDirectory():
                _require_directory(log_dir / name)
                files = _files_of(log_dir / name)
                removed[name] = tuple(files)
                lost_bytes = sum(files.values())
                operations.append(_operation(log_dir, name, change, lost_bytes=lost_bytes))
    sources = [each.source for each in operations if each.source is not None]
    if len(set(sources)) != len(sources) or not removed.keys().isdisjoint(sources):
        raise ValueError(f"{log_dir}: changes a directory twice")
    return DirectoryChanges(tuple(operations), tuple(created), removed)


_KINDS = {
    CreatedDirectory: OperationKind.CREATE_DIRECTORY,
    RenamedDirectory: OperationKind.RENAME_DIRECTORY,
    RemovedDirectory: OperationKind.REMOVE_DIRECTORY,
}


def _operation(
    log_dir: Path,
    name: str,
    change: DirectoryChange,
    *,
    size_bytes: int = 0,
    lost_bytes: int = 0,
    source: str | None = None,
) -> Operation:
    return Operation(
        _KINDS[type(change)],
        log_dir,
        name,
        change,
        size_bytes,
        lost_bytes,
        OperationPhase.DIRECTORY,
        source,
    )


def _created(log_dir: Path, name: str, change: CreatedDirectory) -> DirectoryPlan:
    path = log_dir / name
    operations = tuple(
        Operation(
            OperationKind.CREATE,
            path,
            file,
            each.content,
            each.content.size_bytes,
            0,
            OperationPhase.WRITE,
        )
        for file, each in sorted(change.files.items())
    )
    metadata = change.metadata or Metadata.of(log_dir.stat())
    files = {
        file: each.metadata for file, each in change.files.items() if each.metadata is not None
    }
    like = {file: each.like for file, each in change.files.items() if each.like is not None}
    new = NewDirectoryMetadata(metadata, files, like, change.attributes)
    return DirectoryPlan(path, {}, operations, new)


def _require_free(path: Path) -> None:
    if os.path.lexists(path):
        raise KdumpError(f"{path}: exists already; nothing has been changed")


def _require_directory(path: Path) -> None:
    if not path.is_dir():
        raise KdumpError(f"{path}: is gone; run the command again")


def _files_of(path: Path) -> dict[str, int]:
    """The files of a directory that is removed, and how many bytes of each are on disk.

    Raises:
        KdumpError: it has a directory in it, which no partition has.
        OSError: it cannot be listed.
    """
    files = {}
    with os.scandir(path) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            files[entry.name] = min(status.st_size, status.st_blocks * 512)
            if entry.is_dir(follow_symlinks=False):
                raise KdumpError(
                    f"{path / entry.name}: is a directory, which Kafka does not create there;"
                    " nothing has been changed; move it out of the partition first"
                )
    return dict(sorted(files.items()))
