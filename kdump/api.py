"""The public Python interface: open a log directory, verify it, preview its recovery.

Import these names from :mod:`kdump` itself. Nothing here writes. ``docs/python.md`` has examples.

All functions raise :class:`KdumpError` where something cannot be done, :class:`UsageProblem`, which
is one, where they are asked for something that does not exist, and ``OSError`` where a file cannot
be read. Damage in the data is reported as findings; only reading records and batches raises for it,
as :class:`DamagedLogError`, unless told to skip it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final, Literal, TypeVar

import pyarrow as pa
from msgspec.structs import replace

from kdump.apply.plan import make_plan
from kdump.broker.loader.swapped_partition import as_loaded
from kdump.check.findings import Finding, Place, Severity
from kdump.check.part import Level
from kdump.clock import current_time_ms
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.errors import KdumpError, UsageProblem
from kdump.jobs import recover as recovering
from kdump.jobs.table_rows.batch_rows import read_batches
from kdump.jobs.table_rows.log_tables import BATCHES
from kdump.jobs.table_rows.table_reader import open_table
from kdump.jobs.verify import verify as verifying
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log import directory as directories
from kdump.log.bounds import LogBounds, read_bounds
from kdump.log.directory import LogDirectory
from kdump.log.lock_holders import ReadAs
from kdump.log.partition import Partition
from kdump.log.replicas import most_advanced, of_one_topic
from kdump.log.segment import Segment
from kdump.log.selection import PartitionSelection
from kdump.log.valid_windows import Damage, segment_part
from kdump.payloads.record_payloads import RecordPayloads
from kdump.repair.policies import Policy
from kdump.state.metadata.cluster import read_newest_image
from kdump.state.metadata.settings import Settings, read_settings, require_accepted
from kdump.storage.location import Location
from kdump.storage.parallel_reads import with_files_at_hand
from kdump.storage.places import (
    ask_again,
    concurrent_reads,
    missing_in_archive,
    parse_locations,
    text_of,
)
from kdump.tables.kafka_log.damage import DamagedLogError
from kdump.tables.kafka_log.options import SourceOptions, parse_options
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.reader import SourceReading
from kdump.tables.kafka_log.rows import RecordOrigin
from kdump.tables.kafka_log.selected_offsets import Bounds, Edge
from kdump.tables.kafka_log.splits import SourceSplit, plan_splits
from kdump.tables.table import arrow_schema

__all__ = [
    "DamagedLogError",
    "Finding",
    "KdumpError",
    "LogBounds",
    "LogDir",
    "LogPartition",
    "LogSegment",
    "PartitionVerdict",
    "Place",
    "PlannedOperation",
    "PlannedPartition",
    "RecoveryPlan",
    "Severity",
    "UsageProblem",
    "VerifyReport",
    "open_log_dir",
    "plan_recovery",
    "verify",
]

Value = TypeVar("Value")
AnyPath = str | PathLike[str]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
OnDamage = Literal["raise", "skip"]
_ON_DAMAGE: Final = ("raise", "skip")


# ---- A log directory ----


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A segment of a partition.

    Attributes:
        base_offset: the first offset that it may hold.
        path: the log file.
        size_bytes: size of the log file.
    """

    base_offset: int
    path: Path | str
    size_bytes: int
    _partition: Partition = field(repr=False, compare=False)
    _segment: Segment = field(repr=False, compare=False)

    def batches(self, *, on_damage: OnDamage = "raise") -> pa.RecordBatchReader:
        """As :meth:`LogPartition.batches`, for this segment alone."""
        return _read_batches(self._partition, [self.base_offset], 0, None, on_damage)

    def records(
        self,
        *,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        control_records: bool = False,
        on_damage: OnDamage = "raise",
    ) -> pa.RecordBatchReader:
        """As :meth:`LogPartition.records`, for this segment alone."""
        path = self._partition.segment_path(self._segment, self._segment.log_kind)
        options = _source_options(path, columns, isolation_level, control_records, on_damage)
        return _read_records(options)


