"""Things of several kinds that a command says as it goes: to programs rows, to people lines."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kdump.cli.output import Output, OutputFormat, escape_controls, open_output


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
        for line in said.lines:
            sys.stdout.write(escape_controls(line) + "\n")
        if sys.stdout.isatty():
            sys.stdout.flush()


class _Rows:
    def __init__(self, output: Output) -> None:
        self._output = output

    def say(self, said: Said) -> None:
        self._output.row({"type": said.type, **said.row})
