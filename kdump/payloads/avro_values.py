"""Logical types of Avro as text that can be read.

fastavro's own readers return objects of Python, which hold fewer values than Avro does: no year
after 9999, no nanoseconds, no number with more digits than its type says. So logical types get
names of kdump's own in a schema, and readers of their own, which always return what JSON has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal
from uuid import UUID

import numpy as np

_Unit = Literal["ms", "us", "ns"]
_UNITS: Final[tuple[tuple[str, _Unit], ...]] = (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
_PREFIX: Final = "kdump-"
_MOST_SCALE: Final = 1000
_MOST_DECIMAL_BYTES: Final = 1024
"""The digits of a longer number take more than linear time."""
_DAY_SECONDS: Final = 24 * 60 * 60


def _time_stamp(unit: _Unit, zone: str, value: int, *_: object) -> str | int:
    moment = np.datetime64(value, unit)
    return value if np.isnat(moment) else f"{np.datetime_as_string(moment)}{zone}"


def _date(value: int, *_: object) -> str:
    return str(np.datetime64(value, "D"))


def _time_of_day(per_second: int, value: int, *_: object) -> str | int:
    if not 0 <= value < _DAY_SECONDS * per_second:
        return value
    seconds, fraction = divmod(value, per_second)
    minutes, seconds = divmod(seconds, 60)
    digits = len(str(per_second)) - 1
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{fraction:0{digits}}"


def _decimal(data: bytes, schema: Mapping[str, Any], *_: object) -> str | bytes:
    if len(data) > _MOST_DECIMAL_BYTES:
        return data
    unscaled = Decimal(int.from_bytes(data, signed=True))
    sign, digits, _exponent = unscaled.as_tuple()
    return f"{Decimal((sign, digits, -schema.get('scale', 0))):f}"


def _uuid(data: bytes, *_: object) -> str | bytes:
    return str(UUID(bytes=data)) if len(data) == 16 else data


def _duration(data: bytes, *_: object) -> str | bytes:
    if len(data) != 12:
        return data
    months, days, millis = np.frombuffer(data, "<u4").tolist()
    return f"P{months}M{days}DT{millis // 1000}.{millis % 1000:03}S"


_READERS: Final[Mapping[tuple[str, str], Callable[..., Any]]] = {
    ("int", "date"): _date,
    ("int", "time-millis"): functools.partial(_time_of_day, 1000),
    ("long", "time-micros"): functools.partial(_time_of_day, 1000_000),
    **{
        ("long", f"{local}timestamp-{name}"): functools.partial(_time_stamp, unit, zone)
        for local, zone in (("", "Z"), ("local-", ""))
        for name, unit in _UNITS
    },
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("fixed", "uuid"): _uuid,
    ("fixed", "duration"): _duration,
}
"""By type and logical type, what makes text of a value. A UUID in a string is text already."""


def add_readers() -> None:
    """Make fastavro know the logical types of :func:`with_own_types`; others stay unchanged."""
    from fastavro.read import LOGICAL_READERS

    for (kind, logical), reader in _READERS.items():
        LOGICAL_READERS[f"{kind}-{_PREFIX}{logical}"] = reader


def with_own_types(schema: Any) -> Any:
    """Return a schema, as JSON has it, whose logical types are those of this module.

    Unknown ones are left out, and those with impossible attributes, as the specification asks for.
    """
    if isinstance(schema, list):
        return [with_own_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    logical = found.pop("logicalType", None)
    kind = found.get("type")
    if isinstance(kind, str) and isinstance(logical, str) and (kind, logical) in _READERS:
        scale = found.get("scale", 0)
        if type(scale) is int and 0 <= scale <= _MOST_SCALE:
            found["logicalType"] = _PREFIX + logical
    for name in ("type", "items", "values"):
        if isinstance(found.get(name), dict | list):
            found[name] = with_own_types(found[name])
    fields = found.get("fields")
    if isinstance(fields, list):
        found["fields"] = [with_own_types(each) for each in fields]
    return found
