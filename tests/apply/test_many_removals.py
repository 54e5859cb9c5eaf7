"""Removing files of many partitions in parallel leaves the same files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.freeing import ALL_IS_OLD, EVERY_TOPIC, logs_of, run, second_partition
from builders.trees import contents_of
from builders.verified import END_OFFSET, LogModel
from kdump.formats import names


@pytest.mark.slow
def test_segments_of_many_partitions_are_removed_like_those_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = LogModel().write(tmp_path / "logs").parent
    second_partition(root, "payments-0", {names.REPLICATION_OFFSET_CHECKPOINT: END_OFFSET})
    copy = root.with_name("copy")
    shutil.copytree(root, copy)

    run("retain", root, *EVERY_TOPIC, *ALL_IS_OLD)
    monkeypatch.setattr("kdump.apply.journal_replay.MANY_REMOVALS", 2)
    run("retain", copy, *EVERY_TOPIC, *ALL_IS_OLD)

    assert logs_of(copy / "payments-0") == [END_OFFSET]
    assert contents_of(copy) == contents_of(root)
