"""What log directories say of the cluster that they are of."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.names import CLUSTER_METADATA_PARTITION, TopicPartition
from kdump.log.directory import LogDirectory
from kdump.state.metadata.cluster import ClusterImage
from kdump.state.metadata.settings import Settings


class OtherNodes(Struct, frozen=True):
    """The nodes that have what log directories have, and none of whose directories is there.

    If they run on, and then a node starts with logs that are older, it may lead: what is later is
    lost in the others, too.

    Attributes:
        brokers: how many of the partitions each has a replica of, by node.
        partitions: how many any of them has.
        voters: the other controllers, if one of the directories is of a controller.
        has_metadata: whether a copy of the cluster's metadata says which brokers there are.
    """

    brokers: Mapping[int, int]
    partitions: int
    voters: tuple[int, ...]
    has_metadata: bool


class KnownCluster(Struct, frozen=True):
    """The replicas and the topics of a cluster, as far as some log directories know them.

    Attributes:
        image: of the most advanced copy of the metadata; None if there is no copy.
        holders: the brokers that have each partition in one of the directories.
        nodes: the brokers of the directories.
        topics: the names of topics, by id.
    """

    image: ClusterImage | None
    holders: Mapping[TopicPartition, set[int]]
    nodes: set[int | None]
    topics: Mapping[str, str]

    def has_all(self, key: TopicPartition) -> bool:
        """Whether all replicas of a partition are in the directories; needs the metadata."""
        return self._replicas(key) <= self.holders.get(key, set())

    def is_deleted(self, key: TopicPartition) -> bool:
        """Whether there is no such partition."""
        return self.image is not None and not self._replicas(key)

    def not_held(
        self, keys: Iterable[TopicPartition]
    ) -> tuple[tuple[TopicPartition, ...], tuple[TopicPartition, ...]]:
        """The partitions that only other brokers have, and those that nobody has."""
        held_topics = {key.topic for key in self.holders}
        elsewhere, unknown = list[TopicPartition](), list[TopicPartition]()
        for key in sorted({*keys} - self.holders.keys()):
            is_known = key.topic in held_topics if self.image is None else self._replicas(key)
            (elsewhere if is_known else unknown).append(key)
        return tuple(elsewhere), tuple(unknown)

    def absent(self, keys: Collection[TopicPartition]) -> dict[int, int]:
        """How many of some partitions each broker has whose directories are not there."""
        found = defaultdict[int, int](int)
        for key in keys:
            for node in self.absent_of(key):
                found[node] += 1
        return dict(sorted(found.items()))

    def absent_of(self, key: TopicPartition) -> set[int]:
        """The brokers with a replica of a partition whose directories are not there."""
        return self._replicas(key) - self.nodes

    def _replicas(self, key: TopicPartition) -> set[int]:
        partition = None if self.image is None else self.image.partition(key)
        return set() if partition is None else {*partition.replicas}


def known_cluster(
    directories: Sequence[LogDirectory], settings: Iterable[Settings]
) -> KnownCluster:
    """Put together what log directories, and the settings of their topics, say of a cluster."""
    images = [each.cluster for each in settings if each.cluster is not None]
    image = max(images, key=lambda each: each.end, default=None)
    holders = defaultdict[TopicPartition, set[int]](set)
    topics = dict[str, str]()
    for directory in directories:
        for partition in directory.partitions:
            key = partition.topic_partition
            if key is None:
                continue
            own = holders[key]
            if directory.node_id is not None:
                own.add(directory.node_id)
            if (topic_id := partition.known_topic_id) is not None:
                topics[topic_id] = key.topic
    if image is not None:
        topics |= {topic_id: name for name, topic_id in image.topic_ids.items()}
    return KnownCluster(image, holders, {each.node_id for each in directories}, topics)


def other_nodes(directories: Sequence[LogDirectory], settings: Iterable[Settings]) -> OtherNodes:
    """Find the nodes of a cluster whose directories are not there."""
    cluster = known_cluster(directories, settings)
    voters = _voters(directories, cluster.image)
    keys = cluster.holders.keys()
    return OtherNodes(
        cluster.absent(keys),
        sum(bool(cluster.absent_of(key)) for key in keys),
        tuple(sorted(voters - cluster.nodes)) if voters & cluster.nodes else (),
        cluster.image is not None,
    )


def _voters(directories: Iterable[LogDirectory], image: ClusterImage | None) -> frozenset[int]:
    """The controllers: of the metadata, or of the configuration, as ``quorum-state`` has them."""
    if image is not None and image.voters:
        return frozenset(image.voters)
    for directory in directories:
        for partition in directory.partitions:
            if partition.topic_partition == CLUSTER_METADATA_PARTITION:
                with contextlib.suppress(FormatError, OSError):
                    state = partition.read_quorum_state()
                    if state is not None and state.current_voters:
                        return frozenset(state.current_voters)
    return frozenset()
