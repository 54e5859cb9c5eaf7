"""Small JSON files of a log directory, with limits on depth and numbers."""

from __future__ import annotations

import json
from typing import Any

from kdump.formats.errors import FormatError


def decode_json_object(data: bytes, name: str) -> dict[str, Any]:
    """The JSON object that ``data`` is, as UTF-8.

    Args:
        data: any bytes.
        name: of the file, for the error.

    Raises:
        FormatError: for anything but one JSON object.
    """
    try:
        value = json.loads(data.decode())
    except json.JSONDecodeError as problem:
        position = len(problem.doc[: problem.pos].encode())
        raise FormatError(f"{name} is not JSON ({problem.msg})", position=position) from None
    except UnicodeDecodeError as problem:
        raise FormatError(f"{name} is not UTF-8", position=problem.start) from None
    except (ValueError, RecursionError):
        # A number of thousands of digits, or brackets of thousands of levels.
        raise FormatError(f"{name} is not JSON that Kafka could have written") from None
    if not isinstance(value, dict):
        raise FormatError(f"{name} is not a JSON object", found=type(value).__name__)
    return value


def integer_field(
    fields: dict[str, Any], key: str, name: str, bits: int, default: int | None = None
) -> int:
    """An integer of ``fields`` that a signed number of so many bits holds.

    Raises:
        FormatError: where it is missing (and has no default), no integer, or too large.
    """
    value = fields.get(key, default)
    bound = 1 << (bits - 1)
    if isinstance(value, bool) or not isinstance(value, int) or not -bound <= value < bound:
        raise FormatError(
            f"{name} has no valid {key}",
            expected=f"an integer of {bits} bits",
            found=repr(value)[:80],
        )
    return value
