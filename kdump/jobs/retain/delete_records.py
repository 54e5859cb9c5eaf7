"""What becomes of a log directory when records of a partition are deleted by offset.

Nothing is written: what comes out is the wanted state, for ``kdump delete-records`` to show and to
apply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kdump.broker.retention.record_deletion import RecordsNotDeletableError, without_records_before
from kdump.broker.retention.retention import Reason, RetainableSegment
from kdump.broker.retention.retention_outcome import LoadedLog
from kdump.formats.names import FileKind
from kdump.jobs.retain.old_segments import (
    INTERNAL_TOPICS,
    DirectoryDeletion,
    PartitionDeletion,
    SegmentDecision,
    directory_result,
    require_clean,
    why_not_deleted,
)
from kdump.jobs.retain.segment_deletion import DecideLater, delete_segments_split, load_undamaged
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.state.settings import Settings
from kdump.storage.location import Location
from kdump.target.target_file import Gone, TargetFile
from kdump.target.virtual_directory import file_name


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    """Which records are to be deleted.

    Attributes:
        directory: the log directory, as it lies on disk.
        twice: the partitions that are in two directories of its broker.
        partition: of which partition in it.
        settings: of its topics.
        before: all below this offset; -1 is all that is replicated.
        now_ms: what time it is.
        is_replicated: whether the operator says that the log is replicated up to its end.
    """

    directory: LogDirectory
    partition: Partition
    settings: Settings
    before: int
    now_ms: int
    is_replicated: bool = False
    twice: Collection[Location] = ()


@during("finding out what to delete")
def delete_records(request: DeleteRecordsRequest) -> DirectoryDeletion:
    """Say what becomes of a log directory when records are deleted.

    Raises:
        NotCleanError: it was not left by a clean stop.
        RecordsNotDeletableError: a broker would refuse to delete them.
    """
    directory, partition = request.directory, request.partition
    require_clean(directory)
    assert partition.topic_partition is not None
    name = partition.topic_partition.topic
    if name in INTERNAL_TOPICS:
        raise RecordsNotDeletableError(
            f"{partition.path}: records of internal topics cannot be deleted by offset"
        )
    topic = request.settings.topic(name)
    result = PartitionDeletion(directory, partition, topic)
    left = why_not_deleted(result, is_policy_needed=True, twice=request.twice)
    if left is not None:
        return directory_result(directory, [replace(result, unchanged=left)])
    split = delete_segments_split(
        partition,
        directory,
        request.settings,
        DecideLater(),
        now_ms=request.now_ms,
        is_replicated=request.is_replicated,
    )
    loaded = load_undamaged(split)
    if not isinstance(loaded, LoadedLog):
        return directory_result(directory, [replace(result, problem=loaded)])
    outcome = without_records_before(loaded, topic, request.before)
    log = loaded.log
    result = replace(result, log=log)
    if not log.has_high_watermark:
        result = replace(result, held_back=(Reason.NO_HIGH_WATERMARK,))
    if outcome.log_start_offset <= log.log_start_offset and not partition.leftovers:
        return directory_result(directory, [replace(result, fates=_before(log.segments, {}))])
    fates = _before(log.segments, outcome.files)
    return directory_result(directory, [replace(result, outcome=outcome, fates=fates)])


def _before(
    segments: Sequence[RetainableSegment], files: Mapping[str, TargetFile]
) -> tuple[SegmentDecision, ...]:
    """What becomes of segments when the records before an offset are deleted."""
    return tuple(
        SegmentDecision(segment, is_deleted=True, why="all of it is before that offset")
        if isinstance(files.get(file_name(segment.base_offset, FileKind.LOG)), Gone)
        else SegmentDecision(
            segment, is_deleted=False, why="it holds records that stay, or is active"
        )
        for segment in segments
    )
