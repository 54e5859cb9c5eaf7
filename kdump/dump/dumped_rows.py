"""What the rows of ``kdump dump-segment`` are, of each kind of file."""

from __future__ import annotations

from typing import Final

from kdump.dump.files import DumpKind
from kdump.rows.row_type import (
    ANYTHING,
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
    object_of,
    objects_of,
    one_of,
)

_PATH: Final = Field("path", TEXT, "The file, as typed.")
_RANGE: Final = (
    _PATH,
    Field("position", COUNT, "Byte of the file."),
    Field("size_bytes", SIZE),
)
_CODEC: Final = one_of("none", "gzip", "snappy", "lz4", "zstd", "unknown")
_TIMESTAMP_TYPE: Final = one_of("CreateTime", "LogAppendTime", "NoTimestampType")
_ENCODING: Final = one_of("utf8", "base64").or_null
_TEXTS: Final = (
    Field("key_size_bytes", BYTES, "-1 for no key."),
    Field("value_size_bytes", BYTES, "-1 for no value."),
    Field("key", TEXT.or_none, "Text if it is UTF-8, base64 otherwise."),
    Field("key_encoding", _ENCODING),
    Field("value", TEXT.or_none, "Text if it is UTF-8, base64 otherwise."),
    Field("value_encoding", _ENCODING),
    Field(
        "headers",
        objects_of(
            Field("key", TEXT),
            Field("key_encoding", _ENCODING),
            Field("value", TEXT.or_null),
            Field("value_encoding", _ENCODING),
        ),
    ),
)
_DECODED: Final = (
    Field(
        "record_type",
        TEXT.or_null,
        "With a decoder of an internal topic: Kafka's name of the message.",
        is_optional=True,
    ),
    Field("record_version", INTEGER.or_null, "Version of the message.", is_optional=True),
    Field(
        "decoded_key",
        ANYTHING,
        "What the decoder makes of the key; with --key-format its text, null if there is a"
        " problem.",
        is_optional=True,
    ),
    Field(
        "decoded_value",
        ANYTHING,
        "What the decoder makes of the value; with --value-format its text, null if there is a"
        " problem.",
        is_optional=True,
    ),
    Field("decoding_error", TEXT.or_null, "Why it cannot be decoded.", is_optional=True),
    Field(
        "key_schema_id",
        INTEGER.or_null,
        "With --key-format: id of the schema that the key was written with; null if it has"
        " none, or it is unknown.",
        is_optional=True,
    ),
    Field(
        "key_problem",
        TEXT.or_null,
        "With --key-format: why the key is not shown as text; null if it is, or is null.",
        is_optional=True,
    ),
    Field(
        "value_schema_id",
        INTEGER.or_null,
        "With --value-format: id of the schema that the value was written with; null if it has"
        " none, or it is unknown.",
        is_optional=True,
    ),
    Field(
        "value_problem",
        TEXT.or_null,
        "With --value-format: why the value is not shown as text; null if it is, or is null.",
        is_optional=True,
    ),
)

RECORD_BATCH: Final = RowType(
    "batch",
    "A record batch (magic 2).",
    (
        *_RANGE,
        Field("magic", INTEGER.limited(minimum=2)),
        Field("base_offset", INTEGER),
        Field("last_offset", INTEGER),
        Field("codec", _CODEC),
        Field("crc", INTEGER, "As it is in the batch."),
        Field("is_valid", FLAG, "Whether the checksum matches."),
        Field("attributes", INTEGER),
        Field("timestamp_type", _TIMESTAMP_TYPE),
        Field("base_timestamp_ms", TIME),
        Field("max_timestamp_ms", TIME),
        Field("last_offset_delta", INTEGER),
        Field("records_count", INTEGER, "From the header."),
        Field("partition_leader_epoch", INTEGER),
        Field("producer_id", INTEGER, "-1 for none."),
        Field("producer_epoch", INTEGER, "-1 for none."),
        Field("base_sequence", INTEGER, "-1 for none."),
        Field("last_sequence", INTEGER, "-1 for none."),
        Field("is_transactional", FLAG),
        Field("is_control", FLAG),
        Field("delete_horizon_ms", TIME.or_null, "Null if not set."),
    ),
    name="record_batch",
)

MESSAGE_SET: Final = RowType(
    "batch",
    "A message of magic 0 or 1, which may wrap others.",
    (
        *_RANGE,
        Field("magic", INTEGER.limited(maximum=1)),
        Field("base_offset", INTEGER.or_null, "Null for a wrapper whose messages were not read."),
        Field("last_offset", INTEGER),
        Field("codec", _CODEC),
        Field("crc", INTEGER),
        Field("is_valid", FLAG),
        Field("attributes", INTEGER),
        Field("timestamp_type", _TIMESTAMP_TYPE),
        Field("max_timestamp_ms", TIME, "-1 for none."),
        Field("records_count", COUNT, "Of a wrapper.", is_optional=True),
    ),
    name="message_set",
)

