"""A separate process that holds the lock of a log directory, as a running broker does.

And what commands say of a directory that is locked.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builders.in_process import Outcome

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(log_dir: Path) -> Iterator[int]:
    """Hold the lock in another process; yield its id."""
    (log_dir / ".lock").touch()
    command = [sys.executable, "-c", HOLDER, str(log_dir / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process.pid
        process.stdin.close()


def complaints(outcome: Outcome) -> list[str]:
    """What is said apart from that a broker is using the directories."""
    lines = outcome.stderr.decode().splitlines()
    return [
        each for each in lines if "in use by process" not in each and "not exported" not in each
    ]
