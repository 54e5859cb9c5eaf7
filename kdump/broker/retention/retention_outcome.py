"""Apply retention to a partition: delete its first segments, and raise its log start offset.

Continues after loading (``kdump.broker.loader.loader``): a broker loads the directory, applies
retention and shuts down cleanly. Follows ``UnifiedLog.deleteSegments`` and
``UnifiedLog.maybeIncrementLogStartOffset``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.loader import load_directory
from kdump.broker.loader.recovered_partition import Recovered
from kdump.broker.loader.segment_times import last_timestamp_ms, modified_ms
from kdump.broker.retention.retention import (
    Reason,
    RetainableLog,
    RetainableSegment,
    SegmentFate,
    fates,
    held_back,
)
from kdump.formats import names
from kdump.formats.checkpoints import encode_offset_checkpoint
from kdump.formats.names import TopicPartition
from kdump.log.directory import LogDirectory
from kdump.log.index_tail import last_time_entry
from kdump.log.log_search import SegmentSearch, Trust, within_log
from kdump.log.record_times import largest_timestamp_of_usual
from kdump.state.epochs.leader_epochs import LeaderEpochs
from kdump.state.metadata.settings import TopicSettings
from kdump.state.transactions.producer_state_manager import snapshot_name
from kdump.storage.entries import Entry
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import Kept, NewBytes, TargetFile
from kdump.target.virtual_directory import (
    SNAPSHOT_SUFFIX,
    VirtualDirectory,
    segment_file_names,
)


class RetainedPartition(Struct, frozen=True):
    """A partition after its first segments are deleted.

    Attributes:
        files: target state of the files that change, by name.
        recovery_point: the new line in the recovery point checkpoint.
        checkpointed_log_start_offset: the new line in the log start checkpoint; None for no line.
    """

    files: dict[str, TargetFile]
    log_start_offset: int
    recovery_point: int
    checkpointed_log_start_offset: int | None


class LoadedLog(Struct, frozen=True):
    """A partition as a broker has loaded it, whose first segments can be deleted.

    Attributes:
        path: its directory.
        loaded: the partition after loading.
        log: the log as retention sees it.
    """

    path: Location
    loaded: Recovered
    log: RetainableLog
    _directory: VirtualDirectory

    @property
    def is_as_left(self) -> bool:
        """Whether loading changes nothing but producer snapshots, or the log is empty.

        After segments were deleted, the next start of a broker deletes a producer snapshot of
        theirs. In an empty log each start deletes or creates one, and drops the leader epoch.
        Retention does not do that: nobody has asked for it, and a second run would find new changes
        each time.
        """
        is_empty = not any(segment.size_bytes for segment in self.log.segments)
        return is_empty or all(
            name.endswith(SNAPSHOT_SUFFIX) for name in _changed(self.loaded.files)
        )

    def largest_of_usual(self, segment: RetainableSegment) -> int | None:
        """The largest timestamp of a segment's records, if it is small and as usual.

        Raises:
            OSError: a file of it cannot be read.
        """
        log, _, time_index, _ = segment_file_names(segment.base_offset)
        directory = self._directory
        if log not in directory or time_index not in directory:
            return None
        index, data = directory.read_small(time_index), directory.read_small(log)
        entry = last_time_entry(index) if index else None
        if data is None or entry is None:
            return None
        return largest_timestamp_of_usual(data, segment.base_offset, entry)

    def delete_first(self, count: int, log_start_offset: int | None = None) -> RetainedPartition:
        """Delete the first ``count`` segments.

        Args:
            count: number of segments; if that is all of them, an empty segment replaces them.
            log_start_offset: the new log start offset, if it is not the base offset of the first
                remaining segment; it is never lowered.
        """
        segments = self.log.segments
        directory = self._directory.copy()
        remaining = [segment.base_offset for segment in segments[count:]]
        if not remaining:
            remaining = [self.log.log_end_offset]
            directory.put_segment(self.log.log_end_offset, b"")  # as a roll does
        for segment in segments[:count]:
            for name in segment_file_names(segment.base_offset):
                directory.remove(name)
            directory.remove(snapshot_name(segment.base_offset))
        start = max(
            self.log.log_start_offset,
            log_start_offset or 0,
            remaining[0] if count else 0,
        )
        if start > self.log.log_start_offset:
            LeaderEpochs(directory).truncate_from_start(start)
        return RetainedPartition(
            files=directory.changed_files(),
            log_start_offset=start,
            recovery_point=self.loaded.recovery_point,
            checkpointed_log_start_offset=start if start > remaining[0] else None,
        )


def _changed(files: Mapping[str, TargetFile]) -> dict[str, TargetFile]:
    return {name: each for name, each in files.items() if not isinstance(each, Kept)}


def load_log(
    path: Location,
    context: LoadContext,
    high_watermark: int | None,
    entries: Iterable[Entry] | None = None,
) -> LoadedLog | Refusal:
    """Load a partition as a broker does before it deletes old segments.

    Args:
        path: of its directory.
        high_watermark: from ``replication-offset-checkpoint`` or the operator; None if unknown.
        entries: of the directory, if it was listed before.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    directory = VirtualDirectory(path, entries=entries)
    loaded = load_directory(directory, context)
    if isinstance(loaded, Refusal):
        return loaded
    return LoadedLog(
        path, loaded, retainable_log(directory, loaded, context, high_watermark), directory
    )


