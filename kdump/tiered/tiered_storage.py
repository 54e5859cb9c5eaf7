"""Log directories together with the remote segments of their partitions, as one storage.

A partition has the segments that a consumer reads: the remote ones up to where its local log
begins, then the local ones. Everything that reads a :class:`~kdump.storage.location.Location` reads
them alike.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kdump.formats.names import parse_offset_file_name
from kdump.log.directory import directory_kind
from kdump.log.partition import Partition
from kdump.log.remote_files import RemotePlace
from kdump.storage.entries import Entry
from kdump.storage.location import Location, Storage, StoredFile
from kdump.tiered.remote_partition import RemotePart, RemoteSlice
from kdump.tiered.remote_plans import NOTHING, RemotePlans, find_remote_root


@dataclass(frozen=True, slots=True)
class TieredStorage:
    """Local log directories with the remote segments of their partitions.

    Which remote segments there are is found out once in each process.

    Attributes:
        base: where the log directories are.
        remote: the directory of all remote partitions.
        log_dirs: the log directories, which may have ``__remote_log_metadata``.
        made: differs between two views of the same places: they may have changed meanwhile.
    """

    base: Storage
    remote: Location
    log_dirs: tuple[Location, ...]
    made: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def plans(self) -> RemotePlans:
        """The remote parts of partitions."""
        return _plans(self)

    def plan_of(self, path: Location) -> RemotePart | None:
        """The remote part of a partition, by its directory; None if it is not in tiered storage.

        Raises:
            KdumpError: ``__remote_log_metadata`` cannot be loaded.
            OSError: something cannot be read.
        """
        plan = self.plans.of(path.path)
        return None if plan is NOTHING else plan

    def name_of(self, path: str) -> str:
        planned = self._planned(path)
        return self.base.name_of(path) if planned is None else str(planned.path)

    def entries(self, path: str) -> list[Entry]:
        plan = self.plans.of(path)
        local = self.base.entries(path)
        remote = [each.entry(name) for name, each in plan.files.items()]
        return [*remote, *(each for each in local if each.name not in plan.hidden)]

    def status(self, path: str) -> Entry:
        planned = self._planned(path)
        if planned is None:
            return self.base.status(path)
        return planned.entry(path.rpartition("/")[2])

    def open_file(self, location: Location) -> StoredFile:
        planned = self._planned(location.path)
        if planned is None:
            return self.base.open_file(Location(self.base, location.path))
        return _RemoteFile(location, planned)

    def read(self, path: str) -> bytes:
        planned = self._planned(path)
        if planned is None:
            return self.base.read(path)
        data = planned.path.read()
        return data[planned.start : planned.start + planned.size_bytes]

    def as_absolute(self, path: str) -> str:
        return self.base.as_absolute(path)

    def resolved(self, path: str) -> str:
        return self.base.resolved(path)

    def is_same(self, path: str, other: str) -> bool:
        if self._planned(path) or self._planned(other):
            return path == other
        return self.base.is_same(path, other)

    def local_path(self, path: str) -> Path | None:
        """None: what has remote segments is not written."""
        return None

    def _planned(self, path: str) -> RemoteSlice | None:
        """The remote file at a path; None if it is a local one."""
        folder, _, name = path.rpartition("/")
        if parse_offset_file_name(name) is None:
            return None
        return self.plans.of(folder or ".").files.get(name)


class _RemoteFile(StoredFile):
    """A file of a remote segment, or a part of one, open for reading."""

    def __init__(self, location: Location, planned: RemoteSlice) -> None:
        self._file = planned.path.open_file()
        available = max(0, self._file.size_bytes - planned.start)
        super().__init__(location, min(planned.size_bytes, available))
        self._start = planned.start

    def read_into(self, buffer: memoryview, position: int) -> int:
        wanted = max(0, min(len(buffer), self.size_bytes - position))
        filled = self._file.read_into(buffer[:wanted], self._start + position)
        self.reached_bytes = position + filled
        return filled

    def close(self) -> None:
        self._file.close()


def tiered_locations(paths: Sequence[Location], remote: RemotePlace) -> list[Location]:
    """The same directories or files, with the remote segments of their partitions.

    Args:
        paths: log directories, partitions, or files of partitions.
        remote: where remote segments are.

    Raises:
        KdumpError: ``remote`` has no remote segments, or cannot be listed.
    """
    root = find_remote_root(remote)
    log_dirs = tuple(dict.fromkeys(_log_directory(path) for path in paths))
    view = uuid.uuid4().hex
    return [
        Location(TieredStorage(path.storage, root, log_dirs, view), path.path) for path in paths
    ]


def remote_part(partition: Partition) -> RemotePart | None:
    """The remote part of a partition; None if it was not listed with its remote segments.

    Raises:
        KdumpError: ``__remote_log_metadata`` cannot be loaded.
        OSError: something cannot be read.
    """
    storage = partition.path.storage
    return storage.plan_of(partition.path) if isinstance(storage, TieredStorage) else None


def _log_directory(path: Location) -> Location:
    """The log directory that a path is, or is in, as far as can be seen."""
    try:
        if directory_kind(path).is_log_directory:
            return path
    except OSError:
        # A remote file, or nothing at all: whoever reads it says so.
        pass
    absolute = path.as_absolute()
    is_file = parse_offset_file_name(absolute.name) is not None
    return absolute.parent.parent if is_file else absolute.parent


@functools.lru_cache(maxsize=8)
def _plans(storage: TieredStorage) -> RemotePlans:
    return RemotePlans(storage.base, storage.remote, storage.log_dirs)