@dataclass(frozen=True, slots=True)
class LogPartition:
    """A partition's directory.

    Attributes:
        topic: None for a directory that is not named after a topic.
        number: the partition's number; None likewise.
        state: ``live``, ``future`` (on its way from another disk), ``delete`` or ``stray``.
        path: the directory.
        size_bytes: of all files in it.
        segments: by base offset.
    """

    topic: str | None
    number: int | None
    state: str
    path: Path | str
    size_bytes: int
    segments: tuple[LogSegment, ...]
    _partition: Partition = field(repr=False, compare=False)
    _directory: LogDirectory = field(repr=False, compare=False)

    def bounds(self) -> LogBounds:
        """Read offsets and times of the log, from checkpoints, indexes and a few headers.

        Raises:
            OSError: a file cannot be read.
        """
        found = self._directory
        return read_bounds(self._partition, found.checkpoints, is_clean=found.is_clean)

    def batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        on_damage: OnDamage = "raise",
    ) -> pa.RecordBatchReader:
        """Stream the headers of batches.

        Args:
            start_offset: the first offset to read; None for the first in the log.
            end_offset: the first offset not to read; None for the end of the log.
            on_damage: ``raise`` or ``skip``.

        Raises:
            DamagedLogError: while reading, if told to raise.
            UsageProblem: the log is one of Kafka 0.7.
            OSError: while reading, if a file cannot be read.
        """
        bases = [segment.base_offset for segment in self.segments]
        return _read_batches(self._partition, bases, start_offset or 0, end_offset, on_damage)

    def records(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        control_records: bool = False,
        on_damage: OnDamage = "raise",
    ) -> pa.RecordBatchReader:
        """Stream records, with the columns of the Spark data source (``docs/kafka-log.md``).

        Args:
            start_offset: the first offset to read; None for the log start offset.
            end_offset: the first offset not to read; None for the end of the log.
            columns: names of columns; None for all but ``headers``.
            isolation_level: ``read_committed`` leaves out aborted transactions, and everything
                from the first open transaction on.
            control_records: also give the markers of transactions and other control records.
            on_damage: ``raise`` or ``skip``.

        Raises:
            DamagedLogError: while reading, if told to raise.
            KdumpError: a checkpoint with its log start offset cannot be read, if told to raise.
            UsageProblem: there is no such column.
            OSError: a file cannot be read.
        """
        path = self._partition.path
        options = _source_options(path, columns, isolation_level, control_records, on_damage)
        start = Edge.EARLIEST if start_offset is None else start_offset
        end = Edge.LATEST if end_offset is None else end_offset
        return _read_records(replace(options, start=Bounds(start), end=Bounds(end)))


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory, or several together, as they were when they were opened.

    Attributes:
        path: the directory; a name such as a URI if it is not on this machine, also below. The
            first of several.
        paths: all of them.
        is_clean: whether it has the clean shutdown marker; of several, whether all have.
        cluster_id: from ``meta.properties``; None where that says none, or several differ.
        node_id: likewise.
        partitions: by topic, number and state; those of several by directory.
        problems: files and directories that could not be read or are malformed, a line each.
    """

    path: Path | str
    paths: tuple[Path | str, ...]
    is_clean: bool
    cluster_id: str | None
    node_id: int | None
    partitions: tuple[LogPartition, ...]
    problems: tuple[str, ...]
    _locations: tuple[Location, ...] = field(repr=False, compare=False)

    def partition(self, topic: str, number: int) -> LogPartition:
        """Give a live partition; of several replicas, the most advanced one.

        Of a topic that was deleted and created again, those of the one that the cluster's metadata
        has are replicas, or without metadata of the one with the most replicas of the partition.

        Raises:
            UsageProblem: there is none.
            OSError: a log cannot be read; only of several replicas.
        """
        found = [
            each
            for each in self.partitions
            if (each.topic, each.number, each.state) == (topic, number, "live")
        ]
        if not found:
            named = " ".join(map(str, self.paths))
            raise UsageProblem(f"{named} has no partition {topic}-{number}")
        replicas = [_Replica(as_loaded(each._partition), each) for each in found]
        chosen = most_advanced(of_one_topic(replicas, self._topic_ids)[0])
        return chosen.shown

    def _topic_ids(self) -> Mapping[str, str]:
        partitions = (each._partition for each in self.partitions)
        image = read_newest_image(each for each in partitions if each.is_cluster_metadata)
        return {} if image is None else image.topic_ids

    def table(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        replicas: Literal["one", "all"] | None = None,
    ) -> pa.RecordBatchReader:
        """Stream one of the tables that ``docs/tables.md`` describes.

        Args:
            name: such as ``segments``, ``topics`` or ``group_offsets``.
            columns: names of columns; None for the default ones.
            replicas: for ``records`` and ``batches``: ``all`` also reads other replicas than the
                most advanced one (``one``, which None is there).

        Raises:
            DamagedLogError: while reading ``records`` or ``batches``.
            UsageProblem: there is no such table or column, or the table has no choice of replicas.
            OSError: a file cannot be read.
        """
        options = {"table": name, "paths": json.dumps(list(map(text_of, self._locations)))}
        if replicas is not None:
            options["replicas"] = replicas
        reader = open_table(options, columns)
        everything = PushedFilters()
        batches = (
            batch for split in reader.splits(everything) for batch in reader.read(split, everything)
        )
        return pa.RecordBatchReader.from_batches(arrow_schema(reader.columns), batches)


@dataclass(frozen=True, slots=True)
class _Replica:
    """A replica as a starting broker loads it, and as it is shown."""

    partition: Partition
    shown: LogPartition


def open_log_dir(path: AnyPath, *more: AnyPath) -> LogDir:
    """List a log directory, or several. Files of partitions are read only when asked for.

    Args:
        path: of a directory, ``ARCHIVE.tar!/PATH``, or a URI such as ``s3://BUCKET/PATH``. What is
            listed of an object store is kept until this is called again.
        more: other directories, of the same broker or of others of its cluster.

    Raises:
        KdumpError: one is in a compressed archive.
        UsageProblem: one is not a log directory.
        OSError: one cannot be listed.
    """
    ask_again()
    found = _read_log_directories([path, *more], PartitionSelection())
    paths = tuple(_path_of(each.path) for each in found)
    return LogDir(
        path=paths[0],
        paths=paths,
        is_clean=all(each.is_clean for each in found),
        cluster_id=_common(each.cluster_id for each in found),
        node_id=_common(each.node_id for each in found),
        partitions=tuple(_log_partition(own, each) for each in found for own in each.partitions),
        problems=tuple(
            problem
            for each in found
            for problem in (
                *(f"{problem.path}: {problem.error}" for problem in each.problems),
                *missing_in_archive(each.path),
            )
        ),
        _locations=tuple(each.path for each in found),
    )


def _common(values: Iterable[Value | None]) -> Value | None:
    """The value that all have; None if they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _log_partition(partition: Partition, found: LogDirectory) -> LogPartition:
    topic, number = partition.topic_partition or (None, None)
    return LogPartition(
        topic=topic,
        number=number,
        state=partition.state.name.lower(),
        path=_path_of(partition.path),
        size_bytes=partition.total_bytes,
        segments=tuple(_log_segment(each, partition) for each in partition.segments),
        _partition=partition,
        _directory=found,
    )


