"""File operations that stop, fail, or lose unsynced changes: a disk for crash tests.

They work on real directories. :meth:`VolatileFiles.lose_unsynced` simulates a power failure: each
directory has the names, and each file the content, of its last sync, independently of each other.
Journaling file systems lose less.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kdump.apply.files import DISK, Attributes, Content, FileRange, Files, Metadata

Inode = tuple[int, int]


class Stopped(BaseException):
    """The machine stopped here: no later operation of kdump happens."""


@dataclass(slots=True)
class VolatileFiles(Files):
    """Real files below ``root``.

    Attributes:
        root: the directory.
        attic: a directory beside it, on the same file system, that keeps files which may come back.
        stop_after: number of operations before the machine stops.
        fail_at: number of the operation that fails, counted from 0.
        failure: the error of that operation.
        operations: the operations so far.
    """

    root: Path
    attic: Path
    stop_after: int | None = None
    fail_at: int | None = None
    failure: int = 0
    operations: list[str] = field(default_factory=list)
    _names: dict[Inode, dict[str, Inode]] = field(default_factory=dict)
    _directories: dict[str, Inode] | None = None
    _kept: dict[Inode, Path] = field(default_factory=dict)
    _contents: dict[Inode, tuple[bytes, os.stat_result]] = field(default_factory=dict)

    def operations_of(self, work: Callable[[VolatileFiles], object]) -> list[str]:
        """Do all of ``work``; return its operations."""
        work(self)
        self.forget_attic()
        return self.operations

    def stop_in(
        self, work: Callable[[VolatileFiles], object], after: int, *, unsynced: bool
    ) -> None:
        """Stop the machine in ``work`` after ``after`` operations.

        Args:
            unsynced: whether unsynced changes are lost.
        """
        self.stop_after = after
        with pytest.raises(Stopped):
            work(self)
        if unsynced:
            self.lose_unsynced()
        self.forget_attic()

    # The interface of Files

    def create(self, path: Path, content: Content) -> None:
        pieces = list(content)
        self._remember_names(path.parent)
        if self._is_last():
            # The machine stops, or the disk fills up, halfway through the file.
            data = b"".join(map(_read, pieces))
            DISK.create(path, [data[: len(data) // 2]])
            self._forget(path)
        self._count("create", path)
        DISK.create(path, pieces)
        self._forget(path)

    def write_at(
        self, path: Path, position: int, content: Content, names: Sequence[Path] = ()
    ) -> None:
        self._remember_content(path)
        if self._is_last():
            data = b"".join(map(_read, content))
            DISK.write_at(path, position, [data[: len(data) // 2]], self._and_kept(names))
        self._count("write", path)
        DISK.write_at(path, position, content, self._and_kept(names))

    def truncate(self, path: Path, size_bytes: int, names: Sequence[Path] = ()) -> None:
        self._count("truncate", path)
        self._remember_content(path)
        DISK.truncate(path, size_bytes, self._and_kept(names))

    def set_metadata(self, path: Path, metadata: Metadata, names: Sequence[Path] = ()) -> None:
        self._count("set_metadata", path)
        if path.is_file() and not path.is_symlink():
            self._remember_content(path)
        DISK.set_metadata(path, metadata, self._and_kept(names))

    def copy_attributes(self, path: Path, like: Path) -> None:
        self._count("copy_attributes", path)
        DISK.copy_attributes(path, like)

    def rename(self, path: Path, new_path: Path) -> None:
        self._count("rename", new_path)
        for each in (path, new_path):
            self._remember_names(each.parent)
            self._keep(each)
        DISK.rename(path, new_path)

    def link(self, path: Path, new_path: Path) -> None:
        self._count("link", new_path)
        self._remember_names(new_path.parent)
        DISK.link(path, new_path)

    def unlink(self, path: Path) -> None:
        self._count("unlink", path)
        self._remember_names(path.parent)
        self._keep(path)
        DISK.unlink(path)

    def make_directory(self, path: Path, metadata: Metadata, attributes: Attributes = ()) -> None:
        self._count("make_directory", path)
        self._remember_directories()
        DISK.make_directory(path, metadata, attributes)
        self._names.setdefault(_inode(path), {})

    def rename_directory(self, path: Path, new_path: Path) -> None:
        self._count("rename_directory", new_path)
        self._remember_directories()
        DISK.rename_directory(path, new_path)

    def remove_directory(self, path: Path) -> None:
        self._count("remove_directory", path)
        self._remember_directories()
        assert not any(path.iterdir())
        kept = self.attic / f"directory-{len(self._kept)}"
        self._kept[_inode(path)] = kept
        path.rename(kept)

    def sync(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self._count("sync", path)
            if path.is_dir():
                self._names.pop(_inode(path), None)
                if path == self.root:
                    self._directories = None
            else:
                self._contents.pop(_inode(path), None)

    # For tests

    def lose_unsynced(self) -> None:
        """Undo all unsynced changes, as a power failure does."""
        self._lose_directories()
        found = {_inode(path): path for path in (self.root, *self.root.iterdir())}
        for inode, names in self._names.items():
            directory = found.get(inode)
            if directory is None:
                continue  # it was new, and has never existed
            for path in list(directory.iterdir()):
                if not path.is_dir() and names.get(path.name) != _inode(path):
                    self._keep(path)
                    path.unlink()
            for name, inode in names.items():
                path = directory / name
                if not os.path.lexists(path):
                    os.link(self._kept[inode], path, follow_symlinks=False)
        for directory in (self.root, *filter(Path.is_dir, self.root.iterdir())):
            for path in directory.iterdir():
                if path.is_file() and not path.is_symlink() and _inode(path) in self._contents:
                    data, status = self._contents.pop(_inode(path))
                    path.write_bytes(data)
                    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.forget_attic()

    def _lose_directories(self) -> None:
        """Give directories the names that were durable; remove those that were not."""
        if self._directories is None:
            return
        now = {_inode(path): path for path in self.root.iterdir() if path.is_dir()}
        now |= {inode: path for inode, path in self._kept.items() if path.is_dir()}
        aside = {inode: self.attic / f"aside-{inode[1]}" for inode in now}
        for inode, path in now.items():
            path.rename(aside[inode])
        for name, inode in self._directories.items():
            aside.pop(inode).rename(self.root / name)
        for path in aside.values():
            shutil.rmtree(path)

    def forget_attic(self) -> None:
        """Remove the additional names of files in the attic."""
        for path in self._kept.values():
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
        self._kept.clear()

    def _and_kept(self, names: Sequence[Path]) -> list[Path]:
        """Return the names of files together with their names in the attic."""
        return [*names, *self._kept.values()]

    def _is_last(self) -> bool:
        count = len(self.operations)
        return count in (self.stop_after, self.fail_at)

    def _count(self, what: str, path: Path) -> None:
        count = len(self.operations)
        if self.stop_after is not None and count >= self.stop_after:
            raise Stopped
        self.operations.append(f"{what} {path.relative_to(self.root)}")
        if count == self.fail_at:
            raise OSError(self.failure, os.strerror(self.failure), str(path))

    def _remember_names(self, directory: Path) -> None:
        if _inode(directory) not in self._names:
            self._names[_inode(directory)] = {
                path.name: _inode(path) for path in directory.iterdir() if not path.is_dir()
            }

    def _remember_directories(self) -> None:
        if self._directories is None:
            self._directories = {
                path.name: _inode(path) for path in self.root.iterdir() if path.is_dir()
            }

    def _remember_content(self, path: Path) -> None:
        if _inode(path) not in self._contents:
            self._contents[_inode(path)] = path.read_bytes(), path.stat()

    def _forget(self, path: Path) -> None:
        """Keep a new file as empty until it is synced."""
        self._contents[_inode(path)] = b"", path.stat()

    def _keep(self, path: Path) -> None:
        if os.path.lexists(path) and not path.is_dir() and _inode(path) not in self._kept:
            kept = self.attic / str(len(self._kept))
            os.link(path, kept, follow_symlinks=False)
            self._kept[_inode(path)] = kept


def _inode(path: Path) -> Inode:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _read(piece: bytes | FileRange) -> bytes:
    if isinstance(piece, bytes):
        return piece
    with piece.path.open("rb") as file:
        file.seek(piece.start)
        return file.read(piece.size_bytes)
