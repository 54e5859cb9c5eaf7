"""Search partitions: divide their logs, search the parts, and yield what is found in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.engine.engine import run_in_order
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import describe_failure
from kdump.engine.range_splits import RangeSplit, RecordRange, range_splits
from kdump.jobs.grep.search import GrepJob, SearchResult
from kdump.log.living import while_it_changes
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage
from kdump.phases import phase
from kdump.state.transactions.open_transactions import last_stable_offset, usable_snapshots
from kdump.storage.location import Location
from kdump.tables.kafka_log.found_partitions import FoundPartition

_SPLIT_BYTES: Final = 4 << 20
"""Smaller than elsewhere: a result may be larger than its split, and waits for its turn."""


class GrepRequest(Struct, frozen=True):
    """What to search.

    Attributes:
        targets: the partitions, in order.
        records: which offsets, and from which time on.
        most: stop after so many records in total; None for no limit.
        once_a_file: stop searching a file after its first match.
    """

    targets: Sequence[FoundPartition]
    job: GrepJob
    records: RecordRange = field(default_factory=RecordRange)
    most: int | None = None
    once_a_file: bool = False


class FoundInFile(NamedTuple):
    """What was found in a part of a log.

    Attributes:
        path: the log; the partition's directory if that cannot be read.
        found: what was found; it has no rest.
    """

    partition: Partition
    path: Location
    found: SearchResult


def grep(request: GrepRequest, options: EngineOptions = DEFAULT_OPTIONS) -> Iterator[FoundInFile]:
    """Search; yields what is found in the order of partitions, segments and offsets.

    Raises:
        KdumpError: the engine failed.
    """
    splits: list[RangeSplit] = []
    partitions: list[Partition] = []
    with phase("dividing the work", len(request.targets)) as dividing:
        for target in dividing.over(request.targets):
            problems: list[Damage] = []
            failure = None
            try:
                own = _planned(target, request, problems)
                splits += own
                partitions += [target.partition] * len(own)
            except OSError as error:
                failure = describe_failure(error)
            if problems or failure is not None:
                found = SearchResult(damages=tuple(problems), failure=failure)
                yield FoundInFile(target.partition, target.partition.path, found)
    total_bytes = sum(split.size_bytes for split in splits)
    left = request.most
    done: Location | None = None
    with open_engine(options, kind=JobKind.DECODE, total_bytes=total_bytes) as engine:
        results = run_in_order(engine, request.job, splits)
        for partition, (split, result) in zip(partitions, results, strict=True):
            if request.once_a_file and split.path == done:
                continue
            for found in _continued(request.job, split, result, left):
                yield FoundInFile(partition, split.path, found)
                if found.matches:
                    done = split.path
                if left is not None:
                    left -= found.matches
            if left == 0:
                return


def _planned(
    target: FoundPartition, request: GrepRequest, problems: list[Damage]
) -> list[RangeSplit]:
    """The splits of a partition, which a broker may be using; adds damage to ``problems``."""

    def of(partition: Partition) -> list[RangeSplit]:
        problems.clear()
        return list(_splits(target.of(partition), request, problems))

    return while_it_changes(target.partition, of, gone=[], has_damage=lambda _: bool(problems))


def _splits(
    target: FoundPartition, request: GrepRequest, problems: list[Damage]
) -> Iterator[RangeSplit]:
    """The splits of a partition; adds the damage that was found meanwhile to ``problems``."""
    records = request.records
    partition = target.partition
    if request.job.is_committed and not partition.is_0_7:
        snapshots = usable_snapshots(partition, target.log_start_offset, target.flushed_offset)
        found = list[Damage]()
        stable = last_stable_offset(partition, snapshots, found.append)
        problems += (replace(damage, problem=str(damage.problem)) for damage in found)
        ends = [end for end in (records.to_offset, stable) if end is not None]
        records = replace(records, to_offset=min(ends, default=None))
    yield from range_splits(partition, target.segments, records, _SPLIT_BYTES)


def _continued(
    job: GrepJob, split: RangeSplit, found: SearchResult, left: int | None
) -> Iterator[SearchResult]:
    """The result of a split, at most ``left`` records of it, and what it has no room for."""
    rest: RangeSplit | None = split
    if left is None or found.matches <= left:
        yield replace(found, rest=None)
        rest = found.rest
        left = None if left is None else left - found.matches
    if rest is None or left == 0:
        return
    try:
        for part in replace(job, most=job.most if left is None else left).parts(rest):
            yield replace(part, rest=None)
    except OSError as failure:
        yield SearchResult(failure=describe_failure(failure))
