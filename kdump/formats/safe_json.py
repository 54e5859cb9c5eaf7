"""JSON on one line, without what could harm a terminal or break the line."""

from __future__ import annotations

import json
import re
from typing import Any, Final

UNSAFE: Final = "\x7f-\x9f\u2028-\u202e\u2066-\u2069"
"""The characters that are escaped beside those of JSON itself, as part of a regular expression:
controls, and what turns the direction of text or breaks lines in some programs."""

_UNSAFE: Final = re.compile(f"[{UNSAFE}\ud800-\udfff]")
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_line(document: Any) -> bytes:
    """Encode compact JSON in ASCII as a line of a file."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def format_json(value: Any) -> str:
    """Format compact JSON on one line; only what could harm a terminal is escaped.

    Lone surrogates, which stand for bytes of a file name that are not UTF-8, are escaped too: the
    text can always be encoded, and parses to the same name.
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", _ENCODE(value))
