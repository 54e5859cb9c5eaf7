"""``kdump serve`` in a process of its own, as somebody would run it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

_PATIENCE_S: Final = 60


@contextlib.contextmanager
def served(words: Sequence[str], *, beside_broker: bool = False) -> Iterator[str]:
    """Run ``kdump WORDS`` at any free port, and yield its address; Ctrl-C ends it well.

    Nothing is said but, ``beside_broker``, which log directories are in use, and that a file was
    gone: a client asks again.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "kdump", *words, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r" at (\S+), read-only", process.stdout.readline())
        assert found is not None, process.communicate(timeout=_PATIENCE_S)
        yield found[1]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=_PATIENCE_S)
        unexpected = [
            each
            for each in said.splitlines()
            if not (beside_broker and re.search("in use by|No such file", each))
        ]
        assert (process.returncode, unexpected) == (0, []), (process.returncode, unexpected)
    finally:
        process.kill()
        process.communicate()
