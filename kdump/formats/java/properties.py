r"""Java's properties files, as ``java.util.Properties.load(InputStream)`` reads them.

ISO 8859-1 text of ``key=value``, ``key:value`` or ``key value`` lines; ``#`` and ``!`` begin
comments, a backslash escapes the next character or joins the next line to its own, and
``\uXXXX`` is a UTF-16 unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kdump.formats.errors import FormatError

_LINE: Final = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(?:u(.{0,4})|(.)|$)", re.DOTALL)
_UNIT: Final = re.compile(r"[0-9A-Fa-f]{4}")
_BLANKS: Final = " \t\f"
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]")
"""Characters that are written as they are; others are written as their code."""
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def decode_properties(data: bytes) -> dict[str, str]:
    r"""The properties of a file; of a key that occurs twice, the last value.

    Raises:
        FormatError: for a ``\u`` without four hexadecimal digits, the one thing that Java
            refuses.
    """
    properties = {}
    for position, line in _logical_lines(data.decode("iso-8859-1")):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        name = _unescape(key[0], position)
        properties[name] = _unescape(line[separator.end() :], position)
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """A file that Java reads as ``properties``, a line each, in their order."""
    return "".join(
        f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items()
    ).encode("ascii")


def _escape(text: str) -> str:
    """Escape ``text`` with backslashes, and as ASCII."""
    units = memoryview(text.encode("utf-16-be", "surrogatepass")).tolist()
    characters = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
    return "".join(
        chr(unit) if chr(unit).isascii() and _PLAIN.fullmatch(chr(unit)) else f"\\u{unit:04X}"
        for unit in characters
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not comments or blank, joined, each with the byte it begins at."""
    start, parts = 0, list[str]()
    for match in _LINE.finditer(text):
        line = match[1].lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = match.start()
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield start, "".join((*parts, line))
        parts.clear()
    if parts:
        yield start, "".join(parts)


def _unescape(text: str, position: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        unit, character = match[1], match[2]
        if unit is None:
            return _CONTROLS.get(character, character or "")
        if not _UNIT.fullmatch(unit):
            raise FormatError(
                "properties have a malformed \\uXXXX in the line",
                position=position,
                expected="four hexadecimal digits",
                found=repr(unit),
            )
        return chr(int(unit, 16))

    # Two escaped surrogates are one character to Java, whose strings are UTF-16.
    unescaped = _ESCAPE.sub(replace, text)
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
