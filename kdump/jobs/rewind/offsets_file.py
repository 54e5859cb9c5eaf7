"""The file that says where partitions end, in the format of ``kafka-delete-records``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kdump.formats.json_document import MOST_INT32, DocumentError, JsonObject
from kdump.formats.names import TopicPartition

_VERSION = 1


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Read where partitions end.

    Raises:
        DocumentError: it is not such a file, or has a partition twice.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise DocumentError(f"not JSON: {problem}") from problem
    document = JsonObject.of(value, "")
    document.has_only(("partitions", "version"))
    if "version" in document.fields:
        document.number("version", least=_VERSION, most=_VERSION)
    found: dict[TopicPartition, int] = {}
    for each in document.objects("partitions"):
        each.has_only(("topic", "partition", "offset"))
        key = TopicPartition(each.text("topic"), each.number("partition", most=MOST_INT32))
        if key in found:
            raise DocumentError(f"{each.where}: {key} is there twice")
        found[key] = each.number("offset")
    return found


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Write where partitions end, a line for each."""
    lines = [
        json.dumps({"topic": key.topic, "partition": key.partition, "offset": offset})
        for key, offset in sorted(offsets.items())
    ]
    body = ",\n  ".join(lines)
    return f'{{"partitions": [\n  {body}\n], "version": {_VERSION}}}\n'.encode()
