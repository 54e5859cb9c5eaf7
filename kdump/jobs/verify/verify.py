"""Verify partitions: divide the work, run the job, merge its results in order."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.check.assigned_nodes import check_assigned_nodes
from kdump.check.batches import SegmentScope
from kdump.check.directory import (
    check_access,
    check_cleaner_lines,
    check_directory,
    check_emptied,
    check_futures,
    foreign_files,
    root_account,
    unreadable,
)
from kdump.check.findings import Finding, Severity
from kdump.check.index_files import used_bytes
from kdump.check.invariants import FILE_UNREADABLE
from kdump.check.part import ByteAccount, Level, SegmentPart, total_records
from kdump.check.scope import PartitionScope, ReplacedLog, scope_in
from kdump.check.start_findings import check_start
from kdump.check.topic_configs import check_topic_configs
from kdump.engine.engine import run_in_order
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.engine_rates import JobKind
from kdump.engine.splits import segment_splits, split_bytes
from kdump.formats import names, offset_index, time_index
from kdump.formats.names import FileKind
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.jobs.loading.load_split import LoadSplit, is_topic_compacted, load_split
from kdump.jobs.loading.replaced_logs import replaced_logs
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.verify.verify_partition import (
    UNSETTLED,
    PartitionEvents,
    PartitionReport,
    PartitionRun,
    PartitionSplit,
    PartitionsSplit,
    SegmentSplit,
    SmallSegmentsSplit,
    VerifyJob,
    VerifyResult,
    VerifySplit,
)
from kdump.log.broker import partitions_twice
from kdump.log.directory import LogDirectory, read_lone_partition
from kdump.log.living import is_unreadable
from kdump.log.lock_holders import (
    ReadAs,
    is_living,
    note_holder_around,
    was_started_meanwhile,
)
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.phases import phase
from kdump.processes.cpu_share import half_of_the_cpus
from kdump.processes.io_priority import idle_io_priority
from kdump.processes.worker_pool import usable_cpus
from kdump.repair.verdict.verdict import Verdict
from kdump.size_groups import size_groups
from kdump.state.metadata.settings import (
    DirectorySettings,
    Settings,
    StartingKafka,
    starting_kafkas,
)
from kdump.storage.gentle_disk import Bandwidth, gently
from kdump.storage.location import Location

_SMALL_SEGMENT_BYTES: Final = 64 << 10
_MOST_SMALL_SEGMENTS: Final = 64
"""So many segments of at most this size are checked by one task."""
_MOST_GROUP_BYTES: Final = 1 << 20
_MOST_PARTITIONS: Final = 32
"""So many partitions of at most so many bytes together are checked as one."""
_MOST_TOLD: Final = 1000
"""So many findings of a partition are not told again if a broker is started while it is read."""
_START_S: Final = 20.0
"""How long a broker may take from opening the metadata to taking the lock."""

if TYPE_CHECKING:
    from kdump.jobs.verify.scrub import Coverage, Scrub, ScrubChunk
    from kdump.jobs.verify.verify_remote import RemotePieces, VerifyRemote


class VerifyTarget(Struct, frozen=True):
    """A partition to verify.

    Attributes:
        directory: its log directory; None if unknown.
        is_living: whether a broker is using it.
    """

    partition: Partition
    directory: LogDirectory | None
    is_living: bool = False


class VerifyRequest(Struct, frozen=True):
    """What to verify, and how.

    Attributes:
        targets: the partitions, in order.
        directories: the log directories to check themselves.
        level: how much to check.
        settings: of the topics, by the path of the log directory, for those of all targets.
        with_statistics: whether the reports of partitions have statistics.
        remote: remote segments to verify, too.
        living: which of the log directories a broker is using.
        scrub: which part of the data to read; None for all, cut as is best for speed.
        bandwidth: the limit of reads from local disks, in this process; None without one.
        is_stopped: whether nothing is read as in use, even if a broker is started meanwhile.
    """

    targets: Sequence[VerifyTarget]
    directories: Sequence[LogDirectory]
    level: Level
    now_ms: int
    settings: DirectorySettings
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    with_statistics: bool = False
    remote: VerifyRemote | None = None
    living: Collection[Location] = ()
    scrub: Scrub | None = None
    bandwidth: Bandwidth | None = None
    is_stopped: bool = False

    @property
    def gives_way(self) -> bool:
        """Whether others come first: a broker is there, or whoever set a limit."""
        return bool(self.living) or self.bandwidth is not None


class VerifySummary(Struct, frozen=True):
    """The totals of a verification.

    Attributes:
        partitions: how many.
        segments: how many.
        batches: the number of valid batches.
        records: in them; None if a compressed message set or a batch was not decoded.
        not_decoded: the number of batches with records over the limit.
        account: of all bytes.
        findings: the number of findings by severity.
        seconds: how long it took.
        is_unreadable: whether something could not be read.
        kafkas: which Kafka will start on the log directories.
        unsettled: how many partitions kept changing, or have leftover files, so that not all was
            judged.
        coverage: how much was read, if that was to be a part of the data.
    """

    partitions: int
    segments: int
    batches: int
    records: int | None
    not_decoded: int
    account: ByteAccount
    findings: Mapping[Severity, int]
    seconds: float
    is_unreadable: bool
    kafkas: Sequence[StartingKafka] = ()
    unsettled: int = 0
    coverage: Coverage | None = None


VerifyEvent = Finding | PartitionReport | VerifySummary
Results = Iterator[VerifyResult | PartitionEvents]


def verify(
    request: VerifyRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> Iterator[VerifyEvent]:
    """Verify; yields findings as they are found, a report after each partition, then a summary.

    Raises:
        KdumpError: the engine broke.
    """
    return _Verification(request, options).run()


def read_as(request: VerifyRequest, reading: ReadAs) -> VerifyRequest:
    """Note in a request which log directories are read as ones that a broker is using."""
    living = {each.path for each in _directories(request) if is_living(each.path, reading)}
    targets = [
        replace(each, is_living=True)
        if each.directory is not None and each.directory.path in living
        else each
        for each in request.targets
    ]
    is_stopped = reading is ReadAs.STOPPED
    return replace(request, targets=targets, living=living, is_stopped=is_stopped)


def about_directories(request: VerifyRequest) -> Iterator[Finding]:
    """The findings about the log directories of a broker themselves."""
    return _Verification(request, DEFAULT_OPTIONS).before()


def divide(request: VerifyRequest) -> list[PartitionSplit]:
    """Divide a verification into whole partitions, for who runs the job :class:`VerifyJob` itself.

    Returns:
        A split for each target.
    """
    verification = _Verification(request, DEFAULT_OPTIONS)
    return [_whole_split(target, *verification.scope_of(target)) for target in request.targets]


def _whole_split(
    target: VerifyTarget, scope: PartitionScope, load: LoadSplit | None
) -> PartitionSplit:
    """The split that checks all of a partition, as one that a broker is using if one does."""
    partition = scope.partition
    kind = PartitionSplit
    if target.is_living:
        from kdump.jobs.verify.verify_living import LivingSplit

        kind, load = LivingSplit, None
    return kind(
        partition.path,
        size_bytes=partition.data_bytes,
        label=partition.path.name,
        scope=scope,
        load=load,
    )


class _Verification:
    def __init__(self, request: VerifyRequest, options: EngineOptions) -> None:
        self.request = request
        self.options = options
        self.job = VerifyJob(
            request.level,
            request.now_ms,
            request.largest_record_bytes,
            request.with_statistics,
            None if request.scrub is None else request.scrub.deadline,
        )
        self.severities: Counter[Severity] = Counter()
        self.account = ByteAccount()
        self.batches = 0
        self.records: int | None = 0
        self.not_decoded = 0
        self.is_unreadable = False
        self.unsettled = 0
        self.remote: list[RemotePieces] = []
        self.reported = 0
        self.coverage: Coverage | None = None
        self.waited = set[Location]()

    @functools.cached_property
    def _twice(self) -> dict[Location, Location]:
        return partitions_twice(_directories(self.request))

    @functools.cached_property
    def _replaced(self) -> dict[Location, ReplacedLog]:
        return replaced_logs(self._stopped, self.request.settings, self.request.now_ms)

    @property
    def _stopped(self) -> list[LogDirectory]:
        return [each for each in _directories(self.request) if each.path not in self.request.living]

    def run(self) -> Iterator[VerifyEvent]:
        with contextlib.ExitStack() as beside:
            if self.request.gives_way:
                beside.enter_context(idle_io_priority())
                beside.enter_context(half_of_the_cpus())
            yield from self._events()

    def _events(self) -> Iterator[VerifyEvent]:
        begin = time.monotonic()
        for finding in self.before():
            yield self._counted(finding)
        for event in self._partitions():
            yield self._counted(event) if isinstance(event, Finding) else event
        yield VerifySummary(
            partitions=self.reported,
            segments=self._read_segments(),
            batches=self.batches,
            records=self.records,
            not_decoded=self.not_decoded,
            account=self.account,
            findings=dict(self.severities),
            seconds=time.monotonic() - begin,
            is_unreadable=self.is_unreadable,
            kafkas=starting_kafkas(self.request.settings.values()),
            unsettled=self.unsettled,
            coverage=self.coverage,
        )

    def _read_segments(self) -> int:
        if self.coverage is not None:
            return self.coverage.read
        return sum(len(target.partition.segments) for target in self.request.targets) + sum(
            len(each.splits) for each in self.remote
        )

    def _counted(self, finding: Finding) -> Finding:
        self.severities[finding.severity] += 1
        self.is_unreadable |= finding.code == FILE_UNREADABLE.code
        return finding

    def before(self) -> Iterator[Finding]:
        """The findings about the directories themselves."""
        for directory in self.request.directories:
            found: Iterable[Finding] = self._of_directory(directory)
            if directory.path not in self.request.living:
                found = list(found)
            if self._is_living(directory, found):
                from kdump.jobs.verify.verify_living import root_findings

                found = root_findings(directory, found)
            yield from found
        stopped = [
            each for each in self.request.directories if each.path not in self.request.living
        ]
        yield from check_cleaner_lines(stopped)
        clusters = {path: each.cluster for path, each in self.request.settings.items()}
        yield from check_futures(stopped, clusters)
        missing = list(check_emptied(stopped, clusters))
        started = [f"{each.path}/" for each in stopped if self._is_living(each, missing)]
        # A broker that was started meanwhile creates logs.
        yield from (each for each in missing if not each.place.path.startswith(tuple(started)))
        yield from check_start(stopped, clusters)
        yield from check_assigned_nodes(stopped, clusters)
        if self.request.remote is not None:
            from kdump.jobs.verify.verify_remote import metadata_findings

            yield from metadata_findings(self.request.remote.plans.metadata())

    def _is_living(self, directory: LogDirectory, found: Iterable[Finding]) -> bool:
        """Whether a broker uses a directory, also one that was started after it was listed.

        Args:
            found: what was found of it: if that is nothing, nobody asks.
        """
        path = directory.path
        if path in self.request.living:
            return True
        doubted = [each for each in found if each.severity is not Severity.INFO]
        is_local = path.storage.local_path(path.path) is not None
        if not doubted or self.request.is_stopped or not is_local:
            return False
        if path in self.waited or not any(_is_about_gone(each, directory) for each in doubted):
            return was_started_meanwhile(path)
        self.waited.add(path)
        # A broker opens the metadata before it takes the lock.
        with phase(f"looking whether a broker is starting in {path}"):
            return was_started_meanwhile(path, _START_S)

    def _of_directory(self, directory: LogDirectory) -> Iterator[Finding]:
        yield from check_directory(directory)
        settings = self.request.settings.get(directory.path)
        if settings is not None:
            yield from check_topic_configs(directory, settings.cluster, settings.kafka_version)
        yield from foreign_files(directory)
        try:
            yield from check_access(directory)
            self.account += root_account(directory)
        except OSError as failure:
            yield unreadable(directory.path, failure)

    def _partitions(self) -> Iterator[VerifyEvent]:
        if self.request.scrub is not None:
            yield from self._scrubbed(self.request.scrub)
            return
        targets = self.request.targets
        total_bytes = sum(target.partition.data_bytes for target in targets)
        size = split_bytes(total_bytes, usable_cpus())
        with phase("dividing the work", len(targets)) as dividing:
            pieces = [self._pieces(target, size) for target in dividing.over(targets)]
        self.remote = list(self._remote_pieces())
        splits = _grouped([split for each in pieces for split in each.splits])
        splits += [split for each in self.remote for split in each.splits]
        total_bytes = sum(split.size_bytes for split in splits)
        with open_engine(self.options, kind=self._kind, total_bytes=total_bytes) as engine:
            results = _each_result(run_in_order(engine, self.job, splits))
            for each in pieces:
                events = self._settled(each.target, each.scope, each.events(results))
                yield from map(self._added, events)
            parts = _remote_parts(results)
            for remote in self.remote:
                yield from map(self._added, remote.events(parts))

    def _settled(
        self,
        target: VerifyTarget,
        scope: PartitionScope,
        events: Iterator[Finding | PartitionReport],
    ) -> Iterator[Finding | PartitionReport]:
        """The events of a partition; if a broker was started meanwhile, of one that it is using.

        Args:
            scope: of what was checked of it.
            events: what was found.
        """
        directory = None if target.is_living else target.directory
        told = set[Finding]()
        for event in events:
            found = [event] if isinstance(event, Finding) else []
            if directory is not None and self._is_living(directory, found):
                for _ in events:
                    pass  # what is left of it has been read all the same
                split = _whole_split(replace(target, is_living=True), scope, None)
                again = next(self.job.check_whole([split]))
                for each in again:
                    if isinstance(each, PartitionReport) or each not in told:
                        yield each
                return
            if len(told) < _MOST_TOLD:
                told.update(found)
            yield event

    @property
    def _kind(self) -> JobKind:
        return JobKind.DECODE if self.request.level >= Level.DEEP else JobKind.SCAN

    def _scrubbed(self, scrub: Scrub) -> Iterator[VerifyEvent]:
        """Verify a part of the data: each split is a whole partition, or some of its segments."""
        from kdump.jobs.verify.scrub import ScrubRun

        targets = self.request.targets
        run = ScrubRun(scrub, [each.partition for each in targets], self.request.now_ms)
        with phase("dividing the work", len(run.chunks)) as dividing:
            chunks = [self._chunk_split(each) for each in dividing.over(run.chunks)]
        splits = _grouped(chunks)
        total_bytes = sum(split.size_bytes for split in splits)
        with open_engine(self.options, kind=self._kind, total_bytes=total_bytes) as engine:
            results = map(_partition_events, _each_result(run_in_order(engine, self.job, splits)))
            settled = (
                tuple(self._settled(targets[chunk.target], split.scope, iter(events)))
                for chunk, split, events in zip(run.chunks, chunks, results, strict=True)
            )
            yield from map(self._added, run.merged(settled))
        self.coverage = run.coverage()
        if scrub.history is not None:
            for directory in self.request.directories:
                scrub.history.forget_others(directory.path, directory.partitions)

    def _chunk_split(self, chunk: ScrubChunk) -> PartitionSplit:
        target = self.request.targets[chunk.target]
        scope, load = self.scope_of(target)
        if chunk.bases is None:
            return _whole_split(target, scope, load)
        scope = replace(scope, chosen=chunk.bases, is_rest=chunk.is_rest)
        split = _whole_split(target, scope, None)
        segments = target.partition.segments
        read_bytes = sum(each.data_bytes for each in segments if each.base_offset in chunk.bases)
        return replace(split, size_bytes=read_bytes)

    def _added(self, event: Finding | PartitionReport) -> Finding | PartitionReport:
        """Add a report to the totals."""
        if isinstance(event, PartitionReport):
            self.reported += 1
            self.account += event.account
            self.batches += event.batches
            self.records = total_records(self.records, event.records)
            self.not_decoded += event.not_decoded
            self.unsettled += event.verdict_kind == UNSETTLED
        return event

    def _remote_pieces(self) -> Iterator[RemotePieces]:
        remote = self.request.remote
        if remote is None:
            return
        from kdump.jobs.verify.verify_remote import RemotePieces

        keys = remote.partitions()
        with phase("listing remote segments", len(keys)) as listing:
            for key in listing.over(keys):
                yield RemotePieces.of(remote, key)

    def _pieces(self, target: VerifyTarget, size_bytes: int) -> _Pieces:
        scope, load = self.scope_of(target)
        if target.is_living:
            load = None
        return _Pieces(self.job, target, scope, load, size_bytes)

    def scope_of(self, target: VerifyTarget) -> tuple[PartitionScope, LoadSplit | None]:
        """What to check a partition against, and how a broker would load it."""
        scope, load = self._scope_of(target)
        if not target.is_living and self.request.bandwidth is None:
            return scope, load
        path = gently(scope.partition.path, self.request.bandwidth)
        scope = replace(scope, partition=replace(scope.partition, path=path))
        return scope, None if load is None else replace(load, path=path)

    def _scope_of(self, target: VerifyTarget) -> tuple[PartitionScope, LoadSplit | None]:
        partition, directory = target.partition, target.directory
        if directory is None:
            return scope_in(partition, None), None
        settings = self.request.settings[directory.path]
        key = partition.topic_partition
        compaction = None if key is None else is_topic_compacted(settings, key.topic)
        version = settings.kafka_version
        scope = scope_in(
            partition,
            directory,
            settings.cluster,
            self._twice,
            compaction,
            version,
            {} if target.is_living else self._replaced,
        )
        return scope, _load_split(partition, directory, settings)


def _is_about_gone(finding: Finding, directory: LogDirectory) -> bool:
    """Whether a file was listed that could not be read because it was gone."""
    at = replace(directory.path, path=finding.place.path)
    return finding.code == FILE_UNREADABLE.code and not is_unreadable(at)


def _grouped(splits: Sequence[VerifySplit | PartitionSplit]) -> list[VerifySplit]:
    """The same splits, with partitions beside each other in groups."""
    grouped: list[VerifySplit] = []
    for is_partition, some in itertools.groupby(
        splits, lambda each: isinstance(each, PartitionSplit)
    ):
        if not is_partition:
            grouped += [each for each in some if not isinstance(each, PartitionSplit)]
            continue
        partitions = [each for each in some if isinstance(each, PartitionSplit)]
        for group in size_groups(
            partitions,
            lambda each: each.size_bytes,
            _MOST_GROUP_BYTES,
            most_items=_MOST_PARTITIONS,
        ):
            size_bytes = sum(each.size_bytes for each in group)
            grouped.append(
                PartitionsSplit(
                    group[0].path,
                    size_bytes=size_bytes,
                    label=group[0].label,
                    partitions=tuple(group),
                )
            )
    return grouped


def _each_result(results: Iterator[tuple[VerifySplit, VerifyResult]]) -> Results:
    """The results, with those of each partition of a group by themselves."""
    for split, result in results:
        if isinstance(split, PartitionsSplit):
            assert isinstance(result, list)
            yield from result
        else:
            yield result


def _partition_events(result: VerifyResult | PartitionEvents) -> PartitionEvents:
    assert isinstance(result, tuple)
    return result


def _remote_parts(results: Results) -> Iterator[SegmentPart]:
    for part in results:
        assert isinstance(part, SegmentPart)
        yield part


def _directories(request: VerifyRequest) -> list[LogDirectory]:
    """All log directories: those of the targets, and those to check themselves."""
    around = {each.directory.path: each.directory for each in request.targets if each.directory}
    return list((around | {each.path: each for each in request.directories}).values())


class _Pieces:
    """The splits of a partition."""

    def __init__(
        self,
        job: VerifyJob,
        target: VerifyTarget,
        scope: PartitionScope,
        load: LoadSplit | None,
        size_bytes: int,
    ) -> None:
        self.target = target
        self.scope = scope
        self._partition = partition = scope.partition
        self._job = job
        self._run: PartitionRun | None = None
        self._segments: list[tuple[list[Segment], list[SegmentSplit]]] = []
        """Small segments that are one split, or a larger one and its splits."""
        self._findings: list[Finding] = []
        self.splits: list[VerifySplit | PartitionSplit] = []
        if target.is_living or partition.data_bytes <= size_bytes:
            # Who reads a living partition has to know what changed of it meanwhile.
            self.splits.append(_whole_split(target, scope, load))
            return
        self._run = PartitionRun(job, scope, load)
        small: list[tuple[Segment, SegmentScope]] = []
        for segment, segment_scope in scope.segment_scopes():
            if segment.data_bytes <= min(_SMALL_SEGMENT_BYTES, size_bytes):
                small.append((segment, segment_scope))
                if len(small) == _MOST_SMALL_SEGMENTS:
                    self._add_small(small)
                continue
            self._add_small(small)
            try:
                splits = _segment_splits(partition, segment, segment_scope, size_bytes)
            except OSError as failure:
                self._findings.append(unreadable(segment_scope.path, failure))
                continue
            self._segments.append(([segment], splits))
            self.splits += splits
        self._add_small(small)
        if load is not None and not self._run.is_plain:
            self.splits.append(load)

    def _add_small(self, small: list[tuple[Segment, SegmentScope]]) -> None:
        """Make one split of segments, and empty the list."""
        if not small:
            return
        path = self._partition.path
        size_bytes = sum(segment.data_bytes for segment, _ in small)
        scopes = tuple(scope for _, scope in small)
        self.splits.append(
            SmallSegmentsSplit(path, size_bytes=size_bytes, label=path.name, scopes=scopes)
        )
        self._segments.append(([segment for segment, _ in small], []))
        small.clear()

    def events(self, results: Results) -> Iterator[Finding | PartitionReport]:
        """Merge the results of the splits; takes exactly as many results as there are splits."""

        def predict(_: LoadSplit) -> Verdict | Unreadable:
            predicted = next(results)
            assert isinstance(predicted, Verdict | Unreadable)
            return predicted

        if self._run is None:
            found = next(results)
            assert isinstance(found, tuple)
            events: Iterable[Finding | PartitionReport] = found
        else:
            events = self._run.events(self._parts(results), self._findings, predict)
        for event in events:
            if isinstance(event, PartitionReport):
                event = replace(event, partition=self.target.partition)
            yield event

    def _parts(self, results: Results) -> Iterator[tuple[Segment, SegmentPart]]:
        """The parts of all segments, each beginning where the one before ended."""
        for segments, splits in self._segments:
            if not splits:
                parts = next(results)
                assert isinstance(parts, list)
                yield from zip(segments, parts, strict=True)
            begins = 0
            for split in splits:
                part = next(results)
                assert isinstance(part, SegmentPart)
                if split.start != begins:
                    if split.end is not None and split.end <= begins:
                        continue
                    # There is damage before the cut, or a batch does not begin there after all.
                    part = self._job.check(replace(split, start=begins))
                begins = part.end
                yield segments[0], part


def _segment_splits(
    partition: Partition, segment: Segment, scope: SegmentScope, size_bytes: int
) -> list[SegmentSplit]:
    """Split the log of a segment into one or several splits.

    Raises:
        OSError: it cannot be read.
    """
    cut = segment_splits(partition, segment, size_bytes)
    if len(cut) > 1:
        scope = replace(scope, used_index_bytes=_used_index_bytes(scope))
    return [
        SegmentSplit(each.path, each.start, each.end, each.size_bytes, each.label, scope=scope)
        for each in cut
    ]


def _used_index_bytes(scope: SegmentScope) -> tuple[int, int] | None:
    """Where the padding of a segment's indexes begins, read once for all splits."""
    try:
        return (
            used_bytes(scope.file(FileKind.OFFSET_INDEX), offset_index.ENTRY_BYTES),
            used_bytes(scope.file(FileKind.TIME_INDEX), time_index.ENTRY_BYTES),
        )
    except OSError:
        return None  # each part reports it


def _load_split(
    partition: Partition, directory: LogDirectory, settings: Settings
) -> LoadSplit | None:
    """The split that predicts what a broker does to a partition; None if it does not load it."""
    if partition.topic_partition is None or partition.is_0_7 or partition.is_metadata_aside:
        return None
    return load_split(partition, directory, settings)


def segment_alone(path: Location) -> VerifyTarget | None:
    """A single segment by the path of its log, as a partition that has no other.

    None if the file is not named as a log.

    Raises:
        OSError: the file does not exist, or its directory cannot be listed.
    """
    path.status()
    parsed = names.parse_offset_file_name(path.name)
    if parsed is None or parsed.kind not in (FileKind.LOG, FileKind.LOG_0_7):
        return None
    partition = read_lone_partition(path.parent, path.as_absolute().parent.name)
    note_holder_around(path)
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
    return VerifyTarget(alone, None)
