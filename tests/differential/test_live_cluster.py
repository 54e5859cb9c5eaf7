"""What kdump says of a cluster's disks is what ``Admin`` said while the cluster ran."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from builders import cluster_story
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import three_brokers, three_controllers
from builders.freeing import of_type, rows_of, run
from builders.json_answers import objects
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory
from builders.ports import HOST
from kdump.jobs.lookup import Found, LookupAnswer, LookupRequest, Question, lookup
from kdump.log.directory import read_log_directory
from kdump.log.selection import EVERYTHING
from kdump.log.special_times import SPECIAL_BY_WORD, IsolationLevel
from kdump.storage.local_disk import local

pytestmark = [pytest.mark.differential, pytest.mark.soak]

SEED: Final = 20_261_122
SPECIAL: Final = (
    *("earliest", "latest", "max"),
    *("earliest-local", "latest-tiered", "earliest-pending-upload"),
)
WITHOUT_TIME: Final = frozenset({"earliest", "earliest-local", "latest"})
"""For these a broker gives no time."""
TIMES: Final = 8

Answers = dict[tuple[str, str, int | str], list[Any]]
"""Offset, time and leader epoch by isolation level, partition and the time asked for."""


@dataclass(frozen=True, slots=True)
class Live:
    """A cluster that was stopped, and what was said while it ran."""

    cluster: KraftCluster
    said: dict[str, Any]
    group_lines: list[list[str]]
    offsets: Answers


@pytest.fixture(scope="module")
def live(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    logs = tmp_path_factory.mktemp("cluster")
    with in_memory(logs) as folder, ClusterJvms(java_classpath, logs) as jvms:
        cluster = KraftCluster(jvms, folder, [*three_controllers(), *three_brokers()])
        cluster.format()
        with cluster.running() as clients:
            cluster_story.tell(clients, SEED, cluster.nodes[1].client_port)
            said = clients.describe(cluster_story.GROUPS)
            address = f"{HOST}:{cluster.nodes[1].client_port}"
            options = ("--bootstrap-server", address, "--describe", "--all-groups")
            lines = clients.run_tool("kafka-consumer-groups.sh", *options)
            offsets = offsets_said(cluster, said)
        yield Live(cluster, said, [line.split() for line in lines], offsets)


def partitions_of(said: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (topic, row["partition"])
        for topic, what in said["topics"].items()
        for row in what["partitions"]
    ]


def offsets_said(cluster: KraftCluster, said: dict[str, Any]) -> Answers:
    rng = random.Random(SEED)
    start_ms, end_ms = cluster_story.BASE_MS, cluster_story.BASE_MS + cluster_story.SPAN_MS
    times = [rng.randrange(start_ms - 9_000, end_ms + 9_000) for _ in range(TIMES)]
    asked: list[int | str] = [*SPECIAL, 0, 2**62, *times]
    partitions = partitions_of(said)
    found: Answers = {}
    for isolation in ("READ_UNCOMMITTED", "READ_COMMITTED"):
        rounds = [[(*partition, time) for partition in partitions] for time in asked]
        for time, answers in zip(
            asked, cluster.clients.list_offsets(rounds, isolation), strict=True
        ):
            for (topic, number), answer in zip(partitions, answers, strict=True):
                found[isolation, f"{topic}-{number}", time] = list(answer)
    return found


def test_groups_and_their_offsets_are_those_of_the_coordinators(live: Live) -> None:
    rows = rows_of("groups", *live.cluster.log_dirs())

    expected = {
        name: [each["type"].lower(), each["protocol_type"]]
        for name, each in live.said["groups"].items()
    }
    found = of_type(rows, "group")
    assert {row["group"]: [row["group_type"], row["protocol_type"]] for row in found} == expected
    committed: dict[str, dict[str, Any]] = {name: {} for name in cluster_story.GROUPS}
    for row in of_type(rows, "offset"):
        committed[row["group"]][f"{row['topic']}-{row['partition']}"] = [
            row["committed_offset"],
            row["leader_epoch"],
            row["metadata"],
        ]
    assert committed == {
        name: live.said["groups"][name]["offsets"] for name in cluster_story.GROUPS
    }


def test_lag_is_what_the_official_tool_says(live: Live) -> None:
    said = {
        (line[0], line[1], int(line[2])): (int(line[3]), int(line[4]), int(line[5]))
        for line in live.group_lines
        # "-" is for members without partitions, and for partitions without an offset.
        if len(line) > 6 and line[0] != "GROUP" and "-" not in line[1:6]
    }

    found = {
        (row["group"], row["topic"], row["partition"]): (
            row["committed_offset"],
            row["log_end_offset"],
            row["lag"],
        )
        for row in of_type(rows_of("groups", *live.cluster.log_dirs()), "offset")
        if row["group"] != cluster_story.STREAMS  # that tool does not show it
    }
    assert found == said
    assert {group for group, *_ in said} == {*cluster_story.GROUPS} - {cluster_story.STREAMS}


def test_offsets_of_share_groups_are_those_of_their_coordinator(live: Live) -> None:
    said = live.said["groups"]["shared"]["offsets"]
    expected = {name: what for name, what in said.items() if what is not None}

    rows = of_type(rows_of("groups", *live.cluster.log_dirs()), "share_offset")
    found = {
        f"{row['topic']}-{row['partition']}": [row["start_offset"], row["lag"]]
        for row in rows
        if row["start_offset"] is not None
    }
    assert found == expected
    assert found


@pytest.mark.parametrize("isolation", ["READ_UNCOMMITTED", "READ_COMMITTED"])
def test_times_have_the_offsets_that_the_leaders_found(isolation: str, live: Live) -> None:
    directories = [read_log_directory(local(each)) for each in live.cluster.log_dirs()]
    different = {}
    for time in {time for _, _, time in live.offsets}:
        question = Question(
            time=SPECIAL_BY_WORD[time] if isinstance(time, str) else time,
            isolation_level=IsolationLevel[isolation],
        )
        for each in lookup(LookupRequest(directories, EVERYTHING, question)):
            name = each.replica.partition.path.name
            if name == "__cluster_metadata-0":
                continue
            assert isinstance(each.answer, LookupAnswer)
            theirs = live.offsets[isolation, name, time]
            ours = as_said(each.answer.found, time)
            if ours[2] is None and each.answer.log_end_offset == 0:
                # The first leader writes down its epoch, its followers do not.
                theirs = [*theirs[:2], None]
            elif ours[0] == each.answer.log_end_offset and (ours[2] or 0) > (theirs[2] or 0):
                # A leader that was elected while the brokers stopped writes down its epoch, too.
                theirs = [*theirs[:2], ours[2]]
            if ours != theirs:
                different[name, each.replica.log_directory.path.name, time] = (ours, theirs)
    assert different == {}


def as_said(found: Found, time: int | str) -> list[Any]:
    """Return offset, time and leader epoch as ``Admin`` does."""
    if found.offset is None:
        return [-1, -1, None]
    has_time = found.record is not None and time not in WITHOUT_TIME
    time_ms = found.record.timestamp_ms if has_time and found.record is not None else -1
    return [found.offset, time_ms, found.leader_epoch]


def test_transactions_are_those_of_their_coordinators(live: Live) -> None:
    rows = rows_of("txns", *live.cluster.log_dirs())

    found = {
        row["transactional_id"]: {
            "state": row["state"],
            "producer_id": row["producer_id"],
            "producer_epoch": row["producer_epoch"],
            "partitions": sorted(row["partitions"]),
        }
        for row in of_type(rows, "transaction")
    }
    assert found == live.said["transactions"]
    assert {each["state"] for each in found.values()} == {"CompleteCommit", "Ongoing"}


def test_last_stable_offsets_are_those_of_the_leaders(live: Live) -> None:
    rows = of_type(rows_of("txns", *live.cluster.log_dirs()), "partition")
    found = {(row["topic"], row["partition"]): row["last_stable_offset"] for row in rows}
    assert found == {
        (topic, row["partition"]): row["stable"]
        for topic, what in live.said["topics"].items()
        for row in what["partitions"]
    }


@pytest.fixture(scope="module")
def metadata(live: Live) -> dict[str, Any]:
    """Return what all copies of the metadata log together say."""
    ids = [node.node_id for node in live.cluster.controllers]
    dirs = [*live.cluster.log_dirs(*ids), *live.cluster.log_dirs()]
    outcome = run("metadata", "show", "--output", "jsonl", *dirs)
    assert outcome.stderr == b""
    (found,) = objects(outcome.stdout)
    return found


def test_topics_are_those_of_the_metadata(live: Live, metadata: dict[str, Any]) -> None:
    assert {
        topic["name"]: [topic["id"], [row["replicas"] for row in topic["partitions"]]]
        for topic in metadata["topics"]
    } == {
        name: [topic["id"], [row["replicas"] for row in topic["partitions"]]]
        for name, topic in live.said["topics"].items()
    }


def test_configurations_are_those_of_the_metadata(live: Live, metadata: dict[str, Any]) -> None:
    found = {
        f"{kind.upper()} {name}": values
        for (kind, _, name), values in (
            (resource.partition(":"), values) for resource, values in metadata["configs"].items()
        )
    }
    assert found == live.said["configs"]


def test_users_and_quotas_are_those_of_the_metadata(live: Live, metadata: dict[str, Any]) -> None:
    assert {
        row["name"]: [f"{row['mechanism']} {row['iterations']}"] for row in metadata["scram"]
    } == live.said["scram"]
    assert {
        "{" + ", ".join(f"{kind}={name}" for kind, name in row["entity"].items()) + "}": row[
            "quotas"
        ]
        for row in metadata["quotas"]
    } == live.said["quotas"]
    fields = (
        *("resource_type", "resource_name", "pattern_type"),
        *("principal", "host", "operation", "permission_type"),
    )
    assert sorted([row[name] for name in fields] for row in metadata["acls"]) == sorted(
        re.findall(r"=([^=,()]+)[,)]", line) for line in live.said["acls"]
    )


def test_features_and_voters_are_those_of_the_metadata(
    live: Live, metadata: dict[str, Any]
) -> None:
    assert metadata["features"] == live.said["features"]
    assert {str(row["id"]): row["directory_id"] for row in metadata["voters"]} == live.said[
        "quorum"
    ]["voters"]
