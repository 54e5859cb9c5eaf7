"""Groups of Kafka Streams as an administrator sees them."""

from __future__ import annotations

from typing import Final

from msgspec import to_builtins

from kdump.serve.messages import Answer
from kdump.state.groups.group_image import Group
from kdump.state.groups.group_members import (
    AssignedTasks,
    Assignment,
    GroupMember,
    StreamsProcess,
)

_NO_PROCESS: Final = StreamsProcess("", -1, None, ())


def described_streams(group: Group) -> Answer:
    """Describe the topology and the members of a group.

    The topology is that of the group's record: a coordinator that was just loaded knows no more,
    because members tell it what their patterns and internal topics come to.

    Follows ``StreamsGroup.asDescribedGroup``.
    """
    return {
        "topology": to_builtins(group.topology),
        "members": [_member(each) for each in group.members],
    }


def _member(member: GroupMember) -> Answer:
    return {
        "member_id": member.member_id,
        "member_epoch": member.epoch or 0,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id or "",
        "client_host": member.client_host or "",
        **to_builtins(member.process or _NO_PROCESS),
        "task_offsets": (),
        "task_end_offsets": (),
        "assignment": _assignment(member.assigned),
        "target_assignment": _assignment(member.target or ()),
        "is_classic": False,
    }


def _assignment(assigned: Assignment) -> Answer:
    tasks = [each for each in assigned if isinstance(each, AssignedTasks)]
    tasks.sort(key=lambda each: each.subtopology)
    return {
        f"{kind}_tasks": [
            {"subtopology_id": each.subtopology, "partitions": each.partitions}
            for each in tasks
            if each.kind == kind
        ]
        for kind in ("active", "standby", "warmup")
    }
