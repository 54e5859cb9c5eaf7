"""The output of ``kdump grep``: records, or the files that have some."""

from __future__ import annotations

import contextlib
import enum
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.events import write_line
from kdump.cli.output.rendering import (
    Output,
    OutputFormat,
    Row,
    open_output,
)
from kdump.cli.output.value_text import escape_controls
from kdump.errors import ExitStatus
from kdump.jobs.grep.found_rows import FOUND_FILE, FOUND_RECORD, WHERE
from kdump.payloads.undecoded import NONE_UNDECODED
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.jobs.grep.grep import FoundInFile
    from kdump.jobs.grep.search import SearchResult
    from kdump.log.valid_windows import Damage


class GrepForm(enum.Enum):
    """What is printed."""

    RECORDS = "records"
    COUNTS = "counts"
    FILES = "files"


MOST_PROBLEMS: Final = 20
"""For one file, this many are reported one by one, the others only counted."""


def print_found(
    found: Iterable[FoundInFile], output_format: OutputFormat, form: GrepForm
) -> ExitStatus:
    """Print what is found as it comes, and damage on standard error.

    Raises:
        OSError: standard output cannot be written.
    """
    with _open(output_format, form) as printer:
        for path, parts in itertools.groupby(found, lambda each: each.path):
            problems = _Problems(str(path))
            for part in parts:
                printer.part(part)
                problems.report(part.found)
            printer.end_of_file(is_whole=not problems.failed)
            printer.status |= problems.status
            printer.undecoded_records += problems.undecoded.records
            problems.finish()
        printer.finish()
    return printer.status if printer.matches else printer.status | ExitStatus.NOTHING_MATCHED


class _Problems:
    """The problems of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._reported: set[tuple[str, int]] = set()
        self._unreported = 0
        self.failed = False
        self.status = ExitStatus.SOUND
        self.undecoded = NONE_UNDECODED

    def report(self, found: SearchResult) -> None:
        for damage in found.damages:
            self._report(damage, ExitStatus.DAMAGE_LEFT)
        for damage in found.not_decoded:
            self._report(damage, ExitStatus.OPERATIONAL_ERROR)
        self.undecoded += found.undecoded
        if found.undecoded.records:
            self.status |= ExitStatus.OPERATIONAL_ERROR
        if found.failure is not None:
            self.failed = True
            self.status |= ExitStatus.OPERATIONAL_ERROR
            _say(f"kdump: {self._path}: {found.failure}")

    def _report(self, damage: Damage, status: ExitStatus) -> None:
        self.status |= status
        # Two splits may find the same: one of them while it looks ahead.
        if (damage.path, damage.start) in self._reported:
            return
        if len(self._reported) >= MOST_PROBLEMS:
            self._unreported += 1
            return
        self._reported.add((damage.path, damage.start))
        _say(f"kdump: {damage}")

    def finish(self) -> None:
        if self.undecoded.records:
            _say(f"kdump: {self._path}: {self.undecoded}")
        if self._unreported:
            _say(f"kdump: {self._path}: {counted(self._unreported, 'more problem')} like these")


def _say(line: str) -> None:
    # Flushed first, so that a remark follows the output that it is about.
    sys.stdout.flush()
    write_line(line, sys.stderr)


class _Printer:
    """The base of the printers."""

    def __init__(self, form: GrepForm) -> None:
        self.form = form
        self.status = ExitStatus.SOUND
        self.matches = 0
        self.undecoded_records = 0
        self._files = self._files_with_matches = 0
        self._in_file = 0
        self._last: FoundInFile | None = None

    def part(self, part: FoundInFile) -> None:
        """Take the next part of what was found in a file."""
        self._last = part
        self._in_file += part.found.matches
        if part.found.matches and self.form is GrepForm.RECORDS:
            self.records(part)

    def end_of_file(self, *, is_whole: bool) -> None:
        """Take the end of a file; ``is_whole`` if all of it could be read."""
        assert self._last is not None
        self.matches += self._in_file
        self._files += is_whole
        self._files_with_matches += bool(self._in_file)
        wanted = {GrepForm.COUNTS: is_whole or self._in_file, GrepForm.FILES: self._in_file}
        if wanted.get(self.form):
            self.file(self._last, self._in_file)
        self._in_file = 0

    def summary(self) -> Row:
        return {
            "type": "summary",
            "files": self._files,
            "files_with_matches": self._files_with_matches,
            "matches": None if self.form is GrepForm.FILES else self.matches,
            "undecoded_records": self.undecoded_records,
        }

    def records(self, part: FoundInFile) -> None:
        raise NotImplementedError

    def file(self, part: FoundInFile, matches: int) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Print what comes after all files."""


class _Lines(_Printer):
    """Lines as the official tool prints them, after the name of the file."""

    def __init__(self, form: GrepForm) -> None:
        super().__init__(form)
        self._is_terminal = sys.stdout.isatty()

    def records(self, part: FoundInFile) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(
            _for_terminal(part.found.text) if self._is_terminal else part.found.text
        )
        if self._is_terminal:
            sys.stdout.buffer.flush()

    def file(self, part: FoundInFile, matches: int) -> None:
        line = str(part.path) if self.form is GrepForm.FILES else f"{part.path}:{matches}"
        sys.stdout.write((escape_controls(line) if self._is_terminal else line) + "\n")


def _for_terminal(text: bytes) -> bytes:
    lines = text.decode("utf-8", "surrogateescape").split("\n")
    return "\n".join(map(escape_controls, lines)).encode("utf-8", "surrogateescape")


class _Rows(_Printer):
    """Rows of the other formats."""

    def __init__(self, form: GrepForm, output_format: OutputFormat, output: Output) -> None:
        super().__init__(form)
        self._output = output
        self._is_table = output_format is OutputFormat.TABLE
        self._is_json = output_format.is_json

    def records(self, part: FoundInFile) -> None:
        where = _where(part)
        rows: Iterable[Row] = ({"type": "record", **where, **row} for row in part.found.rows)
        self._output.rows(map(_table_row, rows) if self._is_table else rows)

    def file(self, part: FoundInFile, matches: int) -> None:
        shown = None if self.form is GrepForm.FILES else matches
        self._output.row({"type": "file", **_where(part), "matches": shown})

    def finish(self) -> None:
        if self._is_json:
            self._output.row(self.summary())


def _where(part: FoundInFile) -> Mapping[str, Any]:
    topic, number = part.partition.topic_partition or (None, None)
    return {
        "topic": topic,
        "partition": number,
        "path": str(part.path),
        "file": part.path.name,
    }


def _table_row(row: Row) -> Row:
    from kdump.dump.fields import shortened

    return {
        **row,
        "key": shortened(row.get("key")),
        "value": shortened(row["value"]),
        "headers": ", ".join(header["key"] for header in row.get("headers", ())),
    }


@contextlib.contextmanager
def _open(output_format: OutputFormat, form: GrepForm) -> Iterator[_Printer]:
    if output_format is OutputFormat.TEXT:
        yield _Lines(form)
        return
    columns = {
        GrepForm.RECORDS: FOUND_RECORD.columns,
        GrepForm.COUNTS: FOUND_FILE.columns,
        GrepForm.FILES: WHERE,
    }
    with open_output(output_format, columns[form]) as output:
        yield _Rows(form, output_format, output)
