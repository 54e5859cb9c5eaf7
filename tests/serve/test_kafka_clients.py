"""Kafka's own clients and tools over the disks of a dead cluster."""

from __future__ import annotations

import hashlib
import json
import shlex
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ClusterJvms
from builders.serving import CLUSTER, RunningServer, opened
from builders.serving_securely import acl, admission, client_properties
from serve.test_recipes import tool_recipes

pytestmark = pytest.mark.differential

CHANGED_LATER: Final = ("div-", "lag-")
TEXTS: Final = ("orders", "txn-a", "txn-hang", "txn-pending", "codec-zstd", "codec-snappy", "users")
"""Topics whose keys and values the clients read as texts."""
VERSIONS: Final = [
    pytest.param("java_classpath", id="4.3.1"),
    pytest.param("newest_classpath", id="4.4.0"),
]


OLDER_TOOLS: Final = pytest.mark.parametrize("clients", ["java_classpath"], indirect=True)
"""Marks a test of tools that run in a JVM of tests of 4.3.1 only."""


@pytest.fixture(scope="module")
def said(fixtures: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (fixtures / "states" / "clean" / "manifest.json").read_text()
    )
    return found


@pytest.fixture(scope="module")
def running(fixtures: Path) -> Iterator[RunningServer]:
    with opened(*(fixtures / "states" / "clean" / name for name in CLUSTER)) as server:
        yield server


@pytest.fixture(scope="module", params=VERSIONS)
def clients(
    request: pytest.FixtureRequest,
    running: RunningServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClusterClients]:
    """Clients of Kafka that are connected to the server."""
    classpath = request.getfixturevalue(request.param)
    with ClusterJvms(classpath, tmp_path_factory.mktemp("serve-jvms")) as jvms:
        found = ClusterClients(jvms)
        found.ask("connect", bootstrap=running.address)
        yield found


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_the_consumer_reads_the_same_records(
    level: str, clients: ClusterClients, said: dict[str, Any]
) -> None:
    partitions = [
        (topic, int(number)) for topic in TEXTS for number in said["topics"][topic]["partitions"]
    ]
    found = clients.read(*partitions, isolation=level)
    for topic, number in partitions:
        expected = said["topics"][topic]["partitions"][str(number)][level]
        rows = found[f"{topic}-{number}"]
        assert len(rows) == expected["count"], (topic, number)
        # What is no text cannot be told from the replacement that the clients decode.
        if rows and not any("\ufffd" in str(row) for row in rows):
            assert _fingerprint(rows) == expected["sha256"], (topic, number)


def test_admin_lists_the_same_offsets(clients: ClusterClients, said: dict[str, Any]) -> None:
    every = [
        (topic, int(number), partition)
        for topic, described in said["topics"].items()
        if not topic.startswith(CHANGED_LATER)
        for number, partition in described["partitions"].items()
    ]
    for special, name in (("latest", "latest"), ("earliest", "earliest"), ("max", "max_timestamp")):
        (found,) = clients.list_offsets(
            [[(topic, number, special) for topic, number, _ in every]], "READ_UNCOMMITTED"
        )
        assert [row[:2] for row in found] == [
            (each[name]["offset"], each[name]["timestamp"]) for _, _, each in every
        ], name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_of_a_group_reads_and_commits(protocol: str, clients: ClusterClients) -> None:
    group = f"g-new-{protocol}"
    clients.join("member", group, ["orders"], 20, protocol)
    clients.wait_for_state("Stable", group)
    clients.ask("leave", member="member")
    clients.wait_for_state("Empty", group)


def test_the_tools_print_what_the_cluster_was(
    clients: ClusterClients, running: RunningServer, said: dict[str, Any]
) -> None:
    servers = ("--bootstrap-server", running.address)
    groups = clients.run_tool("kafka-consumer-groups.sh", *servers, "--list")
    consumers = {name for name, each in said["groups"].items() if each["type"] != "Share"}
    assert consumers & set(groups)
    described = clients.run_tool(
        "kafka-consumer-groups.sh", *servers, "--describe", "--group", "g-classic"
    )
    offsets = said["groups"]["g-classic"]["offsets"]
    lines = [line.split() for line in described if "g-classic" in line]
    assert {f"{words[1]}-{words[2]}": int(words[3]) for words in lines if words[3] != "-"} == {
        key: each["committed_offset"] for key, each in offsets.items()
    }


