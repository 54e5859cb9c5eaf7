"""Rows and sentences about groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.groups_summary import why_missing
from kdump.cli.output.rendering import Column, Row
from kdump.cli.output.sections import Section
from kdump.cli.output.value_text import Kind
from kdump.jobs.groups.offset_rows import log_fields, offset_row

if TYPE_CHECKING:
    from kdump.jobs.groups.coordinator_topics import PartitionCount
    from kdump.jobs.groups.group_report import (
        GroupReport,
        GroupsReport,
        OtherShare,
        ShareOffsetReport,
    )
    from kdump.state.groups.group_image import Group
    from kdump.state.groups.group_members import AssignedPartitions, AssignedTasks, GroupMember

_NONE: Final = "-"

_GROUP_COLUMNS: Final = (
    Column("group", "Group"),
    Column("group_type", "Type"),
    Column("state", "State"),
    Column("protocol_type", "Protocol type", for_people=False),
    Column("protocol", "Protocol", unknown=_NONE, dropped=3),
    Column("generation", "Generation", Kind.NUMBER, unknown=_NONE, dropped=4),
    Column("epoch", "Epoch", Kind.NUMBER, unknown=_NONE, dropped=2),
    Column("assignment_epoch", "Assignment epoch", Kind.NUMBER, for_people=False),
    Column("leader", "Leader", for_people=False),
    Column("state_timestamp_ms", "In state since", Kind.TIMESTAMP_MS, unknown=_NONE, dropped=1),
    Column("members", "Members", Kind.NUMBER),
    Column("offsets", "Offsets", Kind.NUMBER, dropped=6),
    Column("lag", "Lag", Kind.NUMBER),
    Column("coordinator_partition", "Coordinator partition", Kind.NUMBER, for_people=False),
    Column("log_dir", "Log dir", for_people=False),
    Column("is_uncertain", "Uncertain", for_people=False),
    Column("note", "Note", alert=True, dropped=5),
)
_MEMBER_COLUMNS: Final = (
    Column("group", "Group"),
    Column("member_id", "Member", dropped=4),
    Column("instance_id", "Instance", unknown=_NONE, dropped=2),
    Column("client_id", "Client"),
    Column("client_host", "Host"),
    Column("rack_id", "Rack", for_people=False),
    Column("epoch", "Epoch", Kind.NUMBER, unknown=_NONE, dropped=1),
    Column("state", "State", unknown=_NONE, for_people=False),
    Column("subscribed_topics", "Topics", for_people=False),
    Column("subscribed_regex", "Pattern", for_people=False),
    Column("assigned", "Assigned", for_people=False),
    Column("target", "Target", for_people=False),
)
_MEMBER_TEXTS: Final = (
    Column("subscribed_text", "Subscribed", dropped=3),
    Column("assigned_text", "Assigned"),
)
_LOG_COLUMNS: Final = (
    Column("log_start_offset", "Start", Kind.NUMBER, dropped=8),
    Column("high_watermark", "HW", Kind.NUMBER, dropped=7),
    Column("log_end_offset", "End", Kind.NUMBER),
    Column("lag", "Lag", Kind.NUMBER),
)
_OFFSET_COLUMNS: Final = (
    Column("group", "Group"),
    Column("topic", "Topic"),
    Column("partition", "Part", Kind.NUMBER),
    Column("committed_offset", "Committed", Kind.NUMBER, unknown=_NONE),
    Column("leader_epoch", "Epoch", Kind.NUMBER, unknown=_NONE, dropped=3),
    *_LOG_COLUMNS,
    Column("metadata", "Metadata", unknown="", dropped=1),
    Column("commit_timestamp_ms", "Committed at", Kind.TIMESTAMP_MS, unknown=_NONE, dropped=5),
    Column("expires_ms", "Expires", Kind.TIMESTAMP_MS, unknown=_NONE, dropped=2),
    Column("is_expired", "Expired", for_people=False),
    Column("topic_id", "Topic id", for_people=False),
    Column("topic_state", "Topic state", for_people=False),
    Column("pending", "Pending", for_people=False),
    Column("is_uncertain", "Uncertain", for_people=False),
    Column("elsewhere", "Elsewhere", for_people=False),
    Column("replica_log_dir", "Replica", for_people=False),
    Column("note", "Note", alert=True, dropped=6),
)
_SHARE_COLUMNS: Final = (
    Column("group", "Group"),
    Column("topic", "Topic"),
    Column("topic_id", "Topic id", for_people=False),
    Column("partition", "Part", Kind.NUMBER),
    Column("start_offset", "Start offset", Kind.NUMBER, unknown=_NONE),
    Column("delivery_complete_count", "Done after it", Kind.NUMBER, dropped=4),
    Column("leader_epoch", "Epoch", Kind.NUMBER, unknown=_NONE, dropped=1),
    Column("state_epoch", "State epoch", for_people=False),
    Column("snapshot_epoch", "Snapshot epoch", for_people=False),
    Column("write_timestamp_ms", "Snapshot at", Kind.TIMESTAMP_MS, unknown=_NONE, dropped=2),
    *_LOG_COLUMNS,
    Column("is_uncertain", "Uncertain", for_people=False),
    Column("elsewhere", "Elsewhere", for_people=False),
    Column("replica_log_dir", "Replica", for_people=False),
    Column("note", "Note", alert=True, dropped=3),
)


def sections(*, for_people: bool) -> tuple[Section, ...]:
    """The tables, in their order."""
    members = (*_MEMBER_COLUMNS, *(_MEMBER_TEXTS if for_people else ()))
    return (
        Section("group", "Groups", _GROUP_COLUMNS),
        Section("member", "Members", members),
        Section("offset", "Committed offsets", _OFFSET_COLUMNS),
        Section("share_offset", "Share groups", _SHARE_COLUMNS),
    )


def group_rows(
    report: GroupsReport, now_ms: int, *, with_members: bool, for_people: bool
) -> Iterator[Row]:
    """Yield the rows of all groups: each group, its members and its offsets."""
    for each in report.groups:
        yield _group_row(each)
        if with_members:
            for member in each.group.members:
                row = _member_row(each.group, member, report.topic_names)
                yield {**row, **_member_texts(row)} if for_people else row
        for offset in each.offsets:
            yield offset_row(each.group, offset, now_ms)
        for share in each.share_offsets:
            yield _share_row(share)
    for name in report.unknown:
        yield _unknown_group_row(name, report.offsets_topic)


def _group_row(report: GroupReport) -> Row:
    group, coordinator = report.group, report.coordinator
    lags = [each.lag for each in report.offsets if each.offsets.committed is not None]
    lags += [each.lag for each in report.share_offsets]
    return {
        "type": "group",
        "group": group.group_id,
        "group_type": None if group.type is None else group.type.value,
        "state": None if group.state is None else group.state.value,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "generation": group.generation,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "leader": group.leader,
        "state_timestamp_ms": group.state_timestamp_ms,
        "members": None if group.state is None else len(group.members),
        "offsets": len(report.offsets) + len(report.share_offsets),
        "lag": None if None in lags else sum(lag for lag in lags if lag is not None),
        "coordinator_partition": None if coordinator is None else coordinator.partition.partition,
        "log_dir": None if coordinator is None else str(coordinator.replica.log_directory.path),
        "is_uncertain": report.is_uncertain,
        "note": _group_note(report),
    }


def _group_note(report: GroupReport) -> str:
    if report.coordinator is None:
        return "its records are in a missing partition of __consumer_offsets"
    notes = []
    if report.only_on:
        directories = ", ".join(str(each.log_directory.path) for each in report.only_on)
        notes.append(f"only in the replica of its coordinator's log in {directories}")
    elif report.group.state is None:
        notes.append("its record cannot be decoded")
    elif report.group.type is None:
        notes.append("the group was deleted, its offsets were not")
    if report.is_uncertain:
        notes.append("a later change may be in damaged bytes")
    return "; ".join(notes)


def _unknown_group_row(name: str, topic: PartitionCount) -> Row:
    """The row of a group whose partition of ``__consumer_offsets`` could not be read."""
    from kdump.formats.java.java_text import coordinator_partition

    partition = coordinator_partition(name, topic.count) if topic.count else None
    columns = dict.fromkeys(column.name for column in _GROUP_COLUMNS)
    return {
        "type": "group",
        **columns,
        "group": name,
        "coordinator_partition": partition,
        "is_uncertain": True,
        "note": why_missing(name, topic),
    }


def _member_row(group: Group, member: GroupMember, topic_names: Mapping[str, str]) -> Row:
    assigned = [_assigned(each, topic_names) for each in member.assigned]
    target = member.target
    return {
        "type": "member",
        "group": group.group_id,
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rack_id": member.rack_id,
        "epoch": member.epoch,
        "state": member.state,
        "subscribed_topics": member.subscribed_topics and [*member.subscribed_topics],
        "subscribed_regex": member.subscribed_regex,
        "assigned": assigned,
        "target": None if target is None else [_assigned(each, topic_names) for each in target],
    }


def _member_texts(row: Row) -> dict[str, str]:
    """What people see of a subscription and an assignment."""
    subscribed = [*(row["subscribed_topics"] or ())]
    if row["subscribed_regex"] is not None:
        subscribed.append(f"/{row['subscribed_regex']}/")
    assigned = [_assigned_text(each) for each in row["assigned"]]
    return {
        "subscribed_text": ", ".join(subscribed) or _NONE,
        "assigned_text": ", ".join(assigned) or _NONE,
    }


def _assigned(
    each: AssignedPartitions | AssignedTasks, topic_names: Mapping[str, str]
) -> dict[str, Any]:
    from kdump.state.groups.group_members import AssignedTasks

    if isinstance(each, AssignedTasks):
        return {
            "kind": each.kind,
            "subtopology": each.subtopology,
            "partitions": [*each.partitions],
        }
    topic = each.topic
    if topic is None and each.topic_id is not None:
        topic = topic_names.get(each.topic_id)
    return {"topic": topic, "topic_id": each.topic_id, "partitions": [*each.partitions]}


def _assigned_text(each: Mapping[str, Any]) -> str:
    numbers = ",".join(map(str, each["partitions"]))
    if "kind" in each:
        kind = "" if each["kind"] == "active" else f" ({each['kind']})"
        return f"{each['subtopology']}_{numbers}{kind}"
    return f"{each['topic'] or each['topic_id']}-{numbers}"


def _share_row(report: ShareOffsetReport) -> Row:
    state = report.state
    unknown = -1
    return {
        "type": "share_offset",
        "group": state.group_id,
        "topic": report.topic,
        "topic_id": state.topic_id,
        "partition": state.partition,
        "start_offset": None if state.start_offset == unknown else state.start_offset,
        "delivery_complete_count": None
        if state.delivery_complete_count == unknown
        else state.delivery_complete_count,
        "leader_epoch": None if state.leader_epoch == unknown else state.leader_epoch,
        "state_epoch": None if state.state_epoch == unknown else state.state_epoch,
        "snapshot_epoch": None if state.snapshot_epoch == unknown else state.snapshot_epoch,
        "write_timestamp_ms": state.write_timestamp_ms,
        **log_fields(report.log),
        "lag": report.lag,
        "is_uncertain": report.is_uncertain,
        "elsewhere": [_other_share(each) for each in report.elsewhere],
        "note": _share_note(report),
    }


def _other_share(each: OtherShare) -> dict[str, Any]:
    return {
        "log_dir": str(each.replica.log_directory.path),
        "start_offset": None if each.state.start_offset == -1 else each.state.start_offset,
    }


def _share_note(report: ShareOffsetReport) -> str:
    notes = ["a later change may be in damaged bytes"] if report.is_uncertain else []
    notes += [
        f"{other.state.start_offset} in {other.replica.log_directory.path}"
        for other in report.elsewhere
    ]
    return "; ".join(notes)
