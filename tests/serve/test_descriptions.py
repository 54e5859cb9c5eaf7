"""What administrators ask without changing anything, as the living cluster answered."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from builders.serving import RunningServer, framed, opened, received
from kdump.formats.uuids import format_uuid
from kdump.state.metadata.metadata_entities import DelegationToken
from kdump.state.metadata.metadata_image import EntityKind

CHANGED_LATER = ("div-", "lag-", "tx-div")


@pytest.fixture(scope="module")
def said(fixtures: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (fixtures / "states" / "clean" / "manifest.json").read_text()
    )
    return found


# ---- Transactions ----


def test_transactions_are_listed(dead_cluster: RunningServer, said: dict[str, Any]) -> None:
    found = dead_cluster.ask(66, 1, state_filters=[], producer_id_filters=[]).transaction_states
    assert {(each.transactional_id, each.producer_id) for each in found} == {
        (each["transactionalId"], each["producerId"]) for each in said["transactions_listed"]
    }


def test_transactions_are_listed_by_state_and_producer(dead_cluster: RunningServer) -> None:
    ongoing = dead_cluster.ask(66, 0, state_filters=["Ongoing", "Odd"], producer_id_filters=[])
    assert {each.transactional_id for each in ongoing.transaction_states} == {
        "ongoing-1",
        "ongoing-offsets",
    }
    assert ongoing.unknown_state_filters == ("Odd",)
    one = dead_cluster.ask(66, 0, state_filters=[], producer_id_filters=[1008])
    assert [each.transactional_id for each in one.transaction_states] == ["ongoing-1"]


def test_transactions_are_described(dead_cluster: RunningServer, said: dict[str, Any]) -> None:
    ids = [
        name
        for name, each in said["transactions"].items()
        if not name.startswith(CHANGED_LATER) and "start_time_ms" in each
    ]
    found = dead_cluster.ask(65, 0, transactional_ids=[*ids, "nobody"]).transaction_states
    assert found[-1].error_code is ErrorCode.transactional_id_not_found
    for each in found[:-1]:
        described = said["transactions"][each.transactional_id]
        assert each.transaction_state == described["state"]
        assert each.producer_id == described["producer_id"]
        assert each.producer_epoch == described["producer_epoch"]
        assert each.transaction_timeout.total_seconds() * 1000 == described["timeout_ms"]
        started = each.transaction_start_time.timestamp() * 1000
        assert round(started) == described["start_time_ms"]
        assert sorted(
            f"{topic.topic}-{number}" for topic in each.topics for number in topic.partitions
        ) == sorted(described["partitions"])


def test_a_transaction_that_never_began_has_no_start(dead_cluster: RunningServer) -> None:
    with dead_cluster.connect() as connection:
        connection.sendall(framed(65, 0, transactional_ids=["tx-init-only"]))
        assert b"\x06Empty\0\0\xea\x60" + b"\xff" * 8 in received(connection)


@pytest.mark.slow
def test_producers_are_described(dead_cluster: RunningServer, said: dict[str, Any]) -> None:
    for name, topic in said["topics"].items():
        if name.startswith(CHANGED_LATER):
            continue
        numbers = [int(number) for number in topic["partitions"]]
        asked = [{"name": name, "partition_indexes": numbers}]
        (found,) = dead_cluster.ask(61, 0, topics=asked).topics
        for each in found.partitions:
            described = topic["partitions"][str(each.partition_index)]["producers"]
            answered = {
                (
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.current_txn_start_offset,
                )
                for producer in each.active_producers
            }
            expected = {
                (
                    producer["producer_id"],
                    producer["producer_epoch"],
                    producer["last_sequence"],
                    producer["last_timestamp"],
                    producer.get("txn_start_offset", -1),
                )
                for producer in described
            }
            assert expected <= answered, (name, each.partition_index)
            # The others had expired in memory, a day after their last record.
            day_ago = said["taken_ms"] - 86_400_000
            assert all(timestamp < day_ago for *_, timestamp, _ in answered - expected)


# ---- The metadata ----


def acls(server: RunningServer, **filters: Any) -> list[tuple[Any, ...]]:
    usual: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    found = server.ask(29, 3, **{**usual, **filters}).resources
    return sorted(
        (resource.resource_name, each.principal, each.host)
        for resource in found
        for each in resource.acls
    )


def test_acls_are_described(dead_cluster: RunningServer, said: dict[str, Any]) -> None:
    assert acls(dead_cluster) == sorted(
        (each["pattern"]["name"], each["entry"]["principal"], each["entry"]["host"])
        for each in said["acls"]
    )


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"resource_type_filter": 3}, ["g-classic"]),
        ({"principal_filter": "User:bob"}, ["pay"]),
        ({"permission_type": 3}, ["orders", "pay"]),
        ({"operation": 4}, ["pay"]),
        ({"host_filter": "10.0.0.1"}, ["pay"]),
        ({"resource_name_filter": "payments", "pattern_type_filter": 2}, ["pay"]),
        ({"resource_name_filter": "payments", "pattern_type_filter": 1}, []),
        ({"resource_name_filter": "orders", "pattern_type_filter": 3}, ["orders"]),
        ({"resource_name_filter": "orders", "pattern_type_filter": 4}, []),
    ],
)
def test_acls_are_filtered(
    filters: dict[str, Any], names: list[str], dead_cluster: RunningServer
) -> None:
    assert [name for name, _, _ in acls(dead_cluster, **filters)] == names


def quotas(
    server: RunningServer, *components: dict[str, Any], strict: bool = False
) -> list[dict[str, str | None]]:
    found = server.ask(48, 1, components=components, strict=strict)
    return sorted(
        ({each.entity_type: each.entity_name for each in entry.entity} for entry in found.entries),
        key=len,
    )


def test_quotas_are_described(dead_cluster: RunningServer) -> None:
    user, default = {"user": None}, {"client-id": "app", "user": "alice"}
    assert quotas(dead_cluster) == [user, default]
    any_user = {"entity_type": "user", "match_type": 2, "match": None}
    assert quotas(dead_cluster, any_user) == [user, default]
    assert quotas(dead_cluster, any_user, strict=True) == [user]
    alice = {"entity_type": "user", "match_type": 0, "match": "alice"}
    assert quotas(dead_cluster, alice) == [default]
    by_default = {"entity_type": "user", "match_type": 1, "match": None}
    assert quotas(dead_cluster, by_default) == [user]
    (entry,) = dead_cluster.ask(48, 1, components=[alice], strict=False).entries
    assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 1048576.0)]


def test_users_are_described(dead_cluster: RunningServer, said: dict[str, Any]) -> None:
    found = dead_cluster.ask(50, 0, users=None).results
    assert {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in found
    } == {"alice": [(1, 4096)], "bob": [(2, 8192)]}
    asked = [{"name": name} for name in ("bob", "bob", "nobody")]
    assert [each.error_code for each in dead_cluster.ask(50, 0, users=asked).results] == [
        ErrorCode.duplicate_resource,
        ErrorCode.resource_not_found,
    ]


def test_no_partition_is_reassigned(dead_cluster: RunningServer) -> None:
    assert dead_cluster.ask(46, 0, topics=None).topics == ()


QUORUM = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]


def test_the_quorum_is_described(dead_cluster: RunningServer, said: dict[str, Any]) -> None:
    lived = said["quorum"]
    answer = dead_cluster.ask(55, 2, topics=QUORUM)
    (found,) = answer.topics[0].partitions
    for replicas, name in ((found.current_voters, "voters"), (found.observers, "observers")):
        assert {each.replica_id: format_uuid(each.replica_directory_id) for each in replicas} == {
            each["replicaId"]: each["replicaDirectoryId"] for each in lived[name]
        }
        assert all(each.log_end_offset >= lived["highWatermark"] for each in replicas)
    assert found.leader_epoch >= lived["leaderEpoch"]
    assert found.leader_id in {each.replica_id for each in found.current_voters}
    assert found.high_watermark >= lived["highWatermark"]
    assert {
        each.node_id: [(one.name, one.host, one.port) for one in each.listeners]
        for each in answer.nodes
    } == {
        each["nodeId"]: [(one["listener"], one["host"], one["port"]) for one in each["endpoints"]]
        for each in lived["nodes"].values()
    }


def test_voters_whose_disks_are_not_here_have_no_end(fixtures: Path) -> None:
    disks = fixtures / "states" / "clean"
    with opened(disks / "b1-d1", disks / "c1001") as server:
        (found,) = server.ask(55, 0, topics=QUORUM).topics[0].partitions
    ends = {each.replica_id: each.log_end_offset for each in found.current_voters}
    assert ends.pop(1001) > 0
    assert ends == {1002: -1, 1003: -1}
    assert [each.replica_id for each in found.observers] == [1]


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [{"topic_name": "orders", "partitions": [{"partition_index": 0}]}],
        [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 1}]}],
        [*QUORUM, *QUORUM],
    ],
)
def test_only_the_metadata_has_a_quorum(
    topics: list[dict[str, Any]], dead_cluster: RunningServer
) -> None:
    found = dead_cluster.ask(55, 2, topics=topics)
    assert (found.error_code, found.topics) == (ErrorCode.unknown_topic_or_partition, ())


def token_ids(server: RunningServer, *owners: str) -> list[str]:
    asked = [{"principal_type": "User", "principal_name": each} for each in owners]
    return [each.token_id for each in server.ask(41, 3, owners=asked).tokens]


def test_delegation_tokens_are_described_without_secrets(dead_cluster: RunningServer) -> None:
    image = dead_cluster.cluster.image
    assert image is not None
    token = DelegationToken("t-1", "User:ann", "User:bob", ("User:c:d",), 10, 30, 20)
    other = DelegationToken("t-2", "User:eve", "User:eve", (), 10, 30, 20)
    tokens = {each.token_id: each for each in (token, other)}
    known = replace(image, entities={**image.entities, EntityKind.TOKEN: tokens})
    cluster = dataclasses.replace(dead_cluster.cluster, image=known)  # noqa: TID251 - not of a struct
    with RunningServer(cluster, dead_cluster.notices, []) as server:
        found, _ = server.ask(41, 3, owners=None).tokens
        assert token_ids(server, "ann", "nobody") == ["t-1"]
        assert token_ids(server, "bob") == token_ids(server, "c:d") == ["t-1"]
        assert token_ids(server) == []
        assert [each.token_id for each in server.ask(41, 1, owners=None).tokens] == ["t-1", "t-2"]
    assert (found.principal_type, found.principal_name) == ("User", "ann")
    assert found.token_requester_principal_name == "bob"
    assert [(each.principal_type, each.principal_name) for each in found.renewers] == [
        ("User", "c:d")
    ]
    assert (found.issue_timestamp, found.expiry_timestamp, found.max_timestamp) == (10, 20, 30)
    assert found.hmac == b""


def test_log_directories_are_described(dead_cluster: RunningServer, said: dict[str, Any]) -> None:
    found = {each.log_dir: each for each in dead_cluster.ask(35, 4, topics=None).results}
    for name, partitions in said["log_dirs"].items():
        disk = name.partition(":")[2]
        (own,) = (each for path, each in found.items() if path.endswith(disk))
        here = {
            f"{topic.name}-{each.partition_index}"
            for topic in own.topics
            for each in topic.partitions
        }
        kept = {each for each in partitions if not each.startswith(("__", *CHANGED_LATER))}
        assert here >= kept


def test_without_metadata_its_answers_are_not_offered(server: RunningServer) -> None:
    found = server.ask(18, 0)
    offered = {each.api_key for each in found.api_keys}
    assert offered.isdisjoint({29, 32, 41, 46, 48, 50, 55, 74})
    assert {1, 3, 16, 35, 61, 65, 66} <= offered
