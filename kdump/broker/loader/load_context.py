"""What loading a partition depends on besides its directory.

Apart from the loader, because most of who has such a context does not load: it divides work, or
predicts the outcome from checks. The loader takes as long to import as all of these together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.formats.kafka_versions import NEWEST, KafkaVersion
from kdump.formats.names import TopicPartition
from kdump.log.directory import LogDirectory, Offsets

if TYPE_CHECKING:
    from kdump.state.metadata.settings import Settings
    from kdump.target.content_store import ContentStore

_INT64_MAX: Final = 2**63 - 1


class IndexSettings(Struct, frozen=True):
    """Index settings of a topic, and the broker that follows them.

    Attributes:
        interval_bytes: ``index.interval.bytes``.
        max_bytes: ``segment.index.bytes``.
    """

    interval_bytes: int = 4096
    max_bytes: int = 10485760
    kafka_version: KafkaVersion = NEWEST


class LoadContext(Struct, frozen=True):
    """What loading a partition depends on besides its directory.

    Attributes:
        is_clean: whether the log directory has a clean shutdown marker.
        recovery_point: from ``recovery-point-offset-checkpoint``; 0 if it has no line.
        log_start_offset: from ``log-start-offset-checkpoint``; 0 if it has no line.
        high_watermark: from ``replication-offset-checkpoint``; 0 if it has no line.
        settings: index settings of the topic.
        now_ms: the clock; with ``producer_id_expiration_ms`` it decides which producers expire
            when a snapshot is read.
        producer_id_expiration_ms: ``producer.id.expiration.ms``; None expires no producer.
        is_compacted: whether the log is or was compacted; None if unknown. Decides only what
            counts as lost, not what is done.
        store: keeps large new content of files; None leaves it in memory.
    """

    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    settings: IndexSettings = field(default_factory=IndexSettings)
    now_ms: int = 0
    producer_id_expiration_ms: int | None = None
    is_compacted: bool | None = None
    store: ContentStore | None = None

    @property
    def expire_before_ms(self) -> int | None:
        """Producers last seen at or before this time expire; None if no producer does."""
        if self.producer_id_expiration_ms is None:
            return None
        return self.now_ms - self.producer_id_expiration_ms


def load_context(
    directory: LogDirectory,
    topic_partition: TopicPartition,
    settings: IndexSettings | None = None,
    *,
    now_ms: int = 0,
    producer_id_expiration_ms: int | None = None,
    is_compacted: bool | None = None,
) -> LoadContext:
    """The context for loading one partition of ``directory``.

    Args:
        producer_id_expiration_ms: ``producer.id.expiration.ms``; None expires no producer.
        is_compacted: whether its topic is compacted; None if unknown.
    """

    def offset(offsets: Offsets | None) -> int:
        return 0 if offsets is None else offsets.get(topic_partition, 0)

    checkpoints = directory.checkpoints
    return LoadContext(
        is_clean=directory.is_clean,
        recovery_point=offset(checkpoints.recovery_points),
        log_start_offset=offset(checkpoints.log_start_offsets),
        high_watermark=offset(checkpoints.high_watermarks),
        settings=IndexSettings() if settings is None else settings,
        now_ms=now_ms,
        producer_id_expiration_ms=producer_id_expiration_ms,
        # A topic that is no longer compacted may have been.
        is_compacted=True if offset(checkpoints.cleaner_offsets) > 0 else is_compacted,
    )


def configured_context(
    directory: LogDirectory,
    topic_partition: TopicPartition,
    settings: Settings,
    *,
    now_ms: int,
    is_compacted: bool | None = None,
    is_replicated: bool = False,
) -> LoadContext:
    """The context for loading one partition of ``directory`` as its broker is configured.

    Args:
        is_compacted: whether its topic is compacted; None if unknown.

    Raises:
        InvalidSettingError: a property of its topic has a value that Kafka does not take.
    """
    topic = settings.topic(topic_partition.topic)
    context = load_context(
        directory,
        topic_partition,
        IndexSettings(
            topic.index_interval_bytes, topic.segment_index_bytes, settings.kafka_version
        ),
        now_ms=now_ms,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        is_compacted=is_compacted,
    )
    return replace(context, high_watermark=_INT64_MAX) if is_replicated else context
