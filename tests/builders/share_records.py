"""Records about share groups, as coordinators write them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from kdump.formats.message_encoder import encode
from kdump.formats.schema import RecordType
from kdump.formats.schemas import group_coordinator, share

Batch = tuple[int, int, int, int]
"""First and last offset, state of the delivery (2: acknowledged), count of deliveries."""


def snapshot(
    group: str,
    topic_id: str,
    start: int,
    *,
    partition: int = 0,
    batches: Iterable[Batch] = (),
    epoch: int = 0,
    done: int = 0,
    record_type: RecordType = share.SHARE_SNAPSHOT,
) -> tuple[bytes, bytes]:
    """The record of a snapshot of what a share group has delivered: key and value."""
    value = {
        "snapshotEpoch": epoch,
        "leaderEpoch": 0,
        "startOffset": start,
        "deliveryCompleteCount": done,
        "stateBatches": [_batch(*each) for each in batches],
    }
    if record_type is share.SHARE_SNAPSHOT:
        value |= {"stateEpoch": 1, "createTimestamp": 1_000, "writeTimestamp": 1_000}
    return _share_key(record_type, group, topic_id, partition), _value(record_type, value)


update = functools.partial(snapshot, record_type=share.SHARE_UPDATE)
"""The record of a change after a snapshot: key and value."""


def initialized(group: str, topic_id: str, topic: str, *partitions: int) -> tuple[bytes, bytes]:
    """The record of ``__consumer_offsets`` that says which states there are: key and value."""
    record_type = group_coordinator.SHARE_GROUP_STATE_PARTITION_METADATA
    schema = record_type.key
    assert schema is not None
    topics = [{"topicId": topic_id, "topicName": topic, "partitions": list(partitions)}]
    value = {"initializingTopics": [], "initializedTopics": topics, "deletingTopics": []}
    key = record_type.id.to_bytes(2, "big") + encode(schema, {"groupId": group}, 0)
    return key, _value(record_type, value)


def _batch(first: int, last: int, state: int, count: int) -> dict[str, Any]:
    return {
        "firstOffset": first,
        "lastOffset": last,
        "deliveryState": state,
        "deliveryCount": count,
    }


def _share_key(record_type: RecordType, group: str, topic_id: str, partition: int) -> bytes:
    schema = record_type.key
    assert schema is not None
    fields = {"groupId": group, "topicId": topic_id, "partition": partition}
    return record_type.id.to_bytes(2, "big") + encode(schema, fields, 0)


def _value(record_type: RecordType, value: dict[str, Any]) -> bytes:
    return bytes(2) + encode(record_type.value, value, 0)
