"""The rows of ``kdump lookup``."""

from __future__ import annotations

from typing import Final

from kdump.jobs.listing.certain_end import IS_VALID_END_CERTAIN
from kdump.rows.row_type import (
    BYTES,
    FLAG,
    INT,
    INTEGER,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    one_of,
)

LOOKUP: Final = RowType(
    "lookup",
    "The answer of one replica.",
    (
        Field("log_dir", TEXT, "The log directory.", "Log dir", dropped=8),
        Field("topic", TEXT, "The topic.", "Topic"),
        Field("partition", INT, "Number of the partition.", "Partition"),
        Field(
            "offset",
            INTEGER.or_null_as("none"),
            "The answer; null if there is none.",
            "Offset",
        ),
        Field(
            "is_lost",
            FLAG,
            "Whether damage is where the offset was that was looked up; the answer is then the"
            " next record.",
            "Lost",
            is_detail=True,
        ),
        Field(
            "timestamp_ms",
            TIME.or_none,
            "Time of the record; null if there is no record, or if it has no time.",
            "Time",
            dropped=6,
        ),
        Field(
            "leader_epoch",
            INTEGER.or_none,
            "Leader epoch at the offset; null if it is not known.",
            "Epoch",
            dropped=5,
        ),
        Field(
            "epoch_end_offset",
            INTEGER.or_none,
            "Where that epoch ends; null if that is not known.",
            "Epoch end",
            dropped=4,
        ),
        Field(
            "file",
            TEXT.or_none,
            "The log that holds the record; null if there is no record, as for the fields up to"
            " is_checksum_verified.",
            "File",
            dropped=2,
        ),
        Field(
            "position",
            INTEGER.or_none,
            "Byte of the file at which the batch begins.",
            "Position",
            dropped=7,
        ),
        Field(
            "batch_base_offset",
            INTEGER.or_none,
            "First offset of the batch.",
            "Batch start",
            dropped=3,
        ),
        Field(
            "batch_last_offset",
            INTEGER.or_null,
            "Last offset of the batch.",
            "Batch end",
            is_detail=True,
        ),
        Field("batch_bytes", BYTES.or_null, "Size of the batch.", "Batch size", is_detail=True),
        Field(
            "record_offset",
            INTEGER.or_null,
            "Offset of the first record at or after the answer.",
            "Record",
            is_detail=True,
        ),
        Field(
            "key_bytes",
            BYTES.or_null,
            "Size of its key; null also for a null key.",
            "Key",
            is_detail=True,
        ),
        Field(
            "value_bytes",
            BYTES.or_null,
            "Size of its value; null also for a null value.",
            "Value",
            is_detail=True,
        ),
        Field(
            "codec",
            one_of("none", "gzip", "snappy", "lz4", "zstd").or_null,
            "How the batch is compressed.",
            "Codec",
            is_detail=True,
        ),
        Field(
            "timestamp_type",
            one_of("CreateTime", "LogAppendTime").or_null,
            "Whose clock set the time; null also if there is none.",
            "Time type",
            is_detail=True,
        ),
        Field(
            "is_transactional",
            FLAG.or_null,
            "Whether the batch belongs to a transaction.",
            "Transactional",
            is_detail=True,
        ),
        Field(
            "is_control",
            FLAG.or_null,
            "Whether it has a control record, such as the marker of a transaction.",
            "Control record",
            is_detail=True,
        ),
        Field(
            "is_checksum_verified",
            FLAG.or_null,
            "Whether its checksum was verified.",
            "Checksum verified",
            is_detail=True,
        ),
        Field(
            "bound",
            one_of("high_watermark", "last_stable_offset", "log_end_offset").or_null,
            "The offset that the answer for a time has to be below; null for --offset and where"
            " none was needed.",
            "Bound",
            is_detail=True,
        ),
        Field("log_start_offset", INTEGER, "Where the log begins.", "Log start", is_detail=True),
        Field(
            "last_stable_offset",
            INTEGER.or_null,
            "The last stable offset; null if it was not asked for.",
            "Last stable",
            is_detail=True,
        ),
        Field(
            "high_watermark",
            INTEGER.or_null,
            "What replication-offset-checkpoint says; null if it says nothing.",
            "HW",
            is_detail=True,
        ),
        Field("log_end_offset", INTEGER, "After the last valid batch.", "Log end", dropped=1),
        IS_VALID_END_CERTAIN,
        Field(
            "is_most_advanced",
            FLAG.or_null,
            "Whether the replica has the greatest last leader epoch and, among those, the longest"
            " log; null if that is not known.",
            "Most advanced",
            is_detail=True,
        ),
        Field("read_bytes", BYTES, "How much was read for this answer.", "Read", is_detail=True),
        Field(
            "unused_indexes",
            list_of(TEXT),
            "Names of indexes that are missing or wrong, and were not used.",
            "Unused indexes",
            is_detail=True,
        ),
        Field("notes", list_of(TEXT), "What else there is to know, in sentences."),
    ),
)

ANSWERS: Final = (JsonAnswer("lookup", (LOOKUP,)),)
