"""Frequent commands start fast: heavy packages are imported only when they are needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from builders.batches import batches
from builders.log_directories import time_index, write_log_directory, write_partition
from kdump.cli.command_group import command_names
from kdump.formats import producer_snapshot
from kdump.formats.record_batch import decode_header
from kdump.processes.isolation import python_path

HEAVY: Final = frozenset(
    {
        "cramjam",
        "crc32c",
        "importlib.metadata",
        "lz4",
        "numpy",
        "pyarrow",
        "pyspark",
        "rich",
        "snappy",
        "zstandard",
    }
)


def loaded_after(statements: Iterable[str]) -> set[str]:
    """Run ``statements`` in a new interpreter; return the names of all imported modules."""
    program = "\n".join([*statements, "import sys", "print(*sys.modules)"])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_command_line_starts_without_heavy_packages() -> None:
    assert not HEAVY & loaded_after(["import kdump.cli.main"])


def test_the_command_line_starts_without_importing_a_command() -> None:
    modules = {f"kdump.cli.commands.{name.replace('-', '_')}" for name in command_names()}
    assert not modules & loaded_after(["import kdump.cli.main"])


def test_an_interrupt_while_modules_are_imported_prints_no_trace() -> None:
    program = [
        "import os, signal, sys",
        # As Python itself does, unless whoever started the tests ignores the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        "class Interrupting:",
        "    def find_spec(self, name, *_):",
        "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)",
        "sys.meta_path.insert(0, Interrupting())",
        "from kdump.program import main",
        "main()",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(program)], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_help_and_completion_of_every_command_need_no_heavy_packages() -> None:
    show_help = [
        "import click, kdump.cli.main as main",
        f"for name in {command_names()!r}:",
        "    command = main.cli.get_command(None, name)",
        "    command.get_help(click.Context(command))",
    ]
    assert not HEAVY & loaded_after(show_help)


def test_the_version_is_printed_without_reading_the_packages_metadata() -> None:
    asked = ["import kdump.cli.main as main", "assert main.run(['--version']) == 0"]
    assert "importlib.metadata" not in loaded_after(asked)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a valid partition."""
    path = tmp_path_factory.mktemp("startup") / "logs"
    write_log_directory(path, clean=True, high_watermarks={("orders", 0): 6})
    log = batches(2)
    last = decode_header(log[-1])
    write_partition(
        path / "orders-0",
        {0: b"".join(log)},
        time_indexes={0: time_index((last.max_timestamp, last.last_offset))},
        others={f"{6:020d}.snapshot": producer_snapshot.encode([])},
    )
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["lookup", "--offset", "4"],
        ["lookup", "--timestamp", "max"],
        ["lookup", "--timestamp", "latest", "--isolation-level", "read_committed"],
        ["ls"],
        ["info"],
        ["checkpoint", "show"],
    ],
    ids=" ".join,
)
def test_commands_that_read_a_few_bytes_import_no_heavy_package(
    words: list[str], log_dir: Path
) -> None:
    asked = [
        "import kdump.cli.main as main",
        f"assert main.run({[*words, str(log_dir), '--output', 'json']!r}) == 0",
    ]
    heavy = HEAVY | {
        "multiprocessing",
        "kdump.apply",
        "kdump.broker",
        "kdump.check",
        "kdump.target",
    }
    assert not heavy & loaded_after(asked)


def test_commands_that_use_arrow_do_not_import_pandas(log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')")
    out = str(tmp_path / "out")
    done = subprocess.run(
        [sys.executable, "-m", "kdump", "export", "--engine", "local", "--out", out, str(log_dir)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), python_path()])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


NOT_FOR_SOUND_LOGS: Final = frozenset(
    {
        "hashlib",
        "importlib.metadata",
        "kdump.formats.internal_topics",
        "kdump.repair.salvage.salvage",
        "kdump.state.metadata.metadata_image",
        "logging",
        "multiprocessing",
        "pyspark",
    }
)
NOT_FOR_VERIFYING: Final = frozenset(
    {
        "kdump.apply",
        "kdump.broker.loader.loader",
        "kdump.check.log_0_7",
        "kdump.check.partition_statistics",
        "kdump.formats.schema",
        "kdump.repair.verdict.outcome_verdict",
        "kdump.target.virtual_directory",
        "pyarrow",
        "tempfile",
    }
)
NOT_FOR_LOADING: Final = frozenset(
    {"concurrent.futures", "kdump.formats.schema", "kdump.scan.walk_0_7", "pyarrow", "tempfile"}
)
NOT_FOR_QUESTIONS: Final = frozenset(
    {"kdump.broker.loader.loader", "kdump.check.findings", "kdump.repair.verdict.verdict"}
)


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        (["verify"], NOT_FOR_SOUND_LOGS | NOT_FOR_VERIFYING),
        (["recover", "--dry-run"], NOT_FOR_SOUND_LOGS | NOT_FOR_LOADING),
        (["groups"], NOT_FOR_SOUND_LOGS | NOT_FOR_QUESTIONS),
        (["txns"], NOT_FOR_SOUND_LOGS | NOT_FOR_QUESTIONS),
    ],
    ids=["verify", "recover", "groups", "txns"],
)
def test_a_sound_directory_needs_no_module_for_rare_cases(
    words: list[str], unneeded: frozenset[str], log_dir: Path
) -> None:
    asked = ["import kdump.cli.main as main", f"main.run({[*words, str(log_dir)]!r})"]
    assert not unneeded & loaded_after(asked)
