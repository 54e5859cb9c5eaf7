"""What is served: the topics of a dead cluster, and the replica of each partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from msgspec import Struct

from kdump.errors import KdumpError, UsageProblem
from kdump.formats.kafka_versions import KafkaVersion
from kdump.formats.names import CLUSTER_METADATA_TOPIC, COORDINATOR_TOPICS, TopicPartition
from kdump.formats.uuids import parse_uuid
from kdump.jobs.metadata.metadata_copies import read_copies
from kdump.log.broker import require_one_cluster
from kdump.log.directory import LogDirectory
from kdump.log.replicas import (
    Replica,
    choose_replicas,
    left_in_copies,
    of_one_topic,
    replicas_by_partition,
)
from kdump.log.selection import PartitionSelection
from kdump.phases import phase
from kdump.serve.served_log import CommittedReaders, ServedLog
from kdump.serve.served_log_0_7 import ServedLog07
from kdump.serve.served_notices import ServedNotices
from kdump.serve.verified_batches import VerifiedBatches
from kdump.state.metadata.cluster import Configs, cluster_view
from kdump.state.metadata.metadata_entities import PartitionRegistration
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage
from kdump.state.metadata.metadata_replay import END, CopyReplay
from kdump.state.metadata.settings import Settings

NO_EPOCH: Final = -1


class ServeRequest(Struct, frozen=True):
    """What to serve.

    Attributes:
        directories: the log directories, with partitions as a starting broker loads them.
        image: the cluster's metadata; None if there is none.
        broker_id: serve the replicas of this broker; None for the most advanced ones.
        server_properties: of a broker; None if its file was not given.
        kafka_version: of the brokers; None for that of the metadata.
    """

    directories: Sequence[LogDirectory]
    image: MetadataImage | None
    selection: PartitionSelection
    broker_id: int | None = None
    server_properties: Configs | None = None
    kafka_version: KafkaVersion | None = None


class ServedPartition(Struct, frozen=True):
    """A partition.

    Attributes:
        log: its replica; None if there is none here.
        registration: what the cluster's metadata says of it; None if it says nothing.
    """

    number: int
    log: ServedLog | ServedLog07 | None
    registration: PartitionRegistration | None

    @property
    def leader_epoch(self) -> int:
        """The epoch that clients learn and repeat."""
        return NO_EPOCH if self.registration is None else self.registration.leader_epoch


class ServedTopic(Struct, frozen=True):
    """A topic.

    Attributes:
        topic_id: its id; None if it has none, as before Kafka 2.8.
        partitions: by number, without gaps.
    """

    name: str
    topic_id: UUID | None
    partitions: Mapping[int, ServedPartition]

    @property
    def is_internal(self) -> bool:
        return self.name in COORDINATOR_TOPICS


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """The cluster that clients see: one node, and all topics.

    Attributes:
        cluster_id: None if the log directories do not say.
        image: the cluster's metadata; None if there is none.
        directories: all that were named.
        not_chosen: how many replicas are not served, because another one of the partition is.
        other_topics: replicas of topics whose name another topic has, by the cluster's metadata if
            that is known.
    """

    node_id: int
    cluster_id: str | None
    topics: Mapping[str, ServedTopic]
    image: MetadataImage | None
    settings: Settings
    directories: Sequence[LogDirectory]
    not_chosen: int
    other_topics: tuple[Replica, ...]
    _by_id: Mapping[UUID, ServedTopic] = field(init=False)

    def __post_init__(self) -> None:
        by_id = {each.topic_id: each for each in self.topics.values() if each.topic_id is not None}
        object.__setattr__(self, "_by_id", by_id)

    def topic_with_id(self, topic_id: UUID | None) -> ServedTopic | None:
        """The topic with an id; None if there is none."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def partition(self, key: TopicPartition) -> ServedPartition | None:
        """A partition; None if there is no such topic or no such number."""
        topic = self.topics.get(key.topic)
        return None if topic is None else topic.partitions.get(key.partition)

    @property
    def logs(self) -> list[ServedLog | ServedLog07]:
        found = (each.log for topic in self.topics.values() for each in topic.partitions.values())
        return [each for each in found if each is not None]

    def partitions_by_directory(self) -> Mapping[str, int]:
        """How many partitions are served from each log directory, by its path."""
        return Counter(str(each.replica.log_directory.path) for each in self.logs)


