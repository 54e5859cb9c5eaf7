"""What a person types as SQL."""

from __future__ import annotations

from typing import Final

import pytest
from docutils import nodes
from hypothesis import given
from hypothesis import strategies as st

from builders.manual import document_of
from kdump.pipeline.sql.permitted_statements import SETTINGS
from kdump.pipeline.sql.sql_statements import (
    Statement,
    StatementError,
    clean_message,
    is_statement,
    require_statement,
    statements,
    with_quoted_offset,
)

PIECES = st.sampled_from(
    ["SELECT 1", ";", " ", "\n", "'a;b'", '"a;b"', "`a;b`", "-- a;b\n", "/* a;b */", "'\\';'", "'"]
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", [("SELECT 1", False)]),
        ("SELECT 1;", [("SELECT 1", True)]),
        ("SELECT 1; SELECT ';'", [("SELECT 1", True), (" SELECT ';'", False)]),
        ('SELECT ";" -- ; no\n;', [('SELECT ";" -- ; no\n', True)]),
        ("SELECT `;`, /* ; */ 'it\\'s;';", [("SELECT `;`, /* ; */ 'it\\'s;'", True)]),
        ("SELECT 'not ended;", [("SELECT 'not ended;", False)]),
        (";; ; -- nothing", []),
        ("", []),
    ],
)
def test_statements_end_at_semicolons_outside_of_quotes_and_comments(
    text: str, expected: list[tuple[str, bool]]
) -> None:
    assert list(statements(text)) == [Statement(*each) for each in expected]


@given(st.lists(PIECES).map("".join))
def test_nothing_of_a_text_is_lost_but_blanks_comments_and_semicolons(text: str) -> None:
    found = list(statements(text))
    at = 0
    for each in found:
        at = text.index(each.text, at) + len(each.text)
    assert all(each.text.strip() for each in found)
    assert [each.is_ended for each in found[:-1]] == [True] * (len(found) - 1)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "select*from records",
        " \n(select 1)",
        "-- first\nWITH a AS (SELECT 1) SELECT * FROM a",
        "/* a */ values(1)",
        "from records select topic",
        "TABLE records",
        "SHOW TABLES",
        "desc records",
        "EXPLAIN FORMATTED SELECT 1",
        "explain/**/select/**/1",
        "SET/* a */spark.sql.ansi.enabled=false",
        "create or replace /* ; */ temp view a AS SELECT 1",
        "CREATE -- a\n TEMPORARY\n\tVIEW a AS SELECT 1",
        "DROP VIEW a",
        "set time zone 'UTC'",
    ],
)
def test_statements_that_read_are_recognized_by_their_first_word(text: str) -> None:
    assert is_statement(text)
    require_statement(text)


@pytest.mark.parametrize(
    "text",
    ["/data/kafka", "./select", "selects", "select-1", "table.d", "with/d1", "d 1", "", "(("],
)
def test_directories_are_not_taken_for_statements(text: str) -> None:
    assert not is_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO records SELECT 1",
        "create table a as select 1",
        "ADD JAR '/tmp/a.jar'",
        "BEGIN SELECT 1; END",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "MERGE INTO a USING b",
        "USE a",
        "CREATE VIEW a AS SELECT 1",
        "CREATE GLOBAL TEMPORARY VIEW a AS SELECT 1",
        "CREATE TEMPORARY FUNCTION a AS 'b'",
        "CREATE 'TEMPORARY VIEW' a",
        "DROP TABLE a",
        "SET",
        "RESET",
        "CACHE TABLE a",
    ],
)
def test_other_statements_are_refused_by_their_first_word(text: str) -> None:
    with pytest.raises(StatementError, match="runs only statements that read: they begin"):
        require_statement(text)


UNRESOLVED: Final = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. Did you mean one \
of the following? [`key`]. SQLSTATE: 42703; line 1 pos 7;
'Project"""
SYNTAX: Final = """
[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 49)

== SQL ==
SELECT
---^^^
"""
DIVISION: Final = """\
[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. If necessary set \
"spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012
== SQL (line 1, position 8) ==
SELECT 1/0"""
NO_TABLE: Final = """\
[TABLE_OR_VIEW_NOT_FOUND] The table or view `a` cannot be found. Verify the spelling and \
correctness of the schema and catalog.
Search path: [a].
If you did not qualify the name SQLSTATE: 42P01; line 2 pos 14;
'Project [*]"""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            UNRESOLVED,
            (
                "line 1, column 8: a column with name `nope` cannot be resolved."
                " Did you mean one of the following? [`key`]"
            ),
        ),
        (SYNTAX, "line 1, column 50: syntax error at or near end of input"),
        (
            DIVISION,
            "line 1, column 8: division by zero. Use `try_divide` to tolerate it",
        ),
        (NO_TABLE, "line 2, column 15: the table or view `a` cannot be found"),
        ("[UNSUPPORTED] DESCRIBE is not. SQLSTATE: 0A000", "DESCRIBE is not"),
    ],
)
def test_sparks_messages_become_one_line_with_the_place(message: str, expected: str) -> None:
    assert clean_message(message) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM records WHERE offset IN (1)", "FROM records WHERE`offset`IN (1)"),
        ("JOIN b ON Offset NOT IN (1)", "JOIN b ON`Offset`NOT IN (1)"),
        ("WHERE\noffset-1 > 2", "WHERE\n`offset`-1 > 2"),
        ("WHERE  offset", "WHERE `offset`"),
        ("'WHERE offset IN' -- where offset in", "'WHERE offset IN' -- where offset in"),
        ("WHERE offsets = 1 LIMIT 1 OFFSET 2", "WHERE offsets = 1 LIMIT 1 OFFSET 2"),
    ],
)
def test_the_column_offset_is_no_keyword_after_where(text: str, expected: str) -> None:
    assert with_quoted_offset(text) == expected


def test_the_manual_lists_the_settings() -> None:
    found = [each.astext() for each in document_of("kdump-query").findall(nodes.emphasis)]
    listed = [each for each in found if each.startswith("spark.sql.")]
    assert tuple(dict.fromkeys(listed)) == SETTINGS
