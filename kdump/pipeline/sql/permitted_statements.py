"""Which statements run: those that read, and those that change only the session.

This is the one rule. It judges what Spark's parser and analyser made of a statement: a query runs,
and of the commands only those that are listed here; every other is refused, also one that a later
version of Spark adds. (The first words, which :mod:`kdump.pipeline.sql.sql_statements` looks at,
only tell a statement from a directory, and refuse most others before Spark has started.)
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any, Final

from msgspec import Struct

from kdump.pipeline.sql.sql_statements import ONLY_READING, StatementError, items_of

_REFUSED: Final = {
    "org.apache.spark.sql.catalyst.plans.logical.Command": "is a command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement": "is a command",
    "org.apache.spark.sql.catalyst.plans.logical.InsertIntoDir": "writes files",
    "org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation": "runs a program",
}
"""Classes of operators that no statement may have, and what a statement with one does."""
_SHOWING: Final = frozenset(
    {
        "DescribeFunction",
        "DescribeRelation",
        "DescribeQueryCommand",
        "ShowColumns",
        "ShowFunctions",
        "ShowTables",
        "ShowViews",
    }
)
"""Commands that only tell about tables and functions."""

SETTINGS: Final = (
    "spark.sql.adaptive.advisoryPartitionSizeInBytes",
    "spark.sql.adaptive.enabled",
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.ansi.enabled",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.codegen.wholeStage",
    "spark.sql.crossJoin.enabled",
    "spark.sql.groupByAliases",
    "spark.sql.groupByOrdinal",
    "spark.sql.join.preferSortMergeJoin",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.orderByOrdinal",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
)
"""What SET may change: what a statement means, and how it is run. None of it makes Spark write,
load classes, or read anything but the tables."""


class Query(Struct, frozen=True):
    """A statement that reads, or that tells about tables.

    Attributes:
        plan: Spark's ``LogicalPlan``.
        is_showing: whether it only tells about tables and functions.
    """

    plan: Any
    is_showing: bool = False


class Explanation(Struct, frozen=True):
    """EXPLAIN.

    Attributes:
        plan: of the statement that is explained.
        mode: Spark's ``ExplainMode``.
    """

    plan: Any
    mode: Any


class NewView(Struct, frozen=True):
    """CREATE TEMPORARY VIEW.

    Attributes:
        name: without quotes.
        plan: of the view's query.
    """

    name: str
    plan: Any


class DroppedView(Struct, frozen=True):
    """DROP VIEW.

    Attributes:
        name: without quotes.
        is_required: whether the view has to exist.
    """

    name: str
    is_required: bool


class Setting(Struct, frozen=True):
    """SET."""

    name: str
    value: str


Permitted = Query | Explanation | NewView | DroppedView | Setting


def permitted(parsed: Any, jvm: Any, tables: Collection[str]) -> Permitted:
    """What a statement does, if it may run.

    Args:
        parsed: Spark's ``LogicalPlan``, as parsed.
        jvm: py4j's view of the JVM.
        tables: names that no view may have.

    Raises:
        StatementError: it may not.
    """
    kind = str(parsed.nodeName())
    if kind in _SHOWING:
        return Query(parsed, is_showing=True)
    match kind:
        case "ExplainCommand":
            explained = parsed.logicalPlan()
            require_reading(explained, jvm)
            return Explanation(explained, parsed.mode())
        case "CreateViewCommand" if str(parsed.viewType().toString()) == "LocalTempView":
            require_reading(parsed.plan(), jvm)
            return NewView(_view_name([str(parsed.name().table())], tables), parsed.plan())
        case "DropView" if str(parsed.child().nodeName()) == "UnresolvedIdentifier":
            parts = list(map(str, items_of(parsed.child().nameParts())))
            return DroppedView(_view_name(parts, tables), not parsed.ifExists())
        case "SetCommand":
            return _setting(parsed.kv())
    require_reading(parsed, jvm)
    return Query(parsed)


def _view_name(parts: list[str], tables: Collection[str]) -> str:
    name = ".".join(parts)
    if len(parts) > 1:
        raise StatementError(f"temporary views are in no database: {name} is not one")
    if name.lower() in tables:
        raise StatementError(f"{name} is a table, not a view; a view needs another name")
    return name


def _setting(pair: Any) -> Setting:
    """The pair of Spark's ``SetCommand``, if it may be set."""
    name = str(pair.get()._1()) if pair.isDefined() else ""
    if name not in SETTINGS:
        known = {each.lower(): each for each in SETTINGS}
        meant = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.85)
        hint = f"did you mean {known[meant[0]]}?" if meant else "kdump-query(1) lists what can be"
        raise StatementError(f"{name or 'nothing'} cannot be set; {hint}")
    if not pair.get()._2().isDefined():
        raise StatementError(f"a value is missing: SET {name}=VALUE")
    return Setting(name, str(pair.get()._2().get()))


def require_reading(plan: Any, jvm: Any) -> None:
    """Refuse a plan that does more than read.

    Args:
        plan: Spark's ``LogicalPlan``, as parsed or analysed.
        jvm: py4j's view of the JVM.

    Raises:
        StatementError: it does.
    """
    # Of all plans within plans: subqueries, and what WITH defines.
    remaining = [plan]
    while remaining:
        node = remaining.pop()
        for name, what in _REFUSED.items():
            if jvm.java.lang.Class.forName(name).isInstance(node):
                raise StatementError(f"{ONLY_READING}: this one {what}")
        for below in (node.children(), node.subqueries(), node.innerChildren()):
            remaining += [each for each in items_of(below) if hasattr(each, "nodeName")]
