"""Progress for people: a bar on a terminal, or a line every few seconds.

Progress goes to standard error, and nothing is drawn in the first moments. It shows the phase of
the command (:mod:`kdump.phases`), or how far the job of an engine is. A process timer draws it, so
that it also moves while the command waits. There is no thread: workers could not be forked then.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, TextIO

from kdump import phases
from kdump.cli.output import streams
from kdump.cli.output.streams import OutputKind
from kdump.cli.output.terminal import terminal_columns
from kdump.cli.output.value_text import escape_controls, format_bytes
from kdump.engine.progress import Silent
from kdump.phases import Phase

Clock = Callable[[], float]

BAR_AFTER_SECONDS: Final = 0.5
BAR_EVERY_SECONDS: Final = 0.2
LINE_EVERY_SECONDS: Final = 5.0
_RATE_AFTER_SECONDS: Final = 1.0
_ELAPSED_AFTER_SECONDS: Final = 2.0
_TIMER_SECONDS: Final = 0.2
_BAR_COLUMNS: Final = 20
_FEWEST_COLUMNS: Final = 40
_LOCAL_FLAGS: Final = 3
_CLEAR: Final = "\r\x1b[2K"


def open_progress(wanted: bool | None, stream: TextIO | None = None) -> Display:
    """Open the progress display on ``stream``, by default standard error.

    Args:
        wanted: whether ``--progress`` or ``--no-progress`` was given; None for neither: shown
            only on a terminal.
        stream: the stream to draw on.
    """
    stream = sys.stderr if stream is None else stream
    if stream.isatty() and wanted is not False:
        return Bar(stream, is_wanted=wanted is True)
    return Lines(stream) if wanted else Display()


class Display(Silent):
    """The interface of progress displays; this one shows nothing."""

    def idle(self) -> None:
        """Clear the terminal: the command is done."""

    def begin_write(self, to: OutputKind) -> None:
        """Make room for output, and pause until :meth:`end_write`."""

    def end_write(self, to: OutputKind, *, ends_line: bool) -> None:
        """Resume after output; the display returns on a line of its own."""


class _Meter(Display):
    """Track a job and the time of a phase, and draw when due."""

    is_shown = True

    def __init__(self, stream: TextIO, clock: Clock, first: float, every: float) -> None:
        self._stream = stream
        self._clock = clock
        self._every_seconds = every
        self._total_bytes = self._done_bytes = 0
        self._label = ""
        self._is_job = False
        self._job_began = clock()
        self._phase: Phase | None = None
        self._phase_of_job: Phase | None = None
        self._phase_began = clock()
        self._due = clock() + first
        self._is_paused = False

    def begin(self, total_bytes: int) -> None:
        self._total_bytes, self._done_bytes, self._label = total_bytes, 0, ""
        self._job_began = self._clock()
        self._is_job, self._phase_of_job = True, phases.current()

    def working_on(self, label: str) -> None:
        self._label = label
        self.tick()

    def advance(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        self.tick()

    def end(self) -> None:
        self._is_job = False

    def begin_write(self, to: OutputKind) -> None:
        self._is_paused = True

    def end_write(self, to: OutputKind, *, ends_line: bool) -> None:
        self._is_paused = not ends_line

    def tick(self) -> None:
        """Draw if it is due and the command is in a phase."""
        phase, now = phases.current(), self._clock()
        if phase is not self._phase:
            self._phase, self._phase_began = phase, now
        if phase is None or now < self._due or self._is_paused:
            return
        # The timer may interrupt drawing.
        self._is_paused = True
        try:
            self._draw(self._text(phase, now))
        finally:
            self._is_paused = False
            self._due = now + self._every_seconds

    def _draw(self, text: str) -> None:
        raise NotImplementedError

    def _text(self, phase: Phase, now: float) -> str:
        """Return the current work and its progress, on one line."""
        if self._is_job and self._total_bytes and phase is self._phase_of_job:
            return ", ".join(self._job_parts(now))
        return ", ".join(self._phase_parts(phase, now))

    def _job_parts(self, now: float) -> Iterator[str]:
        """Yield bytes, rate, time left and the current item."""
        done, total = self._done_bytes, self._total_bytes
        yield _share(done, total)
        seconds = now - self._job_began
        if done and seconds >= _RATE_AFTER_SECONDS:
            yield f"{format_bytes(round(done / seconds))}/s"
            yield f"{_duration(seconds * max(0, total - done) / done)} left"
        if self._label:
            yield escape_controls(self._label)

    def _phase_parts(self, phase: Phase, now: float) -> Iterator[str]:
        """Yield the phase, its steps and the time so far."""
        what = escape_controls(phase.what)
        if phase.reading is not None:
            what += f": {_share(phase.reading.reached_bytes, phase.reading.size_bytes)}"
        elif phase.done or phase.total:
            what += f": {phase.done}" + (f" of {phase.total}" if phase.total else "")
        yield what
        seconds = now - self._phase_began
        if seconds >= _ELAPSED_AFTER_SECONDS:
            yield f"{_duration(seconds)} so far"

    def _fraction(self) -> float | None:
        """Return the share that is done; None if it is unknown."""
        phase = self._phase
        if self._is_job and self._total_bytes and phase is self._phase_of_job:
            return self._done_bytes / self._total_bytes
        if phase is not None and phase.reading is not None and phase.reading.size_bytes:
            return phase.reading.reached_bytes / phase.reading.size_bytes
        return phase.done / phase.total if phase is not None and phase.total else None


def _share(done: int, total: int) -> str:
    share = f" ({100 * done // total} %)" if total else ""
    return f"{format_bytes(done)} of {format_bytes(total)}{share}"


class Lines(_Meter):
    """A line every few seconds, for log files."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(stream, clock, LINE_EVERY_SECONDS, LINE_EVERY_SECONDS)

    def _draw(self, text: str) -> None:
        self._stream.write(f"kdump: {text}\n")
        self._stream.flush()


