"""Rows, and parts of rows, that several commands have."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INT,
    INTEGER,
    NUMBER,
    SIZE,
    TEXT,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    object_of,
    objects_of,
    one_of,
)

_STARTING: Final = (
    "Which Kafka will start on the log directories: the report speaks of what it does."
)
KAFKA: Final = Field(
    "kafka",
    replace(
        objects_of(
            Field("version", TEXT, "Such as 4.4 or 4.3.1."),
            Field("reason", TEXT, "What says so, in words."),
        ),
        shared="kafkas",
        what=_STARTING,
    ),
    _STARTING,
)

PARTITION_OFFSET: Final = replace(
    object_of(Field("topic", TEXT), Field("partition", INT), Field("offset", INTEGER)),
    shared="partition_offset",
    what="A line of a checkpoint.",
)

LEFTOVER: Final = replace(
    object_of(
        Field("file", TEXT, "Its name."),
        Field("outcome", one_of("deleted", "put in place", "replaced")),
    ),
    shared="leftover",
    what="A leftover file.",
)

REFUSAL: Final = replace(
    object_of(
        Field("why", TEXT, "One sentence."),
        Field("file", TEXT.or_null, "The file that it is about."),
        Field("position", INTEGER.or_null, "Byte of the file."),
        Field("exception", TEXT.or_null, "Name of Kafka's exception."),
    ),
    shared="refusal",
    what="Why something is left unchanged.",
)

OPERATION: Final = replace(
    object_of(
        Field(
            "action",
            one_of(
                "remove",
                "cut",
                "rename",
                "replace",
                "create",
                "create-directory",
                "rename-directory",
                "remove-directory",
            ),
        ),
        Field("file", TEXT, "Name of the file, or of the directory of a partition, afterwards."),
        Field("source", TEXT.or_null, "Name of the file before a rename."),
        Field("size_bytes", SIZE, "Size afterwards; 0 if the file is removed."),
        Field("lost_bytes", SIZE, "Bytes that are removed."),
        Field(
            "rewrite",
            INTEGER.or_null,
            "Number of the replacement of segments that the change is part of.",
        ),
    ),
    shared="operation",
    what="A change to a file of the directory that the object is about. The actions that end in"
    " -directory change the directory of a partition as a whole.",
)
DIRECTORY_FIELDS: Final = (
    Field("log_dir", TEXT, "The log directory."),
    Field("directory", TEXT, "Name of the partition's directory in it."),
    Field(
        "topic",
        TEXT.or_null,
        "From the directory's name; null if that is not the name of a partition.",
    ),
    Field("partition", INT.or_null, "Likewise."),
)
"""The directory of a partition."""


def directory_values(log_dir: object, name: str, key: tuple[str, int] | None) -> dict[str, Any]:
    """The values of :data:`DIRECTORY_FIELDS`.

    Args:
        log_dir: its path.
        name: of the directory in it.
        key: the partition; None if the directory is not named after one.
    """
    topic, partition = key or (None, None)
    return {"log_dir": str(log_dir), "directory": name, "topic": topic, "partition": partition}


CHANGE_FIELDS: Final = (
    Field("lost_bytes", SIZE, "Bytes that are removed; undo data keeps them."),
    Field("needed_bytes", SIZE, "Free space that the changes need while they are made."),
    Field(
        "is_applied",
        FLAG,
        "Whether the changes were made; false in a dry run, and if there is nothing to change.",
    ),
    Field("undos", list_of(TEXT), "Ids for 'kdump undo'; empty without undo data."),
    Field(
        "failure",
        TEXT.or_null,
        "Why the changes were not made, or only partly; null if nothing failed.",
    ),
)
"""What changes to a directory take and lose, and whether they were made."""
ROOT_OPERATIONS: Final = Field(
    "operations",
    list_of(OPERATION),
    "Changes to files in the log directory itself.",
    unless_failed=True,
)

INTERRUPTED: Final = RowType(
    "interrupted",
    "An earlier run of kdump that was interrupted.",
    (
        Field("log_dir", TEXT, "The log directory."),
        Field("command", TEXT, "What was run."),
        Field("is_finished", FLAG, "Whether it is completed now; a dry run does not complete it."),
        Field(
            "files",
            objects_of(
                Field("action", one_of("remove", "write")),
                Field("file", TEXT, "The file, relative to the log directory."),
                Field("size_bytes", SIZE),
            ),
            "What completing it changes, in a dry run.",
        ),
    ),
    shared="interrupted",
)

PLANNED_DIRECTORY: Final = RowType(
    "directory",
    "The changes to a log directory.",
    (
        Field("log_dir", TEXT, "The log directory."),
        *CHANGE_FIELDS,
        Field(
            "operations",
            list_of(OPERATION),
            "Changes to files in the log directory itself.",
            is_optional=True,
        ),
    ),
    shared="planned_directory",
)

PART_PARTITION: Final = RowType(
    "partition",
    "What is done to a partition.",
    (
        *DIRECTORY_FIELDS,
        Field("refusals", list_of(REFUSAL), "What is left unchanged."),
        Field("leftovers", list_of(LEFTOVER), "Leftover files, and what is done to them."),
        Field("forgotten_producers", list_of(INTEGER), "Ids of producers whose state is lost."),
        Field("operations", list_of(OPERATION), "Changes to files, in order."),
    ),
    shared="part_partition",
)

PART_SUMMARY: Final = RowType(
    "summary",
    "Totals.",
    (
        Field("partitions", COUNT),
        Field("changed", COUNT, "Partitions with changes."),
        Field("is_dry_run", FLAG),
        Field("seconds", NUMBER),
    ),
    shared="part_summary",
)

_PARTS: Final = (INTERRUPTED, PART_PARTITION, PLANNED_DIRECTORY, PART_SUMMARY)
ANSWERS: Final = (
    JsonAnswer("resolve", _PARTS),
    JsonAnswer("rebuild-index", _PARTS),
    JsonAnswer("snapshot", _PARTS, ("snapshot rebuild",)),
)
