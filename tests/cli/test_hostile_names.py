"""Odd names of directories and files: no stack trace, and escaped output on a terminal."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from builders.in_process import Outcome, run_kdump
from builders.log_dir_trees import original_of
from builders.recovery import log_name
from builders.repair_cases import PARTITION, bad_batch_in_the_middle
from builders.samples import examples
from kdump.errors import ExitStatus
from kdump.formats import names

READING: Final = (
    "ls",
    "ls --output table",
    "ls --output json",
    "ls --output csv",
    "info",
    "info --deep --output jsonl",
    "verify --verbose",
    "verify --verbose --output table",
    "verify --output jsonl",
    "verify --output junit",
    "checkpoint show",
    "recover --dry-run --verbose",
    "recover --dry-run --output json",
    "verify --repair --dry-run",
    "resolve --dry-run --verbose",
    "rebuild-index --dry-run",
    "snapshot rebuild --dry-run",
    "retain --topic * --dry-run --explain",
    "compact --topic * --dry-run",
)
WRITING: Final = ("recover --policy salvage", "verify --repair", "recover --output jsonl")
FOR_PEOPLE: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
ODD: Final = (
    b"old crash-0",
    b"crash\xff-0",
    b"-",
    b".",
    b"--0",
    b"x-00",
    b"x-+1",
    b"x--1",
    b"x-2147483648",
    b"x-2147483647",
    b"..-0",
    b"\x1b[31mred-0",
    b"\x1b]0;title\x07-0",
    b"two\nlines-0",
    b"\r-0",
    b"\xc2\x9b31m-0",
    "\u202eevil-0".encode(),
    "🦀-0".encode(),
    "x-\u0661".encode(),
    b"\xed\xa0\x80-0",
    b"a" * 253 + b"-0",
    b"a" * 249 + b"-0",
    b"x-0.184f5a4c945d4277a4671794019b3c74-delete",
    b"x y-0.184f5a4c945d4277a4671794019b3c74-stray",
    b"x-0.\x1b[1m-future",
    b"%s-0",
    b"{0}-0",
    b"[red]x[/red]-0",
    b"<x>&\"'-0",
    b"=1+1-0",
    b".kdump-1.applying",
    b".kdump-x",
    b"00000000000000000000.log",
    b"remote-log-index-cache",
    b"__cluster_metadata-0",
)
FILE_NAMES: Final = (
    *ODD,
    b"00000000000000000000.log\n",
    b"\xff0000000000000000000.log",
    b"99999999999999999999.log",
    b"-0000000000000000001.log",
    b"00000000000000000000.\x1b[2J",
    b"00000000000000000007.log.deleted",
    b"00000000000000000000.timeindex.cleaned",
    b"damaged-\x1b[31m-0-1",
    b"00000000000000000000-0000000000.checkpoint",
)


def kdump(command: str, *paths: Path) -> Outcome:
    return run_kdump([*command.split(), *map(str, paths)], Path("/"))


def is_name(name: bytes) -> bool:
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name


hostile_bytes = st.one_of(
    st.sampled_from(ODD),
    st.binary(min_size=1, max_size=40),
    st.text(min_size=1, max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.tuples(st.binary(min_size=1, max_size=20), st.integers(-(2**33), 2**33)).map(
        lambda parts: parts[0] + b"-%d" % parts[1]
    ),
)
hostile_names = hostile_bytes.filter(lambda name: is_name(name) and len(name) <= 255)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "logs"
    bad_batch_in_the_middle(path)
    return path


def put_directory(log_dir: Path, name: bytes) -> None:
    path = log_dir / os.fsdecode(name)
    if not path.exists():
        shutil.copytree(log_dir / PARTITION, path)


def put_file(log_dir: Path, name: bytes) -> None:
    path = log_dir / PARTITION / os.fsdecode(name)
    if not path.exists():
        path.write_bytes(b"x" * 100)


def put_root_file(log_dir: Path, name: bytes) -> None:
    path = log_dir / os.fsdecode(name)
    if not path.exists():
        path.write_bytes(b"x" * 100)


def require_harmless(command: str, outcome: Outcome) -> None:
    """Require a documented exit status, and escaped output on a terminal."""
    assert 0 <= outcome.exit_status < 32, (command, outcome.stderr)
    assert b"Traceback" not in outcome.stderr
    assert not FOR_PEOPLE.search(outcome.stderr), (command, outcome.stderr)
    # These write raw names to pipes, and escape them on a terminal.
    if "csv" not in command and "dump-segment" not in command:
        assert not FOR_PEOPLE.search(outcome.stdout), (command, outcome.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("put", [put_directory, put_file, put_root_file])
def test_no_command_prints_a_stack_trace_on_all_odd_names_together(
    tmp_path: Path, damaged: Path, put: Callable[[Path, bytes], None]
) -> None:
    log_dir = shutil.copytree(damaged, tmp_path / "logs")
    for name in filter(is_name, FILE_NAMES if put is put_file else ODD):
        put(log_dir, name)
    for command in (*READING, *WRITING):
        require_harmless(command, kdump(command, log_dir))


@pytest.mark.slow
@settings(max_examples=examples(0.2))
@given(name=hostile_names, what=st.sampled_from([put_directory, put_file, put_root_file]))
@example(name=b"old crash-0", what=put_directory)
@example(name=b"crash\xff-0", what=put_directory)
def test_no_command_prints_a_stack_trace_on_an_odd_name(
    damaged: Path, name: bytes, what: Callable[[Path, bytes], None]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log_dir = shutil.copytree(damaged, Path(folder) / "logs")
        what(log_dir, name)
        for command in ("ls", "info", "verify --verbose", "recover"):
            require_harmless(command, kdump(command, log_dir))
        require_harmless("undo", kdump("undo", log_dir))


@pytest.mark.parametrize("name", [b"old crash-0", b"crash\xff-0", b"x-00", b"two\nlines-0"])
@pytest.mark.parametrize("command", WRITING)
def test_a_directory_with_an_impossible_name_is_reported_and_left_unchanged(
    tmp_path: Path, damaged: Path, name: bytes, command: str
) -> None:
    log_dir = shutil.copytree(damaged, tmp_path / "logs")
    put_directory(log_dir, name)
    odd = log_dir / os.fsdecode(name)
    before = original_of(odd)

    outcome = kdump(command, log_dir)

    assert outcome.exit_status & ExitStatus.DAMAGE_LEFT
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR == 0, outcome.stderr
    assert b"directory-misnamed" in outcome.stdout
    assert original_of(odd) == before
    assert not (log_dir / names.CLEAN_SHUTDOWN_MARKER).exists()
    assert kdump("undo", log_dir).exit_status == 0


@pytest.mark.parametrize("name", [b"old crash-0", b"crash\xff-0", b"\x1b[31m-0", b"two\nlines-0"])
@pytest.mark.parametrize("command", ["verify", "info", "ls", "rebuild-index", "snapshot rebuild"])
def test_no_command_prints_a_stack_trace_on_an_odd_path(
    tmp_path: Path, damaged: Path, name: bytes, command: str
) -> None:
    log_dir = shutil.copytree(damaged, tmp_path / "logs")
    put_directory(log_dir, name)
    odd = log_dir / os.fsdecode(name)
    require_harmless(command, kdump(command, odd))
    require_harmless("dump-segment", kdump("dump-segment --verify-index-only", odd / log_name(0)))


@pytest.mark.parametrize(
    "command",
    [
        "undo",
        "undo logs",
        "quorum reset --voter 1@host:1",
        "metadata plan --controller 1@host:1 --out plan",
        "metadata rebuild logs --controller 1@host:1 --into",
        "transplant --into logs",
        "undelete logs --plan",
        "verify logs --metadata",
        "ls logs --topic",
        "ls logs --partition",
        "groups logs --group",
        "query",
    ],
)
def test_a_line_break_in_an_argument_does_not_break_the_message(
    tmp_path: Path, damaged: Path, command: str
) -> None:
    shutil.copytree(damaged, tmp_path / "logs")
    outcome = run_kdump([*command.split(), "two\nlines\x1b[31m"], tmp_path)
    assert outcome.exit_status >= ExitStatus.OPERATIONAL_ERROR
    assert len(outcome.stderr.splitlines()) == 1
    assert b"two\\nlines\\x1b[31m" in outcome.stderr
