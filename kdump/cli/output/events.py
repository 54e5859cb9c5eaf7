"""Things of several kinds that a command says as it goes: to programs rows, to people lines."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from kdump.cli.output.rendering import Output, OutputFormat, escape_controls, open_output
from kdump.cli.output.terminal import broken, terminal_columns


class SaidForm(enum.Enum):
    """The forms of output; the value is the word behind ``--output``."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Said:
    """Something to be said: to programs a row of a type, to people lines."""

    type: str
    row: Mapping[str, Any]
    lines: Sequence[str] = ()


class Printer(Protocol):
    """Says it, as it comes."""

    def say(self, said: Said) -> None: ...

    def tell(self, lines: Iterable[str]) -> None:
        """Say lines to people only: a count of what programs are told one by one, or advice."""
        ...


@contextlib.contextmanager
def open_printer(form: SaidForm) -> Iterator[Printer]:
    """Open what says things in the form that was asked for."""
    if form is SaidForm.TEXT:
        yield _Lines()
    else:
        with open_output(OutputFormat(form.value), ()) as output:
            yield _Rows(output)


class _Lines:
    def say(self, said: Said) -> None:
        self.tell(said.lines)

    def tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            write_line(line)


class _Rows:
    def __init__(self, output: Output) -> None:
        self._output = output

    def say(self, said: Said) -> None:
        self._output.row({"type": said.type, **said.row})

    def tell(self, lines: Iterable[str]) -> None:
        """Nothing: programs are told with each row."""


def write_line(line: str, stream: TextIO | None = None) -> None:
    """Write a line for people, broken where a terminal is too narrow for it.

    Args:
        line: may have control characters, which are escaped.
        stream: where; standard output if not given.
    """
    stream = sys.stdout if stream is None else stream
    columns = terminal_columns(stream)
    stream.write(broken(escape_controls(line), columns) + "\n")
    if columns is not None:
        stream.flush()
