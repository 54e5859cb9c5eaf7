"""An export that is killed at each kind of moment, and run again, equals one that was not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.log_directories import write_log_directory, write_partition
from builders.programs import in_a_fresh_process
from builders.samples import at_some_or_each_kind, moments_of_kinds

pytestmark = pytest.mark.slow

PROGRAM = """
import os, re, shutil, signal, sys
from pathlib import Path

import pyarrow.parquet

from kdump.cli import main
from kdump.jobs.export import export, export_directory, record_files

CHANGES = ("fsync", "mkdir", "rename", "rmdir", "unlink", "open")
log_dir, folder = sys.argv[1], Path(sys.argv[2])
begun = folder / "begun"


def kind_of(name, *args):
    paths = [os.readlink(f"/proc/self/fd/{each}") if isinstance(each, int) else each
             for each in args[: 1 + (name == "rename")]]
    roles = [re.sub("[0-9a-f]{16,}|[0-9]+", "#", os.path.basename(each)) for each in paths]
    return " ".join([name, *roles])


def run(out, at=None):
    begun.write_bytes(b"")
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = at

    def counted(name, change):
        def count(*args, **named):
            nonlocal left
            if name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR):
                return change(*args, **named)
            if left is not None:
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
            os.write(counter, f"{kind_of(name, *args)}\\n".encode())
            return change(*args, **named)
        return count

    counter = os.open(begun, os.O_WRONLY | os.O_APPEND)
    for name in CHANGES:
        setattr(os, name, counted(name, getattr(os, name)))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os._exit(main.run(["export", "--engine", "local", "--out", str(out), log_dir]))


def tree(out):
    files = sorted(path for path in out.rglob("*"))
    return [(str(path.relative_to(out)), path.is_file() and path.read_bytes()) for path in files]


assert run(folder / "whole") == 0
whole = tree(folder / "whole")
if len(sys.argv) == 3:
    print(begun.read_text(), end="")
for at in map(int, sys.argv[3:]):
    out = folder / "out"
    assert run(out, at) == -signal.SIGKILL, at
    if (out / "_SUCCESS").exists():
        assert tree(out) == whole
    assert run(out) == 0, at
    assert tree(out) == whole, at
    shutil.rmtree(out)
"""


@at_some_or_each_kind
def test_run_again_after_a_kill_it_is_complete_and_equal(
    tmp_path: Path, *, is_each_kind: bool
) -> None:
    """It is killed before the first and the last call of each kind: function and role of file."""
    log_dir = write_log_directory(tmp_path / "logs")
    for topic in ("orders", "payments"):
        content = batch([record(at, b"k", b"v") for at in range(20)])
        write_partition(log_dir / f"{topic}-0", {0: content})
    write_partition(log_dir / "empty-0", {0: b""})

    def run(name: str, moments: Sequence[int]) -> str:
        folder = tmp_path / name
        folder.mkdir()
        args = (str(log_dir), str(folder), *map(str, moments))
        return in_a_fresh_process(PROGRAM, *args).stdout

    kinds = run("counted", ()).splitlines()
    assert len(kinds) > 30
    run("killed", moments_of_kinds(kinds, is_each_kind=is_each_kind))
