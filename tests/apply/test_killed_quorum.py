"""A killed ``kdump quorum reset`` is finished or undone, and Kafka never loads anything between."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.freeing import run
from builders.java_server import JavaServer
from builders.killed_process import KillableKdump, changes_of
from builders.trees import contents_of
from kdump.cli import main

METADATA: Final = "__cluster_metadata-0"
RESET: Final = ("quorum", "reset", "--voter=1002@h:1", "--now=2026-11-22T10:00:00Z")
BEFORE: Final = "1883 2"
AFTER: Final = "1001883 1002"
"""End and epoch of the log."""


@pytest.fixture
def original(fixtures: Path, tmp_path: Path) -> Path:
    """Copy the disk of a real controller."""
    return shutil.copytree(fixtures / "states" / "clean" / "c1002", tmp_path / "c1002")


def killed(original: Path, killable: KillableKdump) -> Iterator[Path]:
    """Yield copies of a directory after runs that were killed before changes to the disk."""
    log_dir = original.with_name("killed")
    shutil.copytree(original, log_dir)
    count = changes_of(lambda: main.run([*RESET, str(log_dir)]))
    for at in range(count):
        shutil.rmtree(log_dir)
        shutil.copytree(original, log_dir)
        assert killable.run_and_kill([*RESET, log_dir], at) == -signal.SIGKILL
        yield log_dir


@pytest.mark.slow
def test_the_command_can_be_run_again_or_undone(original: Path, killable: KillableKdump) -> None:
    whole = shutil.copytree(original, original.with_name("whole"))
    assert run(*RESET, whole).exit_status == 0
    expected, before = contents_of(whole / METADATA), contents_of(original)
    for log_dir in killed(original, killable):
        copy = shutil.copytree(log_dir, log_dir.with_name("copy"))
        assert run(*RESET, log_dir).exit_status == 0
        assert contents_of(log_dir / METADATA) == expected
        is_begun = any(copy.glob(".kdump-*.appl*"))
        assert run("undo", copy).exit_status == (0 if is_begun else 8)
        if is_begun:
            assert contents_of(copy) == before
        else:
            assert contents_of(copy / METADATA) == contents_of(original / METADATA)
        shutil.rmtree(copy)


@pytest.mark.differential
def test_kafka_loads_the_old_metadata_or_the_new(
    original: Path, killable: KillableKdump, java_classpath: str
) -> None:
    with JavaServer(java_classpath, "MetadataServer") as server:
        found = [
            server.ask_words(["load", str(log_dir / METADATA)])["end"]
            for log_dir in killed(original, killable)
        ]
    assert set(found) == {BEFORE, AFTER}
    assert found == sorted(found, key=[BEFORE, AFTER].index)
