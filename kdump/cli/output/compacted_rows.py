"""What the rows of ``kdump compact`` are."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kdump.cli.output.recovery_rows import RECOVERED_DIRECTORY, RECOVERED_PARTITION
from kdump.jobs.verify.finding_row import FINDING
from kdump.rows.common_rows import DIRECTORY_FIELDS, INTERRUPTED, KAFKA, REFUSAL
from kdump.rows.row_type import (
    BYTES,
    COUNT,
    FLAG,
    INT,
    INTEGER,
    NUMBER,
    SIZE,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    map_of,
    object_of,
    objects_of,
    one_of,
)

_AMOUNT: Final = object_of(
    Field("size_bytes", SIZE), Field("batches", COUNT), Field("records", COUNT)
)
COMPACTED_PARTITION: Final = RowType(
    "partition",
    "What compaction does to a partition. Null for what was not read.",
    (
        *DIRECTORY_FIELDS,
        Field("left_because", TEXT.or_null, "Why it was not read."),
        Field(
            "refusals",
            list_of(REFUSAL),
            "Why it is left unchanged, or unchanged after some segment: none or one.",
        ),
        Field(
            "unknown_properties",
            list_of(TEXT),
            "Properties that decide how it is compacted and are not known.",
        ),
        Field(
            "deleted_leftovers",
            COUNT,
            "Unfinished files of an interrupted change (.cleaned) that are deleted.",
        ),
        Field("deleted_leftover_bytes", SIZE, "Their size."),
        Field("first_dirty_offset", INTEGER.or_null),
        Field("end_offset", INTEGER.or_null, "The end of the compacted range."),
        Field("held_at", INTEGER.or_null, "The offset that ends the range."),
        Field("held_by", TEXT.or_null, "What that is."),
        Field("before", _AMOUNT.or_null),
        Field("after", _AMOUNT.or_null),
        Field("segments_before", COUNT.or_null),
        Field("segments_after", COUNT.or_null),
        Field("keys_before", COUNT.or_null, "Distinct keys."),
        Field("keys_after", COUNT.or_null),
        Field("records_without_key", COUNT.or_null, "Records deleted because they have no key."),
        Field("tombstones_before", COUNT.or_null, "Records without a value."),
        Field("tombstones_dropped", COUNT.or_null, "Keys deleted because of one."),
        Field("freed_bytes", BYTES.or_null, "Difference in log size."),
        Field(
            "cleaner_offset",
            INTEGER.or_null,
            "The new offset in the cleaner's checkpoint; null if it does not change.",
        ),
        Field(
            "groups",
            objects_of(
                Field("base_offset", INTEGER, "Of the new one."),
                Field("replaced", list_of(INTEGER), "Base offsets of the old ones."),
                Field("is_unchanged", FLAG),
                Field("before", _AMOUNT, "Contents of segments."),
                Field("after", _AMOUNT, "Contents of segments."),
            ),
        ),
    ),
)

COMPACTED_DIRECTORY: Final = RowType(
    "directory",
    "A log directory.",
    (
        Field("log_dir", TEXT, "The log directory."),
        Field("left_because", TEXT.or_null, "Why it was not read."),
        Field("is_applied", FLAG),
        Field("undos", list_of(TEXT), "Ids for 'kdump undo'; empty without undo data."),
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "Totals.",
    (
        Field("partitions", COUNT),
        Field("compacted", COUNT, "Partitions with new segments."),
        Field("left", COUNT, "Partitions that are left unchanged."),
        Field("freed_bytes", BYTES, "Of logs and unfinished files."),
        Field("written_bytes", SIZE, "Size of new segments."),
        Field("needed_bytes", SIZE, "Free space that is needed at most."),
        Field("is_dry_run", FLAG),
        Field("seconds", NUMBER),
        Field(
            "expected_seconds", NUMBER.or_null, "In a dry run: the expected duration of the run."
        ),
        KAFKA,
    ),
)

EXPLAINED_PARTITION: Final = RowType(
    "explained_partition",
    "A compacted partition, as the log cleaner sees it, with --explain. Null for what is not known"
    " because it is not loaded.",
    (
        Field("node_id", INTEGER.or_null, "The broker; null if the log directory does not say."),
        Field("log_dir", TEXT, "The log directory."),
        Field("directory", TEXT, "Name of the partition's directory in it."),
        Field("topic", TEXT),
        Field("partition", INT.limited(minimum=0)),
        Field(
            "state",
            one_of(
                "queued", "below ratio", "nothing cleanable", "empty", "uncleanable", "not loaded"
            ),
            "What the log cleaner makes of it.",
        ),
        Field(
            "turn",
            INTEGER.limited(minimum=1).or_null,
            "Its place in the cleaner's order, from 1; null if it is not cleaned.",
        ),
        Field(
            "clean_bytes", SIZE.or_null, "Of the segments that begin before the first dirty offset."
        ),
        Field(
            "cleanable_bytes",
            SIZE.or_null,
            "Of the segments from the first dirty offset to end_offset.",
        ),
        Field(
            "held_bytes",
            SIZE.or_null,
            "Of the closed segments from end_offset on: dirty, but not cleanable.",
        ),
        Field("active_bytes", SIZE.or_null, "Of the active segment."),
        Field(
            "cleanable_ratio",
            NUMBER.or_null,
            "The dirty ratio: cleanable_bytes of total_bytes; null without any.",
        ),
        Field(
            "is_forced",
            FLAG.or_null,
            "Whether max.compaction.lag.ms is exceeded and there is something to clean.",
        ),
        Field(
            "compaction_delay_ms",
            COUNT.or_null,
            "For how long max.compaction.lag.ms is exceeded; 0 if it is not.",
        ),
        Field(
            "earliest_dirty_timestamp_ms",
            TIME.or_null,
            "Time of the first batch of the oldest dirty segment.",
        ),
        Field("total_bytes", SIZE.or_null, "clean_bytes and cleanable_bytes."),
        Field("segments", COUNT.or_null),
        Field("log_start_offset", INTEGER.or_null),
        Field("log_end_offset", INTEGER.or_null),
        Field("high_watermark", INTEGER.or_null),
        Field("last_stable_offset", INTEGER.or_null),
        Field(
            "deletable_segments",
            COUNT.or_null,
            "Old segments that the cleaner deletes after each round.",
        ),
        Field("deletable_bytes", SIZE.or_null),
        Field("first_dirty_offset", INTEGER.or_null),
        Field("first_uncleanable_offset", INTEGER.or_null),
        Field(
            "end_offset",
            INTEGER.or_null,
            "Base offset of the segment with the first uncleanable offset: only whole segments are"
            " cleaned.",
        ),
        Field("held_at", INTEGER.or_null, "The offset that the cleaner cannot pass."),
        Field(
            "held_until_ms",
            TIME.or_null,
            "When min.compaction.lag.ms no longer holds it; null if something else does.",
        ),
        Field(
            "dirty_from",
            one_of(
                "cleaner checkpoint",
                "no cleaner checkpoint",
                "cleaner checkpoint below the log start",
                "cleaner checkpoint past the log end",
            ).or_null,
            "What decides first_dirty_offset.",
        ),
        Field(
            "held_by",
            one_of(
                "active segment", "high watermark", "open transaction", "compaction lag"
            ).or_null,
            "What decides first_uncleanable_offset.",
        ),
        Field(
            "transaction",
            object_of(
                Field("first_offset", INTEGER),
                Field("producer_id", INTEGER),
                Field("producer_epoch", INTEGER),
                Field(
                    "start_time_ms",
                    TIME.or_null,
                    "Timestamp of its first record; null if no header has it.",
                ),
            ).or_null,
        ),
        Field("checkpoint_offset", INTEGER.or_null, "From cleaner-offset-checkpoint."),
        Field(
            "checkpoint_line",
            one_of("own directory", "other directory", "none"),
            "Where that line is.",
        ),
        Field(
            "has_high_watermark",
            FLAG,
            "Whether the high watermark is known; otherwise it counts as 0.",
        ),
        Field("log_bytes", SIZE, "Of all segments."),
        Field(
            "cleanup_policy",
            list_of(one_of("compact", "delete")).or_null,
            "null if it is not known, but the cleaner's checkpoint has a line, or the topic is"
            " named.",
        ),
        Field("min_cleanable_ratio", NUMBER, "min.cleanable.dirty.ratio"),
        Field("min_compaction_lag_ms", INTEGER, "min.compaction.lag.ms"),
        Field("max_compaction_lag_ms", INTEGER, "max.compaction.lag.ms"),
        Field(
            "unknown_properties",
            list_of(TEXT),
            "Which of these three are not known; Kafka's defaults are used.",
        ),
        Field("problem", REFUSAL.or_null, "Why it is uncleanable or not loaded."),
    ),
)

EXPLAINED_BROKER: Final = RowType(
    "explained_broker",
    "The log cleaner's view of a broker, with --explain, after its partitions.",
    (
        Field("node_id", INTEGER.or_null, "The broker; null if the log directories do not say."),
        Field("cluster_id", TEXT.or_null),
        Field("log_dirs", list_of(TEXT), "Its log directories, as far as they were given."),
        Field("unclean_log_dirs", list_of(TEXT), "Those after an unclean shutdown."),
        Field("partitions", COUNT, "Explained partitions."),
        Field("compacted", COUNT, "Compacted partitions of the broker."),
        Field("queued", COUNT, "How many of them the cleaner takes."),
        Field(
            "held_bytes",
            map_of(COUNT),
            "Dirty bytes that cannot be cleaned, by what holds them.",
        ),
        Field("unknown_topics", list_of(TEXT), "Topics with an unknown cleanup policy."),
        Field(
            "misplaced_checkpoint_lines",
            objects_of(
                Field("topic", TEXT),
                Field("partition", INT.limited(minimum=0)),
                Field("log_dirs", list_of(TEXT), "Those with a line."),
                Field(
                    "is_repeated",
                    FLAG,
                    "Whether there are two lines; otherwise the cleaner adds the second one"
                    " after its next round.",
                ),
                Field("without_log", list_of(TEXT), "Those that do not have the log."),
            ),
        ),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "compact",
        (
            INTERRUPTED,
            FINDING,
            COMPACTED_PARTITION,
            COMPACTED_DIRECTORY,
            SUMMARY,
            replace(FINDING, type="recovery_finding", shared=""),
            replace(RECOVERED_PARTITION, type="recovery_partition"),
            replace(RECOVERED_DIRECTORY, type="recovery_directory"),
            EXPLAINED_PARTITION,
            EXPLAINED_BROKER,
        ),
    ),
)
