"""JSON output always has a header and an end, however the command ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kdump
from builders.in_process import run_kdump
from builders.json_answers import all_objects, objects
from builders.json_commands import json_commands
from builders.lock_holder import held_elsewhere
from builders.programs import PYTHON_PATH
from builders.repair_cases import bad_batch_in_the_middle
from kdump.cli import main
from kdump.cli.output.json_output import JsonOutput
from kdump.cli.output.rendering import OutputFormat, open_output, output_option
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.safe_json import format_json

FORMS = ("json", "jsonl")
HEADER = {"type": "header", "schema": 1, "kdump": kdump.__version__}
PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
PROGRAM = """
import signal
import cli.test_json_output as test
import kdump.cli.main as main

main.cli.get_command = lambda ctx, name: test.counting(lambda: AFTERWARDS)
main.main()
"""
"""kdump with a command that counts, and then does what takes the place of AFTERWARDS."""


def counting(afterwards: Callable[[], Any]) -> click.Command:
    """A command that writes the numbers up to 5000, and ends as ``afterwards`` does."""

    @click.command("count")
    @output_option
    def count(output: OutputFormat) -> Any:
        with open_output(output, ()) as out:
            for number in range(5001):
                out.row({"type": "number", "number": number})
            return afterwards()

    return count


def counted(form: str, afterwards: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM.replace("AFTERWARDS", afterwards),
            "count",
            "--output",
            form,
        ],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    bad_batch_in_the_middle(tmp_path / "logs")
    return tmp_path / "logs"


@given(PLAIN_VALUES)
def test_any_value_is_read_back(value: Any) -> None:
    assert json.loads(format_json(value)) == value


def test_names_that_are_not_utf_8_are_read_back() -> None:
    name = os.fsdecode(b"t\xff")
    assert json.loads(format_json([name]).encode().decode("utf-8")) == [name]


def test_only_harmful_characters_are_escaped() -> None:
    assert format_json("é\x9b") == '"é\\u009b"'


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (
            "jsonl",
            (
                '{"type":"header","schema":1,"kdump":"VERSION","command":"x"}\n'
                '{"type":"a","n":1}\n'
                '{"type":"end","exit_status":4}\n'
            ),
        ),
        (
            "json",
            (
                '[\n{"type":"header","schema":1,"kdump":"VERSION","command":"x"},\n'
                '{"type":"a","n":1},\n'
                '{"type":"end","exit_status":4}\n]\n'
            ),
        ),
    ],
)
def test_output_is_one_object_per_line_or_an_array(
    form: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = JsonOutput()
    answer.begin(form, "x")
    answer.row({"type": "a", "n": 1})
    answer.end(4)
    answer.end(8)
    assert capsys.readouterr().out == expected.replace("VERSION", kdump.__version__)


def test_output_that_was_not_begun_has_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    JsonOutput().end(0)
    assert capsys.readouterr().out == ""


def test_nothing_is_written_after_a_failed_write(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            super().write(text[:10])
            raise OSError("full")

    stream = Full()
    monkeypatch.setattr(sys, "stdout", stream)
    answer = JsonOutput()
    answer.begin("json", "x")
    with pytest.raises(OSError, match="full"):
        answer.row({"type": "a"})
    answer.end(8)
    assert len(stream.getvalue()) == 10


NEEDED = {
    "backup create": ("missing",),
    "backup prune": ("--keep-last", "1"),
    "backup restore": ("--into", "new"),
    "checkpoint set": ("recovery-point", "a-0=1"),
    "compact": ("--topic", "a"),
    "export": ("--out", "new"),
    "grep": ("-e", "pattern"),
    "lookup": ("--timestamp", "max"),
    "metadata collect": ("--out", "new.json"),
    "metadata apply": ("another",),
    "metadata rebuild": ("--controller", "4001@h:9093", "--into", "empty"),
    "metadata plan": ("--controller", "4001@h:9093", "--out", "new.json"),
    "metadata diff": ("--from", "0", "--to", "1"),
    "quorum reset": ("--voter", "1@h:1"),
    "delete-records": ("--partition", "a-0", "--before", "1"),
    "erase": ("--topic", "a", "--key", "k"),
    "move": ("--balance",),
    "copy": ("new",),
    "retain": ("--topic", "a"),
    "rewind": ("--to", "2020-01-01"),
    "transplant": ("--into", "."),
}
"""What a command has to be given besides the path."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", sorted({*json_commands()} - {"explain"}))
def test_a_command_with_nothing_to_do_has_complete_output(
    command: str, form: str, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "nowhere")
    if command == "undo":
        nowhere = str(tmp_path)
    arguments = [nowhere, *NEEDED.get(command, ())]
    outcome = run_kdump([*command.split(), *arguments, "--output", form], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert all_objects(outcome.stdout) == [
        {**HEADER, "command": command},
        {"type": "end", "exit_status": 8},
    ]
    assert outcome.stderr


@pytest.mark.parametrize("form", FORMS)
def test_the_end_has_the_exit_status(form: str, log_dir: Path) -> None:
    for options, expected in (
        (["verify", str(log_dir)], 4),
        (["verify", str(log_dir), "--topic", "no-such-topic"], 16),
        (["info", str(log_dir)], 0),
        (["verify", "--repair", "--policy", "truncate", "--no-undo", str(log_dir)], 1),
    ):
        outcome = run_kdump([*options, "--output", form], log_dir)
        found = all_objects(outcome.stdout)
        assert outcome.exit_status == expected
        assert found[0] == {**HEADER, "command": options[0]}
        assert found[-1] == {"type": "end", "exit_status": expected}


@pytest.mark.parametrize("form", FORMS)
def test_a_usage_error_has_no_output(form: str, tmp_path: Path) -> None:
    for options in (["ls"], ["ls", ".", "--nonsense"], ["recover", ".", "--now", "never"]):
        outcome = run_kdump([*options, "--output", form], tmp_path)
        assert (outcome.exit_status, outcome.stdout) == (ExitStatus.USAGE, b"")


@pytest.mark.parametrize("form", FORMS)
def test_both_forms_have_the_same_objects(form: str, log_dir: Path) -> None:
    segment = next(iter(sorted(log_dir.glob("*/*.log"))))
    arguments = ["dump-segment", str(segment), "--output"]
    lines = run_kdump([*arguments, "jsonl"], log_dir).stdout
    assert all_objects(run_kdump([*arguments, form], log_dir).stdout) == all_objects(lines)


def failing(failure: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise failure

    return fail


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("failure", "exit_status"),
    [
        (KdumpError("d1: the disk is full"), 8),
        (UsageProblem("d1: no such partition"), 16),
        (OSError(5, "I/O error", "d1"), 8),
        (MemoryError(), 8),
        (click.Abort(), 130),
        (click.ClickException("no"), 8),
    ],
)
def test_a_command_that_fails_midway_has_complete_output(
    failure: BaseException,
    exit_status: int,
    form: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = counting(failing(failure))
    monkeypatch.setattr(main.cli, "get_command", lambda *_: command)
    outcome = run_kdump(["count", "--output", form], tmp_path)
    assert outcome.exit_status == exit_status
    header, *found, end = all_objects(outcome.stdout)
    assert header == {**HEADER, "command": "count"}
    assert [each["number"] for each in found] == list(range(5001))
    assert end == {"type": "end", "exit_status": exit_status}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_stopped_command_has_complete_output(form: str) -> None:
    done = counted(form, "signal.raise_signal(signal.SIGTERM)")
    assert done.returncode == 128 + signal.SIGTERM
    assert len(objects(done.stdout)) == 5001
    assert all_objects(done.stdout)[-1] == {"type": "end", "exit_status": done.returncode}


@pytest.mark.slow
def test_the_output_of_a_killed_command_has_no_end() -> None:
    done = counted("jsonl", "signal.raise_signal(signal.SIGKILL)")
    whole_lines, _, _ = done.stdout.rpartition("\n")
    assert all_objects(whole_lines + "\n")[-1]["type"] == "number"


@pytest.mark.parametrize("form", FORMS)
def test_a_directory_in_use_is_refused_with_complete_output(form: str, log_dir: Path) -> None:
    with held_elsewhere(log_dir):
        outcome = run_kdump(["recover", str(log_dir), "--output", form], log_dir)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert objects(outcome.stdout) == []