def open_cluster(
    request: ServeRequest,
    notices: ServedNotices,
    on_failure: Callable[[Replica, OSError], None],
) -> ServedCluster:
    """Choose what is served.

    Args:
        notices: takes what readers meet.
        on_failure: takes each replica whose end cannot be read, and why.

    Raises:
        UsageProblem: no directory is of the broker that was named, or they belong to several
            clusters.
    """
    require_one_cluster((each.path, each.cluster_id) for each in request.directories)
    nodes = {each.node_id for each in request.directories}
    known_nodes = sorted(each for each in nodes if each is not None)
    if request.broker_id is not None and request.broker_id not in known_nodes:
        of = ", ".join(map(str, known_nodes)) or "unknown brokers"
        raise UsageProblem(f"no log directory is of broker {request.broker_id}: they are of {of}")
    registrations = _registrations(request.image)
    ids = {} if request.image is None else _topic_ids(request.image)
    replicas, other_topics = _replicas(request, ids)
    chosen = choose_replicas(replicas, on_failure)
    verified, readers = VerifiedBatches(with_records=notices.skips_damage), CommittedReaders()
    logs: dict[TopicPartition, ServedLog | ServedLog07] = {}
    for replica in chosen.chosen:
        key = replica.partition.key
        if replica.partition.is_0_7:
            logs[key] = ServedLog07(key, replica, notices)
        else:
            logs[key] = ServedLog(key, replica, verified, readers, notices)
    selected = (
        each
        for directory in request.directories
        for each in directory.partitions
        if request.broker_id in (None, Replica(directory, each).node_id)
        and request.selection.matches(each.path.name, each.topic_partition)
    )
    if (said := left_in_copies(selected, logs.keys(), "served")) is not None:
        notices.note(said)
    keys = {*logs, *(key for key in registrations if request.selection.matches(str(key), key))}
    node_id = min(known_nodes, default=0) if request.broker_id is None else request.broker_id
    return ServedCluster(
        node_id=node_id,
        cluster_id=_cluster_id(request.directories),
        topics=_topics(keys, logs, registrations, ids),
        image=request.image,
        settings=Settings(
            broker=request.server_properties,
            cluster=None if request.image is None else cluster_view(request.image),
            node_id=node_id,
            given_version=request.kafka_version,
        ),
        directories=request.directories,
        not_chosen=len(chosen.others),
        other_topics=tuple(other_topics),
    )


def newest_image(
    directories: Iterable[LogDirectory],
    on_problem: Callable[[str], None],
    *,
    must_be_whole: bool = False,
) -> MetadataImage | None:
    """The cluster's metadata at the end of the most advanced copy; None without a copy.

    Args:
        directories: that may have one.
        on_problem: takes what is damaged.
        must_be_whole: whether damage is an error, after which later changes are not known.

    Raises:
        KdumpError: the copy is damaged.
        OSError: a file cannot be read.
    """
    copies = read_copies(directories)
    if not copies:
        return None
    replay = CopyReplay(copies[0].partition, on_problem)
    with phase(f"reading {replay.partition.path}"):
        image = replay.image_at(END)
    if must_be_whole and (replay.is_cut or replay.unknown):
        raise KdumpError(
            f"{replay.partition.path}: the end of the metadata cannot be read, so that who may do"
            " what is not known: name another copy of it"
        )
    return image


def _replicas(request: ServeRequest, ids: Mapping[str, str]) -> tuple[list[Replica], list[Replica]]:
    """The replicas to choose from, and those of topics that are gone or were created again."""
    replicas, unlisted, other_topics = [], [], []
    for key, found in replicas_by_partition(request.directories).items():
        if key.topic == CLUSTER_METADATA_TOPIC or not request.selection.matches(str(key), key):
            continue
        for each in found:
            if request.broker_id is not None and each.node_id != request.broker_id:
                continue
            known = None if key.topic not in ids else each.partition.known_topic_id
            if key.topic not in ids:
                unlisted.append(each)
            elif known is not None and known != ids[key.topic]:
                other_topics.append(each)
            else:
                replicas.append(each)
    of_topic, more = of_one_topic(unlisted, dict)
    return [*replicas, *of_topic], [*other_topics, *more]


def _topics(
    keys: Iterable[TopicPartition],
    logs: Mapping[TopicPartition, ServedLog | ServedLog07],
    registrations: Mapping[TopicPartition, PartitionRegistration],
    ids: Mapping[str, str],
) -> Mapping[str, ServedTopic]:
    numbers: dict[str, int] = {}
    for key in keys:
        numbers[key.topic] = max(numbers.get(key.topic, 0), key.partition)
    topics = {}
    for name, last in sorted(numbers.items()):
        own = [TopicPartition(name, number) for number in range(last + 1)]
        topic_id = ids.get(name)
        if topic_id is None:
            partitions = (logs[key].replica.partition for key in own if key in logs)
            topic_id = next(filter(None, (each.known_topic_id for each in partitions)), None)
        topics[name] = ServedTopic(
            name,
            None if topic_id is None else parse_uuid(topic_id),
            {
                key.partition: ServedPartition(key.partition, logs.get(key), registrations.get(key))
                for key in own
            },
        )
    return topics


def _registrations(image: MetadataImage | None) -> dict[TopicPartition, PartitionRegistration]:
    if image is None:
        return {}
    return {
        TopicPartition(name, number): registration
        for (topic_id, number), registration in image.of(EntityKind.PARTITION).items()
        if (name := image.topic_name(topic_id)) is not None
    }


def _topic_ids(image: MetadataImage) -> dict[str, str]:
    return {topic.name: topic_id for topic_id, topic in image.of(EntityKind.TOPIC).items()}


def _cluster_id(directories: Iterable[LogDirectory]) -> str | None:
    return next((each.cluster_id for each in directories if each.cluster_id), None)
