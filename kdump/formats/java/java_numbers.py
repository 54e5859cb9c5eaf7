"""Decimal numbers in text, as Java reads them.

Kafka reads every number in a file name or a checkpoint with ``Integer.parseInt`` or
``Long.parseLong``. They accept a sign, leading zeroes and any of Unicode's decimal digits, but
neither blanks nor underscores. Python's ``int`` accepts both.
"""

from __future__ import annotations

import re
from typing import Final

_DECIMAL: Final = re.compile(r"[+-]?\d+")
_LAST_SINGLE_CHAR: Final = "\uffff"
_ASCII: Final = re.compile(r"-?[0-9]{1,18}")


def parse_int(text: str) -> int | None:
    """The 32-bit number that ``Integer.parseInt(text)`` gives, or None where that throws."""
    return _parse(text, 32)


def parse_long(text: str) -> int | None:
    """The 64-bit number that ``Long.parseLong(text)`` gives, or None where that throws."""
    return _parse(text, 64)


def _parse(text: str, bits: int) -> int | None:
    if not _ASCII.fullmatch(text):
        # Java compares UTF-16 units, so it accepts no digit that needs two of them.
        if not _DECIMAL.fullmatch(text) or max(text) > _LAST_SINGLE_CHAR:
            return None
        if len(text) > 20:
            sign = "-" if text.startswith("-") else ""
            text = sign + (text.lstrip("+-").lstrip("0") or "0")
            if len(text) > 20:
                return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None
