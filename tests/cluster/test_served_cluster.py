"""``kdump serve`` over killed disks: administrators are told what the cluster told them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_disks import KILLED, ClusterDisks
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_story import GROUPS, STREAMS
from builders.serving import RunningServer, opened
from kdump.cli.options.config_options import read_properties

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow, ON_BOTH_KAFKAS]


@pytest.fixture(scope="module")
def server(cluster_disks: ClusterDisks) -> Iterator[RunningServer]:
    disks = [disk for node in cluster_disks.nodes for disk in node.disks]
    folder = cluster_disks.folder / KILLED
    node_id = min(node.node_id for node in cluster_disks.nodes)
    properties = read_properties(folder / f"{node_id}.properties")
    with opened(*(folder / disk for disk in disks), server_properties=properties) as running:
        yield running


@pytest.fixture(scope="module")
def found(server: RunningServer, cluster_jvms: ClusterJvms) -> dict[str, Any]:
    """What Kafka's ``Admin`` is told."""
    clients = ClusterClients(cluster_jvms)
    clients.ask("connect", bootstrap=server.address)
    return clients.describe(GROUPS)


@pytest.mark.parametrize(
    "what", ["cluster_id", "groups", "transactions", "acls", "scram", "quotas", "features"]
)
def test_the_answers_are_those_of_the_cluster(
    what: str, found: dict[str, Any], cluster_disks: ClusterDisks
) -> None:
    assert found[what] == cluster_disks.said[what]


def test_the_topology_of_a_streams_group_is_described(found: dict[str, Any]) -> None:
    topology = found["groups"][STREAMS]["topology"]
    assert topology["subtopologies"] == [["0", ["expanded"], []]]


def test_topics_differ_in_the_leader_alone(
    found: dict[str, Any], cluster_disks: ClusterDisks
) -> None:
    told = _without_leaders(cluster_disks.said["topics"])
    # Broker 3 had stopped, and what was said of its own partition was said before.
    assert told["lonely"]["partitions"][2]["isr"] == [3]
    told["lonely"]["partitions"][2]["isr"] = []
    assert _without_leaders(found["topics"]) == told


def _without_leaders(topics: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {**topic, "partitions": [{**each, "leader": None} for each in topic["partitions"]]}
        for name, topic in topics.items()
    }


def test_the_node_that_stands_for_all_has_its_own_configuration(
    found: dict[str, Any], cluster_disks: ClusterDisks
) -> None:
    (node,) = found["brokers"]
    others = {f"BROKER {each}" for each in cluster_disks.said["brokers"] if each != node}
    said = cluster_disks.said["configs"]
    assert found["configs"] == {name: said[name] for name in said.keys() - others}


def test_all_configurations_are_described_as_the_cluster_did(
    found: dict[str, Any], cluster_disks: ClusterDisks
) -> None:
    (node,) = found["brokers"]
    others = {f"BROKER {each}" for each in cluster_disks.said["brokers"] if each != node}
    said = cluster_disks.said["whole_configs"]
    assert found["whole_configs"].keys() == said.keys() - others
    for resource, configs in found["whole_configs"].items():
        assert configs == said[resource], resource


def test_the_node_that_stands_for_all_has_all_partitions(
    found: dict[str, Any], cluster_disks: ClusterDisks
) -> None:
    assert _partitions(found["log_dirs"]) >= _partitions(cluster_disks.said["log_dirs"])


def _partitions(log_dirs: dict[str, dict[str, list[str]]]) -> set[str]:
    return {name for node in log_dirs.values() for names in node.values() for name in names}
