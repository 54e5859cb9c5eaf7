"""JSON text: of what decoders return, and of payloads that are JSON."""

from __future__ import annotations

import base64
import json
import math
from typing import Any, Final, NoReturn

from kdump.payloads.payload_errors import PayloadError


def as_json(value: Any) -> str:
    """The JSON text of what a decoder returned.

    Bytes are base64, and numbers that JSON does not have are text: ``NaN``, ``Infinity``,
    ``-Infinity``, as in the JSON of Protobuf.

    Raises:
        PayloadError: it is nested too deeply.
    """
    try:
        try:
            text = _ENCODER.encode(value)
        except ValueError:
            text = _ENCODER.encode(_finite(value))
    except RecursionError:
        raise PayloadError("it is nested too deeply") from None
    # A name in a schema may have half a character.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _base64(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_base64
)


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list():
            return [_finite(each) for each in value]
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
    return value


def checked_json(payload: bytes) -> str:
    """The text of a payload that is JSON, as it is.

    Raises:
        PayloadError: it is not JSON in UTF-8.
    """
    try:
        text = payload.decode()
    except UnicodeDecodeError as failure:
        raise PayloadError(f"it is not UTF-8 at byte {failure.start}") from None
    try:
        # Numbers stay text: nothing is gained by converting one of a million digits.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except json.JSONDecodeError as failure:
        raise PayloadError(f"it is not JSON: {failure.msg} at character {failure.pos}") from None
    except RecursionError:
        raise PayloadError("it is nested too deeply") from None
    return text


def _refuse(constant: str) -> NoReturn:
    raise PayloadError(f"it is not JSON: {constant}")
