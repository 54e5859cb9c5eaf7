"""Write records to a file: Parquet, CSV or JSON lines."""

from __future__ import annotations

import contextlib
from typing import IO, Final, Protocol

import pyarrow as pa

from kdump.jobs.export.record_formats import FileFormat
from kdump.tables.row_groups import RowGroupWriter

_CONTENTS: Final = frozenset({"key", "value", "key_text", "value_text", "headers"})
"""Columns whose values hardly repeat: a dictionary of them takes time and saves nothing."""
_RISING: Final = frozenset({"offset", "timestamp", "sequence", "batchPosition"})
"""Columns that rise by a little from record to record."""
_LABELS: Final = frozenset({"transactionState", "controlType", "codec", "segment"})
"""Columns by whose least and greatest text, as of contents, no reader skips rows."""


class RecordWriter(Protocol):
    """Writes records to one file."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Write some records.

        Raises:
            OSError: the file cannot be written.
        """
        ...

    def finish(self) -> None:
        """Complete the file; it stays open.

        Raises:
            OSError: the file cannot be written.
        """
        ...

    def abandon(self) -> None:
        """End without completing the file."""
        ...


def open_writer(file_format: FileFormat, file: IO[bytes], schema: pa.Schema) -> RecordWriter:
    """Begin to write records of this schema to a file."""
    match file_format:
        case FileFormat.PARQUET:
            return _parquet(file, schema)
        case FileFormat.CSV:
            return _Csv(file, schema)
        case FileFormat.JSONL:
            return _JsonLines(file)


def _parquet(file: IO[bytes], schema: pa.Schema) -> RowGroupWriter:
    def without(left_out: frozenset[str]) -> list[str] | bool:
        return [name for name in schema.names if name not in left_out] or False

    rising = [name for name in schema.names if name in _RISING]
    return RowGroupWriter(
        file,
        schema,
        use_dictionary=without(_CONTENTS | _RISING),
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED") or None,
        write_statistics=without(_CONTENTS | _LABELS),
        # Readers would make dictionaries of the columns that have one here.
        store_schema=False,
    )


class _Csv:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        import pyarrow.csv

        from kdump.jobs.export.text_columns import text_columns, text_schema

        self._text_columns = text_columns
        self._writer = pyarrow.csv.CSVWriter(file, text_schema(schema))

    def add(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(self._text_columns(batch))

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        from kdump.jobs.export.text_columns import json_lines, text_columns

        self._lines = json_lines
        self._text_columns = text_columns
        self._file = file

    def add(self, batch: pa.RecordBatch) -> None:
        self._file.write(self._lines(self._text_columns(batch)))

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass
