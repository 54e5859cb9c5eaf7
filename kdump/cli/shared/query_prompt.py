"""The prompt of ``kdump query``."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from kdump.cli.output.events import write_line, write_notice
from kdump.cli.output.query_output import QueryFormat, RowLimit, print_result
from kdump.cli.output.rendering import OutputFormat, open_output
from kdump.cli.shared.query_history import history_path
from kdump.errors import ExitStatus, KdumpError
from kdump.phases import phase
from kdump.pipeline.sql.sql_statements import statements
from kdump.rows.row_type import TEXT, Field

if TYPE_CHECKING:
    from kdump.pipeline.sql.sql_session import SqlSession
    from kdump.tables.table import Table

_PROMPT: Final = "kdump> "
_CONTINUATION: Final = "    -> "
_HINT: Final = "To leave, press ^D or type \\q."
_HELP: Final = (
    "A statement ends with a semicolon, and may have several lines. Tab completes names.",
    "  \\d         list the tables",
    "  \\d TABLE   list the columns of a table",
    "  \\q         leave (or ^D)",
    "^C ends a running statement.",
)
_WORD: Final = re.compile(r"[\w\\]+$")
_WORDS: Final = re.findall(
    r"\w+",
    """
    ALL AND ANTI AS ASC AVG BETWEEN BY CASE CAST COUNT CROSS DATE DATE_TRUNC DAY DESC
    DESCRIBE DISTINCT ELSE END EXCEPT EXISTS FALSE FILTER FIRST FROM FULL GROUP HAVING HOUR
    ILIKE IN INNER INTERSECT INTERVAL IS JOIN LAST LEFT LIKE LIMIT MAX MAX_BY MIN MINUTE
    MIN_BY NOT NULL OFFSET ON OR ORDER OUTER OVER PARTITION RIGHT RLIKE ROW_NUMBER SELECT
    SEMI SHOW SUM TABLE THEN TIMESTAMP TRUE UNION USING VALUES WHEN WHERE WINDOW WITH
    """,
)
"""Words of SQL that people type often."""


def run_prompt(
    session: SqlSession, output: QueryFormat, limit: RowLimit, *, keeps_history: bool
) -> ExitStatus:
    """Read statements and run them until the user leaves.

    Raises:
        KdumpError: Spark does not start.
    """
    write_line(f"Tables: {', '.join(session.tables)}. \\? is help, ^D leaves.")
    typed = PromptSession[str](
        history=_history(keeps_history=keeps_history),
        completer=SqlCompleter(session.tables.values()),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=_CONTINUATION,
        key_bindings=_bindings(),
        enable_history_search=True,
    )
    while True:
        try:
            text = typed.prompt(_PROMPT)
        except KeyboardInterrupt:
            write_line(_HINT)
            continue
        except EOFError:
            return ExitStatus.SOUND
        if text.strip() in ("\\q", "exit", "quit", "exit;", "quit;"):
            return ExitStatus.SOUND
        if text.strip().startswith("\\"):
            _answer(text.split(), session)
            continue
        for each in statements(text):
            if not _run(session, each.in_its_place, output, limit):
                break


def _run(session: SqlSession, text: str, output: QueryFormat, limit: RowLimit) -> bool:
    """Run a statement; returns whether the next one may run."""
    try:
        with _interruptible():
            print_result(session.query(text, limit.rows_to_read), output, limit, None)
    except KeyboardInterrupt:
        # After ^C, which the terminal shows.
        write_line("", sys.stderr)
        write_line("stopped", sys.stderr)
        return False
    except BrokenPipeError:
        raise
    except (KdumpError, OSError) as failure:
        write_notice(str(failure))
        return False
    return True


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let each ^C end what runs: kdump's own handler ignores a second one for some seconds."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _answer(words: list[str], session: SqlSession) -> None:
    match words:
        case ["\\d"]:
            rows = [{"name": each.name, "what": each.what} for each in session.tables.values()]
            _print([Field("name", TEXT, "", "Table"), Field("what", TEXT, "", "A row is")], rows)
        case ["\\d", name] if name.rstrip(";") in session.tables:
            table = session.tables[name.rstrip(";")]
            columns = [
                {"name": each.name, "type": each.sql_type, "what": each.what}
                for each in table.columns
            ]
            titles = [
                Field("name", TEXT, "", "Column"),
                Field("type", TEXT, "", "Type"),
                Field("what", TEXT, "", "What"),
            ]
            _print(titles, columns)
        case ["\\d", name]:
            write_line(f"there is no table {name}; there are {', '.join(session.tables)}")
        case _:
            for line in _HELP:
                write_line(line)


def _print(columns: list[Field], rows: list[dict[str, str]]) -> None:
    with open_output(OutputFormat.TEXT, columns) as output:
        output.rows(rows)


def _history(*, keeps_history: bool) -> History:
    if keeps_history:
        with phase("looking for the history"):
            path = history_path(os.environ)
        if path is not None:
            return FileHistory(str(path))
    return InMemoryHistory()


def _bindings() -> KeyBindings:
    """Enter ends the input after a semicolon, and begins a new line otherwise."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def is_complete(text: str) -> bool:
    """Whether what was typed can run: all statements have ended, or it is a command."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped in ("exit", "quit"):
        return True
    found = list(statements(text))
    return all(each.is_ended for each in found)


class SqlCompleter(Completer):
    """Completes the names of tables and columns, and words of SQL."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._columns = {table.name: [column.name for column in table.columns] for table in tables}

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """The names that begin as the word before the cursor, tables first."""
        found = _WORD.search(document.text_before_cursor)
        word = found[0] if found else ""
        for name, what in self._candidates(document.text):
            if name.lower().startswith(word.lower()):
                yield Completion(name, start_position=-len(word), display_meta=what)

    def _candidates(self, text: str) -> Iterator[tuple[str, str]]:
        """Names with what they are: the columns of tables that the text names, if any."""
        seen = set[str]()
        named = [name for name in self._columns if re.search(rf"\b{name}\b", text)]
        for name in self._columns:
            yield name, "table"
        for table in named or self._columns:
            for column in self._columns[table]:
                if column not in seen:
                    seen.add(column)
                    yield column, table
        for word in _WORDS:
            yield word, ""
