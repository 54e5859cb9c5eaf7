"""What a SQL statement needs of each table: its columns, and the conditions that its rows meet.

Spark 4.3.0 tells a Python source which filters a query has, but keeps them for the next query over
the same relation, and tells it no columns. So a statement is first optimized over views that
read nothing, and this module walks Spark's optimized plan.

Too much is safe, too little is not. A condition counts only if the plan applies it directly to the
rows of a table, and only if it compares a column with a constant. If a table occurs several times,
its rows are needed for each of them. A plan with an operator that is not listed here needs
everything.

Plans are objects of Spark's ``org.apache.spark.sql.catalyst`` that py4j reaches; nothing of
PySpark is imported.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from kdump.pipeline.sql.sql_statements import items_of
from kdump.tables.kafka_log.pushed_filters import Interval, PushedFilters, push

LEAF: Final = "MapInArrow"
"""The operator that reads a table; its function has the name of the table."""

_EXPLICIT: Final = frozenset(
    {
        "Aggregate",
        "Filter",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "Offset",
        "Project",
        "Range",
        "Repartition",
        "RepartitionByExpression",
        "Sort",
        "Window",
        LEAF,
    }
)
"""Operators that name every column that they use; others pass on."""
_BY_POSITION: Final = frozenset(
    {
        "Deduplicate",
        "Distinct",
        "Except",
        "Expand",
        "Generate",
        "Intersect",
        "LocalRelation",
        "OneRowRelation",
        "Sample",
        "Tail",
        "Union",
    }
)
"""Operators that may use every column of their input."""

_FLIPPED: Final = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}
"""Comparisons, and what they are with their sides exchanged."""
_WHOLE_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_MOST_VALUES: Final = 1000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


_NO_FILTERS: Final = PushedFilters()
_ANY: Final = Interval()


class TableNeeds(Struct, frozen=True):
    """What a statement needs of a table.

    Attributes:
        columns: names of the columns; None for all.
        filters: conditions that all needed rows meet.
    """

    columns: frozenset[str] | None = frozenset()
    filters: PushedFilters = _NO_FILTERS

    def __or__(self, other: TableNeeds) -> TableNeeds:
        columns = None
        if self.columns is not None and other.columns is not None:
            columns = self.columns | other.columns
        return TableNeeds(columns, either(self.filters, other.filters))

    def covers(self, other: TableNeeds) -> bool:
        """Whether whoever reads this has read the other, too."""
        has_columns = self.columns is None or (
            other.columns is not None and other.columns <= self.columns
        )
        return has_columns and either(self.filters, other.filters) == self.filters


EVERYTHING: Final = TableNeeds(columns=None)


def either(one: PushedFilters, other: PushedFilters) -> PushedFilters:
    """Filters that let through whatever one of the two lets through."""
    topics = None
    if one.topics is not None and other.topics is not None:
        topics = one.topics | other.topics
    return PushedFilters(
        offsets=_hull(one.offsets, other.offsets),
        base_offsets=_hull(one.base_offsets, other.base_offsets),
        last_offsets=_hull(one.last_offsets, other.last_offsets),
        timestamps_ms=_hull(one.timestamps_ms, other.timestamps_ms),
        partitions=_hull(one.partitions, other.partitions),
        topics=topics,
        topic_prefixes=one.topic_prefixes if one.topic_prefixes == other.topic_prefixes else (),
        is_without_damage=one.is_without_damage and other.is_without_damage,
    )


def _hull(one: Interval, other: Interval) -> Interval:
    if one.is_empty or other.is_empty:
        return one if other.is_empty else other
    least = None if one.least is None or other.least is None else min(one.least, other.least)
    most = None if one.most is None or other.most is None else max(one.most, other.most)
    return Interval(least, most)


def needs_text(needs: TableNeeds) -> str:
    """What is read of a table, for people."""
    filters = needs.filters
    if filters.is_empty:
        return "no rows"
    match needs.columns:
        case None:
            parts = ["all columns"]
        case columns:
            parts = [f"columns {', '.join(sorted(columns))}" if columns else "rows without columns"]
    if filters.topics is not None:
        parts.append(f"topic {' or '.join(sorted(filters.topics))}")
    parts += [f"topics that begin with {prefix}" for prefix in filters.topic_prefixes]
    intervals = {
        "partition": filters.partitions,
        "offset": filters.offsets,
        "base offset": filters.base_offsets,
        "last offset": filters.last_offsets,
        "timestamp in ms": filters.timestamps_ms,
    }
    parts += [f"{name} {_interval_text(each)}" for name, each in intervals.items() if each != _ANY]
    return "; ".join(parts)


def _interval_text(interval: Interval) -> str:
    if interval.least == interval.most:
        return str(interval.least)
    if interval.most is None:
        return f"from {interval.least} on"
    return (
        f"up to {interval.most}"
        if interval.least is None
        else f"{interval.least} to {interval.most}"
    )


def statement_needs(
    plan: Any, pushed: Mapping[str, Mapping[str, str]]
) -> dict[str, TableNeeds] | None:
    """What an optimized plan needs of each table that it reads; None for everything.

    Args:
        plan: Spark's ``LogicalPlan``.
        pushed: for each table by name, the columns whose conditions count, and what they restrict.
    """
    walk = _Walk()
    walk.visit(plan, ())
    if not walk.is_known:
        return None
    used = walk.used.union(_ids(plan.output()))
    found: dict[str, TableNeeds] = {}
    for leaf, conditions in walk.leaves:
        table = str(leaf.functionExpr().name())
        names = {_id(each): str(each.name()) for each in items_of(leaf.output())}
        restricted = pushed.get(table, {})
        columns = {key: restricted[name] for key, name in names.items() if name in restricted}
        filters = _NO_FILTERS
        for condition in conditions:
            filters = _narrowed(filters, condition, columns)
        needs = TableNeeds(frozenset(names[key] for key in names.keys() & used), filters)
        found[table] = found[table] | needs if table in found else needs
    return found


def mentions(plan: Any, text: str) -> bool:
    """Whether an expression of a plan, or of one of its subqueries, has a text in it.

    Args:
        plan: Spark's ``LogicalPlan``.
    """
    if any(text in str(each.toString()) for each in items_of(plan.expressions())):
        return True
    below = (*items_of(plan.children()), *items_of(plan.subqueries()))
    return any(mentions(each, text) for each in below)


class _Walk:
    """A walk over all operators of a plan, also of its subqueries."""

    def __init__(self) -> None:
        self.is_known = True
        self.used: set[int] = set()
        self.leaves: list[tuple[Any, tuple[Any, ...]]] = []

    def visit(self, node: Any, conditions: tuple[Any, ...]) -> None:
        """Visit an operator.

        Args:
            conditions: all that its rows have to meet.
        """
        name = str(node.nodeName())
        if name == LEAF:
            self.leaves.append((node, conditions))
            return
        if name not in _EXPLICIT and name not in _BY_POSITION:
            self.is_known = False
            return
        self.used.update(_ids(node.references().toSeq()))
        for subquery in items_of(node.subqueries()):
            self.visit(subquery, ())
        for child in items_of(node.children()):
            if name in _BY_POSITION:
                self.used.update(_ids(child.output()))
            self.visit(child, (*conditions, node.condition()) if name == "Filter" else ())


def _narrowed(filters: PushedFilters, condition: Any, columns: Mapping[int, str]) -> PushedFilters:
    """Filters that also let through only what meets a condition, as far as that is clear.

    Args:
        filters: before.
        condition: Spark's ``Expression``.
        columns: by the id of an attribute, what conditions on it restrict.
    """
    kind = str(condition.nodeName())
    if kind == "And":
        left = _narrowed(filters, condition.left(), columns)
        return _narrowed(left, condition.right(), columns)
    if kind == "Or":
        return either(
            _narrowed(filters, condition.left(), columns),
            _narrowed(filters, condition.right(), columns),
        )
    column, kind, value = _comparison(condition, kind, columns)
    if column is None:
        return filters
    return push(filters, kind, column, value)


_NO_COMPARISON: Final = (None, "", None)


def _comparison(
    condition: Any, kind: str, columns: Mapping[int, str]
) -> tuple[str | None, str, Any]:
    """The column of a comparison with constants, the kind of a filter, and its value."""
    if kind in _FLIPPED:
        left, right = condition.left(), condition.right()
        if str(left.nodeName()) == _LITERAL:
            left, right, kind = right, left, _FLIPPED[kind]
        column = _column(left, columns)
        value = None if column is None else _constant(right, column)
    elif kind == "StartsWith":
        column = _column(condition.left(), columns)
        value = _constant(condition.right(), column) if column == "topic" else None
        kind = "StringStartsWith"
    elif kind in ("In", "InSet"):
        compared = condition.children().apply(0)
        column = _column(compared, columns)
        value = None if column is None else _listed(condition, kind, compared, column)
        kind = "In"
    else:
        return _NO_COMPARISON
    return _NO_COMPARISON if value is None else (column, kind, value)


_LITERAL: Final = "Literal"
_ATTRIBUTE: Final = "AttributeReference"


def _column(expression: Any, columns: Mapping[int, str]) -> str | None:
    if str(expression.nodeName()) != _ATTRIBUTE:
        return None
    return columns.get(_id(expression))


def _listed(condition: Any, kind: str, compared: Any, column: str) -> tuple[Any, ...] | None:
    """The constants of a condition IN; None if they are not clear, or too many."""
    if kind == "In":
        expressions = condition.list()
        if expressions.size() > _MOST_VALUES:
            return None
        values = [_constant(each, column) for each in items_of(expressions)]
    else:
        # Spark's form for long lists: a set of plain values.
        plain = condition.hset().toSeq()
        if plain.size() > _MOST_VALUES:
            return None
        type_name = str(compared.dataType().catalogString())
        values = [_value(each, type_name, column) for each in items_of(plain)]
    return None if None in values else tuple(values)


def _constant(expression: Any, column: str) -> Any:
    """The value of a constant that a column is compared with; None if it is not clear."""
    if str(expression.nodeName()) != _LITERAL:
        return None
    type_name = str(expression.dataType().catalogString())
    return _value(expression.value(), type_name, column)


def _value(value: Any, type_name: str, column: str) -> Any:
    if value is None:
        return None
    if column == "topic":
        return str(value.toString()) if type_name == "string" else None
    if column == "timestamp":
        return _time(int(value)) if type_name == "timestamp" else None
    return int(value) if type_name in _WHOLE_NUMBERS else None


def _time(microseconds: int) -> dt.datetime | None:
    try:
        return _EPOCH + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _ids(attributes: Any) -> Iterator[int]:
    return map(_id, items_of(attributes))
