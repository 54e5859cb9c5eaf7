"""What ``kdump metadata collect`` found, for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kdump.cli.output.rendering import Row
from kdump.cli.output.value_text import format_bytes, format_timestamp
from kdump.formats.names import PartitionState
from kdump.state.metadata.disk_collection import (
    CollectedDirectory,
    DiskCollection,
)
from kdump.words import counted

_STATES: Final = {
    "live_partitions": PartitionState.LIVE,
    "future_partitions": PartitionState.FUTURE,
    "deleted_partitions": PartitionState.DELETE,
    "stray_partitions": PartitionState.STRAY,
}


def directory_row(directory: CollectedDirectory) -> Row:
    """The row of a log directory."""
    metadata = directory.metadata
    states = Counter(each.state for each in directory.partitions)
    return {
        "type": "directory",
        "log_dir": directory.path,
        "node_id": directory.node_id,
        "cluster_id": directory.cluster_id,
        "directory_id": directory.directory_id,
        "is_clean_shutdown": directory.is_clean_shutdown,
        **{name: states[state] for name, state in _STATES.items()},
        "highest_leader_epoch": _greatest(each.highest_epoch for each in directory.partitions),
        "highest_producer_id": _highest_producer_id(directory),
        "metadata_epoch": None if metadata is None else metadata.epoch,
        "metadata_end_offset": None if metadata is None else metadata.end_offset,
        "problems": _problems(directory),
    }


def _greatest(numbers: Iterable[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _highest_producer_id(directory: CollectedDirectory) -> int | None:
    in_logs = _greatest(each.highest_producer_id for each in directory.partitions)
    return _greatest((in_logs, directory.highest_transactional_producer_id))


def _problems(directory: CollectedDirectory) -> int:
    metadata = directory.metadata
    return (
        len(directory.problems)
        + sum(len(each.problems) for each in directory.partitions)
        + (0 if metadata is None else len(metadata.problems))
    )


def summary_row(collection: DiskCollection, name: str, size_bytes: int) -> dict[str, Any]:
    """The summary of a collection.

    Args:
        collection: what was found.
    """
    directories = collection.log_directories
    partitions = [each for directory in directories for each in directory.partitions]
    live = [each for each in partitions if each.state is PartitionState.LIVE]
    here = {(each.topic, each.partition) for each in live}
    claimed = {
        (claim.topic, each.partition)
        for directory in directories
        for claim in directory.claims
        for each in claim.partitions
    }
    copies = [each for each in directories if each.metadata is not None]
    newest = max(copies, key=_metadata_end, default=None)
    return {
        "type": "summary",
        "file": name,
        "size_bytes": size_bytes,
        "log_dirs": len(directories),
        "cluster_ids": sorted({each.cluster_id for each in directories if each.cluster_id}),
        "node_ids": sorted({each.node_id for each in directories if each.node_id is not None}),
        "topics": len({topic for topic, _ in here}),
        "partitions": len(here),
        "directories_without_topic_id": sum(each.topic_id is None for each in live),
        "claimed_topics": len({topic for topic, _ in claimed - here}),
        "claimed_partitions": len(claimed - here),
        "metadata_log_dir": None if newest is None else newest.path,
        "metadata_epoch": None if newest is None else _metadata_end(newest)[0],
        "metadata_end_offset": None if newest is None else _metadata_end(newest)[1],
        "problems": sum(map(_problems, directories)),
    }


def _metadata_end(directory: CollectedDirectory) -> tuple[int, int]:
    metadata = directory.metadata
    return (-1, -1) if metadata is None else (metadata.epoch, metadata.end_offset)


def _reaches_back(directory: CollectedDirectory) -> bool:
    """Whether a directory has a copy of the metadata that says what it was at the moment."""
    metadata = directory.metadata
    if metadata is None or metadata.rewound is None:
        return False
    return metadata.end_offset > 0 and metadata.rewound.problem is None


def summary_lines(summary: Row, collection: DiskCollection, time_ms: int | None) -> Iterator[str]:
    """The summary for people; the last line names the next command.

    Args:
        time_ms: of ``--to``; None without it.
    """
    yield (
        f"{counted(summary['partitions'], 'partition')} of"
        f" {counted(summary['topics'], 'topic')} in"
        f" {counted(summary['log_dirs'], 'log directory', 'log directories')}"
    )
    if len(summary["cluster_ids"]) > 1:
        yield f"the log directories belong to several clusters: {', '.join(summary['cluster_ids'])}"
    if not summary["cluster_ids"]:
        yield "no log directory says to which cluster it belongs"
    if summary["metadata_log_dir"] is None:
        yield "no copy of the cluster's metadata is here"
    else:
        yield (
            f"the most advanced copy of the metadata, in {summary['metadata_log_dir']}, ends at"
            f" offset {summary['metadata_end_offset']} in epoch {summary['metadata_epoch']}"
        )
        if time_ms is not None:
            moment = f"{format_timestamp(time_ms)} (UTC)"
            if any(map(_reaches_back, collection.log_directories)):
                yield f"topics, configurations, ACLs, quotas and credentials are those of {moment}"
            else:
                yield f"no copy here says what the metadata was at {moment}: another node's has to"
    if summary["directories_without_topic_id"]:
        without = counted(summary["directories_without_topic_id"], "directory", "directories")
        yield f"{without} without a topic id"
    if summary["claimed_partitions"]:
        yield (
            f"the internal topics name {counted(summary['claimed_partitions'], 'partition')} of"
            f" {counted(summary['claimed_topics'], 'topic')} that are not here"
        )
    if summary["problems"]:
        yield f"{counted(summary['problems'], 'problem')}: they are in the file"
    secrets = (
        "" if summary["metadata_log_dir"] is None else "; it has secrets of the cluster's users"
    )
    yield f"wrote {summary['file']}, {format_bytes(summary['size_bytes'])}{secrets}"
    yield (
        "next: collect on the other hosts, then kdump metadata plan FILE... --controller"
        " ID@HOST:PORT --out PLAN"
    )
