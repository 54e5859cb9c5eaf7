"""The output of ``kdump query``: the rows of a statement."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import decimal
import enum
import io
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from kdump.cli.output.events import write_line, write_notice
from kdump.cli.output.out_file import OutFile
from kdump.cli.output.rendering import OutputFormat, open_output
from kdump.cli.output.sections import write_summary
from kdump.cli.output.terminal import columns_of, terminal_columns
from kdump.cli.output.value_text import format_bytes
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats.safe_json import format_json
from kdump.rows.row_type import (
    ANYTHING,
    COUNT,
    FLAG,
    TEXT,
    Field,
    JsonAnswer,
    Kind,
    RowType,
    ValueType,
    map_of,
    objects_of,
)
from kdump.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from kdump.pipeline.sql.sql_session import QueryResult, ResultColumn
    from kdump.pipeline.sql.table_views import SkippedData

QUERY_COLUMNS: Final = RowType(
    "columns",
    "The columns of a result, before its rows.",
    (
        Field("statement", COUNT, "Which of the statements has this result: the first is 1."),
        Field(
            "columns",
            objects_of(
                Field("name", TEXT, "The key in the rows."),
                Field("sql_type", TEXT, "Spark's name of the type."),
            ),
        ),
    ),
)

QUERY_ROW: Final = RowType(
    "row",
    "A row of the result.",
    (
        Field(
            "row",
            map_of(ANYTHING),
            "The values by column. Binary values are base64, times ISO 8601, decimals text.",
        ),
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "After the rows of a result: the statement was run.",
    (
        Field("rows", COUNT, "How many rows the result has above."),
        Field("has_more", FLAG, "Whether --limit left rows out."),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "query",
        (
            QUERY_COLUMNS,
            QUERY_ROW,
            SUMMARY,
        ),
    ),
)


class QueryFormat(enum.Enum):
    """The output formats of ``kdump query``; the value is the word for ``--output``."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


FOR_PEOPLE: Final = (QueryFormat.TEXT, QueryFormat.TABLE)

MOST_PROBLEMS: Final = 20
"""So many are reported one by one, the others only counted."""
_MOST_CHARACTERS: Final = 1000
"""A longer value is cut on a terminal."""
_WIDEST: Final = 40
_GAP: Final = 2
_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})


class RowLimit(Struct, frozen=True):
    """How many rows are printed.

    Attributes:
        most: as many; None for all.
    """

    most: int | None

    @property
    def rows_to_read(self) -> int | None:
        """One more, to know whether there are more."""
        return None if self.most is None else self.most + 1


class ResultPrinter(Struct):
    """Prints the results of statements, one after the other.

    Attributes:
        out: the file of the format ``PARQUET``.
    """

    form: QueryFormat
    limit: RowLimit
    out: OutFile | None = None
    _has_printed: bool = False

    def print(self, result: QueryResult, statement: int) -> ExitStatus:
        """Print the rows of a result as they come; what was left out goes to standard error.

        A statement that changed the session has no result, and nothing is printed.

        Args:
            statement: which of the statements has the result, from 1.

        Raises:
            UsageProblem: a program could not tell two columns from each other.
            OSError: standard output cannot be written.
        """
        if result.done is not None:
            return ExitStatus.SOUND
        if self.form not in FOR_PEOPLE:
            _require_names(result.columns)
        if self.form is QueryFormat.PARQUET:
            assert self.out is not None
            rows = _Rows(result, self.limit.most)
            size_bytes = self.out.write(_parquet(rows))
            size = format_bytes(size_bytes)
            write_line(f"{counted(rows.count, 'row')}, {size}: {self.out.name}")
        elif self.form is QueryFormat.NDJSON:
            _print_plain_json(_Rows(result, self.limit.most))
        else:
            form = OutputFormat(self.form.value)
            if self._has_printed and not form.is_json:
                write_line("")
            self._has_printed = True
            _print_rows(result, form, self.limit, statement)
        return report_problems(result.problems)


