"""A killed ``metadata rebuild`` is run again or undone, although it changes two directories."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from builders.freeing import run
from builders.killed_process import KillableKdump, changes_of
from builders.samples import at_some_or_all, moments_of
from builders.trees import contents_of
from kdump.cli import main

METADATA = "__cluster_metadata-0"


def of_kafka(folder: Path) -> dict[str, bytes]:
    return {
        name: data
        for name, data in contents_of(folder).items()
        if "/.kdump-" not in name and not name.endswith("/.lock")
    }


def topics_of(log_dir: Path) -> dict[str, str]:
    (metadata,) = (
        each
        for each in json.loads(run("metadata", "show", "--output", "json", log_dir).stdout)
        if each["type"] == "metadata"
    )
    return {topic["name"]: topic["id"] for topic in metadata["topics"]}


@pytest.mark.slow
@at_some_or_all
def test_a_rebuild_can_be_run_again_or_undone(
    fixtures: Path, quick_path: Path, killable: KillableKdump, is_all: bool
) -> None:
    """A former combined node's copy, the only one, moves aside after the controller is written."""
    original, case = quick_path / "original", quick_path / "case"
    shutil.copytree(fixtures / "states" / "clean" / "c1001", original / "node")
    (original / "ctrl").mkdir()
    topics = topics_of(original / "node")
    before = of_kafka(original)
    words = ["metadata", "rebuild", str(case / "node"), "--into", str(case / "ctrl")]
    words += ["--controller", "7@localhost:9093"]
    shutil.copytree(original, case)
    count = changes_of(lambda: main.run(words))
    for at in moments_of(range(count), is_all=is_all):
        shutil.rmtree(case)
        shutil.copytree(original, case)
        assert killable.run_and_kill(words, at) == -signal.SIGKILL
        # The only copy is not moved before its records are in the new snapshot.
        if not (case / "node" / METADATA).exists():
            assert list((case / "ctrl" / METADATA).glob("*.checkpoint"))
        undone = shutil.copytree(case, quick_path / "undone")
        for name in ("ctrl", "node"):
            if any((undone / name).glob(".kdump-*.appl*")):
                assert run("undo", undone / name).exit_status == 0
        assert of_kafka(undone) == before
        shutil.rmtree(undone)
        assert run(*words).exit_status == 0
        assert topics_of(case / "ctrl") == topics
        assert not (case / "node" / METADATA).exists()
