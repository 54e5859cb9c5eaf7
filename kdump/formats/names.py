"""Names of the files and directories of a log directory.

Inside a partition::

    <offset, 20 digits>.log|.index|.timeindex|.txnindex|.snapshot [.swap|.cleaned|.deleted]
    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint [.deleted]           KRaft snapshots
    <end offset, 20 digits>-<epoch, 10 digits>-<random>.checkpoint.part        one being written
    <offset, 11 or 20 digits>.kafka                                            Kafka 0.7
    leader-epoch-checkpoint, partition.metadata, quorum-state [.tmp]

and the directory of a partition::

    <topic>-<partition>
    <topic>-<partition>.<unique id>-delete|-future|-stray
    <topic>_<partition>                                                        Kafka 0.7's design

kdump has names of its own, which a broker ignores::

    damaged-<name of a file>-<first byte>-<last, exclusive> [.<number>]        inside a partition
    .kdump-<anything>                                                          beside partitions

Follows ``LocalLog.parseTopicPartitionName``, ``LogFileUtils`` and ``Snapshots``.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Final, NamedTuple

from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.java.java_numbers import parse_int, parse_long

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
QUORUM_STATE: Final = "quorum-state"

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
CLEAN_SHUTDOWN_MARKER: Final = ".kafka_cleanshutdown"
LOCK_FILE: Final = ".lock"
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
"""A directory beside the partitions that Kafka does not treat as one (``RemoteIndexCache``)."""

TEMPORARY_SUFFIX: Final = ".tmp"
"""Suffix of small files while they are written, before they are renamed."""

KDUMP_PREFIX: Final = ".kdump-"
"""Prefix of the names that kdump uses in the root of a log directory."""

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
COORDINATOR_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Topics that brokers write themselves, as coordinators (``Topic.INTERNAL_TOPICS``)."""

PARTITION_FILES: Final = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, QUORUM_STATE})
"""The files of a partition that are not named after an offset."""

OFFSET_CHECKPOINTS: Final = frozenset(
    {
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT,
    }
)
"""Files in every log directory of a broker since 0.8, and in no other directory: an offset for each
partition."""

LOG_DIRECTORY_FILES: Final = frozenset(
    {
        *OFFSET_CHECKPOINTS,
        META_PROPERTIES,
        BOOTSTRAP_CHECKPOINT,
        CLEAN_SHUTDOWN_MARKER,
        LOCK_FILE,
    }
)
"""The files that Kafka itself keeps in the root of a log directory."""


class TopicPartition(NamedTuple):
    """A topic and one of its partitions; prints as ``topic-0``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


CLUSTER_METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)


class FileKind(enum.Enum):
    """What a file that is named after an offset holds; the value is its extension."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    LOG_0_7 = ".kafka"

    def __init__(self, extension: str) -> None:
        # To get the value takes a call, and listings need that of 100,000 files.
        self.extension = extension


class FileStage(enum.Enum):
    """The stage of a file; the value is the suffix after its extension."""

    LIVE = ""
    CLEANED = ".cleaned"
    """Being written, by the cleaner or by a split; dropped when the broker starts."""
    SWAP = ".swap"
    """Complete, and replacing other files; a starting broker finishes the replacement."""
    DELETED = ".deleted"
    """Out of use, waiting for its deletion."""


class PartitionState(enum.Enum):
    """The state of a partition by the name of its directory; the value is the suffix."""

    LIVE = ""
    FUTURE = "-future"
    """A copy that is being moved from another log directory of the same broker."""
    DELETE = "-delete"
    """Its topic was deleted, but not yet its files."""
    STRAY = "-stray"
    """A broker found that it does not belong here."""


_OFFSET_DIGITS: Final = 20
_LARGEST_OFFSET: Final = 2**63 - 1
_OFFSET_FILES: Final = {
    kind.value + stage.value: (kind, stage)
    for kind in FileKind
    if kind is not FileKind.LOG_0_7
    for stage in FileStage
}
"""What follows the digits, and what it says."""
_OFFSET_FILE_0_7: Final = re.compile(r"([0-9]{11}|[0-9]{20})\.kafka")


class OffsetFileName(NamedTuple):
    """The name of a file that begins with an offset. A tuple, because listings make so many.

    Attributes:
        offset: base offset of the segment; of a producer snapshot, the offset at which it was
            taken; in Kafka 0.7 a byte position in the stream.
        stage: live, or a leftover.
    """

    offset: int
    kind: FileKind
    stage: FileStage = FileStage.LIVE

    def __str__(self) -> str:
        return f"{self.offset:020d}{self.kind.extension}{self.stage.value}"