def _require_names(columns: Sequence[ResultColumn]) -> None:
    names = [column.name for column in columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageProblem(
            f"{len(names)} columns, and more than one is named {twice[0]!r}: name one with AS"
        )


class _Rows:
    """The batches of a result, up to a limit."""

    def __init__(self, result: QueryResult, most: int | None) -> None:
        self.columns = result.columns
        self.schema = result.schema
        self.count = 0
        self.has_more = False
        self._batches = result.batches
        self._most = most

    def __iter__(self) -> Iterator[Any]:
        with contextlib.closing(self._batches) as batches:
            for batch in batches:
                left = None if self._most is None else self._most - self.count
                if left is not None and batch.num_rows > left:
                    self.has_more = True
                    batch = batch.slice(0, left)
                self.count += batch.num_rows
                if batch.num_rows:
                    yield batch
                if self.has_more:
                    return


def _print_rows(result: QueryResult, form: OutputFormat, limit: RowLimit, statement: int) -> None:
    rows = _Rows(result, limit.most)
    is_on_terminal = sys.stdout.isatty()
    if form.is_for_people:
        values = _cells(rows, text_for_people, most=_MOST_CHARACTERS if is_on_terminal else None)
        columns = [
            Field(
                str(n),
                ValueType("", kind=_kind(each), unknown="NULL"),
                "",
                each.name or " ",
            )
            for n, each in enumerate(result.columns)
        ]
        _print_for_people(form, columns, values)
    elif form is OutputFormat.CSV:
        names = [each.name for each in result.columns]
        with open_output(form, [Field(name, TEXT) for name in names]) as output:
            for cells in _cells(rows, value_for_programs):
                output.row(dict(zip(names, cells, strict=True)))
    else:
        _print_json(form, rows, statement)
        return
    if lines := list(_last_lines(rows, is_on_terminal=is_on_terminal)):
        if form.is_for_people:
            write_line("")
        write_summary(form, {}, lines)


def _last_lines(rows: _Rows, *, is_on_terminal: bool) -> Iterator[str]:
    if rows.has_more:
        more = "--limit 0 prints all"
        yield f"The first {counted(rows.count, 'row')}; there are more: {more}"
    elif is_on_terminal:
        yield counted(rows.count, "row")


def _print_json(form: OutputFormat, rows: _Rows, statement: int) -> None:
    names = [each.name for each in rows.columns]
    with open_output(form, ()) as output:
        columns = [{"name": each.name, "sql_type": each.sql_type} for each in rows.columns]
        output.row({"type": "columns", "statement": statement, "columns": columns})
        for cells in _cells(rows, value_for_programs):
            output.row({"type": "row", "row": dict(zip(names, cells, strict=True))})
        summary = {"type": "summary", "rows": rows.count, "has_more": rows.has_more}
        output.row(summary)


def _print_plain_json(rows: _Rows) -> None:
    """Print each row as an object on a line, and nothing else."""
    names = [each.name for each in rows.columns]
    for cells in _cells(rows, value_for_programs):
        sys.stdout.write(format_json(dict(zip(names, cells, strict=True))) + "\n")
    # As with CSV, people find it on standard error.
    write_summary(OutputFormat.CSV, {}, _last_lines(rows, is_on_terminal=sys.stdout.isatty()))


def _print_for_people(
    form: OutputFormat, columns: Sequence[Field], rows: Iterator[list[Any]]
) -> None:
    width = terminal_columns(sys.stdout)
    first: list[list[Any]] = []
    if width is not None:
        first = list(itertools.islice(rows, 100))
    is_vertical = (
        width is not None
        and form is OutputFormat.TEXT
        and (_needed_columns(columns, first) > width)
    )
    names = [column.name for column in columns]
    with open_output(form, columns, vertical=is_vertical and bool(first)) as output:
        for cells in itertools.chain(first, rows):
            output.row(dict(zip(names, cells, strict=True)))


def _needed_columns(columns: Sequence[Field], rows: Sequence[list[Any]]) -> int:
    """The width of lines with a cell for each column."""
    total = -_GAP
    for index, column in enumerate(columns):
        cells = (columns_of(str(row[index])) for row in rows)
        total += min(max(len(column.title), *cells, 4), _WIDEST) + _GAP
    return total


def _kind(column: ResultColumn) -> Kind:
    is_number = column.sql_type in _NUMBERS or column.sql_type.startswith("decimal")
    return Kind.NUMBER if is_number else Kind.TEXT


def _cells(
    rows: _Rows, convert: Callable[[Any], Any], most: int | None = None
) -> Iterator[list[Any]]:
    for batch in rows:
        for values in zip(*map(_values, batch.columns), strict=True):
            cells = [convert(value) for value in values]
            yield cells if most is None else [_cut(cell, most) for cell in cells]


def _values(column: pa.Array) -> list[Any]:
    """The values of a column; times that Python cannot have as text, in lists as microseconds."""
    import pyarrow as pa

    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        numbers: list[Any] = column.cast(_without_times(column.type)).to_pylist()
        if not pa.types.is_timestamp(column.type):
            return numbers
        return [None if us is None else _time(us, column.type.tz) for us in numbers]
    return found


def _time(timestamp_us: int, zone: str | None) -> str | dt.datetime:
    """A time, or its number with the unit if it is outside the years 1 to 9999."""
    try:
        time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=timestamp_us)
    except OverflowError:
        is_whole = timestamp_us % 1000 == 0
        return f"{timestamp_us // 1000} ms" if is_whole else f"{timestamp_us} us"
    return time if zone else time.replace(tzinfo=None)


