"""The plan for a dead cluster's metadata: ``kdump metadata plan`` writes it, ``apply`` takes it.

A plan is the whole cluster at the offset and epoch of a snapshot. People may edit it: what
:meth:`ClusterPlan.records` yields is made of the document alone. Beside each decision is its
:class:`Source`. Its JSON is in :mod:`kdump.state.metadata.cluster_plan_json`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from kdump.formats.dynamic_voter import DynamicVoter
from kdump.formats.json_document import (
    MOST_INT32,
    DocumentError,
    JsonObject,
    checked_number,
    checked_text,
    elements,
)
from kdump.formats.json_struct import LATER, Form, Int16, Int32, Uuid, number, word
from kdump.formats.uuids import parse_uuid
from kdump.state.metadata.disk_collection import CollectedRecord
from kdump.state.metadata.metadata_entities import RECOVERY_CODES, PartitionRegistration
from kdump.state.metadata.metadata_image import TOPIC_RESOURCE


class SourceKind(enum.Enum):
    """Where a decision comes from; the value is its word in the document."""

    COPY = "copy"
    """The copy of the metadata that the plan starts with."""
    OLD_COPY = "old-copy"
    """Another copy, which ends earlier."""
    DISK = "disk"
    """A partition's directory."""
    CLAIM = "claim"
    """Records of an internal topic name it."""
    RULE = "rule"
    """It follows from the disks by a rule of kdump, such as an epoch above all that were seen."""
    GUESS = "guess"
    """Nothing says it."""
    SET = "set"
    """``--set``, or another option."""


class Source(NamedTuple):
    """Where a decision comes from; prints as ``disk: node 2 /data/d1``."""

    kind: SourceKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}"


def _read_source(value: Any, where: str) -> Source:
    text = checked_text(value, where)
    kind, colon, detail = text.partition(": ")
    if not colon or kind not in _SOURCE_KINDS:
        raise DocumentError(f"{where}: not one of {', '.join(_SOURCE_KINDS)}, and a detail: {text}")
    return Source(_SOURCE_KINDS[kind], detail)


def _read_sources(value: Any, where: str) -> Sources:
    sources = JsonObject.of(value, where)
    return {name: _read_source(each, sources.path(name)) for name, each in sources.fields.items()}


_SOURCE_KINDS: Final = {each.value: each for each in SourceKind}
DocumentSource: TypeAlias = Annotated[Source, Form(_read_source, str)]
Sources: TypeAlias = Annotated[
    Mapping[str, Source],
    Form(_read_sources, lambda sources: {name: str(each) for name, each in sources.items()}),
]
"""The source of a decision by the name of its field."""


class PlannedController(Struct, frozen=True):
    """A controller and voter of the new quorum.

    Attributes:
        directory_id: of its metadata directory; with kraft.version 1 every voter needs one.
    """

    node_id: Int32
    host: str
    port: Annotated[int, number(1, (1 << 16) - 1)]
    directory_id: Uuid | None

    @property
    def voter(self) -> DynamicVoter:
        """The controller as people write it."""
        directory_id = None if self.directory_id is None else parse_uuid(self.directory_id)
        return DynamicVoter(self.node_id, self.host, self.port, directory_id)


class PlannedFeature(Struct, frozen=True):
    """The level of a feature other than ``kraft.version``."""

    name: str
    level: Int16
    source: DocumentSource


class PlannedConfig(Struct, frozen=True):
    """A property of a topic, or of another resource."""

    name: str
    value: str
    source: DocumentSource


class ResourceConfig(Struct, frozen=True):
    """A property of a resource other than a topic.

    Attributes:
        resource_type: the number of ``ConfigResource.Type``: 4 broker, 16 client metrics, 32 group.
        resource_name: such as the node id of a broker; "" for all brokers.
    """

    resource_type: Annotated[int, number(most=127)]
    resource_name: str
    name: str
    value: str
    source: DocumentSource


def _read_nodes(value: Any, where: str) -> tuple[int, ...]:
    nodes = tuple(checked_number(*each, most=MOST_INT32) for each in elements(value, where))
    if len(set(nodes)) < len(nodes):
        raise DocumentError(f"{where}: a node is in the list twice")
    return nodes


Nodes: TypeAlias = Annotated[tuple[int, ...], Form(_read_nodes)]
_REGISTRATION: Final = PartitionRegistration.__struct_fields__


