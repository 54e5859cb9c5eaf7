"""Groups and their members as rows, and the answer of ``kdump groups``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kdump.jobs.groups.offset_rows import (
    IS_UNCERTAIN,
    OFFSET,
    SHARE_OFFSET,
    offset_row,
    share_row,
)
from kdump.jobs.listing.certain_end import with_marked_end
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INT,
    INTEGER,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    RowType,
    any_of,
    list_of,
    object_of,
    objects_of,
    one_of,
    values_of,
)

if TYPE_CHECKING:
    from kdump.jobs.groups.coordinator_topics import PartitionCount
    from kdump.jobs.groups.group_report import GroupReport, GroupsReport
    from kdump.state.groups.group_image import Group
    from kdump.state.groups.group_members import AssignedPartitions, AssignedTasks, GroupMember

Row = Mapping[str, Any]
_NONE: Final = "-"

GROUP: Final = RowType(
    "group",
    "A group. Everything but its name and coordinator is null if its partition of"
    " __consumer_offsets is missing.",
    (
        Field("group", TEXT, "Its name.", "Group"),
        Field(
            "group_type",
            one_of("classic", "consumer", "share", "streams").or_null,
            "Null if the group was deleted and offsets are left, or if it is unknown.",
            "Type",
        ),
        Field(
            "state",
            one_of("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead").or_null,
            "As far as a disk can tell it; null if unknown.",
            "State",
        ),
        Field("protocol_type", TEXT.or_null, "Empty for a group that only commits offsets."),
        Field("protocol", TEXT.or_none, "Assignor.", "Protocol", dropped=3),
        Field("generation", INTEGER.or_none, "Of a classic group.", "Generation", dropped=4),
        Field("epoch", INTEGER.or_none, "Of another group.", "Epoch", dropped=2),
        Field("assignment_epoch", INTEGER.or_null, "Of the target assignment of such a group."),
        Field("leader", TEXT.or_null, "Member that leads a classic group."),
        Field(
            "state_timestamp_ms",
            TIME.or_none,
            "Since when a classic group is in its state.",
            "In state since",
            dropped=1,
        ),
        Field("members", COUNT.or_null, "How many.", "Members"),
        Field("offsets", COUNT.or_null, "How many are shown.", "Offsets", dropped=6),
        Field(
            "lag", INTEGER.or_null, "Sum of the lags that are shown; null if one is unknown.", "Lag"
        ),
        Field(
            "is_lag_certain",
            FLAG,
            "Whether a starting broker ends all logs where they end here; true without any.",
        ),
        Field("coordinator_partition", INTEGER.or_null, "Partition of __consumer_offsets."),
        Field("log_dir", TEXT.or_null, "Where it was read."),
        IS_UNCERTAIN,
        Field("note", TEXT.or_null, "A sentence for people.", "Note", alert=True, dropped=5),
    ),
    title="Groups",
)
_ASSIGNED: Final = list_of(
    any_of(
        object_of(
            Field("topic", TEXT.or_null, "Null if no topic with that id is known."),
            Field("topic_id", TEXT.or_null, "Null if only the name is recorded."),
            Field("partitions", list_of(INTEGER), "Numbers."),
        ),
        object_of(
            Field("kind", one_of("active", "standby", "warmup"), "Kind of tasks."),
            Field("subtopology", TEXT, "Its id."),
            Field("partitions", list_of(INTEGER), "Numbers."),
        ),
    )
)
MEMBER: Final = RowType(
    "member",
    "A member of a group.",
    (
        Field("group", TEXT, "The group.", "Group"),
        Field("member_id", TEXT, "Its id.", "Member", dropped=4),
        Field("instance_id", TEXT.or_none, "Of a static member.", "Instance", dropped=2),
        Field("client_id", TEXT.or_null, "As the client set it.", "Client"),
        Field("client_host", TEXT.or_null, "Its address.", "Host"),
        Field("rack_id", TEXT.or_null, "Its rack."),
        Field(
            "epoch",
            INTEGER.or_none,
            "Of a member of a group that is not classic.",
            "Epoch",
            dropped=1,
        ),
        Field("state", TEXT.or_null, "Whether it has what it was assigned."),
        Field("subscribed_topics", list_of(TEXT).or_null, "Null if unknown."),
        Field("subscribed_regex", TEXT.or_null, "Pattern that it subscribes to."),
        Field(
            "assigned",
            _ASSIGNED,
            "What it has.",
        ),
        Field(
            "target",
            _ASSIGNED.or_null,
            "What it is to have; null for a classic group.",
        ),
        Field("subscribed_text", TEXT, "", "Subscribed", dropped=3, for_programs=False),
        Field("assigned_text", TEXT, "", "Assigned", for_programs=False),
    ),
    title="Members",
)
_COUNTED: Final = object_of(
    Field("partitions", COUNT, "How many."),
    Field(
        "is_count_known",
        FLAG,
        "Whether the cluster's metadata says it; otherwise there may be more.",
    ),
    Field(
        "missing_partitions",
        list_of(INTEGER),
        "Those that could not be read, up to 10000.",
    ),
    Field(
        "unreadable_partitions",
        list_of(INTEGER),
        "Those with a replica in the log directories that cannot be read completely.",
    ),
)
SUMMARY: Final = RowType(
    "summary",
    "The totals, last.",
    (
        Field("groups", COUNT, "Groups that were found."),
        Field(
            "unknown_groups",
            list_of(TEXT),
            "Names given with --group whose partition of __consumer_offsets is missing.",
        ),
        Field("offsets", COUNT, "Committed offsets."),
        Field("pending_offsets", COUNT, "Offsets of open transactions."),
        Field("expired_offsets", COUNT, "Offsets that a broker deletes soon after it starts."),
        Field("uncertain_offsets", COUNT, "Offsets with is_uncertain."),
        Field("share_offsets", COUNT, "Partitions of share groups."),
        Field(
            "consumer_offsets",
            _COUNTED,
            "Partitions of __consumer_offsets.",
        ),
        Field(
            "share_group_state",
            _COUNTED.or_null,
            "Partitions of __share_group_state; null if there is no share group.",
        ),
        Field(
            "skipped",
            objects_of(
                Field("topic", TEXT, "The coordinator's topic."),
                Field("partition", INT, "The partition."),
                Field("log_dir", TEXT, "Log directory of the replica."),
                Field("read_log_dir", TEXT, "Log directory of the replica that is believed."),
            ),
            "Replicas of coordinators' logs that claim to reach as far as the one that is"
            " believed, or further, and cannot be read completely.",
        ),
    ),
)
ANSWERS: Final = (JsonAnswer("groups", (GROUP, MEMBER, OFFSET, SHARE_OFFSET, SUMMARY)),)


def group_rows(
    report: GroupsReport, now_ms: int, *, with_members: bool, for_people: bool
) -> Iterator[Row]:
    """Yield the rows of all groups: each group, its members and its offsets."""
    for each in report.groups:
        group = _group_row(each)
        yield with_marked_end(group, "lag", certainty="is_lag_certain") if for_people else group
        if with_members:
            for member in each.group.members:
                row = _member_row(each.group, member, report.topic_names)
                yield {**row, **_member_texts(row)} if for_people else row
        for offset in each.offsets:
            row = offset_row(each.group, offset, now_ms)
            yield with_marked_end(row, "log_end_offset", "lag") if for_people else row
        for share in each.share_offsets:
            row = share_row(share)
            yield with_marked_end(row, "log_end_offset", "lag") if for_people else row
    for name in report.unknown:
        yield _unknown_group_row(name, report.offsets_topic)


def _group_row(report: GroupReport) -> Row:
    group, coordinator = report.group, report.coordinator
    lags = [each.lag for each in report.offsets if each.offsets.committed is not None]
    lags += [each.lag for each in report.share_offsets]
    logs = [each.log for each in report.offsets]
    logs += [each.log for each in report.share_offsets]
    row = values_of(
        GROUP.fields,
        group,
        group=group.group_id,
        group_type=None if group.type is None else group.type.value,
        state=None if group.state is None else group.state.value,
        members=None if group.state is None else len(group.members),
        offsets=len(report.offsets) + len(report.share_offsets),
        lag=None if None in lags else sum(lag for lag in lags if lag is not None),
        is_lag_certain=all(each is None or each.is_end_certain is not False for each in logs),
        coordinator_partition=None if coordinator is None else coordinator.partition.partition,
        log_dir=None if coordinator is None else str(coordinator.replica.log_directory.path),
        is_uncertain=report.is_uncertain,
        note=_group_note(report),
    )
    return {"type": "group", **row}


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
    columns = dict.fromkeys(field.name for field in GROUP.fields)
    return {
        "type": "group",
        **columns,
        "group": name,
        "coordinator_partition": partition,
        "is_uncertain": True,
        "note": topic.why_missing(name),
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


def summary_row(report: GroupsReport, now_ms: int) -> Row:
    """The totals, for programs."""
    offsets = [each for group in report.groups for each in group.offsets]
    share_topic = report.share_topic
    return {
        "type": "summary",
        "groups": len(report.groups),
        "unknown_groups": [*report.unknown],
        "offsets": sum(each.offsets.committed is not None for each in offsets),
        "pending_offsets": sum(len(each.offsets.pending) for each in offsets),
        "expired_offsets": sum(
            each.expires_ms is not None and each.expires_ms <= now_ms for each in offsets
        ),
        "uncertain_offsets": sum(each.is_uncertain for each in offsets),
        "share_offsets": sum(len(group.share_offsets) for group in report.groups),
        "consumer_offsets": _count_row(report.offsets_topic),
        "share_group_state": None if share_topic is None else _count_row(share_topic),
        "skipped": [
            {
                "topic": each.log.partition.topic,
                "partition": each.log.partition.partition,
                "log_dir": str(path),
                "read_log_dir": str(each.log.replica.log_directory.path),
            }
            for each in report.coordinators
            for path in each.skipped
        ],
    }


def _count_row(topic: PartitionCount) -> dict[str, Any]:
    return {
        "partitions": topic.count,
        "is_count_known": topic.is_known,
        "missing_partitions": [*topic.missing],
        "unreadable_partitions": [*topic.unreadable],
    }
