"""How far a job is, for people: a bar on a terminal, or a line every few seconds.

All of it goes to standard error, and nothing is drawn before a job has taken long enough for
somebody to wonder. There is no thread behind it: the engine says when time has passed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from kdump.cli.output import escape_controls, format_bytes
from kdump.pipeline.progress import Silent

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

Clock = Callable[[], float]

BAR_AFTER_SECONDS: Final = 0.5
BAR_EVERY_SECONDS: Final = 0.1
LINE_EVERY_SECONDS: Final = 5.0
_RATE_AFTER_SECONDS: Final = 1.0
_BAR_COLUMNS: Final = 30


def open_progress(wanted: bool | None, stream: TextIO | None = None) -> Display:
    """What shows progress on ``stream``, by default standard error.

    Args:
        wanted: what ``--progress`` and ``--no-progress`` say; None where neither was given:
            shown on a terminal only.
        stream: where.
    """
    stream = sys.stderr if stream is None else stream
    if stream.isatty() and wanted is not False:
        return Bar(stream)
    return Lines(stream) if wanted else Display()


class Display(Silent):
    """What a command knows of its progress display; this one shows nothing."""

    def hide(self) -> None:
        """Clear the way for output on the same terminal; the display comes back by itself."""


class _Meter(Display):
    """Keeps count of a job; what draws it is told when that is due."""

    is_shown = True

    def __init__(self, stream: TextIO, clock: Clock, first: float, every: float) -> None:
        self._stream = stream
        self._clock = clock
        self._first_seconds = first
        self._every_seconds = every
        self._total_bytes = self._done_bytes = 0
        self._label = self._said = ""
        self._began = clock()
        self._due = self._began + first

    def say(self, what: str) -> None:
        self._said = what
        self.tick()

    def begin(self, total_bytes: int) -> None:
        self._total_bytes, self._done_bytes, self._label = total_bytes, 0, ""
        self._began = self._clock()
        self._due = self._began + self._first_seconds

    def working_on(self, label: str) -> None:
        self._label = label
        self.tick()

    def advance(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        self.tick()

    def tick(self) -> None:
        now = self._clock()
        if now >= self._due:
            self._due = now + self._every_seconds
            self._draw()

    def _draw(self) -> None:
        raise NotImplementedError

    def _text(self) -> str:
        """Bytes, rate, time left and what is being worked on, on one line."""
        if self._said:
            return self._said
        done, total = self._done_bytes, self._total_bytes
        share = f" ({100 * done // total} %)" if total else ""
        parts = [f"{format_bytes(done)} of {format_bytes(total)}{share}"]
        seconds = self._clock() - self._began
        if done and seconds >= _RATE_AFTER_SECONDS:
            parts.append(f"{format_bytes(round(done / seconds))}/s")
            parts.append(f"{_duration(seconds * max(0, total - done) / done)} left")
        if self._label:
            parts.append(escape_controls(self._label))
        return ", ".join(parts)


class Lines(_Meter):
    """A line every few seconds, as a log file wants it."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(stream, clock, LINE_EVERY_SECONDS, LINE_EVERY_SECONDS)

    def _draw(self) -> None:
        self._stream.write(f"kdump: {self._text()}\n")
        self._stream.flush()


class Bar(_Meter):
    """A bar on the last line of a terminal, through rich."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(stream, clock, BAR_AFTER_SECONDS, BAR_EVERY_SECONDS)
        self._rich: RichProgress | None = None
        self._task: TaskID | None = None

    def hide(self) -> None:
        if self._rich is not None:
            self._rich.stop()

    def end(self) -> None:
        self.hide()
        self._rich = self._task = None

    def _draw(self) -> None:
        if self._rich is None:
            self._rich = _rich_bar(self._stream)
            self._task = self._rich.add_task("", total=None)
        assert self._task is not None
        self._rich.update(
            self._task,
            # Without a total the bar pulses: something is done of which nobody knows the size.
            total=None if self._said else self._total_bytes,
            completed=self._done_bytes,
            text=self._text(),
        )
        self._rich.start()
        self._rich.refresh()


def _rich_bar(stream: TextIO) -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    return Progress(
        BarColumn(_BAR_COLUMNS),
        TextColumn(
            "{task.fields[text]}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis"),
        ),
        console=Console(file=stream, highlight=False),
        # A thread that draws would keep workers from being forked.
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _duration(seconds: float) -> str:
    """As short as can be: ``7 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
