"""A log directory, as ``log.dirs`` names it: its partitions, and the files in its root.

:func:`directory_kind` says what any other directory is.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.clean_shutdown import CleanShutdown, decode_clean_shutdown
from kdump.formats.errors import FormatError
from kdump.formats.meta_properties import MetaProperties, decode_meta_properties
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.lock_holders import is_locked, note_holder, was_deleted_in
from kdump.log.partition import Partition, read_partition
from kdump.log.problems import FileProblem
from kdump.log.settled_listing import read_settled_partition
from kdump.phases import phase
from kdump.storage.entries import BrokenLinkError, EntryKind
from kdump.storage.location import Location

Offsets = Mapping[TopicPartition, int]
Value = TypeVar("Value")


class DirectoryKind(enum.Enum):
    """What a directory is; the value is its name in messages."""

    LOG_DIRECTORY = "log directory"
    METADATA_DIRECTORY = "metadata log directory"
    """A log directory with only the cluster's metadata."""
    LOG_DIRECTORY_0_7 = "log directory of Kafka 0.7"
    PARTITION = "partition"
    PARTITION_0_7 = "partition of Kafka 0.7"
    NOT_KAFKA = "not a directory of Kafka's"

    @property
    def is_log_directory(self) -> bool:
        """Whether it contains partitions."""
        return self in (
            DirectoryKind.LOG_DIRECTORY,
            DirectoryKind.METADATA_DIRECTORY,
            DirectoryKind.LOG_DIRECTORY_0_7,
        )

    @property
    def is_partition(self) -> bool:
        return self in (DirectoryKind.PARTITION, DirectoryKind.PARTITION_0_7)


class Checkpoints(Struct, frozen=True):
    """The four offset checkpoints in the root of a log directory.

    Each is None if its file is missing or cannot be read.

    Attributes:
        recovery_points: up to which offset each log was flushed, exclusive; after a clean
            shutdown, where the log ends.
        log_start_offsets: only of partitions that begin after the base offset of their first
            segment.
        high_watermarks: of the partitions that the broker had a replica of.
        cleaner_offsets: the first offset not yet cleaned, of compacted partitions.
    """

    recovery_points: Offsets | None = None
    log_start_offsets: Offsets | None = None
    high_watermarks: Offsets | None = None
    cleaner_offsets: Offsets | None = None

    def by_file_name(self) -> dict[str, Offsets | None]:
        """Return the offsets by the name of their file."""
        return {
            names.RECOVERY_POINT_CHECKPOINT: self.recovery_points,
            names.LOG_START_OFFSET_CHECKPOINT: self.log_start_offsets,
            names.REPLICATION_OFFSET_CHECKPOINT: self.high_watermarks,
            names.CLEANER_OFFSET_CHECKPOINT: self.cleaner_offsets,
        }


class LogDirectory(Struct, frozen=True):
    """A log directory: its own files, and its partitions as they are listed.

    Attributes:
        kind: one of the three kinds of log directories.
        is_clean: whether the clean shutdown marker exists, and a broker can delete it. It covers
            the whole directory.
        clean_shutdown: its content; None if it is missing or not readable.
        has_lock_file: whether ``.lock`` exists: a broker uses the directory, or was killed.
        meta_properties: None if the file is missing or not readable.
        partitions: by topic, number and state.
        identities: partition and state, by the names of all directories of partitions, also of
            those that were not selected; in this order.
        unreadable: names of the partitions whose directories cannot be listed; for who lists them
            as a broker loads them also of those that no broker loads.
        absent: names of the selected partitions that are symbolic links to nothing, as where their
            disk is not mounted. A broker does not see them, and each is among the problems, too.
        refused: names of directories that stop a broker from starting, or that no partition can
            have. They are neither listed nor changed.
        foreign: names of files that are not Kafka's.
        problems: files that cannot be read or are malformed.
    """

    path: Location
    kind: DirectoryKind
    is_clean: bool
    clean_shutdown: CleanShutdown | None
    has_lock_file: bool
    meta_properties: MetaProperties | None
    checkpoints: Checkpoints
    partitions: tuple[Partition, ...]
    identities: tuple[tuple[TopicPartition, PartitionState], ...]
    unreadable: tuple[str, ...]
    refused: tuple[str, ...]
    foreign: tuple[str, ...]
    problems: tuple[FileProblem, ...]
    absent: tuple[str, ...] = ()

    @property
    def cluster_id(self) -> str | None:
        """Of its cluster; None if it does not say."""
        return None if self.meta_properties is None else self.meta_properties.cluster_id

    @property
    def node_id(self) -> int | None:
        """Of its broker; None if it does not say."""
        return None if self.meta_properties is None else self.meta_properties.node_id

    @property
    def directory_id(self) -> str | None:
        """Its own id in Kafka's form; None if it has none, or it is not known."""
        properties = self.meta_properties
        return None if properties is None else properties.directory_id_text

    def not_loaded(self) -> list[TopicPartition]:
        """The live partitions whose directories cannot be listed, or that no broker loads."""
        parsed = map(names.parse_partition_directory_name, self.unreadable)
        return [each.topic_partition for each in parsed if each.state is PartitionState.LIVE]

    def unlisted(self, select: Callable[[str, TopicPartition], bool]) -> list[FileProblem]:
        """Why partitions are absent or cannot be listed, of those for which ``select`` is true."""
        return [
            each
            for each in self.problems
            if each.path.name in (*self.unreadable, *self.absent)
            and select(each.path.name, _identity(each.path.name, self.kind)[0])
        ]

    def load_offsets(self, key: TopicPartition) -> tuple[int, int | None]:
        """The log start offset and the flushed offset with which a broker loads a live log.

        Both are 0 without a line in their checkpoint. After a clean shutdown there is no flushed
        offset, because nothing is recovered.
        """
        start = (self.checkpoints.log_start_offsets or {}).get(key, 0)
        if self.is_clean:
            return start, None
        return start, (self.checkpoints.recovery_points or {}).get(key, 0)

    def offset_problems(self) -> tuple[FileProblem, ...]:
        """Why :meth:`load_offsets` lacks offsets: checkpoints unreadable or malformed."""
        used = (
            (names.LOG_START_OFFSET_CHECKPOINT,)
            if self.is_clean
            else (names.LOG_START_OFFSET_CHECKPOINT, names.RECOVERY_POINT_CHECKPOINT)
        )
        return tuple(each for each in self.problems if each.path.name in used)


