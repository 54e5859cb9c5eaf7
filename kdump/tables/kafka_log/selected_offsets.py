"""Which partitions are asked for, and from where to where in each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from kdump.formats.names import TopicPartition
from kdump.tables.kafka_log import java_pattern


class Edge(enum.Enum):
    """An end of a partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first offset whose record is not older than ``timestamp_ms``."""

    timestamp_ms: int


Bound = Edge | AtTime | int
"""Where in a partition to begin, or before what to end; a number is an offset."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A bound for all partitions, and those of some that have their own."""

    default: Bound
    by_partition: Mapping[TopicPartition, Bound] = field(default_factory=dict)

    def of(self, topic_partition: TopicPartition | None) -> Bound:
        if topic_partition is None:
            return self.default
        return self.by_partition.get(topic_partition, self.default)


@dataclass(frozen=True, slots=True)
class SelectedTopics:
    """Which partitions are read; all, if nothing restricts them.

    Attributes:
        names: only of these topics.
        pattern: only of topics whose whole name this regular expression of Java matches.
        partitions: only these.
    """

    names: frozenset[str] | None = None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    def has(self, topic_partition: TopicPartition | None) -> bool:
        """Whether it is read; one that has no name is, if nothing is asked of names."""
        if topic_partition is None:
            return self == SelectedTopics()
        return (
            (self.names is None or topic_partition.topic in self.names)
            and (self.pattern is None or java_pattern.matches(self.pattern, topic_partition.topic))
            and (self.partitions is None or topic_partition in self.partitions)
        )

    def missing(self, there: AbstractSet[TopicPartition]) -> list[str]:
        """What is asked for by its name and is not among the partitions that are there."""
        absent = (self.names or frozenset()) - {each.topic for each in there}
        return sorted(absent) + sorted(map(str, (self.partitions or frozenset()) - there))
