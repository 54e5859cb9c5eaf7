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
def served(words: Sequence[str]) -> Iterator[str]:
    """Run ``kdump WORDS`` at any free port, and yield its address; Ctrl-C ends it well."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kdump", *words, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r" at (\S+), read-only", process.stdout.readline())
        assert found is not None
        yield found[1]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=_PATIENCE_S)
        assert (process.returncode, said) == (0, "")
    finally:
        process.kill()
        process.communicate()
