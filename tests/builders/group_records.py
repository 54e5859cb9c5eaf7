"""Records of committed offsets, as a group coordinator writes them."""

from __future__ import annotations

import uuid


def text_field(text: bytes) -> bytes:
    """A string with its length before it."""
    return len(text).to_bytes(2, "big") + text


def offset_key(group: bytes, topic: bytes = b"orders", partition: int = 0) -> bytes:
    """The key of a committed offset."""
    return b"\0\1" + text_field(group) + text_field(topic) + partition.to_bytes(4, "big")


def streams_group(group: bytes, epoch: int = 7) -> tuple[bytes, bytes]:
    """The record of a streams group without topology and members: key and value."""
    return b"\0\x11" + text_field(group), bytes(2) + epoch.to_bytes(4, "big") + bytes(8) + b"\0"


def offset_value(
    offset: int, commit_timestamp_ms: int = 0, topic_id: uuid.UUID | None = None
) -> bytes:
    """A committed offset, of version 3, or 4 if it has a topic id."""
    committed, time = offset.to_bytes(8, "big"), commit_timestamp_ms.to_bytes(8, "big")
    if topic_id is None:
        return b"\0\3" + committed + bytes(4) + text_field(b"") + time
    # An empty compact string, and one tagged field.
    return b"\0\4" + committed + bytes(4) + b"\1" + time + b"\1\0\x10" + topic_id.bytes
