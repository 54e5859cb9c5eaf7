"""The standard streams of the ``kdump`` process.

Standard output can be closed, full, or a terminal that is gone. Then the command fails with one
line, as for any other file. Standard error is where failures are reported, so that a failure to
write there has nowhere to go: it is ignored, and never ends a command that is at work.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TextIO

from kdump.errors import KdumpError

_OUTPUT: Final = 1
_DIAGNOSTICS: Final = 2


class OutputError(KdumpError):
    """Standard output cannot be written."""


class Watcher(Protocol):
    """Is told of everything that is written, so that it can draw on the same terminal."""

    def begin_write(self, *, to_terminal: bool) -> None: ...

    def end_write(self, *, ends_line: bool) -> None: ...


_watcher: Watcher | None = None


def watch(watcher: Watcher | None) -> None:
    """Let ``watcher`` be told of what is written from now on; None for nobody."""
    global _watcher
    _watcher = watcher


@contextmanager
def _watched(stream: io.FileIO, data: Any) -> Iterator[None]:
    if _watcher is None:
        yield
        return
    _watcher.begin_write(to_terminal=stream.isatty())
    try:
        yield
    finally:
        _watcher.end_write(ends_line=not stream.isatty() or bytes(data[-1:]) == b"\n")


def open_standard_streams() -> None:
    """Replace standard output and standard error by streams that fail as this module says.

    Both are UTF-8 in every locale. A descriptor that the process was started without is filled, or
    the next file that is opened would get its number, and with it what is printed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # For reading: writing fails as it does on a closed descriptor.
            _open_null_device(descriptor, os.O_RDONLY)
    sys.stdout = _text_stream(_Output(_OUTPUT, "w", closefd=False), "surrogateescape")
    sys.stderr = _text_stream(_Diagnostics(_DIAGNOSTICS, "w", closefd=False), "backslashreplace")


def flush_output() -> bool:
    """Write what is still buffered for standard output; gives whether that went well."""
    try:
        sys.stdout.flush()
    except (OSError, KdumpError):
        abandon_output()
        return False
    return True


def abandon_output() -> None:
    """Let what is still buffered for standard output go nowhere, when it cannot be written."""
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
    """Standard output; what keeps it from being written is an :class:`OutputError`."""

    def write(self, data: Any, /) -> int:
        try:
            with _watched(self, data):
                return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as failure:
            what = failure.strerror or str(failure)
            if failure.errno == errno.EBADF:
                what = "closed"
            raise OutputError(f"standard output: {what}; the answer is incomplete") from failure


class _Diagnostics(io.FileIO):
    """Standard error; what cannot be written is lost."""

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
