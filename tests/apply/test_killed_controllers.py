"""Killed ``quorum reset`` and ``metadata apply`` are finished or undone.

Kafka never loads a state between the old and the new one.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from builders.freeing import run
from builders.image_plans import plan_of
from builders.java_server import JavaServer
from builders.killed_process import KillableKdump, changes_of
from builders.samples import at_some_or_all, moments_of
from builders.trees import contents_of
from kdump.cli import main
from kdump.formats.names import CLUSTER_METADATA_PARTITION, PartitionState
from kdump.log.partition import read_partition
from kdump.state.metadata.cluster_plan import PlannedController
from kdump.state.metadata.cluster_plan_json import encode_plan
from kdump.state.metadata.metadata_replay import CopyReplay, MetadataPoint
from kdump.storage.local_disk import local

METADATA: Final = "__cluster_metadata-0"
DIRECTORY_ID: Final = "Y2dW8O41RR6_pKmks-3sKg"
RESET: Final = ("quorum", "reset", "--voter=1002@h:1", "--now=2026-11-22T10:00:00Z")
BEFORE: Final = "1883 2"
AFTER: Final = "1001883 1002"
"""End and epoch of the log."""


@pytest.fixture
def original(fixtures: Path, quick_path: Path) -> Path:
    """Copy the disk of a real controller."""
    return shutil.copytree(fixtures / "states" / "clean" / "c1002", quick_path / "c1002")


@pytest.fixture
def apply(original: Path) -> tuple[str, ...]:
    """Write a plan, and return the command that applies it."""
    partition = read_partition(
        local(original / METADATA), CLUSTER_METADATA_PARTITION, PartitionState.LIVE
    )
    image = CopyReplay(partition, pytest.fail).image_at(MetadataPoint())
    controller = PlannedController(1002, "h", 1, DIRECTORY_ID)
    plan = plan_of(
        image, [controller], cluster_id="kdumpQuorumHeldOutAAAA", offset=1_001_883, epoch=1002
    )
    file = original.with_name("plan.json")
    file.write_bytes(b"".join(encode_plan(plan)))
    return ("metadata", "apply", str(file))


def killed(
    original: Path, args: Sequence[str], killable: KillableKdump, *, is_all: bool
) -> Iterator[Path]:
    """Yield copies of a directory after runs that were killed before changes to the disk."""
    log_dir = original.with_name("killed")
    shutil.copytree(original, log_dir)
    count = changes_of(lambda: main.run([*args, str(log_dir)]))
    for at in moments_of(range(count), is_all=is_all):
        shutil.rmtree(log_dir)
        shutil.copytree(original, log_dir)
        assert killable.run_and_kill([*args, log_dir], at) == -signal.SIGKILL
        yield log_dir


def require_finished_or_undone(
    original: Path, args: Sequence[str], killable: KillableKdump, *, is_all: bool
) -> None:
    whole = shutil.copytree(original, original.with_name("whole"))
    assert run(*args, whole).exit_status == 0
    expected, before = of_kafka(whole), contents_of(original)
    for log_dir in killed(original, args, killable, is_all=is_all):
        copy = shutil.copytree(log_dir, log_dir.with_name("copy"))
        assert run(*args, log_dir).exit_status == 0
        assert of_kafka(log_dir) == expected
        is_begun = any(copy.glob(".kdump-*.appl*"))
        assert run("undo", copy).exit_status == (0 if is_begun else 8)
        if is_begun:
            assert contents_of(copy) == before
        else:
            assert of_kafka(copy) == before
        shutil.rmtree(copy)


def of_kafka(log_dir: Path) -> dict[str, bytes]:
    """The files that Kafka reads, or would read if they were there."""
    return {
        name: data
        for name, data in contents_of(log_dir).items()
        if not name.startswith(".kdump-") and "-delete/" not in name and name != ".lock"
    }


@pytest.mark.slow
@at_some_or_all
def test_a_reset_can_be_run_again_or_undone(
    original: Path, killable: KillableKdump, is_all: bool
) -> None:
    require_finished_or_undone(original, RESET, killable, is_all=is_all)


@pytest.mark.slow
@at_some_or_all
@pytest.mark.parametrize("state", ["old", "empty", "formatted"])
def test_a_plan_can_be_applied_again_or_undone(
    state: str, original: Path, apply: tuple[str, ...], killable: KillableKdump, is_all: bool
) -> None:
    if state == "empty":
        shutil.rmtree(original)
        original.mkdir()
    elif state == "formatted":
        shutil.rmtree(original / METADATA)
    require_finished_or_undone(original, apply, killable, is_all=is_all)


@pytest.mark.slow
@at_some_or_all
def test_an_empty_directory_is_formatted_last(
    original: Path, apply: tuple[str, ...], killable: KillableKdump, is_all: bool
) -> None:
    shutil.rmtree(original)
    original.mkdir()
    whole = shutil.copytree(original, original.with_name("whole"))
    run(*apply, whole)
    for log_dir in killed(original, apply, killable, is_all=is_all):
        # Without meta.properties, no controller starts.
        if (log_dir / "meta.properties").exists():
            assert contents_of(log_dir / METADATA) == contents_of(whole / METADATA)


@pytest.mark.differential
@at_some_or_all
@pytest.mark.parametrize("command", ["quorum reset", "metadata apply"])
def test_kafka_loads_the_old_metadata_or_the_new(
    command: str,
    original: Path,
    apply: tuple[str, ...],
    killable: KillableKdump,
    java_classpath: str,
    is_all: bool,
) -> None:
    args = RESET if command == "quorum reset" else apply
    with JavaServer(java_classpath, "MetadataServer") as server:
        found = [
            server.ask_words(["load", str(log_dir / METADATA)])["end"]
            for log_dir in killed(original, args, killable, is_all=is_all)
        ]
    assert set(found) == {BEFORE, AFTER}
    assert found == sorted(found, key=[BEFORE, AFTER].index)
