"""The job of ``kdump verify``, and the order in which its results are put together."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kdump.check.batches import SegmentScope
from kdump.check.directory import (
    check_access,
    check_broker,
    check_directory,
    check_offsets,
    foreign_files,
    root_account,
    unreadable,
)
from kdump.check.findings import Finding, Place, Severity
from kdump.check.invariants import (
    FILE_UNREADABLE,
    LOAD_REFUSED,
    PARTITION_METADATA_MISMATCH,
    PARTITION_METADATA_MISSING,
)
from kdump.check.part import ByteAccount, Level, SegmentPart
from kdump.check.partition import PartitionCheck, PartitionScope, scope_in
from kdump.check.segment import check_part
from kdump.formats import names
from kdump.formats.names import FileKind, PartitionState
from kdump.log.cluster import read_cluster_image
from kdump.log.directory import LogDirectory, read_lone_partition
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.pipeline.engine import DEFAULT_OPTIONS, EngineOptions, open_engine, run_in_order
from kdump.pipeline.job import Split
from kdump.pipeline.local import available_cores
from kdump.pipeline.progress import SILENT, Progress
from kdump.pipeline.splits import segment_splits, split_bytes
from kdump.repair.loader import LoadContext, recover_partition
from kdump.repair.verdict import Verdict, VerdictKind, verdict


@dataclass(frozen=True, slots=True)
class SegmentSplit(Split):
    """Part of the log of a segment.

    Attributes:
        scope: the segment.
    """

    scope: SegmentScope = field(default_factory=lambda: SegmentScope("", 0))


@dataclass(frozen=True, slots=True)
class LoadSplit(Split):
    """A partition whose loading is to be foretold.

    Attributes:
        name: of its directory, by which to tell what partition it is.
        context: what loading depends on besides.
    """

    name: str = ""
    context: LoadContext = field(default_factory=LoadContext)


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Checks part of a segment, or foretells what a broker does to a partition.

    Attributes:
        level: how far to go.
        now_ms: what time it is.
    """

    level: Level
    now_ms: int

    def run(self, split: SegmentSplit | LoadSplit, /) -> SegmentPart | Verdict | None:
        """Do the one or the other; what cannot be read is a part that says so, or no verdict."""
        if isinstance(split, LoadSplit):
            return _foretell(split)
        return self.check(split)

    def check(self, split: SegmentSplit) -> SegmentPart:
        """Check a part of a segment."""
        try:
            return check_part(split.scope, split.start, split.end, self.level, self.now_ms)
        except OSError as failure:
            return SegmentPart(
                split.path,
                split.start,
                split.start if split.end is None else split.end,
                findings=(unreadable(split.path, failure),),
                starts_damaged=True,
                ends_damaged=True,
            )


