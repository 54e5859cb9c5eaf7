"""Delete the records of a partition before an offset.

Nothing is written: the result is a target state, for ``kdump delete-records`` to show and to apply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.retention.record_deletion import RecordsNotDeletableError, without_records_before
from kdump.broker.retention.retention import Reason, RetainableSegment
from kdump.broker.retention.retention_outcome import LoadedLog
from kdump.formats.names import COORDINATOR_TOPICS, FileKind
from kdump.jobs.retain.old_segments import (
    DirectoryDeletion,
    PartitionDeletion,
    SegmentDecision,
    missing_policy,
    require_clean,
    why_not_deleted,
)
from kdump.jobs.retain.segment_deletion import DecideLater, delete_segments_split, load_undamaged
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.state.metadata.settings import Settings
from kdump.storage.location import Location
from kdump.target.target_file import Gone, TargetFile
from kdump.target.virtual_directory import file_name


class DeleteRecordsRequest(Struct, frozen=True):
    """Which records to delete.

    Attributes:
        settings: of the topics of its broker.
        before: delete the records below this offset; -1 for the high watermark.
        twice: the partitions that are in two directories of the broker.
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
    """Compute the target state of a log directory whose records are deleted.

    Raises:
        NotCleanError: the directory needs recovery first.
        RecordsNotDeletableError: a broker would refuse to delete them.
    """
    directory, partition = request.directory, request.partition
    require_clean(directory)
    name = partition.key.topic
    if name in COORDINATOR_TOPICS:
        raise RecordsNotDeletableError(
            f"{partition.path}: records of internal topics cannot be deleted by offset"
        )
    topic = request.settings.topic(name)
    result = PartitionDeletion(directory, partition, topic)
    reason = why_not_deleted(result, is_policy_needed=True, twice=request.twice)
    if reason is not None:
        result = replace(result, unchanged=reason, missing=missing_policy(reason))
        return DirectoryDeletion(directory, (result,))
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
        return DirectoryDeletion(directory, (replace(result, problem=loaded),))
    outcome = without_records_before(loaded, topic, request.before)
    log = loaded.log
    result = replace(result, log=log)
    if not log.has_high_watermark:
        result = replace(result, held_back=(Reason.NO_HIGH_WATERMARK,))
    if outcome.log_start_offset <= log.log_start_offset and not partition.leftovers:
        return DirectoryDeletion(
            directory, (replace(result, decisions=_decisions(log.segments, {})),)
        )
    decisions = _decisions(log.segments, outcome.files)
    return DirectoryDeletion(directory, (replace(result, outcome=outcome, decisions=decisions),))


def _decisions(
    segments: Sequence[RetainableSegment], files: Mapping[str, TargetFile]
) -> tuple[SegmentDecision, ...]:
    """Which segments are deleted with the records before an offset."""
    return tuple(
        SegmentDecision(segment, is_deleted=True, why="all its records are before that offset")
        if isinstance(files.get(file_name(segment.base_offset, FileKind.LOG)), Gone)
        else SegmentDecision(
            segment, is_deleted=False, why="it has records after that offset, or is active"
        )
        for segment in segments
    )
