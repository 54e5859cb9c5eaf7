"""Events that a command reports as it runs: rows for programs, lines for people."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from msgspec import Struct

from kdump.cli.output.colour import TonedLine, has_colour
from kdump.cli.output.rendering import Command, Output, OutputFormat, format_option, open_output
from kdump.cli.output.terminal import terminal_columns, wrapped
from kdump.cli.output.value_text import escape_controls

if TYPE_CHECKING:
    from kdump.state.metadata.settings import StartingKafka


class EventFormat(enum.Enum):
    """The output formats; the value is the word for ``--output``."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


def events_option(command: Command) -> Command:
    """Add ``--output`` to a command, as its argument ``output_format`` (an EventFormat)."""
    what = "Output format: text (default) for people; json or jsonl for programs."
    return format_option(EventFormat, "output_format", what)(command)


class Event(Struct, frozen=True):
    """Something to report: a typed row for programs, lines for people.

    Attributes:
        type: what happened.
        fields: the other fields of the row; a function makes them if they are printed.
    """

    type: str
    fields: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    lines: Sequence[str] = ()

    @property
    def row(self) -> Mapping[str, Any]:
        """The other fields of the row."""
        return self.fields() if callable(self.fields) else self.fields

    def with_kafkas(self, kafkas: Iterable[StartingKafka]) -> Event:
        """The same summary, and which Kafka its report speaks of."""
        known = list(kafkas)
        fields = {**self.row, "kafka": [each.row for each in known]}
        return Event(self.type, fields, [*self.lines, *map(str, known)])


class Printer(Protocol):
    """Print events as they come."""

    def emit(self, event: Event) -> None: ...

    def emit_text(self, lines: Iterable[str]) -> None:
        """Print lines for people only: counts of rows that were not listed, or advice."""
        ...

    def emit_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.emit(event)


@contextlib.contextmanager
def open_printer(output_format: EventFormat) -> Iterator[Printer]:
    """Open the printer of a format."""
    if output_format is EventFormat.TEXT:
        yield _Lines()
    else:
        with open_output(OutputFormat(output_format.value), ()) as output:
            yield _Rows(output)


class _Lines(Printer):
    def emit(self, event: Event) -> None:
        self.emit_text(event.lines)

    def emit_text(self, lines: Iterable[str]) -> None:
        for line in lines:
            write_line(line)


class _Rows(Printer):
    def __init__(self, output: Output) -> None:
        self._output = output

    def emit(self, event: Event) -> None:
        self._output.row({"type": event.type, **event.row})

    def emit_text(self, lines: Iterable[str]) -> None:
        """Print nothing: programs have the rows."""


def write_line(line: str, stream: TextIO | None = None) -> None:
    """Write a line for people, wrapped at the width of a terminal.

    Args:
        line: the text; control characters in it are escaped, and a toned line has its colour.
        stream: the stream; standard output by default.
    """
    stream = sys.stdout if stream is None else stream
    columns = terminal_columns(stream)
    shown = wrapped(escape_controls(line), columns)
    if isinstance(line, TonedLine) and has_colour(stream):
        shown = line.painted(shown)
    stream.write(shown + "\n")
    if columns is not None:
        stream.flush()


def write_notice(text: str) -> None:
    """Write a line for people to standard error, as what kdump says beside its output."""
    write_line(f"kdump: {text}", sys.stderr)
