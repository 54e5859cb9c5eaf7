"""``--topic`` and ``--partition`` are on every command over partitions, and select alike."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import offset_checkpoint
from builders.trees import contents_of
from builders.verified import END_OFFSET, LogModel
from kdump.cli.command_group import command_names
from kdump.cli.main import cli
from kdump.formats import names

WITHOUT_PARTITIONS: Final = {
    *("checkpoint set", "completion", "dump-segment", "explain", "identity", "query", "undo"),
    *(
        "metadata apply",
        "metadata collect",
        "metadata plan",
        "metadata rebuild",
        "quorum reset",
        "quorum show",
    ),
    *("backup create", "backup list", "backup check", "backup prune"),
    *("rewind", "transplant"),
}
"""Commands that name files, lines, runs, codes or SQL conditions instead, or are about whole
directories."""

OF_RECORDS: Final = {"metadata show", "metadata history", "metadata diff"}
"""Commands that select partitions in the cluster's metadata, whether they are on disk or not."""

OF_SEVERAL_DIRECTORIES: Final = {"backup restore", "copy", "move"}
"""Commands that need another directory: see their own tests."""

OF_A_PAGE: Final = {"report"}
"""Commands that write no rows but a page: see their own tests."""

UNTIL_STOPPED: Final = {"serve"}
"""Commands that do not end on their own: see their own tests."""

WITHOUT_ROWS: Final = {"checkpoint rebuild", "groups", "undelete"}
"""Commands that say nothing about these partitions."""

KNOWN: Final = ("--config", "cleanup.policy=delete", "--config", "retention.ms=1", "--dry-run")
COMPACTED: Final = ("--config", "cleanup.policy=compact", "--dry-run")
OUT: Final = "OUT"
OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "compact": COMPACTED,
    "delete-records": ("--before", "1", "--high-watermark", "end", *KNOWN),
    "erase": ("--key-prefix", "k", "--dry-run"),
    "lookup": ("--timestamp", "max"),
    "export": ("--out", OUT),
    "grep": ("",),
    "retain": KNOWN,
    "verify": (),
}
"""What a command needs besides log directories, OUT being a new file or directory; others get
``--dry-run`` if they have it."""


def commands() -> Iterator[tuple[str, click.Command]]:
    for name in command_names():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        if isinstance(command, click.Group):
            for inner, each in command.commands.items():
                yield f"{name} {inner}", each
        else:
            yield name, command


def has_option(command: click.Command, name: str) -> bool:
    return any(name in option.opts for option in command.params)


def selection_help(command: click.Command) -> dict[str, Any]:
    return {
        option.opts[0]: (option.help, option.metavar, option.multiple)
        for option in command.params
        if isinstance(option, click.Option)
        and option.opts[0] in ("--topic", "--partition")
        # Without, they are names in the target of a transplant.
        and option.multiple
    }


RUNS: Final = {
    name: OPTIONS.get(name, ("--dry-run",) if has_option(command, "--dry-run") else ())
    for name, command in commands()
    if selection_help(command)
    and name not in OF_RECORDS | OF_SEVERAL_DIRECTORIES | OF_A_PAGE | UNTIL_STOPPED
}


def test_every_command_over_partitions_has_both_options_with_the_same_help() -> None:
    found = {name: selection_help(command) for name, command in commands()}
    assert {name for name, options in found.items() if not options} == WITHOUT_PARTITIONS
    (same,) = {tuple(sorted(options.items())) for options in found.values() if options}
    assert len(same) == 2


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    root = LogModel().write(tmp_path / "logs").parent
    for name in ("orders-1", "payments-0"):
        shutil.copytree(root / "orders-0", root / name)
    lines = offset_checkpoint({(name, 0): 12 for name in ("orders", "payments")})
    (root / names.RECOVERY_POINT_CHECKPOINT).write_bytes(lines)
    return root


def directories(command: str, log_dir: Path) -> list[Path]:
    """Return the paths to give: also a copy if a command compares directories."""
    if command != "diff":
        return [log_dir]
    return [log_dir, shutil.copytree(log_dir, log_dir.parent / "copy")]


def options(command: str, log_dir: Path) -> list[str]:
    """Return what a command needs besides log directories."""
    out = str(log_dir.parent / "out")
    return [out if option == OUT else option for option in RUNS[command]]


def run(command: str, *args: str | Path) -> Outcome:
    return run_kdump([*command.split(), *map(str, args)], Path.cwd())


@pytest.mark.parametrize("command", RUNS)
def test_every_command_works_on_the_selected_partitions_only(command: str, log_dir: Path) -> None:
    selection = ("--topic", "pay*", "--topic", "orders", "--partition", "pay*-0")

    outcome = run(
        *(command, *options(command, log_dir), *selection, "--output", "jsonl"),
        *directories(command, log_dir),
    )

    rows = objects(outcome.stdout)
    if command == "info":
        assert [row["partitions"] for row in rows] == [1]
    elif command not in WITHOUT_ROWS:
        about_partitions = [row for row in rows if "partition" in row and row["type"] != "finding"]
        assert {row["topic"] for row in about_partitions} == {"payments"}


@pytest.mark.parametrize("command", RUNS)
def test_a_selection_that_matches_nothing_is_a_usage_error_with_the_same_message(
    command: str, log_dir: Path
) -> None:
    before = contents_of(log_dir)
    paths = directories(command, log_dir)
    named = " ".join(map(str, paths))

    asked = options(command, log_dir)
    outcome = run(command, *asked, "--topic=Orders", "--partition=*-7", *paths)

    message = (
        f"no partition in {named} matches --topic Orders --partition '*-7': list them with"
        f" 'kdump ls {named}'"
    )
    assert message in outcome.stderr.decode()
    assert (outcome.exit_status, outcome.stdout) == (16, b"")
    assert contents_of(log_dir) == before


@pytest.mark.parametrize("command", ["info", "ls", "rebuild-index", "resolve", "verify"])
def test_a_partition_given_by_path_must_match_too(command: str, log_dir: Path) -> None:
    path = log_dir / "orders-0"
    assert run(command, *RUNS[command], "--topic", "payments", path).exit_status == 16
    assert run(command, *RUNS[command], "--topic", "orders", path).exit_status in (0, 1)


def test_the_help_of_a_partition_glob_without_a_number_says_what_a_name_is(log_dir: Path) -> None:
    outcome = run("recover", "--dry-run", "--partition", "orders", log_dir)
    assert b"a partition's name is TOPIC-PARTITION" in outcome.stderr


def test_rebuilding_some_checkpoint_lines_keeps_those_of_other_partitions(log_dir: Path) -> None:
    path = log_dir / names.RECOVERY_POINT_CHECKPOINT
    path.write_bytes(offset_checkpoint({("orders", 0): 99, ("gone", 0): 5, ("payments", 0): 99}))

    run("checkpoint rebuild", "--topic", "payments", "--topic", "gone", log_dir)

    assert path.read_bytes() == offset_checkpoint({("orders", 0): 99, ("payments", 0): END_OFFSET})


def test_an_unreadable_checkpoint_is_not_rebuilt_partially(log_dir: Path) -> None:
    (log_dir / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"malformed")
    before = contents_of(log_dir)

    outcome = run("checkpoint rebuild", "--topic", "payments", log_dir)

    assert b"setting a line would lose all others" in outcome.stderr
    assert outcome.exit_status == 8
    assert contents_of(log_dir) == before
