"""Rows become text, tables, JSON and CSV; programs get raw values, people readable ones."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.cli.output.rendering import SAMPLE_ROWS, OutputFormat, open_output
from kdump.cli.output.value_text import escape_controls, format_bytes, format_timestamp
from kdump.rows.row_type import INTEGER, SIZE, TEXT, TIME, Field

COLUMNS = (
    Field("name", TEXT, "", "Name"),
    Field("records", INTEGER, "", "Records"),
    Field("log_bytes", SIZE, "", "Size"),
    Field("latest_timestamp_ms", TIME.or_none, "", "Latest"),
    Field("leftovers", TEXT, "", "Leftovers", alert=True),
    Field("detail", TEXT),
)
ROW: dict[str, Any] = {
    "name": "orders",
    "records": 12,
    "log_bytes": 1536,
    "latest_timestamp_ms": 1_767_225_600_123,
    "leftovers": {"swap": 3},
    "detail": [1, 2],
}
UNKNOWN: dict[str, Any] = {
    "name": "x",
    "records": None,
    "log_bytes": None,
    "latest_timestamp_ms": None,
    "leftovers": {},
    "detail": None,
}


def written(
    output_format: OutputFormat,
    rows: Iterable[dict[str, Any]],
    *,
    vertical: bool = False,
    stream: io.BytesIO | None = None,
) -> str:
    stream = io.BytesIO() if stream is None else stream
    with open_output(output_format, COLUMNS, vertical=vertical, stream=stream) as out:
        out.rows(rows)
    return stream.getvalue().decode(errors="surrogateescape")


class Terminal(io.BytesIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class TestText:
    def test_columns_are_aligned_numbers_to_the_right(self) -> None:
        assert written(OutputFormat.TEXT, [ROW, UNKNOWN]).splitlines() == [
            "NAME    RECORDS     SIZE  LATEST                    LEFTOVERS",
            "orders       12  1.5 KiB  2026-01-01T00:00:00.123Z  swap: 3",
            "x             ?        ?  -",
        ]

    def test_without_rows_there_is_a_header(self) -> None:
        assert written(OutputFormat.TEXT, []) == "NAME  RECORDS  SIZE  LATEST  LEFTOVERS\n"

    def test_a_cell_that_a_row_lacks_is_empty(self) -> None:
        header, line = written(OutputFormat.TEXT, [{"records": 1}]).splitlines()
        assert line == "1".rjust(header.index("RECORDS") + len("RECORDS"))

    def test_rows_can_be_vertical(self) -> None:
        assert written(OutputFormat.TEXT, [ROW, {"name": "x"}], vertical=True).splitlines() == [
            "Name:       orders",
            "Records:    12",
            "Size:       1.5 KiB",
            "Latest:     2026-01-01T00:00:00.123Z",
            "Leftovers:  swap: 3",
            "",
            "Name:       x",
        ]

    def test_widths_are_found_from_the_first_rows_and_the_rest_streams(self) -> None:
        stream = io.BytesIO()
        with open_output(OutputFormat.TEXT, COLUMNS, stream=stream) as out:
            out.rows({"name": "a"} for _ in range(SAMPLE_ROWS - 1))
            assert not stream.getvalue()
            out.row({"name": "a"})
            out.row({"name": "longer than all"})
        assert stream.getvalue().count(b"\n") == SAMPLE_ROWS + 2

    def test_one_very_long_name_does_not_widen_all_lines(self) -> None:
        lines = written(OutputFormat.TEXT, [{"name": "n" * 249, "records": 1}, ROW]).splitlines()
        assert len(lines[2]) < 130

    @pytest.mark.parametrize("output_format", [OutputFormat.TEXT, OutputFormat.TABLE])
    def test_control_characters_are_escaped(self, output_format: OutputFormat) -> None:
        text = written(output_format, [{"name": "a\x1b[31m\nb\udcff\u202e"}])
        assert "a\\x1b[31m\\nb\\xff\\u202e" in text


class TestTable:
    def test_a_pipe_gets_no_colour_and_no_folding(self) -> None:
        text = written(OutputFormat.TABLE, [ROW | {"name": "n" * 300}])
        assert "n" * 300 in text
        assert "\x1b" not in text

    def test_brackets_are_text(self) -> None:
        assert "[bold]x" in written(OutputFormat.TABLE, [{"name": "[bold]x"}])

    def test_on_a_terminal_alerts_are_in_colour(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert "\x1b[35mswap: 3" in written(OutputFormat.TABLE, [ROW], stream=Terminal())

    def test_no_color_is_honoured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b" not in written(OutputFormat.TABLE, [ROW], stream=Terminal())

    def test_rows_can_be_vertical(self) -> None:
        text = written(OutputFormat.TABLE, [ROW], vertical=True)
        assert [line.split()[1] for line in text.splitlines()[1:-1]] == [
            "Name",
            "Records",
            "Size",
            "Latest",
            "Leftovers",
        ]

    def test_on_a_narrow_terminal_nothing_is_lost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "40")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb")
        stream = Terminal()
        with open_output(OutputFormat.TABLE, (Field("n", INTEGER, "", "N"),), stream=stream) as out:
            out.row({"n": int("1234567890" * 10)})
        digits = "".join(c for c in stream.getvalue().decode() if c.isdigit())
        assert digits == "1234567890" * 10


class TestCsv:
    def test_the_header_has_all_columns_and_cells_are_raw(self) -> None:
        rows = list(csv.reader(io.StringIO(written(OutputFormat.CSV, [ROW, UNKNOWN]))))
        assert rows == [
            [column.name for column in COLUMNS],
            ["orders", "12", "1536", "1767225600123", '{"swap":3}', "[1,2]"],
            ["x", "", "", "", "{}", ""],
        ]

    def test_a_row_may_lack_columns(self) -> None:
        assert written(OutputFormat.CSV, [{"records": 1}]).splitlines()[1] == ",1,,,,"

    def test_a_pipe_gets_bytes_unchanged(self) -> None:
        stream = io.BytesIO()
        written(OutputFormat.CSV, [{"name": os.fsdecode(b"t\xff\x1b")}], stream=stream)
        assert b"\nt\xff\x1b," in stream.getvalue()

    def test_on_a_terminal_control_characters_are_escaped(self) -> None:
        text = written(OutputFormat.CSV, [{"name": "a\x1b\nb"}], stream=Terminal())
        assert "\na\\x1b\\nb," in text


@pytest.mark.parametrize(
    "name", ["\u6ce8\u6587", "\U0001f4e6 parcels", "\uff4f\uff52\uff44\uff45\uff52", "caf\u00e9"]
)
def test_wide_characters_leave_columns_aligned(name: str) -> None:
    rows = [ROW, {**ROW, "name": name}, {**UNKNOWN, "name": name * 2}]
    lines = written(OutputFormat.TEXT, rows).splitlines()
    ends = {
        screen_columns(line[: line.index(cell) + len(cell)])
        for line, cell in zip(lines, ("RECORDS", "12", "12", "?"), strict=True)
    }
    assert len(ends) == 1


def screen_columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


@pytest.mark.parametrize("output_format", [OutputFormat.TEXT, OutputFormat.TABLE, OutputFormat.CSV])
def test_the_stream_stays_open(output_format: OutputFormat) -> None:
    stream = io.BytesIO()
    written(output_format, [ROW], stream=stream)
    assert not stream.closed


def test_rows_before_a_failure_are_written() -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield ROW
        raise ZeroDivisionError

    stream = io.BytesIO()
    with pytest.raises(ZeroDivisionError):
        written(OutputFormat.CSV, rows(), stream=stream)
    assert b"orders" in stream.getvalue()


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 * 1024**4 // 2, "2.5 TiB"),
        (2**63 - 1, "8.0 EiB"),
        (2**80, "1048576.0 EiB"),
    ],
)
def test_sizes_are_in_the_largest_unit(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_767_225_600_007, "2026-01-01T00:00:00.007Z"),
        (2**63 - 1, "9223372036854775807 ms"),
        (-(2**63), "-9223372036854775808 ms"),
    ],
)
def test_times_are_in_utc_whatever_the_local_zone(timestamp_ms: int, text: str) -> None:
    assert format_timestamp(timestamp_ms) == text


@given(st.text(), st.binary())
def test_nothing_harmful_is_left_after_escaping(text: str, name: bytes) -> None:
    escaped = escape_controls(text + os.fsdecode(name))
    escaped.encode()
    assert escaped.isprintable() or not any(c < " " or "\x7f" <= c < "\xa0" for c in escaped)


@pytest.mark.slow
def test_a_closed_pipe_ends_the_command_quietly() -> None:
    program = (
        "from kdump.cli.output import rendering as output\n"
        "import kdump.cli.main as main, click\n"
        "from kdump.rows import row_type\n"
        "@main.cli.command('flood')\n"
        "def flood():\n"
        "    columns = [row_type.Field('n', row_type.INTEGER, '', 'N')]\n"
        "    with output.open_output(output.OutputFormat.CSV, columns) as out:\n"
        "        out.rows({'n': n} for n in range(10**7))\n"
        "main.cli.get_command = lambda ctx, name: flood\n"
        "main.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "flood"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline() == b"n\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["explain", "--help"], ["explain"], []]
)
def test_a_pipe_that_nobody_reads_ends_help_quietly(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        command = [sys.executable, "-m", "kdump", *words]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


STOPPED_WHILE_CLEANING_UP: Final = """
calls = []
def forget(really=main.forget_places):
    calls.append(1)
    if len(calls) == 2:
        signal.raise_signal(signal.SIGTERM)
    really()
