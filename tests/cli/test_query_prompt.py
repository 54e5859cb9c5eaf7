"""The prompt of ``kdump query``: when input ends, what is completed, and where it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from builders.log_directories import write_log_directory
from kdump.cli.shared.query_history import history_path
from kdump.cli.shared.query_prompt import (
    SqlCompleter,
    command_words,
    is_complete,
    listing,
)
from kdump.jobs.table_rows.all_tables import TABLES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("\\d records", True),
        ("quit", True),
        (".help", True),
        (".schema records", True),
        ("SELECT 1;", True),
        ("SELECT 1; SELECT 2;", True),
        ("SELECT 1; -- done", True),
        ("SELECT 1", False),
        ("SELECT ';'", False),
        ("SELECT 1; SELECT 2", False),
        ("SELECT 1 -- ;", False),
    ],
)
def test_input_ends_with_a_semicolon_outside_of_quotes(text: str, expected: bool) -> None:
    assert is_complete(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".help", ["\\?"]),
        (" help; ", ["\\?"]),
        (".schema records;", ["\\d", "records"]),
        ("\\d Records", ["\\d", "Records"]),
        ("exit;", ["\\q"]),
        ("SELECT 1;", []),
        ("helpless", []),
    ],
)
def test_commands_of_other_prompts_are_understood(text: str, expected: list[str]) -> None:
    assert command_words(text) == expected


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_a_list_is_no_wider_than_the_terminal(columns: int) -> None:
    for table in TABLES.values():
        rows = [(each.name, each.sql_type, each.what) for each in table.columns]
        lines = "\n".join(listing(("Column", "Type", "What"), rows, columns)).split("\n")
        words = [word for row in rows for cell in row for word in cell.split()]
        widest_word = max(map(len, words))
        assert max(map(len, lines)) <= max(columns, widest_word + 4)
        text = " ".join(" ".join(lines).split())
        for name, _, what in rows:
            assert name in text
            assert what in text


def test_a_list_is_not_wrapped_without_a_terminal() -> None:
    rows = [("a", "STRING", "word " * 50), ("long_name", "INT", "b")]
    lines = list(listing(("Column", "Type", "What"), rows, None))
    assert lines[0] == "COLUMN     TYPE    WHAT"
    assert lines[2] == "long_name  INT     b"
    assert len(lines) == 3


def completed(text: str) -> list[str]:
    found = SqlCompleter(TABLES.values()).get_completions(Document(text), CompleteEvent())
    return [each.text for each in found]


def test_tables_columns_and_words_are_completed() -> None:
    assert completed("SELECT * FROM rec")[0] == "records"
    assert completed("select prod")[0] == "producers"
    assert "producerId" in completed("select prod")
    assert completed("SEL") == ["SELECT"]


def test_columns_are_those_of_the_tables_that_are_named() -> None:
    assert "committed_offset" in completed("SELECT comm")
    assert completed("SELECT * FROM segments WHERE comm") == []


def test_only_the_user_can_read_the_history(tmp_path: Path) -> None:
    path = history_path({"XDG_STATE_HOME": str(tmp_path), "HOME": "/nowhere"})
    assert path == tmp_path / "kdump" / "query-history"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    assert history_path({"HOME": "/nowhere", "XDG_STATE_HOME": str(tmp_path)}) == path
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_an_absolute_state_directory_it_is_in_the_home_directory(tmp_path: Path) -> None:
    path = history_path({"XDG_STATE_HOME": "state", "HOME": str(tmp_path)})
    assert path == tmp_path / ".local" / "state" / "kdump" / "query-history"
    assert history_path({}) is None


def test_there_is_no_history_in_a_log_directory(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "logs")
    before = sorted(root.iterdir())
    assert history_path({"XDG_STATE_HOME": str(root)}) is None
    assert sorted(root.iterdir()) == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("")
    (tmp_path / "kdump").mkdir(mode=0o700)
    (tmp_path / "kdump" / "query-history").symlink_to(other)
    assert history_path({"XDG_STATE_HOME": str(tmp_path)}) is None
