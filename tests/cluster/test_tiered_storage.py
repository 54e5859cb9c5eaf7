"""A real cluster with tiered storage: kdump reads what a consumer read, and rebuilds it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from builders.cluster_disks import copy_disks
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import Node, controller
from builders.kraft_cluster import KraftCluster
from builders.rebuilding import Rebuilding
from builders.tiered_cluster import PARTITIONS, consumed, properties, write_tiered_disks
from builders.tiered_fixture import TieredFixture, records_by_partition

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

RETENTION_S = 5
"""Brokers delete from remote storage each 0.1 s."""
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


def test_a_rebuilt_cluster_has_the_records_in_remote_storage(
    fixtures: Path, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    folder = case_folder / "disks"
    copy_disks(fixtures / "tiered", folder)
    said = json.loads((folder / "consumed.json").read_text())
    nodes = [controller(201), Node(1, ("b1",), "broker"), Node(2, ("b2",), "broker")]
    cluster = KraftCluster(cluster_jvms, folder, nodes, properties=properties(folder / "remote"))
    rebuilding = Rebuilding(cluster)
    rebuilding.rebuild()
    with rebuilding.running() as clients:
        clients.wait_for_leaders(*{topic for topic, _ in PARTITIONS})
        time.sleep(RETENTION_S)
        found = consumed(clients)
    for level in ("read_uncommitted", "read_committed"):
        assert found[level] == said[level]
    for name, offsets in said["offsets"].items():
        for word in ("earliest", "latest-tiered", "latest"):
            assert found["offsets"][name][word] == offsets[word], (name, word)
