"""The metadata of a cluster as tables for people, and as rows for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.rendering import Column, Row
from kdump.cli.output.sections import Section
from kdump.cli.output.value_text import format_timestamp, format_value
from kdump.rows.row_type import Kind
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.jobs.metadata.metadata_questions import OtherCopy, ShownMetadata

_COMMITTED: Final = Column("is_committed", "Committed", dropped=9)

SECTIONS: Final = (
    Section(
        "topic",
        "Topics",
        (
            Column("topic", "Topic"),
            Column("topic_id", "Topic id", dropped=1),
            Column("partitions", "Partitions", Kind.NUMBER),
            _COMMITTED,
        ),
    ),
    Section(
        "partition",
        "Partitions",
        (
            Column("topic", "Topic"),
            Column("partition", "Partition", Kind.NUMBER),
            Column("leader", "Leader", unknown="none"),
            Column("leader_epoch", "Epoch", Kind.NUMBER, dropped=5),
            Column("replicas", "Replicas"),
            Column("isr", "ISR", dropped=7),
            Column("elr", "ELR", dropped=4),
            Column("last_known_elr", "Last known ELR", for_people=False),
            Column("removing_replicas", "Removing", dropped=3),
            Column("adding_replicas", "Adding", dropped=2),
            Column("leader_recovery_state", "Recovery", for_people=False),
            Column("partition_epoch", "Partition epoch", for_people=False),
            Column("directories", "Log directories", dropped=1),
            _COMMITTED,
        ),
    ),
    Section(
        "config",
        "Configurations",
        (
            Column("resource", "Resource"),
            Column("property", "Property"),
            Column("value", "Value"),
            _COMMITTED,
        ),
    ),
    Section(
        "feature",
        "Features",
        (Column("feature", "Feature"), Column("level", "Level", Kind.NUMBER), _COMMITTED),
    ),
    Section(
        "broker",
        "Brokers",
        (
            Column("node_id", "Broker", Kind.NUMBER),
            Column("epoch", "Epoch", Kind.NUMBER, dropped=3),
            Column("fenced", "Fenced"),
            Column("in_controlled_shutdown", "Shutting down", dropped=4),
            Column("rack", "Rack", unknown="-", dropped=2),
            Column("endpoints", "Listeners"),
            Column("directories", "Log directories", dropped=1),
            _COMMITTED,
        ),
    ),
    Section(
        "controller",
        "Controllers",
        (
            Column("node_id", "Controller", Kind.NUMBER),
            Column("endpoints", "Listeners"),
            _COMMITTED,
        ),
    ),
    Section(
        "voter",
        "Voters",
        (
            Column("node_id", "Voter", Kind.NUMBER),
            Column("directory_id", "Log directory", dropped=1),
            Column("endpoints", "Listeners"),
            _COMMITTED,
        ),
    ),
    Section(
        "acl",
        "ACLs",
        (
            Column("principal", "Principal"),
            Column("permission_type", "Permission"),
            Column("operation", "Operation"),
            Column("resource_type", "Resource type"),
            Column("pattern_type", "Pattern"),
            Column("resource_name", "Name"),
            Column("host", "Host", dropped=2),
            Column("acl_id", "Id", dropped=1),
            _COMMITTED,
        ),
    ),
    Section(
        "scram",
        "SCRAM credentials (salts and keys are never shown)",
        (
            Column("user", "User"),
            Column("mechanism", "Mechanism"),
            Column("iterations", "Iterations", Kind.NUMBER),
            _COMMITTED,
        ),
    ),
    Section(
        "quota",
        "Client quotas",
        (
            Column("entity", "Client"),
            Column("quota", "Quota"),
            Column("value", "Value"),
            _COMMITTED,
        ),
    ),
    Section(
        "delegation_token",
        "Delegation tokens",
        (
            Column("token_id", "Token"),
            Column("owner", "Owner"),
            Column("renewers", "Renewers", dropped=1),
            Column("expiration_timestamp_ms", "Expires", Kind.TIMESTAMP_MS),
            _COMMITTED,
        ),
    ),
)

EVENT_COLUMNS: Final = (
    Column("offset", "Offset", Kind.NUMBER),
    Column("epoch", "Epoch", Kind.NUMBER, for_people=False),
    Column("timestamp_ms", "Time", Kind.TIMESTAMP_MS, dropped=5),
    Column("entity", "Entity"),
    Column("name", "Name"),
    Column("topic", "Topic", for_people=False),
    Column("partition", "Partition", Kind.NUMBER, for_people=False),
    Column("event", "Event"),
    Column("election", "Election", unknown="", dropped=4),
    Column("old", "Old", unknown="-", dropped=1),
    Column("new", "New", unknown="-", dropped=2),
    Column("is_committed", "Committed", dropped=3),
)
DIFFERENCE_COLUMNS: Final = (
    Column("entity", "Entity"),
    Column("name", "Name"),
    Column("topic", "Topic", for_people=False),
    Column("partition", "Partition", Kind.NUMBER, for_people=False),
    Column("change", "Change"),
    Column("old", "Left", unknown="-"),
    Column("new", "Right", unknown="-"),
)
_LISTS: Final = {
    "acls": ("acl", {"id": "acl_id"}),
    "scram": ("scram", {"name": "user"}),
    "delegation_tokens": ("delegation_token", {}),
    "brokers": ("broker", {"id": "node_id"}),
    "controllers": ("controller", {"id": "node_id"}),
    "voters": ("voter", {"id": "node_id"}),
}
"""Lists of the image's row, the type of their rows in a table, and keys with another name there."""
_FEW_FOR_PEOPLE: Final = frozenset(
    {"features", "incarnation_id", "is_migrating_zk_broker", "zk_migration_ready"}
)
"""Fields of events that only programs see."""


