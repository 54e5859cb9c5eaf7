"""Shells complete kdump's commands and options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from kdump.cli.command_group import command_names
from kdump.cli.commands.completion import SHELLS
from kdump.cli.main import cli, run
from kdump.errors import ExitStatus

HOW_EACH_SHELL_ONLY_PARSES = {"bash": "-n", "zsh": "-n", "fish": "--no-execute"}


def completions(*words: str) -> set[str]:
    """Return completions of the last word; "file" or "dir" where the shell completes paths."""
    asked = ShellComplete(cli, {}, "kdump", "_KDUMP_COMPLETE")
    offered = asked.get_completions(list(words[:-1]), words[-1])
    return {item.value if item.type == "plain" else f"<{item.type}>" for item in offered}


@pytest.fixture(autouse=True)
def _shells_have_a_home_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fish makes directories in the home that it finds, whatever it is asked to do."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.delenv(f"XDG_{kind}_HOME", raising=False)


@pytest.fixture
def kdump_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``kdump`` a command of the shells that a test starts."""
    program = tmp_path / "kdump"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kdump "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def test_commands_are_completed() -> None:
    assert completions("") == set(command_names())
    assert completions("dump") == {"dump-segment"}


def test_options_are_completed() -> None:
    assert completions("dump-segment", "--print") == {"--print-data-log"}


@pytest.mark.parametrize("command", ["dump-segment", "ls"])
def test_output_formats_are_completed(command: str) -> None:
    assert completions(command, "--output", "js") == {"json", "jsonl"}


def test_files_are_left_to_the_shell() -> None:
    assert completions("dump-segment", "") == {"<file>"}
    assert completions("dump-segment", "--files", "") == {"<file>"}


@pytest.mark.parametrize("command", ["ls", "info"])
def test_directories_are_left_to_the_shell(command: str) -> None:
    assert completions(command, "") in ({"<dir>"}, {"<file>"})


@pytest.mark.parametrize("option", ["--key-decoder-class", "--value-decoder-class"])
def test_names_of_kafkas_decoder_classes_are_completed(option: str) -> None:
    offered = completions("dump-segment", option, "org.apache.kafka.tools.api.L")
    assert offered == {"org.apache.kafka.tools.api.LongDecoder"}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_can_read_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert run(["completion", shell]) == ExitStatus.SOUND
    script = capsys.readouterr().out
    subprocess.run([shell, HOW_EACH_SHELL_ONLY_PARSES[shell]], input=script, text=True, check=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.usefixtures("kdump_on_path")
def test_bash_completes_a_command() -> None:
    session = """
        eval "$(kdump completion bash)"
        COMP_WORDS=(kdump dump) COMP_CWORD=1
        _kdump_completion kdump
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", session], capture_output=True, text=True, check=True)
    assert done.stdout == "dump-segment\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("kdump dump", ["dump-segment"]),
        ("kdump dump-segment --print", ["--print-data-log"]),
        ("kdump ls --output js", ["json", "jsonl"]),
        ("kdump metadata his", ["history"]),
        ("kdump ls log", ["logs/"]),
    ],
)
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.usefixtures("kdump_on_path")
def test_fish_completes(typed: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    session = f"kdump completion fish | source; complete --do-complete '{typed}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", session],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    # With a description after it, where the shell's version shows one.
    assert [line.split()[0] for line in done.stdout.splitlines()] == expected


def test_another_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == ExitStatus.USAGE
    assert "csh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("kdump dump", "kdump dump*segment"),
        ("kdump dump-segment --print", "*--print*data-log"),
        ("kdump ls --output ta", "*--output ta*ble"),
        ("kdump metadata his", "*metadata his*tory"),
        ("kdump ls log", "*ls log*s*/"),
    ],
)
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.usefixtures("kdump_on_path")
def test_zsh_completes(typed: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    session = f"""
        zmodload zsh/zpty
        zpty typed zsh -f -i
        zpty -w typed 'autoload -U compinit; compinit -u -D; eval "$(kdump completion zsh)"'
        zpty -n -w typed $'{typed}\\t'
        zpty -r -m typed shown '*{shown}*' && print completed
    """
    done = subprocess.run(
        ["zsh", "-f", "-c", session],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "completed\n"
