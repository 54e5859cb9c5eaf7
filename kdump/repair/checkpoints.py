"""What a broker that stops cleanly leaves in the root of a log directory.

Follows ``LogManager.shutdown``. The recovery points and the log start offsets are written anew,
for the logs that were loaded; the other two checkpoints are not the loader's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kdump.formats import names
from kdump.formats.checkpoints import OffsetEntry, encode_offset_checkpoint
from kdump.formats.clean_shutdown import encode_clean_shutdown
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.directory import LogDirectory, Offsets
from kdump.log.partition import Partition
from kdump.repair.loader import LoadContext, Recovered
from kdump.repair.refusal import Refusal
from kdump.repair.segment import IndexSettings
from kdump.repair.wanted import Gone, NewBytes, WantedFile

NO_BROKER_EPOCH = -1


def is_loaded(partition: Partition) -> bool:
    """Whether a broker's log manager recovers it, and speaks of it in the checkpoints.

    The cluster's metadata is loaded by the Raft layer. What is to be deleted, or was set aside,
    is loaded only to be deleted or left.
    """
    return partition.state in (PartitionState.LIVE, PartitionState.FUTURE) and not (
        partition.is_cluster_metadata or partition.is_0_7
    )


def load_context(
    directory: LogDirectory,
    topic_partition: TopicPartition,
    settings: IndexSettings | None = None,
    *,
    now_ms: int = 0,
    producer_id_expiration_ms: int | None = None,
) -> LoadContext:
    """What ``directory`` says about loading one of its partitions."""

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
    )


def recovered_root(
    directory: LogDirectory, outcomes: Mapping[TopicPartition, Recovered | Refusal]
) -> dict[str, WantedFile]:
    """What becomes of the files in the root of ``directory``.

    Args:
        directory: as it is.
        outcomes: of the partitions that were gone through. Where that is not every one that a
            broker loads, or one was refused, the lines of the others stay as they are, and the
            marker of a clean stop is not there afterwards.

    Returns:
        The two checkpoints, what is left from writing them, and the marker, by name.
    """
    loaded = {p.topic_partition for p in directory.partitions if is_loaded(p)}
    recovered = {
        topic_partition: outcome
        for topic_partition, outcome in outcomes.items()
        if isinstance(outcome, Recovered)
    }
    is_whole = loaded == recovered.keys() and not directory.unreadable
    checkpoints = directory.checkpoints
    others = loaded - recovered.keys()
    recovery_points = _kept(checkpoints.recovery_points, others, is_whole=is_whole)
    log_starts = _kept(checkpoints.log_start_offsets, others, is_whole=is_whole)
    for topic_partition, outcome in recovered.items():
        recovery_points[topic_partition] = outcome.recovery_point
        log_starts.pop(topic_partition, None)
        if outcome.checkpointed_log_start_offset is not None:
            log_starts[topic_partition] = outcome.checkpointed_log_start_offset
    marker = NewBytes(encode_clean_shutdown(NO_BROKER_EPOCH)) if is_whole else Gone()
    return {
        names.RECOVERY_POINT_CHECKPOINT: _checkpoint(recovery_points),
        names.LOG_START_OFFSET_CHECKPOINT: _checkpoint(log_starts),
        names.RECOVERY_POINT_CHECKPOINT + names.TEMPORARY_SUFFIX: Gone(),
        names.LOG_START_OFFSET_CHECKPOINT + names.TEMPORARY_SUFFIX: Gone(),
        names.CLEAN_SHUTDOWN_MARKER: marker,
    }


def _kept(
    offsets: Offsets | None, others: Iterable[TopicPartition | None], *, is_whole: bool
) -> dict[TopicPartition, int]:
    """The lines that stay: none of a whole directory, for a broker writes only what it loaded."""
    return {} if is_whole else dict(offsets or {})


def _checkpoint(offsets: Mapping[TopicPartition, int]) -> NewBytes:
    return NewBytes(encode_offset_checkpoint(OffsetEntry(*item) for item in offsets.items()))
