"""The runbook for partitions without a leader, from the first line to brokers that lead."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_disks import KILLED, ClusterDisks
from builders.cluster_jvms import ClusterJvms
from builders.damaged_replicas import empty_logs
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.kraft_cluster import KraftCluster
from builders.ports import HOST
from builders.runbook import commands_of, words_of

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

COMPARE, _, _, _, ELECT = commands_of("which-replica-leads")[:5]
LOST: Final = 1
"""A broker whose disk is lost. Broker 2 is the other one that was in sync."""
DAMAGED: Final = ("orders-0", "expanded-1")
"""Partitions whose records broker 2 has lost; those of broker 3 are older, and whole."""
BEHIND: Final = 3
NOBODY: Final = -1


def fence(cluster: KraftCluster, controllers: list[int]) -> None:
    """Let the controllers find out that only broker 3 is left, which was not in sync.

    The runbook says that no topic may elect it by itself.
    """
    with cluster.running(*controllers, BEHIND) as clients:
        clients.configure("TOPIC", "unclean", unclean_leader_election_enable="false")
        for name in DAMAGED:
            topic, _, number = name.rpartition("-")
            clients.wait_for_leader((topic, int(number)), NOBODY)


def loaded_ends(rows: list[dict[str, Any]]) -> dict[tuple[str, int, int], int]:
    """Return where replicas end after a start, by topic, number and broker."""
    return {
        (each["topic"], each["partition"], each[f"{side}_node_id"]): each[
            f"{side}_loaded_end_offset"
        ]
        for each in rows
        if each["type"] == "partition" and each["verdict"] != "missing"
        for side in ("left", "right")
    }


def test_the_replicas_that_lose_least_lead(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    folder = cluster_disks.copy(KILLED, case_folder / "case")
    left = [node for node in cluster_disks.nodes if node.node_id != LOST]
    shutil.rmtree(folder / "b1-d1")
    cluster = KraftCluster(cluster_jvms, folder, left)
    controllers = [node.node_id for node in cluster.controllers]
    fence(cluster, controllers)
    for name in DAMAGED:
        (path,) = folder.glob(f"b2-*/{name}")
        empty_logs(path, random.Random(1))

    names = {
        "CONTROLLER": str(folder / "c101"),
        "DIR...": " ".join(map(str, cluster.log_dirs())),
        "elect.json": str(folder / "elect.json"),
    }
    compare = words_of(COMPARE, names)
    rows = objects(run_kdump([*compare[1:], "--output", "jsonl"], folder).stdout)
    elections = [each for each in rows if each["type"] == "election"]
    chosen = {f"{each['topic']}-{each['partition']}": each["elected_node_id"] for each in elections}
    assert {chosen[name] for name in DAMAGED} == {BEHIND}
    assert set(chosen.values()) == {2, BEHIND}

    for node_id, file in sorted({(each["elected_node_id"], each["file"]) for each in elections}):
        address = f"{HOST}:{cluster.nodes[node_id].client_port}"
        tool, *words = words_of(ELECT, {"HOST:9092": address, "elect-NODE.json": file})
        with cluster.running(*controllers, node_id) as clients:
            clients.run_tool(tool, *words)
            for each in elections:
                if each["elected_node_id"] == node_id:
                    clients.wait_for_leader((each["topic"], each["partition"]), node_id)

    ends = loaded_ends(rows)
    with cluster.running() as clients:
        said = clients.describe()["topics"]
        for each in elections:
            topic, number, node_id = each["topic"], each["partition"], each["elected_node_id"]
            row = said[topic]["partitions"][number]
            assert row["leader"] == node_id, each
            if not topic.startswith("__") and (topic, number, node_id) in ends:
                assert row["end"] == ends[topic, number, node_id], each
