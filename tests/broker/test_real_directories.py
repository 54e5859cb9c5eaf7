"""Recovering the directories of a killed broker gives what its next start gave.

Only the leader epochs differ: the restarted broker elected leaders, and so wrote a new epoch for
every partition.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.archives import CRASHES
from builders.recover_for_differ import recover
from builders.trees import of_present_partitions
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats.names import CLUSTER_METADATA_TOPIC, LEADER_EPOCH_CHECKPOINT
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.storage.local_disk import local

pytestmark = pytest.mark.slow

DAY_MS = 24 * 60 * 60 * 1000
RESTARTED_MS = 1_795_240_020_000
"""About when the broker restarted: a day after some producers' last batch."""

OWN_SETTINGS = {"crash-lz4": IndexSettings(1024), "leftover": IndexSettings(1000)}
"""Topics whose configuration sets ``index.interval.bytes``, and the value."""


def files_of(directory: Path) -> dict[str, bytes]:
    """Read all files of all partitions except the cluster's metadata; omit the epochs."""
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in directory.glob("*-*/*")
        if not path.parent.name.startswith(CLUSTER_METADATA_TOPIC)
        and not path.name.endswith(".deleted")
        and path.name != LEADER_EPOCH_CHECKPOINT
    }


@pytest.mark.parametrize(("before", "after"), CRASHES)
def test_every_file_equals_the_real_brokers(
    fixtures: Path, tmp_path: Path, before: str, after: str
) -> None:
    ours = tmp_path / "logs"
    shutil.copytree(fixtures / "out" / before, ours)
    recover(ours, OWN_SETTINGS, now_ms=RESTARTED_MS, producer_id_expiration_ms=DAY_MS)

    expected, found = files_of(fixtures / "out" / after), files_of(ours)

    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.parametrize(("before", "after"), CRASHES)
def test_the_checkpoints_equal_the_real_brokers(
    fixtures: Path, tmp_path: Path, before: str, after: str
) -> None:
    ours = tmp_path / "logs"
    shutil.copytree(fixtures / "out" / before, ours)
    recover(ours, OWN_SETTINGS)

    real, made = (
        read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY).checkpoints
        for path in (fixtures / "out" / after, ours)
    )

    assert made.recovery_points == of_present_partitions(real.recovery_points, ours)
    assert made.log_start_offsets == of_present_partitions(real.log_start_offsets, ours)
