"""The standard streams of the ``kdump`` process.

Standard output can be closed, full, or a terminal that is gone. Then the command fails with one
line, as for any other file. A failure to write to standard error cannot be reported: it is ignored
and never ends a running command.
"""

from __future__ import annotations

import enum
import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TextIO

from kdump.errors import KdumpError, reason_of

_OUTPUT: Final = 1
_DIAGNOSTICS: Final = 2


class OutputError(KdumpError):
    """Standard output cannot be written."""


class OutputKind(enum.Enum):
    """Where the output of a standard stream appears."""

    TERMINAL = enum.auto()
    PIPE = enum.auto()
    """Another program reads it, and may show it on the same terminal at any time."""
    ELSEWHERE = enum.auto()


class WriteWatcher(Protocol):
    """A listener to everything written, so that it can draw on the same terminal."""

    def begin_write(self, to: OutputKind) -> None: ...

    def end_write(self, to: OutputKind, *, ends_line: bool) -> None: ...


_watcher: WriteWatcher | None = None


def watch(watcher: WriteWatcher | None) -> None:
    """Notify ``watcher`` of writes from now on; None for nobody."""
    global _watcher
    _watcher = watcher


@contextmanager
def _watched(stream: io.FileIO, data: Any) -> Iterator[None]:
    if _watcher is None:
        yield
        return
    to = _output_kind(stream)
    _watcher.begin_write(to)
    try:
        yield
    finally:
        ends_line = to is not OutputKind.TERMINAL or bytes(data[-1:]) == b"\n"
        _watcher.end_write(to, ends_line=ends_line)


def _output_kind(stream: io.FileIO) -> OutputKind:
    if stream.isatty():
        return OutputKind.TERMINAL
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:
        return OutputKind.ELSEWHERE
    is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    return OutputKind.PIPE if is_pipe else OutputKind.ELSEWHERE


def open_standard_streams() -> None:
    """Replace standard output and standard error by streams that fail as described above.

    Both are UTF-8 in every locale. A descriptor that is missing at start is filled: otherwise the
    next opened file would get its number, and the output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Opened for reading, so that writing fails as on a closed descriptor.
            _open_null_device(descriptor, os.O_RDONLY)
    sys.stdout = _text_stream(_Output(_OUTPUT, "w", closefd=False), "surrogateescape")
    sys.stderr = _text_stream(_Diagnostics(_DIAGNOSTICS, "w", closefd=False), "backslashreplace")


def flush_output() -> bool:
    """Write what is buffered for standard output; returns whether that succeeded."""
    try:
        sys.stdout.flush()
    except (OSError, KdumpError):
        abandon_output()
        return False
    return True


def abandon_output() -> None:
    """Discard what is buffered for standard output, after it could not be written."""
    _open_null_device(_OUTPUT, os.O_WRONLY)
    with suppress(OSError, KdumpError, ValueError):
        sys.stdout.flush()


def _open_null_device(descriptor: int, flags: int) -> None:
    opened = os.open(os.devnull, flags)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    os.set_inheritable(descriptor, True)


class _Output(io.FileIO):
    """Standard output; failing to write it raises :class:`OutputError`."""

    def write(self, data: Any, /) -> int:
        try:
            with _watched(self, data):
                return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as failure:
            what = reason_of(failure)
            if failure.errno == errno.EBADF:
                what = "closed"
            raise OutputError(f"standard output: {what}; the output is incomplete") from failure


class _Diagnostics(io.FileIO):
    """Standard error; failing to write it is ignored."""

    def write(self, data: Any, /) -> int:
        try:
            with _watched(self, data):
                return super().write(data)
        except OSError:
            return len(data)


def _text_stream(raw: io.FileIO, errors: str) -> TextIO:
    is_terminal = raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors=errors,
        line_buffering=is_terminal or raw.fileno() == _DIAGNOSTICS,
    )
