"""What a person types as SQL: where statements end, and what they begin with."""

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
    "EXPLAIN",
    "DESC",
)
"""What a statement with a result may begin with, also after an opening parenthesis."""
_OF_SESSION: Final = re.compile(
    r"(?:CREATE (?:OR REPLACE )?TEMP(?:ORARY)? VIEW|DROP VIEW|SET)[ `]", re.IGNORECASE
)
"""What others begin with, which change only the session."""

_FIRST_WORD: Final = re.compile(
    r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w+)(?=[\s(`*'\"]|/\*|$)", re.DOTALL
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
ONLY_READING: Final = "kdump query runs only statements that read"
_NOT_THOSE: Final = {
    "CREATE": "and nothing else is created",
    "DROP": "and nothing else is dropped",
    "SET": "with a name and a value",
}
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
    """The tables and views that a statement may use: those that it names, or all.

    Args:
        names: in lower case.
    """
    words = {word.lower() for word in re.findall(r"\w+", text)}
    # SHOW TABLES lists them, and IDENTIFIER makes a name of any text.
    if not words.isdisjoint({"show", "identifier"}):
        return set(names)
    # A name that is no word has quotes, and perhaps escapes, in the text.
    return {name for name in names if name in words or not re.fullmatch(r"\w+", name)}


def is_statement(text: str) -> bool:
    """Whether a text begins as a statement that may run: by its first words alone."""
    found = _FIRST_WORD.match(text)
    return found is not None and (found[1].upper() in FIRST_WORDS or not has_result(text))


def first_line(text: str) -> int:
    """The number of the line in which a statement begins, after blanks and comments."""
    found = _FIRST_WORD.match(text)
    return 1 + text.count("\n", 0, found.start(1) if found else len(text) - len(text.lstrip()))


def has_result(text: str) -> bool:
    """Whether a statement that may run has rows; one that changes the session has none."""
    without_comments = _TOKEN.sub(
        lambda found: " " if found[0][:2] in ("--", "/*") else found[0], text
    )
    return _OF_SESSION.match(" ".join(without_comments.split())) is None


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
        line = first_line(text)
        raise StatementError(
            f"{f'line {line}: ' if line > 1 else ''}{ONLY_READING}: they begin with SELECT, WITH,"
            " VALUES, FROM, TABLE, SHOW, DESCRIBE, EXPLAIN, CREATE TEMPORARY VIEW, DROP VIEW or"
            f" SET, {_NOT_THOSE.get(word, f'not with {word}')}"
        )


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


def clean_message(message: str, view: str | None = None) -> str:
    """Spark's message about a statement in one line, with the place in the statement.

    Args:
        view: the view in whose text the place is, which is not shown then.
    """
    place = ""
    # "pos" counts from 0, "position" from 1.
    if view is not None:
        place = f"in the view {view}: "
    elif found := _QUOTED_PLACE.search(message):
        place = f"line {found[1]}, column {found[2]}: "
    elif found := _AT.search(message):
        place = f"line {found[1]}, column {int(found[2]) + 1}: "
    text = _BYPASS.sub("", _STATE.sub("", _CONDITION.sub("", message.strip())))
    text = " ".join(text.partition("\n==")[0].split())
    text = _MORE.sub("", text).rstrip(" .")
    is_keyword = text[1:2].isupper()
    return place + (text if is_keyword else text[:1].lower() + text[1:])


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
