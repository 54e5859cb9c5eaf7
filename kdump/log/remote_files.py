"""The files of remote segments, in the layout of ``LocalTieredStorage``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from kdump.formats.remote_names import (
    RemoteFileKind,
    TopicIdPartition,
    parse_remote_directory_name,
    parse_remote_file_name,
)
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location

ROOT: Final = "kafka-tiered-storage"
"""The directory of all partitions, in the directory that the broker's configuration names."""


class RemotePlace(Struct, frozen=True):
    """Where remote segments are.

    Attributes:
        location: of their directory, or of the one that has it.
        private_key: decrypts what is encrypted; None without one.
    """

    location: Location
    private_key: Location | None = None

    def __str__(self) -> str:
        return str(self.location)


class RemoteFile(Struct, frozen=True):
    """A file of a remote segment, and its size and time."""

    path: Location
    size_bytes: int
    modified_ns: int


class RemoteSegmentFiles(Struct, frozen=True):
    """The files of a remote segment that there are.

    Attributes:
        segment_id: from their names.
        start_offset: likewise.
        files: by kind.
    """

    segment_id: str
    start_offset: int
    files: Mapping[RemoteFileKind, RemoteFile] = field(default_factory=dict)

    @property
    def log(self) -> RemoteFile | None:
        return self.files.get(RemoteFileKind.LOG)


class RemoteListing(Struct, frozen=True):
    """What the directory of a partition has.

    Attributes:
        segments: by id.
        foreign: names of anything else.
    """

    path: Location
    segments: Mapping[str, RemoteSegmentFiles]
    foreign: tuple[str, ...]


def find_root(named: Location) -> Location | None:
    """Find the directory of all partitions: the one that was named, or the one in it.

    None if there is none.

    Raises:
        OSError: a directory cannot be listed.
    """
    entries = {each.name: each for each in named.entries()}
    if _is_directory(entries.get(ROOT)):
        return named / ROOT
    if named.name == ROOT or any(_has_segments(named, each) for each in entries.values()):
        return named
    return None


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is EntryKind.DIRECTORY


def _has_segments(root: Location, entry: Entry) -> bool:
    """Whether a directory is that of a partition with files of segments."""
    if not _is_directory(entry) or parse_remote_directory_name(entry.name) is None:
        return False
    return any(parse_remote_file_name(each.name) for each in (root / entry.name).entries())


def list_remote_partitions(root: Location) -> dict[TopicIdPartition, Location]:
    """List the directories of partitions.

    Raises:
        OSError: the root cannot be listed.
    """
    found: dict[TopicIdPartition, Location] = {}
    for entry in root.entries():
        parsed = parse_remote_directory_name(entry.name) if _is_directory(entry) else None
        if parsed is not None:
            found[parsed] = root / entry.name
    return found


def list_remote_segments(path: Location) -> RemoteListing:
    """List the directory of a partition.

    Raises:
        OSError: it cannot be listed.
    """
    offsets: dict[str, int] = {}
    files: dict[str, dict[RemoteFileKind, RemoteFile]] = {}
    foreign: list[str] = []
    for entry in path.entries():
        parsed = parse_remote_file_name(entry.name) if entry.kind is EntryKind.FILE else None
        if parsed is None:
            foreign.append(entry.name)
            continue
        offsets.setdefault(parsed.segment_id, parsed.start_offset)
        of_segment = files.setdefault(parsed.segment_id, {})
        of_segment[parsed.kind] = RemoteFile(path / entry.name, entry.size_bytes, entry.modified_ns)
    segments = {each: RemoteSegmentFiles(each, offsets[each], files[each]) for each in files}
    return RemoteListing(path, segments, tuple(sorted(foreign)))
