"""A partition's directory: its segments and all other files.

Listing it takes one listing of the directory; nothing is opened. The small files are read on
request.
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field

from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry, decode_leader_epoch_checkpoint
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, FileStage, PartitionState, SnapshotStage, TopicPartition
from kdump.formats.partition_metadata import PartitionMetadata, decode_partition_metadata
from kdump.formats.quorum_state import QuorumState, decode_quorum_state
from kdump.formats.uuids import format_uuid
from kdump.log.segment import Segment
from kdump.storage.entries import SPECIAL_KINDS, Entry, EntryKind, special_file_error
from kdump.storage.location import Location
from kdump.storage.ownership import Ownership


class LeftoverKind(enum.Enum):
    """Why a file with one of Kafka's names is not in use."""

    DELETED = "deleted"
    """Renamed to ``.deleted``, but not yet deleted."""
    CLEANED = "cleaned"
    """Not finished by the cleaner, or by the split of a segment."""
    SWAP = "swap"
    """Complete, but the files that it replaces were not yet deleted."""
    ORPHAN = "orphan"
    """An index without its log."""
    TEMPORARY = "temporary"
    """A small file or a KRaft snapshot that was not finished."""


class Leftover(Struct, frozen=True):
    """A file with one of Kafka's names that is not in use."""

    name: str
    kind: LeftoverKind
    size_bytes: int


class ProducerSnapshotFile(Struct, frozen=True):
    """A ``.snapshot`` file: the producers' state up to ``offset``, exclusive."""

    offset: int
    size_bytes: int


class MetadataSnapshotFile(Struct, frozen=True):
    """A ``.checkpoint`` file of the metadata log: the cluster's state up to ``end_offset``."""

    end_offset: int
    epoch: int
    size_bytes: int


