"""What can be done to the files of a directory, as values."""

from __future__ import annotations

import enum
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kdump.apply.files import Metadata
from kdump.apply.pinned_directory import identity_of
from kdump.target.target_file import TargetFile


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as it is before anything is done.

    Attributes:
        size_bytes: of its content, also where that is behind a symbolic link.
        allocated_bytes: how much of it is on disk; less where it has holes.
        metadata: of the content.
        is_own: whether its content belongs to this name alone: no symbolic link, and no other
            hard link. Only then it is changed where it lies.
        identity: device and inode of its content, which tell whether it is still the same.
    """

    size_bytes: int
    allocated_bytes: int
    metadata: Metadata
    is_own: bool
    identity: tuple[int, int]


def states_of(directory: Path) -> dict[str, FileState]:
    """The files in a directory by name; whatever else is in it is left out.

    Raises:
        OSError: it cannot be listed.
    """
    states = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file():
                status = entry.stat()
                states[entry.name] = FileState(
                    status.st_size,
                    min(status.st_size, status.st_blocks * 512),
                    Metadata.of(status),
                    stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
                    and status.st_nlink == 1,
                    identity_of(status),
                )
    return states


class OperationKind(enum.Enum):
    """What is done to a file; the value is the word for it."""

    REMOVE = "remove"
    CUT = "cut"
    """It ends earlier."""
    RENAME = "rename"
    """It gets another name, in place of what has that name, and may end earlier."""
    REPLACE = "replace"
    """It gets other content, in a file of its own."""
    CREATE = "create"


class Phase(enum.IntEnum):
    """When something is done to a directory; :mod:`kdump.apply.operation_order` says why."""

    FIRST = enum.auto()
    ADD = enum.auto()
    TEMPORARY = enum.auto()
    SWAP = enum.auto()
    REWRITE = enum.auto()
    ROLL = enum.auto()
    DROP = enum.auto()
    CUT = enum.auto()
    WRITE = enum.auto()


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of one file.

    Attributes:
        kind: what is done.
        directory: where.
        name: of the file, afterwards.
        target: what the file is to be.
        size_bytes: its size afterwards; 0 where it is gone.
        lost_bytes: how much of what is now in the files concerned is nowhere afterwards.
        phase: when it is done.
        source: the file's name before, where that is another.
        rewrite: number of the exchange of segments that it is part of: those happen together, as
            a broker does it (``.cleaned``, then ``.swap``); None for the others.
    """

    kind: OperationKind
    directory: Path
    name: str
    target: TargetFile
    size_bytes: int
    lost_bytes: int
    phase: Phase
    source: str | None = None
    rewrite: int | None = None

    def describe(self) -> str:
        """The operation for people, without the directory."""
        match self.kind:
            case OperationKind.REMOVE:
                return f"remove {self.name}"
            case OperationKind.CUT:
                return f"cut {self.name} at byte {self.size_bytes}"
            case OperationKind.RENAME:
                return f"rename {self.source} to {self.name}"
            case OperationKind.REPLACE:
                return f"replace {self.name} by {self.size_bytes} bytes"
            case OperationKind.CREATE:
                return f"create {self.name} of {self.size_bytes} bytes"


@dataclass(frozen=True, slots=True)
class DirectoryPlan:
    """What is done in one directory.

    Attributes:
        path: the directory.
        states: the files in it, as they are now.
        operations: in their order.
    """

    path: Path
    states: Mapping[str, FileState]
    operations: tuple[Operation, ...]