def retainable_log(
    directory: VirtualDirectory,
    loaded: Recovered,
    context: LoadContext,
    high_watermark: int | None,
) -> RetainableLog:
    """A loaded log, as retention sees it.

    Args:
        directory: the partition's directory after loading.
        loaded: the partition.
        context: with which it was loaded.
        high_watermark: as for :func:`load_log`.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    start, end = loaded.log_start_offset, loaded.log_end_offset
    segments = (_segment(directory, base, context) for base in directory.base_offsets())
    return RetainableLog(
        segments=tuple(segments),
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=within_log(high_watermark or 0, start, end),
        has_high_watermark=high_watermark is not None,
    )


def _segment(
    directory: VirtualDirectory, base_offset: int, context: LoadContext
) -> RetainableSegment:
    log, *indexes = segment_file_names(base_offset)
    timestamp_ms = last_timestamp_ms(directory, base_offset)
    has_timestamp = timestamp_ms is not None
    if timestamp_ms is None:
        timestamp_ms = modified_ms(directory, base_offset, context.now_ms)
    size_bytes = directory.size_bytes(log)
    index_bytes = sum(directory.size_bytes(name) for name in indexes if name in directory)
    return RetainableSegment(
        base_offset=base_offset,
        size_bytes=size_bytes,
        disk_bytes=size_bytes + index_bytes,
        timestamp_ms=timestamp_ms,
        has_timestamp=has_timestamp,
    )


class Retained(Struct, frozen=True):
    """A partition after retention.

    Attributes:
        outcome: the partition afterwards.
        fates: for each segment, whether it is deleted, and why.
        held_back: what keeps segments that would be deleted now otherwise.
    """

    outcome: RetainedPartition
    fates: tuple[SegmentFate, ...]
    held_back: tuple[Reason, ...]

    @property
    def deleted(self) -> tuple[SegmentFate, ...]:
        return tuple(fate for fate in self.fates if fate.is_deleted)

    @property
    def freed_bytes(self) -> int:
        """Disk space of the deleted logs and indexes, in bytes."""
        return sum(fate.segment.disk_bytes for fate in self.deleted)


def retained(loaded: LoadedLog, settings: TopicSettings, now_ms: int) -> Retained:
    """Apply retention to a log."""
    found = fates(loaded.log, settings, now_ms)
    count = sum(fate.is_deleted for fate in found)
    return Retained(
        outcome=loaded.delete_first(count),
        fates=found,
        held_back=held_back(loaded.log, settings, now_ms),
    )


def wrongly_old(
    loaded: LoadedLog, fates: Iterable[SegmentFate], settings: TopicSettings, now_ms: int
) -> RetainableSegment | None:
    """The first segment that is deleted by age although one of its records is younger.

    Then its time index is damaged, or belongs to another log.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    for fate in fates:
        if fate.reason is not Reason.OVER_AGE:
            continue
        if not fate.segment.size_bytes:
            continue
        largest_ms = _largest_ms(loaded, fate.segment)
        if largest_ms is None or now_ms - largest_ms <= settings.retention_ms:
            return fate.segment
    return None


