"""A log directory: the partitions in it, and the files that speak of all of them.

What a broker keeps in each directory that its ``log.dirs`` names. Other directories can be asked
about too: :func:`directory_kind` says what one is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.clean_shutdown import CleanShutdown, decode_clean_shutdown
from kdump.formats.errors import FormatError
from kdump.formats.meta_properties import MetaProperties, decode_meta_properties
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.partition import Partition, read_partition
from kdump.log.problems import FileProblem
from kdump.phases import Phase, phase
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location

Offsets = Mapping[TopicPartition, int]
Value = TypeVar("Value")


class DirectoryKind(enum.Enum):
    """What a directory is; the value says it in words."""

    LOG_DIRECTORY = "log directory"
    METADATA_DIRECTORY = "metadata log directory"
    """A log directory with nothing in it but the cluster's metadata."""
    LOG_DIRECTORY_0_7 = "log directory of Kafka 0.7"
    PARTITION = "partition"
    PARTITION_0_7 = "partition of Kafka 0.7"
    NOT_KAFKA = "not a directory of Kafka's"

    @property
    def is_log_directory(self) -> bool:
        """Whether partitions are in it, rather than segments or nothing of Kafka's."""
        return self in (
            DirectoryKind.LOG_DIRECTORY,
            DirectoryKind.METADATA_DIRECTORY,
            DirectoryKind.LOG_DIRECTORY_0_7,
        )

    @property
    def is_partition(self) -> bool:
        return self in (DirectoryKind.PARTITION, DirectoryKind.PARTITION_0_7)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What the four offset checkpoints in the root of a log directory say.

    Each is None where its file is missing or cannot be read. A broker takes both for empty.

    Attributes:
        recovery_points: up to which offset each partition's log was flushed, exclusive; after a
            clean stop, where the log ends.
        log_start_offsets: only of partitions that begin behind their first segment's base offset.
        high_watermarks: of the partitions that the broker was a replica of.
        cleaner_offsets: first offset that the cleaner has not been over, of compacted partitions.
    """

    recovery_points: Offsets | None = None
    log_start_offsets: Offsets | None = None
    high_watermarks: Offsets | None = None
    cleaner_offsets: Offsets | None = None

    def by_file_name(self) -> dict[str, Offsets | None]:
        """What each file says, by its name."""
        return {
            names.RECOVERY_POINT_CHECKPOINT: self.recovery_points,
            names.LOG_START_OFFSET_CHECKPOINT: self.log_start_offsets,
            names.REPLICATION_OFFSET_CHECKPOINT: self.high_watermarks,
            names.CLEANER_OFFSET_CHECKPOINT: self.cleaner_offsets,
        }


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory as it lies on disk.

    Attributes:
        path: the directory.
        kind: one of the three kinds of log directories.
        is_clean: whether the marker of a clean stop is there. It holds for the whole directory.
        clean_shutdown: what the marker says; None without one, or where it says nothing readable.
        has_lock_file: whether ``.lock`` is there: a broker runs on it, or did not stop cleanly.
        meta_properties: None where there are none, or none readable.
        checkpoints: the four of them.
        partitions: by topic, number and state.
        unreadable: names of the partitions whose directories cannot be listed.
        refused: names of directories that keep a broker from starting here, or that no partition
            can have. Nothing is known of what is in them, and nothing is done to them.
        foreign: names of files that are not Kafka's.
        problems: what could not be read, or is malformed.
    """

    path: Location
    kind: DirectoryKind
    is_clean: bool
    clean_shutdown: CleanShutdown | None
    has_lock_file: bool
    meta_properties: MetaProperties | None
    checkpoints: Checkpoints
    partitions: tuple[Partition, ...]
    unreadable: tuple[str, ...]
    refused: tuple[str, ...]
    foreign: tuple[str, ...]
    problems: tuple[FileProblem, ...]


