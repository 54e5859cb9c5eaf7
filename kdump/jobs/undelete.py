"""What log directories become when their ``-stray`` and ``-delete`` directories are restored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.directory_changes import RenamedDirectory
from kdump.apply.plan import TargetDirectory
from kdump.broker.loader.checkpoints import with_lines
from kdump.broker.loader.load_context import load_context
from kdump.broker.loader.loader import load_directory
from kdump.broker.loader.swapped_partition import UnfinishedSwapError, as_loaded
from kdump.formats import names
from kdump.formats.names import TopicPartition
from kdump.jobs.loading.logs_at_risk import LogAtRisk, logs_at_risk
from kdump.log.broker import Broker, by_broker
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.log.log_search import Trust, log_end
from kdump.log.partition import Partition
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.phases import phase
from kdump.repair.restored_directories import (
    GONE_STATES,
    Candidate,
    NextStart,
    StartForecast,
    assigned_here,
    forecast,
    is_remote,
    of_a_run,
    restored,
    with_full_name,
    without_conflicts,
)
from kdump.state.metadata.cluster import ClusterImage
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, TargetFile
from kdump.target.virtual_directory import VirtualDirectory


class UndeleteRequest(Struct, frozen=True):
    """What to restore.

    Attributes:
        directories: log directories, with all their ``-stray`` and ``-delete`` directories listed.
        clusters: the metadata that each broker will have when it starts, by path of the log
            directory; None if it is not known.
        topic_names: names of topics by id, also of topics that are deleted.
        given_names: full names of topics, by name of the directory.
    """

    directories: Sequence[LogDirectory]
    clusters: Mapping[Location, ClusterImage | None]
    topic_names: Mapping[str, str] = field(default_factory=dict)
    selection: PartitionSelection = EVERYTHING
    given_names: Mapping[str, str] = field(default_factory=dict)


class LogEnds(Struct, frozen=True):
    """Where the log of a directory begins and ends; None if it cannot be read."""

    start_offset: int | None = None
    end_offset: int | None = None


class UndeleteOutcome(Struct, frozen=True):
    """The result for one log directory.

    Attributes:
        ends: of their logs, by name of the directory.
        others: logs in use that are damaged as well, which shows now that the marker goes.
    """

    directory: LogDirectory
    candidates: tuple[Candidate, ...]
    ends: Mapping[str, LogEnds]
    target: TargetDirectory
    others: tuple[LogAtRisk, ...] = ()


def is_candidate(name: str, key: TopicPartition) -> bool:
    """Whether to list a directory: it may be restored, or is the cluster's metadata."""
    is_gone = any(name.endswith(state.value) for state in GONE_STATES)
    return is_gone or key.topic == names.CLUSTER_METADATA_TOPIC


def undelete(request: UndeleteRequest) -> list[UndeleteOutcome]:
    """Find the target state of each log directory.

    Raises:
        OSError: a file cannot be read.
    """
    brokers: dict[str, Broker | None] = {}
    named: dict[Location, set[str | None]] = {}
    for broker, own_directories in by_broker(request.directories).items():
        ids = {each.directory_id for each in own_directories}
        brokers |= dict.fromkeys((str(each.path) for each in own_directories), broker)
        named |= dict.fromkeys((each.path for each in own_directories), ids)
    candidates = [
        candidate
        for directory in request.directories
        for partition in directory.partitions
        if partition.state in GONE_STATES
        and _is_selected(candidate := _candidate(request, directory, partition), request.selection)
    ]
    decided = [
        assigned_here(each, request.clusters[path], each.log_dir.node_id, named[path])
        for each in without_conflicts(candidates, request.directories, brokers)
        for path in [each.log_dir.path]
    ]
    outcomes: list[UndeleteOutcome] = []
    with phase("reading the ends of logs", len(decided)) as reading:
        for directory in request.directories:
            own = [_with_forecast(each, request) for each in decided if each.log_dir is directory]
            ends = {
                each.partition.path.name: _ends_of(each.partition) for each in reading.over(own)
            }
            own = [_with_damage(each, ends[each.partition.path.name].end_offset) for each in own]
            target = _target(directory, restored(own), ends)
            outcomes.append(UndeleteOutcome(directory, tuple(own), ends, target))
    return [replace(each, others=tuple(_other_logs(each))) for each in outcomes]


def _candidate(
    request: UndeleteRequest, directory: LogDirectory, partition: Partition
) -> Candidate:
    candidate = of_a_run(Candidate(directory, partition, None, partition.known_topic_id))
    given = request.given_names.get(partition.path.name)
    return with_full_name(candidate, request.topic_names, given)


