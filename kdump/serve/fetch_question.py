"""What a client fetches, and what is found."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from kdump.log.special_times import IsolationLevel


class AskedPartition(NamedTuple):
    """Where to read a partition, and how much of it."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int


class AskedTopic(NamedTuple):
    """Partitions of a topic, which old clients name and others know by its id."""

    topic: str | UUID | None
    partitions: tuple[AskedPartition, ...]


class FetchQuestion(NamedTuple):
    """All that an answer depends on.

    Attributes:
        max_bytes: how much may be answered.
    """

    topics: tuple[AskedTopic, ...]
    level: IsolationLevel
    max_bytes: int


class FetchedTopics(Struct, frozen=True):
    """What is found.

    Attributes:
        topics: as they are answered.
        used_bytes: of all batches.
        following: what a client asks next that goes on where this ends; None if that is not known
            or not worth to be read before it asks.
    """

    topics: list[dict[str, Any]]
    used_bytes: int
    following: FetchQuestion | None
