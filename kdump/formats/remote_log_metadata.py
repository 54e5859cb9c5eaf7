"""Records of ``__remote_log_metadata`` as their Java classes print themselves.

The official tool prints ``toString()`` of a record's event, not JSON. The event's class may refuse
the record's values (``RemoteLogSegmentMetadata`` and related classes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from kdump.formats.message_decoder import MessageValue, SchemaError
from kdump.formats.schema import MessageSchema

SEGMENT_STATES: Final[Mapping[int, str]] = {
    0: "COPY_SEGMENT_STARTED",
    1: "COPY_SEGMENT_FINISHED",
    2: "DELETE_SEGMENT_STARTED",
    3: "DELETE_SEGMENT_FINISHED",
}
PARTITION_DELETE_STATES: Final[Mapping[int, str]] = {
    0: "DELETE_PARTITION_MARKED",
    1: "DELETE_PARTITION_STARTED",
    2: "DELETE_PARTITION_FINISHED",
}


def event_text(schema: MessageSchema, record: MessageValue) -> str:
    """The text of the event in a record of remote log metadata.

    Args:
        schema: one of those in :mod:`kdump.formats.schemas.remote_storage`.
        record: the fields of the record.

    Raises:
        SchemaError: the event's class refuses these fields; has that class's message.
    """
    return _EVENT_TEXTS[schema.name](record)


def _segment_text(record: MessageValue) -> str:
    start_offset, end_offset = record["startOffset"], record["endOffset"]
    if start_offset < 0:
        _refuse(
            f"Unexpected start offset = {start_offset}. "
            "StartOffset for a remote segment cannot be negative"
        )
    if end_offset < start_offset:
        _refuse(
            f"Unexpected end offset = {end_offset}. "
            f"EndOffset for a remote segment cannot be less than startOffset = {start_offset}"
        )
    leader_epochs = _leader_epochs_text(record)
    return (
        "RemoteLogSegmentMetadata{"
        f"remoteLogSegmentId={_segment_id_text(record)}, "
        f"startOffset={start_offset}, "
        f"endOffset={end_offset}, "
        f"brokerId={record['brokerId']}, "
        f"maxTimestampMs={record['maxTimestampMs']}, "
        f"eventTimestampMs={record['eventTimestampMs']}, "
        f"segmentLeaderEpochs={leader_epochs}, "
        f"segmentSizeInBytes={record['segmentSizeInBytes']}, "
        f"customMetadata={_custom_metadata_text(record)}, "
        f"state={_segment_state(record)}, "
        f"txnIdxEmpty={_bool_text(record['txnIndexEmpty'])}}}"
    )


def _segment_snapshot_text(record: MessageValue) -> str:
    state = _segment_state(record)
    return (
        "RemoteLogSegmentMetadataSnapshot{"
        f"segmentId={record['segmentId']}, "
        f"startOffset={record['startOffset']}, "
        f"endOffset={record['endOffset']}, "
        f"maxTimestampMs={record['maxTimestampMs']}, "
        f"segmentLeaderEpochs={_leader_epochs_text(record)}, "
        f"segmentSizeInBytes={record['segmentSizeInBytes']}, "
        f"customMetadata={_custom_metadata_text(record)}, "
        f"state={state}, "
        f"txnIdxEmpty={_bool_text(record['txnIndexEmpty'])}}}"
    )


def _segment_update_text(record: MessageValue) -> str:
    return (
        "RemoteLogSegmentMetadataUpdate{"
        f"remoteLogSegmentId={_segment_id_text(record)}, "
        f"customMetadata={_custom_metadata_text(record)}, "
        f"state={_segment_state(record)}, "
        f"eventTimestampMs={record['eventTimestampMs']}, "
        f"brokerId={record['brokerId']}}}"
    )


def _partition_delete_text(record: MessageValue) -> str:
    state = PARTITION_DELETE_STATES.get(record["remotePartitionDeleteState"])
    if state is None:
        _refuse("null")
    return (
        "RemotePartitionDeleteMetadata{"
        f"topicPartition={_topic_id_partition_text(record['topicIdPartition'])}, "
        f"state={state}, "
        f"eventTimestampMs={record['eventTimestampMs']}, "
        f"brokerId={record['brokerId']}}}"
    )


_EVENT_TEXTS: Final[Mapping[str, Callable[[MessageValue], str]]] = {
    "RemoteLogSegmentMetadataRecord": _segment_text,
    "RemoteLogSegmentMetadataSnapshotRecord": _segment_snapshot_text,
    "RemoteLogSegmentMetadataUpdateRecord": _segment_update_text,
    "RemotePartitionDeleteMetadataRecord": _partition_delete_text,
}


def _segment_id_text(record: MessageValue) -> str:
    segment_id = record["remoteLogSegmentId"]
    partition = _topic_id_partition_text(segment_id["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={segment_id['id']}}}"


def _topic_id_partition_text(entry: MessageValue) -> str:
    return f"{entry['id']}:{entry['name']}-{entry['partition']}"


def _leader_epochs_text(record: MessageValue) -> str:
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in record["segmentLeaderEpochs"]}
    if not epochs:
        _refuse("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _custom_metadata_text(record: MessageValue) -> str:
    data = record["customMetadata"]
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _segment_state(record: MessageValue) -> str:
    state = SEGMENT_STATES.get(record["remoteLogSegmentState"])
    if state is None:
        _refuse("state can not be null")
    return state


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _refuse(message: str) -> NoReturn:
    raise SchemaError(message)
