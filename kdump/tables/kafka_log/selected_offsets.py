"""The partitions that a query selects, and the range of offsets in each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct, field

from kdump.formats.names import TopicPartition
from kdump.tables.kafka_log import java_pattern

BOUND_OPTIONS: Final = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
)
"""The options of the data source that say where to start and end."""


class Edge(enum.Enum):
    """An end of a partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"


class AtTime(Struct, frozen=True):
    """The first offset whose record is not older than ``timestamp_ms``."""

    timestamp_ms: int


Bound = Edge | AtTime | int
"""Where to start in a partition, or before what to end; a number is an offset."""


class Bounds(Struct, frozen=True):
    """A bound for all partitions, and for those that have their own."""

    default: Bound
    by_partition: Mapping[TopicPartition, Bound] = field(default_factory=dict)

    def of(self, topic_partition: TopicPartition | None) -> Bound:
        if topic_partition is None:
            return self.default
        return self.by_partition.get(topic_partition, self.default)


class SelectedTopics(Struct, frozen=True):
    """The selected partitions; all by default.

    Attributes:
        names: only partitions of these topics.
        pattern: only of topics whose whole name matches this Java regular expression.
        partitions: only these partitions.
    """

    names: frozenset[str] | None = None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    def has(self, topic_partition: TopicPartition | None) -> bool:
        """Whether a partition is selected; one without a name is if nothing is restricted."""
        if topic_partition is None:
            return self == SelectedTopics()
        return (
            (self.names is None or topic_partition.topic in self.names)
            and (self.pattern is None or java_pattern.matches(self.pattern, topic_partition.topic))
            and (self.partitions is None or topic_partition in self.partitions)
        )

    def missing(self, present: AbstractSet[TopicPartition]) -> list[str]:
        """The topics and partitions selected by name that are not present."""
        absent = (self.names or frozenset()) - {each.topic for each in present}
        return sorted(absent) + sorted(map(str, (self.partitions or frozenset()) - present))