def directory_kind(path: Location) -> DirectoryKind:
    """Say what a directory is by the names in it and, in doubt, one level below.

    Raises:
        OSError: it cannot be listed.
    """
    files, directories, _ = _listed(path)
    if not names.OFFSET_CHECKPOINTS.isdisjoint(files):
        return DirectoryKind.LOG_DIRECTORY
    partitions = [name for name in directories if names.is_accepted_name(name)]
    if partitions and all(map(_is_metadata_name, partitions)):
        return DirectoryKind.METADATA_DIRECTORY
    for name in directories:
        is_accepted = names.is_accepted_name(name)
        if is_accepted or names.parse_0_7_directory_name(name):
            kind = _partition_kind_below(path / name)
            # ``copy_1`` is the name of a partition of 0.7 only: of others it is a copy's.
            if kind is DirectoryKind.PARTITION and is_accepted:
                return DirectoryKind.LOG_DIRECTORY
            if kind is DirectoryKind.PARTITION_0_7:
                return DirectoryKind.LOG_DIRECTORY_0_7
    # Only now: a segment that somebody copied beside the partitions hides none of them.
    kind = _partition_kind(files)
    if kind is not None:
        return kind
    if not _ROOT_FILES.isdisjoint(files):
        return DirectoryKind.LOG_DIRECTORY
    return DirectoryKind.NOT_KAFKA


def read_lone_partition(path: Location, name: str, *, keep_entries: bool = False) -> Partition:
    """List the directory of a single partition.

    Args:
        name: the name that says which partition it is; it need not be one of Kafka's.
        keep_entries: as for :func:`~kdump.log.partition.read_partition`.

    Raises:
        OSError: as :func:`~kdump.log.partition.read_partition`.
    """
    try:
        parsed = names.parse_partition_directory_name(name)
    except FormatError:
        key = names.parse_0_7_directory_name(name)
        return read_partition(path, key, keep_entries=keep_entries)
    if parsed.topic == names.CLUSTER_METADATA_TOPIC:
        # Named by itself, a copy that was moved aside is what the question is about.
        return read_partition(path, parsed.topic_partition, keep_entries=keep_entries)
    return read_partition(path, parsed.topic_partition, parsed.state, keep_entries=keep_entries)


def what_is_there_instead(path: Location) -> str:
    """What a directory that is none of Kafka's has, to be added to a message that says so.

    Raises:
        OSError: it cannot be listed.
    """
    if inside := log_directories_below(path):
        return f"; it contains log directories: {' '.join(map(str, inside))}"
    return "" if path.entries() else "; it is empty: is its disk mounted?"


