"""What the rows of ``kdump retain`` and ``kdump delete-records`` are."""

from __future__ import annotations

from typing import Final

from kdump.jobs.verify.finding_row import FINDING
from kdump.rows.common_rows import (
    CHANGE_FIELDS,
    DIRECTORY_FIELDS,
    INTERRUPTED,
    KAFKA,
    OPERATION,
    ROOT_OPERATIONS,
)
from kdump.rows.row_type import (
    BYTES,
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    SIZE,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    object_of,
    objects_of,
    one_of,
)

DELETED_PARTITION: Final = RowType(
    "partition",
    "What is deleted of a partition.",
    (
        *DIRECTORY_FIELDS,
        Field("left_because", TEXT.or_null, "Why nothing is deleted."),
        Field("cleanup_policy", list_of(one_of("compact", "delete")).or_null, "Null if unknown."),
        Field("retention_ms", INTEGER.or_null, "-1 is no limit; null is unknown."),
        Field("retention_bytes", BYTES.or_null, "-1 is no limit; null is unknown."),
        Field(
            "origins",
            object_of(
                Field("cleanup_policy", TEXT.or_null),
                Field("retention_ms", TEXT.or_null),
                Field("retention_bytes", TEXT.or_null),
                Field("remote_storage_enable", TEXT.or_null),
            ),
            "The origins of the values; null if unknown.",
        ),
        Field("old_log_start_offset", INTEGER.or_null, "Before."),
        Field("log_start_offset", INTEGER.or_null, "Afterwards."),
        Field("log_end_offset", INTEGER.or_null),
        Field("high_watermark", INTEGER.or_null, "Null if unknown."),
        Field("deleted_segments", COUNT),
        Field("deleted_leftovers", COUNT, "Leftover files that are deleted."),
        Field("freed_bytes", SIZE),
        Field("held_back", list_of(TEXT), "What keeps segments that would be deleted otherwise."),
        Field(
            "segments",
            objects_of(
                Field("base_offset", INTEGER),
                Field("size_bytes", SIZE, "Size of the log."),
                Field("disk_bytes", SIZE, "Size of all its files."),
                Field("timestamp_ms", TIME, "The largest of its records, or the time of its file."),
                Field("has_timestamp", FLAG, "Whether it is the time of a record."),
                Field("is_deleted", FLAG),
                Field("why", TEXT),
                Field(
                    "goes_at_ms",
                    TIME.or_null,
                    "When it expires; null if it is deleted now, or never by age.",
                ),
            ),
        ),
        Field("operations", list_of(OPERATION), "Changes to files, in order."),
    ),
)

DELETED_DIRECTORY: Final = RowType(
    "directory",
    "The changes to a log directory. If they failed, only the fields of the plan.",
    (
        Field("log_dir", TEXT, "The log directory."),
        *CHANGE_FIELDS,
        Field("freed_bytes", SIZE, unless_failed=True),
        ROOT_OPERATIONS,
    ),
)

DELETE_SUMMARY: Final = RowType(
    "summary",
    "Totals.",
    (
        Field("partitions", COUNT),
        Field("deleted_segments", COUNT),
        Field("freed_bytes", SIZE),
        Field("is_dry_run", FLAG),
        Field("seconds", NUMBER),
    ),
)
RETAIN_SUMMARY: Final = RowType("summary", "Totals.", (*DELETE_SUMMARY.fields, KAFKA))
_ROWS: Final = (INTERRUPTED, FINDING, DELETED_PARTITION, DELETED_DIRECTORY)
ANSWERS: Final = (
    JsonAnswer("retain", (*_ROWS, RETAIN_SUMMARY)),
    JsonAnswer("delete-records", (*_ROWS, DELETE_SUMMARY)),
)
