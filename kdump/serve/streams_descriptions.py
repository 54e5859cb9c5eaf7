"""Groups of Kafka Streams as an administrator sees them."""

from __future__ import annotations

from collections.abc import Iterable

from kdump.serve.messages import Answer
from kdump.state.groups.group_image import Group
from kdump.state.groups.group_members import AssignedTasks, Assignment, GroupMember
from kdump.state.groups.streams_topology import InternalTopic, StreamsTopology


def described_streams(group: Group) -> Answer:
    """Describe the topology and the members of a group.

    The topology is that of the group's record: a coordinator that was just loaded knows no more,
    because members tell it what their patterns and internal topics come to.

    Follows ``StreamsGroup.asDescribedGroup``.
    """
    return {
        "topology": None if group.topology is None else _topology(group.topology),
        "members": [_member(each) for each in group.members],
    }


def _topology(topology: StreamsTopology) -> Answer:
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "subtopology_id": each.subtopology_id,
                "source_topics": each.source_topics,
                "repartition_sink_topics": each.repartition_sink_topics,
                "repartition_source_topics": _topics(each.repartition_source_topics),
                "state_changelog_topics": _topics(each.state_changelog_topics),
            }
            for each in topology.subtopologies
        ],
    }


def _topics(topics: Iterable[InternalTopic]) -> list[Answer]:
    return [
        {
            "name": each.name,
            "partitions": each.partition_count,
            "replication_factor": each.replication_factor,
            "topic_configs": _pairs(each.configs),
        }
        for each in topics
    ]


def _pairs(found: Iterable[tuple[str, str]]) -> list[Answer]:
    return [{"key": key, "value": value} for key, value in found]


def _member(member: GroupMember) -> Answer:
    process = member.process
    endpoint = None if process is None else process.endpoint
    return {
        "member_id": member.member_id,
        "member_epoch": member.epoch or 0,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id or "",
        "client_host": member.client_host or "",
        "topology_epoch": -1 if process is None else process.topology_epoch,
        "process_id": "" if process is None else process.process_id,
        "user_endpoint": None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]},
        "client_tags": _pairs(() if process is None else process.client_tags),
        "task_offsets": (),
        "task_end_offsets": (),
        "assignment": _assignment(member.assigned),
        "target_assignment": _assignment(member.target or ()),
        "is_classic": False,
    }


def _assignment(assigned: Assignment) -> Answer:
    return {
        f"{kind}_tasks": [
            {"subtopology_id": each.subtopology, "partitions": each.partitions}
            for each in sorted(
                (each for each in assigned if isinstance(each, AssignedTasks)),
                key=lambda each: each.subtopology,
            )
            if each.kind == kind
        ]
        for kind in ("active", "standby", "warmup")
    }
