"""Groups of Kafka Streams: their topology and members, for who may know all of their topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode

from builders.batches import batch, record
from builders.log_directories import write_partition
from builders.serving import RunningServer, opened
from builders.serving_securely import Connection, acl, admission
from kdump.formats.message_encoder import encode
from kdump.formats.schema import RecordType
from kdump.formats.schemas import group_coordinator as types

STREAMS_GROUP_DESCRIBE: Final = 89
GROUP: Final = "app"
READ, STATE = "orders", "app-count-changelog"
TOPOLOGY: Final = {
    "epoch": 3,
    "subtopologies": [
        {
            "subtopologyId": "0",
            "sourceTopics": [READ],
            "sourceTopicRegex": [],
            "stateChangelogTopics": [
                {
                    "name": STATE,
                    "partitions": 0,
                    "replicationFactor": 2,
                    "topicConfigs": [{"key": "cleanup.policy", "value": "compact"}],
                }
            ],
            "repartitionSinkTopics": [],
            "repartitionSourceTopics": [],
            "copartitionGroups": [],
        }
    ],
}


@pytest.fixture
def server(log_dir: Path) -> RunningServer:
    """Return a server of a directory with a group that has a topology and no members."""
    records: list[tuple[RecordType, dict[str, Any]]] = [
        (types.STREAMS_GROUP_TOPOLOGY, TOPOLOGY),
        (types.STREAMS_GROUP_METADATA, {"epoch": 5, "metadataHash": 0}),
        (types.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, {"assignmentEpoch": 4}),
    ]
    log = b"".join(
        batch([record(at, key=key_of(kind), value=value_of(kind, value))])
        for at, (kind, value) in enumerate(records)
    )
    write_partition(log_dir / "__consumer_offsets-0", {0: log})
    return opened(log_dir)


def key_of(kind: RecordType) -> bytes:
    assert kind.key is not None
    return kind.id.to_bytes(2) + encode(kind.key, {"groupId": GROUP}, 0)


def value_of(kind: RecordType, value: dict[str, Any]) -> bytes:
    return bytes(2) + encode(kind.value, value, 0)


ASKED: Final = {"group_ids": [GROUP, "other"], "include_authorized_operations": False}


def test_the_topology_is_described(server: RunningServer) -> None:
    with server:
        described, other = server.ask(STREAMS_GROUP_DESCRIBE, 0, **ASKED).groups
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        *("Empty", 5, 4),
    )
    (subtopology,) = described.topology.subtopologies
    assert subtopology.source_topics == (READ,)
    (state,) = subtopology.state_changelog_topics
    assert (state.name, state.replication_factor) == (STATE, 2)
    assert (other.error_code, other.topology) == (ErrorCode.group_id_not_found, None)


@pytest.mark.parametrize(
    ("topics", "error"),
    [
        ([READ, STATE], ErrorCode.none),
        ([READ], ErrorCode.topic_authorization_failed),
        ([STATE], ErrorCode.topic_authorization_failed),
    ],
    ids=["all topics", "not the state", "not the source"],
)
def test_a_group_is_described_to_who_may_know_all_its_topics(
    topics: list[str], error: ErrorCode, server: RunningServer, tmp_path: Path
) -> None:
    acls = [acl("User:alice", "DESCRIBE", f"TOPIC:{each}") for each in topics]
    acls.append(acl("User:alice", "DESCRIBE", "GROUP:*"))
    server.admission = admission(tmp_path, acls, with_tls=False)
    with server:
        connection = Connection.of(server, "alice")
        described, _ = connection.ask(STREAMS_GROUP_DESCRIBE, 0, **ASKED).groups
    assert described.error_code is error
    assert (described.topology is None) == (error is not ErrorCode.none)
