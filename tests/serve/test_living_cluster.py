"""A dead cluster answers as the living one did, which its manifest has written down."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from builders.serving import RunningServer, fingerprint

CHANGED_LATER: Final = ("div-", "lag-")
"""Topics that were written to after the manifest was."""
LEVELS: Final = ("read_uncommitted", "read_committed")


@pytest.fixture(scope="module")
def said(fixtures: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (fixtures / "states" / "clean" / "manifest.json").read_text()
    )
    return found


def partitions_of(said: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for topic, described in said["topics"].items():
        if not topic.startswith(CHANGED_LATER):
            for number, partition in described["partitions"].items():
                yield topic, int(number), partition


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_consumers_get_the_same_records(
    level: str, dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    wanted = {(topic, number): each for topic, number, each in partitions_of(said)}
    found = dead_cluster.read(wanted, level)
    for key, partition in wanted.items():
        answer = partition.get(level, {"count": 0})
        assert len(found[key]) == answer["count"], key
        if answer["count"]:
            assert fingerprint(found[key]) == answer["sha256"], key


@pytest.mark.parametrize("level", LEVELS)
def test_consumers_get_the_same_offsets(
    level: str, dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    latest = "latest" if level == "read_uncommitted" else "latest_committed"
    wanted = {(topic, number): each for topic, number, each in partitions_of(said)}
    for time, name in ((-1, latest), (-2, "earliest"), (-3, "max_timestamp")):
        found = listed(dead_cluster, dict.fromkeys(wanted, time), LEVELS.index(level))
        if time != -3 or level == "read_uncommitted":
            expected = {key: tuple(each[name].values()) for key, each in wanted.items()}
            # Leaders were elected since then; only records keep their epochs.
            kept = 3 if name == "max_timestamp" else 2
            assert {key: each[:kept] for key, each in found.items()} == {
                key: (*each, -1)[:kept] for key, each in expected.items()
            }, name


def test_consumers_get_the_same_offsets_for_times(
    dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    rng = random.Random(1)
    asked, expected = {}, {}
    for topic, number, partition in partitions_of(said):
        if partition.get("for_timestamp"):
            time, *answer = rng.choice(partition["for_timestamp"])
            asked[topic, number], expected[topic, number] = time, tuple(answer)
    assert listed(dead_cluster, asked, 0) == expected


def listed(
    server: RunningServer, times: dict[tuple[str, int], int], level: int
) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Ask for one time of each partition; gives offsets, times and leader epochs."""
    topics = [
        {"name": topic, "partitions": [{"partition_index": number, "timestamp": time}]}
        for (topic, number), time in times.items()
    ]
    found = server.ask(
        2, 10, replica_id=-1, isolation_level=level, topics=topics, timeout=timedelta(0)
    )
    return {
        (topic.name, each.partition_index): (each.offset, each.timestamp, each.leader_epoch)
        for topic in found.topics
        for each in topic.partitions
    }


def test_topics_have_the_same_ids_and_replicas(
    dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    topics = {each.name: each for each in dead_cluster.ask(3, 13, topics=None).topics}
    assert said["topics"].keys() <= topics.keys()
    for name, described in said["topics"].items():
        if name.startswith(CHANGED_LATER):
            continue
        assert dead_cluster.cluster.topics[name].topic_id == topics[name].topic_id
        found = {each.partition_index: each for each in topics[name].partitions}
        assert found.keys() >= {int(number) for number in described["partitions"]}
        for number, partition in described["partitions"].items():
            assert list(found[int(number)].replica_nodes) == partition["replicas"]


def test_the_features_are_those_of_the_cluster(
    dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    found = dead_cluster.ask(18, 4, client_software_name="test", client_software_version="1")
    assert {each.name: each.max_version_level for each in found.finalized_features} == {
        name: each["maxVersionLevel"]
        for name, each in said["features"]["finalizedFeatures"].items()
    }
    assert {each.name: [each.min_version, each.max_version] for each in found.supported_features}
    supported = said["features"]["supportedFeatures"]
    assert {each.name: each.max_version for each in found.supported_features} == {
        name: each["maxVersion"] for name, each in supported.items()
    }


def test_one_node_leads_all_partitions(dead_cluster: RunningServer) -> None:
    found = dead_cluster.ask(3, 12, topics=None)
    assert [each.node_id for each in found.brokers] == [1]
    leaders = {each.leader_id for topic in found.topics for each in topic.partitions}
    assert leaders == {1}
