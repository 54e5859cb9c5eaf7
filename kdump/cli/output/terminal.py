"""How wide a terminal is, and how a long line is broken for it.

A line that goes into a pipe or a file is never broken: it stays one line for ``grep``. On a
terminal it is broken between words. A path stays whole, and so does a command to copy, even where
that is wider than the terminal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Final

_DEFAULT_COLUMNS: Final = 80
_LEAST_COLUMNS: Final = 20
_HANGING_INDENT: Final = 4
_COMMAND: Final = re.compile(r"'kdump [^']*'|(?<=: )kdump .*$")
_UNBREAKABLE_SPACE: Final = "\0"
"""No line has one: control characters are escaped."""


def terminal_columns(stream: IO[Any]) -> int | None:
    """The width of the terminal that a stream writes to; None where that is no terminal.

    ``COLUMNS`` in the environment takes precedence, as for other programs.
    """
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit():
        columns = int(given)
    else:
        try:
            columns = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
    return max(columns, _LEAST_COLUMNS) if columns else _DEFAULT_COLUMNS


def shell_command(words: str, paths: Iterable[Path | str]) -> str:
    """A command to copy into a shell: ``kdump``, its words, and the paths it is about."""
    import shlex

    return f"kdump {words} {shlex.join(map(str, paths))}"


def wrapped(line: str, columns: int | None, indent: int = _HANGING_INDENT) -> str:
    """A line in as many lines as it takes to fit.

    Args:
        line: without control characters.
        columns: the width of the terminal; None to leave the line whole.
        indent: how much further than the first line the others begin.
    """
    if columns is None or len(line) <= columns:
        return line
    import textwrap

    kept = _COMMAND.sub(lambda found: found[0].replace(" ", _UNBREAKABLE_SPACE), line)
    margin = len(line) - len(line.lstrip(" ")) + indent
    lines = textwrap.wrap(
        kept,
        columns,
        subsequent_indent=" " * margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_UNBREAKABLE_SPACE, " ")
