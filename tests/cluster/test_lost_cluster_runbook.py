"""The runbook for consumers of a lost cluster, from its first line to a consuming client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_disks import KILLED, ClusterDisks
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import Node
from builders.cluster_story import GROUPS
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.kraft_cluster import KraftCluster
from builders.ports import HOST
from builders.runbook import commands_of, words_of

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

RUNBOOK: Final = commands_of("lost-cluster-consumers")
GROUP: Final = "classic"
LONG: Final = {
    "offsets.retention.minutes": "1000000",
    "producer.id.expiration.ms": "2000000000",
    "transactional.id.expiration.ms": "2000000000",
}
"""What step 7 raises."""

Committed = dict[str, dict[str, int]]
"""Committed offsets by group and partition."""


@pytest.fixture(scope="module")
def disks(cluster_disks: ClusterDisks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the disks of a cluster that was killed."""
    return cluster_disks.copy(KILLED, tmp_path_factory.mktemp("lost") / "disks")


@pytest.fixture(scope="module")
def committed(cluster_disks: ClusterDisks) -> Committed:
    """Return what the groups had committed when their cluster was killed."""
    groups = cluster_disks.said["groups"]
    return {
        name: {partition: row[0] for partition, row in groups[name]["offsets"].items()}
        for name in GROUPS
    }


def offsets_of(cluster_disks: ClusterDisks, which: str) -> dict[str, int]:
    return {
        f"{topic}-{row['partition']}": row[which]
        for topic, what in cluster_disks.said["topics"].items()
        for row in what["partitions"]
    }


@pytest.fixture(scope="module")
def ends(cluster_disks: ClusterDisks) -> dict[str, int]:
    """Return the end offset of each partition when the cluster was killed."""
    return offsets_of(cluster_disks, "end")


@pytest.fixture(scope="module")
def behind(committed: Committed, ends: dict[str, int]) -> str:
    """Return a partition that the group has begun to read."""
    return next(name for name, offset in committed[GROUP].items() if 0 < offset < ends[name])


@pytest.fixture(scope="module")
def names(disks: Path, committed: Committed, behind: str) -> dict[str, str]:
    """Return what stands for the names in the runbook."""
    (log,) = (disks / "b1-d1" / behind).glob("*.log")
    return {
        "/mnt/b1/orders-0/00000000000000000000.log": str(log),
        "/mnt/b1": str(disks / "b1-d1"),
        "/mnt/b2": f"{disks}/b2-d1 {disks}/b2-d2",
        "/mnt/b3": str(disks / "b3-d1"),
        "billing": GROUP,
        "orders-0": behind,
        "-offset 25": f"-offset {committed[GROUP][behind]}",
    }


def command(start: str) -> str:
    """Return the command of the runbook that begins, or ends, with these words."""
    (found,) = (line for line in RUNBOOK if line.startswith(start) or line.endswith(start))
    return found


def printed(line: str, names: dict[str, str]) -> str:
    """Run a command of the runbook; return what it prints."""
    outcome = run_kdump(words_of(line.partition(" > ")[0], names)[1:], Path.cwd())
    assert outcome.exit_status == 0, outcome.stderr
    return outcome.stdout.decode()