def _log_segment(segment: Segment, partition: Partition) -> LogSegment:
    path = partition.segment_path(segment, segment.log_kind)
    return LogSegment(segment.base_offset, _path_of(path), segment.log_bytes, partition, segment)


def _path_of(location: Location) -> Path | str:
    """A path of this machine; elsewhere the name of the location."""
    path = location.storage.local_path(location.path)
    return str(location) if path is None else path


def _read_log_directories(
    paths: Sequence[AnyPath], selection: PartitionSelection
) -> list[LogDirectory]:
    if not paths:
        raise UsageProblem("name at least one log directory")
    texts = (each if isinstance(each, str) else each.__fspath__() for each in paths)
    return [_read_log_directory(each, selection) for each in parse_locations(texts)]


def _read_log_directory(location: Location, selection: PartitionSelection) -> LogDirectory:
    kind = directories.directory_kind(location)
    if not kind.is_log_directory:
        what = f", but a {kind.value}" if kind.is_partition else ""
        raise UsageProblem(f"{location} is not a log directory{what}")
    return directories.read_log_directory(location, kind, select=selection.needs)


def _read_batches(
    partition: Partition,
    segments: Iterable[int],
    start_offset: int,
    end_offset: int | None,
    on_damage: OnDamage,
) -> pa.RecordBatchReader:
    _require_choice("on_damage", on_damage, _ON_DAMAGE)
    if partition.is_0_7:
        raise UsageProblem(f"{partition.path} is a log of Kafka 0.7, which has no batches")

    def handle(damage: Damage) -> None:
        if on_damage == "raise":
            raise DamagedLogError(damage)

    tables = (
        table
        for split in _batch_splits(partition, frozenset(segments), start_offset, end_offset)
        for table in read_batches(split, BATCHES.columns, handle)
    )
    return pa.RecordBatchReader.from_batches(BATCHES.schema, tables)


