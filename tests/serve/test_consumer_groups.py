"""Groups of the consumer protocol, whose partitions the server assigns."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer
from kio.schema.errors import ErrorCode

from builders.batches import batches
from builders.log_directories import TOPIC_ID, write_partition
from builders.serving import PATIENCE_S, RunningServer, opened
from serve.test_groups import commit

PARTITIONS: Final = 4
HEARTBEAT: Final = 68


@pytest.fixture
def orders(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    """Serve a topic with four partitions; members send heartbeats often."""
    monkeypatch.setattr("kdump.serve.member_answers.HEARTBEAT_S", 0.1)
    for number in range(1, PARTITIONS):
        write_partition(log_dir / f"orders-{number}", {0: b"".join(batches(10))})
    with opened(log_dir) as server:
        yield server


class Member:
    """A member that says what a test wants; it keeps what it was told."""

    def __init__(self, server: RunningServer, group_id: str = "g", **fields: Any) -> None:
        self._server = server
        self._group_id = group_id
        self._fields = fields
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: set[int] = set()

    def say(self, **fields: Any) -> ErrorCode:
        """Send a heartbeat; all of what the member is, if it joins."""
        joining = {
            "rebalance_timeout": timedelta(seconds=30),
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
            **self._fields,
        }
        answer = self._server.ask(
            HEARTBEAT,
            1,
            **{
                "group_id": self._group_id,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "topic_partitions": [{"topic_id": TOPIC_ID, "partitions": sorted(self.owned)}],
                "instance_id": self._fields.get("instance_id"),
                **(joining if self.epoch == 0 else {}),
                **fields,
            },
        )
        if answer.error_code is ErrorCode.none:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    number
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                }
        error: ErrorCode = answer.error_code
        return error


def test_a_partition_passes_on_after_it_was_given_up(orders: RunningServer) -> None:
    first, second = Member(orders), Member(orders)
    first.say()
    assert first.owned == set(range(PARTITIONS))
    second.say()
    assert second.owned == set()
    first.say()
    given_up = set(range(PARTITIONS)) - first.owned
    assert len(given_up) == PARTITIONS // 2
    second.say()
    assert second.owned == set(), "the first member has not yet said that it gave them up"
    first.say()
    second.say()
    assert second.owned == given_up
    assert first.epoch == second.epoch


def test_what_a_member_leaves_is_for_the_others(orders: RunningServer) -> None:
    first, second = Member(orders), Member(orders)
    for each in (first, second, first, first, second):
        each.say()
    assert first.say(member_epoch=-1) is ErrorCode.none
    second.say()
    assert second.owned == set(range(PARTITIONS))


def test_members_are_described(orders: RunningServer) -> None:
    member = Member(orders, instance_id="i", server_assignor="range")
    member.say()
    (found,) = orders.ask(69, 1, group_ids=["g"], include_authorized_operations=False).groups
    assert (found.group_state, found.assignor_name) == ("Stable", "range")
    assert (found.group_epoch, found.assignment_epoch) == (member.epoch, member.epoch)
    (described,) = found.members
    assert (described.member_id, described.instance_id) == (member.member_id, "i")
    (topic,) = described.assignment.topic_partitions
    assert (topic.topic_name, set(topic.partitions)) == ("orders", member.owned)
    assert described.target_assignment == described.assignment
    (listed,) = orders.ask(16, 5).groups
    assert (listed.group_type, listed.group_state) == ("consumer", "Stable")
    (classic,) = orders.ask(15, 6, groups=["g"], include_authorized_operations=False).groups
    assert classic.error_code is ErrorCode.group_id_not_found


@pytest.mark.parametrize(
    ("regex", "count"), [("ord.*", PARTITIONS), ("rders", 0), ("orders|payments", PARTITIONS)]
)
def test_a_regular_expression_is_one_of_whole_names(
    regex: str, count: int, orders: RunningServer
) -> None:
    member = Member(orders, subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert member.say() is ErrorCode.none
    assert len(member.owned) == count


def test_a_changed_subscription_takes_partitions_away(orders: RunningServer) -> None:
    member = Member(orders)
    member.say()
    member.say(subscribed_topic_names=[])
    assert member.owned == set()
    member.say(subscribed_topic_names=["orders"])
    assert member.owned == set(range(PARTITIONS))


def test_a_static_member_comes_back_to_its_partitions(orders: RunningServer) -> None:
    first, second = Member(orders, instance_id="i"), Member(orders)
    for each in (first, second, first, first, second):
        each.say()
    before = first.owned
    again = Member(orders, instance_id="i")
    assert again.say() is ErrorCode.unreleased_instance_id
    first.say(member_epoch=-2)
    assert again.say() is ErrorCode.none
    assert again.owned == before
    assert first.say() is ErrorCode.fenced_instance_id


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_epoch": 7}, ErrorCode.fenced_member_epoch),
        ({"member_id": "other"}, ErrorCode.unknown_member_id),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"group_id": "other"}, ErrorCode.unknown_member_id),
        ({"server_assignor": "other"}, ErrorCode.unsupported_assignor),
        ({"subscribed_topic_regex": "(?=x)"}, ErrorCode.invalid_regular_expression),
    ],
)
def test_wrong_heartbeats_are_refused(
    fields: dict[str, Any], error: ErrorCode, orders: RunningServer
) -> None:
    member = Member(orders)
    member.say()
    assert member.say(**fields) is error
    assert member.say() is ErrorCode.none


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout": timedelta(milliseconds=-1)},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
    ],
)
def test_a_member_joins_with_everything(fields: dict[str, Any], orders: RunningServer) -> None:
    assert Member(orders).say(**fields) is ErrorCode.invalid_request
    assert orders.ask(16, 5).groups == ()


def test_a_group_has_members_of_one_protocol(orders: RunningServer) -> None:
    member = Member(orders)
    member.say()
    join = {
        "group_id": "g",
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=10),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    assert orders.ask(11, 2, **join).error_code is ErrorCode.inconsistent_group_protocol
    member.say(member_epoch=-1)
    assert orders.ask(11, 2, **join).error_code is ErrorCode.none
    assert Member(orders).say() is ErrorCode.group_id_not_found


def test_an_offset_is_committed_by_the_member_that_has_the_partition(
    orders: RunningServer,
) -> None:
    first, second = Member(orders), Member(orders)
    first.say()
    joined_at = first.epoch
    for each in (second, first, first, second):
        each.say()
    owner, other = (first, second) if 0 in first.owned else (second, first)
    assert commit(orders, owner.epoch, owner.member_id) is ErrorCode.none
    assert commit(orders, owner.epoch + 1, owner.member_id) is ErrorCode.stale_member_epoch
    assert commit(orders, joined_at - 1, other.member_id) is ErrorCode.stale_member_epoch
    assert commit(orders, 1, "stranger") is ErrorCode.unknown_member_id


def test_consumers_of_librdkafka_share_a_topic(orders: RunningServer) -> None:
    def subscribed() -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": orders.address,
                "group.id": "readers",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.subscribe(["orders"])
        return consumer

    served = orders.read([("orders", number) for number in range(PARTITIONS)])
    expected = {(key[1], each.offset) for key, records in served.items() for each in records}
    first, second = subscribed(), subscribed()
    read: set[tuple[int | None, int | None]] = set()
    owned = [0, 0]
    for _ in range(int(3 * PATIENCE_S / 0.1)):  # mostly a second or two
        for each in (first, second):
            message = each.poll(0.05)
            if message is not None and message.error() is None:
                read.add((message.partition(), message.offset()))
                each.commit(message=message, asynchronous=False)
        owned = [len(each.assignment()) for each in (first, second)]
        if owned == [2, 2] and read == expected:
            break
    assert (owned, read) == ([2, 2], expected)
    second.close()
    first.close()
