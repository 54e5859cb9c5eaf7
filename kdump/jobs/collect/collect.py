"""Collect what the log directories of a host know about their cluster.

Each directory of a partition is a split (:mod:`kdump.jobs.collect.partition_reading`). The internal
topics and the copy of the cluster's metadata are read after them, one directory after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

import kdump
from kdump.apply.lock import require_unlocked
from kdump.broker.loader.load_context import LoadContext
from kdump.engine.engine_choice import EngineOptions, run_job
from kdump.errors import reason_of
from kdump.formats import names
from kdump.formats.errors import FormatError
from kdump.formats.names import PartitionState, TopicPartition
from kdump.jobs.collect.metadata_copy import collect_metadata
from kdump.jobs.collect.partition_reading import CollectJob, CollectSplit
from kdump.jobs.collect.topic_claims import ClaimsFound, read_claims
from kdump.jobs.loading.load_split import LoadSplit, load_split
from kdump.log.directory import LogDirectory
from kdump.log.log_search import checkpointed
from kdump.log.partition import Partition
from kdump.log.problems import FileProblem
from kdump.phases import during, phase
from kdump.state.metadata.disk_collection import (
    CollectedDirectory,
    CollectedMetadata,
    CollectedPartition,
    DiskCollection,
)
from kdump.state.metadata.settings import Settings

_LEAST_READ_BYTES: Final = 64 << 10
"""About how much is read of a partition beside what a broker reads to load it."""


class CollectRequest(Struct, frozen=True):
    """What to collect.

    Attributes:
        is_quick: whether to read no more than the result needs: damage elsewhere is not named.
        time_ms: take the cluster's topics, configurations and the like as they were then; None for
            the end of its metadata.
    """

    directories: Sequence[LogDirectory]
    now_ms: int
    is_quick: bool = False
    time_ms: int | None = None


@during("collecting what the disks know")
def collect(request: CollectRequest, options: EngineOptions) -> DiskCollection:
    """Collect what log directories know.

    Raises:
        LockedError: a broker is using one, or was started meanwhile. Its logs grow: who plans by
            what they had would let replicas lose what came later.
        KdumpError: the engine failed.
    """
    directories = request.directories
    require_unlocked(each.path for each in directories)
    partitions = [_partitions(directory) for directory in directories]
    defaults = Settings()  # reads no metadata: what that says is collected itself
    splits = [
        _split(directory, each, defaults, is_quick=request.is_quick)
        for directory, own in zip(directories, partitions, strict=True)
        for each in own
    ]
    results = iter(run_job(CollectJob(), splits, options))
    read = [list(itertools.islice(results, len(own))) for own in partitions]
    with phase("reading the internal topics"):
        claims = read_claims(directories, options)
    require_unlocked(each.path for each in directories)
    return DiskCollection(
        kdump.__version__,
        request.now_ms,
        tuple(
            _directory(*each, request.time_ms)
            for each in zip(directories, read, claims, strict=True)
        ),
    )


def _partitions(directory: LogDirectory) -> list[Partition]:
    return [each for each in directory.partitions if not each.is_cluster_metadata]


def _split(
    directory: LogDirectory, partition: Partition, settings: Settings, *, is_quick: bool
) -> CollectSplit:
    points = directory.checkpoints
    load = load_split(partition, directory, settings)
    return CollectSplit(
        partition.path,
        size_bytes=max(load.size_bytes, min(partition.data_bytes, _LEAST_READ_BYTES))
        if is_quick
        else partition.data_bytes,
        label=load.label,
        partition=partition,
        key=partition.topic_partition or TopicPartition(partition.path.name, 0),
        log_start_offset=_or_none(checkpointed(points.log_start_offsets, partition)),
        recovery_point=_or_none(checkpointed(points.recovery_points, partition)),
        high_watermark=_or_none(checkpointed(points.high_watermarks, partition)),
        is_clean=directory.is_clean,
        is_quick=is_quick,
        load=replace(load, context=_context(load, partition), is_preview=True),
    )


def _context(load: LoadSplit, partition: Partition) -> LoadContext:
    """What loading depends on; no line of a checkpoint is about a stray or deleted log."""
    if partition.state in (PartitionState.STRAY, PartitionState.DELETE):
        return replace(load.context, log_start_offset=0, recovery_point=0, high_watermark=0)
    return load.context


def _or_none(number: int | None) -> int | None:
    """A number; None if it is none that Kafka writes."""
    return None if number is None or number < 0 else number


def _directory(
    directory: LogDirectory,
    read: Sequence[CollectedPartition],
    claims: ClaimsFound,
    time_ms: int | None,
) -> CollectedDirectory:
    problems = [*_problems(directory)]
    metadata: CollectedMetadata | None = None
    try:
        with phase(f"reading the metadata in {directory.path}"):
            metadata = collect_metadata(directory, time_ms)
    except OSError as failure:
        what = FileProblem(directory.path / names.CLUSTER_METADATA_TOPIC, failure)
        problems.append(_problem(directory, what))
    marker = directory.clean_shutdown
    return CollectedDirectory(
        path=str(directory.path),
        cluster_id=directory.cluster_id,
        node_id=_or_none(directory.node_id),
        directory_id=directory.directory_id,
        is_clean_shutdown=directory.is_clean,
        broker_epoch=None if marker is None else _or_none(marker.broker_epoch),
        partitions=tuple(
            sorted(
                (
                    *(_with_problems(each, claims) for each in read),
                    *_unreadable(directory),
                ),
                key=lambda each: each.directory,
            )
        ),
        claims=claims.claims,
        highest_transactional_producer_id=claims.highest_producer_id,
        has_streams_groups=claims.has_streams_groups,
        metadata=metadata,
        problems=tuple(problems),
    )


def _with_problems(partition: CollectedPartition, claims: ClaimsFound) -> CollectedPartition:
    more = claims.problems.get(partition.directory, ())
    problems = dict.fromkeys((*partition.problems, *more))
    return partition if not more else replace(partition, problems=tuple(problems))


def _unreadable(directory: LogDirectory) -> Iterator[CollectedPartition]:
    """The partitions whose directories cannot be listed: their names are known."""
    errors = {each.path.name: each for each in directory.problems}
    for name in directory.unreadable:
        parsed = names.parse_partition_directory_name(name)
        topic, number = parsed.topic_partition
        problem = errors.get(name)
        yield CollectedPartition(
            directory=name,
            topic=topic,
            partition=number,
            state=parsed.state,
            topic_id=None,
            leader_epochs=(),
            highest_epoch=None,
            log_start_offset=None,
            log_end_offset=None,
            loaded=None,
            last_stable_offset=None,
            high_watermark=None,
            highest_producer_id=None,
            size_bytes=None,
            problems=("cannot be listed" if problem is None else _what(problem),),
        )


def _problems(directory: LogDirectory) -> Iterator[str]:
    unreadable = set(directory.unreadable)
    for problem in directory.problems:
        if problem.path.name not in unreadable:
            yield _problem(directory, problem)
    for name in directory.refused:
        yield f"{name}: not a partition name: a broker does not start with it"


def _problem(directory: LogDirectory, problem: FileProblem) -> str:
    path = str(problem.path).removeprefix(f"{directory.path}/")
    return f"{path}: {_what(problem)}"


def _what(problem: FileProblem) -> str:
    error = problem.error
    if isinstance(error, FormatError):
        return str(error)
    return reason_of(error)
