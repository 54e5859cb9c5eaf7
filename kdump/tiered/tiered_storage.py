"""Log directories together with the remote segments of their partitions, as one storage.

A partition has the segments that a consumer reads: the remote ones up to where its local log
begins, then the local ones. Everything that reads a :class:`~kdump.storage.location.Location` reads
them alike.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kdump.formats.errors import FormatError
from kdump.formats.names import (
    PartitionState,
    TopicPartition,
    parse_offset_file_name,
    parse_partition_directory_name,
)
from kdump.log.directory import directory_kind
from kdump.log.partition import Partition
from kdump.log.remote_files import RemotePlace
from kdump.storage.entries import Entry
from kdump.storage.location import Location, Storage, StoredFile
from kdump.storage.place_names import TypedName
from kdump.storage.rooted_storage import ROOT
from kdump.tiered.remote_directory import RemoteDirectory
from kdump.tiered.remote_partition import RemotePart, RemoteSlice
from kdump.tiered.remote_plans import NOTHING, RemotePlans, find_remote_root

if TYPE_CHECKING:
    from kdump.tiered.remote_metadata import RemoteMetadata


class TieredStorage(Struct, frozen=True):
    """Local log directories with the remote segments of their partitions.

    Which remote segments there are is found out once in each process.

    Attributes:
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

    def typed_name(self, path: str) -> TypedName:
        planned = self._planned(path)
        return self.base.typed_name(path) if planned is None else planned.path.typed

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

    def read_listed(self, path: str) -> bytes:
        return self.read(path)

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
        remote: where remote segments are. If that is one of the paths, it means the partitions
            that have no directory in the others; it is left out if there are none.

    Raises:
        KdumpError: ``remote`` has no remote segments, or cannot be listed.
    """
    root = find_remote_root(remote)
    inside = [_inside(path, remote) for path in paths]
    local = [path for path, where in zip(paths, inside, strict=True) if where is None]
    log_dirs = tuple(dict.fromkeys(_log_directory(path) for path in local))
    view = uuid.uuid4().hex
    lone: RemoteDirectory | None = None
    found: list[Location] = []
    for path, where in zip(paths, inside, strict=True):
        if where is None:
            found.append(Location(TieredStorage(path.storage, root, log_dirs, view), path.path))
            continue
        lone = lone or RemoteDirectory(root, str(remote), _partitions_in(log_dirs))
        if where != ROOT or not local or lone.entries(ROOT):
            found.append(Location(TieredStorage(lone, root, log_dirs, view), where))
    return found


def is_remote_directory(path: Location, remote: RemotePlace) -> bool:
    """Whether a path means remote partitions without a local directory, or one of them.

    That is the place of the remote segments itself, or ``TOPIC-PARTITION`` below it.
    """
    return _inside(path, remote) is not None


def _inside(path: Location, remote: RemotePlace) -> str | None:
    """Where such a path is in the place of remote segments; None for any other path."""
    if path.storage != remote.location.storage:
        return None
    around = remote.location.as_absolute().path.rstrip("/")
    absolute = path.as_absolute().path.rstrip("/")
    if absolute == around:
        return ROOT
    if not absolute.startswith(f"{around}/"):
        return None
    inside = absolute.removeprefix(around)
    try:
        parse_partition_directory_name(inside[1:].partition("/")[0])
    except FormatError:
        return None
    return inside


def _partitions_in(log_dirs: Sequence[Location]) -> frozenset[TopicPartition]:
    """The partitions that have a live directory in one of these."""
    found = set[TopicPartition]()
    for path in log_dirs:
        try:
            names = [each.name for each in path.entries()]
        except OSError:
            continue  # Whoever reads it says so.
        for name in names:
            with contextlib.suppress(FormatError):
                parsed = parse_partition_directory_name(name)
                if parsed.state is PartitionState.LIVE:
                    found.add(parsed.topic_partition)
    return frozenset(found)


def remote_part(partition: Partition) -> RemotePart | None:
    """The remote part of a partition; None if it was not listed with its remote segments.

    Raises:
        KdumpError: ``__remote_log_metadata`` cannot be loaded.
        OSError: something cannot be read.
    """
    storage = partition.path.storage
    return storage.plan_of(partition.path) if isinstance(storage, TieredStorage) else None


def remote_metadata(partition: Partition) -> RemoteMetadata | None:
    """The metadata that decide which segments of a partition are read; None as ``remote_part``.

    Raises:
        KdumpError: ``__remote_log_metadata`` cannot be loaded.
        OSError: something cannot be read.
    """
    storage = partition.path.storage
    return storage.plans.metadata() if isinstance(storage, TieredStorage) else None


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
