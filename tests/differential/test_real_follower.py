"""A real follower truncates its log to where ``kdump diff`` says.

Two brokers take turns: each leads some partitions alone while the other is down, and is elected
although it is not in sync, so that their logs part, in one leader epoch or in several.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import Node, controller
from builders.cluster_story import pairs
from builders.freeing import of_type
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

TOPICS: Final = 10
BROKERS: Final = (1, 2)
PROPERTIES: Final = {
    "offsets.topic.replication.factor": "1",
    "broker.session.timeout.ms": "6000",
    "replica.fetch.backoff.ms": "100",
}
PARTITIONS: Final = [(f"parted-{number}", 0) for number in range(TOPICS)]


@pytest.fixture(scope="module")
def jvms(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterJvms]:
    with ClusterJvms(java_classpath, tmp_path_factory.mktemp("jvms")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path) as path:
        yield path


class Duo:
    """Two brokers in JVMs of their own, and a controller."""

    def __init__(self, cluster: KraftCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng

    def end(self, broker: int) -> None:
        """Stop or kill a broker."""
        if self.rng.random() < 0.5:
            self.cluster.stop(broker)
        else:
            self.cluster.kill(f"broker-{broker}")

    def elect(self, broker: int) -> None:
        self.cluster.clients.elect(self.cluster.nodes[broker], *PARTITIONS)

    def write(self, producer: str) -> None:
        """Write a few batches to each partition, or none."""
        for partition in PARTITIONS:
            for _ in range(self.rng.choice([0, 1, 1, 4])):
                some = pairs(self.rng, self.rng.randrange(1, 6))
                self.cluster.clients.send(producer, partition, some)

    def part(self) -> int:
        """Let the logs part, in several turns; return the broker that led last."""
        clients = self.cluster.clients
        clients.open_producer("safe")
        clients.open_producer("hasty", acks="1", enable_idempotence="false")
        for number, (topic, _) in enumerate(PARTITIONS):
            clients.create_topic(topic, assignment=[BROKERS[:: 1 if number % 2 else -1]])
        self.write("safe")
        first, second = self.rng.sample(BROKERS, 2)
        self.end(second)
        self.elect(first)
        self.write("hasty")
        turns = [first, second] * 3
        for leads, waits in zip(turns[1:], turns, strict=False):
            self.end(waits)
            self.cluster.start(leads, jvm=f"broker-{leads}")
            self.elect(leads)
            self.write("hasty")
            if leads == second and self.rng.random() < 0.5:
                break
        self.end(leads)
        return leads


def predicted(log_dirs: list[Path]) -> dict[str, dict[int, int]]:
    """Return to where the replicas of each partition truncate, as followers of the other.

    Several lose records, on either side.
    """
    outcome = run_kdump(
        ["diff", "--output", "jsonl", "--topic", "parted-*", *map(str, log_dirs)], Path.cwd()
    )
    rows: list[dict[str, Any]] = of_type(objects(outcome.stdout), "partition")
    for side in ("left", "right"):
        assert sum(row[f"{side}_truncates_to"] < row[f"{side}_end_offset"] for row in rows) > 2
    return {
        row["topic"]: {
            row[f"{side}_node_id"]: row[f"{side}_truncates_to"] for side in ("left", "right")
        }
        for row in rows
    }


def truncated(cluster: KraftCluster, leader: int, follower: int) -> dict[str, int]:
    """Start both brokers; return to where the follower truncated what it had loaded."""
    cluster.start(101)
    cluster.start(leader, jvm=f"broker-{leader}")
    cluster.clients.elect(cluster.nodes[leader], *PARTITIONS)
    cluster.start(follower, jvm=f"broker-{follower}")
    cluster.clients.wait_for_replicas(*(topic for topic, _ in PARTITIONS))
    ends: dict[str, int] = {}
    for line in cluster.logged(follower):
        loaded = re.search(
            r"Completed load of Log\(.*topic=(parted-\d+),.* logEndOffset=(\d+)", line
        )
        cut = re.search(r"partition=(parted-\d+)-0,.* Truncating to offset (\d+)", line)
        if loaded:
            ends[loaded[1]] = int(loaded[2])
        elif cut:
            ends[cut[1]] = min(ends[cut[1]], int(cut[2]))
    return ends


@pytest.mark.parametrize("seed", range(2))
def test_a_follower_truncates_to_where_it_was_predicted(
    seed: int, jvms: ClusterJvms, folder: Path
) -> None:
    nodes = [controller(101), *(Node(each, (f"b{each}",), "broker") for each in BROKERS)]
    cluster = KraftCluster(jvms, folder / "first", nodes, properties=PROPERTIES)
    cluster.format()
    cluster.start(101)
    for broker in BROKERS:
        cluster.start(broker, jvm=f"broker-{broker}")
    duo = Duo(cluster, random.Random(seed))
    last = duo.part()
    cluster.stop()
    (other,) = set(BROKERS) - {last}
    expected = predicted(cluster.log_dirs())
    second = folder / "second"
    subprocess.run(["cp", "-a", cluster.folder, second], check=True)

    assert truncated(cluster, last, other) == {name: of[other] for name, of in expected.items()}

    cluster.stop()
    cluster = KraftCluster(jvms, second, nodes, properties=PROPERTIES)
    assert truncated(cluster, other, last) == {name: of[last] for name, of in expected.items()}
    cluster.kill()