main.forget_places = forget
"""
STOPPED_AT_EXIT: Final = "atexit.register(signal.raise_signal, signal.SIGTERM)"


@pytest.mark.parametrize(
    ("change", "exit_status"),
    [(STOPPED_WHILE_CLEANING_UP, 0), (STOPPED_AT_EXIT, -signal.SIGTERM)],
)
def test_a_signal_after_the_output_prints_no_stack_trace(change: str, exit_status: int) -> None:
    program = f"import atexit, signal\nimport kdump.cli.main as main\n{change}\nmain.main()"
    command = [sys.executable, "-c", program, "explain", "--output", "json"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (exit_status, b"")
    assert json.loads(done.stdout)[-1]["exit_status"] == 0


@pytest.mark.parametrize("place", ["run", "_stop_at_signals"])
def test_a_signal_just_before_the_run_prints_no_stack_trace(place: str) -> None:
    change = f"main.{place} = lambda: signal.raise_signal(signal.SIGTERM)"
    handled = "really = main._stop_at_signals; main._stop_at_signals = lambda: (really(), stop())"
    if place == "_stop_at_signals":
        change = f"stop = lambda: signal.raise_signal(signal.SIGTERM); {handled}"
    program = f"import signal\nimport kdump.cli.main as main\n{change}\nmain.main()"
    command = [sys.executable, "-c", program, "explain"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == b"kdump: stopped by SIGTERM\n"


def test_a_real_terminal_is_recognized() -> None:
    reader, writer = pty.openpty()
    with io.FileIO(reader, "r") as screen, io.FileIO(writer, "w") as stream:
        with open_output(OutputFormat.CSV, COLUMNS[:1], stream=stream) as out:
            out.row({"name": "a\x1bb"})
        # A terminal hands out a line at a time.
        shown = screen.read(100) or b""
        while b"b\r\n" not in shown:
            shown += screen.read(100) or b""
    assert b"a\\x1bb" in shown