def directory_kind(path: Location) -> DirectoryKind:
    """What the directory is, by the names in it and, where those leave doubt, one level below.

    Raises:
        OSError: it cannot be listed.
    """
    files, directories = _listed(path)
    if any(map(names.is_partition_file, files)):
        is_0_7 = any(map(_is_0_7_file, files))
        return DirectoryKind.PARTITION_0_7 if is_0_7 else DirectoryKind.PARTITION
    if not _BROKER_FILES.isdisjoint(files):
        return DirectoryKind.LOG_DIRECTORY
    partitions = [name for name in directories if names.is_accepted_name(name)]
    if partitions and all(map(_is_metadata_name, partitions)):
        return DirectoryKind.METADATA_DIRECTORY
    for name in directories:
        if names.parse_0_7_directory_name(name) or names.is_accepted_name(name):
            kind = _kind_or_none(path / name)
            if kind is DirectoryKind.PARTITION:
                return DirectoryKind.LOG_DIRECTORY
            if kind is DirectoryKind.PARTITION_0_7:
                return DirectoryKind.LOG_DIRECTORY_0_7
    if not _ROOT_FILES.isdisjoint(files):
        return DirectoryKind.LOG_DIRECTORY
    return DirectoryKind.NOT_KAFKA


def read_lone_partition(path: Location, name: str) -> Partition:
    """List a partition's directory that is looked at on its own.

    Args:
        path: the directory.
        name: by which to tell what partition it is; any name will do.

    Raises:
        OSError: as :func:`~kdump.log.partition.read_partition`.
    """
    try:
        parsed = names.parse_partition_directory_name(name)
    except FormatError:
        return read_partition(path, names.parse_0_7_directory_name(name))
    return read_partition(path, parsed.topic_partition, parsed.state)


def log_directories_below(path: Location) -> list[Location]:
    """The log directories directly inside ``path``, as where several disks are mounted.

    Raises:
        OSError: ``path`` cannot be listed; what cannot be listed inside it is left out.
    """
    _, directories = _listed(path)
    kinds = {name: _kind_or_none(path / name) for name in sorted(directories)}
    return [path / name for name, kind in kinds.items() if kind and kind.is_log_directory]


def _every(name: str, topic_partition: TopicPartition) -> bool:
    return True


def read_log_directory(
    path: Location,
    kind: DirectoryKind | None = None,
    *,
    select: Callable[[str, TopicPartition], bool] = _every,
) -> LogDirectory:
    """Look a log directory over: its own files are read, its partitions listed.

    Args:
        path: the directory.
        kind: what :func:`directory_kind` gave for it, if that was asked.
        select: which partitions to list, by the directory's name and what it stands for; the
            others are passed over.

    Raises:
        OSError: the directory itself cannot be listed. What cannot be read inside it is among
            the ``problems``.
    """
    with phase(f"listing {path}") as listing:
        return _read(path, directory_kind(path) if kind is None else kind, select, listing)


def _read(
    path: Location,
    kind: DirectoryKind,
    select: Callable[[str, TopicPartition], bool],
    listing: Phase,
) -> LogDirectory:
    files, directories = _listed(path)
    reader = _Reader(path, files)
    partitions, unreadable, refused = [], [], []
    listing.total = len(directories)
    for name in listing.over(directories):
        if name == names.REMOTE_INDEX_CACHE:
            continue
        try:
            topic_partition, state = _identity(name, kind)
        except FormatError:
            refused.append(name)
            continue
        if kind is not DirectoryKind.LOG_DIRECTORY_0_7 and not names.is_kafkas_name(name):
            refused.append(name)
            continue
        if not select(name, topic_partition):
            continue
        try:
            partitions.append(read_partition(path / name, topic_partition, state))
        except OSError as failure:
            unreadable.append(name)
            reader.problems.append(FileProblem(path / name, failure))
    return LogDirectory(
        path=path,
        kind=kind,
        is_clean=names.CLEAN_SHUTDOWN_MARKER in files,
        clean_shutdown=reader.read(names.CLEAN_SHUTDOWN_MARKER, decode_clean_shutdown),
        has_lock_file=names.LOCK_FILE in files,
        meta_properties=reader.read(names.META_PROPERTIES, decode_meta_properties),
        checkpoints=Checkpoints(
            recovery_points=reader.read_offsets(names.RECOVERY_POINT_CHECKPOINT),
            log_start_offsets=reader.read_offsets(names.LOG_START_OFFSET_CHECKPOINT),
            high_watermarks=reader.read_offsets(names.REPLICATION_OFFSET_CHECKPOINT),
            cleaner_offsets=reader.read_offsets(names.CLEANER_OFFSET_CHECKPOINT),
        ),
        partitions=tuple(sorted(partitions, key=_order)),
        unreadable=tuple(sorted(unreadable)),
        refused=tuple(sorted(refused)),
        foreign=tuple(sorted(files - names.LOG_DIRECTORY_FILES - _TEMPORARY_NAMES)),
        problems=tuple(reader.problems),
    )