def _batch_splits(
    partition: Partition, segments: AbstractSet[int], start_offset: int, end_offset: int | None
) -> Iterator[SourceSplit]:
    """The segments that can hold batches of a range; damage in front of it is not read."""
    for segment, following in partition.with_following():
        is_before = following is not None and following.base_offset <= start_offset
        is_after = end_offset is not None and segment.base_offset >= end_offset
        if segment.base_offset in segments and not is_before and not is_after:
            path = partition.segment_path(segment, segment.log_kind)
            yield SourceSplit(
                path,
                from_offset=start_offset,
                to_offset=end_offset,
                segment=segment_part(segment, following),
                origin=RecordOrigin.of(partition, path),
            )


def _source_options(
    path: Location,
    columns: Sequence[str] | None,
    isolation_level: IsolationLevel,
    control_records: bool,
    on_damage: OnDamage,
) -> SourceOptions:
    _require_choice("on_damage", on_damage, _ON_DAMAGE)
    options = {
        "path": text_of(path),
        "kafka.isolation.level": isolation_level,
        "includeControlRecords": str(control_records),
        "mode": "FAILFAST" if on_damage == "raise" else "DROPMALFORMED",
    }
    if columns is not None:
        options["columns"] = ",".join(columns)
    return parse_options(options)


def _read_records(options: SourceOptions) -> pa.RecordBatchReader:
    reading = SourceReading.of(options, options.columns, PushedFilters(), RecordPayloads())
    splits = plan_splits(options, PushedFilters())
    at_hand = with_files_at_hand(splits, SourceSplit.small_files, concurrent_reads())
    tables = (table for split in at_hand for table in reading.read(split))
    return pa.RecordBatchReader.from_batches(arrow_schema(options.columns), tables)


