"""Standard streams that are closed, full or gone, and unexpected exceptions."""

from __future__ import annotations

import errno
import os
import pty
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import click
import pytest

from builders.in_process import run_kdump
from builders.programs import PYTHON_PATH
from builders.repair_cases import bad_batch_in_the_middle
from kdump.cli import main
from kdump.cli.command_group import command_names
from kdump.errors import ExitStatus

pytestmark = pytest.mark.slow

FULL = "/dev/full"
CLOSED = "&-"
FAILING = """
import sys
import click
import kdump.cli.main as main
from builders.jobs import FailOn
from kdump.engine.job import Split
from kdump.engine.local import LocalEngine
from kdump.storage.local_disk import local

@main.cli.command("fail")
@click.argument("how")
def fail(how):
    if how == "here":
        raise KeyError("no such thing")
    processes = 1 if how == "in a job" else 2
    with LocalEngine(processes=processes) as engine:
        list(engine.run(FailOn(local("x")), [Split(local(name), size_bytes=1) for name in "xy"]))

main.cli.get_command = lambda ctx, name: fail
main.main()
"""


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which ``$KDUMP`` is the command."""
    kdump = f"{sys.executable} -m kdump"
    return subprocess.run(
        ["/bin/sh", "-c", command],
        env={**os.environ, "KDUMP": kdump, "PYTHONPATH": PYTHON_PATH, **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    bad_batch_in_the_middle(path)
    return path


@pytest.mark.parametrize("target", [FULL, CLOSED])
@pytest.mark.parametrize(
    "command",
    ["", "--help", "ls", "ls --output json", "ls --output table", "info", "verify --output junit"],
)
def test_output_that_cannot_be_written_is_an_operational_error(
    command: str, target: str, log_dir: Path
) -> None:
    path = "" if command in ("", "--help") else log_dir
    done = shell(f"$KDUMP {command} {path} >{target}")
    assert done.returncode & ExitStatus.OPERATIONAL_ERROR
    assert not done.returncode & ExitStatus.REPAIRED
    assert re.fullmatch(
        rb"(?s).*kdump: standard output: .*; the output is incomplete\n", done.stderr
    )
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("target", [FULL, CLOSED])
def test_diagnostics_that_cannot_be_written_change_nothing(log_dir: Path, target: str) -> None:
    expected = shell(f"$KDUMP verify --progress {log_dir}")
    done = shell(f"$KDUMP verify --progress {log_dir} 2>{target}")
    assert done.returncode == expected.returncode
    assert len(done.stdout.splitlines()) == len(expected.stdout.splitlines())


def test_without_any_stream_a_file_is_not_mistaken_for_one(log_dir: Path) -> None:
    before = {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()}
    done = shell(f"$KDUMP verify --verbose {log_dir} <&- >&- 2>&-")
    assert done.returncode & ExitStatus.OPERATIONAL_ERROR
    assert {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()} == before


def test_a_closed_terminal_ends_the_command_without_a_stack_trace(log_dir: Path) -> None:
    reader, writer = pty.openpty()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "kdump", "ls", str(log_dir)],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert done.returncode == ExitStatus.OPERATIONAL_ERROR
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
@pytest.mark.parametrize("form", ["text", "table", "jsonl", "junit"])
def test_names_are_printed_with_any_encoding_of_the_locale(
    tmp_path: Path, form: str, encoding: str
) -> None:
    log_dir = tmp_path / "Größe 大"
    bad_batch_in_the_middle(log_dir)
    done = shell(
        f"$KDUMP verify --output {form} '{log_dir}'", PYTHONIOENCODING=encoding, PYTHONUTF8="0"
    )
    assert done.returncode == ExitStatus.DAMAGE_LEFT, done.stderr
    assert "Größe 大" in done.stdout.decode()
    if form == "junit":
        assert "Größe 大" in ET.fromstring(done.stdout)[0].attrib["classname"]


@pytest.mark.parametrize("how", ["here", "in a job", "in a worker"])
def test_an_unexpected_exception_is_not_reported_as_a_repair(
    how: str,
) -> None:
    # The name of a socket of the workers has to be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        done = subprocess.run(
            [sys.executable, "-c", FAILING, "fail", how],
            env={**os.environ, "PYTHONPATH": PYTHON_PATH, "TMPDIR": temporary},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == ExitStatus.OPERATIONAL_ERROR
        [line] = done.stderr.splitlines()
        trace = Path(line.rpartition(" ")[2])
        assert trace.parent == Path(temporary)
        assert "Traceback" in trace.read_text()
        assert "Traceback" not in line


def test_a_limit_of_open_files_is_said_with_what_raises_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(
        main.cli, "get_command", lambda *_: click.Command("open-many", callback=fail)
    )
    outcome = run_kdump(["open-many"], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert outcome.stderr == b"kdump: Too many open files; raise the limit with 'ulimit -n'\n"


def test_without_a_command_kdump_prints_its_help() -> None:
    done = shell("$KDUMP")
    assert done.returncode == ExitStatus.SOUND
    assert done.stdout.startswith(b"Usage: kdump ")
    assert all(name in done.stdout.decode() for name in command_names())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("recove", "no command 'recove'; did you mean 'recover'?"),
        ("checkpoint shwo", "no command 'shwo'; did you mean 'show'?"),
        ("recover --dry-rn d1", "no option '--dry-rn'; did you mean '--dry-run'?"),
        ("frobnicate", "no command 'frobnicate'. See 'kdump --help'."),
        ("completion", "Choose from: bash, zsh, fish. See 'kdump completion --help'.\n"),
    ],
)
def test_misspelt_names_get_a_suggestion(words: str, hint: str) -> None:
    done = shell(f"$KDUMP {words}")
    assert done.returncode == ExitStatus.USAGE
    assert hint in done.stderr.decode()