@functools.lru_cache(maxsize=4096)
def parse_offset_file_name(name: str) -> OffsetFileName | None:
    """Parse a file's name; None for a name that Kafka does not write.

    A loading broker is less strict: it treats ``7.log`` as a segment at 7, and then looks for it
    under the name with twenty digits. Such a file is foreign here.

    Partitions share many names (``00000000000000000000.log``), so results are cached.
    """
    digits, known = name[:_OFFSET_DIGITS], _OFFSET_FILES.get(name[_OFFSET_DIGITS:])
    if known is not None and digits.isascii() and digits.isdigit():
        offset = int(digits)
        return OffsetFileName(offset, *known) if offset <= _LARGEST_OFFSET else None
    match = _OFFSET_FILE_0_7.fullmatch(name)
    if match is None or int(match[1]) > _LARGEST_OFFSET:
        return None
    return OffsetFileName(int(match[1]), FileKind.LOG_0_7)


def is_0_7_log(name: str) -> bool:
    """Whether a file is a log of Kafka 0.7, by its name."""
    parsed = parse_offset_file_name(name)
    return parsed is not None and parsed.kind is FileKind.LOG_0_7


def has_no_records(name: str) -> bool:
    """Whether a file is an index or a producer snapshot, at whatever stage, by its name."""
    parsed = parse_offset_file_name(name)
    return parsed is not None and parsed.kind not in (FileKind.LOG, FileKind.LOG_0_7)


def leading_offset(name: str) -> int | None:
    """Parse the number before the first dot of a name, as a loading broker does.

    None where there is none (``LogFileUtils.offsetFromFileName``).
    """
    stem, dot, _ = name.partition(".")
    return parse_long(stem) if dot else None


NUMBERED_SUFFIXES: Final = (
    *(kind.value for kind in FileKind if kind is not FileKind.LOG_0_7),
    FileStage.CLEANED.value,
    FileStage.SWAP.value,
)
"""A loading broker reads an offset from the name of what ends so, and fails if there is none."""


def misnamed_base_offset(name: str) -> int | None:
    """Where a loading broker begins a segment because of a name that Kafka does not write.

    It renames a ``.swap`` first. Then it opens the log under the name with twenty digits, and makes
    an empty one if there is none; what is in the file it does not read
    (``LogLoader.loadSegmentFiles``).

    Returns:
        None for other names.
    """
    is_log = name.removesuffix(FileStage.SWAP.value).endswith(FileKind.LOG.value)
    return leading_offset(name) if is_log and parse_offset_file_name(name) is None else None


def is_partition_file(name: str) -> bool:
    """Whether Kafka gives files in a partition's directory such a name."""
    return (
        name in PARTITION_FILES
        or parse_offset_file_name(name) is not None
        or parse_metadata_snapshot_name(name) is not None
    )


_QUARANTINED: Final = re.compile(r"damaged-(.+)-(\d+)-(\d+)(?:\.\d+)?", re.DOTALL)


def quarantined_from(name: str) -> str | None:
    """Give the name of the file whose quarantined bytes are in ``name``; None for other files."""
    match = _QUARANTINED.fullmatch(name)
    return match and match[1]


def quarantined_range(name: str) -> tuple[str, int, int] | None:
    """Give the file and its bytes, from and to, that are quarantined in ``name``."""
    match = _QUARANTINED.fullmatch(name)
    return None if match is None else (match[1], int(match[2]), int(match[3]))


class SnapshotStage(enum.Enum):
    """The stage of a KRaft snapshot; the value is the suffix after ``.checkpoint``."""

    LIVE = ""
    PARTIAL = ".part"
    DELETED = ".deleted"


class MetadataSnapshotName(Struct, frozen=True):
    """The name of a KRaft snapshot.

    Attributes:
        end_offset: first offset that the snapshot does not cover.
        epoch: leader epoch of the last record that it covers.
        stage: complete, being written, or waiting for its deletion.
        unique_part: the text between epoch and extension while it is written, else empty.
    """

    end_offset: int
    epoch: int
    stage: SnapshotStage = SnapshotStage.LIVE
    unique_part: str = ""

    def __str__(self) -> str:
        return (
            f"{self.end_offset:020d}-{self.epoch:010d}{self.unique_part}"
            f".checkpoint{self.stage.value}"
        )


_METADATA_SNAPSHOT: Final = re.compile(
    r"([0-9]{20})-([0-9]{10})(.*)\.checkpoint(|\.part|\.deleted)", re.DOTALL
)
_SNAPSHOT_STAGES: Final = {stage.value: stage for stage in SnapshotStage}


