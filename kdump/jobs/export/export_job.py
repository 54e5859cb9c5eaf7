"""Write one file of an export: the job that engines run.

The only job that writes: each file gets a temporary name, and whoever runs the job renames it. A
file that is not renamed is deleted by the next run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from msgspec import Struct

from kdump.engine.job import Split, describe_failure
from kdump.formats.errors import OverLimitError
from kdump.jobs.export.export_directory import new_file
from kdump.jobs.export.record_files import RecordWriter, open_writer
from kdump.jobs.export.record_formats import FileFormat
from kdump.log.valid_windows import Damage
from kdump.payloads.undecoded import NONE_UNDECODED, Undecoded
from kdump.storage.location import Location
from kdump.storage.unfinished_file import UnfinishedFile
from kdump.tables.kafka_log.damage import CountedDamage
from kdump.tables.kafka_log.reader import LeftOut, SourceReading
from kdump.tables.kafka_log.splits import SourceSplit

MOST_PROBLEMS: Final = 100
"""So many problems of a file, or of a plan, are listed, the others only counted."""


class ExportSplit(Split, frozen=True, kw_only=True):
    """A file to write: parts of logs, in order.

    Attributes:
        file: where to write, relative to the directory of the export.
    """

    pieces: tuple[SourceSplit, ...]
    file: str

    def read_places(self) -> Iterator[Location]:
        return (each.path for each in self.pieces)

    def small_files(self) -> Iterator[Location]:
        return (file for each in self.pieces for file in each.small_files())


class ReadProblem(Struct, frozen=True):
    """Bytes that were left out.

    Attributes:
        path: the log.
        start: the first byte.
        end: the byte after the last one.
        is_damage: whether they are damaged; if not, they were not decoded: over the limit.
    """

    path: str
    start: int
    end: int
    what: str
    is_damage: bool

    @classmethod
    def of(cls, damage: Damage) -> ReadProblem:
        is_over = isinstance(damage.problem, OverLimitError)
        return cls(damage.path, damage.start, damage.end, str(damage.problem), not is_over)

    def __str__(self) -> str:
        return f"{self.path}: bytes {self.start} to {self.end}: {self.what}"


class WrittenPart(Struct, frozen=True):
    """What was written for a split.

    Attributes:
        temporary: the path of the file; None if there are no records, and so there is no file.
        first_offset: of the first record; None without one.
        last_offset: of the last record.
        aborted_records: of the batches of aborted transactions, which were left out.
        open_records: the same of transactions that are open, or whose marker may be damaged.
        undecoded: those without a text for a key or value.
        unreadable: why a log cannot be read; there is no file then.
        unwritable: why the file cannot be written.
    """

    temporary: str | None = None
    records: int = 0
    size_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    aborted_records: int = 0
    open_records: int = 0
    undecoded: Undecoded = NONE_UNDECODED
    problems: tuple[ReadProblem, ...] = ()
    more_problems: int = 0
    unreadable: str | None = None
    unwritable: str | None = None


class ExportJob(Struct, frozen=True):
    """Writes files.

    Attributes:
        reading: which records and columns to read; one of them is the offset.
        columns: names of the columns to write, in the order of ``reading``.
    """

    directory: str
    reading: SourceReading
    file_format: FileFormat
    columns: tuple[str, ...]

    def run(self, split: ExportSplit, /) -> WrittenPart:
        """Write one file, complete and synced, or none."""
        with contextlib.closing(_Part(self, split)) as part:
            return part.written()


class _WriteFailure(Exception):
    """The file cannot be written."""


class _Part:
    """One file while it is written."""

    def __init__(self, job: ExportJob, split: ExportSplit) -> None:
        self.job = job
        self.split = split
        self.left_out = LeftOut(CountedDamage(MOST_PROBLEMS))
        self.records = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self._file: UnfinishedFile | None = None
        self._writer: RecordWriter | None = None
        schema = job.reading.schema
        self._schema = pa.schema([each for each in schema if each.name in job.columns])

    def written(self) -> WrittenPart:
        try:
            for piece in self.split.pieces:
                for batch in self.job.reading.read(piece, self.left_out):
                    self._add(batch)
            size_bytes = self._finish()
        except _WriteFailure as failure:
            return WrittenPart(unwritable=str(failure))
        except OSError as failure:
            place = failure.filename or self.split.path
            return WrittenPart(unreadable=f"{place}: {describe_failure(failure)}")
        damage = self.left_out.damage
        return WrittenPart(
            temporary=None if self._file is None else self._file.keep(),
            records=self.records,
            size_bytes=size_bytes,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            aborted_records=self.left_out.aborted_records,
            open_records=self.left_out.open_records,
            undecoded=self.left_out.undecoded,
            problems=tuple(map(ReadProblem.of, damage.listed())),
            more_problems=damage.more,
        )

    def _add(self, batch: pa.RecordBatch) -> None:
        offsets = batch.column("offset")
        if self.first_offset is None:
            self.first_offset = offsets[0].as_py()
        self.last_offset = offsets[-1].as_py()
        self.records += batch.num_rows
        if batch.num_columns > len(self._schema):
            batch = batch.select(self._schema.names)
        with _writing():
            if self._file is None:
                self._file = new_file(Path(self.job.directory), self.split.file)
                self._writer = open_writer(self.job.file_format, self._file.stream, self._schema)
            assert self._writer is not None
            self._writer.add(batch)

    def _finish(self) -> int:
        if self._file is None or self._writer is None:
            return 0
        with _writing():
            self._writer.finish()
            self._writer = None
            return self._file.finish()

    def close(self) -> None:
        """Delete the file unless it is to be kept."""
        if self._writer is not None:
            self._writer.abandon()
        if self._file is not None:
            self._file.drop()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as failure:
        raise _WriteFailure(describe_failure(failure)) from failure
