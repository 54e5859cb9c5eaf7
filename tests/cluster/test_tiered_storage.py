"""A real cluster with tiered storage: kdump reads what a consumer read."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.cluster_jvms import ClusterJvms
from builders.tiered_cluster import PARTITIONS, write_tiered_disks
from builders.tiered_fixture import TieredFixture, records_by_partition

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

TOPICS = sorted({topic for topic, _ in PARTITIONS})


def test_records_are_those_of_a_consumer_after_local_retention(
    cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    write_tiered_disks(cluster_jvms, case_folder / "disks")
    disks = TieredFixture(case_folder / "disks")
    gone = [name for name, said in disks.offsets.items() if said["earliest-local"] > 0]
    assert len(gone) > len(PARTITIONS) // 2
    for level in ("read_uncommitted", "read_committed"):
        options = {"remote": str(disks.remote), "kafka.isolation.level": level}
        assert records_by_partition(TOPICS, disks.leader, **options) == disks.consumed(level)
