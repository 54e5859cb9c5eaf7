"""The checkpoints in the root of a log directory after compaction.

Follows ``LogCleanerManager.updateCheckpoints``, and ``LogManager.shutdown`` as
:mod:`kdump.broker.loader.checkpoints` does.
"""

from __future__ import annotations

from collections.abc import Mapping

from kdump.broker.cleaner.compaction_round import Compacted
from kdump.formats import names
from kdump.formats.checkpoints import encode_offset_checkpoint
from kdump.formats.names import TopicPartition
from kdump.log.directory import LogDirectory, Offsets
from kdump.target.target_file import NewBytes, TargetFile


def compacted_root(
    directory: LogDirectory, outcomes: Mapping[TopicPartition, Compacted]
) -> dict[str, TargetFile]:
    """The target state of the checkpoints in the root of ``directory``.

    Args:
        directory: the log directory, after a clean shutdown; its marker stays unchanged.
        outcomes: of the compacted partitions; the lines of others stay.

    Returns:
        The checkpoints that change, by name.
    """
    checkpoints = directory.checkpoints
    recovery_points = dict(checkpoints.recovery_points or {})
    log_starts = dict(checkpoints.log_start_offsets or {})
    cleaner_offsets = dict(checkpoints.cleaner_offsets or {})
    for topic_partition, outcome in outcomes.items():
        loaded = outcome.loaded
        recovery_points[topic_partition] = loaded.recovery_point
        log_starts.pop(topic_partition, None)
        if loaded.checkpointed_log_start_offset is not None:
            log_starts[topic_partition] = loaded.checkpointed_log_start_offset
        if outcome.cleaner_offset is not None:
            cleaner_offsets[topic_partition] = outcome.cleaner_offset
    lines: tuple[tuple[str, Offsets | None, dict[TopicPartition, int]], ...] = (
        (names.RECOVERY_POINT_CHECKPOINT, checkpoints.recovery_points, recovery_points),
        (names.LOG_START_OFFSET_CHECKPOINT, checkpoints.log_start_offsets, log_starts),
        (names.CLEANER_OFFSET_CHECKPOINT, checkpoints.cleaner_offsets, cleaner_offsets),
    )
    return {
        name: NewBytes(encode_offset_checkpoint(after.items()))
        for name, before, after in lines
        if after != dict(before or {})
    }
