"""``kdump serve`` in a process of its own, as somebody would run it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

_PATIENCE_S: Final = 60


class ServedProcess(Struct):
    """The program.

    Attributes:
        address: where it listens.
        process_id: of it.
        exit_status: once it has ended.
        said: the lines that it wrote to standard error, once it has ended.
    """

    address: str
    process_id: int
    exit_status: int | None = None
    said: list[str] = []


@contextlib.contextmanager
def started(words: Sequence[str]) -> Iterator[ServedProcess]:
    """Run ``kdump WORDS`` at any free port; Ctrl-C ends it."""
    # A pipe that nobody reads would stop it.
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "kdump", *words, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            assert process.stdout is not None
            found = re.search(r" at (\S+), read-only", process.stdout.readline())
            if found is None:
                process.communicate(timeout=_PATIENCE_S)
                stderr.seek(0)
                raise AssertionError(stderr.read())
            server = ServedProcess(found[1], process.pid)
            yield server
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=_PATIENCE_S)
            stderr.seek(0)
            server.exit_status, server.said = process.returncode, stderr.read().splitlines()
        finally:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def served(words: Sequence[str], *, beside_broker: bool = False) -> Iterator[str]:
    """Run it, and yield its address; it has to end well.

    Nothing is said but, ``beside_broker``, which log directories are in use, and that a file was
    gone: a client asks again.
    """
    with started(words) as server:
        yield server.address
    unexpected = [
        each
        for each in server.said
        if not (beside_broker and re.search("in use by|No such file", each))
    ]
    assert (server.exit_status, unexpected) == (0, []), (server.exit_status, unexpected)
