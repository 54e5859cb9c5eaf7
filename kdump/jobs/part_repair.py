"""The parts of a repair that can be asked for by themselves, over many partitions.

Nothing is written: what comes out is the wanted state of log directories, as from
:mod:`kdump.jobs.recover`.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.check.findings import Finding, Severity
from kdump.check.invariants import INVARIANTS, Remedy
from kdump.check.part import Level
from kdump.check.scope import PartitionScope, scope_in
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.engine.progress import SILENT, Progress
from kdump.formats import producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.names import PartitionState
from kdump.jobs.loading import REMOTE_STORAGE, TWICE, LoadSplit, Unreadable, load_split
from kdump.jobs.verify.verify_partition import PartitionSplit, VerifyJob
from kdump.log.broker import partitions_twice
from kdump.log.directory import LogDirectory, read_lone_partition
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.repair.rebuild.epoch_checkpoint import rebuild_leader_epochs
from kdump.repair.rebuild.leftovers import resolve_leftovers
from kdump.repair.rebuild.rebuild_index import rebuild_indexes
from kdump.repair.rebuild.repaired import Repaired
from kdump.repair.rebuild.snapshots import rebuild_snapshots
from kdump.state.settings import Settings
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, NewBytes, TargetFile


class RepairPart(enum.Enum):
    """What is to be put right."""

    INDEXES = enum.auto()
    LEFTOVERS = enum.auto()
    SNAPSHOTS = enum.auto()
    LEADER_EPOCHS = enum.auto()
    ALL_OF_DELETED = enum.auto()
    """All files of a partition whose topic was deleted; they go."""


@dataclass(frozen=True, slots=True)
class PartSplit(LoadSplit):
    """A partition, or some of its segments, of which a part is to be put right.

    Attributes:
        part: which.
        base_offsets: of the segments that are meant; None for all.
        scope: what to check the files against, so that only what is damaged or missing changes;
            None where that is known already.
    """

    part: RepairPart = RepairPart.INDEXES
    base_offsets: tuple[int, ...] | None = None
    scope: PartitionScope | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PartJob:
    """Says what becomes of a partition when a part of it is put right."""

    def run(self, split: PartSplit, /) -> Repaired | Unreadable:
        """Read the partition; what the machine does not give is an outcome, too."""
        try:
            partition = read_lone_partition(split.path, split.name)
            repaired = self._repaired(partition, split)
        except OSError as failure:
            return Unreadable(failure.filename or str(split.path), failure.strerror or str(failure))
        if split.scope is None or not repaired.files:
            return repaired
        wrong = _damaged_files(split, split.scope)
        if split.part is RepairPart.SNAPSHOTS and wrong:
            # One that is not there takes nothing away.
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
    """The producers that are in a snapshot now, and in none that takes its place."""
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
    """Names of the files that a check of the partition finds damaged or missing."""
    job = VerifyJob(Level.DEFAULT, split.context.now_ms)
    said = job.check_whole(PartitionSplit(split.path, label=split.label, scope=scope))
    return {
        local(each.place.path).name
        for each in said
        if isinstance(each, Finding) and each.code in _REBUILT and each.severity >= Severity.WARNING
    }


def _without_files(partition: Partition) -> Repaired:
    if partition.state is not PartitionState.DELETE:
        return Repaired({})
    entries = partition.path.entries()
    return Repaired({e.name: Gone() for e in entries if e.kind is not EntryKind.DIRECTORY})


@dataclass(frozen=True, slots=True)
class PartTarget:
    """A part of a partition that is meant.

    Attributes:
        directory: its log directory.
        partition: which.
        part: what of it.
        base_offsets: of the segments that are meant; None for all.
        only: names of the files that are meant; None for all.
    """

    directory: LogDirectory
    partition: Partition
    part: RepairPart
    base_offsets: tuple[int, ...] | None = None
    only: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class PartResult:
    """What becomes of a partition.

    Attributes:
        target: which.
        outcome: what was found out.
    """

    target: PartTarget
    outcome: Repaired | Unreadable

    @property
    def files(self) -> Mapping[str, TargetFile]:
        """What becomes of its files, as far as that is something."""
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
    settings: Mapping[Location, Settings],
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
) -> list[PartResult]:
    """Say what becomes of parts of partitions when they are put right; nothing is written.

    Args:
        targets: what is meant.
        settings: of the topics, by the path of the log directory.
        options: of the engine.
        progress: who is told.

    Raises:
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine broke.
    """
    twice = partitions_twice({each.directory.path: each.directory for each in targets}.values())
    reasons = [_why_unchanged(each, settings[each.directory.path], twice) for each in targets]
    splits = [
        None if reason else _split(each, settings[each.directory.path])
        for each, reason in zip(targets, reasons, strict=True)
    ]
    outcomes = iter(run_job(PartJob(), list(filter(None, splits)), options, progress))
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
    """Why a partition must not be written to; empty where it may be."""
    other = twice.get(target.partition.path)
    if other is not None:
        return f"the partition is also in {other}: {TWICE}"
    return REMOTE_STORAGE if _is_remote(target, settings) else ""


def _unchanged(target: PartTarget, reason: str) -> Repaired:
    return Repaired({}, (Refusal(reason, target.partition.path.name, ""),))


def _split(target: PartTarget, settings: Settings) -> PartSplit:
    """What a task is given."""
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
    return scope_in(target.partition, target.directory, settings.cluster)


def target_directories(results: Sequence[PartResult]) -> list[TargetDirectory]:
    """What the log directories of partitions should be; those in which nothing changes, too."""
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