def log_directories_below(path: Location) -> list[Location]:
    """List the log directories directly inside ``path``, where several disks may be mounted.

    Directories that cannot be listed are left out.

    Raises:
        OSError: ``path`` cannot be listed.
    """
    _, directories, _ = _listed(path)
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
    """Read the files in the root of a log directory, and list its partitions.

    Args:
        kind: from :func:`directory_kind`, if it is known.
        select: which partitions to list, by the name of the directory and the partition.

    Raises:
        OSError: the directory itself cannot be listed. What cannot be read inside it is in
            ``problems``.
        KdumpError: a broker was using it, and it is gone.
    """
    with phase(f"listing {path}") as listing:
        root, places = read_root(path, kind, select=select)
        listing.total = len(places)
        partitions, unreadable, problems = [], [], []
        for place in listing.over(places):
            try:
                partitions.append(place.read(path))
            except OSError as failure:
                if isinstance(failure, FileNotFoundError) and was_deleted_in(path):
                    continue  # the broker has deleted or renamed it meanwhile
                unreadable.append(place.name)
                problems.append(FileProblem(path / place.name, failure))
    return msgspec.structs.replace(
        root,
        partitions=tuple(sorted(partitions, key=_order)),
        unreadable=tuple(sorted(unreadable)),
        problems=(*problems, *root.problems),
    )


class PartitionPlace(NamedTuple):
    """The directory of a partition in a log directory, by its name."""

    name: str
    topic_partition: TopicPartition
    state: PartitionState

    @property
    def order(self) -> tuple[str, int, int, str]:
        """The order of partitions in a :class:`LogDirectory`."""
        return *self.topic_partition, _STATE_ORDER.index(self.state), self.name

    def read(self, log_directory: Location) -> Partition:
        """List the directory.

        Raises:
            OSError: as :func:`~kdump.log.partition.read_partition`.
        """
        return self._read(log_directory, keep_entries=False)

    def read_with_entries(self, log_directory: Location) -> Partition:
        """As :meth:`read`, and keep the entries of the directory."""
        return self._read(log_directory, keep_entries=True)

    def _read(self, log_directory: Location, *, keep_entries: bool) -> Partition:
        read = read_settled_partition if is_locked(log_directory) else read_partition
        path = log_directory / self.name
        return read(path, self.topic_partition, self.state, keep_entries=keep_entries)


def read_root(
    path: Location,
    kind: DirectoryKind | None = None,
    *,
    select: Callable[[str, TopicPartition], bool] = _every,
) -> tuple[LogDirectory, list[PartitionPlace]]:
    """Read the files in the root of a log directory, and find its partitions without listing them.

    Takes and raises what :func:`read_log_directory` does.

    Returns:
        The log directory as if it had no partitions, and the selected ones, as the storage lists
        them.
    """
    kind = directory_kind(path) if kind is None else kind
    files, directories, links = _listed(path)
    absent = [
        name
        for name in links
        if name not in names.LOG_DIRECTORY_FILES and _is_selected(name, kind, select)
    ]
    reader = _Reader(path, files, links)
    # Kafka asks whether it exists, which a link to nothing does not.
    is_clean = names.CLEAN_SHUTDOWN_MARKER in files - links.keys()
    if names.CLEAN_SHUTDOWN_MARKER in directories:
        directories.remove(names.CLEAN_SHUTDOWN_MARKER)
        is_clean = reader.is_marker_deletable()
    places, identities, refused = [], [], []
    for name in directories:
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
        identities.append((topic_partition, state))
        if select(name, topic_partition):
            places.append(PartitionPlace(name, topic_partition, state))
    note_holder(path)
    root = LogDirectory(
        path=path,
        kind=kind,
        is_clean=is_clean,
        clean_shutdown=reader.read(names.CLEAN_SHUTDOWN_MARKER, decode_clean_shutdown),
        has_lock_file=names.LOCK_FILE in files,
        meta_properties=reader.read(names.META_PROPERTIES, decode_meta_properties),
        checkpoints=Checkpoints(
            recovery_points=reader.read_offsets(names.RECOVERY_POINT_CHECKPOINT),
            log_start_offsets=reader.read_offsets(names.LOG_START_OFFSET_CHECKPOINT),
            high_watermarks=reader.read_offsets(names.REPLICATION_OFFSET_CHECKPOINT),
            cleaner_offsets=reader.read_offsets(names.CLEANER_OFFSET_CHECKPOINT),
        ),
        partitions=(),
        identities=tuple(sorted(identities, key=_identity_order)),
        unreadable=(),
        refused=tuple(sorted(refused)),
        foreign=tuple(sorted(files - names.LOG_DIRECTORY_FILES - _TEMPORARY_NAMES - links.keys())),
        problems=(*(FileProblem(path / name, links[name]) for name in absent), *reader.problems),
        absent=tuple(sorted(absent)),
    )
    return root, places


_ROOT_FILES: Final = names.LOG_DIRECTORY_FILES - {names.LOCK_FILE}
"""Files that only a log directory has; other programs write a ``.lock``, too."""
_TEMPORARY_NAMES: Final = frozenset(
    name + names.TEMPORARY_SUFFIX for name in names.LOG_DIRECTORY_FILES
)
_BROKEN_LINK: Final = (
    "a symbolic link to nothing: a broker starts without this partition, and removes its lines"
    " from the checkpoints; mount its disk first"
)
_STATE_ORDER: Final = list(PartitionState)


