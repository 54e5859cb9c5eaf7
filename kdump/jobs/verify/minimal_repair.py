"""Compute the minimal repair of what a verification has found.

What can be derived is rebuilt: indexes, producer snapshots, leader epochs, checkpoints, and
``partition.metadata`` if the cluster's metadata has the topic. Leftover files are resolved. Damaged
data is truncated where a starting broker would truncate it after an unclean shutdown; elsewhere
only by a given policy. Each round repairs one thing in a partition, because that may resolve other
findings or reveal them: the caller verifies again and repairs again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.broker.loader.checkpoints import (
    is_loaded,
    rebuilt_root,
    recovered_root,
)
from kdump.broker.loader.recovered_partition import Recovered
from kdump.check import invariants
from kdump.check.findings import Finding, Severity
from kdump.check.invariants import INVARIANTS, Remedy
from kdump.check.scope import cluster_view
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.formats import names
from kdump.formats.names import PartitionState
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.formats.uuids import parse_uuid
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.loading.load_split import load_split
from kdump.jobs.part_repair import PartTarget, RepairPart, repair_parts
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.broker import partitions_twice
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.repair.policies import Policy
from kdump.repair.rebuild.identity import rebuilt_meta_properties
from kdump.repair.salvage.recovered_0_7 import Recovered07
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import VerdictKind
from kdump.state.metadata.cluster import ClusterTopic
from kdump.state.metadata.settings import DirectorySettings
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.target.target_file import Kept, NewBytes, TargetFile

_PARTS: Final = {
    Remedy.INDEXES: RepairPart.INDEXES,
    Remedy.SNAPSHOTS: RepairPart.SNAPSHOTS,
    Remedy.LEADER_EPOCHS: RepairPart.LEADER_EPOCHS,
}
_BY_SALVAGE: Final = frozenset({Remedy.SALVAGE, Remedy.GAPS})
"""Remedies that only salvage applies: a broker loses the data in question, or does nothing."""
_ABOUT_PARTITIONS: Final = frozenset({invariants.SEGMENT_GAP.code, invariants.LOAD_LOSS.code})
"""Codes of findings whose place is the partition itself."""


class RepairableFindings(Struct):
    """The findings of a verification that have a remedy.

    Attributes:
        by_directory: the names of the files, by remedy, by log directory or partition.
    """

    by_directory: dict[Location, dict[Remedy, set[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )

    def take(self, finding: Finding) -> None:
        """Add a finding if it has a remedy and is a warning or worse."""
        remedy = INVARIANTS[finding.code].remedy
        if remedy is not Remedy.NONE and finding.severity >= Severity.WARNING:
            path = local(finding.place.path)
            self.by_directory[_directory_of(finding)][remedy].add(path.name)

    def of(self, directory: Location) -> Mapping[Remedy, set[str]]:
        """The names of the files in a directory, by remedy."""
        return self.by_directory.get(directory.resolved(), {})


def _directory_of(finding: Finding) -> Location:
    """The directory of the file that a finding is about, or the partition that it is about."""
    path = local(finding.place.path).as_absolute()
    if finding.code in _ABOUT_PARTITIONS:
        return path.resolved()
    return path.parent.resolved()


class RepairOptions(Struct, frozen=True):
    """How to repair.

    Attributes:
        settings: of the topics, by the path of the log directory.
        policy: what to do with damaged data that a broker would not check; BROKER leaves it.
        large_content: where large new content of files is put.
    """

    settings: DirectorySettings
    policy: Policy = Policy.BROKER
    now_ms: int = 0
    options: EngineOptions = DEFAULT_OPTIONS
    large_content: LargeContent = field(default_factory=LargeContent)


class MinimalRepair(Struct, frozen=True):
    """The minimal repair of a log directory.

    Attributes:
        target: its target state.
        loses_records: whether batches are lost with the damage.
        is_salvage: whether partitions are salvaged.
    """

    target: TargetDirectory
    loses_records: bool
    is_salvage: bool = False

    def left_of(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that the repair is not about; of others, verifying shows the success."""
        changed = {local(each.path).resolved() for each in self.target.partitions if each.files}
        if self.target.root:
            changed.add(local(self.target.path).resolved())
        return [finding for finding in findings if not self._is_about(finding, changed)]

    def _is_about(self, finding: Finding, changed: Collection[Location]) -> bool:
        path = local(finding.place.path).as_absolute()
        remedy = INVARIANTS[finding.code].remedy
        if remedy is Remedy.CAUSE:
            return path.parent.resolved() / path.name in changed
        if remedy is Remedy.NONE or (remedy in _BY_SALVAGE and not self.is_salvage):
            return False
        return _directory_of(finding) in changed


