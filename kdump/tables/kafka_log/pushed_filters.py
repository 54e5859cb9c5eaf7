"""The conditions of a query, as far as they save reading."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.tables.table import LEAST_TIMESTAMP_MS, MOST_TIMESTAMP_MS, US_PER_MS

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


class Interval(Struct, frozen=True):
    """Whole numbers from ``least`` to ``most``, inclusive; None is no bound."""

    least: int | None = None
    most: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.least is not None and self.most is not None and self.least > self.most

    def has(self, number: int) -> bool:
        return (self.least is None or number >= self.least) and (
            self.most is None or number <= self.most
        )

    def __and__(self, other: Interval) -> Interval:
        leasts = [each.least for each in (self, other) if each.least is not None]
        mosts = [each.most for each in (self, other) if each.most is not None]
        return Interval(max(leasts, default=None), min(mosts, default=None))


EVERYTHING: Final = Interval()
NOTHING: Final = Interval(1, 0)


class PushedFilters(Struct, frozen=True):
    """What all filters together let through.

    Attributes:
        offsets: of records, or base offsets of segments.
        base_offsets: of batches.
        last_offsets: of batches.
        timestamps_ms: of records, or the largest of batches.
        partitions: numbers of partitions.
        topics: only these; None is any.
        topic_prefixes: topics begin with all of these.
        is_without_damage: whether rows for damaged bytes are left out, which have neither offset
            nor timestamp.
    """

    offsets: Interval = EVERYTHING
    base_offsets: Interval = EVERYTHING
    last_offsets: Interval = EVERYTHING
    timestamps_ms: Interval = EVERYTHING
    partitions: Interval = EVERYTHING
    topics: frozenset[str] | None = None
    topic_prefixes: tuple[str, ...] = ()
    is_without_damage: bool = False

    @property
    def is_empty(self) -> bool:
        return (
            self.offsets.is_empty
            or self.base_offsets.is_empty
            or self.last_offsets.is_empty
            or self.timestamps_ms.is_empty
            or self.partitions.is_empty
            or self.topics == frozenset()
        )

    def has_topic(self, topic: str | None) -> bool:
        if topic is None:
            return self.topics is None and not self.topic_prefixes
        return (self.topics is None or topic in self.topics) and topic.startswith(
            tuple(self.topic_prefixes) or ""
        )

    def has_partition(self, partition: int | None) -> bool:
        if partition is None:
            return self.partitions == EVERYTHING
        return self.partitions.has(partition)


def push(filters: PushedFilters, kind: str, column: str, value: Any) -> PushedFilters:
    """Add one filter.

    Args:
        filters: those added before.
        kind: name of the filter's class in ``pyspark.sql.datasource``.
        column: its column, in lower case.
        value: what it compares with; None if nothing.

    Returns:
        All filters. They let through what a query needs, and may let through more: the query still
        applies its conditions to the rows.
    """
    narrow = _NARROW.get(column)
    return filters if narrow is None else narrow(filters, kind, value)


def _offset(filters: PushedFilters, kind: str, value: Any) -> PushedFilters:
    interval = _whole_numbers(kind, value)
    narrowed = replace(filters, offsets=filters.offsets & interval)
    return _without_damage(narrowed, kind, interval)


def _base_offset(filters: PushedFilters, kind: str, value: Any) -> PushedFilters:
    interval = _whole_numbers(kind, value)
    return replace(filters, base_offsets=filters.base_offsets & interval)


def _last_offset(filters: PushedFilters, kind: str, value: Any) -> PushedFilters:
    interval = _whole_numbers(kind, value)
    return replace(filters, last_offsets=filters.last_offsets & interval)


def _timestamp(filters: PushedFilters, kind: str, value: Any) -> PushedFilters:
    interval = _milliseconds(kind, value)
    narrowed = replace(filters, timestamps_ms=filters.timestamps_ms & interval)
    return _without_damage(narrowed, kind, interval)


def _without_damage(filters: PushedFilters, kind: str, interval: Interval) -> PushedFilters:
    is_asked = kind == "IsNotNull" or interval != EVERYTHING
    return replace(filters, is_without_damage=filters.is_without_damage or is_asked)


def _partition(filters: PushedFilters, kind: str, value: Any) -> PushedFilters:
    interval = _whole_numbers(kind, value)
    return replace(filters, partitions=filters.partitions & interval)


def _topic(filters: PushedFilters, kind: str, value: Any) -> PushedFilters:
    match kind:
        case "EqualTo" | "EqualNullSafe" if isinstance(value, str):
            names = frozenset({value})
        case "In":
            names = frozenset(each for each in value if isinstance(each, str))
        case "StringStartsWith" if isinstance(value, str):
            return replace(filters, topic_prefixes=(*filters.topic_prefixes, value))
        case _:
            return filters
    return replace(filters, topics=names if filters.topics is None else filters.topics & names)


_NARROW: Final[dict[str, Callable[[PushedFilters, str, Any], PushedFilters]]] = {
    "offset": _offset,
    "base_offset": _base_offset,
    "last_offset": _last_offset,
    "timestamp": _timestamp,
    "partition": _partition,
    "topic": _topic,
}


def _whole_numbers(kind: str, value: Any) -> Interval:
    """An interval with all numbers that a filter lets through."""
    if kind == "In":
        numbers = [each for each in value if is_whole(each)]
        return Interval(min(numbers), max(numbers)) if numbers else NOTHING
    if not is_whole(value):
        return EVERYTHING
    match kind:
        case "EqualTo" | "EqualNullSafe":
            return Interval(value, value)
        case "GreaterThan":
            return Interval(value + 1)
        case "GreaterThanOrEqual":
            return Interval(value)
        case "LessThan":
            return Interval(None, value - 1)
        case "LessThanOrEqual":
            return Interval(None, value)
    return EVERYTHING


def _milliseconds(kind: str, value: Any) -> Interval:
    """The same for timestamps; a filter's may have microseconds, those of records do not."""
    storable = Interval(LEAST_TIMESTAMP_MS, MOST_TIMESTAMP_MS)
    if kind == "IsNotNull":
        return storable
    if kind == "In":
        spans = [_milliseconds("EqualTo", each) for each in value]
        leasts = [each.least for each in spans if each.least is not None]
        mosts = [each.most for each in spans if each.most is not None]
        return storable & Interval(min(leasts), max(mosts)) if leasts else NOTHING
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return EVERYTHING
    us = (value - _EPOCH) // _MICROSECOND
    floor, ceiling = us // US_PER_MS, -(-us // US_PER_MS)
    match kind:
        case "EqualTo" | "EqualNullSafe":
            return storable & Interval(ceiling, floor)
        case "GreaterThan":
            return storable & Interval(floor + 1)
        case "GreaterThanOrEqual":
            return storable & Interval(ceiling)
        case "LessThan":
            return storable & Interval(None, ceiling - 1)
        case "LessThanOrEqual":
            return storable & Interval(None, floor)
    return EVERYTHING


def is_whole(value: object) -> bool:
    """Whether it is a number without a fraction."""
    return isinstance(value, int) and not isinstance(value, bool)