METADATA_SNAPSHOT_SUFFIXES: Final = (".checkpoint", ".checkpoint.part", ".checkpoint.deleted")
"""What a name in the directory of the cluster's metadata ends with only if it is a snapshot's."""


def parse_metadata_snapshot_name(name: str) -> MetadataSnapshotName | None:
    """Parse the name of a KRaft snapshot; None for any other name."""
    match = _METADATA_SNAPSHOT.fullmatch(name)
    if match is None:
        return None
    end_offset, epoch = parse_long(match[1]), parse_int(match[2])
    if end_offset is None or epoch is None:
        return None
    return MetadataSnapshotName(end_offset, epoch, _SNAPSHOT_STAGES[match[4]], match[3])


class PartitionDirectoryName(NamedTuple):
    """The name of a partition's directory.

    Attributes:
        topic: as the name has it; in a ``-delete`` or ``-stray`` directory it may be cut short,
            because the whole name has 255 characters at most.
        state: live, or one of the three suffixes.
        unique_id: the text between partition and suffix (32 hexadecimal digits, if Kafka generated
            it); empty for a live partition.
    """

    topic: str
    partition: int
    state: PartitionState = PartitionState.LIVE
    unique_id: str = ""

    def __str__(self) -> str:
        name = f"{self.topic}-{self.partition}"
        if self.state is not PartitionState.LIVE:
            name += f".{self.unique_id}{self.state.value}"
        return name

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


_SUFFIXED_DIRECTORY: Final = re.compile(r"\S+-\S+\.\S+(?:-delete|-future|-stray)", re.ASCII)
_SUFFIXED_STATES: Final = tuple(s for s in PartitionState if s is not PartitionState.LIVE)
_SUFFIXES: Final = tuple(state.value for state in _SUFFIXED_STATES)


@functools.lru_cache(maxsize=64)
def parse_partition_directory_name(name: str) -> PartitionDirectoryName:
    """Parse the name of a directory in a log directory; the last names are cached.

    Raises:
        FormatError: for a name that Kafka refuses; a broker does not start on a log directory
            that has one (``LocalLog.parseTopicPartitionName``).
    """
    state, stem, unique_id = PartitionState.LIVE, name, ""
    for suffixed in _SUFFIXED_STATES if name.endswith(_SUFFIXES) else ():
        if name.endswith(suffixed.value):
            if not _SUFFIXED_DIRECTORY.fullmatch(name):
                raise _refused(name, f"TOPIC-PARTITION.ID{suffixed.value}")
            state = suffixed
            stem, _, rest = name.rpartition(".")
            unique_id = rest.removesuffix(suffixed.value)
    topic, dash, digits = stem.rpartition("-")
    partition = parse_int(digits)
    if not dash or not topic or partition is None:
        raise _refused(name, "TOPIC-PARTITION")
    return PartitionDirectoryName(topic, partition, state, unique_id)


def may_be_cut(name: str) -> bool:
    """Whether the topic may be cut short in the name of a ``-delete`` or ``-stray`` directory."""
    return len(name) == 255  # LocalLog.logDeleteDirName


OF_FILE_SYSTEMS: Final = frozenset({"lost+found", ".snapshot", ".snapshots", ".zfs"})
"""Directories that file systems have in their root, and that nobody can move."""


def is_accepted_name(name: str) -> bool:
    """Whether a broker treats a directory of this name as a partition."""
    try:
        parse_partition_directory_name(name)
    except FormatError:
        return False
    return True


_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_kafkas_name(name: str) -> bool:
    """Whether Kafka itself can have created a directory with a name that it accepts.

    A broker loads ``old topic-0`` and ``topic-00``, but then writes a checkpoint that it cannot
    read, or has two directories for one partition. No topic has such a name
    (``org.apache.kafka.common.internals.Topic.validate``).
    """
    parsed = parse_partition_directory_name(name)
    return is_topic_name(parsed.topic) and parsed.partition >= 0 and str(parsed) == name


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name. Follows ``Topic.validate``."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _refused(name: str, expected: str) -> FormatError:
    return FormatError(
        "directory name is not that of a partition", expected=expected, found=repr(name)
    )


_DIRECTORY_0_7: Final = re.compile(r"(.+)[-_]([0-9]{1,10})", re.DOTALL)


def parse_0_7_directory_name(name: str) -> TopicPartition | None:
    """Parse the name of a Kafka 0.7 partition; None for any other name.

    Both ``topic_0``, as in the design, and ``topic-0``, as brokers created them.
    """
    match = _DIRECTORY_0_7.fullmatch(name)
    partition = parse_int(match[2]) if match else None
    return None if match is None or partition is None else TopicPartition(match[1], partition)
