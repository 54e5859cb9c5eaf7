"""Operations on the files of a directory, as values."""

from __future__ import annotations

import enum
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kdump.apply.directory_changes import DirectoryChange, StreamedFrom
from kdump.apply.files import SET_ID_BITS, Attributes, Metadata
from kdump.target.target_file import TargetFile
from kdump.words import counted

_STATUS: Final = struct.Struct("=qqQQIIIqIqI")
"""Size, blocks, device, inode, mode, user, group, and the times of access and modification, each in
seconds and nanoseconds: some file systems have times after 2262, whose nanoseconds are too many.
"""
_NS_PER_S: Final = 10**9


class FileState(msgspec.Struct, frozen=True):
    """A file as it is before any change.

    Attributes:
        packed: what its status says, as :data:`_STATUS` has it: a tenth of the memory of the
            status itself, and a plan for 10,000 partitions has the states of 100,000 files.
        is_own: whether no other name has the same content: no symbolic link, no other hard link.
            Only such a file is changed in place.
    """

    packed: bytes
    is_own: bool

    @classmethod
    def of(cls, status: os.stat_result, *, is_own: bool) -> FileState:
        """The state of a file with this status; a symbolic link is followed before."""
        packed = _STATUS.pack(
            status.st_size,
            status.st_blocks,
            status.st_dev,
            status.st_ino,
            stat.S_IMODE(status.st_mode) & ~SET_ID_BITS,
            status.st_uid,
            status.st_gid,
            *divmod(status.st_atime_ns, _NS_PER_S),
            *divmod(status.st_mtime_ns, _NS_PER_S),
        )
        return cls(packed, is_own)

    @property
    def size_bytes(self) -> int:
        size_bytes: int = _STATUS.unpack(self.packed)[0]
        return size_bytes

    @property
    def allocated_bytes(self) -> int:
        """How much of it is on disk; less if it has holes."""
        size_bytes, blocks = _STATUS.unpack(self.packed)[:2]
        return int(min(size_bytes, blocks * 512))

    @property
    def metadata(self) -> Metadata:
        mode, uid, gid, *times = _STATUS.unpack(self.packed)[4:]
        accessed_s, accessed_rest_ns, modified_s, modified_rest_ns = times
        return Metadata(
            mode,
            uid,
            gid,
            accessed_s * _NS_PER_S + accessed_rest_ns,
            modified_s * _NS_PER_S + modified_rest_ns,
        )

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of its content."""
        device, inode = _STATUS.unpack(self.packed)[2:4]
        return device, inode


class FileStates(Mapping[str, FileState]):
    """The files in a directory by name, as they are before any change.

    Each is looked at when it is first asked for: a plan for 10,000 partitions needs the states of
    few files in each. So whoever is going to change files asks for their states before that.

    Args:
        directory: their directory.
        names: of its files, symbolic links to files included.
    """

    __slots__ = ("_directory", "_known")

    def __init__(self, directory: Path, names: Iterable[str]) -> None:
        self._directory = str(directory)
        self._known: dict[str, FileState | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> FileState:
        state = self._known[name]
        if state is None:
            state = self._known[name] = _state_of(f"{self._directory}/{name}")
        return state

    def look_at(self, names: Iterable[str]) -> None:
        """Look at those of ``names`` that exist.

        Raises:
            OSError: one has disappeared.
        """
        for name in names:
            if name in self._known:
                self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def states_of(directory: Path) -> FileStates:
    """The files in a directory by name; other entries are left out.

    Raises:
        OSError: it cannot be listed.
    """
    with os.scandir(directory) as entries:
        # The files of partitions have the same names.
        names = [sys.intern(entry.name) for entry in entries if _is_file(entry)]
    return FileStates(directory, names)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            return False  # as a link to nothing
        raise


def _state_of(path: str) -> FileState:
    status = os.lstat(path)
    is_link = stat.S_ISLNK(status.st_mode)
    if is_link:
        status = Path(path).stat()
    return FileState.of(status, is_own=not is_link and status.st_nlink == 1)


class OperationKind(enum.Enum):
    """What an operation does to a file; the value is its name in output."""

    REMOVE = "remove"
    CUT = "cut"
    """Truncate it."""
    RENAME = "rename"
    """Rename it, replacing a file that has the new name; and maybe truncate it."""
    REPLACE = "replace"
    """Replace it by a new file."""
    CREATE = "create"
    CREATE_DIRECTORY = "create-directory"
    """Give the directory of a new partition its name; its files exist then."""
    RENAME_DIRECTORY = "rename-directory"
    REMOVE_DIRECTORY = "remove-directory"
    """Remove the directory of a partition with everything in it."""


WHOLE_DIRECTORY_KINDS: Final = (
    OperationKind.CREATE_DIRECTORY,
    OperationKind.RENAME_DIRECTORY,
    OperationKind.REMOVE_DIRECTORY,
)


class OperationPhase(enum.IntEnum):
    """Order of the operations on a directory; :mod:`kdump.apply.operation_order` explains it."""

    INTERIM = enum.auto()
    ADD = enum.auto()
    TEMPORARY = enum.auto()
    SWAP = enum.auto()
    REWRITE = enum.auto()
    ROLL = enum.auto()
    DROP = enum.auto()
    CUT = enum.auto()
    WRITE = enum.auto()
    DIRECTORY = enum.auto()


class Operation(msgspec.Struct, frozen=True):
    """One change of one file, or of the directory of a partition as a whole.

    Attributes:
        name: of the file, afterwards.
        target: what the file should become.
        size_bytes: its size afterwards; 0 if it is removed.
        lost_bytes: how many bytes of the current content exist nowhere afterwards.
        phase: when it is done.
        source: the file's current name, if that is another.
        rewrite: number of the group of segments that it is part of. The segments of a group are
            replaced together, as a broker does it (``.cleaned``, then ``.swap``). None if it is
            part of none.
    """

    kind: OperationKind
    directory: Path
    name: str
    target: TargetFile | StreamedFrom | DirectoryChange
    size_bytes: int
    lost_bytes: int
    phase: OperationPhase
    source: str | None = None
    rewrite: int | None = None

    def row(self) -> dict[str, Any]:
        """The row of the operation, for programs."""
        return {
            "action": self.kind.value,
            "directory": str(self.directory),
            "file": self.name,
            "source": self.source,
            "size_bytes": self.size_bytes,
            "lost_bytes": self.lost_bytes,
            "rewrite": self.rewrite,
        }

    def describe(self) -> str:
        """Describe the operation for people, without the directory."""
        match self.kind:
            case OperationKind.REMOVE:
                return f"remove {self.name}"
            case OperationKind.CUT:
                return f"truncate {self.name} to {counted(self.size_bytes, 'byte')}"
            case OperationKind.RENAME:
                return f"rename {self.source} to {self.name}"
            case OperationKind.REPLACE:
                return f"replace {self.name}: {counted(self.size_bytes, 'byte')}"
            case OperationKind.CREATE:
                return f"create {self.name}: {counted(self.size_bytes, 'byte')}"
            case OperationKind.CREATE_DIRECTORY:
                return f"create {self.name}/"
            case OperationKind.RENAME_DIRECTORY:
                return f"rename {self.source}/ to {self.name}/"
            case OperationKind.REMOVE_DIRECTORY:
                return f"remove {self.name}/: {counted(self.lost_bytes, 'byte')}"


class DirectoryPlan(msgspec.Struct, frozen=True):
    """The operations in one directory.

    Attributes:
        states: the files in it, as they are now.
        operations: in order.
        new: metadata of a directory that does not exist yet, and of its files by name.
    """

    path: Path
    states: Mapping[str, FileState]
    operations: tuple[Operation, ...]
    new: NewDirectoryMetadata | None = None


class NewDirectoryMetadata(msgspec.Struct, frozen=True):
    """What a new directory and its files get.

    Attributes:
        directory: mode and owner of the directory; its times are not used.
        files: mode, owner and times of files, by name; the others get the directory's owner.
        like: files whose extended attributes they get, by name; these may be on another disk.
        attributes: extended attributes of the directory.
    """

    directory: Metadata
    files: Mapping[str, Metadata]
    like: Mapping[str, Path]
    attributes: Attributes = ()
