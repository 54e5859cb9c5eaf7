"""kdump in a process of its own that is killed before a certain change of the disk.

As a script: ``python -m builders.killed_process NUMBER ARGS…`` runs ``kdump ARGS`` and is killed
before change ``NUMBER``, counted from 0; it ends by itself if there are not that many.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kdump.apply.files import Disk
from kdump.cli import main

_CHANGES: Final = (
    "create",
    "write_at",
    "truncate",
    "set_metadata",
    "rename",
    "link",
    "unlink",
    "sync",
)


def run_and_kill(args: Sequence[str | Path], at: int) -> int:
    """Run kdump like that; gives its exit status, or less than 0 where it was killed."""
    tests = Path(__file__).resolve().parents[1]
    return subprocess.run(
        [sys.executable, "-m", "builders.killed_process", str(at), *map(str, args)],
        cwd=tests,
        env=os.environ | {"PYTHONPATH": f"{tests.parent}{os.pathsep}{tests}"},
        stdout=subprocess.DEVNULL,
        check=False,
    ).returncode


def count_changes(count: Callable[[], None]) -> None:
    """Call ``count`` before every change of the disk from now on."""
    for name in _CHANGES:
        setattr(Disk, name, _counted(getattr(Disk, name), count))


def changes_of(work: Callable[[], object]) -> int:
    """How often ``work`` changes the disk."""
    found = 0

    def count() -> None:
        nonlocal found
        found += 1

    before = {name: getattr(Disk, name) for name in _CHANGES}
    try:
        count_changes(count)
        work()
    finally:
        for name, change in before.items():
            setattr(Disk, name, change)
    return found


def killed_at(original: Path, command: str, args: Sequence[str], samples: int) -> Iterator[Path]:
    """Give a copy of a log directory as kdump left it that was killed, again and again.

    Each time before another one of its changes of the disk; in all about ``samples`` times.
    """
    log_dir = original.with_name("logs")
    shutil.copytree(original, log_dir)
    count = changes_of(lambda: main.run([command, str(log_dir), *args]))
    for at in range(count % samples, count, count // samples):
        shutil.rmtree(log_dir)
        shutil.copytree(original, log_dir)
        assert run_and_kill([command, log_dir, *args], at) == -signal.SIGKILL
        yield log_dir


def _counted(change: Callable[..., None], count: Callable[[], None]) -> Callable[..., None]:
    def counted(disk: Disk, *args: Any) -> None:
        count()
        change(disk, *args)

    return counted


def _main(at: int, args: list[str]) -> int:
    left = at

    def count() -> None:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    count_changes(count)
    return main.run(args)


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), sys.argv[2:]))
