"""What to compact: which partitions, why others are left unchanged, and the result of each."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Sequence

from msgspec import Struct, field

from kdump.broker.cleaner.compaction_preview import Preview
from kdump.broker.cleaner.compaction_round import Compacted
from kdump.broker.loader.checkpoints import is_loaded
from kdump.formats.names import PartitionState
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.jobs.compact.swap import NoSpace
from kdump.jobs.loading.verdict_words import TWICE
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import LogDirectory
from kdump.log.partition import Leftover, LeftoverKind, Partition
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.state.metadata.config_keys import DELETE_RETENTION_MS, MIN_COMPACTION_LAG_MS
from kdump.state.metadata.settings import DirectorySettings, TopicSettings
from kdump.storage.location import Location
from kdump.target.refusal import Refusal


class NotCompacted(enum.Enum):
    """Why a partition is left unchanged; the value says it."""

    POLICY = "cleanup.policy of its topic is not compact; --force compacts it nevertheless"
    REMOTE_STORAGE = (
        "remote.storage.enable is set for its topic: the local log is only part of the data"
    )
    POLICY_UNKNOWN = (
        "cleanup.policy of its topic is not known; give --server-properties FILE and --metadata"
        " DIR, or select it by its exact name"
    )
    REMOTE_STORAGE_UNKNOWN = (
        "it is not known whether its topic has remote.storage.enable; give --metadata DIR, or"
        " select it by its exact name"
    )
    CLUSTER_METADATA = "a controller's Raft layer cleans it with snapshots, and never compacts it"
    TWICE = TWICE
    KAFKA_0_7 = "its logs are of Kafka 0.7, which had no keys"
    LEFTOVERS = (
        "it has leftover files of an interrupted change; run kdump recover first, or give --recover"
    )


class CompactRequest(Struct, frozen=True):
    """What to compact, and how.

    Attributes:
        all_compacted: whether to select exactly the topics that are known to be compacted.
        force: whether to compact topics that are known not to be compacted, too.
        twice: the partitions that are in two directories of a broker.
        largest_record_bytes: a log with larger records in compressed batches is left unchanged.
    """

    directories: Sequence[LogDirectory] = ()
    settings: DirectorySettings = field(default_factory=dict)
    selection: PartitionSelection = EVERYTHING
    all_compacted: bool = False
    force: bool = False
    is_replicated: bool = False
    now_ms: int = 0
    twice: Collection[Location] = ()
    largest_record_bytes: int = LARGEST_RECORD_BYTES

    def selects(self, directory: LogDirectory, partition: Partition) -> bool:
        """Whether the partition is selected; moving, deleted and stray ones never are."""
        topic = _topic(partition)
        if partition.state is not PartitionState.LIVE or topic is None:
            return False
        if partition.is_cluster_metadata and not self._names(partition):
            return False  # no pattern selects it
        if self.all_compacted:
            settings = self.settings[directory.path].topic(topic)
            return settings.is_policy_known and settings.is_compacted
        return partition in self.selection

    def topic_settings(self, directory: LogDirectory, partition: Partition) -> TopicSettings:
        """The configuration by which a partition is compacted.

        No default removes tombstones: if it is unknown how long they are kept, only those with a
        delete horizon of the broker's are removed, unless the topic is given by its exact name.
        """
        topic = self.settings[directory.path].topic(_topic(partition) or "")
        if DELETE_RETENTION_MS in topic.origins or self._names(partition):
            return topic
        return dataclasses.replace(topic, delete_retention_ms=None)  # noqa: TID251 - not of a struct

    def _names(self, partition: Partition) -> bool:
        key = partition.topic_partition
        return key is not None and self.selection.names(key)

    def why_unchanged(self, directory: LogDirectory, partition: Partition) -> NotCompacted | None:
        """Why a selected partition is left unchanged; None if it is compacted."""
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


class PartitionCompaction(Struct, frozen=True):
    """The result of compacting a partition.

    Attributes:
        unchanged: why it was not read; None if it was.
        problem: why it is left unchanged, perhaps only from some group of segments on.
        unknown: properties of its topic that decide how it is compacted, but are unknown.
        compacted: what it becomes; None if it is left unchanged.
        preview: the same in figures.
    """

    partition: Partition
    unchanged: NotCompacted | None = None
    problem: CompactionProblem | None = None
    unknown: tuple[str, ...] = ()
    compacted: Compacted | None = None
    preview: Preview | None = None

    @property
    def dropped_files(self) -> tuple[Leftover, ...]:
        """The unfinished files (``.cleaned``) that are deleted first, as by a starting broker."""
        return self.partition.unfinished_files if self.unchanged is None else ()

    @property
    def dropped_bytes(self) -> int:
        """The size of :attr:`dropped_files`."""
        return sum(each.size_bytes for each in self.dropped_files)


def unknown_properties(topic: TopicSettings) -> tuple[str, ...]:
    """The properties that decide how a log is compacted, but are unknown."""
    decisive = (MIN_COMPACTION_LAG_MS, DELETE_RETENTION_MS)
    return tuple(name for name in decisive if name not in topic.origins)


def _unknown(topic: TopicSettings) -> NotCompacted | None:
    """What is unknown about a topic and could forbid to compact it."""
    if not topic.is_policy_known:
        return NotCompacted.POLICY_UNKNOWN
    if not topic.is_remote_storage_known:
        return NotCompacted.REMOTE_STORAGE_UNKNOWN
    return None


def _topic(partition: Partition) -> str | None:
    key = partition.topic_partition
    return None if key is None else key.topic
