"""The files that a clean shutdown leaves in the root of a log directory.

Follows ``LogManager.shutdown``. It writes the recovery points and log start offsets of the loaded
logs; the other two checkpoints do not belong to the loader.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from kdump.broker.loader.recovered_partition import Recovered
from kdump.errors import KdumpError
from kdump.formats import names
from kdump.formats.checkpoints import encode_offset_checkpoint, readable_offsets
from kdump.formats.clean_shutdown import encode_clean_shutdown
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.bounds import deleted_up_to, has_lost_log_starts, read_bounds
from kdump.log.directory import LogDirectory, Offsets
from kdump.log.partition import Partition
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.state.epochs.epoch_history import start_within
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, Kept, NewBytes, TargetFile

NO_BROKER_EPOCH = -1
_OF_THE_LOADER: Final = (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT)


def is_loaded(partition: Partition) -> bool:
    """Whether a broker's log manager recovers a partition and writes it to the checkpoints.

    The Raft layer loads the cluster metadata log. ``-delete`` directories are loaded only to be
    deleted, and ``-stray`` ones are left alone.
    """
    return partition.state in (PartitionState.LIVE, PartitionState.FUTURE) and not (
        partition.is_cluster_metadata or partition.is_0_7
    )


def recovered_root(
    directory: LogDirectory, outcomes: Mapping[TopicPartition, Recovered | Refusal]
) -> dict[str, TargetFile]:
    """The target state of the files in the root of ``directory``.

    Args:
        outcomes: of the recovered partitions. If these are not all that a broker loads, or one was
            refused, the lines of the others stay unchanged, and the clean shutdown marker is
            removed; but a clean directory stays clean if none was refused: a clean shutdown closed
            the others.

    Returns:
        The two checkpoints, leftover temporary files of theirs, and the marker, by name; nothing
        for a clean directory in which nothing changes.
    """
    loaded = {p.topic_partition for p in directory.partitions if is_loaded(p)}
    recovered = {
        topic_partition: outcome
        for topic_partition, outcome in outcomes.items()
        if isinstance(outcome, Recovered)
    }
    # A directory with a name that a broker refuses may be a log that gets its name back later.
    is_whole = loaded == recovered.keys() and not (directory.unreadable or directory.refused)
    checkpoints = directory.checkpoints
    others = loaded - recovered.keys()
    recovery_points = _kept(checkpoints.recovery_points, others, is_whole=is_whole)
    log_starts = _kept(checkpoints.log_start_offsets, others, is_whole=is_whole)
    for topic_partition, outcome in recovered.items():
        recovery_points[topic_partition] = outcome.recovery_point
        log_starts.pop(topic_partition, None)
        if outcome.checkpointed_log_start_offset is not None:
            log_starts[topic_partition] = outcome.checkpointed_log_start_offset
    temporary = [name + names.TEMPORARY_SUFFIX for name in _OF_THE_LOADER]
    is_settled = (
        directory.is_clean
        and len(recovered) == len(outcomes)
        and all(map(_is_kept, recovered.values()))
        and checkpoints.recovery_points == recovery_points
        and checkpoints.log_start_offsets == log_starts
        and not any(is_malformed(directory, name) for name in _OF_THE_LOADER)
        and all((directory.path / name).kind() is None for name in temporary)
    )
    if is_settled:
        return {}
    becomes_clean = is_whole or (directory.is_clean and len(recovered) == len(outcomes))
    marker = NewBytes(encode_clean_shutdown(NO_BROKER_EPOCH)) if becomes_clean else Gone()
    return {
        names.RECOVERY_POINT_CHECKPOINT: _checkpoint(recovery_points),
        names.LOG_START_OFFSET_CHECKPOINT: _checkpoint(log_starts),
        **dict.fromkeys(temporary, Gone()),
        names.CLEAN_SHUTDOWN_MARKER: marker,
    }


def is_malformed(directory: LogDirectory, name: str) -> bool:
    """Whether a file in the root of a log directory is damaged."""
    path = directory.path / name
    return any(problem.is_damage and problem.path == path for problem in directory.problems)


def with_known_log_starts(directory: LogDirectory, *, believes_empty: bool = True) -> LogDirectory:
    """The same, with what is known of a log start offset checkpoint that cannot be read.

    That is its readable lines, and for logs without one, where their leader epochs show that
    records were deleted: without it, deleted records would be there again.

    Args:
        believes_empty: whether a file of no bytes is one without lines, as for a broker.

    Raises:
        OSError: a file cannot be read.
    """
    name = names.LOG_START_OFFSET_CHECKPOINT
    if not is_malformed(directory, name) and (believes_empty or not has_lost_log_starts(directory)):
        return directory
    known = _readable(directory, name)
    for key, partition in _with_lines(directory).items():
        if key not in known and (log_start := deleted_up_to(partition)) is not None:
            known[key] = log_start
    return replace(directory, checkpoints=replace(directory.checkpoints, log_start_offsets=known))


def _with_lines(directory: LogDirectory) -> dict[TopicPartition, Partition]:
    """The directories that the lines of checkpoints are about.

    A *-stray* or *-delete* directory of the same partition, or a copy beside its log, has none.
    """
    loaded = [each for each in directory.partitions if is_loaded(each)]
    loaded.sort(key=lambda each: each.state is PartitionState.LIVE)
    return {each.key: each for each in loaded if each.topic_partition is not None}


def _readable(directory: LogDirectory, name: str) -> dict[TopicPartition, int]:
    return dict(readable_offsets((directory.path / name).read()))


def _is_kept(outcome: Recovered) -> bool:
    return all(isinstance(target, Kept) for target in outcome.files.values())


def _kept(
    offsets: Offsets | None, others: Iterable[TopicPartition | None], *, is_whole: bool
) -> dict[TopicPartition, int]:
    """The lines that stay: none for a whole directory, as a broker writes only what it loaded."""
    return {} if is_whole else dict(offsets or {})


def _checkpoint(offsets: Mapping[TopicPartition, int]) -> NewBytes:
    return NewBytes(encode_offset_checkpoint(offsets.items()))


def require_readable(directory: LogDirectory, files: Container[str]) -> None:
    """Refuse to change some lines of checkpoints whose other lines are not known.

    Raises:
        KdumpError: one of ``files`` is damaged.
    """
    for problem in directory.problems:
        if problem.path.name in files:
            raise KdumpError(
                f"{problem.path}: damaged: setting a line would lose all others; rebuild it first:"
                f" kdump checkpoint rebuild {directory.path}"
            )


def with_lines(
    directory: LogDirectory, name: str, lines: Mapping[TopicPartition, int | None]
) -> dict[str, TargetFile]:
    """The checkpoint ``name`` with other lines for some partitions; None removes a line.

    Lines of other partitions stay, in their order.
    """
    offsets = dict(directory.checkpoints.by_file_name()[name] or {})
    for key, offset in lines.items():
        if offset is None:
            offsets.pop(key, None)
        else:
            offsets[key] = offset
    return {name: _checkpoint(offsets)}


def rebuilt_root(
    directory: LogDirectory, selection: PartitionSelection = EVERYTHING
) -> dict[str, TargetFile]:
    """Rebuild the checkpoints in the root of ``directory`` from the logs.

    Lines of missing partitions are removed. A recovery point after the end of its log is lowered to
    that end. A missing recovery point is added: the end of the log after a clean shutdown, else 0,
    because the files do not show what was flushed, and 0 makes a broker check the whole log. A log
    start offset is removed if the log starts there anyway. If the log ends before it, a broker
    would delete every segment: then the log starts where its leader epochs do.

    If the log start offsets cannot be read, their readable lines stay, and what was deleted by the
    leader epochs stays deleted. Of the other two checkpoints the readable lines stay, too; where
    none is, high watermarks rise again from the start of the logs, and the cleaner starts there.
    The cleaner's also loses its lines of missing partitions: it fails if another directory has a
    line for the same log.

    Args:
        directory: the log directory, with all of its partitions listed.
        selection: the lines of other partitions stay unchanged, and so do the other two checkpoints
            if they cannot be read.

    Returns:
        The files that change.

    Raises:
        OSError: a file of a partition cannot be read.
    """
    recovery_points = dict(directory.checkpoints.recovery_points or {})
    known = with_known_log_starts(directory, believes_empty=False)
    log_starts = dict(known.checkpoints.log_start_offsets or {})
    loaded = _with_lines(directory)
    unreadable = set(map(_named, directory.unreadable))
    cleaned = dict(directory.checkpoints.cleaner_offsets or {})
    if selection.is_everything and is_malformed(directory, names.CLEANER_OFFSET_CHECKPOINT):
        cleaned = _readable(directory, names.CLEANER_OFFSET_CHECKPOINT)
    for offsets in (recovery_points, log_starts, cleaned):
        for topic_partition in offsets.keys() - loaded.keys() - unreadable:
            if selection.matches(str(topic_partition), topic_partition):
                del offsets[topic_partition]
    for topic_partition, partition in loaded.items():
        if partition not in selection:
            continue
        end_offset = read_bounds(partition).log_end_offset
        if not partition.segments:
            # A broker creates the log, at its log start offset.
            end_offset = log_starts.get(topic_partition, 0)
        if end_offset is None:
            continue
        flushed = recovery_points.get(topic_partition, end_offset if directory.is_clean else 0)
        recovery_points[topic_partition] = min(flushed, end_offset)
        if partition.segments and topic_partition in log_starts:
            log_start = start_within(
                log_starts[topic_partition], end_offset, partition.known_leader_epochs()
            )
            log_starts[topic_partition] = log_start
            if log_start <= partition.segments[0].base_offset:
                del log_starts[topic_partition]
    checkpoints = directory.checkpoints
    rebuilt: dict[str, TargetFile] = {}
    if recovery_points != checkpoints.recovery_points:
        rebuilt[names.RECOVERY_POINT_CHECKPOINT] = _checkpoint(recovery_points)
    if log_starts != checkpoints.log_start_offsets:
        rebuilt[names.LOG_START_OFFSET_CHECKPOINT] = _checkpoint(log_starts)
    name = names.CLEANER_OFFSET_CHECKPOINT
    is_damaged = selection.is_everything and is_malformed(directory, name)
    if is_damaged or cleaned != (checkpoints.cleaner_offsets or {}):
        rebuilt[name] = _checkpoint(cleaned)
    name = names.REPLICATION_OFFSET_CHECKPOINT
    if selection.is_everything and is_malformed(directory, name):
        rebuilt[name] = _checkpoint(_readable(directory, name))
    return rebuilt


def _named(directory_name: str) -> TopicPartition:
    return names.parse_partition_directory_name(directory_name).topic_partition