@OLDER_TOOLS
@pytest.mark.parametrize("recipe", tool_recipes())
def test_the_recipes_of_the_tools_are_right(
    recipe: str, clients: ClusterClients, running: RunningServer, said: dict[str, Any]
) -> None:
    partitions = said["topics"]["orders"]["partitions"]
    count = sum(each["read_uncommitted"]["count"] for each in partitions.values())
    tool, *words = shlex.split(recipe.replace("127.0.0.1:9092", running.address))
    if tool == "kafka-console-consumer.sh":
        words += ["--max-messages", str(count)]  # it would wait for more
    lines = clients.run_tool(tool, *words)
    match tool:
        case "kafka-console-consumer.sh":
            assert len(lines) >= count
        case "kafka-consumer-groups.sh":
            assert any(line.split()[:1] == ["g-classic"] for line in lines)
        case "kafka-topics.sh":
            assert all(any(f"Topic: {each}\t" in line for line in lines) for each in said["topics"])
        case _:
            assert {line.rpartition(":")[0] for line in lines} == {
                f"orders:{number}" for number in partitions
            }


@OLDER_TOOLS
def test_the_tools_describe_the_quorum(
    clients: ClusterClients, running: RunningServer, said: dict[str, Any]
) -> None:
    lines = clients.run_tool(
        "kafka-metadata-quorum.sh",
        *("--bootstrap-server", running.address, "describe", "--replication"),
    )
    rows = [line.split() for line in lines[1:] if line.strip()]
    for kind, statuses in (("voters", {"Leader", "Follower"}), ("observers", {"Observer"})):
        assert {(row[0], row[1]) for row in rows if row[-1] in statuses} == {
            (str(each["replicaId"]), each["replicaDirectoryId"]) for each in said["quorum"][kind]
        }


def test_the_admin_comes_in_by_tls_and_sees_what_acls_allow(
    clients: ClusterClients, running: RunningServer, said: dict[str, Any], tmp_path: Path
) -> None:
    allowed = (acl("User:alice", "READ", "TOPIC:txn", pattern="PREFIXED"),)
    secure = RunningServer(running.cluster, running.notices, [], admission(tmp_path, allowed))
    with secure:
        seen = {
            user: set(clients.ask("topics", configs=client_properties(secure, tmp_path, user)))
            for user in ("alice", "root")
        }
    assert seen["root"] >= {each for each in said["topics"] if not each.startswith("__")}
    assert seen["alice"] == {each for each in seen["root"] if each.startswith("txn")}
    assert seen["alice"]


@OLDER_TOOLS
def test_the_console_consumer_reads_by_tls(
    clients: ClusterClients, running: RunningServer, said: dict[str, Any], tmp_path: Path
) -> None:
    allowed = (
        acl("User:alice", "READ", "TOPIC:orders"),
        acl("User:alice", "READ", "GROUP:console-", pattern="PREFIXED"),
    )
    partitions = said["topics"]["orders"]["partitions"].values()
    count = sum(each["read_uncommitted"]["count"] for each in partitions)
    secure = RunningServer(running.cluster, running.notices, [], admission(tmp_path, allowed))
    with secure:
        config = tmp_path / "alice.properties"
        properties = client_properties(secure, tmp_path, "alice")
        config.write_text("\n".join(f"{key}={value}" for key, value in properties.items()))
        lines = clients.run_tool(
            "kafka-console-consumer.sh",
            *("--bootstrap-server", secure.address, "--topic", "orders", "--from-beginning"),
            *("--command-config", str(config)),
            *("--max-messages", str(count)),
        )
    assert len(lines) >= count


def _fingerprint(rows: list[list[Any]]) -> str:
    digest = hashlib.sha256()
    for offset, timestamp, *texts in rows:
        key, value = ("-" if text is None else b64encode(text.encode()).decode() for text in texts)
        digest.update(f"{offset}\t{key}\t{value}\t{timestamp}\n".encode())
    return digest.hexdigest()
