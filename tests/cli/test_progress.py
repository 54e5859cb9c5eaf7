from __future__ import annotations

import io
import os
import sys
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

import pytest

from builders.in_process import sent_to_terminal
from kdump import phases
from kdump.cli.output import progress_bar, streams
from kdump.cli.output.progress_bar import Bar, Display, Lines, open_progress
from kdump.cli.output.streams import OutputKind
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
        display.begin_write(OutputKind.TERMINAL)
        assert on_screen(terminal) == ""
        display.end_write(OutputKind.TERMINAL, ends_line=False)
        clock.now += 2
        display.tick()
        assert on_screen(terminal) == ""
        display.begin_write(OutputKind.TERMINAL)
        display.end_write(OutputKind.TERMINAL, ends_line=True)
        display.tick()
        assert "verifying" in on_screen(terminal)


@dataclass(frozen=True)
class Piped:
    """Standard output that another program reads."""

    out: TextIO
    reader: int

    def print_row(self) -> None:
        self.out.write("a row\n")
        self.out.flush()
        assert os.read(self.reader, 100) == b"a row\n"


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Piped]:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb"), monkeypatch.context() as context:
        context.setattr(streams, "_OUTPUT", writer)
        context.setattr(sys, "stdout", sys.stdout)
        context.setattr(sys, "stderr", sys.stderr)
        streams.open_standard_streams()
        yield Piped(sys.stdout, reader)


@pytest.fixture
def watching_bar(bar: tuple[Bar, Clock]) -> Iterator[tuple[Bar, Clock]]:
    """Return a bar that makes room for output."""
    streams.watch(bar[0])
    yield bar
    streams.watch(None)


def test_a_bar_is_cleared_before_a_row_goes_to_a_pipe(
    watching_bar: tuple[Bar, Clock], terminal: Terminal, pipe: Piped
) -> None:
    display, clock = watching_bar
    with phase("searching"):
        clock.now += 2
        display.tick()
        pipe.print_row()
        assert on_screen(terminal) == ""


def test_a_bar_returns_when_the_reader_of_a_pipe_had_time_to_write(
    watching_bar: tuple[Bar, Clock], terminal: Terminal, pipe: Piped
) -> None:
    display, clock = watching_bar
    with phase("searching"):
        clock.now += 2
        pipe.print_row()
        display.tick()
        assert on_screen(terminal) == ""
        clock.now += progress_bar.BAR_AFTER_SECONDS
        display.tick()
        assert "searching" in on_screen(terminal)


def test_a_bar_that_was_asked_for_is_drawn_between_the_rows_of_a_pipe(
    terminal: Terminal, pipe: Piped
) -> None:
    clock = Clock()
    display = Bar(terminal, clock, is_wanted=True)
    streams.watch(display)
    with phase("searching"):
        clock.now += 2
        pipe.print_row()
        streams.watch(None)
        display.tick()
        assert "searching" in on_screen(terminal)


def test_a_bar_stays_while_rows_go_to_a_file(bar: tuple[Bar, Clock], terminal: Terminal) -> None:
    display, clock = bar
    with phase("searching"):
        clock.now += 2
        display.tick()
        display.begin_write(OutputKind.ELSEWHERE)
        display.end_write(OutputKind.ELSEWHERE, ends_line=True)
        assert "searching" in on_screen(terminal)


def test_no_bar_is_drawn_over_a_program_that_has_the_whole_terminal() -> None:
    def draw(device: IO[bytes]) -> None:
        clock = Clock()
        with os.fdopen(os.dup(device.fileno()), "w") as screen, phase("searching"):
            display = Bar(screen, clock)
            clock.now += 2
            display.tick()
            tty.setcbreak(screen)
            clock.now += 2
            display.tick()

    assert sent_to_terminal(draw).count(b"searching") == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert progress_bar._duration(seconds) == text
