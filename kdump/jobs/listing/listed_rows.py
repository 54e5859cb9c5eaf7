"""Partitions as listings show them, as rows.

Nothing heavy is imported here: ``kdump ls`` starts fast.
"""

from __future__ import annotations

from typing import Any, Final

from kdump.jobs.listing.certain_end import IS_END_CERTAIN
from kdump.jobs.listing.partition_facts import bounds_fields, loaded_or_reported, topic_id
from kdump.jobs.problems.found_problems import ProblemReporter
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.rows.common_rows import directory_values
from kdump.rows.row_type import (
    BYTES,
    COUNT,
    FLAG,
    INT,
    INTEGER,
    SIZE,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    map_of,
    one_of,
)

LISTED_PARTITION: Final = RowType(
    "partition",
    "A partition. If its directory cannot be read, everything but log_dir and directory is null.",
    (
        Field("log_dir", TEXT, "The log directory, as it was named.", "Log dir", dropped=12),
        Field("directory", TEXT, "Name of the partition's directory in it."),
        Field(
            "topic",
            TEXT.or_null,
            "From the directory's name; null if that is not the name of a partition.",
            "Topic",
        ),
        Field("partition", INT.or_null, "Likewise.", "Partition"),
        Field(
            "state",
            one_of("live", "future", "delete", "stray").or_null,
            "`live`, `future` (moving from another disk), `delete` or `stray`.",
            "State",
            dropped=11,
        ),
        Field("segments", COUNT.or_null, "How many segments it has.", "Segments", dropped=5),
        Field(
            "log_bytes",
            SIZE.or_null,
            "Size of all segments' logs, as Kafka counts it.",
            "Size",
            dropped=10,
        ),
        Field("total_bytes", SIZE.or_null, "Size of all files."),
        Field(
            "log_start_offset",
            INTEGER.or_null,
            "Log start offset: the larger of the checkpoint and the first segment.",
            "Start",
            dropped=8,
        ),
        Field(
            "local_log_start_offset",
            INTEGER.or_none,
            "With tiered storage: where the local log begins. Null if the partition is not in"
            " tiered storage, or has no local log.",
            "Local start",
            dropped=8,
            is_optional=True,
        ),
        Field(
            "remote_segments",
            INTEGER.or_null,
            "With tiered storage: the number of remote segments that are read: they begin before"
            " the"
            " local log. Null if the partition is not in tiered storage.",
            is_optional=True,
        ),
        Field(
            "remote_log_bytes",
            BYTES.or_none,
            "With tiered storage: the size of their logs, as far as they are read.",
            "Remote size",
            dropped=8,
            is_optional=True,
        ),
        Field(
            "log_end_offset",
            INTEGER.or_null,
            "Log end offset: where the chain of batch headers ends; checksums are not checked.",
            "End",
        ),
        IS_END_CERTAIN,
        Field(
            "gaps",
            COUNT.or_null,
            "Segments that begin after the end of the previous one: compaction leaves such gaps,"
            " otherwise a segment is missing.",
            "Gaps",
            dropped=4,
        ),
        Field(
            "recovery_point",
            INTEGER.or_null,
            "Recovery point, from the checkpoint: the log was flushed up to, not including, this"
            " offset.",
            "Recovery",
            dropped=7,
        ),
        Field(
            "high_watermark",
            INTEGER.or_null,
            "High watermark, from the checkpoint.",
            "HW",
            dropped=6,
        ),
        Field(
            "earliest_timestamp_ms",
            TIME.or_none,
            "Time of the first record, if its batch header has it.",
            "Earliest",
            dropped=2,
        ),
        Field(
            "latest_timestamp_ms",
            TIME.or_none,
            "Largest time of a record, from the time indexes and the last batch headers.",
            "Latest",
            dropped=3,
        ),
        Field("topic_id", TEXT.or_none, "From partition.metadata.", "Topic id", dropped=1),
        Field(
            "leftovers",
            map_of(COUNT).or_null,
            "Leftover files by kind: deleted, cleaned, swap, orphan, temporary.",
            "Leftovers",
            alert=True,
            dropped=9,
        ),
        Field("foreign", list_of(TEXT).or_null, "Names of files that are not Kafka's."),
        Field(
            "is_most_advanced",
            FLAG,
            "Whether `records` and `batches` read this replica of the partition; one of those that"
            " are named and can be read.",
            sql_only=True,
        ),
    ),
)
ANSWERS: Final = (JsonAnswer("ls", (LISTED_PARTITION,)),)

REMOTE_FIELDS: Final = ("local_log_start_offset", "remote_segments", "remote_log_bytes")
"""What is listed of tiered storage."""


def remote_fields(partition: Partition) -> dict[str, int | None]:
    """What a partition has in tiered storage; None for all if it was not listed with that.

    Raises:
        KdumpError: ``__remote_log_metadata`` cannot be loaded.
        OSError: something cannot be read.
    """
    # Importing it takes time, and few listings need it.
    from kdump.tiered.tiered_storage import remote_part

    plan = remote_part(partition)
    if plan is None:
        return dict.fromkeys(REMOTE_FIELDS)
    sizes = [each.size_bytes for each in plan.remote_logs]
    return dict(zip(REMOTE_FIELDS, (plan.local_start_offset, len(sizes), sum(sizes)), strict=True))


def partition_row(
    partition: Partition, log_directory: LogDirectory | None, problems: ProblemReporter
) -> dict[str, Any]:
    """Return a partition as ``kdump ls`` shows it to programs.

    Args:
        partition: as it is listed.
        log_directory: around it; None if that cannot be read.
    """
    loaded = loaded_or_reported(partition, problems)
    path = partition.path
    log_dir = log_directory.path if log_directory else path.parent
    return {
        "type": "partition",
        **directory_values(log_dir, path.name, partition.topic_partition),
        "state": partition.state.name.lower(),
        "segments": len((loaded or partition).segments),
        "log_bytes": (loaded or partition).log_bytes,
        "total_bytes": partition.total_bytes,
        **bounds_fields(loaded, log_directory, problems),
        "topic_id": topic_id(partition, problems),
        "leftovers": {kind.value: count for kind, count in partition.leftover_counts.items()},
        "foreign": list(partition.foreign),
    }