def _without_times(arrow_type: pa.DataType) -> pa.DataType:
    """A type with microseconds instead of times."""
    import pyarrow as pa

    if pa.types.is_timestamp(arrow_type):
        return pa.int64()
    if pa.types.is_list(arrow_type):
        return pa.list_(_without_times(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return pa.map_(_without_times(arrow_type.key_type), _without_times(arrow_type.item_type))
    if pa.types.is_struct(arrow_type):
        fields = [arrow_type.field(at) for at in range(arrow_type.num_fields)]
        return pa.struct([each.with_type(_without_times(each.type)) for each in fields])
    return arrow_type


def _cut(cell: Any, most: int) -> Any:
    if isinstance(cell, str) and len(cell) > most:
        return f"{cell[:most]}… ({len(cell)} characters)"
    return cell


def text_for_people(value: Any) -> Any:
    """A value of a result for people: bytes are text, with an escape for what is not UTF-8."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict | tuple):
        return format_json(_nested(value, _text_in_json))
    return _plain(value)


def _text_in_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return _plain(value)


def value_for_programs(value: Any) -> Any:
    """A value of a result for JSON and CSV: bytes are base64, times ISO 8601 in UTC."""
    if isinstance(value, list | dict | tuple):
        return _nested(value, value_for_programs)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return _plain(value)


def _nested(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _converted(each, convert) for name, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        # A map of Arrow.
        return {str(convert(key)): _converted(each, convert) for key, each in value}
    return [_converted(each, convert) for each in value]


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    is_nested = isinstance(value, list | dict | tuple)
    return _nested(value, convert) if is_nested else convert(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        digits = "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
        text = value.replace(tzinfo=None).isoformat(timespec=digits)
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


class _Pieces(io.RawIOBase):
    """A file that gives what was written to it, piece by piece."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        piece = bytes(data)
        self._written.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def taken(self) -> list[bytes]:
        """What was written since the last call."""
        written, self._written = self._written, []
        return written


def _parquet(rows: _Rows) -> Iterator[bytes]:
    from kdump.tables.row_groups import RowGroupWriter

    pieces = _Pieces()
    writer = RowGroupWriter(pieces, rows.schema)
    try:
        for batch in rows:
            writer.add(batch)
            yield from pieces.taken()
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    yield from pieces.taken()


def report_problems(problems: Sequence[SkippedData]) -> ExitStatus:
    """Report what was left out on standard error; returns the exit status."""
    status = ExitStatus.SOUND
    for problem in problems:
        status |= problem.status
    reported = list(dict.fromkeys(problem.what for problem in problems))
    sys.stdout.flush()
    for what in reported[:MOST_PROBLEMS]:
        write_notice(what)
    if (more := len(reported) - MOST_PROBLEMS) > 0:
        write_notice(f"{counted(more, 'more problem')} like these")
    return status