class Bar(_Meter):
    """A bar on the last line of a terminal.

    Drawing imports nothing: the timer may interrupt an import.
    """

    def __init__(
        self, stream: TextIO, clock: Clock = time.monotonic, *, is_wanted: bool = False
    ) -> None:
        """Show nothing yet.

        Args:
            stream: the terminal.
            clock: the time in seconds.
            is_wanted: whether to draw also while lines go to a pipe.
        """
        super().__init__(stream, clock, BAR_AFTER_SECONDS, BAR_EVERY_SECONDS)
        self._is_wanted = is_wanted
        self._is_drawn = False

    def idle(self) -> None:
        self._clear()

    def begin_write(self, to: OutputKind) -> None:
        super().begin_write(to)
        if to is not OutputKind.ELSEWHERE:
            self._clear()

    def end_write(self, to: OutputKind, *, ends_line: bool) -> None:
        super().end_write(to, ends_line=ends_line)
        if to is OutputKind.PIPE and not self._is_wanted:
            # The reader of the pipe needs a moment to write its lines.
            self._due = self._clock() + BAR_AFTER_SECONDS

    def _clear(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _draw(self, text: str) -> None:
        if _is_taken(self._stream):
            return
        columns = max(_FEWEST_COLUMNS, terminal_columns(self._stream) or 0) - 1
        self._is_drawn = True
        self._stream.write(_CLEAR + f"{_bar(self._fraction())} {text}"[:columns])
        self._stream.flush()


def _is_taken(stream: TextIO) -> bool:
    """Whether another program, such as ``less``, shows something on the whole terminal."""
    try:
        flags: int = termios.tcgetattr(stream.fileno())[_LOCAL_FLAGS]
    except (OSError, ValueError, termios.error):
        return False
    return not flags & termios.ICANON


def _bar(fraction: float | None) -> str:
    """``[#####---------------]``; without a fraction, nothing is filled."""
    filled = 0 if fraction is None else round(_BAR_COLUMNS * min(1.0, max(0.0, fraction)))
    return f"[{'#' * filled}{'-' * (_BAR_COLUMNS - filled)}]"


def _duration(seconds: float) -> str:
    """Format a duration: ``7 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


_active: Display = Display()


@contextlib.contextmanager
def shown(wanted: bool | None = None) -> Iterator[Display]:
    """Show progress on standard error while the context is open; yields the display.

    A nested display replaces the outer one if ``wanted`` is given.

    Args:
        wanted: as for :func:`open_progress`.
    """
    outer = _active
    if wanted is None and outer.is_shown:
        yield outer
        return
    display = open_progress(wanted, _own_stream())
    _switch_to(display)
    try:
        yield display
    finally:
        _switch_to(outer)


def _switch_to(display: Display) -> None:
    global _active
    _active.idle()
    _active = display
    watcher = display if display.is_shown else None
    phases.watch(watcher)
    streams.watch(watcher)
    if threading.current_thread() is not threading.main_thread():
        return
    if watcher is None:
        signal.setitimer(signal.ITIMER_REAL, 0)
    else:
        signal.signal(signal.SIGALRM, _tick)
        signal.setitimer(signal.ITIMER_REAL, _TIMER_SECONDS, _TIMER_SECONDS)


def _tick(_number: int, _frame: FrameType | None) -> None:
    # Losing the terminal does not end a running command.
    with contextlib.suppress(OSError, ValueError):
        _active.tick()


def _own_stream() -> TextIO:
    """Return a separate stream for standard error: the timer may interrupt a write to it."""
    try:
        descriptor = sys.stderr.fileno()
    except (OSError, ValueError):
        return sys.stderr
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", write_through=True
    )
