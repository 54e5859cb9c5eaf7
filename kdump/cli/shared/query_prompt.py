"""The prompt of ``kdump query``."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from kdump.cli.output.events import write_line, write_notice
from kdump.cli.output.query_output import QueryFormat, ResultPrinter, RowLimit
from kdump.cli.output.terminal import terminal_columns, wrapped
from kdump.cli.shared.query_history import history_path
from kdump.errors import ExitStatus, KdumpError
from kdump.phases import phase
from kdump.pipeline.sql.sql_statements import statements

if TYPE_CHECKING:
    from kdump.pipeline.sql.sql_session import SqlSession
    from kdump.tables.table import Table

_PROMPT: Final = "kdump> "
_CONTINUATION: Final = "    -> "
_HINT: Final = "To leave, press ^D or type \\q."
_HELP: Final = (
    "A statement ends with a semicolon, and may have several lines. Tab completes names.",
    "  \\d         list the tables and views",
    "  \\d TABLE   list the columns of a table or view",
    "  \\?         print this help (or .help)",
    "  \\q         leave (or ^D)",
    "^C ends a running statement. CREATE TEMPORARY VIEW keeps a query until you leave.",
)
_HELP_MARGIN: Final = 11
_SYNONYMS: Final = {
    "\\h": "\\?",
    "help": "\\?",
    ".help": "\\?",
    ".tables": "\\d",
    ".schema": "\\d",
    "exit": "\\q",
    "quit": "\\q",
    ".exit": "\\q",
    ".quit": "\\q",
}
"""What people type who know other prompts."""
_LEAST_MEANING: Final = 30
"""A narrower column of meanings is below the names instead."""
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
        words = command_words(text)
        if words == ["\\q"]:
            return ExitStatus.SOUND
        if words:
            _answer(words, session, limit)
            continue
        for each in statements(text):
            if not _run(session, each.in_its_place, output, limit):
                break


def _run(session: SqlSession, text: str, output: QueryFormat, limit: RowLimit) -> bool:
    """Run a statement; returns whether the next one may run."""
    try:
        with _interruptible():
            result = session.query(text, limit.rows_to_read)
            ResultPrinter(output, limit).print(result, 1)
        if result.done is not None:
            write_line(result.done)
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


def command_words(text: str) -> list[str]:
    """The words of a command of the prompt; none if the text is not one, but statements."""
    words = text.strip().rstrip(";").split()
    if words and words[0] in _SYNONYMS:
        words[0] = _SYNONYMS[words[0]]
    is_command = bool(words) and words[0].startswith(("\\", "."))
    return words if is_command else []


def _answer(words: list[str], session: SqlSession, limit: RowLimit) -> None:
    columns = terminal_columns(sys.stdout)
    match words:
        case ["\\d"]:
            rows = [(each.name, each.what) for each in session.tables.values()]
            rows += [(name, "your view") for name in session.views]
            _print(listing(("Table", "A row is"), rows, columns))
        case ["\\d", name] if name.lower() in session.tables:
            table = session.tables[name.lower()]
            columns_of_table = [(each.name, each.sql_type, each.what) for each in table.columns]
            _print(listing(("Column", "Type", "What"), columns_of_table, columns))
        case ["\\d", *parts] if (name := " ".join(parts).strip("`").lower()) in session.views:
            quoted = name.replace("`", "``")
            _run(session, f"DESCRIBE `{quoted}`", QueryFormat.TEXT, limit)
        case ["\\d", *parts]:
            there = ", ".join([*session.tables, *session.views])
            _print([wrapped(f"there is no table {' '.join(parts)}; there are {there}", columns)])
        case _:
            _print(wrapped(line, columns, _HELP_MARGIN * line.startswith(" ")) for line in _HELP)


def listing(
    titles: Sequence[str], rows: Iterable[Sequence[str]], columns: int | None
) -> Iterator[str]:
    """The lines of a list whose last column is a sentence.

    Args:
        columns: of the terminal; sentences are wrapped in their column, or below the rest if it is
            narrow. None to leave lines whole.
    """
    rows = list(rows)
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)][:-1]
    margin = sum(width + 2 for width in widths)
    if columns is not None and columns - margin < _LEAST_MEANING:
        for *names, what in rows:
            yield wrapped("  ".join(names), columns)
            yield wrapped(f"    {what}", columns, indent=0)
        return
    for *names, what in [[title.upper() for title in titles], *rows]:
        padded = "".join(f"{name:{width}}  " for name, width in zip(names, widths, strict=True))
        yield wrapped(padded + what, columns, indent=margin)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        for part in line.split("\n"):
            write_line(part)


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
    if not text.strip() or command_words(text):
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