BATCH_RECORD: Final = RowType(
    "record",
    "A record of a batch (magic 2).",
    (
        _PATH,
        Field("attributes", INTEGER),
        Field("timestamp_type", _TIMESTAMP_TYPE),
        Field("batch_position", COUNT, "Position of its batch."),
        Field("offset", INTEGER),
        Field("timestamp_ms", TIME, "-1 for none."),
        Field("sequence", INTEGER, "-1 for none."),
        *_TEXTS,
        Field(
            "control",
            object_of(
                Field("type", TEXT), Field("typeId", INTEGER), Field("data", map_of(ANYTHING))
            ),
            "What a control record says, in Kafka's own names.",
            is_optional=True,
        ),
        *_DECODED,
    ),
    name="batch_record",
)

MESSAGE_SET_RECORD: Final = RowType(
    "record",
    "A message of magic 0 or 1.",
    (
        _PATH,
        Field("magic", INTEGER),
        Field("crc", INTEGER),
        Field("is_valid", FLAG),
        Field("attributes", INTEGER),
        Field("timestamp_type", _TIMESTAMP_TYPE),
        Field("batch_position", COUNT, "Position of its batch."),
        Field("offset", INTEGER),
        Field("timestamp_ms", TIME, "-1 for none."),
        *_TEXTS,
        *_DECODED,
    ),
    name="message_set_record",
)

_OF_0_7: Final = (
    Field("size_bytes", SIZE),
    Field("magic", INTEGER),
    Field("offset", INTEGER),
    Field("next_offset", INTEGER),
    Field("codec", _CODEC),
    Field("crc", INTEGER),
    Field("is_valid", FLAG),
    Field("attributes", INTEGER),
)
KAFKA_0_7_RECORD: Final = RowType(
    "record",
    "A message of Kafka 0.7, unwrapped.",
    (
        _PATH,
        *_OF_0_7,
        Field("batch_position", COUNT, "Position of the message that it is in."),
        Field("value", TEXT.or_null),
        Field("value_encoding", _ENCODING),
    ),
    name="kafka_0_7_record",
)

KAFKA_0_7_MESSAGE: Final = RowType(
    "message",
    "A message of Kafka 0.7, as it is in the file.",
    (
        _PATH,
        Field("position", COUNT, "Byte of the file."),
        *_OF_0_7,
    ),
)

SKIPPED_BYTES: Final = RowType(
    "skipped_bytes",
    "With --follow-bad: damaged bytes between batches.",
    (
        *_RANGE,
        Field("why", TEXT),
    ),
)

TRAILING_BYTES: Final = RowType(
    "trailing_bytes",
    "Bytes at the end of the file that are not a valid batch.",
    (
        *_RANGE,
        Field("why", TEXT),
    ),
)

DAMAGED_RECORDS: Final = RowType(
    "damaged_records",
    "Records of a batch that cannot be read.",
    (
        _PATH,
        Field("batch_position", COUNT, "Position of the batch."),
        Field("why", TEXT),
    ),
)

OFFSET_INDEX_ENTRY: Final = RowType(
    "offset_index_entry",
    "An entry of an offset index.",
    (
        _PATH,
        Field("offset", INTEGER),
        Field("relative_offset", INTEGER, "As it is in the file."),
        Field("position", INTEGER, "Byte of the log."),
    ),
)

TIME_INDEX_ENTRY: Final = RowType(
    "time_index_entry",
    "An entry of a time index.",
    (
        _PATH,
        Field("timestamp_ms", TIME),
        Field("offset", INTEGER),
        Field("relative_offset", INTEGER, "As it is in the file."),
    ),
)

INDEX_PADDING: Final = RowType(
    "index_padding",
    "The unused end of an index.",
    (
        _PATH,
        Field("entries", COUNT),
        Field("size_bytes", SIZE, json_only=True),
    ),
)

ABORTED_TRANSACTION: Final = RowType(
    "aborted_transaction",
    "An entry of a transaction index.",
    (
        _PATH,
        Field("version", INTEGER),
        Field("producer_id", INTEGER),
        Field("first_offset", INTEGER),
        Field("last_offset", INTEGER),
        Field("last_stable_offset", INTEGER),
    ),
)