class Partition(Struct, frozen=True):
    """A partition, as its directory is listed.

    Attributes:
        topic_partition: from the directory's name; None if it has another name, as copies may.
        state: from the suffix of the name.
        segments: by base offset.
        producer_snapshots: by offset; without those of stage ``.deleted``.
        metadata_snapshots: of the cluster's metadata, by end offset and epoch; the complete ones.
        leftovers: by name.
        foreign: names of files that are not Kafka's, and of directories.
        total_bytes: of all files, with preallocated space and holes.
        names_on_disk: files that a starting broker renames before it uses them: the name on disk
            by the name in use. Empty for a directory as it is listed.
        entries: of the directory; empty unless they were to be kept.
        ownership: of everything in the directory, if that is files with one owner and the same
            permissions; else None.
    """

    path: Location
    topic_partition: TopicPartition | None
    state: PartitionState
    segments: tuple[Segment, ...]
    producer_snapshots: tuple[ProducerSnapshotFile, ...]
    metadata_snapshots: tuple[MetadataSnapshotFile, ...]
    leftovers: tuple[Leftover, ...]
    foreign: tuple[str, ...]
    total_bytes: int
    names_on_disk: Mapping[str, str] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    ownership: Ownership | None = None

    @property
    def key(self) -> TopicPartition:
        """The partition, of a directory that has the name of one."""
        assert self.topic_partition is not None
        return self.topic_partition

    @property
    def log_bytes(self) -> int:
        """The size of all logs, which Kafka calls the size of the log."""
        return sum(segment.log_bytes for segment in self.segments)

    @property
    def data_bytes(self) -> int:
        """About how much of the logs is to be read; holes are skipped."""
        return sum(segment.data_bytes for segment in self.segments)

    @property
    def is_0_7(self) -> bool:
        return bool(self.segments) and self.segments[0].is_0_7

    @property
    def is_cluster_metadata(self) -> bool:
        """Whether it is the copy of the cluster's metadata that the node uses.

        A copy that was moved aside (``__cluster_metadata-0.…-stray``) is not used by any node.
        """
        return self._is_of_metadata and self.state is PartitionState.LIVE

    @property
    def is_metadata_aside(self) -> bool:
        """Whether it is such a copy, which no broker loads (``LogManager.loadLogs``)."""
        return self._is_of_metadata and self.state in (PartitionState.STRAY, PartitionState.DELETE)

    @property
    def _is_of_metadata(self) -> bool:
        key = self.topic_partition
        return key is not None and key.topic == names.CLUSTER_METADATA_TOPIC

    @property
    def leftover_counts(self) -> Mapping[LeftoverKind, int]:
        return Counter(leftover.kind for leftover in self.leftovers)

    @property
    def unfinished_files(self) -> tuple[Leftover, ...]:
        """The files of new segments that were never swapped in (``.cleaned``)."""
        return tuple(each for each in self.leftovers if each.kind is LeftoverKind.CLEANED)

    def with_following(self) -> Iterator[tuple[Segment, Segment | None]]:
        """Yield each segment with the next one, None after the last."""
        return itertools.zip_longest(self.segments, self.segments[1:])

    def unused_names(self) -> Iterator[str]:
        """Yield the names of leftovers and foreign files."""
        yield from (leftover.name for leftover in self.leftovers)
        yield from self.foreign

    def segment_path(self, segment: Segment, kind: FileKind) -> Location:
        """Return the location of a file of ``segment``, whether it exists or not."""
        return self.file_path(segment.file_name(kind))

    def segment_of(self, log_name: str) -> Segment | None:
        """Return the segment whose log has this name on disk; None if there is none."""
        for segment in self.segments:
            if self.names_on_disk.get(segment.log_name, segment.log_name) == log_name:
                return segment
        return None

    def file_path(self, name: str) -> Location:
        """Return the location of the file in use as ``name``, whether it exists or not."""
        return self.path / self.names_on_disk.get(name, name)

    def read_metadata(self) -> PartitionMetadata | None:
        """Read ``partition.metadata``; None if there is none.

        Raises:
            FormatError: the file is malformed.
            OSError: it cannot be read.
        """
        data = read_if_there(self.path / names.PARTITION_METADATA)
        return None if data is None else decode_partition_metadata(data)

    def read_topic_id(self) -> str | None:
        """Read the id of its topic, as Kafka writes it; None without ``partition.metadata``.

        Raises what :meth:`read_metadata` raises.
        """
        metadata = self.read_metadata()
        return None if metadata is None else format_uuid(metadata.topic_id)

    @property
    def known_topic_id(self) -> str | None:
        """The same where the file can be read: what is wrong with it, verify reports."""
        try:
            return self.read_topic_id()
        except (FormatError, OSError):
            return None

    def read_leader_epochs(self) -> list[EpochEntry] | None:
        """Read ``leader-epoch-checkpoint``; None if there is none.

        Raises:
            FormatError: the file is malformed.
            OSError: it cannot be read.
        """
        data = read_if_there(self.path / names.LEADER_EPOCH_CHECKPOINT)
        return None if data is None else decode_leader_epoch_checkpoint(data)

    def known_leader_epochs(self) -> list[EpochEntry]:
        """Read the same where it is well formed: what is wrong with it, verify reports.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            return self.read_leader_epochs() or []
        except FormatError:
            return []

    def read_quorum_state(self) -> QuorumState | None:
        """Read ``quorum-state``, which only the cluster's metadata has; None if there is none.

        Raises:
            FormatError: the file is malformed.
            OSError: it cannot be read.
        """
        data = read_if_there(self.path / names.QUORUM_STATE)
        return None if data is None else decode_quorum_state(data)


def read_if_there(path: Location) -> bytes | None:
    """The bytes of a file; None if it is missing."""
    try:
        return path.read()
    except FileNotFoundError:
        return None


_LEFTOVER_OF_STAGE: Final = {
    FileStage.CLEANED: LeftoverKind.CLEANED,
    FileStage.SWAP: LeftoverKind.SWAP,
    FileStage.DELETED: LeftoverKind.DELETED,
}
_LEFTOVER_OF_SNAPSHOT_STAGE: Final = {
    SnapshotStage.PARTIAL: LeftoverKind.TEMPORARY,
    SnapshotStage.DELETED: LeftoverKind.DELETED,
}
_TEMPORARY_NAMES: Final = frozenset(name + names.TEMPORARY_SUFFIX for name in names.PARTITION_FILES)
_EXTENSIONS: Final = tuple(kind.extension for kind in FileKind)
_LOG_KINDS: Final = (FileKind.LOG, FileKind.LOG_0_7)
_INDEX_KINDS: Final = (
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
)


def read_partition(
    path: Location,
    topic_partition: TopicPartition | None,
    state: PartitionState = PartitionState.LIVE,
    *,
    keep_entries: bool = False,
) -> Partition:
    """List a partition's directory.

    Args:
        topic_partition: the partition, if it is known.
        state: from its name.
        keep_entries: whether to keep the entries, for who would list the directory again.

    Raises:
        OSError: the directory cannot be listed, the size of a file in it cannot be read, or a
            FIFO, a socket or a device has one of Kafka's names.
    """
    listing = _Listing()
    entries = path.entries()
    for entry in entries:
        if entry.kind is EntryKind.FILE:
            listing.add(entry.name, entry.size_bytes, entry.hole_bytes)
            continue
        if entry.error is not None and not entry.is_link:
            raise entry.error
        if entry.kind in SPECIAL_KINDS and names.is_partition_file(entry.name):
            raise special_file_error(str(path / entry.name), entry.kind, "remove it")
        listing.add(entry.name, None)
    owned = {entry.ownership for entry in entries}
    return listing.partition(
        path,
        topic_partition,
        state,
        entries if keep_entries else (),
        owned.pop() if len(owned) == 1 else None,
    )


def list_partition(
    path: Location,
    topic_partition: TopicPartition | None,
    state: PartitionState,
    files: Iterable[tuple[str, int]],
) -> Partition:
    """Return the partition whose directory has these ``files``: names and sizes in bytes."""
    listing = _Listing()
    for name, size_bytes in files:
        listing.add(name, size_bytes)
    return listing.partition(path, topic_partition, state)


class _Listing:
    """The entries of a directory, sorted by what they are."""

    def __init__(self) -> None:
        # By extension, because a string is hashed faster than an enum member.
        self.sizes: dict[str, dict[int, int]] = {extension: {} for extension in _EXTENSIONS}
        self.hole_bytes: dict[tuple[str, int], int] = {}
        self.names_0_7: dict[int, str] = {}
        self.metadata_snapshots: list[MetadataSnapshotFile] = []
        self.leftovers: list[Leftover] = []
        self.foreign: list[str] = []
        self.total_bytes = 0

    def add(self, name: str, size_bytes: int | None, hole_bytes: int = 0) -> None:
        """Add one entry; a size of None means that it is not a file."""
        if size_bytes is None:
            self.foreign.append(name)
            return
        self.total_bytes += size_bytes
        if name in names.PARTITION_FILES:
            return
        parsed = names.parse_offset_file_name(name)
        if parsed is None:
            self._add_other(name, size_bytes)
        elif parsed.stage is not FileStage.LIVE:
            self.leftovers.append(Leftover(name, _LEFTOVER_OF_STAGE[parsed.stage], size_bytes))
        else:
            self.sizes[parsed.kind.extension][parsed.offset] = size_bytes
            if hole_bytes and parsed.kind in _LOG_KINDS:
                self.hole_bytes[parsed.kind.extension, parsed.offset] = hole_bytes
            if parsed.kind is FileKind.LOG_0_7:
                self.names_0_7[parsed.offset] = name

    def _add_other(self, name: str, size_bytes: int) -> None:
        snapshot = names.parse_metadata_snapshot_name(name)
        if snapshot is None:
            if name in _TEMPORARY_NAMES:
                self.leftovers.append(Leftover(name, LeftoverKind.TEMPORARY, size_bytes))
            else:
                self.foreign.append(name)
        elif snapshot.stage is SnapshotStage.LIVE:
            self.metadata_snapshots.append(
                MetadataSnapshotFile(snapshot.end_offset, snapshot.epoch, size_bytes)
            )
        else:
            kind = _LEFTOVER_OF_SNAPSHOT_STAGE[snapshot.stage]
            self.leftovers.append(Leftover(name, kind, size_bytes))

    def partition(
        self,
        path: Location,
        topic_partition: TopicPartition | None,
        state: PartitionState,
        entries: Iterable[Entry] = (),
        ownership: Ownership | None = None,
    ) -> Partition:
        return Partition(
            path=path,
            topic_partition=topic_partition,
            state=state,
            segments=tuple(self._segments()),
            producer_snapshots=tuple(
                ProducerSnapshotFile(offset, size)
                for offset, size in sorted(self.sizes[FileKind.PRODUCER_SNAPSHOT.extension].items())
            ),
            metadata_snapshots=tuple(
                sorted(self.metadata_snapshots, key=lambda file: (file.end_offset, file.epoch))
            ),
            leftovers=tuple(
                sorted((*self.leftovers, *self._orphans()), key=lambda leftover: leftover.name)
            ),
            foreign=tuple(sorted(self.foreign)),
            total_bytes=self.total_bytes,
            entries=tuple(entries),
            ownership=ownership,
        )

    def _segments(self) -> Iterator[Segment]:
        offset_indexes, time_indexes, transaction_indexes = (
            self.sizes[kind.extension] for kind in _INDEX_KINDS
        )
        for log_kind in _LOG_KINDS:
            for base_offset, log_bytes in sorted(self.sizes[log_kind.extension].items()):
                yield Segment(
                    base_offset=base_offset,
                    log_bytes=log_bytes,
                    offset_index_bytes=offset_indexes.get(base_offset),
                    time_index_bytes=time_indexes.get(base_offset),
                    transaction_index_bytes=transaction_indexes.get(base_offset),
                    log_kind=log_kind,
                    log_name=self.names_0_7.get(base_offset)
                    or f"{base_offset:020d}{log_kind.extension}",
                    hole_bytes=self.hole_bytes.get((log_kind.extension, base_offset), 0),
                )

    def _orphans(self) -> Iterator[Leftover]:
        logs = self.sizes[FileKind.LOG.extension]
        for kind in _INDEX_KINDS:
            for offset, size_bytes in self.sizes[kind.extension].items():
                if offset not in logs:
                    name = str(names.OffsetFileName(offset, kind))
                    yield Leftover(name, LeftoverKind.ORPHAN, size_bytes)