def section_rows(metadata: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of the tables for the object ``metadata``."""
    uncommitted = {(each["entity"], each["name"]) for each in metadata["uncommitted"]}

    def committed(entity: str, name: str) -> dict[str, bool | None]:
        return {"is_committed": None if (entity, name) in uncommitted else True}

    for topic in metadata["topics"]:
        name = topic["name"]
        yield {
            "type": "topic",
            "topic": name,
            "topic_id": topic["id"],
            "partitions": len(topic["partitions"]),
            "is_committed": topic["is_committed"],
        }
    for topic in metadata["topics"]:
        for partition in topic["partitions"]:
            leader = None if partition["leader"] < 0 else partition["leader"]
            yield {"type": "partition", "topic": topic["name"], **partition, "leader": leader}
    for resource, values in metadata["configs"].items():
        for name, value in values.items():
            row = {"type": "config", "resource": resource, "property": name, "value": value}
            yield row | committed("config", resource)
    for name, level in metadata["features"].items():
        yield {"type": "feature", "feature": name, "level": level} | committed("feature", name)
    for key, (row_type, renamed) in _LISTS.items():
        for row in metadata[key]:
            yield {"type": row_type} | {renamed.get(name, name): row[name] for name in row}
    for row in metadata["quotas"]:
        entity = ", ".join(
            f"{kind}={'<default>' if name is None else name}"
            for kind, name in row["entity"].items()
        )
        for quota, value in row["quotas"].items():
            yield {
                "type": "quota",
                "entity": entity,
                "quota": quota,
                "value": value,
                "is_committed": row["is_committed"],
            }


def for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten the old and new fields of an event or a difference to what people need."""
    return {**row, "old": _short(row["old"]), "new": _short(row["new"])}


def _short(fields: Mapping[str, Any] | None) -> str | None:
    if fields is None:
        return None
    shown = {name: fields[name] for name in fields if name not in _FEW_FOR_PEOPLE}
    return ", ".join(f"{name}={_value(value)}" for name, value in shown.items()) or "-"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}={_value(each)}" for name, each in value.items()) + "}"
    return "none" if value is None else format_value(value)


