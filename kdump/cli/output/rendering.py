r"""Output of rows in the format of ``--output``.

Columns are the fields that rows are declared with (:mod:`kdump.rows.row_type`). A command opens an
output, and passes it rows: mappings from names of fields to plain values (text, numbers, booleans,
None, lists and mappings of such). It never prints, and does not know the format. There are five:

``text``
    Aligned columns without rules, for reading and for ``grep``.
``table``
    The same through rich, with rules.
``json``
    One array of objects (:mod:`kdump.cli.output.json_output`).
``jsonl``
    One object a line.
``csv``
    A header line and a line for each row, as in RFC 4180 but with ``\n`` line endings. Null is
    nothing, and an empty text is ``""``.

The first two are for people: sizes are KiB and MiB, times are ISO 8601 in UTC (``Z``) whatever the
local zone, numbers are aligned right, and unknown values have a mark of their own. The other three
are for programs: raw numbers under names with a unit (``log_bytes``, ``latest_timestamp_ms``), and
null (in CSV nothing) for unknown values.

Rows may differ: one without a column has no such key in JSON, and an empty cell elsewhere. CSV
shows the declared columns, the formats for people most of them, and JSON whatever the row has.
Every format streams; ``table`` and ``text`` first collect a few thousand rows to find the widths
of the columns. On a terminal they hide columns that do not fit, the least important first, and
name them at the end; a pipe gets all columns.

Text is UTF-8 in every locale. A byte of a file name that is not UTF-8 is passed to a pipe
unchanged (in JSON as ``\udcXX``, as Python escapes it). Control characters, which could move a
terminal's cursor or worse, are escaped on a terminal, and always in the formats for people.
"""

from __future__ import annotations

import contextlib
import enum
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, TextIO, TypeVar

import click

from kdump.cli.output.colour import cell_tone, has_colour, painted, rich_style
from kdump.cli.output.json_output import current_json_output, with_json_frame
from kdump.cli.output.terminal import columns_of, terminal_columns, wrapped
from kdump.cli.output.value_text import escape_controls, format_value
from kdump.formats.safe_json import format_json
from kdump.rows.row_type import Field, Kind

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Row = Mapping[str, Any]

SAMPLE_ROWS: Final = 4096
"""The number of rows that decide the widths of columns."""
WIDEST_COLUMN: Final = 60
"""In ``text``: a longer cell shifts its own line only."""
LEAST_TEXT_COLUMNS: Final = 20
"""The width of a text column on a narrow terminal; longer cells take a line of their own."""


class OutputFormat(enum.Enum):
    """The output formats; the value is the word for ``--output``."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"

    @property
    def is_for_people(self) -> bool:
        """Whether people read it, rather than programs."""
        return self in (OutputFormat.TEXT, OutputFormat.TABLE)

    @property
    def is_json(self) -> bool:
        return self in (OutputFormat.JSON, OutputFormat.JSONL)


_PLAIN_CSV: Final = re.compile(r'[^",\r\n]+')
_ALIGNED_RIGHT: Final = frozenset({Kind.NUMBER, Kind.BYTES})


def cell_text(column: Field, row: Row) -> str:
    """The value of a row for people, on one line without control characters."""
    if column.name not in row:
        return ""
    value = row[column.name]
    if value is None:
        return column.type.unknown
    if type(value) is int and column.kind is Kind.NUMBER:
        return str(value)
    return escape_controls(format_value(value, column.kind))


class Output(Protocol):
    """The receiver of a command's rows."""

    def row(self, row: Row) -> None:
        """Write one row."""
        ...

    def rows(self, rows: Iterable[Row]) -> None:
        """Write many rows."""
        ...


Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(command: Command) -> Command:
    """Add ``--output`` to a command, as its argument ``output`` (an OutputFormat)."""
    return format_option(
        OutputFormat,
        "output",
        "Output format: text (default) or table for people; json, jsonl or csv for programs, with "
        "raw numbers.",
    )(command)


def format_option(forms: type[enum.Enum], argument: str, what: str) -> Callable[[Command], Command]:
    """Add ``--output`` with a command's own formats, text by default.

    Args:
        forms: the formats; their values are the words, and ``text`` is one of them.
        argument: name of the command's argument for the format.
        what: help text.
    """

    def decorate(command: Command) -> Command:
        return click.option(
            "--output",
            argument,
            type=_FormatChoice(forms, case_sensitive=False),
            default=forms("text"),
            help=what,
        )(with_json_frame(command, argument))

    return decorate


class _FormatChoice(click.Choice[enum.Enum]):
    """A choice among formats by their values; click's own is by the names of an enum's members."""

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        word = choice.value if isinstance(choice, enum.Enum) else choice
        return super().normalize_choice(word, ctx)


