"""What an application of Kafka Streams reads and writes: the topology of its group."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kdump.formats.message_decoder import MessageValue


class KeyValue(Struct, frozen=True):
    """A setting of a topic, or a tag of a client."""

    key: str
    value: str


class InternalTopic(Struct, frozen=True):
    """A topic that the coordinator creates for a group.

    Attributes:
        partitions: their number; 0 if the group does not say, as for every changelog topic.
        replication_factor: 0 for that of new topics.
    """

    name: str
    partitions: int
    replication_factor: int
    topic_configs: tuple[KeyValue, ...]


class Subtopology(Struct, frozen=True):
    """A part of a topology, whose tasks are assigned to members.

    Attributes:
        source_topics: topics that it reads, rising, without those that only a pattern names.
        repartition_sink_topics: internal topics that it writes, rising.
        repartition_source_topics: internal topics that it reads, by name.
        state_changelog_topics: internal topics with its state, by name.
    """

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    state_changelog_topics: tuple[InternalTopic, ...]

    @property
    def read_topics(self) -> frozenset[str]:
        """The names of the topics that its tasks read."""
        return frozenset((*self.source_topics, *(e.name for e in self.repartition_source_topics)))


class StreamsTopology(Struct, frozen=True):
    """The topology of a group, as its record has it (``StreamsTopology``).

    The fields have the names of ``StreamsGroupDescribeResponse``.

    Attributes:
        subtopologies: by id.
    """

    epoch: int
    subtopologies: tuple[Subtopology, ...]


def streams_topology(value: MessageValue) -> StreamsTopology:
    """The topology in a ``StreamsGroupTopologyValue``."""
    found = (
        Subtopology(
            each["subtopologyId"],
            tuple(sorted(each["sourceTopics"])),
            tuple(sorted(each["repartitionSinkTopics"])),
            _internal_topics(each["repartitionSourceTopics"]),
            _internal_topics(each["stateChangelogTopics"]),
        )
        for each in value["subtopologies"]
    )
    return StreamsTopology(value["epoch"], tuple(sorted(found, key=lambda e: e.subtopology_id)))


def key_values(found: Iterable[MessageValue]) -> tuple[KeyValue, ...]:
    """Settings or tags, in the order of the record."""
    return tuple(KeyValue(each["key"], each["value"]) for each in found)


def _internal_topics(found: Iterable[MessageValue]) -> tuple[InternalTopic, ...]:
    topics = (
        InternalTopic(
            each["name"],
            each["partitions"],
            each["replicationFactor"],
            key_values(each["topicConfigs"]),
        )
        for each in found
    )
    return tuple(sorted(topics, key=lambda each: each.name))
