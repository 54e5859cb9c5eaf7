"""Output of rows of several types, each type a table of its own.

JSON has one stream of objects, whose ``type`` says what they are. People see a table for each type,
in the order in which a command declares them, under its title if there are several, and the
summary below. CSV can have one header only: its first column is ``type``, and the others are the
columns of all types; a row's cells are empty where its type has no such column.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from kdump.cli.output.events import write_line
from kdump.cli.output.rendering import (
    Output,
    OutputFormat,
    Row,
    open_output,
)
from kdump.rows.row_type import TEXT, Field, RowType


class SectionedOutput(Output, Protocol):
    """The receiver of a command's rows, whose ``type`` names a row type, and of its summary."""

    def summary(self, row: Row, lines: Iterable[str]) -> None:
        """Write the summary, last: JSON has ``row``, people see ``lines``.

        With CSV, which has rows only, the lines go to standard error.
        """
        ...


@contextlib.contextmanager
def open_sections(
    output_format: OutputFormat, sections: Sequence[RowType]
) -> Iterator[SectionedOutput]:
    """Open an output of rows of several types.

    For people, rows are held until the context ends without an error, and sections without rows
    are left out. Programs get each row at once.

    Raises:
        OSError: writing failed; :class:`BrokenPipeError` if the reader is gone.
    """
    if output_format.is_for_people:
        tables = _Tables(sections)
        yield tables
        tables.write(output_format)
    else:
        with open_output(output_format, _union(sections)) as output:
            yield _Stream(output, output_format)


def write_summary(output_format: OutputFormat, row: Row, lines: Iterable[str]) -> None:
    """Write a summary: JSON has ``row``, people see ``lines``; with CSV they go to standard error.

    Raises:
        OSError: as :func:`open_sections`.
    """
    if output_format.is_json:
        with open_output(output_format, ()) as output:
            output.row(row)
        return
    stream = sys.stdout if output_format.is_for_people else sys.stderr
    for line in lines:
        write_line(line, stream)


def _union(sections: Sequence[RowType]) -> list[Field]:
    """The column ``type``, and the columns of all sections by name."""
    columns = {"type": Field("type", TEXT)}
    for section in sections:
        for column in section.columns:
            columns.setdefault(column.name, column)
    return list(columns.values())


class _Stream:
    """Rows for programs."""

    def __init__(self, output: Output, output_format: OutputFormat) -> None:
        self._output = output
        self._format = output_format

    def row(self, row: Row) -> None:
        self._output.row(row)

    def rows(self, rows: Iterable[Row]) -> None:
        self._output.rows(rows)

    def summary(self, row: Row, lines: Iterable[str]) -> None:
        write_summary(self._format, row, lines)


class _Tables:
    """Rows for people."""

    def __init__(self, sections: Sequence[RowType]) -> None:
        self._sections = sections
        self._rows: dict[str, list[Row]] = {section.type: [] for section in sections}
        self._lines: list[str] = []

    def row(self, row: Row) -> None:
        self._rows[row["type"]].append(row)

    def rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.row(row)

    def summary(self, row: Row, lines: Iterable[str]) -> None:
        self._lines += lines

    def write(self, output_format: OutputFormat) -> None:
        """Write the tables and the summary, with empty lines between them."""
        is_first = True
        for section in self._sections:
            rows = self._rows[section.type]
            if not rows:
                continue
            if not is_first:
                write_line("")
            is_first = False
            if len(self._sections) > 1:
                write_line(f"{section.title}:")
            with open_output(output_format, section.columns) as output:
                output.rows(rows)
        if self._lines and not is_first:
            write_line("")
        for line in self._lines:
            write_line(line)
