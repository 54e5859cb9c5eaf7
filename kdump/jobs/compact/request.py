"""Which partitions are to be compacted, why others are left, and what becomes of each."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kdump.broker.cleaner.compaction_preview import Preview
from kdump.broker.cleaner.compaction_round import Compacted
from kdump.broker.loader.checkpoints import is_loaded
from kdump.formats.names import PartitionState
from kdump.jobs.compact.swap import NoSpace
from kdump.jobs.loading import TWICE, Unreadable
from kdump.log.directory import LogDirectory
from kdump.log.partition import LeftoverKind, Partition
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.scan.records import LARGEST_RECORD_BYTES
from kdump.state.config_keys import DELETE_RETENTION_MS, MIN_COMPACTION_LAG_MS
from kdump.state.settings import Settings, TopicSettings
from kdump.storage.location import Location
from kdump.target.refusal import Refusal


class NotCompacted(enum.Enum):
    """Why a partition is left as it is; the value says it."""

    POLICY = "cleanup.policy of its topic is not compact; --force compacts it all the same"
    REMOTE_STORAGE = "remote.storage.enable is set for its topic, of which the log is only a part"
    POLICY_UNKNOWN = (
        "cleanup.policy of its topic is not known; give --server-properties FILE and --metadata"
        " DIR, or name it without a pattern"
    )
    REMOTE_STORAGE_UNKNOWN = (
        "it is not known whether its topic has remote.storage.enable; give --metadata DIR, or name"
        " it without a pattern"
    )
    CLUSTER_METADATA = "a controller's Raft layer cleans it by snapshots, and never compacts it"
    TWICE = TWICE
    KAFKA_0_7 = "its logs are of Kafka 0.7, which knew no keys"
    LEFTOVERS = (
        "files are left over from something that was interrupted; run kdump recover first, or give"
        " --recover"
    )


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """What is to be compacted.

    Attributes:
        directories: log directories, as they lie on disk.
        settings: of their topics, by the path of the directory.
        selection: which partitions.
        all_compacted: whether only those are meant of which it is known that they are compacted.
        force: whether topics are meant, too, that are known not to be compacted.
        is_replicated: whether all logs are replicated up to their ends, whatever the checkpoint
            of their high watermarks says.
        now_ms: what time it is.
        twice: the partitions that are in two directories of a broker.
        largest_record_bytes: a log with larger records in compressed batches is left unchanged.
    """

    directories: Sequence[LogDirectory] = ()
    settings: Mapping[Location, Settings] = field(default_factory=dict)
    selection: PartitionSelection = EVERYTHING
    all_compacted: bool = False
    force: bool = False
    is_replicated: bool = False
    now_ms: int = 0
    twice: Collection[Location] = ()
    largest_record_bytes: int = LARGEST_RECORD_BYTES

    def selects(self, directory: LogDirectory, partition: Partition) -> bool:
        """Whether the partition is meant; copies on their way and deleted ones never are."""
        topic = _topic(partition)
        if partition.state is not PartitionState.LIVE or topic is None:
            return False
        if partition.is_cluster_metadata and not self._names(partition):
            return False  # a pattern does not mean it
        if self.all_compacted:
            settings = self.settings[directory.path].topic(topic)
            return settings.is_policy_known and settings.is_compacted
        return partition in self.selection

    def topic_settings(self, directory: LogDirectory, partition: Partition) -> TopicSettings:
        """The configuration by which a partition is compacted.

        Nobody's default makes tombstones go: where it is not known how long they are kept, only
        those go for which the broker has set the time, unless the topic is named.
        """
        topic = self.settings[directory.path].topic(_topic(partition) or "")
        if DELETE_RETENTION_MS in topic.origins or self._names(partition):
            return topic
        return replace(topic, delete_retention_ms=None)

    def _names(self, partition: Partition) -> bool:
        key = partition.topic_partition
        return key is not None and self.selection.names(key)

    def why_unchanged(self, directory: LogDirectory, partition: Partition) -> NotCompacted | None:
        """Why a partition that is meant is left as it is."""
        if partition.is_cluster_metadata:
            return NotCompacted.CLUSTER_METADATA
        if partition.path in self.twice:
            return NotCompacted.TWICE
        if not is_loaded(partition):
            return NotCompacted.KAFKA_0_7
        topic = self.settings[directory.path].topic(_topic(partition) or "")
        if topic.remote_storage_enable:
            return NotCompacted.REMOTE_STORAGE
        if topic.is_policy_known and not topic.is_compacted and not self.force:
            return NotCompacted.POLICY
        if not self._names(partition) and (unknown := _unknown(topic)):
            return unknown
        if any(each.kind is not LeftoverKind.CLEANED for each in partition.leftovers):
            return NotCompacted.LEFTOVERS
        return None


CompactionProblem = Refusal | Unreadable | NoSpace


@dataclass(frozen=True, slots=True)
class PartitionCompaction:
    """What becomes of a partition.

    Attributes:
        partition: which.
        left: why nothing was looked at; None where it was.
        problem: why it is left as it is, or from some group on.
        unknown: properties that decide how it is compacted, and are not known of its topic.
        compacted: what it becomes; None where it is left as it is.
        preview: the same in figures.
    """

    partition: Partition
    unchanged: NotCompacted | None = None
    problem: CompactionProblem | None = None
    unknown: tuple[str, ...] = ()
    compacted: Compacted | None = None
    preview: Preview | None = None


def unknown_properties(topic: TopicSettings) -> tuple[str, ...]:
    """The properties that decide how a log is compacted, and are not known."""
    decisive = (MIN_COMPACTION_LAG_MS, DELETE_RETENTION_MS)
    return tuple(name for name in decisive if name not in topic.origins)


def _unknown(topic: TopicSettings) -> NotCompacted | None:
    """What is not known of a topic, and could mean that its log must not be compacted."""
    if not topic.is_policy_known:
        return NotCompacted.POLICY_UNKNOWN
    if not topic.is_remote_storage_known:
        return NotCompacted.REMOTE_STORAGE_UNKNOWN
    return None


def _topic(partition: Partition) -> str | None:
    key = partition.topic_partition
    return None if key is None else key.topic
