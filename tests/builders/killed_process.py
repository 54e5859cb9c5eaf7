"""kdump in a separate process that is killed before a given change to the disk or an object store.

Importing kdump takes longer than a command on a small directory. Therefore one process with one
thread imports everything once and forks; each fork runs one command and is killed.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import kdump
from kdump.apply.files import Files
from kdump.cli import main
from kdump.processes import worker_pool
from kdump.storage.object_writer import ObjectWriter

CHANGES: Final = (
    "create",
    "write_at",
    "truncate",
    "set_metadata",
    "rename",
    "link",
    "unlink",
    "make_directory",
    "rename_directory",
    "remove_directory",
    "sync",
)


OF_STORES: Final = ("_put", "copy", "_delete")
_PARTITION: Final = re.compile(r"^\w+-\d+(?=$|\.)")
_NUMBER: Final = re.compile(r"\b[0-9a-f]{2}\b|[0-9a-f]{8,}|[0-9]+")
CHANGING: Final = tuple(
    (changing, name)
    for changing, names in ((Files, CHANGES), (ObjectWriter, OF_STORES))
    for name in names
)


class KillableKdump:
    """Run kdump in forks of a process that has imported it; the context ends that process.

    ``settings`` are values of constants in those forks, by module and name.
    """

    def __init__(self, settings: Mapping[str, Mapping[str, int]] | None = None) -> None:
        tests = Path(__file__).resolve().parents[1]
        paths = {"PYTHONPATH": f"{tests.parent}{os.pathsep}{tests}"}
        # A process with threads must not be forked: NumPy starts some for linear algebra.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "builders.killed_process", json.dumps(settings or {})],
            env=os.environ | paths | {"OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.__exit__(kind, value, trace)

    def run_and_kill(self, args: Sequence[str | Path], at: int) -> int:
        """Run ``kdump ARGS`` and kill it before change ``at`` to the disk, counted from 0.

        Return its exit status, or a negative number if it was killed. It ends by itself if it makes
        fewer changes.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([at, *map(str, args)]).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def killed_at(
        self, original: Path, command: str, args: Sequence[str], samples: int
    ) -> Iterator[Path]:
        """Yield copies of a log directory after killed runs of kdump.

        Each run is killed before a different change to the disk; about ``samples`` runs in all.
        """
        log_dir = original.with_name("logs")
        shutil.copytree(original, log_dir)
        count = changes_of(lambda: main.run([command, str(log_dir), *args]))
        for at in range(count % samples, count, count // samples):
            shutil.rmtree(log_dir)
            shutil.copytree(original, log_dir)
            assert self.run_and_kill([command, log_dir, *args], at) == -signal.SIGKILL
            yield log_dir


def count_changes(count: Callable[[str, Sequence[Any]], None]) -> None:
    """Call ``count`` with name and arguments before every change to the disk or a store."""
    for changing, name in CHANGING:
        setattr(changing, name, _counted(getattr(changing, name), count))


def changes_of(work: Callable[[], object]) -> int:
    """Count the changes that ``work`` makes to the disk and to stores."""
    return len(kinds_of_changes(work))


def kinds_of_changes(work: Callable[[], object]) -> list[str]:
    """Return the kind of each change that ``work`` makes to the disk and to stores.

    That is the operation, and the roles of the files: their names and those of their directories,
    without numbers and identifiers; all partitions are alike.
    """
    found = list[str]()

    def count(name: str, args: Sequence[Any]) -> None:
        found.append(" ".join([name, *filter(None, map(_role_of, args))]))

    before = {each: getattr(*each) for each in CHANGING}
    try:
        count_changes(count)
        work()
    finally:
        for each, change in before.items():
            setattr(*each, change)
    return found


def _role_of(argument: object) -> str:
    """The role of a file; those of many files, each once; nothing of other arguments."""
    if isinstance(argument, (list, tuple)):
        return "+".join(sorted(set(map(_role_of, argument))))
    if not isinstance(argument, (str, Path)):
        return ""
    folder, name = ("", *str(argument).split("/"))[-2:]
    return "/".join(_NUMBER.sub("#", _PARTITION.sub("partition", each)) for each in (folder, name))


def _counted(
    change: Callable[..., None], count: Callable[[str, Sequence[Any]], None]
) -> Callable[..., None]:
    def counted(changed: object, *args: Any) -> None:
        args = tuple([*each] if isinstance(each, Generator) else each for each in args)
        count(change.__name__, args)
        change(changed, *args)

    return counted


def _serve() -> None:
    """Fork for every line of standard input, and print the exit status of the fork."""
    for module in pkgutil.walk_packages(kdump.__path__, "kdump."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for changed, constants in json.loads(sys.argv[1]).items():
        for name, value in constants.items():
            setattr(sys.modules[changed], name, value)
    for line in sys.stdin:
        at, *args = json.loads(line)
        assert worker_pool.start_method() == "fork"
        child = os.fork()
        if not child:
            _run_in_fork(at, args)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run_in_fork(at: int, args: list[str]) -> NoReturn:
    left = at

    def count(*_: object) -> None:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        count_changes(count)
        os._exit(main.run(args))
    except BaseException:
        traceback.print_exc()
    os._exit(70)


if __name__ == "__main__":
    _serve()
