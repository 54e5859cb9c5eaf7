"""Run kdump's command line in this process as a shell would run it."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from unittest import mock

_END: Final = b"\x00end of the output\x00"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the bytes of both streams, and the exit status."""

    stdout: bytes
    stderr: bytes
    exit_status: int


def run_kdump(args: Sequence[str], cwd: Path) -> Outcome:
    """Run ``kdump ARGS`` in the working directory ``cwd``, and capture its output.

    Standard output and error are captured at the file descriptors, because fast code may write
    there.

    Raises:
        AssertionError: kdump ended with an unexpected exception.
    """
    from kdump.cli import main

    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        with contextlib.chdir(cwd), _redirected(1, stdout), _redirected(2, stderr):
            exit_status = main.run(args)
        outcome = Outcome(_content(stdout), _content(stderr), exit_status)
    found = re.search(rb"internal error: .*with the trace in (\S+)", outcome.stderr)
    if found:
        trace = Path(os.fsdecode(found[1]))
        raise AssertionError(trace.read_text())
    return outcome


def run_on_terminal(args: Sequence[str], cwd: Path, columns: int) -> list[str]:
    """Run ``kdump ARGS`` on a terminal that is ``columns`` wide.

    Return the lines of standard output and error that the terminal shows in the end, without
    colours; a bar of progress, which a slow machine sees, is erased. ``COLUMNS`` is unset: it
    would override the terminal, and pytest-xdist sets it for its processes.
    """
    text = re.sub("\x1b\\[[0-9;]*m", "", text_on_terminal(args, cwd, columns))
    return text.splitlines()


def text_on_terminal(args: Sequence[str], cwd: Path, columns: int = 80) -> str:
    """What :func:`run_on_terminal` shows, with the sequences of colours."""
    from kdump.cli import main

    def run(device: IO[bytes]) -> None:
        with _redirected(1, device), _redirected(2, device):
            main.run(args)

    with mock.patch.dict(os.environ), contextlib.chdir(cwd):
        os.environ.pop("COLUMNS", None)
        text = sent_to_terminal(run, columns).decode().replace("\r\n", "\n")
    return re.sub(".*\x1b\\[2K", "", text)


def sent_to_terminal(run: Callable[[IO[bytes]], object], columns: int = 80) -> bytes:
    """What ``run`` writes to the terminal that it is given."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    with (
        os.fdopen(controller, "rb", buffering=0) as screen,
        ThreadPoolExecutor(1) as reader,
        os.fdopen(terminal, "wb", buffering=0) as device,
    ):
        content = reader.submit(_read_to_end, screen)
        run(device)
        device.write(_END)
        return content.result()


def _read_to_end(screen: IO[bytes]) -> bytes:
    """Read what is written before the mark: a terminal that is closed may lose it."""
    content = b""
    while not content.endswith(_END):
        content += screen.read(1 << 16)
    return content.removesuffix(_END)


@contextlib.contextmanager
def _redirected(descriptor: int, file: IO[bytes]) -> Iterator[None]:
    """Redirect ``descriptor`` (1 or 2), and the same stream in :mod:`sys`, to ``file``."""
    name = {1: "stdout", 2: "stderr"}[descriptor]
    stream_before = getattr(sys, name)
    stream_before.flush()
    saved = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    stream = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)),
        encoding="utf-8",
        errors="surrogateescape",
    )
    setattr(sys, name, stream)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # a command may have closed or detached it
            stream.flush()
        setattr(sys, name, stream_before)
        os.dup2(saved, descriptor)
        os.close(saved)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