class PlannedTopicPartition(Struct, frozen=True):
    """A partition of a topic, as a PartitionRecord has it.

    Attributes:
        replicas: node ids; likewise ``isr``, ``elr``, ``last_known_elr``, ``removing_replicas`` and
            ``adding_replicas``.
        directories: ids of the log directories, in the order of ``replicas``.
        leader: node id, or -1.
        leader_recovery_state: ``RECOVERED`` or ``RECOVERING``.
        sources: of ``partition`` (why it exists), ``replicas``, ``directories``, ``leader`` (and
            the ISR), ``leader_epoch``.
    """

    partition: Int32
    replicas: Nodes
    directories: tuple[Uuid, ...]
    isr: Nodes
    elr: Nodes
    last_known_elr: Nodes
    removing_replicas: Nodes
    adding_replicas: Nodes
    leader: Annotated[int, number(-1, MOST_INT32)]
    leader_recovery_state: Annotated[str, word({each: each for each in RECOVERY_CODES})]
    leader_epoch: Int32
    partition_epoch: Int32
    sources: Sources

    @property
    def registration(self) -> PartitionRegistration:
        """The partition as the metadata has it, without its number and its sources."""
        return PartitionRegistration(**{name: getattr(self, name) for name in _REGISTRATION})


class PlannedTopic(Struct, frozen=True):
    """A topic.

    Attributes:
        configs: its own properties, by name.
        partitions: by number.
    """

    name: str
    topic_id: Uuid
    source: DocumentSource
    configs: tuple[PlannedConfig, ...]
    partitions: tuple[PlannedTopicPartition, ...]


class PlannedRecord(Struct, frozen=True):
    """A record that the plan keeps as it was in a copy: of a broker, ACL, quota and so on.

    Attributes:
        type: Kafka's name of the type, such as ``ACCESS_CONTROL_ENTRY_RECORD``.
        version: of the fields as they are here; ``apply`` writes the version that fits the
            metadata.version.
        data: the fields as the JSON of ``kafka-dump-log`` has them; bytes in base64.
    """

    type: Annotated[str, Form(lambda value, _: value)]  # the list that it is in says which
    version: Int16
    data: Mapping[str, Any]
    source: DocumentSource


class NoticeKind(enum.Enum):
    """How much a notice matters; the value is its word in the document."""

    LOSS = "loss"
    """Some disk has it and the plan drops it, or it is gone for good."""
    CONTRADICTION = "contradiction"
    """Disks disagree; the plan has decided."""
    WARNING = "warning"
    """To be known or done before the brokers start."""
    GUESS = "guess"
    """Nothing on the disks says it."""


class Notice(Struct, frozen=True):
    """Something that people must know of a plan.

    Attributes:
        code: what it is; the words do not change.
        topic: that it is about; None if it is not about a topic.
        partition: of the topic; None if it is about all, or none.
        what: a sentence.
        needs_acceptance: whether the plan is refused without ``--accept-loss``.
        override: the ``--set`` that decides otherwise; None if nothing does.
    """

    kind: Annotated[NoticeKind, word({each.value: each for each in NoticeKind})]
    code: str
    topic: str | None
    partition: Int32 | None
    what: str
    needs_acceptance: bool = False
    override: str | None = None


class MovedAside(Struct, frozen=True):
    """A copy of the metadata log that must be moved aside before its node starts.

    Attributes:
        log_dir: as it was given to ``collect``.
        directory_id: of the log directory; None if it has none.
    """

    node_id: Int32
    log_dir: str
    directory_id: Uuid | None
    why: str


class FirstLeader(Struct, frozen=True):
    """A partition with unclean leader election: this node must be up before its other replicas."""

    topic: str
    partition: Int32
    node_id: Int32


class SeenReplica(Struct, frozen=True):
    """Where the log of a replica ends once a broker has started.

    Attributes:
        leader_epoch: the last one in the log; -1 without any.
        log_end_offset: -1 if no broker loads the log.
    """

    node_id: Int32
    leader_epoch: Annotated[int, number(-1, MOST_INT32)]
    log_end_offset: Annotated[int, number(-1)]

    @property
    def end(self) -> tuple[int, int]:
        """The greater, the more advanced the replica."""
        return self.leader_epoch, self.log_end_offset


class SeenPartition(Struct, frozen=True):
    """A partition as the disks have it, and the leaders that the notices are about.

    Attributes:
        topic: the name of its topic.
        topic_id: the one with which the plan was made.
        isr: the nodes that lead by the plan, or ``--set``.
        highest_leader_epoch: in copies, checkpoints and batch headers; -1 without any.
        replicas: those on disks that were collected, by node id.
    """

    topic: str
    topic_id: Uuid
    partition: Int32
    isr: Nodes
    highest_leader_epoch: Annotated[int, number(-1, MOST_INT32)]
    replicas: tuple[SeenReplica, ...]


