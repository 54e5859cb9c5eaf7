"""What log directories become when a broker loads them, or kdump salvages them.

Nothing is written: the result is a target state, for ``kdump recover`` to show and to apply.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.lock import require_unlocked
from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.broker.loader.checkpoints import is_loaded, recovered_root, with_known_log_starts
from kdump.broker.loader.load_report import LoadReport
from kdump.broker.loader.recovered_partition import Recovered
from kdump.check.collector import Collector
from kdump.check.directory import check_directory, check_emptied
from kdump.check.findings import Finding
from kdump.check.metadata_snapshot import check_metadata_snapshot
from kdump.check.partition_files import check_belonging
from kdump.check.scope import scope_in
from kdump.check.start_findings import check_start
from kdump.check.topic_configs import check_topic_configs
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.names import FileKind, OffsetFileName, PartitionState
from kdump.jobs.loading.load_partition import Outcome, RecoverJob
from kdump.jobs.loading.load_split import LoadSplit, load_split
from kdump.jobs.loading.logs_at_risk import LogAtRisk, logs_at_risk
from kdump.jobs.loading.replaced_logs import replaced_logs
from kdump.jobs.loading.verdict_words import (
    REMOTE_STORAGE,
    STRAY_CODES,
    TWICE,
    VerdictWords,
    refused_finding,
    verdict_words,
)
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.broker import partitions_twice
from kdump.log.directory import DirectoryKind, LogDirectory, Offsets
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.phases import during
from kdump.repair.policies import Policy
from kdump.repair.salvage.recovered_0_7 import Recovered07
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import VerdictKind
from kdump.state.metadata.settings import DirectorySettings
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, Kept, NewBytes, TargetFile


class RecoverRequest(Struct, frozen=True):
    """What to recover, and how."""

    directories: Sequence[LogDirectory]
    settings: DirectorySettings
    selection: PartitionSelection = EVERYTHING
    policy: Policy = Policy.BROKER
    now_ms: int = 0
    large_content: LargeContent = field(default_factory=LargeContent)


class NotRecovered(enum.Enum):
    """Why a partition is left unchanged, whatever a broker would do; the value says it."""

    DELETE = "its topic was deleted, and a starting broker deletes it"
    STRAY = "a broker found that it is not its own"
    CLUSTER_METADATA = (
        "the controller's Raft layer loads it, not the broker; --partition __cluster_metadata-0"
        " recovers it here"
    )
    REMOTE_STORAGE = REMOTE_STORAGE
    TWICE = TWICE


_LEFT_STATES: Final = {
    PartitionState.DELETE: NotRecovered.DELETE,
    PartitionState.STRAY: NotRecovered.STRAY,
}


class PartitionRecovery(Struct, frozen=True):
    """What a partition becomes.

    Attributes:
        outcome: of loading it; None if no broker loads it, or one that deletes it then.
        verdict: what a broker would do, or what the policy does.
        unchanged: why it is left unchanged all the same; None if it is changed.
        findings: what a broker would do besides, or why it would not load the partition.
        repeated: the name of the producer snapshot that is the only change, at every start; empty
            if none.
    """

    partition: Partition
    outcome: Outcome | None
    verdict: VerdictWords
    unchanged: NotRecovered | None = None
    findings: tuple[Finding, ...] = ()
    repeated: str = ""

    @property
    def report(self) -> LoadReport | None:
        """What recovery does to it, if known."""
        if isinstance(self.outcome, Recovered | Recovered07):
            return self.outcome.report
        return None

    @property
    def recovered_logs(self) -> list[Segment]:
        """The segments that loading reads again, as a starting broker does."""
        report = self.report
        bases = set() if report is None else {each.base_offset for each in report.recovered}
        return [each for each in self.partition.segments if each.base_offset in bases]

    @property
    def becomes_stray(self) -> bool:
        """Whether a broker would rename it to ``-stray`` after loading it."""
        return any(finding.code in STRAY_CODES for finding in self.findings)

    @property
    def is_refused(self) -> bool:
        """Whether a broker would refuse to start because of it."""
        return self.verdict.kind == VerdictKind.REFUSED.value

    @property
    def files(self) -> dict[str, TargetFile]:
        """The target state of its files; empty if it is left unchanged."""
        if (
            self.unchanged
            or self.is_refused
            or not isinstance(self.outcome, Recovered | Recovered07)
        ):
            return {}
        return self.outcome.files


def _verdict_on(
    partition: Partition,
    outcome: Outcome | None,
    policy: Policy,
    findings: Iterable[Finding],
    repeated: str,
) -> VerdictWords:
    if isinstance(outcome, Unreadable):
        sentence = f"{outcome.path} cannot be read: {outcome.what}"
        return VerdictWords("unreadable", sentence, sentence)
    predicted = None if outcome is None else verdict(outcome, policy)
    words = verdict_words(partition, [finding.code for finding in findings], predicted)
    if repeated and words.kind == VerdictKind.VALID.value:
        return words.followed_by(
            f"; a broker writes {repeated} of an empty log at one shutdown and deletes it at the"
            " next start"
        )
    return words


def _repeated_snapshot(outcome: Outcome | None) -> str:
    """The name of the producer snapshot that is the only change, at every start; empty if none.

    If a log starts where it ends, a broker deletes the snapshot there when it loads the log, and
    writes none when it stops. The next start finds none, and writes one at the stop
    (``ProducerStateManager.takeSnapshot``).
    """
    if not isinstance(outcome, Recovered) or outcome.log_start_offset != outcome.log_end_offset:
        return ""
    changed = [name for name, file in outcome.files.items() if not isinstance(file, Kept)]
    snapshot = OffsetFileName(outcome.log_end_offset, FileKind.PRODUCER_SNAPSHOT)
    return changed[0] if changed == [str(snapshot)] else ""


class DirectoryRecovery(Struct, frozen=True):
    """What a log directory becomes.

    Attributes:
        findings: about the directory itself.
        others: logs that are damaged as well, which shows if the marker goes.
    """

    directory: LogDirectory
    partitions: tuple[PartitionRecovery, ...]
    target: TargetDirectory
    findings: tuple[Finding, ...] = ()
    others: tuple[LogAtRisk, ...] = ()

    @property
    def becomes_clean(self) -> bool:
        """Whether the clean shutdown marker exists afterwards."""
        marker = self.target.root.get(names.CLEAN_SHUTDOWN_MARKER, Kept())
        return self.directory.is_clean if marker == Kept() else marker != Gone()

    @property
    def is_settled(self) -> bool:
        """Whether nothing changes but what a broker changes at every start."""
        if not (self.directory.is_clean and self.becomes_clean):
            return False
        changed = [
            each
            for each in self.partitions
            if any(not isinstance(file, Kept) for file in each.files.values())
        ]
        return (
            all(each.repeated for each in changed)
            and self.recovery_points == (self.directory.checkpoints.recovery_points or {})
            and self.log_start_offsets == (self.directory.checkpoints.log_start_offsets or {})
        )

    @property
    def recovery_points(self) -> Offsets:
        """The lines of their checkpoint afterwards."""
        return self._offsets(
            names.RECOVERY_POINT_CHECKPOINT, self.directory.checkpoints.recovery_points
        )

    @property
    def log_start_offsets(self) -> Offsets:
        """The lines of their checkpoint afterwards."""
        return self._offsets(
            names.LOG_START_OFFSET_CHECKPOINT, self.directory.checkpoints.log_start_offsets
        )

    def _offsets(self, name: str, before: Offsets | None) -> Offsets:
        target = self.target.root.get(name)
        if isinstance(target, NewBytes):
            return dict(decode_offset_checkpoint(target.data))
        return before or {}

    def ends(self, finding: Finding) -> bool:
        """Whether ``finding``, about a file in the root, is repaired afterwards."""
        path = local(finding.place.path)
        return path.parent == self.directory.path and path.name in self.target.root


@during("loading partitions")
def recover(
    request: RecoverRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> list[DirectoryRecovery]:
    """Compute the target state of log directories; nothing is written.

    Raises:
        LockedError: a broker is using one: what it does at a start is not known while logs change.
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine broke.
    """
    require_unlocked(each.path for each in request.directories)
    return _Recovery(request).results(options)


class _Recovery:
    """A request, with what is known about all directories together."""

    def __init__(self, request: RecoverRequest) -> None:
        known = [with_known_log_starts(each) for each in request.directories]
        self.request = request = replace(request, directories=known)
        self.twice = partitions_twice(request.directories)
        self.replaced = replaced_logs(request.directories, request.settings, request.now_ms)
        clusters = {path: each.cluster for path, each in request.settings.items()}
        self.across = list(check_start(request.directories, clusters))
        if request.selection.is_everything:
            self.across += check_emptied(request.directories, clusters)

    def results(self, options: EngineOptions) -> list[DirectoryRecovery]:
        request = self.request
        selected = [
            (directory, partition)
            for directory in request.directories
            for partition in directory.partitions
            if partition in request.selection
        ]
        unchanged = {
            partition.path: self._why_unchanged(directory, partition)
            for directory, partition in selected
        }
        splits = [
            self._split(directory, partition, unchanged[partition.path])
            for directory, partition in selected
            if not partition.is_metadata_aside
        ]
        found = run_job(RecoverJob(), splits, options)
        outcomes = {split.path: outcome for split, outcome in zip(splits, found, strict=True)}
        return [
            self._directory_result(
                directory,
                [
                    self._partition_result(
                        directory,
                        partition,
                        outcomes.get(partition.path),
                        unchanged[partition.path],
                    )
                    for owner, partition in selected
                    if owner is directory
                ],
            )
            for directory in request.directories
        ]

    def _split(
        self, directory: LogDirectory, partition: Partition, unchanged: NotRecovered | None
    ) -> LoadSplit:
        split = load_split(
            partition,
            directory,
            self.request.settings[directory.path],
            policy=self._policy(unchanged),
            now_ms=self.request.now_ms,
        )
        if unchanged:
            return replace(split, is_preview=True)
        return self.request.large_content.split(split, directory.path)

    def _policy(self, unchanged: NotRecovered | None) -> Policy:
        """The policy; for what is left unchanged, the verdict says what a broker would do."""
        return Policy.BROKER if unchanged else self.request.policy

    def _why_unchanged(self, directory: LogDirectory, partition: Partition) -> NotRecovered | None:
        if partition.state in _LEFT_STATES:
            return _LEFT_STATES[partition.state]
        if partition.path in self.twice:
            return NotRecovered.TWICE
        key = partition.key
        if partition.is_cluster_metadata:
            return None if self.request.selection.names(key) else NotRecovered.CLUSTER_METADATA
        topic = self.request.settings[directory.path].topic(key.topic)
        return NotRecovered.REMOTE_STORAGE if topic.remote_storage_enable else None

    def _partition_result(
        self,
        directory: LogDirectory,
        partition: Partition,
        loaded: Outcome | None,
        unchanged: NotRecovered | None,
    ) -> PartitionRecovery:
        policy = self._policy(unchanged)
        # A partition that is deleted afterwards matters only if the broker fails on it.
        is_left = unchanged is NotRecovered.DELETE and isinstance(loaded, Recovered | Recovered07)
        outcome = None if is_left else loaded
        into = Collector()
        cluster = self.request.settings[directory.path].cluster
        check_belonging(
            scope_in(partition, directory, cluster, self.twice, replaced=self.replaced), into
        )
        for finding in check_metadata_snapshot(partition):
            into.add(finding)
        if isinstance(outcome, Refusal):
            into.add(refused_finding(partition, verdict(outcome, policy)))
        repeated = "" if unchanged else _repeated_snapshot(outcome)
        findings = into.findings()
        words = _verdict_on(partition, outcome, policy, findings, repeated)
        return PartitionRecovery(partition, outcome, words, unchanged, findings, repeated)

    def _directory_result(
        self, directory: LogDirectory, partitions: Iterable[PartitionRecovery]
    ) -> DirectoryRecovery:
        results = tuple(partitions)
        recovery = DirectoryRecovery(
            directory,
            results,
            TargetDirectory(
                directory.path.local_path,
                tuple(
                    TargetPartition(each.partition.path.local_path, files)
                    for each in results
                    if (files := each.files)
                ),
                self._root(directory, results),
            ),
            tuple(each for each in self._findings(directory) if each.severity.is_damage),
        )
        if directory.is_clean and not recovery.becomes_clean:
            return replace(recovery, others=tuple(self._others(recovery)))
        return recovery

    def _others(self, recovery: DirectoryRecovery) -> Iterator[LogAtRisk]:
        """The logs that lose records at the next start, because a refused one ends the marker."""
        checkpoints = replace(
            recovery.directory.checkpoints, recovery_points=recovery.recovery_points
        )
        salvaged = {
            each.partition.path
            for each in recovery.partitions
            if each.files and self._policy(each.unchanged) is Policy.SALVAGE
        }
        left = tuple(each for each in recovery.directory.partitions if each.path not in salvaged)
        return logs_at_risk(replace(recovery.directory, partitions=left, checkpoints=checkpoints))

    def _findings(self, directory: LogDirectory) -> Iterator[Finding]:
        """What is wrong with a log directory, by itself and compared with the others."""
        settings = self.request.settings[directory.path]
        yield from check_directory(directory)
        yield from check_topic_configs(directory, settings.cluster, settings.kafka_version)
        for finding in self.across:
            if self._directory_of(finding) == directory.path:
                yield finding

    def _directory_of(self, finding: Finding) -> Location:
        """The log directory in which a finding is; the root, or the current directory, for none."""
        paths = {each.path for each in self.request.directories}
        path = local(finding.place.path)
        while path not in paths and path.parent != path:
            path = path.parent
        return path

    def _root(
        self, directory: LogDirectory, results: Iterable[PartitionRecovery]
    ) -> dict[str, TargetFile]:
        """The target state of the checkpoints and the marker, which only log managers keep."""
        if directory.kind is not DirectoryKind.LOG_DIRECTORY:
            return {}
        loaded = [each for each in results if is_loaded(each.partition)]
        if not self.request.selection.is_everything and not loaded:
            return {}
        return recovered_root(
            directory,
            {
                each.partition.topic_partition: each.outcome
                for each in loaded
                if not each.unchanged
                and each.partition.topic_partition is not None
                and isinstance(each.outcome, Recovered | Refusal)
                and (not each.is_refused or isinstance(each.outcome, Refusal))
            },
        )
