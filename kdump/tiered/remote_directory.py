"""The remote partitions that have no local directory, as a log directory.

Each partition has ``partition.metadata`` with its topic id, as a broker would write it, and nothing
else: :class:`~kdump.tiered.tiered_storage.TieredStorage` adds the remote segments.
"""

from __future__ import annotations

import errno
import functools
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from kdump.formats.names import PARTITION_METADATA, TopicPartition
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.formats.remote_names import TopicIdPartition
from kdump.formats.uuids import parse_uuid
from kdump.log.remote_files import list_remote_partitions, list_remote_segments
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location, StoredFile
from kdump.storage.memory_file import MemoryFile
from kdump.storage.rooted_storage import ROOT, RootedStorage


@dataclass(frozen=True, slots=True)
class RemoteDirectory(RootedStorage):
    """Remote partitions; the root is ``/``, a partition ``/TOPIC-PARTITION``.

    Attributes:
        named: how the user named it.
        elsewhere: partitions that are left out, because they have a local directory.
        made: differs between two views of the same place: it may have changed meanwhile.
    """

    remote: Location
    named: str
    elsewhere: frozenset[TopicPartition] = frozenset()
    made: str = field(default_factory=lambda: uuid.uuid4().hex)

    def name_of(self, path: str) -> str:
        return self.named if path == ROOT else f"{self.named.rstrip('/')}{path}"

    def entries(self, path: str) -> list[Entry]:
        if path == ROOT:
            return [Entry(name, EntryKind.DIRECTORY) for name in _partitions(self)]
        return [self._metadata_entry(path)]

    def status(self, path: str) -> Entry:
        folder, _, name = path.rpartition("/")
        if path == ROOT or (not folder and name in _partitions(self)):
            return Entry(name, EntryKind.DIRECTORY)
        if name == PARTITION_METADATA:
            return self._metadata_entry(folder)
        raise self._missing(path)

    def open_file(self, location: Location) -> StoredFile:
        return MemoryFile(location, self.read(location.path))

    def read(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        if name != PARTITION_METADATA:
            raise self._missing(path)
        topic_id = parse_uuid(self._found(folder).topic_id)
        assert topic_id is not None
        return encode_partition_metadata(PartitionMetadata(0, topic_id))

    def _metadata_entry(self, folder: str) -> Entry:
        size = len(self.read(f"{folder}/{PARTITION_METADATA}"))
        return Entry(PARTITION_METADATA, EntryKind.FILE, size_bytes=size)

    def _found(self, folder: str) -> TopicIdPartition:
        found = _partitions(self).get(folder[1:])
        if found is None:
            raise self._missing(folder)
        return found

    def _missing(self, path: str) -> OSError:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.name_of(path))


@functools.lru_cache(maxsize=8)
def _partitions(storage: RemoteDirectory) -> Mapping[str, TopicIdPartition]:
    """The partitions by the names of their directories.

    If topics of the same name were created one after another, the one that was copied last.

    Raises:
        OSError: they cannot be listed.
    """
    found: dict[str, list[TopicIdPartition]] = {}
    for each in sorted(list_remote_partitions(storage.remote)):
        if each.topic_partition not in storage.elsewhere:
            found.setdefault(str(each.topic_partition), []).append(each)
    return {
        name: same[0] if len(same) == 1 else max(same, key=lambda each: _copied_ns(storage, each))
        for name, same in found.items()
    }


def _copied_ns(storage: RemoteDirectory, key: TopicIdPartition) -> int:
    listing = list_remote_segments(storage.remote / str(key))
    times = [file.modified_ns for each in listing.segments.values() for file in each.files.values()]
    return max(times, default=0)
