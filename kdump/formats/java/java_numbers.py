"""Numbers in text, as Java reads them.

Kafka reads every number in a file name or a checkpoint with ``Integer.parseInt`` or
``Long.parseLong``. They accept a sign, leading zeroes and any of Unicode's decimal digits, but
neither blanks nor underscores. Python's ``int`` accepts both. Ratios in a configuration are read
with ``Double.parseDouble``, which knows type suffixes and hexadecimal digits, and only ASCII.
"""

from __future__ import annotations

import re
from typing import Final

_DECIMAL: Final = re.compile(r"[+-]?\d+")
_LAST_SINGLE_CHAR: Final = "\uffff"
_ASCII: Final = re.compile(r"-?[0-9]{1,18}")
_PLAIN_DIGITS: Final = 18
_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What ``Double.parseDouble`` ignores around a number, as ``String.trim`` does."""
_NO_NUMBER: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_DOUBLE: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX_DOUBLE: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


def parse_int(text: str) -> int | None:
    """The 32-bit number that ``Integer.parseInt(text)`` gives, or None where that throws."""
    return _parse(text, 32)


def parse_long(text: str) -> int | None:
    """The 64-bit number that ``Long.parseLong(text)`` gives, or None where that throws."""
    return _parse(text, 64)


def parse_double(text: str) -> float | None:
    """The 64-bit number that ``Double.parseDouble(text)`` gives, or None where that throws."""
    trimmed = text.strip(_BLANKS)
    if _NO_NUMBER.fullmatch(trimmed):
        return float(trimmed)
    if found := _DOUBLE.fullmatch(trimmed):
        return float(found[1])
    if found := _HEX_DOUBLE.fullmatch(trimmed):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf" if trimmed.startswith("-") else "inf")
    return None


def _parse(text: str, bits: int) -> int | None:
    # Without a regular expression for nearly all numbers: checkpoints have 10,000 of them.
    is_plain = text.isdigit() and text.isascii() and len(text) <= _PLAIN_DIGITS
    if not is_plain and not _ASCII.fullmatch(text):
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