@pytest.fixture(scope="module")
def offsets_csv(names: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that step 6 writes."""
    path = tmp_path_factory.mktemp("offsets") / "offsets.csv"
    path.write_text(printed(command("kdump groups --output reset-csv"), names))
    return path


def test_the_directories_are_shown(names: dict[str, str], cluster_disks: ClusterDisks) -> None:
    shown = printed(command("kdump info"), names)
    assert re.findall(r"Clean shutdown: +(\w+)", shown) == ["no", "no", "no", "yes"]
    assert cluster_disks.said["cluster_id"] in shown


def test_the_offsets_of_all_groups_are_shown(names: dict[str, str], committed: Committed) -> None:
    shown = printed(command("kdump groups /mnt/b1 /mnt/b2 /mnt/b3"), names)
    rows = [line.split() for line in shown.splitlines()]
    found: Committed = {name: {} for name in committed}
    for row in rows:
        if len(row) > 8 and row[0] in found and row[2].isdigit():
            found[row[0]][f"{row[1]}-{row[2]}"] = int(row[3])
    assert found == committed


def test_lag_is_counted_to_the_ends_of_logs_that_were_killed(
    cluster_disks: ClusterDisks, disks: Path, committed: Committed, ends: dict[str, int]
) -> None:
    """Their high watermarks are old; a leader that starts again has all that was acknowledged."""
    nodes = [disks / name for node in cluster_disks.brokers for name in node.disks]
    outcome = run_kdump(["groups", "--output", "jsonl", *map(str, nodes)], Path.cwd())
    found: Committed = {name: {} for name in committed}
    for row in objects(outcome.stdout):
        if row["type"] == "offset":
            found[row["group"]][f"{row['topic']}-{row['partition']}"] = row["lag"]
    assert found == {
        group: {name: ends[name] - offset for name, offset in of.items()}
        for group, of in committed.items()
    }


def test_offsets_in_open_transactions_and_their_transactions_are_named(
    names: dict[str, str],
) -> None:
    shown = printed(command("kdump groups /mnt/b1 /mnt/b2 /mnt/b3"), names)
    assert "77 pending in an open transaction" in shown
    assert re.search(r"(?m)^open +.*Ongoing", printed(command("kdump txns"), names))


def test_members_are_shown(names: dict[str, str]) -> None:
    shown = printed(command("kdump groups --members"), names)
    assert re.search(r"(?m)^classic +consumer-classic-\d", shown)


def test_the_records_that_a_group_missed_are_printed(
    names: dict[str, str], committed: Committed, behind: str, ends: dict[str, int]
) -> None:
    assert f" {committed[GROUP][behind]} " in printed(command("kdump lookup"), names)
    shown = printed(command("kdump dump-segment"), names)
    offsets = [int(each) for each in re.findall(r"(?m)^\| offset: (\d+)", shown)]
    assert offsets[0] == committed[GROUP][behind]
    assert offsets[-1] == ends[behind] - 1


def reset(clients: ClusterClients, node: Node, path: Path, groups: str = "--all-groups") -> None:
    """Run both commands of step 6."""
    names = {
        "HOST:PORT": f"{HOST}:{node.client_port}",
        "offsets.csv": str(path),
        "--all-groups": groups,
    }
    for last in ("--dry-run", "--execute"):
        name, *words = words_of(command(last), names)
        clients.run_tool(name, *words)


def committed_now(said: dict[str, Any]) -> Committed:
    return {
        name: {partition: row[0] for partition, row in said["groups"][name]["offsets"].items()}
        for name in GROUPS
    }


def test_the_offsets_move_to_a_new_cluster_and_a_consumer_goes_on(
    offsets_csv: Path,
    committed: Committed,
    ends: dict[str, int],
    cluster_disks: ClusterDisks,
    cluster_jvms: ClusterJvms,
    case_folder: Path,
) -> None:
    node = Node(1, ("new",), "broker,controller")
    alone = {"offsets.topic.replication.factor": "1", "default.replication.factor": "1"}
    cluster = KraftCluster(cluster_jvms, case_folder, [node], properties=alone)
    cluster.format()
    with cluster.running() as clients:
        clients.open_producer("mirror")
        for topic, what in cluster_disks.said["topics"].items():
            if topic.startswith("__"):
                continue
            clients.create_topic(topic, len(what["partitions"]), replicas=1)
            for row in what["partitions"]:
                pairs = [("key", "value")] * row["end"]
                clients.send("mirror", (topic, row["partition"]), pairs)

        reset(clients, node, offsets_csv, " ".join(f"--group {each}" for each in GROUPS))

        assert committed_now(clients.describe(GROUPS)) == {
            group: {name: min(offset, ends[name]) for name, offset in of.items()}
            for group, of in committed.items()
        }
        topics = {name.rpartition("-")[0] for name in committed[GROUP]}
        read = {name: end for name, end in ends.items() if name.rpartition("-")[0] in topics}
        missed = sum(end - committed[GROUP].get(name, 0) for name, end in read.items())
        clients.join("new member", GROUP, topics, missed, "classic")
        assert committed_now(clients.describe(GROUPS))[GROUP] == read


def test_brokers_on_these_disks_have_the_offsets_and_can_reset_them(
    offsets_csv: Path,
    committed: Committed,
    ends: dict[str, int],
    cluster_disks: ClusterDisks,
    cluster_jvms: ClusterJvms,
    case_folder: Path,
) -> None:
    folder = cluster_disks.copy(KILLED, case_folder / "disks")
    cluster = KraftCluster(cluster_jvms, folder, cluster_disks.nodes, properties=LONG)
    with cluster.running() as clients:
        assert committed_now(clients.describe(GROUPS)) == committed
        clients.wait_for_state("Empty", *GROUPS)
        starts = offsets_of(cluster_disks, "start")
        for group in GROUPS:
            clients.commit_offsets(group, {("orders", 0): 1})

        reset(clients, cluster.nodes[1], offsets_csv)

        assert committed_now(clients.describe(GROUPS)) == {
            group: {name: max(starts[name], min(offset, ends[name])) for name, offset in of.items()}
            | ({} if "orders-0" in of else {"orders-0": 1})
            for group, of in committed.items()
        }
