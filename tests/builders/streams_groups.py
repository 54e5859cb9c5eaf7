"""Members of streams groups, without a streams application."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from builders.cluster_nodes import Partition
from builders.serving import PATIENCE_S, answer_at

_FIND_COORDINATOR: Final = 10
_OFFSET_COMMIT: Final = 8
_HEARTBEAT: Final = 88
_LEAVES: Final = -1
_SUBTOPOLOGY: Final = "0"
_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


def commit_in_streams_group(port: int, group: str, offsets: Mapping[Partition, int]) -> None:
    """Join a group that reads topics, commit offsets of all partitions that it gets, and leave.

    Args:
        port: of a broker.
        group: it is created.
        offsets: of each partition of some topics.
    """
    topics = sorted({topic for topic, _ in offsets})
    coordinator = _coordinator(port, group)
    member_epoch = _joined(coordinator, group, topics)
    committed = answer_at(
        coordinator,
        _OFFSET_COMMIT,
        9,
        group_id=group,
        generation_id_or_member_epoch=member_epoch,
        member_id=_MEMBER,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "of a task",
                    }
                    for (name, number), offset in offsets.items()
                    if name == topic
                ],
            }
            for topic in topics
        ],
    )
    errors = {each.error_code for topic in committed.topics for each in topic.partitions}
    assert errors == {ErrorCode.none}
    _heartbeat(coordinator, group, _LEAVES)


def _coordinator(port: int, group: str) -> int:
    """Find the port of a group's coordinator."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = answer_at(port, _FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
        (found,) = answer.coordinators
        if found.error_code is ErrorCode.none:
            return int(found.port)
        assert time.monotonic() < deadline, found


def _joined(port: int, group: str, topics: list[str]) -> int:
    """Join as the only member, wait for tasks, and return the epoch of the member."""
    topology = {
        "epoch": 0,
        "subtopologies": [
            {
                "subtopology_id": _SUBTOPOLOGY,
                "source_topics": topics,
                "state_changelog_topics": [],
                "repartition_source_topics": [],
                "copartition_groups": [],
            }
        ],
    }
    none: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    answer = _heartbeat(
        port,
        group,
        0,
        topology=topology,
        process_id="a process",
        rebalance_timeout=timedelta(seconds=PATIENCE_S),
        **none,
    )
    deadline = time.monotonic() + PATIENCE_S
    while not answer.active_tasks:
        assert time.monotonic() < deadline, answer
        answer = _heartbeat(port, group, answer.member_epoch, **none)
    return int(answer.member_epoch)


def _heartbeat(port: int, group: str, member_epoch: int, **fields: Any) -> Any:
    unchanged = ("active_tasks", "standby_tasks", "warmup_tasks", "client_tags")
    every: dict[str, Any] = dict.fromkeys((*unchanged, "task_offsets", "task_end_offsets"))
    answer = answer_at(
        port,
        _HEARTBEAT,
        0,
        group_id=group,
        member_id=_MEMBER,
        member_epoch=member_epoch,
        endpoint_information_epoch=0,
        **every | fields,
    )
    assert answer.error_code is ErrorCode.none, answer
    return answer