def show_lines(shown: ShownMetadata, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary of ``show`` for people."""
    partitions = sum(len(topic["partitions"]) for topic in metadata["topics"])
    end = shown.image.end
    when = shown.image.timestamp_ms
    reached = f"before offset {end.offset}, epoch {end.epoch}"
    if when is not None and when >= 0:
        reached += f", {format_timestamp(when)}"
    topics = counted(len(metadata["topics"]), "topic")
    yield (
        f"{shown.copy.partition.path}: {topics}, {counted(partitions, 'partition')};"
        f" records {reached}"
    )
    if shown.image.pending is not None:
        yield (
            f"the metadata transaction that began at offset {shown.image.pending} is open: its"
            f" records do not count"
        )
    yield committed_line(shown.committed_end, end.offset, _MARK)
    yield from map(other_line, shown.others)


_MARK: Final = " (Committed: ?)"
"""What marks in listings that something may not be committed."""


def committed_line(committed_end: int | None, end_offset: int, mark: str = "") -> str:
    """Say what is committed; ``mark`` follows if not all of it is."""
    if not end_offset:
        return "there are no records"
    if committed_end is not None and committed_end >= end_offset:
        return "all of it is committed"
    later = counted(end_offset - (committed_end or 0), "record")
    if committed_end is None:
        return f"not known to be committed: all {later}{mark}"
    return f"committed: everything before offset {committed_end}; the last {later} may not be{mark}"


def other_line(other: OtherCopy) -> str:
    """Say what another copy has."""
    comparison, end = other.comparison, other.copy.end.offset
    path = other.copy.partition.path
    if comparison.differing_offset is not None:
        return (
            f"{path}: damaged: the batch at offset {comparison.differing_offset} has other content"
            f" in the same epoch"
        )
    match comparison.verdict.value:
        case "same":
            return f"{path}: the same"
        case "prefix":
            return f"{path}: ends at offset {end} and lacks the records after it"
    return (
        f"{path}: diverged at offset {comparison.common_end_offset}, epoch"
        f" {comparison.common_epoch}; ends at offset {end}"
    )


def history_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary of ``history`` for people."""
    begin, end = summary["begin_offset"], summary["end_offset"]
    events = counted(summary["events"], "event")
    yield f"{summary['path']}: {events} from offset {begin} on, before offset {end}"
    if begin:
        yield f"what happened before offset {begin} is not in this copy any more"
    for gap in summary["unknown"]:
        first, last = gap["begin_offset"], gap["end_offset"] - 1
        yield f"what happened in offsets {first} to {last} is unknown: the log is damaged there"
    if summary["uncommitted_events"]:
        yield committed_line(summary["committed_end_offset"], end, _MARK)


def difference_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary of ``diff`` for people."""
    left, right = summary["left"], summary["right"]
    left_end, right_end = summary["left_end_offset"], summary["right_end_offset"]
    common = summary["common_end_offset"]
    match summary["verdict"]:
        case None:
            yield f"{left}: before offset {left_end} and before offset {right_end}"
        case "same":
            yield f"{left} and {right} have the same records, before offset {left_end}"
        case "prefix":
            shorter, longer = (left, right) if left_end < right_end else (right, left)
            missing = counted(abs(left_end - right_end), "record")
            yield f"{shorter} lacks the last {missing} of {longer}, from offset {common} on"
        case _:
            yield (
                f"{left} (before offset {left_end}) and {right} (before offset {right_end}) have"
                f" diverged at offset {common}, after epoch {summary['common_epoch']}"
            )
    if summary["differing_offset"] is not None:
        yield (
            f"the batch at offset {summary['differing_offset']} differs although its epoch is the"
            f" same: one of the copies is damaged"
        )
    yield counted(summary["differences"], "difference")