def _foretell(split: LoadSplit) -> Verdict | None:
    """What a broker would do to a partition when it starts; None where it cannot be read."""
    try:
        partition = read_lone_partition(Path(split.path), split.name)
        return verdict(recover_partition(partition, split.context))
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Target:
    """A partition to verify, and where it lies.

    Attributes:
        partition: which.
        directory: its log directory; None where that is not known.
    """

    partition: Partition
    directory: LogDirectory | None


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be verified.

    Attributes:
        targets: partitions, in order.
        directories: log directories that are to be checked themselves.
        level: how far to go.
        now_ms: what time it is.
    """

    targets: Sequence[Target]
    directories: Sequence[LogDirectory]
    level: Level
    now_ms: int


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What came of one partition.

    Attributes:
        partition: which.
        log_dir: where it lies.
        verdict: what a broker would do to it, in one sentence; empty where that is not known.
        verdict_kind: the same in one word.
        worst: the severity of its worst finding; None where there is none.
        findings: how many of each code.
        account: of its bytes.
        batches: how many sound ones.
        records: in them.
        end_offset: one above its last offset.
    """

    partition: Partition
    log_dir: str
    verdict: str
    verdict_kind: str
    worst: Severity | None
    findings: Mapping[str, int]
    account: ByteAccount
    batches: int
    records: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of all.

    Attributes:
        partitions: how many.
        segments: how many.
        batches: how many sound ones.
        records: in them.
        account: of all bytes.
        findings: how many of each severity.
        seconds: how long it took.
        is_unreadable: whether something could not be read.
    """

    partitions: int
    segments: int
    batches: int
    records: int
    account: ByteAccount
    findings: Mapping[Severity, int]
    seconds: float
    is_unreadable: bool

    @property
    def is_damaged(self) -> bool:
        """Whether anything is damaged, or would be lost."""
        return any(severity.is_damage and count for severity, count in self.findings.items())


Said = Finding | PartitionReport | Summary
Results = Iterator[tuple[SegmentSplit | LoadSplit, SegmentPart | Verdict | None]]


def verify(
    request: Request,
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
) -> Iterator[Said]:
    """Verify; gives findings as they are found, a report behind each partition, a summary last.

    Raises:
        KdumpError: the engine broke.
    """
    return _Verification(request, options, progress).run()


class _Verification:
    def __init__(self, request: Request, options: EngineOptions, progress: Progress) -> None:
        self.request = request
        self.options = options
        self.progress = progress
        self.job = VerifyJob(request.level, request.now_ms)
        self.severities: Counter[Severity] = Counter()
        self.account = ByteAccount()
        self.batches = self.records = 0
        self.is_unreadable = False

    def run(self) -> Iterator[Said]:
        begin = time.monotonic()
        for finding in self._before():
            yield self._counted(finding)
        for said in self._partitions():
            yield self._counted(said) if isinstance(said, Finding) else said
        yield Summary(
            partitions=len(self.request.targets),
            segments=sum(len(target.partition.segments) for target in self.request.targets),
            batches=self.batches,
            records=self.records,
            account=self.account,
            findings=dict(self.severities),
            seconds=time.monotonic() - begin,
            is_unreadable=self.is_unreadable,
        )

    def _counted(self, finding: Finding) -> Finding:
        self.severities[finding.severity] += 1
        self.is_unreadable |= finding.code == FILE_UNREADABLE.code
        return finding

    def _before(self) -> Iterator[Finding]:
        """What is to be said of the directories themselves."""
        for directory in self.request.directories:
            yield from check_directory(directory)
            yield from foreign_files(directory)
            try:
                yield from check_access(directory.path)
                self.account += root_account(directory)
            except OSError as failure:
                yield unreadable(directory.path, failure)
        yield from check_broker(self.request.directories)

    def _partitions(self) -> Iterator[Said]:
        targets = self.request.targets
        total_bytes = sum(target.partition.log_bytes for target in targets)
        size = split_bytes(total_bytes, available_cores())
        topic_ids = self._topic_ids()
        pieces = [
            _Pieces(target, scope_in(target.partition, target.directory, topic_ids), size)
            for target in targets
        ]
        splits: list[SegmentSplit | LoadSplit] = []
        for each in pieces:
            splits += each.splits
        with open_engine(self.options, total_bytes=total_bytes, progress=self.progress) as engine:
            results = run_in_order(engine, self.job, splits)
            for each in pieces:
                yield from self._partition(each, results)

    def _topic_ids(self) -> dict[str, str] | None:
        """The cluster's topics, where its metadata is in one of the directories."""
        for target in self.request.targets:
            if target.partition.is_cluster_metadata and target.partition.segments:
                try:
                    image = read_cluster_image(target.partition)
                except OSError:
                    return None  # whatever cannot be read is said of that partition
                if image is not None:
                    return {name: topic.topic_id for name, topic in image.topics.items()}
        return None

    def _partition(self, pieces: _Pieces, results: Results) -> Iterator[Said]:
        check = PartitionCheck(pieces.scope, self.request.level)
        codes: Counter[str] = Counter()
        worst: Severity | None = None
        foretold: list[Verdict] = []
        for finding in itertools.chain(
            pieces.findings,
            self._joined(pieces, results, check),
            self._ended(pieces.target, check),
            _foretold(pieces, results, foretold),
        ):
            codes[finding.code] += 1
            worst = finding.severity if worst is None else max(worst, finding.severity)
            yield finding
        partition = pieces.target.partition
        self.account += check.account
        self.batches += check.batches
        self.records += check.records
        kind, sentence = _judged(partition, codes, foretold[0] if foretold else None)
        yield PartitionReport(
            partition=partition,
            log_dir=str(partition.path.parent),
            verdict=sentence,
            verdict_kind=kind,
            worst=worst,
            findings=dict(codes),
            account=check.account,
            batches=check.batches,
            records=check.records,
            end_offset=check.end_offset,
        )

    def _joined(
        self, pieces: _Pieces, results: Results, check: PartitionCheck
    ) -> Iterator[Finding]:
        """Put the parts behind each other, each beginning where the one before ended."""
        for segment, splits in pieces.segments:
            begins = 0
            for split in splits:
                _, part = next(results)
                assert isinstance(part, SegmentPart)
                if split.start != begins:
                    if split.end is not None and split.end <= begins:
                        continue
                    # There is damage before the cut, or a batch does not begin there after all.
                    part = self.job.check(replace(split, start=begins))
                begins = part.end
                try:
                    yield from check.take(segment, part)
                except OSError as failure:
                    yield unreadable(segment.log_name, failure)

    def _ended(self, target: Target, check: PartitionCheck) -> Iterator[Finding]:
        try:
            yield from check.finish()
        except OSError as failure:
            yield unreadable(target.partition.path, failure)
        if target.directory is not None:
            yield from check_offsets(target.directory, target.partition, check.end_offset)


