"""Files of lines, read as Java's ``BufferedReader.readLine`` reads them, in strict UTF-8."""

from __future__ import annotations

import re
from typing import Final

from kdump.formats.errors import FormatError

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_LONGEST_SHOWN: Final = 80


def decode_lines(data: bytes, name: str) -> list[str]:
    """Split into lines without their ends; an empty last line does not count.

    Args:
        data: the whole file.
        name: of the file, for the error.

    Raises:
        FormatError: where a line is not UTF-8.
    """
    lines = _LINE_END.split(data)
    if not lines[-1]:
        lines.pop()
    try:
        return [line.decode() for line in lines]
    except UnicodeDecodeError:
        index = next(index for index, line in enumerate(lines) if not is_utf8(line))
        raise _malformed(data, name, index, repr(lines[index])[1:], "text in UTF-8") from None


def malformed_line(
    data: bytes, name: str, lines: list[str], index: int, expected: str
) -> FormatError:
    """Give the error that a line is missing or not as ``expected``."""
    found = repr(lines[index]) if index < len(lines) else "nothing"
    return _malformed(data, name, index, found, expected)


def line_start(data: bytes, index: int) -> int:
    """The first byte of the line of that index; where it is missing, the end of the file."""
    start = 0
    for _ in range(index):
        match = _LINE_END.search(data, start)
        if match is None:
            return len(data)
        start = match.end()
    return start


def _malformed(data: bytes, name: str, index: int, found: str, expected: str) -> FormatError:
    if len(found) > _LONGEST_SHOWN:
        found = found[: _LONGEST_SHOWN - 3] + "..."
    return FormatError(
        f"{name} is malformed in line {index + 1}",
        position=line_start(data, index),
        expected=expected,
        found=found,
    )


def is_utf8(text: bytes) -> bool:
    """Whether it is valid UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