@contextlib.contextmanager
def open_output(
    output_format: OutputFormat,
    columns: Sequence[Field],
    *,
    vertical: bool = False,
    stream: IO[bytes] | None = None,
) -> Iterator[Output]:
    """Open an output; collected rows are written when the context ends without an error.

    Args:
        columns: all columns of the rows; JSON has whatever is in a row, its ``type`` first.
        vertical: whether people see each row as a block with a line for each column: for few and
            wide rows.
        stream: the stream, unless the format is JSON; standard output by default.

    Raises:
        OSError: writing failed; :class:`BrokenPipeError` if the reader is gone.
    """
    if output_format.is_json:
        yield current_json_output()
        return
    binary = sys.stdout.buffer if stream is None else stream
    if stream is None:
        sys.stdout.flush()
    text = io.TextIOWrapper(
        _NonClosing(binary),
        encoding="utf-8",
        errors="surrogateescape",
        newline="",
        line_buffering=binary.isatty(),
    )
    output = _FORMS[output_format](text, columns, vertical)
    try:
        yield output
        output.finish()
    finally:
        # What was written before a failure is still useful.
        text.flush()


class _NonClosing(io.BufferedIOBase):
    """Pass bytes on to a stream without closing it.

    After a failure nothing more is passed on: the failure was reported, and must not be reported
    again when the wrapper around this is closed.
    """

    name = "<output>"
    _has_failed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: Any) -> int:
        if self._has_failed:
            return len(data)
        self._has_failed = True
        count = self._stream.write(data)
        self._has_failed = False
        return count

    def flush(self) -> None:
        if self._stream.closed or self._has_failed:
            return
        self._has_failed = True
        self._stream.flush()
        self._has_failed = False

    def close(self) -> None:
        """Leave the stream open: its owner closes it."""


class _Form:
    """The base of the formats."""

    def __init__(self, stream: TextIO, columns: Sequence[Field], vertical: bool) -> None:
        self.stream = stream
        self.columns = columns
        self.vertical = vertical

    def row(self, row: Row) -> None:
        raise NotImplementedError

    def rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.row(row)

    def finish(self) -> None:
        """Write what was collected."""


class _Csv(_Form):
    def __init__(self, stream: TextIO, columns: Sequence[Field], vertical: bool) -> None:
        super().__init__(stream, columns, vertical)
        self._names = [column.name for column in columns if column.for_programs]
        self._is_terminal = stream.isatty()
        self._stream = stream
        self._write(self._names)

    def row(self, row: Row) -> None:
        self._write([_csv_text(row.get(name)) for name in self._names])

    def _write(self, cells: Sequence[str | None]) -> None:
        if self._is_terminal:
            cells = [cell and escape_controls(cell) for cell in cells]
        # Readers skip an empty line: the null of a single column has quotes, too.
        line = ",".join(map(_csv_cell, cells)) or '""'
        self._stream.write(f"{line}\n")


def _csv_cell(text: str | None) -> str:
    """A cell: nothing for null, and quotes around an empty text, which ``csv`` cannot do."""
    if text is None:
        return ""
    return text if _PLAIN_CSV.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def _csv_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool | list | tuple | Mapping):
        return format_json(value)
    return str(value)


