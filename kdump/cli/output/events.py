"""Things of several kinds that a command says as it goes: to programs rows, to people lines."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from kdump.cli.output.rendering import Output, OutputFormat, escape_controls, open_output
from kdump.cli.output.terminal import terminal_columns, wrapped


class EventFormat(enum.Enum):
    """The forms of output; the value is the word behind ``--output``."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Event:
    """Something to be event: to programs a row of a type, to people lines."""

    type: str
    row: Mapping[str, Any]
    lines: Sequence[str] = ()


class Printer(Protocol):
    """Says it, as it comes."""

    def emit(self, event: Event) -> None: ...

    def emit_text(self, lines: Iterable[str]) -> None:
        """Say lines to people only: a count of what programs are told one by one, or advice."""
        ...


@contextlib.contextmanager
def open_printer(output_format: EventFormat) -> Iterator[Printer]:
    """Open what says things in the form that was asked for."""
    if output_format is EventFormat.TEXT:
        yield _Lines()
    else:
        with open_output(OutputFormat(output_format.value), ()) as output:
            yield _Rows(output)


class _Lines:
    def emit(self, event: Event) -> None:
        self.emit_text(event.lines)

    def emit_text(self, lines: Iterable[str]) -> None:
        for line in lines:
            write_line(line)


class _Rows:
    def __init__(self, output: Output) -> None:
        self._output = output

    def emit(self, event: Event) -> None:
        self._output.row({"type": event.type, **event.row})

    def emit_text(self, lines: Iterable[str]) -> None:
        """Nothing: programs are told with each row."""


def write_line(line: str, stream: TextIO | None = None) -> None:
    """Write a line for people, broken where a terminal is too narrow for it.

    Args:
        line: may have control characters, which are escaped.
        stream: where; standard output if not given.
    """
    stream = sys.stdout if stream is None else stream
    columns = terminal_columns(stream)
    stream.write(wrapped(escape_controls(line), columns) + "\n")
    if columns is not None:
        stream.flush()
