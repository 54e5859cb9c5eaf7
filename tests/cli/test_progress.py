from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from kdump.cli import progress
from kdump.cli.progress import Bar, Display, Lines, open_progress

GIB = 1 << 30


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Shows the time that it was set to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("wanted", "stream", "expected"),
    [
        (None, Terminal, Bar),
        (True, Terminal, Bar),
        (False, Terminal, Display),
        (None, io.StringIO, Display),
        (True, io.StringIO, Lines),
        (False, io.StringIO, Display),
    ],
)
def test_progress_is_shown_on_a_terminal_or_where_it_was_asked_for(
    wanted: bool | None, stream: Callable[[], io.StringIO], expected: type[Display]
) -> None:
    assert type(open_progress(wanted, stream())) is expected


def test_nobody_is_woken_for_a_display_that_shows_nothing() -> None:
    assert not open_progress(False, io.StringIO()).is_shown


def test_lines_come_every_few_seconds_with_bytes_rate_and_time_left() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, clock)
    lines.begin(8 * GIB)
    for _ in range(10):
        clock.now += 1
        lines.working_on("orders-3")
        lines.advance(GIB // 4)
        lines.tick()
    assert stream.getvalue() == (
        "kdump: 1.0 GiB of 8.0 GiB (12 %), 204.8 MiB/s, 35 s left, orders-3\n"
        "kdump: 2.2 GiB of 8.0 GiB (28 %), 230.4 MiB/s, 26 s left, orders-3\n"
    )


def test_what_has_no_size_is_said_in_words() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, clock)
    lines.say("waiting for Spark on local[*,4]")
    clock.now += 6
    lines.tick()
    assert stream.getvalue() == "kdump: waiting for Spark on local[*,4]\n"


def test_a_job_of_no_bytes_divides_by_none() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, clock)
    lines.begin(0)
    clock.now += 6
    lines.tick()
    assert stream.getvalue() == "kdump: 0 B of 0 B\n"


def test_a_name_cannot_move_the_cursor() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, clock)
    lines.begin(1)
    lines.working_on("\x1b[2J-0")
    clock.now += 6
    lines.tick()
    assert stream.getvalue().endswith(", \\x1b[2J-0\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def seen(stream: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_what_is_over_at_once_draws_no_bar(terminal: Terminal) -> None:
    clock = Clock()
    bar = Bar(terminal, clock)
    bar.begin(GIB)
    clock.now += progress.BAR_AFTER_SECONDS / 2
    bar.advance(GIB)
    bar.end()
    assert terminal.getvalue() == ""


def test_a_bar_tells_what_a_line_tells_and_leaves_nothing_behind(terminal: Terminal) -> None:
    clock = Clock()
    bar = Bar(terminal, clock)
    bar.begin(2 * GIB)
    bar.working_on("orders-3")
    clock.now += 2
    bar.advance(GIB)
    assert "1.0 GiB of 2.0 GiB (50 %), 512.0 MiB/s, 2 s left, orders-3" in seen(terminal)
    bar.end()
    # The line is cleared, and the cursor shown again.
    assert terminal.getvalue().endswith("\x1b[2K")
    assert terminal.getvalue().rfind("\x1b[?25h") > terminal.getvalue().rfind("\x1b[?25l")


def test_a_hidden_bar_comes_back(terminal: Terminal) -> None:
    clock = Clock()
    bar = Bar(terminal, clock)
    bar.begin(2 * GIB)
    clock.now += 1
    bar.advance(GIB // 2)
    bar.hide()
    before = len(terminal.getvalue())
    clock.now += 1
    bar.advance(GIB // 2)
    assert "1.0 GiB of 2.0 GiB" in seen(terminal)[before // 4 :]
    bar.end()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert progress._duration(seconds) == text
