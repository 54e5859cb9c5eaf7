"""The width of a terminal, and wrapping of long lines.

Lines are never wrapped in a pipe or a file: they stay one line for ``grep``. On a terminal they
are wrapped between words. Paths and commands to copy stay whole, even if they are wider than the
terminal.
"""

from __future__ import annotations

import os
import re
from typing import IO, Any, Final

_DEFAULT_COLUMNS: Final = 80
_LEAST_COLUMNS: Final = 20
_HANGING_INDENT: Final = 4
_COMMAND: Final = re.compile(r"'kdump [^']*'|(?<=: )kdump .*$|(?<=^  )kafka-[a-z]*\.sh .*$")
_UNBREAKABLE_SPACE: Final = "\0"
"""Never part of a line: control characters are escaped."""


def terminal_columns(stream: IO[Any]) -> int | None:
    """Return the width of the terminal behind a stream; None if it is not a terminal.

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


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: wide characters take two."""
    if text.isascii():
        return len(text)
    # Importing it takes time, and nearly all text is ASCII.
    from rich.cells import cell_len

    return cell_len(text)


def wrapped(line: str, columns: int | None, indent: int = _HANGING_INDENT) -> str:
    """Wrap a line.

    Args:
        line: text without control characters.
        columns: the width of the terminal; None to leave the line whole.
        indent: additional indentation of all lines but the first.
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
