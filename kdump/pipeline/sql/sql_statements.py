"""What a person types as SQL: where statements end, and which of them may run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kdump.errors import UsageProblem

FIRST_WORDS: Final = (
    "SELECT",
    "WITH",
    "VALUES",
    "FROM",
    "TABLE",
    "SHOW",
    "DESCRIBE",
    "DESC",
)
"""What a statement may begin with, also after an opening parenthesis."""

_FIRST_WORD: Final = re.compile(
    r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w+)(?=[\s(`*'\"]|$)", re.DOTALL
)
_TOKEN: Final = re.compile(
    r"""--[^\n]*          # a comment
    | /\*.*?(?:\*/|\Z)    # another
    | '(?:[^'\\]|\\.)*(?:'|\Z)
    | "(?:[^"\\]|\\.)*(?:"|\Z)
    | `[^`]*(?:`|\Z)
    | ;
    """,
    re.VERBOSE | re.DOTALL,
)

_BEFORE_OFFSET: Final = re.compile(
    rf"""(?:{_TOKEN.pattern})
    | \b(?P<before>WHERE|ON)(?P<blanks>\s+)(?P<offset>offset)\b(?:[ ](?=\S))?
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)

_WRITING_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
    ADD ALTER ANALYZE BEGIN CACHE CALL CLEAR COMMENT CREATE DECLARE DELETE DROP EXECUTE EXPLAIN
    GRANT INSERT LIST LOAD MERGE MSCK REFRESH REPAIR REPLACE RESET REVOKE SET TRUNCATE UNCACHE
    UPDATE USE
    """,
    )
)
"""What other statements of Spark begin with."""
_ONLY_READING: Final = "kdump query runs only statements that read"
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
    }
)
"""Commands that only tell about tables and functions."""
UNSAFE_FUNCTIONS: Final = ("java_method", "reflect", "try_reflect")
"""Functions that call any method of Java."""


class StatementError(UsageProblem):
    """A statement is wrong, or is not run."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement.

    Attributes:
        text: without the semicolon.
        is_ended: whether there was one.
        before: blanks in place of what comes before it.
    """

    text: str
    is_ended: bool
    before: str = field(default="", compare=False)

    @property
    def in_its_place(self) -> str:
        """The statement after blanks, so that places in messages are places in the whole text."""
        return self.before + self.text


def statements(text: str) -> Iterator[Statement]:
    """The statements of a text, without those that are only blanks and comments."""
    start = 0
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            yield from _statement(text, start, token.start(), is_ended=True)
            start = token.end()
    yield from _statement(text, start, len(text), is_ended=False)


def _statement(whole: str, start: int, end: int, *, is_ended: bool) -> Iterator[Statement]:
    text = whole[start:end]
    without_comments = _TOKEN.sub(lambda found: "" if found[0][:2] in ("--", "/*") else "x", text)
    if without_comments.strip():
        lines = whole.count("\n", 0, start)
        columns = start - (whole.rfind("\n", 0, start) + 1)
        yield Statement(text, is_ended, "\n" * lines + " " * columns)


def with_quoted_offset(text: str) -> str:
    """A statement in which the column ``offset`` is quoted where Spark takes it for a keyword.

    ``FROM records WHERE offset IN (1, 2)`` would be a table with the alias ``WHERE``, and a clause
    ``OFFSET``. Places in messages stay: blanks become the quotes.
    """

    def quoted(found: re.Match[str]) -> str:
        if found["offset"] is None:
            return found[0]
        blanks = found["blanks"]
        return f"{found['before']}{blanks[:-1] if blanks[-1] == ' ' else blanks}`{found['offset']}`"

    return _BEFORE_OFFSET.sub(quoted, text)


def names_in(text: str, names: Iterable[str]) -> set[str]:
    """The tables that a statement may use: those that it names, or all."""
    words = {word.lower() for word in re.findall(r"\w+", text)}
    # SHOW TABLES lists them, and IDENTIFIER makes a name of any text.
    if not words.isdisjoint({"show", "identifier"}):
        return set(names)
    return {name for name in names if name in words}


def is_statement(text: str) -> bool:
    """Whether a text begins as a statement that may run: by its first word alone."""
    found = _FIRST_WORD.match(text)
    return found is not None and found[1].upper() in FIRST_WORDS


def is_other_statement(text: str) -> bool:
    """Whether a text begins as a statement that does not run, and has more than one word."""
    found = _FIRST_WORD.match(text)
    return found is not None and found[1].upper() in _WRITING_WORDS and len(text.split()) > 1


def require_statement(text: str) -> None:
    """Refuse a text that does not begin as a statement that may run.

    Raises:
        StatementError: it does not.
    """
    if not is_statement(text):
        found = _FIRST_WORD.match(text)
        word = found[1].upper() if found else text.strip()[:20]
        line = 1 + text.count("\n", 0, found.start(1)) if found else 1
        raise StatementError(
            f"{f'line {line}: ' if line > 1 else ''}{_ONLY_READING}: they begin with SELECT, WITH,"
            f" VALUES, FROM, TABLE, SHOW or DESCRIBE, not with {word}"
        )


def is_showing(plan: Any) -> bool:
    """Whether a parsed statement only tells about tables and functions."""
    return str(plan.nodeName()) in _SHOWING


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
                raise StatementError(f"{_ONLY_READING}: this one {what}")
        for below in (node.children(), node.subqueries(), node.innerChildren()):
            remaining += [each for each in items_of(below) if hasattr(each, "nodeName")]


def items_of(sequence: Any) -> Iterator[Any]:
    """The items of a ``scala.collection.Seq``."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ?")
_BYPASS: Final = re.compile(r"\s*If necessary,? set \S+ to \S+ to bypass this error\.?")
_MORE: Final = re.compile(r"[.,]? (?:Verify the spelling|Search path:|on search path).*", re.DOTALL)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_AT: Final = re.compile(r"line (\d+),? (?:pos|position) (\d+)")
_QUOTED_PLACE: Final = re.compile(r"== SQL[^(\n]*\(line (\d+), position (\d+)\) ==")


def clean_message(message: str) -> str:
    """Spark's message about a statement in one line, with the place in the statement."""
    place = ""
    # "pos" counts from 0, "position" from 1.
    if found := _QUOTED_PLACE.search(message):
        place = f"line {found[1]}, column {found[2]}: "
    elif found := _AT.search(message):
        place = f"line {found[1]}, column {int(found[2]) + 1}: "
    text = _BYPASS.sub("", _STATE.sub("", _CONDITION.sub("", message.strip())))
    text = " ".join(text.partition("\n==")[0].split())
    text = _MORE.sub("", text).rstrip(" .")
    return place + text[:1].lower() + text[1:]


_CAUSE: Final = re.compile(
    r"\[[A-Z][A-Z0-9_.]+\] .*?SQLSTATE: (\w{5})[^\n]*(?:\n== SQL[^\n]*)?", re.DOTALL
)
_OF_STATEMENT: Final = ("0A", "21", "22", "2F", "42", "46", "54", "KD", "P0")
"""Classes of SQLSTATE that are about the statement or its data, not about Spark."""


def spark_cause(failure: BaseException) -> str | None:
    """The message of Spark about a statement that is wrong; None for other failures."""
    message = str(failure)
    for found in _CAUSE.finditer(message):
        if found[1].startswith(_OF_STATEMENT):
            return found[0]
    return None
