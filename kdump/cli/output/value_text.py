"""Texts of values for people: sizes, times, and text that cannot harm a terminal."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, Final

from kdump.rows.row_type import Kind

_CONTROLS: Final = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FIRST_SURROGATE_ESCAPE: Final = 0xDC80
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str:
    r"""Escape control characters as Python writes them.

    Also escapes characters that change the direction of text, line separators, and bytes of a file
    name that are not UTF-8 (``\xff``).
    """
    return text if text.isprintable() else _CONTROLS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if _FIRST_SURROGATE_ESCAPE <= code < _FIRST_SURROGATE_ESCAPE + 0x80:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def format_value(value: Any, kind: Kind = Kind.TEXT) -> str:
    """Format a value for people."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if kind is Kind.BYTES:
            return format_bytes(value)
        if kind is Kind.TIMESTAMP_MS:
            return format_timestamp(value)
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {format_value(each, kind)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item, kind) for item in value)
    return str(value)


_BINARY_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_bytes(size_bytes: int) -> str:
    """Format a size in the largest binary unit that leaves a number above 1."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} B"
    power = 1
    # What rounds up to 1024.0 is 1.0 of the next unit.
    while abs(size_bytes) / 1024**power >= 1023.95 and power < len(_BINARY_UNITS):
        power += 1
    return f"{size_bytes / 1024**power:.1f} {_BINARY_UNITS[power - 1]}"


_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as the text says


def format_timestamp(timestamp_ms: int) -> str:
    """Format milliseconds since 1970 as ISO 8601 in UTC.

    A number outside the years 1 to 9999 is shown as it is, with its unit.
    """
    try:
        time = _EPOCH + dt.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return time.isoformat(timespec="milliseconds") + "Z"
