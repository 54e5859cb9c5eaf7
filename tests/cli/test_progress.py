from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kdump import phases
from kdump.cli.output import progress_bar
from kdump.cli.output.progress_bar import Bar, Display, Lines, open_progress
from kdump.phases import phase
from kdump.scan.source import read_at
from kdump.storage.local_disk import local

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
def test_progress_is_shown_on_a_terminal_or_on_request(
    wanted: bool | None, stream: Callable[[], io.StringIO], expected: type[Display]
) -> None:
    assert type(open_progress(wanted, stream())) is expected


def test_a_display_that_shows_nothing_has_no_timer() -> None:
    assert not open_progress(False, io.StringIO()).is_shown


def test_lines_come_every_few_seconds_with_bytes_rate_and_time_left() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, clock)
    with phase("verifying"):
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


def drawn_after(seconds: float, begun: phases.Phase) -> str:
    """The line of a phase after this many seconds."""
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, clock)
    with begun:
        lines.tick()
        clock.now += seconds
        lines.tick()
    return stream.getvalue()


def test_a_phase_without_steps_shows_its_duration() -> None:
    text = drawn_after(6, phase("waiting for Spark on local[*,4]"))
    assert text == "kdump: waiting for Spark on local[*,4], 6 s so far\n"


def test_a_phase_shows_its_steps() -> None:
    counted = phase("listing /data/1", 10_000)
    counted.step(300)
    assert drawn_after(6, counted) == "kdump: listing /data/1: 300 of 10000, 6 s so far\n"


def test_the_phase_that_began_last_is_shown() -> None:
    with phase("verifying"):
        assert "listing" in drawn_after(6, phase("listing /data/1"))


def test_a_file_that_is_read_shows_how_far(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(1000))
    with local(path).open_file() as source:
        read_at(source, 0, 250)
        text = drawn_after(6, phase("reading log", reading=source))
    assert text == "kdump: reading log: 250 B of 1000 B (25 %), 6 s so far\n"


def test_the_phase_is_shown_for_a_job_without_bytes() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, clock)
    with phase("verifying"):
        lines.begin(0)
        clock.now += 6
        lines.tick()
    assert stream.getvalue() == "kdump: verifying\n"


def test_a_name_cannot_move_the_cursor() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, clock)
    with phase("verifying"):
        lines.begin(1)
        lines.working_on("\x1b[2J-0")
        clock.now += 6
        lines.tick()
    assert stream.getvalue().endswith(", \\x1b[2J-0\n")
    assert "\x1b" not in drawn_after(6, phase("listing \x1b[2J"))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


@pytest.fixture
def bar(terminal: Terminal) -> Iterator[tuple[Bar, Clock]]:
    """Return a bar on the terminal; it is idle in the end."""
    clock = Clock()
    bar = Bar(terminal, clock)
    phases.watch(bar)
    yield bar, clock
    phases.watch(None)


def on_screen(stream: io.StringIO) -> str:
    """The final content of the line that is redrawn."""
    return stream.getvalue().rpartition("\x1b[2K")[2]


def test_a_short_command_draws_no_bar(bar: tuple[Bar, Clock], terminal: Terminal) -> None:
    display, clock = bar
    with phase("verifying"):
        display.begin(GIB)
        clock.now += progress_bar.BAR_AFTER_SECONDS / 2
        display.advance(GIB)
        display.end()
    assert terminal.getvalue() == ""


def test_a_bar_shows_what_a_line_shows_and_leaves_nothing(
    bar: tuple[Bar, Clock], terminal: Terminal
) -> None:
    display, clock = bar
    with phase("verifying"):
        display.begin(2 * GIB)
        display.working_on("orders-3")
        clock.now += 2
        display.advance(GIB)
        assert on_screen(terminal) == (
            "[##########----------] 1.0 GiB of 2.0 GiB (50 %), 512.0 MiB/s, 2 s left, orders-3"
        )
    assert on_screen(terminal) == ""


def test_a_bar_keeps_to_its_line(
    bar: tuple[Bar, Clock], terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    display, clock = bar
    with phase(f"listing {'x' * 100}"):
        clock.now += 2
        display.tick()
        assert len(on_screen(terminal)) == 59


def test_a_bar_is_cleared_for_output_and_returns_on_a_line_of_its_own(
    bar: tuple[Bar, Clock], terminal: Terminal
) -> None:
    display, clock = bar
    with phase("verifying"):
        clock.now += 2
        display.tick()
        display.begin_write(to_terminal=True)
        assert on_screen(terminal) == ""
        display.end_write(ends_line=False)
        clock.now += 2
        display.tick()
        assert on_screen(terminal) == ""
        display.begin_write(to_terminal=True)
        display.end_write(ends_line=True)
        display.tick()
        assert "verifying" in on_screen(terminal)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert progress_bar._duration(seconds) == text