_BROKER_FILES: Final = frozenset(
    {
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_OFFSET_CHECKPOINT,
        names.REPLICATION_OFFSET_CHECKPOINT,
        names.CLEANER_OFFSET_CHECKPOINT,
    }
)
"""Files that are in every directory where a broker of 0.8 or later keeps logs, and nowhere else."""
_ROOT_FILES: Final = names.LOG_DIRECTORY_FILES - {names.LOCK_FILE}
"""Files that tell a log directory from one of somebody else's; anyone can have a ``.lock``."""
_TEMPORARY_NAMES: Final = frozenset(
    name + names.TEMPORARY_SUFFIX for name in names.LOG_DIRECTORY_FILES
)
_STATE_ORDER: Final = list(PartitionState)


def _order(partition: Partition) -> tuple[str, int, int, str]:
    topic, number = partition.topic_partition or (partition.path.name, -1)
    return topic, number, _STATE_ORDER.index(partition.state), partition.path.name


class _Reader:
    """Reads the files in the root of a log directory, and keeps what is wrong with them."""

    def __init__(self, path: Location, files: set[str]) -> None:
        self.path = path
        self.files = files
        self.problems: list[FileProblem] = []

    def read(self, name: str, decode: Callable[[bytes], Value]) -> Value | None:
        if name not in self.files:
            return None
        path = self.path / name
        try:
            return decode(path.read())
        except (OSError, FormatError) as problem:
            self.problems.append(FileProblem(path, problem))
            return None

    def read_offsets(self, name: str) -> Offsets | None:
        entries = self.read(name, decode_offset_checkpoint)
        return None if entries is None else dict(entries)


def _listed(path: Location) -> tuple[set[str], list[str]]:
    """Names of the files in a directory, and of the directories (links to them are such)."""
    files, directories = set[str](), list[str]()
    for entry in path.entries():
        if entry.kind is EntryKind.DIRECTORY:
            directories.append(entry.name)
        else:
            files.add(entry.name)
    return files, directories


def _identity(name: str, kind: DirectoryKind) -> tuple[TopicPartition, PartitionState]:
    """Which partition a directory is by its name; FormatError where it is none."""
    if kind is DirectoryKind.LOG_DIRECTORY_0_7:
        topic_partition = names.parse_0_7_directory_name(name)
        if topic_partition is not None:
            return topic_partition, PartitionState.LIVE
    parsed = names.parse_partition_directory_name(name)
    return parsed.topic_partition, parsed.state


def _is_metadata_name(name: str) -> bool:
    return names.parse_partition_directory_name(name).topic == names.CLUSTER_METADATA_TOPIC


def _is_0_7_file(name: str) -> bool:
    parsed = names.parse_offset_file_name(name)
    return parsed is not None and parsed.kind is names.FileKind.LOG_0_7


def _kind_or_none(path: Location) -> DirectoryKind | None:
    """What the directory is; None where it cannot be listed."""
    try:
        return directory_kind(path)
    except OSError:
        return None