# ---- Verification ----


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """What verification says about a partition; the fields are those of ``verify --output jsonl``.

    Attributes:
        log_dir: the log directory.
        directory: name of the partition's directory.
        topic: None for a directory that is not named after a topic.
        partition: the partition's number; None likewise.
        verdict: what a starting broker would do to it, in a sentence; empty where not known.
        verdict_kind: the same in a word, such as ``valid``, ``unclean``, ``loss``, ``refused``.
        worst: the worst severity of its findings; None where it has none.
        findings: number of findings by code.
        batches: number of valid batches.
        records: number of records in them; None where not all were decoded.
        log_end_offset: one above its last offset.
        total_bytes: of all its files.
        damaged_bytes: of these, bytes that are damaged.
    """

    log_dir: str
    directory: str
    topic: str | None
    partition: int | None
    verdict: str
    verdict_kind: str
    worst: Severity | None
    findings: Mapping[str, int]
    batches: int
    records: int | None
    log_end_offset: int
    total_bytes: int
    damaged_bytes: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of a verification.

    Attributes:
        findings: in the order in which they were found.
        partitions: one verdict for each partition.
    """

    findings: tuple[Finding, ...]
    partitions: tuple[PartitionVerdict, ...]

    @property
    def is_damaged(self) -> bool:
        """Whether ``kdump verify`` would exit with 4."""
        return any(finding.severity.is_damage for finding in self.findings)


def verify(
    *paths: AnyPath,
    level: Literal["quick", "default", "deep"] = "default",
    topics: Sequence[str] = (),
    partitions: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    now_ms: int | None = None,
    processes: int = 1,
) -> VerifyReport:
    """Check log directories for damage, as ``kdump verify`` does.

    Args:
        paths: log directories; all of a broker that has several.
        level: how much to read, as ``--quick`` and ``--deep``.
        topics: globs, as ``--topic``; none selects all.
        partitions: globs, as ``--partition``; none selects all.
        config: properties of all topics, or of the broker, by Kafka's names.
        now_ms: the time, in epoch milliseconds; None for the clock's.
        processes: how many processes work; 1 is this one alone.

    Raises:
        UsageProblem: a path is not a log directory, an argument is not one of its choices, no
            partition is selected, or Kafka does not take a property.
        OSError: a log directory cannot be listed.
    """
    _require_choice("level", level, ("quick", "default", "deep"))
    selection = _selection(topics, partitions)
    found = _read_log_directories(paths, selection)
    _require_selected(selection, found)
    request = verifying.VerifyRequest(
        targets=[
            verifying.VerifyTarget(partition, directory)
            for directory in found
            for partition in directory.partitions
            if partition in selection
        ],
        # Partitions that are not selected are not listed, and must not be reported missing.
        directories=found if selection.is_everything else [],
        level=Level[level.upper()],
        now_ms=current_time_ms() if now_ms is None else now_ms,
        settings=_settings(found, config),
    )
    request = verifying.read_as(request, ReadAs.AS_FOUND)
    findings: list[Finding] = []
    verdicts: list[PartitionVerdict] = []
    for event in verifying.verify(request, _engine_options(processes)):
        if isinstance(event, Finding):
            findings.append(event)
        elif isinstance(event, PartitionReport):
            verdicts.append(_partition_verdict(event))
    return VerifyReport(tuple(findings), tuple(verdicts))


def _partition_verdict(report: PartitionReport) -> PartitionVerdict:
    topic, number = report.partition.topic_partition or (None, None)
    return PartitionVerdict(
        log_dir=report.log_dir,
        directory=report.partition.path.name,
        topic=topic,
        partition=number,
        verdict=report.verdict,
        verdict_kind=report.verdict_kind,
        worst=report.worst,
        findings=dict(report.findings),
        batches=report.batches,
        records=report.records,
        log_end_offset=report.end_offset,
        total_bytes=report.account.total_bytes,
        damaged_bytes=report.account.damaged_bytes,
    )


# ---- Recovery ----


@dataclass(frozen=True, slots=True)
class PlannedOperation:
    """A change to a file; the fields are those of ``recover --dry-run --output jsonl``.

    Attributes:
        action: ``remove``, ``cut``, ``rename``, ``replace`` or ``create``.
        directory: where the file is.
        file: its name.
        source: for ``rename``, the name that it has now.
        size_bytes: its size afterwards; 0 where it is removed.
        lost_bytes: how many of its bytes nothing keeps.
    """

    action: str
    directory: str
    file: str
    source: str | None
    size_bytes: int
    lost_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """What recovery would do to a partition.

    Attributes:
        log_dir: the log directory.
        directory: name of the partition's directory.
        topic: None for a directory that is not named after a topic.
        partition: the partition's number; None likewise.
        verdict: what would be done, in a sentence.
        verdict_kind: the same in a word.
        left_because: why kdump would leave it unchanged; None where it would not.
        becomes_stray: whether a broker would rename it to ``-stray``.
        findings: what a broker would do to it beyond recovery, or why it would not load it.
    """

    log_dir: str
    directory: str
    topic: str | None
    partition: int | None
    verdict: str
    verdict_kind: str
    left_because: str | None
    becomes_stray: bool
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What recovery would do to a log directory.

    Attributes:
        log_dir: the log directory.
        becomes_clean: whether it has the clean shutdown marker afterwards.
        lost_bytes: how many bytes nothing keeps, padding of indexes included.
        partitions: what would happen to each partition.
        findings: damage of the log directory itself.
        operations: the changes, in order.
    """

    log_dir: str
    becomes_clean: bool
    lost_bytes: int
    partitions: tuple[PlannedPartition, ...]
    findings: tuple[Finding, ...]
    operations: tuple[PlannedOperation, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not self.operations


def plan_recovery(
    *paths: AnyPath,
    policy: Literal["broker", "salvage"] = "broker",
    topics: Sequence[str] = (),
    partitions: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    now_ms: int | None = None,
    processes: int = 1,
) -> tuple[RecoveryPlan, ...]:
    """Say what a starting broker would do to log directories, as ``kdump recover --dry-run`` does.

    Nothing is written, and no lock is taken.

    Args:
        paths: log directories; all of a broker that has several.
        policy: ``broker`` does what a broker does; ``salvage`` keeps every valid batch.
        topics: as for :func:`verify`.
        partitions: likewise.
        config: likewise.
        now_ms: likewise; decides which producers have expired.
        processes: likewise.

    Returns:
        A plan for each path, in their order.

    Raises:
        UsageProblem: a path is not a log directory, an argument is not one of its choices, no
            partition is selected, or Kafka does not take a property.
        KdumpError: there can be no plan, such as for a partition on another file system, or where
            a broker is using a log directory.
        OSError: a log directory cannot be listed.
    """
    _require_choice("policy", policy, [each.value for each in Policy])
    selection = _selection(topics, partitions)
    found = _read_log_directories(paths, PartitionSelection())
    _require_selected(selection, found)
    request = recovering.RecoverRequest(
        directories=found,
        settings=_settings(found, config),
        selection=selection,
        policy=Policy(policy),
        now_ms=current_time_ms() if now_ms is None else now_ms,
    )
    results = recovering.recover(request, _engine_options(processes))
    return tuple(_recovery_plan(each) for each in results)


def _recovery_plan(result: recovering.DirectoryRecovery) -> RecoveryPlan:
    plan = make_plan(result.target)
    return RecoveryPlan(
        log_dir=str(plan.path),
        becomes_clean=result.becomes_clean,
        lost_bytes=plan.lost_bytes,
        partitions=tuple(_planned_partition(each) for each in result.partitions),
        findings=result.findings,
        operations=tuple(
            PlannedOperation(
                action=each.kind.value,
                directory=str(each.directory),
                file=each.name,
                source=each.source,
                size_bytes=each.size_bytes,
                lost_bytes=each.lost_bytes,
            )
            for each in plan.operations
        ),
    )


def _planned_partition(result: recovering.PartitionRecovery) -> PlannedPartition:
    path = result.partition.path
    topic, number = result.partition.topic_partition or (None, None)
    words = result.verdict
    return PlannedPartition(
        log_dir=str(path.parent),
        directory=path.name,
        topic=topic,
        partition=number,
        verdict=words.sentence,
        verdict_kind=words.kind,
        left_because=None if result.unchanged is None else result.unchanged.value,
        becomes_stray=result.becomes_stray,
        findings=result.findings,
    )


def _settings(
    found: Sequence[LogDirectory], config: Mapping[str, str] | None
) -> dict[Location, Settings]:
    given = dict(config or {})
    require_accepted(given, None)
    return read_settings(found, given)


def _selection(topics: Sequence[str], partitions: Sequence[str]) -> PartitionSelection:
    if isinstance(topics, str) or isinstance(partitions, str):
        raise UsageProblem("topics and partitions are sequences of globs, as in topics=['orders']")
    return PartitionSelection(tuple(topics), tuple(partitions))


def _require_selected(selection: PartitionSelection, found: Sequence[LogDirectory]) -> None:
    """Refuse globs that match nothing: a result without findings would look like good news."""
    if selection.is_futile(each for directory in found for each in directory.partitions):
        named = " ".join(str(directory.path) for directory in found)
        raise UsageProblem(
            f"no partition in {named} matches topics={list(selection.topics)},"
            f" partitions={list(selection.partitions)}"
        )


def _require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UsageProblem(f"{name} is {value!r}, not one of {', '.join(choices)}")


def _engine_options(processes: int) -> EngineOptions:
    if processes < 1:
        raise UsageProblem(f"processes is {processes}, not at least 1")
    return EngineOptions(EngineChoice.LOCAL, processes=processes)
