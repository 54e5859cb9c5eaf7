"""What the rows of ``kdump erase`` are."""

from __future__ import annotations

from typing import Final

from kdump.jobs.verify.finding_row import FINDING
from kdump.rows.common_rows import DIRECTORY_FIELDS, INTERRUPTED, OPERATION, PLANNED_DIRECTORY
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    objects_of,
    one_of,
)

AMOUNT_FIELDS: Final = (
    Field("records", COUNT, "All records."),
    Field("erased_records", COUNT, "Those that are erased, or masked."),
    Field("rewritten_batches", COUNT, "Batches that have such records."),
    Field("emptied_batches", COUNT, "Batches that lose all of them, and stay without records."),
    Field(
        "undecoded_records",
        COUNT,
        "Records in which a field may hide: their key or value cannot be decoded, or only in part.",
    ),
)
"""What is erased of a log, or of a part of one."""

ERASED_PARTITION: Final = RowType(
    "partition",
    "What is erased of a partition.",
    (
        *DIRECTORY_FIELDS,
        Field("left_because", TEXT.or_null, "Why it is left unchanged; null if it is not."),
        *AMOUNT_FIELDS,
        Field(
            "segments",
            objects_of(Field("base_offset", INTEGER), *AMOUNT_FIELDS),
            "The segments that lose records.",
        ),
        Field(
            "deleted_leftovers",
            COUNT,
            "Unfinished files of an interrupted change (.cleaned) that are deleted.",
        ),
        Field("operations", list_of(OPERATION), "Changes to files, in order."),
    ),
)

DIFFERENCE: Final = RowType(
    "difference",
    "Replicas of a partition that lose different numbers of records.",
    (
        Field("topic", TEXT),
        Field("partition", INTEGER),
        Field(
            "replicas",
            objects_of(
                Field("log_dir", TEXT, "The log directory."),
                Field("erased_records", COUNT, "Records that are erased, or masked."),
                Field("left_because", TEXT.or_null, "Why it is left unchanged."),
            ),
        ),
    ),
)

COPY: Final = RowType(
    "copy",
    "Where the erased records may still be, in what was given.",
    (
        Field("log_dir", TEXT, "The log directory, or that of remote segments."),
        Field(
            "kind",
            one_of("undo", "list", "directory", "leftover", "remote"),
            "Undo data, the list of what was erased, a partition's directory, a leftover file, or a"
            " remote segment.",
        ),
        Field(
            "name",
            TEXT,
            "The id of the undo data; or a path in the log directory, or in remote storage.",
        ),
        Field("command", TEXT.or_null, "The command that keeps the undo data."),
    ),
)

REMAINS: Final = RowType(
    "remains",
    "A file in which --finish or --verify found something, or that cannot be searched.",
    (
        Field("log_dir", TEXT, "The log directory."),
        Field("file", TEXT, "The file, relative to the log directory."),
        Field("undo_of", TEXT.or_null, "The command whose undo data it is; null if it is none."),
        Field("failure", TEXT.or_null, "Why it cannot be read; null if it can."),
        Field(
            "records",
            COUNT,
            "Records that have an erased key or field, or are at the offset of an erased record.",
        ),
        Field("mentions", COUNT, "Erased keys inside other keys, values and headers."),
        Field("raw", COUNT, "Erased keys in bytes that are no records."),
        Field("unreadable_batches", COUNT, "Batches that cannot be decoded: keys may hide there."),
        Field(
            "possible",
            COUNT,
            "Places in other keys and values where an erased key may be, or a longer word; without"
            " anything else they do not keep the certificate from being written.",
        ),
        Field("offsets", list_of(INTEGER), "Of such records; the first hundred."),
    ),
)

CERTIFICATE: Final = RowType(
    "certificate",
    "The end of --finish or --verify.",
    (
        Field("file", TEXT.or_null, "The certificate; null if none was written."),
        Field("searched_files", COUNT),
        Field("keys", COUNT, "Keys that were searched."),
        Field("unknown_keys", COUNT, "Given keys that the certificate does not have."),
        Field("fields", COUNT, "Fields that were looked for."),
        Field("unknown_fields", COUNT, "Given fields that the certificate does not have."),
        Field(
            "not_looked_for",
            COUNT,
            "Fields and prefixes of the certificate that --verify was not given.",
        ),
        Field(
            "records_without_key",
            COUNT,
            "Erased records that had no key, or were named by a field: no search finds copies of"
            " them at other offsets.",
        ),
        Field(
            "undecoded_records",
            COUNT,
            "Records of the topics of these fields that cannot be decoded, or only in part: one may"
            " be in them.",
        ),
        Field("possible_places", COUNT, "Where an erased key may be, or a longer word."),
    ),
)

ERASE_SUMMARY: Final = RowType(
    "summary",
    "Totals.",
    (
        Field("partitions", COUNT),
        *AMOUNT_FIELDS,
        Field("is_masked", FLAG, "Whether records are masked: they stay, without what they say."),
        Field("is_dry_run", FLAG),
        Field("seconds", NUMBER),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "erase",
        (
            *(INTERRUPTED, FINDING, ERASED_PARTITION, DIFFERENCE, PLANNED_DIRECTORY, COPY),
            *(ERASE_SUMMARY, REMAINS, CERTIFICATE),
        ),
    ),
)