class _Pieces:
    """A partition in splits."""

    def __init__(self, target: Target, scope: PartitionScope, size_bytes: int) -> None:
        self.target = target
        self.scope = scope
        self.segments: list[tuple[Segment, list[SegmentSplit]]] = []
        self.findings: list[Finding] = []
        self.load = _load_split(target)
        for segment, segment_scope in scope.segment_scopes():
            try:
                cut = segment_splits(target.partition, segment, size_bytes)
            except OSError as failure:
                self.findings.append(unreadable(segment_scope.path, failure))
                continue
            self.segments.append(
                (
                    segment,
                    [
                        SegmentSplit(
                            each.path,
                            each.start,
                            each.end,
                            each.size_bytes,
                            each.label,
                            segment_scope,
                        )
                        for each in cut
                    ],
                )
            )

    @property
    def splits(self) -> Iterator[SegmentSplit | LoadSplit]:
        """The parts of segments, in order, and then the partition."""
        for _, splits in self.segments:
            yield from splits
        if self.load is not None:
            yield self.load


def _load_split(target: Target) -> LoadSplit | None:
    """How to foretell what a broker does to a partition; None where it does not load it."""
    partition, directory = target.partition, target.directory
    key = partition.topic_partition
    if directory is None or key is None or partition.is_0_7:
        return None
    if partition.state in (PartitionState.DELETE, PartitionState.STRAY):
        return None
    checkpoints = directory.checkpoints
    # The Raft layer loads the cluster's metadata as after a crash, and from its start, always.
    is_raft = partition.is_cluster_metadata
    is_clean = directory.is_clean and not is_raft
    context = LoadContext(
        is_clean=is_clean,
        recovery_point=0 if is_raft else (checkpoints.recovery_points or {}).get(key, 0),
        log_start_offset=(checkpoints.log_start_offsets or {}).get(key, 0),
        high_watermark=(checkpoints.high_watermarks or {}).get(key, 0),
    )
    name = partition.path.absolute().name
    size_bytes = 0 if is_clean or not partition.segments else partition.segments[-1].log_bytes
    return LoadSplit(
        str(partition.path), size_bytes=size_bytes, label=name, name=name, context=context
    )


def _foretold(pieces: _Pieces, results: Results, into: list[Verdict]) -> Iterator[Finding]:
    """Take the verdict on a partition, if there is to be one; a refusal is a finding, too."""
    if pieces.load is None:
        return
    _, foretold = next(results)
    assert not isinstance(foretold, SegmentPart)
    if foretold is None:
        return
    into.append(foretold)
    if foretold.kind is VerdictKind.REFUSED:
        yield LOAD_REFUSED.broken(
            Place(str(pieces.target.partition.path)),
            foretold.sentence,
            loss="all partitions of the directory, until it is put right",
        )


_SET_ASIDE: Final = frozenset({PARTITION_METADATA_MISSING.code, PARTITION_METADATA_MISMATCH.code})


def _judged(
    partition: Partition, codes: Mapping[str, int], foretold: Verdict | None
) -> tuple[str, str]:
    """The verdict on a partition, in a word and in a sentence."""
    if partition.state is PartitionState.DELETE:
        return "deleted", "a broker would delete it, as it was told before"
    if partition.state is PartitionState.STRAY:
        return "stray", "a broker would leave it alone"
    if not _SET_ASIDE.isdisjoint(codes):
        return (
            "stray",
            "a broker would rename it to -stray, and begin an empty log",
        )
    if foretold is None:
        return "", ""
    return foretold.kind.value, foretold.sentence


def segment_alone(path: Path) -> Target | None:
    """A single segment by the path of its log, as a partition that has no other.

    None where the file has not the name of a log.

    Raises:
        OSError: its directory cannot be listed, or it is not there.
    """
    path.stat()
    parsed = names.parse_offset_file_name(path.name)
    if parsed is None or parsed.kind not in (FileKind.LOG, FileKind.LOG_0_7):
        return None
    partition = read_lone_partition(path.parent, path.absolute().parent.name)
    segments = tuple(each for each in partition.segments if each.log_name == path.name)
    if not segments:
        return None
    alone = replace(
        partition,
        segments=segments,
        producer_snapshots=(),
        metadata_snapshots=(),
        leftovers=(),
        foreign=(),
    )
    return Target(alone, None)