@during("finding out what to repair")
def plan_minimal_repair(
    findings: RepairableFindings,
    directories: Sequence[LogDirectory],
    repair: RepairOptions,
) -> list[MinimalRepair]:
    """Compute the minimal repair of log directories; nothing is written.

    Args:
        findings: of a verification.
        directories: the log directories, with all their partitions.
        repair: how to repair.

    Raises:
        KdumpError: the engine failed.
        OSError: a file cannot be read.
    """
    twice = partitions_twice(directories)
    return [
        _DirectoryRepair(
            findings,
            directory,
            repair,
            twice,
            [other for other in directories if other is not directory],
        ).target()
        for directory in directories
    ]


class _DirectoryRepair:
    """Computes the repair of one log directory."""

    def __init__(
        self,
        findings: RepairableFindings,
        directory: LogDirectory,
        repair: RepairOptions,
        twice: Collection[Location],
        others: Sequence[LogDirectory],
    ) -> None:
        self.findings = findings
        self.directory = directory
        self.repair = repair
        self.settings = repair.settings[directory.path]
        self.twice = twice
        self.others = others

    def target(self) -> MinimalRepair:
        path = self.directory.path
        root: dict[str, TargetFile] = {}
        if Remedy.IDENTITY in self.findings.of(path):
            identity = self._identity()
            if identity is not None:
                root[names.META_PROPERTIES] = identity
        if Remedy.CHECKPOINTS in self.findings.of(path):
            root |= rebuilt_root(self.directory)
        if root:
            # The repair of partitions depends on these files.
            return MinimalRepair(TargetDirectory(path.local_path, (), root), loses_records=False)
        recovered = self._recovered()
        files = {partition.path: outcome.files for partition, outcome in recovered}
        files |= self._derived(files.keys())
        changes = {
            partition_path: {
                name: target for name, target in each.items() if not isinstance(target, Kept)
            }
            for partition_path, each in files.items()
        }
        target = TargetDirectory(
            path.local_path,
            tuple(
                TargetPartition(where.local_path, each) for where, each in changes.items() if each
            ),
            self._root(recovered),
        )
        policy = self.repair.policy
        kinds = [verdict(outcome, policy).kind for _, outcome in recovered]
        return MinimalRepair(target, VerdictKind.LOSS in kinds, is_salvage=policy is Policy.SALVAGE)

    def _partitions_with(self, remedy: Remedy) -> Iterator[tuple[Partition, set[str]]]:
        """Partitions that need ``remedy`` and may be changed, with the names of the files."""
        for partition in self.directory.partitions:
            found = self.findings.of(partition.path)
            if remedy in found and self._may_change(partition):
                yield partition, found[remedy]

    def _may_change(self, partition: Partition) -> bool:
        key = partition.topic_partition
        return (
            partition.state in (PartitionState.LIVE, PartitionState.FUTURE)
            and partition.path not in self.twice
            and not partition.is_cluster_metadata
            and key is not None
            and not self.settings.topic(key.topic).remote_storage_enable
        )

    # Data

    def _recovered(self) -> list[tuple[Partition, Recovered | Recovered07]]:
        """The partitions whose data is repaired."""
        repair = self.repair
        if repair.policy is Policy.BROKER and self.directory.is_clean:
            return []  # a broker would not check any of it
        swapped = set()
        if repair.policy is Policy.SALVAGE:
            swapped = {
                partition.path
                for remedy in _BY_SALVAGE
                for partition, _ in self._partitions_with(remedy)
            }
        selected = [
            partition
            for partition in self.directory.partitions
            if partition.path in swapped or self._has_bad_data(partition)
        ]
        splits = [
            repair.large_content.split(
                load_split(
                    partition,
                    self.directory,
                    self.settings,
                    policy=repair.policy,
                    now_ms=repair.now_ms,
                ),
                self.directory.path,
            )
            for partition in selected
        ]
        outcomes = run_job(RecoverJob(), splits, repair.options)
        return [
            (partition, outcome)
            for partition, outcome in zip(selected, outcomes, strict=True)
            if isinstance(outcome, Recovered | Recovered07)
            and (partition.path in swapped or _may_lose(outcome, repair.policy))
        ]

    def _has_bad_data(self, partition: Partition) -> bool:
        """Whether its data is repaired now: not before its leftover files are resolved."""
        found = self.findings.of(partition.path)
        return (
            Remedy.DATA in found and Remedy.LEFTOVERS not in found and self._may_change(partition)
        )

    # What can be derived

    def _derived(self, done: Iterable[Location]) -> dict[Location, dict[str, TargetFile]]:
        """The target state of the files of all other partitions, by their path."""
        taken = set(done)
        files: dict[Location, dict[str, TargetFile]] = defaultdict(dict)
        targets = [target for target in self._targets() if target.partition.path not in taken]
        repair = self.repair
        for result in repair_parts(
            targets,
            repair.settings,
            repair.options,
            repair.large_content,
        ):
            files[result.target.partition.path].update(result.files)
        for partition, _ in self._partitions_with(Remedy.PARTITION_METADATA):
            metadata = self._metadata(partition)
            if metadata is not None and partition.path not in taken:
                files[partition.path][names.PARTITION_METADATA] = metadata
        return files

    def _targets(self) -> Iterator[PartTarget]:
        for partition, _ in self._partitions_with(Remedy.LEFTOVERS):
            yield PartTarget(self.directory, partition, RepairPart.LEFTOVERS)
        for remedy, part in _PARTS.items():
            for partition, found in self._partitions_with(remedy):
                if Remedy.LEFTOVERS not in self.findings.of(partition.path):
                    yield PartTarget(
                        self.directory,
                        partition,
                        part,
                        _base_offsets(found) if part is RepairPart.INDEXES else None,
                        frozenset(found),
                    )

    def _metadata(self, partition: Partition) -> NewBytes | None:
        """``partition.metadata`` by the cluster's metadata; None if it cannot be derived.

        An ID that no topic has is that of a deleted topic: then the directory does not belong to a
        topic that was created later with the same name.
        """
        cluster, key = self.settings.cluster, partition.topic_partition
        view = cluster_view(partition, self.directory, cluster)
        if cluster is None or view is None or key is None or view.owner is None:
            return None
        known = cluster.topics.get(key.topic)
        if known is None or (known.partitions and not self._is_assigned(known, key.partition)):
            return None
        topic_id = parse_uuid(known.topic_id)
        if topic_id is None:
            return None
        return NewBytes(encode_partition_metadata(PartitionMetadata(0, topic_id)))

    def _is_assigned(self, topic: ClusterTopic, partition: int) -> bool:
        """Whether the cluster assigns a replica of the partition to this node."""
        assigned = topic.partitions.get(partition)
        properties = self.directory.meta_properties
        if assigned is None or properties is None:
            return False
        return properties.node_id is None or properties.node_id in assigned.replicas

    # The root

    def _identity(self) -> NewBytes | None:
        """``meta.properties``, rebuilt from the broker's other directories."""
        clusters = [
            self.repair.settings[each.path].cluster for each in (self.directory, *self.others)
        ]
        cluster = next((each for each in clusters if each is not None), None)
        return rebuilt_meta_properties(self.directory, self.others, cluster)

    def _root(
        self, recovered: Sequence[tuple[Partition, Recovered | Recovered07]]
    ) -> dict[str, TargetFile]:
        """The lines about the partitions whose data is repaired; a clean directory stays clean."""
        outcomes = {
            partition.topic_partition: outcome
            for partition, outcome in recovered
            if isinstance(outcome, Recovered)
            and partition.topic_partition is not None
            and is_loaded(partition)
        }
        if not outcomes or self.directory.kind is not DirectoryKind.LOG_DIRECTORY:
            return {}
        return recovered_root(self.directory, outcomes)


def _may_lose(outcome: Recovered | Recovered07, policy: Policy) -> bool:
    """Whether a repair changes data, and only as the policy says.

    A broker also cuts flushed segments whose indexes it has to rebuild; here only the truncate
    policy does.
    """
    report = outcome.report
    rebuilt = {
        str(names.OffsetFileName(segment.base_offset, names.FileKind.LOG))
        for segment in report.recovered
        if segment.is_rebuilt
    }
    if policy is Policy.BROKER and any(cut.name in rebuilt for cut in report.cuts):
        return False
    return report.loses_data or bool(report.splits)


def _base_offsets(file_names: Iterable[str]) -> tuple[int, ...]:
    parsed = map(names.parse_offset_file_name, file_names)
    return tuple(sorted({each.offset for each in parsed if each is not None}))
