"""The rows of ``kdump diff``."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

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
    list_of,
    object_of,
    objects_of,
    one_of,
)

_ENCODING: Final = one_of("utf8", "base64").or_null
_RANGES: Final = objects_of(Field("start", INTEGER), Field("end", INTEGER, "Exclusive.")).limited(
    maxItems=100
)
_PARTITION: Final = (
    Field(
        "topic",
        TEXT.or_null,
        "From the directory's name; null if that is not the name of a partition.",
        "Topic",
    ),
    Field("partition", INT.or_null, "The same for the number.", "Partition"),
)
_OF_A_SIDE: Final = (
    Field("node_id", INTEGER.or_null, "Node id of its broker."),
    Field("directory", TEXT.or_null, "The directory of the replica; null if it is missing."),
    Field("topic_id", TEXT.or_null, "From partition.metadata."),
    Field("start_offset", INTEGER.or_null, "The first offset of its log."),
    Field(
        "loaded_end_offset",
        INTEGER.or_null,
        "Where the log ends after a broker loaded it; null if none loads it.",
    ),
    Field(
        "last_epoch",
        INTEGER.or_null,
        "The leader epoch of its last batch; -1 if it has none.",
    ),
    Field(
        "starts_over",
        FLAG.or_null,
        "Whether it deletes everything then, and starts at that offset.",
    ),
    Field(
        "cut_batch",
        object_of(
            Field("path", TEXT, "Of the log."),
            Field("position", COUNT, "The byte at which it begins."),
            Field("base_offset", INTEGER, "Its first offset."),
        ).or_null,
        "The batch within which the truncation falls: it is deleted as a whole; null if there"
        " is none.",
    ),
    Field("lost_records", INTEGER.or_null, "Records that it loses then."),
    Field("only_control_records", INTEGER.or_null, "How many of them are control records."),
    Field(
        "missing_ranges",
        _RANGES.or_null,
        "Offsets at which it lacks a record although it goes on after them, and was not"
        " compacted there; the first 100 ranges.",
    ),
    Field(
        "compacted_records",
        INTEGER.or_null,
        "Records of the other one that its cleaner may have removed.",
    ),
    Field(
        "unreadable_records",
        INTEGER.or_null,
        "Records of the other one at offsets that damage took from it.",
    ),
    Field(
        "unreadable_ranges",
        _RANGES.or_null,
        "The offsets that damage took from it; the first 100 ranges.",
    ),
    Field(
        "recoverable_ranges",
        _RANGES.or_null,
        "The offsets of valid batches that a starting broker drops from it, and that kdump"
        " recover --policy salvage keeps; the first 100 ranges.",
    ),
)
COMPARED_PARTITION: Final = RowType(
    "partition",
    "Two replicas of a partition. If one is missing, what is known only by comparing is null.",
    (
        *_PARTITION,
        Field(
            "verdict",
            one_of("same", "prefix", "damaged", "diverged", "unrelated", "missing"),
            "",
            "Verdict",
        ),
        Field(
            "damaged_on",
            one_of("left", "right", "both").or_none,
            "The side whose log is damaged so that a starting broker drops valid batches of it or"
            " does not load it; null if neither is.",
            "Damaged",
            alert=True,
        ),
        Field("left", replace(TEXT, unknown="-"), "The name of the left side.", "Left"),
        Field("right", replace(TEXT, unknown="-"), "The name of the right side.", "Right"),
        Field(
            "common_end_offset",
            INTEGER.or_none,
            "Up to this offset, exclusive, both are the same; null if no offset is in both logs.",
            "Common to",
        ),
        Field(
            "judged_end_offset",
            INTEGER.or_null,
            "From this offset on nothing was compared, because a broker is using one of the logs;"
            " null if both were compared to their ends.",
        ),
        Field(
            "common_epoch",
            INTEGER.or_none,
            "Leader epoch of the last common batch; null if it has none.",
            "Epoch",
            dropped=2,
        ),
        Field(
            "left_end_offset", INTEGER.or_none, "After its last valid batch.", "Left end", dropped=6
        ),
        Field(
            "right_end_offset",
            INTEGER.or_none,
            "After its last valid batch.",
            "Right end",
            dropped=5,
        ),
        Field(
            "left_truncates_to",
            INTEGER.or_null,
            "The end of its log after truncation, as the follower of the right one; null if"
            " unknown.",
            "Left trunc.",
            dropped=4,
        ),
        Field(
            "right_truncates_to",
            INTEGER.or_null,
            "The end of its log after truncation, as the follower of the left one; null if"
            " unknown.",
            "Right trunc.",
            dropped=3,
        ),
        Field(
            "left_only_records",
            INTEGER.or_none,
            "Records that the right one has not, control records included.",
            "Left only",
            dropped=8,
        ),
        Field(
            "right_only_records",
            INTEGER.or_none,
            "Records that the left one has not, control records included.",
            "Right only",
            dropped=7,
        ),
        Field(
            "corrupt_records",
            COUNT.or_none,
            "Offsets with different records in the same leader epoch.",
            "Corrupt",
            alert=True,
            dropped=1,
        ),
        *(
            replace(each, name=f"{side}_{each.name}")
            for side in ("left", "right")
            for each in _OF_A_SIDE
        ),
        Field(
            "missing_on",
            one_of("left", "right").or_null,
            "The side without a replica, if the verdict is missing.",
        ),
        Field(
            "is_assigned",
            FLAG.or_null,
            "Whether the cluster's metadata says that this side should have one; null if unknown.",
        ),
        Field("same_records", COUNT.or_null, "Records that are the same in both."),
        Field(
            "corrupt_ranges",
            _RANGES.or_null,
            "These offsets; the first 100 ranges.",
        ),
        Field(
            "suggested_leader",
            TEXT.or_null,
            "The side whose election loses the fewest records, of all replicas of the partition.",
        ),
        Field(
            "suggested_leader_loses",
            COUNT.or_null,
            "Records that are lost then, those that a start drops from it included.",
        ),
        Field(
            "elected_leader",
            TEXT.or_null,
            "The side with the latest leader epoch and, among those, the longest log.",
        ),
        Field(
            "elected_leader_loses",
            COUNT.or_null,
            "Records that are lost if it leads, those that a start drops from it included.",
        ),
    ),
    title="Partitions",
)

DIFFERING_RECORD: Final = RowType(
    "record",
    "A record that only one of two replicas has.",
    (
        *_PARTITION,
        Field("only_on", TEXT, "The name of that side.", "Only on"),
        Field("not_on", TEXT, "The name of the side that has not.", "Not on", dropped=1),
        Field("offset", INTEGER, "", "Offset"),
        Field("timestamp_ms", TIME, "-1 if it has none.", "Time"),
        Field("key", TEXT.or_none, "Text, or base64.", "Key"),
        Field("value", TEXT.or_none, "Text, or base64.", "Value"),
        Field(
            "headers",
            objects_of(
                Field("key", TEXT.or_null, "Text, or base64."),
                Field("key_encoding", _ENCODING),
                Field("value", TEXT.or_null, "Text, or base64."),
                Field("value_encoding", _ENCODING),
            ),
        ),
        Field(
            "side",
            one_of("left", "right"),
            "Which of the two replicas has the record.",
            json_only=True,
        ),
        Field("directory", TEXT, "The directory of the replica with the record.", json_only=True),
        Field("is_control", FLAG, "Whether it is a control record.", json_only=True),
        Field("key_encoding", _ENCODING, json_only=True),
        Field("value_encoding", _ENCODING, json_only=True),
    ),
    title="Records",
)

ELECTION: Final = RowType(
    "election",
    "A partition without a leader, and which replica should lead it.",
    (
        Field("topic", TEXT),
        Field("partition", INT),
        Field(
            "elected_node_id",
            INTEGER.or_null,
            "The broker to elect: its replica loses least; null if none can be elected.",
        ),
        Field(
            "file",
            TEXT.or_null,
            "The file for kafka-leader-election.sh that has the partition; null likewise.",
        ),
        Field("problem", TEXT.or_null, "Why none can be elected; null if one can."),
        Field(
            "missing_node_ids",
            list_of(INTEGER),
            "The brokers whose replicas were not read, and may have more records.",
        ),
        Field(
            "candidates",
            objects_of(
                Field("node_id", INTEGER),
                Field(
                    "lost_records",
                    COUNT,
                    "Records that are lost if it leads, those that a start drops from it included.",
                ),
                Field("is_damaged", FLAG, "Whether its log has damage, or a start drops some."),
                Field("refusal", TEXT.or_null, "Why no broker loads it; null if one does."),
            ),
            "The assigned replicas that were read, the one to elect first.",
        ),
    ),
    title="Elections",
)

SUMMARY: Final = RowType(
    "summary",
    "The totals.",
    (
        Field("partitions", COUNT, "Partitions that were compared."),
        Field("same", COUNT, "Pairs of replicas with the verdict same."),
        Field("prefix", COUNT, "Pairs of replicas with the verdict prefix."),
        Field("damaged", COUNT, "Pairs of replicas with the verdict damaged."),
        Field("diverged", COUNT, "Pairs of replicas with the verdict diverged."),
        Field("unrelated", COUNT, "Pairs of replicas with the verdict unrelated."),
        Field("missing", COUNT, "Pairs of replicas with the verdict missing."),
        Field("unassigned", COUNT, "How many of the missing ones need not be there."),
        Field(
            "corrupt_partitions",
            COUNT,
            "Partitions with different records in the same leader epoch.",
        ),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "diff",
        (
            COMPARED_PARTITION,
            DIFFERING_RECORD,
            ELECTION,
            SUMMARY,
        ),
    ),
)
