"""Subscriptions and assignments of a classic consumer group, inside the group's record.

(``ConsumerProtocol``)
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schema import BYTES, INT32, STRING, array, field, message, struct

_TOPIC_PARTITION: Final = struct(
    "TopicPartition",
    field("topic", STRING, "1+"),
    field("partitions", array(INT32), "1+"),
)

CONSUMER_PROTOCOL_SUBSCRIPTION: Final = message(
    "ConsumerProtocolSubscription",
    field("topics", array(STRING)),
    field("userData", BYTES, nullable=True, default=None),
    field("ownedPartitions", array(_TOPIC_PARTITION), "1+"),
    field("generationId", INT32, "2+", default=-1),
    field("rackId", STRING, "3+", nullable=True, default=None),
    versions="0-3",
    flexible="none",
)

_CONSUMER_PROTOCOL_ASSIGNMENT_TOPIC_PARTITION: Final = struct(
    "TopicPartition",
    field("topic", STRING),
    field("partitions", array(INT32)),
)

CONSUMER_PROTOCOL_ASSIGNMENT: Final = message(
    "ConsumerProtocolAssignment",
    field("assignedPartitions", array(_CONSUMER_PROTOCOL_ASSIGNMENT_TOPIC_PARTITION)),
    field("userData", BYTES, nullable=True, default=None),
    versions="0-3",
    flexible="none",
)
