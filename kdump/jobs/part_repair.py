"""Repair one part of partitions: indexes, leftover files, producer snapshots or leader epochs.

Nothing is written: the result is the target state of log directories, as from
:mod:`kdump.jobs.recover`.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.check.findings import Finding, Severity
from kdump.check.invariants import INVARIANTS, Remedy
from kdump.check.part import Level
from kdump.check.scope import PartitionScope, scope_in
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.formats import producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.names import PartitionState
from kdump.jobs.loading.load_partition import put_away
from kdump.jobs.loading.load_split import LoadSplit, load_split
from kdump.jobs.loading.verdict_words import REMOTE_STORAGE, TWICE
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.verify.verify_partition import PartitionSplit, VerifyJob
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.broker import partitions_twice
from kdump.log.directory import LogDirectory, read_lone_partition
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.repair.rebuild.epoch_checkpoint import rebuild_leader_epochs
from kdump.repair.rebuild.leftovers import resolve_leftovers
from kdump.repair.rebuild.rebuild_index import rebuild_indexes
from kdump.repair.rebuild.repaired import Repaired
from kdump.repair.rebuild.snapshots import rebuild_snapshots
from kdump.state.metadata.settings import DirectorySettings, Settings
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, NewBytes, TargetFile


class RepairPart(enum.Enum):
    """What to repair."""

    INDEXES = enum.auto()
    LEFTOVERS = enum.auto()
    SNAPSHOTS = enum.auto()
    LEADER_EPOCHS = enum.auto()
    ALL_OF_DELETED = enum.auto()
    """Delete all files of a partition whose topic was deleted."""


class PartSplit(LoadSplit, frozen=True, kw_only=True):
    """A partition, or some of its segments, and the part of it to repair.

    Attributes:
        base_offsets: of the segments to repair; None for all.
        scope: what to check the files against, so that only damaged or missing files change; None
            if the damaged files are known.
    """

    part: RepairPart
    base_offsets: tuple[int, ...] | None
    scope: PartitionScope | None


class PartJob(Struct, frozen=True):
    """Computes what a partition becomes when a part of it is repaired."""

    def run(self, split: PartSplit, /) -> Repaired | Unreadable:
        """Repair one partition; a file that cannot be read is an outcome, too."""
        try:
            partition = read_lone_partition(split.path, split.name)
            repaired = self._damaged_only(partition, split, self._repaired(partition, split))
            return replace(repaired, files=put_away(split, repaired.files))
        except OSError as failure:
            return Unreadable.of(failure, split.path)

    def _damaged_only(self, partition: Partition, split: PartSplit, repaired: Repaired) -> Repaired:
        if split.scope is None or not repaired.files:
            return repaired
        wrong = _damaged_files(split, split.scope)
        if split.part is RepairPart.SNAPSHOTS and wrong:
            # Adding a missing one loses nothing.
            wrong |= {name for name in repaired.files if (partition.path / name).kind() is None}
        files = {name: file for name, file in repaired.files.items() if name in wrong}
        forgotten = _forgotten(partition, files) if split.part is RepairPart.SNAPSHOTS else ()
        return replace(repaired, files=files, forgotten=forgotten)

    def _repaired(self, partition: Partition, split: PartSplit) -> Repaired:
        match split.part:
            case RepairPart.INDEXES:
                return rebuild_indexes(partition, split.context, split.base_offsets)
            case RepairPart.LEFTOVERS:
                return resolve_leftovers(partition, split.context)
            case RepairPart.SNAPSHOTS:
                return rebuild_snapshots(partition, split.context)
            case RepairPart.LEADER_EPOCHS:
                return rebuild_leader_epochs(partition, split.context)
            case RepairPart.ALL_OF_DELETED:
                return _without_files(partition)


_REBUILT: Final = frozenset(
    invariant.code
    for invariant in INVARIANTS.values()
    if invariant.remedy in (Remedy.INDEXES, Remedy.SNAPSHOTS)
)
"""Codes of findings about a file that is to be rebuilt."""


def _forgotten(partition: Partition, files: Mapping[str, TargetFile]) -> tuple[int, ...]:
    """The producers that are in snapshots now, and in none of the rebuilt ones."""
    rebuilt = {
        entry.producer_id
        for file in files.values()
        if isinstance(file, NewBytes)
        for entry in producer_snapshot.decode(file.data).entries
    }
    known: set[int] = set()
    for name in files:
        with contextlib.suppress(FormatError, OSError):
            data = (partition.path / name).read()
            known |= {entry.producer_id for entry in producer_snapshot.decode(data).entries}
    return tuple(sorted(known - rebuilt))


def _damaged_files(split: PartSplit, scope: PartitionScope) -> set[str]:
    """The names of the files that a check of the partition finds damaged or missing."""
    job = VerifyJob(Level.DEFAULT, split.context.now_ms)
    partition = PartitionSplit(split.path, label=split.label, scope=scope, load=None)
    return {
        local(each.place.path).name
        for events in job.check_whole([partition])
        for each in events
        if isinstance(each, Finding) and each.code in _REBUILT and each.severity >= Severity.WARNING
    }


def _without_files(partition: Partition) -> Repaired:
    if partition.state is not PartitionState.DELETE:
        return Repaired({})
    entries = partition.path.entries()
    return Repaired({e.name: Gone() for e in entries if e.kind is not EntryKind.DIRECTORY})


class PartTarget(Struct, frozen=True):
    """A part of a partition to repair.

    Attributes:
        only: the names of the files to repair; None for all.
    """

    directory: LogDirectory
    partition: Partition
    part: RepairPart
    base_offsets: tuple[int, ...] | None = None
    only: frozenset[str] | None = None


class PartResult(Struct, frozen=True):
    """The result of repairing a part of a partition.

    Attributes:
        outcome: the repaired files, or why there are none.
    """

    target: PartTarget
    outcome: Repaired | Unreadable

    @property
    def files(self) -> Mapping[str, TargetFile]:
        """The target state of the files that change."""
        if isinstance(self.outcome, Unreadable):
            return {}
        only = self.target.only
        return {
            name: target
            for name, target in self.outcome.files.items()
            if only is None or name in only
        }


@during("finding out what to repair")
def repair_parts(
    targets: Sequence[PartTarget],
    settings: DirectorySettings,
    options: EngineOptions = DEFAULT_OPTIONS,
    large_content: LargeContent | None = None,
) -> list[PartResult]:
    """Compute the repair of parts of partitions; nothing is written.

    Args:
        settings: of the topics, by the path of the log directory.
        large_content: where large new content of files is put; None leaves it in memory.

    Raises:
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine broke.
    """
    content = large_content or LargeContent()
    twice = partitions_twice({each.directory.path: each.directory for each in targets}.values())
    reasons = [_why_unchanged(each, settings[each.directory.path], twice) for each in targets]
    splits = [
        None
        if reason
        else content.split(_split(each, settings[each.directory.path]), each.directory.path)
        for each, reason in zip(targets, reasons, strict=True)
    ]
    outcomes = iter(run_job(PartJob(), list(filter(None, splits)), options))
    return [
        PartResult(target, _unchanged(target, reason) if split is None else next(outcomes))
        for target, split, reason in zip(targets, splits, reasons, strict=True)
    ]


def _is_remote(target: PartTarget, settings: Settings) -> bool:
    key = target.partition.topic_partition
    return key is not None and settings.topic(key.topic).remote_storage_enable


def _why_unchanged(
    target: PartTarget, settings: Settings, twice: Mapping[Location, Location]
) -> str:
    """Why a partition must not be changed; empty if it may be."""
    other = twice.get(target.partition.path)
    if other is not None:
        return f"the partition is also in {other}: {TWICE}"
    return REMOTE_STORAGE if _is_remote(target, settings) else ""


def _unchanged(target: PartTarget, reason: str) -> Repaired:
    return Repaired({}, (Refusal(reason, target.partition.path.name, ""),))


def _split(target: PartTarget, settings: Settings) -> PartSplit:
    load = load_split(target.partition, target.directory, settings)
    is_read = target.part not in (RepairPart.LEFTOVERS, RepairPart.ALL_OF_DELETED)
    chosen = [
        segment.data_bytes
        for segment in target.partition.segments
        if target.base_offsets is None or segment.base_offset in target.base_offsets
    ]
    return PartSplit(
        load.path,
        size_bytes=sum(chosen) if is_read else 0,
        label=load.label,
        name=load.name,
        context=load.context,
        part=target.part,
        base_offsets=target.base_offsets,
        scope=_scope(target, settings),
    )


def _scope(target: PartTarget, settings: Settings) -> PartitionScope | None:
    if target.only is not None or target.part not in (RepairPart.INDEXES, RepairPart.SNAPSHOTS):
        return None
    return scope_in(
        target.partition,
        target.directory,
        settings.cluster,
        kafka_version=settings.kafka_version,
    )


def target_directories(results: Sequence[PartResult]) -> list[TargetDirectory]:
    """The target states of the log directories, including those in which nothing changes."""
    files: dict[Location, dict[Location, dict[str, TargetFile]]] = {}
    for result in results:
        target = result.target
        of_directory = files.setdefault(target.directory.path, {})
        if result.files:
            of_directory.setdefault(target.partition.path, {}).update(result.files)
    return [
        TargetDirectory(
            path.local_path,
            tuple(TargetPartition(where.local_path, each) for where, each in changes.items()),
            {},
        )
        for path, changes in files.items()
    ]
