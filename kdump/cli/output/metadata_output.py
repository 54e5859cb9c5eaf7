"""The metadata of a cluster as tables for people, and as rows for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.rendering import Row
from kdump.cli.output.value_text import format_timestamp, format_value
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.jobs.metadata.metadata_questions import OtherCopy, ShownMetadata

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