def dated_by_records(loaded: LoadedLog) -> RetainableLog | RetainableSegment:
    """The log with the timestamps of its records, whatever its time indexes say.

    A broker trusts time indexes, and deletes a segment too early or too late if they are damaged.
    Deleting the oldest segments to free space must not depend on that. An index is used if its last
    entry matches the batch that it points to.

    Returns:
        The log; or the first segment with damaged records, whose age cannot be known.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    segments = list(loaded.log.segments)
    for at, segment in enumerate(segments):
        if not segment.size_bytes or not loaded.log.is_deletable(at):
            continue
        largest_ms = _largest_ms(loaded, segment)
        if largest_ms is None:
            return segment
        if largest_ms >= 0:  # records of magic 0 have no timestamp
            segments[at] = segment._replace(timestamp_ms=largest_ms, has_timestamp=True)
    return replace(loaded.log, segments=tuple(segments))


def _largest_ms(loaded: LoadedLog, segment: RetainableSegment) -> int | None:
    """The largest timestamp of the records of a segment; None if some are damaged."""
    log, offset_index, time_index, _ = segment_file_names(segment.base_offset)
    largest_ms = loaded.largest_of_usual(segment)
    if largest_ms is not None:
        return largest_ms
    with (
        (loaded.path / log).open_file() as source,
        SegmentSearch(
            source,
            segment.base_offset,
            loaded.path / offset_index,
            loaded.path / time_index,
            Trust.CHECKSUMS,  # records are deleted because of it
        ) as search,
    ):
        largest_ms = search.largest_timestamp()
        return search.read_largest_timestamp() if largest_ms is None else largest_ms


def interim_log_starts(
    directory: LogDirectory, outcomes: Mapping[TopicPartition, RetainedPartition]
) -> TargetFile:
    """The content of ``log-start-offset-checkpoint`` before anything is deleted.

    A broker that is started while segments are being deleted finds a log with a hole, or no log.
    With this checkpoint it still starts the log at its new start offset: deleted records are never
    served again, and no offset is assigned twice.
    """
    log_starts = dict(directory.checkpoints.log_start_offsets or {})
    for key, outcome in outcomes.items():
        if outcome.log_start_offset > 0:
            log_starts[key] = outcome.log_start_offset
    return NewBytes(encode_offset_checkpoint(log_starts.items()))


def retained_root(
    directory: LogDirectory,
    outcomes: Mapping[TopicPartition, RetainedPartition],
    stale: frozenset[TopicPartition] = frozenset(),
) -> dict[str, TargetFile]:
    """The target state of the files in the root of a directory after a clean shutdown.

    The clean shutdown marker stays all the time: every state in between is clean, so a broker that
    is started then does not recover segments. :func:`interim_log_starts` is the content of the log
    start checkpoint while segments are being deleted.

    Args:
        outcomes: of the partitions that change; the lines of others stay.
        stale: other partitions whose log start line has no effect.

    Returns:
        The checkpoints that change, by name.
    """
    checkpoints = directory.checkpoints
    recovery_points = dict(checkpoints.recovery_points or {})
    log_starts = dict(checkpoints.log_start_offsets or {})
    for key in stale:
        log_starts.pop(key, None)
    for key, outcome in outcomes.items():
        recovery_points[key] = outcome.recovery_point
        log_starts.pop(key, None)
        if outcome.checkpointed_log_start_offset is not None:
            log_starts[key] = outcome.checkpointed_log_start_offset
    changed: dict[str, TargetFile] = {}
    for name, before, after in (
        (names.LOG_START_OFFSET_CHECKPOINT, checkpoints.log_start_offsets, log_starts),
        (names.RECOVERY_POINT_CHECKPOINT, checkpoints.recovery_points, recovery_points),
    ):
        if before != after:
            changed[name] = NewBytes(encode_offset_checkpoint(after.items()))
    return changed