class _HumanForm(_Form):
    """The base of formats for people: collects the first rows to find widths."""

    _margin_columns = 0
    """Terminal columns that a line takes besides its cells."""
    _around_columns = 2
    """Terminal columns that each cell takes besides its text."""
    _has_shown = False

    def __init__(self, stream: TextIO, columns: Sequence[Field], vertical: bool) -> None:
        super().__init__(stream, [column for column in columns if column.for_people], vertical)
        self.terminal_columns = terminal_columns(stream)
        self._held: list[list[str]] = []
        self._hidden: list[Field] = []

    def row(self, row: Row) -> None:
        self._held.append([cell_text(column, row) for column in self.columns])
        if len(self._held) >= SAMPLE_ROWS:
            self._show()

    def finish(self) -> None:
        if self._held or not self._has_shown:
            self._show()
        if self._hidden:
            titles = ", ".join(column.title.upper() for column in self._hidden)
            line = f"terminal too narrow for: {titles} (--output json has all columns)"
            self.stream.write(wrapped(line, self.terminal_columns) + "\n")

    def _show(self) -> None:
        if self.vertical:
            for cells in self._held:
                self.show_vertical(
                    [(c, cell) for c, cell in zip(self.columns, cells, strict=True) if cell]
                )
        else:
            if not self._has_shown:
                self._hide_columns()
            self.show(self._held)
        self._has_shown = True
        self._held = []

    @property
    def _text_columns(self) -> int:
        """Return the width of a text column on the terminal."""
        return max((self.terminal_columns or 0) // 3, LEAST_TEXT_COLUMNS)

    def _hide_columns(self) -> None:
        """Hide the columns that do not fit on the terminal, judged by the collected rows."""
        if self.terminal_columns is None:
            return
        titles = [column.title for column in self.columns]
        needed = [
            max(map(columns_of, cells)) + self._around_columns
            for cells in zip(titles, *self._held, strict=True)
        ]
        for index, column in enumerate(self.columns):
            if column.kind is Kind.TEXT:
                most = max(self._text_columns, len(column.title))
                needed[index] = min(needed[index], most + self._around_columns)
        room = self.terminal_columns - self._margin_columns
        shown = list(range(len(self.columns)))
        for index in sorted(shown, key=lambda index: self.columns[index].dropped or 0):
            if self.columns[index].dropped and sum(needed[each] for each in shown) > room:
                shown.remove(index)
                self._hidden.append(self.columns[index])
        self.columns = [self.columns[index] for index in shown]
        self._held = [[cells[index] for index in shown] for cells in self._held]

    def show(self, rows: list[list[str]]) -> None:
        raise NotImplementedError

    def show_vertical(self, cells: list[tuple[Field, str]]) -> None:
        raise NotImplementedError


class _Text(_HumanForm):
    _margin_columns = -2  # the last cell has no gap after it
    _widths: list[int] | None = None
    _are_right: Sequence[bool] = ()
    _has_colour = False
    _blocks = 0

    def show(self, rows: list[list[str]]) -> None:
        if self._widths is None:
            titles = [column.title.upper() for column in self.columns]
            self._widths = self._find_widths([titles, *rows])
            self._are_right = [column.kind in _ALIGNED_RIGHT for column in self.columns]
            self._has_colour = False
            self.stream.write(self._line(titles, self._widths) + "\n")
            self._has_colour = has_colour(self.stream)
        for cells in rows:
            self.stream.write(self._line(cells, self._widths) + "\n")

    def _find_widths(self, rows: list[list[str]]) -> list[int]:
        widths = [
            min(max(map(columns_of, cells)), WIDEST_COLUMN) for cells in zip(*rows, strict=True)
        ]
        if self.terminal_columns is not None:
            for index, column in enumerate(self.columns):
                if column.kind is Kind.TEXT:
                    most = max(self._text_columns, len(column.title))
                    widths[index] = min(widths[index], most)
        return widths

    def _line(self, cells: list[str], widths: list[int]) -> str:
        """Join cells; on a terminal the line continues below a cell that is too long."""
        if self.terminal_columns is None and not self._has_colour:
            return "  ".join(map(_padded, self._are_right, cells, widths)).rstrip()
        line = ""
        end = 0
        for column, cell, width in zip(self.columns, cells, widths, strict=True):
            end += width
            taken = columns_of(cell)
            space = " " * (width - taken)
            tone = cell_tone(column, cell) if self._has_colour else None
            shown = cell if tone is None else painted(cell, tone)
            line += space + shown if column.kind in _ALIGNED_RIGHT else shown + space
            if taken > width and self.terminal_columns is not None:
                line = line.rstrip() + "\n" + " " * end
            line += "  "
            end += 2
        return line.rstrip()

    def show_vertical(self, cells: list[tuple[Field, str]]) -> None:
        width = max(len(column.title) for column in self.columns) + 1
        if self._blocks:
            self.stream.write("\n")
        self._blocks += 1
        for column, cell in cells:
            line = f"{column.title + ':':{width}}  {cell}"
            line = wrapped(line, self.terminal_columns, width + 2)
            tone = cell_tone(column, cell)
            if tone is not None and has_colour(self.stream):
                line = line[: width + 2] + painted(line[width + 2 :], tone)
            self.stream.write(line + "\n")


def _padded(is_right: bool, cell: str, width: int) -> str:
    if not cell.isascii():
        space = " " * (width - columns_of(cell))
        return space + cell if is_right else cell + space
    return cell.rjust(width) if is_right else cell.ljust(width)


class _Table(_HumanForm):
    """Tables through rich, imported only when there is something to show."""

    _margin_columns = 1
    _around_columns = 3
    _text_columns = 16  # cells are folded
    _console: Console | None = None

    @property
    def console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(
                file=self.stream,
                force_terminal=self.terminal_columns is not None,
                color_system="standard" if has_colour(self.stream) else None,
                # A pipe has no width: nothing is folded.
                width=self.terminal_columns or 1 << 20,
                highlight=False,
            )
        return self._console

    def show(self, rows: list[list[str]]) -> None:
        table = self._table(show_header=True)
        for column in self.columns:
            table.add_column(
                column.title,
                justify="right" if column.kind in _ALIGNED_RIGHT else "left",
                overflow="fold",
            )
        for cells in rows:
            table.add_row(*map(self._cell, self.columns, cells))
        self.console.print(table)

    def show_vertical(self, cells: list[tuple[Field, str]]) -> None:
        table = self._table(show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for column, cell in cells:
            table.add_row(column.title, self._cell(column, cell))
        self.console.print(table)

    @staticmethod
    def _table(*, show_header: bool) -> Table:
        from rich import box
        from rich.table import Table

        return Table(box=box.ROUNDED, show_header=show_header, header_style="bold")

    @staticmethod
    def _cell(column: Field, cell: str) -> Text:
        from rich.text import Text

        if tone := cell_tone(column, cell):
            return Text(cell, rich_style(tone))
        return Text(cell, "dim" if cell == column.type.unknown else "")


_FORMS: Final[dict[OutputFormat, Callable[[TextIO, Sequence[Field], bool], _Form]]] = {
    OutputFormat.TEXT: _Text,
    OutputFormat.TABLE: _Table,
    OutputFormat.CSV: _Csv,
}
