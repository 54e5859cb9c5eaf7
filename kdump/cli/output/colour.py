"""Colour on a terminal, for what must not be overlooked.

It is never the only sign: a word says the same. ``NO_COLOR`` turns it off, ``CLICOLOR_FORCE`` turns
it on for a pipe too, and ``NO_COLOR`` wins. The colours are among the eight that every terminal
has, without yellow, which cannot be read on a light background.
"""

from __future__ import annotations

import enum
import os
from typing import IO, Any, Final, Self

import click

from kdump.rows.row_type import Field


class Tone(enum.Enum):
    """What a colour means."""

    SEVERE = enum.auto()
    """A broker does not start, or records are lost."""
    ERROR = enum.auto()
    """Something is damaged, or failed."""
    WARNING = enum.auto()
    """It deserves a look."""
    GOOD = enum.auto()
    """There is nothing to do."""


_COLOURS: Final = {
    Tone.SEVERE: "red",
    Tone.ERROR: "red",
    Tone.WARNING: "magenta",
    Tone.GOOD: "green",
}
_SEVERITIES: Final = {
    "severe": Tone.SEVERE,
    "error": Tone.ERROR,
    "warning": Tone.WARNING,
    "info": None,
}
_VERDICTS: Final = {
    "rebuilt": Tone.WARNING,
    "loss": Tone.ERROR,
    "refused": Tone.ERROR,
    "unreadable": Tone.ERROR,
}
"""Tones of verdicts by :class:`~kdump.repair.verdict.verdict.VerdictKind`; others have none."""
_PROGRAM: Final = "kdump:"
_UNREMARKABLE: Final = frozenset({"", "0", "yes"})


class TonedLine(str):
    """A line for people whose first words have a colour; in all else it is its text.

    Attributes:
        tone: of those words.
        toned: how many characters they have; None for the whole line.
    """

    __slots__ = ("tone", "toned")
    tone: Tone
    toned: int | None

    def __new__(cls, line: str, tone: Tone, toned: int | None = None) -> Self:
        made = super().__new__(cls, line)
        made.tone = tone
        made.toned = toned
        return made

    def painted(self, wrapped: str) -> str:
        """Colour the line as it is wrapped; the first words must have no space in them."""
        return painted(wrapped[: self.toned], self.tone) + wrapped[len(wrapped[: self.toned]) :]


def severity_line(label: str, rest: str) -> str:
    """Return a line that begins with a severity: ``label: rest``."""
    tone = _SEVERITIES[label]
    line = f"{label}: {rest}"
    return line if tone is None else TonedLine(line, tone, len(label) + 1)


def verdict_line(kind: str, line: str) -> str:
    """Return a line that says the verdict on a partition, in the colour of the verdict's kind."""
    tone = _VERDICTS.get(kind)
    return line if tone is None else TonedLine(line, tone)


def failure_line(line: str) -> str:
    """Return a line that says what failed: the name of the program before it has the colour."""
    return TonedLine(line, Tone.ERROR, len(_PROGRAM)) if line.startswith(_PROGRAM) else line


def cell_tone(column: Field, cell: str) -> Tone | None:
    """The tone of a cell: those of columns that alert have one, unless there is nothing to see."""
    if not column.alert or cell in _UNREMARKABLE or cell == column.type.unknown:
        return None
    return _SEVERITIES.get(cell, Tone.WARNING)


def painted(text: str, tone: Tone) -> str:
    """Return the text with the escape sequences of its colour."""
    return click.style(text, fg=_COLOURS[tone], bold=tone is Tone.SEVERE or None)


def rich_style(tone: Tone) -> str:
    """Return the same colour as a style of rich."""
    return f"bold {_COLOURS[tone]}" if tone is Tone.SEVERE else _COLOURS[tone]


def has_colour(stream: IO[Any]) -> bool:
    """Whether what is written to a stream has colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
