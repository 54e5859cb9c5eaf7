"""Export partitions: plan files, write those that an earlier run did not, and the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from msgspec import Struct, field
from msgspec.structs import asdict, replace

import kdump
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import describe_failure
from kdump.engine.range_splits import RecordRange
from kdump.errors import UsageProblem
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.jobs.export.export_directory import (
    FORMAT,
    VERSION,
    Document,
    ExportDirectory,
    ExportError,
)
from kdump.jobs.export.export_job import ExportJob, ExportSplit, ReadProblem, WrittenPart
from kdump.jobs.export.export_plan import PartitionExport, plan_partition, unreadable_partition
from kdump.jobs.export.file_names import Layout, part_path
from kdump.jobs.export.record_formats import FileFormat
from kdump.log.living import while_it_changes
from kdump.log.partition import Partition
from kdump.payloads.payload_decoder import PayloadDecoder
from kdump.payloads.record_payloads import RecordPayloads
from kdump.payloads.undecoded import NONE_UNDECODED, Undecoded
from kdump.phases import phase
from kdump.storage.parallel_reads import each_read
from kdump.storage.place_names import kdump_command
from kdump.storage.places import concurrent_reads
from kdump.tables.kafka_log.columns import TIMESTAMP_MS, SourceColumn, columns_named
from kdump.tables.kafka_log.found_partitions import FoundPartition
from kdump.tables.kafka_log.options import Mode
from kdump.tables.kafka_log.pushed_filters import Interval, PushedFilters
from kdump.tables.kafka_log.reader import SourceReading

_OFFSET: Final = "offset"
_TIME: Final = "timestamp"
_IN_THE_PATH: Final = frozenset({"topic", "partition"})
"""Columns that the names of directories have in the layout ``hive``."""


class ExportRequest(Struct, frozen=True):
    """What to export, and how.

    Attributes:
        targets: the partitions, each with the name of one, and no two of one.
        columns: of the files, by the names of the data source.
        to_time_ms: only records before this time.
        is_committed: leave out records of aborted and open transactions.
        with_control: export control records, too.
        largest_record_bytes: larger records of compressed batches are not decoded.
        schemas: the absolute paths that were named for schemas, without symbolic links.
        sources: the absolute paths of the directories that were named, without symbolic links.
        selected: the globs that chose the targets, for the manifest.
        not_exported: other copies of the partitions, and what cannot be read.
        is_everything_listed: whether all partitions that were asked for, and the offsets where
            they begin, are known.
    """

    targets: Sequence[FoundPartition]
    columns: Sequence[SourceColumn]
    file_format: FileFormat = FileFormat.PARQUET
    layout: Layout = Layout.HIVE
    records: RecordRange = field(default_factory=RecordRange)
    to_time_ms: int | None = None
    is_committed: bool = False
    with_control: bool = False
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    payloads: RecordPayloads = field(default_factory=RecordPayloads)
    schemas: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    selected: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    not_exported: tuple[str, ...] = ()
    is_everything_listed: bool = True

    def options(self) -> Document:
        """What a later run must have in common with this one, as JSON."""
        topics, partitions = self.selected
        return {
            "sources": sorted(set(self.sources)),
            "format": self.file_format.value,
            "layout": self.layout.value,
            "columns": [column.name for column in self.file_columns()],
            "topics": list(topics),
            "partitions": list(partitions),
            "from_offset": self.records.from_offset,
            "to_offset": self.records.to_offset,
            "from_time_ms": self.records.from_time_ms,
            "to_time_ms": self.to_time_ms,
            "isolation_level": "read_committed" if self.is_committed else "read_uncommitted",
            "include_control_records": self.with_control,
            "max_record_bytes": self.largest_record_bytes,
            "key_format": _format_of(self.payloads.key),
            "value_format": _format_of(self.payloads.value),
            "schemas": sorted(set(self.schemas)),
        }

    def file_columns(self) -> tuple[SourceColumn, ...]:
        """The columns that files have."""
        is_hive = self.layout is Layout.HIVE
        return tuple(
            column for column in self.columns if not (is_hive and column.name in _IN_THE_PATH)
        )

    def job(self, directory: str) -> ExportJob:
        """The job that writes the files."""
        columns = self.file_columns()
        if self.file_format is not FileFormat.PARQUET:
            columns = tuple(TIMESTAMP_MS if each.name == _TIME else each for each in columns)
        names = tuple(column.name for column in columns)
        if _OFFSET not in names:
            columns = (*columns, *columns_named([_OFFSET], None))
        times = Interval(
            self.records.from_time_ms, None if self.to_time_ms is None else self.to_time_ms - 1
        )
        reading = SourceReading(
            columns,
            PushedFilters(timestamps_ms=times),
            Mode.DROPMALFORMED,
            self.is_committed,
            self.with_control,
            self.largest_record_bytes,
            self.payloads,
            has_labels=self.file_format is FileFormat.PARQUET,
        )
        return ExportJob(directory, reading, self.file_format, names)


def _format_of(decoder: PayloadDecoder | None) -> str | None:
    return None if decoder is None else decoder.format.value


class ExportedPartition(Struct, frozen=True):
    """A partition that was exported.

    Attributes:
        parts: its files, as the manifest has them.
    """

    planned: PartitionExport
    parts: tuple[Document, ...]

    def total(self, name: str) -> int:
        """The sum of a field over all files."""
        return sum(part[name] for part in self.parts)

    @property
    def files(self) -> int:
        return sum(part["file"] is not None for part in self.parts)

    @property
    def undecoded(self) -> Undecoded:
        """Its records without a text for a key or value."""
        each = (
            Undecoded(part["undecoded_records"], part["first_undecoded"]) for part in self.parts
        )
        return sum(each, NONE_UNDECODED)

    @property
    def unreadable(self) -> list[str]:
        """Why records are missing that a later run may be able to read."""
        whys = [self.planned.unreadable, *(part["unreadable"] for part in self.parts)]
        return [why for why in whys if why is not None]

    @property
    def problems(self) -> list[Document]:
        """What was skipped, in order; planning and reading may find the same."""
        own = [_problem_document(problem) for problem in self.planned.problems]
        each = own + [problem for part in self.parts for problem in part["problems"]]
        found = {(problem["path"], problem["start"], problem["what"]): problem for problem in each}
        return [found[place] for place in sorted(found)]

    @property
    def more_problems(self) -> int:
        """How many more, at least: planning and reading may find the same."""
        return max(self.planned.more_problems, self.total("more_problems"))

    def document(self) -> Document:
        """The partition in the manifest."""
        return {
            "topic": self.planned.key.topic,
            "partition": self.planned.key.partition,
            "fingerprint": self.planned.fingerprint,
            "source": self.planned.source,
            "unreadable": self.planned.unreadable,
            "unstable_records": self.planned.unstable_records,
            "transactions": list(self.planned.transactions),
            "problems": [_problem_document(problem) for problem in self.planned.problems],
            "more_problems": self.planned.more_problems,
            "parts": list(self.parts),
        }


class ExportResult(Struct, frozen=True):
    """The outcome of an export.

    Attributes:
        partitions: in the order of topics and partitions.
        is_complete: whether everything that was asked for is exported or known to be damaged.
        written: how many files this run wrote; the others were there.
        replaced: how many of those took the place of a file of an earlier run.
        removed: how many other files of earlier runs were deleted: their partitions changed.
    """

    partitions: tuple[ExportedPartition, ...]
    is_complete: bool
    written: int = 0
    replaced: int = 0
    removed: int = 0


def export(
    request: ExportRequest,
    directory: ExportDirectory,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> ExportResult:
    """Export partitions into a directory, which is locked and whose context has begun.

    Raises:
        UsageProblem: the directory is of an export with other options.
        KdumpError: the disk of the directory or the engine fails.
    """
    _refuse_other_options(directory, request.options())
    planned, left = _with_earlier(request, list(_planned(request)), directory)
    files = {(each.fingerprint, part.file) for each in planned for part in each.parts}
    with phase(f"looking at what is in {directory.name}"):
        kept = {
            key: part
            for key, part in directory.entries.items()
            if key in files and directory.is_there(part)
        }
        earlier = {
            (each.planned.fingerprint, part["part"]): part for each in left for part in each.parts
        }
        is_new = (
            not directory.is_complete
            or not request.is_everything_listed
            or left
            or any(each.unreadable is not None for each in planned)
            or kept.keys() != files
            or len(directory.entries) != len(files)
        )
    if not is_new:
        return _result(planned, kept, left, is_complete=True)
    written = 0
    try:
        directory.begin(
            request.options(),
            [each.document() for each in (*left, *(ExportedPartition(one, ()) for one in planned))],
            {**kept, **earlier},
        )
        for each, split, part in _run(request, directory, planned, kept, options):
            document = _part_document(split, part)
            directory.add(each.fingerprint, document, part.temporary)
            kept[each.fingerprint, split.file] = document
            written += part.temporary is not None
        result = _result(planned, kept, left, is_complete=request.is_everything_listed)
        directory.remove(_obsolete(request, directory, result))
        result = replace(
            result, written=written, replaced=directory.replaced, removed=directory.removed
        )
        with phase("writing the manifest"):
            directory.finish(_manifest(request, result), is_complete=result.is_complete)
    except BaseException:
        directory.drop_temporary()
        raise
    return result


def _refuse_other_options(directory: ExportDirectory, options: Document) -> None:
    """Refuse to continue an export that was begun with other options.

    Raises:
        UsageProblem: it was.
    """
    earlier = directory.options
    if earlier is None or earlier == options:
        return
    if earlier == {**options, "sources": earlier.get("sources")}:
        again = kdump_command("export --out", [directory.name, *earlier["sources"]])
        raise UsageProblem(
            f"{directory.name}: was exported from other directories: name a new directory, or"
            f" continue with '{again}' and the same options"
        )
    different = [
        f"{name} was {earlier.get(name)!r}, not {value!r}"
        for name, value in options.items()
        if earlier.get(name) != value
    ]
    raise UsageProblem(
        f"{directory.name}: was exported with other options ({'; '.join(different)}):"
        " name a new directory"
    )


def _planned(request: ExportRequest) -> Iterator[PartitionExport]:
    def planned(found: FoundPartition) -> PartitionExport | None:
        def of(partition: Partition) -> PartitionExport:
            return plan_partition(
                found.of(partition),
                request.records,
                request.layout,
                request.file_format.value,
                is_committed=request.is_committed,
                schemas=request.payloads.schemas,
            )

        try:
            return while_it_changes(found.partition, of, gone=None)
        except OSError as failure:
            place = failure.filename or found.partition.path
            return unreadable_partition(found, f"{place}: {describe_failure(failure)}")

    targets = sorted(request.targets, key=lambda each: each.topic_partition or ("", 0))
    with phase("dividing the work", len(targets)) as dividing:
        found = dividing.over(each_read(planned, targets, concurrent_reads()))
        yield from (each for each in found if each is not None)


def _with_earlier(
    request: ExportRequest, planned: Sequence[PartitionExport], directory: ExportDirectory
) -> tuple[list[PartitionExport], list[ExportedPartition]]:
    """The partitions to export, and those that were exported earlier and cannot be read now."""
    current = {each.key: each for each in planned}
    left = []
    for (topic, number), document in directory.partitions.items():
        key, path = TopicPartition(topic, number), document["source"]["path"]
        own = current.get(key)
        why = f"{path}: is not found now" if own is None else own.unreadable
        if own is not None and own.source["path"] != path and not request.is_everything_listed:
            # The better replica may be on the disk that cannot be listed.
            why = f"{path}: is not found now"
        parts = directory.parts_of(document)
        if why is None or not any(part["file"] for part in parts):
            continue
        current.pop(key, None)
        problems = tuple(ReadProblem(**problem) for problem in document["problems"])
        earlier = PartitionExport(
            key,
            path,
            document["source"],
            document["fingerprint"],
            (),
            document["unstable_records"],
            tuple(document["transactions"]),
            problems,
            document["more_problems"],
            f"{why}; the files that were exported earlier stay",
        )
        left.append(ExportedPartition(earlier, tuple(parts)))
    return list(current.values()), left


def _obsolete(
    request: ExportRequest, directory: ExportDirectory, result: ExportResult
) -> list[str]:
    """The earlier files of partitions that were read whole, and do not have them now."""
    read = {
        part_path(request.layout, each.planned.key, "")
        for each in result.partitions
        if not each.unreadable
    }
    wanted = {part["file"] for each in result.partitions for part in each.parts}
    return directory.obsolete(wanted, read)


def _run(
    request: ExportRequest,
    directory: ExportDirectory,
    planned: Sequence[PartitionExport],
    kept: Mapping[tuple[str, str], Document],
    options: EngineOptions,
) -> Iterator[tuple[PartitionExport, ExportSplit, WrittenPart]]:
    """Write the files that are not kept; yields each as it is written."""
    left = [
        (each, part)
        for each in planned
        for part in each.parts
        if (each.fingerprint, part.file) not in kept
    ]
    owners = {id(part): each for each, part in left}
    splits = [part for _, part in left]
    if not splits:
        return
    size_bytes = sum(split.size_bytes for split in splits)
    job = request.job(str(directory.path))
    with (
        open_engine(options, kind=JobKind.EXPORT, total_bytes=size_bytes) as engine,
        closing(engine.run(job, splits)) as results,
    ):
        for split, part in results:
            if part.unwritable is not None:
                raise ExportError(
                    f"{directory.name}: {part.unwritable}; the files that are complete stay:"
                    " run the same command again to continue"
                )
            yield owners[id(split)], split, part


def _part_document(split: ExportSplit, part: WrittenPart) -> Document:
    """A file in the manifest."""
    first = split.pieces[0]
    return {
        "part": split.file,
        "file": None if part.temporary is None else split.file,
        "segment": first.path.name,
        "position": first.start,
        "records": part.records,
        "size_bytes": part.size_bytes,
        "first_offset": part.first_offset,
        "last_offset": part.last_offset,
        "aborted_records": part.aborted_records,
        "open_records": part.open_records,
        "undecoded_records": part.undecoded.records,
        "first_undecoded": part.undecoded.first,
        "problems": [_problem_document(problem) for problem in part.problems],
        "more_problems": part.more_problems,
        "unreadable": part.unreadable,
    }


def _problem_document(problem: ReadProblem) -> Document:
    return asdict(problem)


def _result(
    planned: Sequence[PartitionExport],
    parts: Mapping[tuple[str, str], Document],
    left: Sequence[ExportedPartition],
    *,
    is_complete: bool,
) -> ExportResult:
    written = [
        ExportedPartition(each, tuple(parts[each.fingerprint, part.file] for part in each.parts))
        for each in planned
    ]
    partitions = sorted([*written, *left], key=lambda each: each.planned.key)
    is_readable = not any(each.unreadable for each in partitions)
    return ExportResult(tuple(partitions), is_complete and is_readable)


def _manifest(request: ExportRequest, result: ExportResult) -> Document:
    return {
        "format": FORMAT,
        "version": VERSION,
        "kdump": kdump.__version__,
        "state": "complete" if result.is_complete else "incomplete",
        "options": request.options(),
        "totals": totals(result),
        "not_exported": list(request.not_exported),
        "partitions": [each.document() for each in result.partitions],
    }


def totals(result: ExportResult) -> Document:
    """The sums over all partitions."""
    return {
        "partitions": len(result.partitions),
        "files": sum(each.files for each in result.partitions),
        **{
            name: sum(each.total(name) for each in result.partitions)
            for name in (
                "records",
                "size_bytes",
                "aborted_records",
                "open_records",
                "undecoded_records",
            )
        },
        "open_transactions": sum(
            each.planned.source["open_transactions"] or 0 for each in result.partitions
        ),
        "unstable_records": sum(each.planned.unstable_records or 0 for each in result.partitions),
        "problems": sum(len(each.problems) + each.more_problems for each in result.partitions),
        "unreadable": sum(len(each.unreadable) for each in result.partitions),
    }
