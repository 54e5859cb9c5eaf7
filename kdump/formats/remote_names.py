"""Names of remote segments in ``LocalTieredStorage``, Kafka's own tiered storage for tests.

A partition is a directory ``TOPIC-PARTITION-TOPIC_ID``, a file of a segment ``OFFSET-SEGMENT_ID``
with an extension (``RemoteTopicPartitionDirectory``, ``RemoteLogSegmentFileset``).
"""

from __future__ import annotations

import enum
import re
from typing import Final

from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.java.java_numbers import parse_long
from kdump.formats.names import PartitionState, TopicPartition, parse_partition_directory_name

_ID: Final = "[A-Za-z0-9_-]{22}"
_DIRECTORY: Final = re.compile(rf"(.+)-({_ID})", re.DOTALL)
_FILE: Final = re.compile(rf"([0-9]{{20}})-({_ID})(\.[a-z_]+)")


class RemoteFileKind(enum.Enum):
    """What a file of a remote segment holds; the value is its extension."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    LEADER_EPOCHS = ".leader_epoch_checkpoint"


_KINDS: Final = {kind.value: kind for kind in RemoteFileKind}


class TopicIdPartition(Struct, frozen=True, order=True):
    """A partition of one topic: a topic that was created again has another id.

    Attributes:
        topic_partition: its name and number.
        topic_id: as Kafka writes it.
    """

    topic_partition: TopicPartition
    topic_id: str

    def __str__(self) -> str:
        """Give the name of its directory."""
        return f"{self.topic_partition}-{self.topic_id}"


class RemoteFileName(Struct, frozen=True):
    """The name of a file of a remote segment."""

    start_offset: int
    segment_id: str
    kind: RemoteFileKind

    def __str__(self) -> str:
        return f"{self.start_offset:020d}-{self.segment_id}{self.kind.value}"


def parse_remote_directory_name(name: str) -> TopicIdPartition | None:
    """Parse the name of a partition's directory; None for any other name."""
    match = _DIRECTORY.fullmatch(name)
    if match is None:
        return None
    try:
        parsed = parse_partition_directory_name(match[1])
    except FormatError:
        return None
    if parsed.state is not PartitionState.LIVE:
        return None
    return TopicIdPartition(parsed.topic_partition, match[2])


def parse_topic_directory_name(name: str) -> tuple[str, str] | None:
    """Topic and topic id of a directory ``TOPIC-TOPIC_ID``; None for any other name."""
    match = _DIRECTORY.fullmatch(name)
    return None if match is None else (match[1], match[2])


def parse_remote_file_name(name: str) -> RemoteFileName | None:
    """Parse the name of a file of a segment; None for any other name."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    offset, kind = parse_long(match[1]), _KINDS.get(match[3])
    return None if offset is None or kind is None else RemoteFileName(offset, match[2], kind)
