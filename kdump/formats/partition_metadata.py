"""``partition.metadata``: the id of the topic that a partition's directory belongs to.

Two lines, ``version: 0`` and ``topic_id: <UUID>``, the last without a line end. Follows
``PartitionMetadataReadBuffer``, which only reads what follows the colons.
"""

from __future__ import annotations

import functools
import re
import uuid
from typing import Final

from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.java.java_numbers import parse_int
from kdump.formats.java.text_lines import decode_lines, malformed_line
from kdump.formats.names import PARTITION_METADATA
from kdump.formats.uuids import ZERO_UUID, format_uuid, parse_uuid

VERSION: Final = 0

_COLON: Final = re.compile(r":\s+", re.ASCII)


class PartitionMetadata(Struct, frozen=True):
    """The content of ``partition.metadata``."""

    version: int
    topic_id: uuid.UUID


@functools.lru_cache(maxsize=256)
def decode_partition_metadata(data: bytes) -> PartitionMetadata:
    """Read the file; everything after its second line is ignored.

    All partitions of a topic have the same file, so results are cached.

    Raises:
        FormatError: where Kafka's reader fails.
    """
    lines = decode_lines(data, PARTITION_METADATA)
    version = parse_int(_value(lines, 0))
    if version is None or version < VERSION:
        raise _malformed(data, lines, 0, f"version: {VERSION} or greater")
    topic_id = parse_uuid(_value(lines, 1))
    if topic_id is None or topic_id == ZERO_UUID:
        raise _malformed(data, lines, 1, "topic_id: a UUID in base64 that is not zero")
    return PartitionMetadata(version, topic_id)


def known_topic_id(data: bytes | None) -> str | None:
    """The topic id of the file as Kafka writes it; None if it is missing or malformed."""
    try:
        return None if data is None else format_uuid(decode_partition_metadata(data).topic_id)
    except FormatError:
        return None


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Encode the file as Kafka writes it."""
    return f"version: {metadata.version}\ntopic_id: {format_uuid(metadata.topic_id)}".encode()


def _value(lines: list[str], index: int) -> str:
    """Give the text after the only colon of a line; empty where there is none, or more."""
    parts = _COLON.split(lines[index]) if index < len(lines) else []
    while parts and not parts[-1]:
        parts.pop()
    return parts[1] if len(parts) == 2 else ""


def _malformed(data: bytes, lines: list[str], index: int, expected: str) -> FormatError:
    return malformed_line(data, PARTITION_METADATA, lines, index, expected)
