"""Groups: as the disk knows them, and as members that read here make them."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode

from builders.batches import batch, batches, record
from builders.group_records import offset_key, offset_value
from builders.log_directories import TOPIC_ID, write_partition
from builders.serving import PATIENCE_S, RunningServer, opened


@pytest.fixture(scope="module")
def said(fixtures: Path) -> dict[str, Any]:
    """What the living cluster said of its groups."""
    found = json.loads((fixtures / "states" / "clean" / "manifest.json").read_text())
    groups: dict[str, Any] = found["groups"]
    return groups


def test_the_groups_of_the_disk_are_listed(
    dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    found = {each.group_id: each for each in dead_cluster.ask(16, 5).groups}
    assert {name: each.group_type for name, each in found.items()} == {
        name: each["type"].lower() for name, each in said.items()
    }
    assert {name: each.protocol_type for name, each in found.items()} == {
        name: each["protocol_type"] for name, each in said.items()
    }
    assert {name: each.group_state for name, each in found.items()} == {
        name: each["state"] for name, each in said.items()
    }


def test_groups_are_listed_by_state_and_type(dead_cluster: RunningServer) -> None:
    every = dead_cluster.ask(16, 5).groups
    shares = dead_cluster.ask(16, 5, types_filter=["Share"]).groups
    assert shares == tuple(each for each in every if each.group_type == "share")
    stable = dead_cluster.ask(16, 4, states_filter=["stable"]).groups
    assert [each.group_id for each in stable] == [
        each.group_id for each in every if each.group_state == "Stable"
    ]


def offsets_of(server: RunningServer, group_id: str, version: int = 9) -> dict[str, int]:
    asked = {"group_id": group_id, "topics": None}
    answer = server.ask(9, version, groups=[asked], require_stable=True, **asked)
    found = answer.groups[0] if version >= 8 else answer
    assert found.error_code is ErrorCode.none
    return {
        f"{topic.name}-{each.partition_index}": each.committed_offset
        for topic in found.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", [2, 7, 8, 9])
def test_the_offsets_of_the_disk_are_those_of_the_living_cluster(
    version: int, dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    for name, group in said.items():
        if group["type"] != "Share":
            assert offsets_of(dead_cluster, name, version) == {
                key: each["committed_offset"] for key, each in group["offsets"].items()
            }, name


def test_the_members_of_classic_groups_are_described(
    dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    classic = [name for name, each in said.items() if each["type"] == "Classic"]
    found = dead_cluster.ask(15, 6, groups=classic, include_authorized_operations=False).groups
    assert [each.group_id for each in found] == classic
    for each in found:
        described = said[each.group_id]["description"]
        assert each.group_state.upper() == described["groupState"]
        assert len(each.members) == len(described["members"]), each.group_id


def test_the_members_of_consumer_groups_are_described(
    dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    modern = [name for name, each in said.items() if each["type"] == "Consumer"]
    assert modern
    found = dead_cluster.ask(69, 1, group_ids=modern, include_authorized_operations=False).groups
    for each in found:
        described = said[each.group_id]["description"]
        assert each.group_epoch == described["groupEpoch"]
        assert each.assignment_epoch == described["targetAssignmentEpoch"]
        assigned = [
            sorted(
                f"{topic.topic_name}-{number}"
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            )
            for member in each.members
        ]
        assert sorted(assigned) == sorted(
            sorted(member["assignment"]["topicPartitions"]) for member in described["members"]
        )


def test_share_groups_have_delivered_what_they_had(
    dead_cluster: RunningServer, said: dict[str, Any]
) -> None:
    shares = [name for name, each in said.items() if each["type"] == "Share"]
    assert shares
    asked = [{"group_id": name, "topics": None} for name in shares]
    for each in dead_cluster.ask(90, 1, groups=asked).groups:
        assert {
            f"{topic.topic_name}-{partition.partition_index}": {
                "lag": partition.lag,
                "leaderEpoch": partition.leader_epoch,
                "startOffset": partition.start_offset,
            }
            for topic in each.topics
            for partition in topic.partitions
        } == said[each.group_id]["offsets"]
    found = dead_cluster.ask(77, 1, group_ids=shares, include_authorized_operations=False).groups
    for described in found:
        expected = said[described.group_id]["description"]
        assert described.group_epoch == expected["groupEpoch"]
        assert described.assignment_epoch == expected["targetAssignmentEpoch"]
        assert len(described.members) == len(expected["members"])


def test_offsets_of_share_groups_are_asked_for_by_partition(dead_cluster: RunningServer) -> None:
    topics = [{"topic_name": "orders", "partitions": [0]}]
    asked = [{"group_id": name, "topics": topics} for name in ("g-share", "nobody")]
    known, unknown = dead_cluster.ask(90, 0, groups=asked).groups
    assert known.topics[0].partitions[0].start_offset == -1
    assert unknown.error_code is ErrorCode.group_id_not_found


def test_other_groups_are_not_found(dead_cluster: RunningServer) -> None:
    asked = {"groups": ["nobody"], "include_authorized_operations": False}
    assert dead_cluster.ask(15, 6, **asked).groups[0].error_code is ErrorCode.group_id_not_found
    assert dead_cluster.ask(15, 5, **asked).groups[0].group_state == "Dead"
    assert offsets_of(dead_cluster, "nobody") == {}


# ---- Members ----


def subscribed(server: RunningServer, group_id: str, **configs: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": 50,
            **configs,
        }
    )
    consumer.subscribe(["orders"])
    return consumer


def next_offset(consumer: Consumer) -> int:
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None, message.error()
    offset = message.offset()
    assert offset is not None
    return offset


def test_a_group_goes_on_where_it_has_committed(server: RunningServer) -> None:
    consumer = subscribed(server, "readers")
    assert [next_offset(consumer) for _ in range(5)] == [0, 1, 2, 3, 4]
    consumer.commit(asynchronous=False)
    consumer.close()
    assert offsets_of(server, "readers") == {"orders-0": 5}
    assert [each.group_state for each in server.ask(16, 5).groups] == ["Empty"]
    again = subscribed(server, "readers")
    assert next_offset(again) == 5
    again.close()


def test_the_partitions_of_a_group_are_shared(log_dir: Path) -> None:
    write_partition(log_dir / "orders-1", {0: b"".join(batches(10))})
    with opened(log_dir) as server:
        first, second = subscribed(server, "readers"), subscribed(server, "readers")
        owned: list[int] = []
        for _ in range(600):
            first.poll(0.05)
            second.poll(0.05)
            owned = [len(each.assignment()) for each in (first, second)]
            if owned == [1, 1]:
                break
        assert owned == [1, 1]
        (described,) = server.ask(
            15, 6, groups=["readers"], include_authorized_operations=False
        ).groups
        assert (described.group_state, len(described.members)) == ("Stable", 2)
        second.close()
        for _ in range(600):
            first.poll(0.05)
            if len(first.assignment()) == 2:
                break
        assert len(first.assignment()) == 2
        first.close()


def test_a_group_of_the_disk_goes_on_there(fixtures: Path, dead_cluster: RunningServer) -> None:
    before = offsets_of(dead_cluster, "g-classic")
    key = next(each for each, offset in before.items() if offset > 0)
    topic, _, number = key.rpartition("-")
    with dead_cluster.consumer(group_id="g-classic") as consumer:
        (found,) = consumer.committed([TopicPartition(topic, int(number))], timeout=PATIENCE_S)
        assert found.offset == before[key]


def commit(server: RunningServer, generation: int, member_id: str = "", **fields: Any) -> ErrorCode:
    partition = {
        "partition_index": 0,
        "committed_offset": 7,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
        **fields,
    }
    answer = server.ask(
        8,
        9,
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[{"name": "orders", "partitions": [partition]}],
    )
    error: ErrorCode = answer.topics[0].partitions[0].error_code
    return error


def test_offsets_are_committed_without_members(server: RunningServer) -> None:
    assert commit(server, -1) is ErrorCode.none
    assert offsets_of(server, "g") == {"orders-0": 7}
    (listed,) = server.ask(16, 5).groups
    assert (listed.group_id, listed.group_state) == ("g", "Empty")
    (found,) = server.ask(15, 6, groups=["g"], include_authorized_operations=False).groups
    assert (found.error_code, found.group_state) == (ErrorCode.none, "Empty")


def test_wrong_commits_are_refused(server: RunningServer) -> None:
    assert commit(server, 3) is ErrorCode.illegal_generation
    assert commit(server, -1, partition_index=9) is ErrorCode.unknown_topic_or_partition
    long = {"committed_metadata": "x" * 5000}
    assert commit(server, -1, **long) is ErrorCode.offset_metadata_too_large
    assert offsets_of(server, "g") == {}


JOINING: Final = {
    "group_id": "g",
    "session_timeout": timedelta(seconds=10),
    "rebalance_timeout": timedelta(seconds=10),
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"m"}],
}
"""A request to join a group."""


def join(server: RunningServer, version: int = 5, **fields: Any) -> Any:
    return server.ask(11, version, **{**JOINING, **fields})


@pytest.mark.parametrize("version", range(4))
def test_a_member_of_an_old_client_joins_at_once(version: int, server: RunningServer) -> None:
    found = join(server, version)
    assert (found.error_code, found.generation_id) == (ErrorCode.none, 1)
    assert found.leader == found.member_id
    assert [each.metadata for each in found.members] == [b"m"]


def test_a_member_joins_with_the_id_that_it_was_given(server: RunningServer) -> None:
    first = join(server)
    assert first.error_code is ErrorCode.member_id_required
    assert join(server, member_id=first.member_id).error_code is ErrorCode.none
    assert join(server, member_id="other").error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout": timedelta(seconds=1)}, ErrorCode.invalid_session_timeout),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
    ],
)
def test_what_cannot_be_a_member_is_refused(
    fields: dict[str, Any], error: ErrorCode, server: RunningServer
) -> None:
    assert join(server, 2, **fields).error_code is error


def test_members_must_have_a_protocol_in_common(server: RunningServer) -> None:
    join(server, 2)
    other = [{"name": "other", "metadata": b""}]
    found = join(server, 2, protocols=other)
    assert found.error_code is ErrorCode.inconsistent_group_protocol


def test_unknown_members_are_refused(server: RunningServer) -> None:
    member = {"group_id": "g", "member_id": "m", "generation_id": 1, "group_instance_id": None}
    assert server.ask(12, 4, **member).error_code is ErrorCode.unknown_member_id
    assert server.ask(14, 5, assignments=[], **member).error_code is ErrorCode.unknown_member_id
    (left,) = server.ask(13, 5, group_id="g", members=[{"member_id": "m"}]).members
    assert left.error_code is ErrorCode.unknown_member_id


def test_a_group_without_its_offsets_topic_is_told(server: RunningServer) -> None:
    consumer = subscribed(server, "readers")
    next_offset(consumer)
    consumer.close()
    assert any("group readers: begins without offsets" in line for line in server.lines)


def test_an_offset_of_an_earlier_topic_is_none_of_the_one_created_again(log_dir: Path) -> None:
    """Follows ``OffsetMetadataManager.isMismatchedTopicId``; a name alone cannot mismatch."""
    values = {b"earlier": uuid.UUID(int=7), b"current": TOPIC_ID, b"unknown": None}
    commits = [
        record(at, offset_key(group), offset_value(2, topic_id=topic_id))
        for at, (group, topic_id) in enumerate(values.items())
    ]
    write_partition(log_dir / "__consumer_offsets-0", {0: batch(commits)})
    asked = [{"name": "orders", "topic_id": TOPIC_ID, "partition_indexes": [0]}]
    with opened(log_dir) as server:
        for version, earlier in ((9, 2), (10, -1)):
            groups = [{"group_id": each.decode(), "topics": asked} for each in values]
            answer = server.ask(9, version, groups=groups, require_stable=True)
            assert {
                each.group_id: each.topics[0].partitions[0].committed_offset
                for each in answer.groups
            } == {"earlier": earlier, "current": 2, "unknown": 2}
