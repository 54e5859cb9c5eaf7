"""The runbook for a cluster without controllers, from its first line to a consuming client."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.cluster_checks import committed, ends, fingerprint
from builders.cluster_clients import ClusterClients
from builders.cluster_disks import KILLED, ClusterDisks
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import controller
from builders.cluster_story import GROUPS, STREAMS
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster
from builders.ports import HOST
from builders.rebuilding import Rebuilding
from builders.runbook import commands_of, words_of

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

RUNBOOK: Final = commands_of("all-controllers-are-gone")


DESCRIBE: Final = next(line for line in RUNBOOK if line.endswith("HOST:PORT --describe"))


def command(*parts: str) -> str:
    """Return the command of the runbook that has these parts."""
    (found,) = (line for line in RUNBOOK if all(part in line for part in parts))
    return found


def printed(line: str, names: dict[str, str], *, exit_status: int = 0) -> str:
    """Run a command of the runbook; return what it prints."""
    outcome = run_kdump(words_of(line, names)[1:], Path.cwd())
    assert outcome.exit_status == exit_status, (line, outcome.stderr)
    return outcome.stdout.decode()


def run_tool(clients: ClusterClients, line: str, names: dict[str, str]) -> str:
    """Run one of Kafka's tools as the runbook says; return what it prints."""
    name, *words = words_of(line, names)
    return "\n".join(clients.run_tool(name, *words))


def test_from_the_first_line_to_a_consuming_client(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    folder = cluster_disks.copy(KILLED, case_folder / "case")
    for each in ("c101", "c102", "c103"):
        shutil.rmtree(folder / each)
    cluster = KraftCluster(cluster_jvms, folder, [controller(101), *cluster_disks.brokers])
    new = cluster.controllers[0]
    ctrl = folder / new.disks[0]
    ctrl.mkdir()
    names = {
        "plan.json": str(folder / "plan.json"),
        "/ctrl": str(ctrl),
        "ctrl-1:9093": f"{HOST}:{new.controller_port}",
        "HOST:PORT": f"{HOST}:{cluster.nodes[1].client_port}",
    }
    for node in cluster.brokers:
        file = str(folder / f"broker-{node.node_id}.json")
        disks = " ".join(map(str, cluster.log_dirs(node.node_id)))
        words = {"/data/1 /data/2": disks, "broker-1.json": file}
        printed(command("metadata collect"), words)
        names[f"broker-{node.node_id}.json"] = file
    before = fingerprint(cluster.log_dirs())

    page = printed(command("metadata plan"), names)
    assert "unclean" in page
    printed(command("metadata apply", "--dry-run"), names)
    assert list(ctrl.iterdir()) == []
    apply = command("metadata apply", "--node-id 101 --dry-run").removesuffix(" --dry-run")
    assert apply in RUNBOOK
    printed(apply, names)
    printed(command("undo --list"), names)
    printed(command("undo /ctrl"), names)
    assert [path for path in ctrl.iterdir() if path.name != ".kdump"] == []
    printed(apply, names)
    assert fingerprint(cluster.log_dirs()) == before

    rebuilt = Rebuilding(cluster, plan=json.loads((folder / "plan.json").read_text()))
    assert rebuilt.plan["move_aside"] == []
    for node in cluster.brokers:
        disks = " ".join(map(str, cluster.log_dirs(node.node_id)))
        words = names | {"/data/1 /data/2": disks}
        outcome = run_kdump(words_of(command("recover --dry-run"), words)[1:], Path.cwd())
        assert "stray" not in outcome.stdout.decode()

    with rebuilt.running() as clients:
        clients.wait_for_replicas()
        status = run_tool(clients, command("kafka-metadata-quorum"), names)
        assert re.search(r"(?m)^LeaderId: +101$", status)
        assert run_tool(clients, command("--unavailable-partitions"), names).strip() == ""
        said, after = cluster_disks.said, clients.describe(GROUPS)
        assert ends(after, {1, 2, 3}) == ends(said, {1, 2, 3})
        assert committed(after) == committed(said)
        shown = run_tool(clients, DESCRIBE, names)
        assert f"TopicId: {said['topics']['orders']['id']}" in shown
        groups = run_tool(clients, command("kafka-consumer-groups"), names)
        assert all(group in groups for group in GROUPS if group != STREAMS)
        hanging = run_tool(clients, command("kafka-transactions"), names).splitlines()
        assert len(hanging) == 1  # the names of the columns
        record = run_tool(clients, command("kafka-console-consumer"), names)
        values = {
            row[3]
            for number in range(3)
            for row in clients.read(("orders", number))[f"orders-{number}"]
        }
        assert record.rstrip("\n") in {str(value).replace("None", "null") for value in values}
        run_tool(clients, command("PREFERRED"), names)
