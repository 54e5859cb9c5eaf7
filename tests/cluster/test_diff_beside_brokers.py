"""Replicas of running brokers are compared without a false difference, whatever these do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from builders import busy_broker
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.in_process import Outcome, run_kdump
from builders.kraft_cluster import KraftCluster
from builders.lock_holder import complaints
from builders.memory import in_memory
from builders.ports import HOST

pytestmark = [ON_BOTH_KAFKAS, pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

ROUNDS: Final = 4
TOPICS: Final = [f"--topic={name}" for name in busy_broker.TOPICS]


def compared(folder: Path, *args: str) -> tuple[Outcome, list[dict[str, Any]]]:
    outcome = run_kdump(["diff", "--output", "jsonl", *args], folder)
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    return outcome, [row for row in rows if row["type"] == "partition"]


def test_replicas_of_running_brokers_have_no_difference(
    cluster_jvms: ClusterJvms, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    nodes = [Node(1, ("d1",), "broker,controller"), Node(2, ("d2",), "broker")]
    with in_memory(tmp_path_factory.mktemp("busy")) as folder:
        cluster = KraftCluster(
            cluster_jvms, folder / "disks", nodes, properties=ALONE | busy_broker.PROPERTIES
        )
        cluster.format()
        disks = list(map(str, cluster.log_dirs()))
        with cluster.running():
            with busy_broker.busy(f"{HOST}:{nodes[0].client_port}", replicas=2):
                time.sleep(3)
                for number in range(ROUNDS):
                    words = ["--records"] if number % 2 else []
                    outcome, rows = compared(tmp_path, *words, *disks)
                    assert complaints(outcome) == []
                    different = [row for row in rows if row["verdict"] != "same"]
                    assert [row for row in different if row["is_assigned"] is not False] == []
                    assert outcome.exit_status == 0
                    assert sum(row["same_records"] or 0 for row in rows) > 0
            cluster.stop(2)
            outcome, rows = compared(tmp_path, *TOPICS, *disks)
            assert complaints(outcome) == []
            assert {row["verdict"] for row in rows} <= {"same", "prefix"}, rows
            assert all(row["right_only_records"] == 0 for row in rows)