class SeenOnDisks(Struct, frozen=True):
    """What the plan must fit, whoever edits it.

    Attributes:
        cluster_id: of the collected disks; None if none names it.
        highest_offset: of any copy of the metadata; likewise ``highest_epoch``.
        highest_producer_id: on any disk; -1 if there is none.
        partitions: those of the plan, by topic and number.
    """

    cluster_id: str | None
    highest_offset: int
    highest_epoch: Int32
    highest_producer_id: Annotated[int, number(-1)]
    partitions: tuple[SeenPartition, ...] = ()


class ClusterPlan(Struct, frozen=True):
    """A cluster's metadata, to be written as a snapshot.

    Attributes:
        kdump: the version of kdump that made the plan.
        created_ms: when the newest of the collections was made.
        snapshot_offset: of the snapshot's name; above every offset in any copy.
        snapshot_epoch: likewise; above every epoch in any copy.
        kraft_version: 0 if the configuration names the voters, 1 if the snapshot does.
        controller_listener: name of the controllers' listener in the VotersRecord.
        controllers: the voters, by node id.
        next_producer_id: the first that is not used.
        sources: of ``cluster_id``, ``snapshot_offset``, ``snapshot_epoch``, ``kraft_version`` and
            ``next_producer_id``.
        features: by name, with metadata.version.
        topics: by name.
        configs: of resources other than topics, by type, name and property.
        brokers: RegisterBrokerRecords, fenced, by node id.
        acls: AccessControlEntryRecords.
        scram: UserScramCredentialRecords; these have secrets.
        quotas: ClientQuotaRecords.
        delegation_tokens: DelegationTokenRecords; these have secrets.
        move_aside: what to do on brokers before they start.
        first_leaders: the order in which brokers have to start.
        notices: losses first.
        is_loss_accepted: whether ``--accept-loss`` was given.
        seen: what the snapshot must be above.
        moment_ms: ``--to`` of the collections, whose topics, configurations, quotas, ACLs,
            credentials and tokens the plan has; None if it has those of the end.
    """

    kdump: str
    created_ms: int
    cluster_id: str
    snapshot_offset: Annotated[int, number(1)]
    snapshot_epoch: Annotated[int, number(1, MOST_INT32 - 1)]
    kraft_version: Annotated[int, number(most=1)]
    controller_listener: str
    controllers: tuple[PlannedController, ...]
    next_producer_id: int
    sources: Sources
    features: tuple[PlannedFeature, ...]
    topics: tuple[PlannedTopic, ...]
    configs: tuple[ResourceConfig, ...] = ()
    brokers: tuple[PlannedRecord, ...] = ()
    acls: tuple[PlannedRecord, ...] = ()
    scram: tuple[PlannedRecord, ...] = ()
    quotas: tuple[PlannedRecord, ...] = ()
    delegation_tokens: tuple[PlannedRecord, ...] = ()
    move_aside: tuple[MovedAside, ...] = ()
    first_leaders: tuple[FirstLeader, ...] = ()
    notices: tuple[Notice, ...] = ()
    is_loss_accepted: bool = False
    seen: SeenOnDisks = SeenOnDisks(None, 0, 0, -1)
    moment_ms: Annotated[int | None, LATER] = None

    def records(self) -> Iterator[CollectedRecord]:
        """Yield the plan as records, in the order of a snapshot and without control records.

        They have every field of the highest version. Which version is written, and which fields it
        has, follows from the metadata.version.
        """
        for feature in self.features:
            yield _record(
                "FEATURE_LEVEL_RECORD", {"name": feature.name, "featureLevel": feature.level}
            )
        yield from map(_kept, self.brokers)
        for topic in self.topics:
            yield _record("TOPIC_RECORD", {"name": topic.name, "topicId": topic.topic_id})
            for partition in topic.partitions:
                data = partition.registration.record(topic.topic_id, partition.partition)
                yield _record("PARTITION_RECORD", data, _PARTITION_VERSION)
        for topic in self.topics:
            for config in topic.configs:
                yield _config_record(TOPIC_RESOURCE, topic.name, config.name, config.value)
        for each in self.configs:
            yield _config_record(each.resource_type, each.resource_name, each.name, each.value)
        yield from map(_kept, (*self.quotas, *self.scram, *self.acls, *self.delegation_tokens))
        yield _record(
            "PRODUCER_IDS_RECORD",
            {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": self.next_producer_id},
        )


_PARTITION_VERSION: Final = 2
"""The version of PartitionRecord that has all fields."""


def _record(record_type: str, data: Mapping[str, Any], version: int = 0) -> CollectedRecord:
    return CollectedRecord(record_type, version, data)


def _kept(record: PlannedRecord) -> CollectedRecord:
    return CollectedRecord(record.type, record.version, record.data)


def _config_record(resource_type: int, resource: str, name: str, value: str) -> CollectedRecord:
    return _record(
        "CONFIG_RECORD",
        {"resourceType": resource_type, "resourceName": resource, "name": name, "value": value},
    )