def _identity_order(identity: tuple[TopicPartition, PartitionState]) -> tuple[TopicPartition, int]:
    key, state = identity
    return key, _STATE_ORDER.index(state)


def _order(partition: Partition) -> tuple[str, int, int, str]:
    topic, number = partition.topic_partition or (partition.path.name, -1)
    return topic, number, _STATE_ORDER.index(partition.state), partition.path.name


class _Reader:
    """Reads the files in the root of a log directory, and collects their problems."""

    def __init__(self, path: Location, files: set[str], links: Mapping[str, OSError]) -> None:
        self.path = path
        self.files = files
        self.links = links
        self.problems: list[FileProblem] = []

    def read(self, name: str, decode: Callable[[bytes], Value]) -> Value | None:
        if name not in self.files:
            return None
        path = self.path / name
        if name in self.links:
            self.problems.append(FileProblem(path, self.links[name]))
            return None
        try:
            return decode(path.read())
        except (OSError, FormatError) as problem:
            self.problems.append(FileProblem(path, problem))
            return None

    def is_marker_deletable(self) -> bool:
        """Whether a broker can delete the directory in the place of the clean shutdown marker.

        It deletes the marker before it lists the log directory. Only an empty directory, or a link
        to one, goes.
        """
        path = self.path / names.CLEAN_SHUTDOWN_MARKER
        try:
            is_deletable = path.storage.status(path.path).is_link or not path.entries()
        except OSError:
            is_deletable = False
        more = "" if is_deletable else " that is not empty"
        self.problems.append(FileProblem(path, FormatError(f"it is a directory{more}")))
        return is_deletable

    def read_offsets(self, name: str) -> Offsets | None:
        entries = self.read(name, decode_offset_checkpoint)
        return None if entries is None else dict(entries)


def _listed(path: Location) -> tuple[set[str], list[str], dict[str, OSError]]:
    """Sort what is in a directory.

    Returns:
        The names of files; those of directories and of links to directories; and why links with
        names of partitions lead to no directory, or those with names of Kafka's files to nothing.
    """
    files, directories, links = set[str](), list[str](), dict[str, OSError]()
    for entry in path.entries():
        if entry.kind is EntryKind.DIRECTORY:
            directories.append(entry.name)
            continue
        files.add(entry.name)
        if entry.kind is not EntryKind.BROKEN_LINK:
            continue
        where = str(path / entry.name)
        is_circle = entry.error is not None and entry.error.errno == errno.ELOOP
        if entry.name in names.LOG_DIRECTORY_FILES and (is_circle or entry.error is None):
            number, what = (errno.ELOOP, "itself") if is_circle else (errno.ENOENT, "nothing")
            links[entry.name] = BrokenLinkError(number, f"a symbolic link to {what}", where)
        # A link to itself has never been a partition.
        elif names.is_accepted_name(entry.name) and not is_circle:
            links[entry.name] = entry.error or OSError(errno.ENOENT, _BROKEN_LINK, where)
    return files, directories, links


def _is_selected(
    name: str, kind: DirectoryKind, select: Callable[[str, TopicPartition], bool]
) -> bool:
    return select(name, _identity(name, kind)[0])


def _identity(name: str, kind: DirectoryKind) -> tuple[TopicPartition, PartitionState]:
    """Return the partition and its state from the name of a directory.

    Raises:
        FormatError: it is no name of a partition.
    """
    if kind is DirectoryKind.LOG_DIRECTORY_0_7:
        topic_partition = names.parse_0_7_directory_name(name)
        if topic_partition is not None:
            return topic_partition, PartitionState.LIVE
    parsed = names.parse_partition_directory_name(name)
    return parsed.topic_partition, parsed.state


def _is_metadata_name(name: str) -> bool:
    return names.parse_partition_directory_name(name).topic == names.CLUSTER_METADATA_TOPIC


def _partition_kind(files: Iterable[str]) -> DirectoryKind | None:
    """Which kind of partition has these files; None if none of them is a partition's."""
    if not any(map(names.is_partition_file, files)):
        return None
    is_0_7 = any(map(names.is_0_7_log, files))
    return DirectoryKind.PARTITION_0_7 if is_0_7 else DirectoryKind.PARTITION


def _partition_kind_below(path: Location) -> DirectoryKind | None:
    """The same of a directory inside; None if it cannot be listed, too."""
    try:
        files, *_ = _listed(path)
    except OSError:
        return None
    return _partition_kind(files)


def _kind_or_none(path: Location) -> DirectoryKind | None:
    """Return what the directory is; None if it cannot be listed."""
    try:
        return directory_kind(path)
    except OSError:
        return None