def _is_selected(candidate: Candidate, selection: PartitionSelection) -> bool:
    return selection.matches(
        candidate.partition.path.name, candidate.key or candidate.partition.topic_partition
    )


def _with_forecast(candidate: Candidate, request: UndeleteRequest) -> Candidate:
    directory = candidate.log_dir
    cluster = request.clusters[directory.path]
    return replace(
        candidate,
        forecast=forecast(candidate, cluster, directory.node_id),
        is_remote=is_remote(candidate, cluster),
    )


def _ends_of(partition: Partition) -> LogEnds:
    """Where a log begins and ends; a log that cannot be read is restored all the same."""
    try:
        loaded = as_loaded(partition)
        end = log_end(loaded, Trust.CHECKSUMS)
    except (OSError, UnfinishedSwapError):
        return LogEnds()
    if not loaded.segments:
        return LogEnds()
    return LogEnds(loaded.segments[0].base_offset, end.offset)


def _with_damage(candidate: Candidate, end_offset: int | None) -> Candidate:
    """Predict what a start does with a damaged log after a clean shutdown.

    A broker has not checked it so far, and checks its last segment now (:func:`_root`). After a
    crash it checks every log as it is.
    """
    directory, key = candidate.log_dir, candidate.key
    is_kept = candidate.obstacle is None and candidate.forecast.outcome is not NextStart.STRAY
    if key is None or end_offset is None or not (is_kept and directory.is_clean):
        return candidate
    context = load_context(directory, key)
    start = context.log_start_offset if context.log_start_offset <= end_offset else 0
    context = replace(context, is_clean=False, recovery_point=end_offset, log_start_offset=start)
    try:
        outcome = load_directory(VirtualDirectory(candidate.partition.path), context)
    except OSError:
        return candidate
    if isinstance(outcome, Refusal):
        why = f"a broker does not start with it: {outcome}"
    elif outcome.log_end_offset < end_offset:
        why = f"a broker truncates it to offset {outcome.log_end_offset}, from {end_offset}"
    else:
        return candidate
    return replace(candidate, forecast=StartForecast(NextStart.DAMAGED, None, why))


def _other_logs(outcome: UndeleteOutcome) -> Iterator[LogAtRisk]:
    """The logs in use that are damaged, if the marker goes.

    Raises:
        OSError: the log directory cannot be listed.
    """
    if names.CLEAN_SHUTDOWN_MARKER in outcome.target.root:
        directory = outcome.directory
        yield from logs_at_risk(read_log_directory(directory.path, directory.kind))


def _target(
    directory: LogDirectory, candidates: Iterable[Candidate], ends: Mapping[str, LogEnds]
) -> TargetDirectory:
    path = directory.path.local_path
    changes = {str(each.key): RenamedDirectory(each.partition.path.name) for each in candidates}
    if not changes:
        return TargetDirectory(path, (), {})
    offsets = {
        each.key: ends[each.partition.path.name].end_offset
        for each in candidates
        if each.key is not None
    }
    return TargetDirectory(path, (), _root(directory, offsets), directories=changes)


def _root(
    directory: LogDirectory, ends: Mapping[TopicPartition, int | None]
) -> dict[str, TargetFile]:
    """The checkpoints and the clean shutdown marker with restored partitions.

    A line that is missing stays missing, and means to a broker: recover the whole log, a high
    watermark of 0, and no deleted records at the start of the log. After a clean shutdown the
    recovery point is known: everything that the files have was flushed with the others. But the
    indexes of a log that was not closed have their full preallocated size, and with the marker a
    broker would not check them (``LogLoader.recoverLog``). So the marker goes, and the broker
    checks the last segment of each log. A log start offset past the end is removed: a broker would
    delete the whole log.
    """
    root: dict[str, TargetFile] = {}
    if directory.is_clean:
        root[names.CLEAN_SHUTDOWN_MARKER] = Gone()
    malformed = {problem.path.name for problem in directory.problems}
    points = directory.checkpoints.recovery_points or {}
    lines: dict[TopicPartition, int | None] = {}
    for key, end_offset in ends.items():
        if end_offset is not None and directory.is_clean:
            lines[key] = end_offset
        elif key in points and end_offset is not None:
            lines[key] = min(points[key], end_offset)
    if lines and names.RECOVERY_POINT_CHECKPOINT not in malformed:
        root |= with_lines(directory, names.RECOVERY_POINT_CHECKPOINT, lines)
    starts = directory.checkpoints.log_start_offsets or {}
    stale: dict[TopicPartition, int | None] = {
        key: None
        for key, end_offset in ends.items()
        if end_offset is not None and starts.get(key, 0) > end_offset
    }
    if stale:
        root |= with_lines(directory, names.LOG_START_OFFSET_CHECKPOINT, stale)
    return root
