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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from unittest import mock


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

    Return the lines of standard output and error, without colours. ``COLUMNS`` is unset: it would
    override the terminal, and pytest-xdist sets it for its processes.
    """
    from kdump.cli import main

    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    with (
        ThreadPoolExecutor(1) as reader,
        mock.patch.dict(os.environ),
        os.fdopen(terminal, "wb", buffering=0) as device,
        contextlib.chdir(cwd),
    ):
        os.environ.pop("COLUMNS", None)
        content = reader.submit(_read_to_end, controller)
        with _redirected(1, device), _redirected(2, device):
            main.run(args)
        device.close()
        text = re.sub("\x1b\\[[0-9;]*m", "", content.result().decode())
    return text.replace("\r\n", "\n").splitlines()


def _read_to_end(controller: int) -> bytes:
    content = b""
    with contextlib.suppress(OSError):  # nothing has the terminal open any more
        while read := os.read(controller, 1 << 16):
            content += read
    os.close(controller)
    return content


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