PRODUCER_SNAPSHOT: Final = RowType(
    "producer_snapshot",
    "The header of a producer snapshot.",
    (
        _PATH,
        Field("version", INTEGER),
        Field("crc", INTEGER),
        Field("is_valid", FLAG),
        Field("entries", COUNT),
    ),
)

PRODUCER_SNAPSHOT_ENTRY: Final = RowType(
    "producer_snapshot_entry",
    "A producer of a producer snapshot.",
    (
        _PATH,
        Field("producer_id", INTEGER),
        Field("producer_epoch", INTEGER),
        Field("coordinator_epoch", INTEGER),
        Field("first_sequence", INTEGER),
        Field("last_sequence", INTEGER),
        Field("last_offset", INTEGER),
        Field("offset_delta", INTEGER),
        Field("timestamp_ms", TIME),
        Field("current_txn_first_offset", INTEGER, "-1 for none."),
    ),
)

CHECKPOINT_ENTRY: Final = RowType(
    "checkpoint_entry",
    "A line of an offset checkpoint.",
    (
        _PATH,
        Field("topic", TEXT),
        Field("partition", INT),
        Field("offset", INTEGER),
    ),
)

LEADER_EPOCH: Final = RowType(
    "leader_epoch",
    "A line of leader-epoch-checkpoint.",
    (
        _PATH,
        Field("epoch", INTEGER),
        Field("start_offset", INTEGER),
    ),
)

TOPIC_ID_FILE: Final = RowType(
    "partition_metadata",
    "partition.metadata.",
    (
        _PATH,
        Field("version", INTEGER),
        Field("topic_id", TEXT),
    ),
)

META_PROPERTIES_FILE: Final = RowType(
    "meta_properties",
    "meta.properties; null for what is not set.",
    (
        _PATH,
        Field("version", INTEGER),
        Field("cluster_id", TEXT.or_null),
        Field("node_id", INTEGER.or_null),
        Field("directory_id", TEXT.or_null),
    ),
)

QUORUM_STATE_FILE: Final = RowType(
    "quorum_state",
    "quorum-state.",
    (
        _PATH,
        Field("cluster_id", TEXT.or_null, "Version 0 only."),
        Field("data_version", INTEGER),
        Field("leader_id", INTEGER, "-1 for none."),
        Field("leader_epoch", INTEGER),
        Field("voted_id", INTEGER, "-1 for none."),
        Field("voted_directory_id", TEXT.or_null),
        Field("current_voters", list_of(INTEGER).or_null, "Version 0 only."),
    ),
)

CLEAN_SHUTDOWN_FILE: Final = RowType(
    "clean_shutdown",
    "The clean shutdown marker; null if the file is empty, as before Kafka 3.7.",
    (
        _PATH,
        Field("version", INTEGER.or_null),
        Field("broker_epoch", INTEGER.or_null),
    ),
)


_OF_SEGMENTS: Final = (
    RECORD_BATCH,
    MESSAGE_SET,
    BATCH_RECORD,
    MESSAGE_SET_RECORD,
    SKIPPED_BYTES,
    TRAILING_BYTES,
    DAMAGED_RECORDS,
)
ROWS_OF: Final[dict[DumpKind, tuple[RowType, ...]]] = {
    DumpKind.SEGMENT: _OF_SEGMENTS,
    DumpKind.METADATA_SNAPSHOT: _OF_SEGMENTS,
    DumpKind.SEGMENT_0_7: (
        KAFKA_0_7_MESSAGE,
        KAFKA_0_7_RECORD,
        SKIPPED_BYTES,
        TRAILING_BYTES,
        DAMAGED_RECORDS,
    ),
    DumpKind.OFFSET_INDEX: (OFFSET_INDEX_ENTRY, INDEX_PADDING),
    DumpKind.TIME_INDEX: (TIME_INDEX_ENTRY, INDEX_PADDING),
    DumpKind.TRANSACTION_INDEX: (ABORTED_TRANSACTION,),
    DumpKind.PRODUCER_SNAPSHOT: (PRODUCER_SNAPSHOT, PRODUCER_SNAPSHOT_ENTRY),
    DumpKind.SMALL_FILE: (
        CHECKPOINT_ENTRY,
        LEADER_EPOCH,
        CLEAN_SHUTDOWN_FILE,
        TOPIC_ID_FILE,
        META_PROPERTIES_FILE,
        QUORUM_STATE_FILE,
    ),
}
"""The rows of each kind of file."""
_NAMED: Final = {each.name or each.type: each for rows in ROWS_OF.values() for each in rows}
ANSWERS: Final = (JsonAnswer("dump-segment", tuple(_NAMED.values())),)
