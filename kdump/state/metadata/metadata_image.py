"""The replay of a cluster's metadata records: the metadata at any offset, and each change.

There is one replay. :class:`MetadataReplay` takes the records of ``__cluster_metadata`` in order,
all of them or only some types. Follows ``MetadataDelta.replay``, for metadata transactions
``MetadataBatchLoader``, and for control records ``KRaftControlRecordStateMachine``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct, field

from kdump.formats.feature_levels import KRAFT_VERSION as KRAFT_VERSION
from kdump.formats.feature_levels import METADATA_VERSION as METADATA_VERSION
from kdump.state.metadata.metadata_entities import (
    AccessControlEntry,
    DelegationToken,
    Fields,
    MetadataTopic,
    PartitionRegistration,
    ReplayFault,
    ScramCredential,
    scram_mechanism,
)
from kdump.state.metadata.metadata_nodes import BrokerRegistration, ControllerRegistration, Voter

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
_RESOURCE_NAMES: Final = {
    TOPIC_RESOURCE: "topic",
    BROKER_RESOURCE: "broker",
    8: "broker_logger",
    16: "client_metrics",
    32: "group",
}
"""Numbers of ``ConfigResource.Type``."""
_RESOURCE_TYPES: Final = {word: type_id for type_id, word in _RESOURCE_NAMES.items()}


class EntityKind(enum.Enum):
    """The kinds of things that metadata has; the value is the word in output.

    The comment is the key of an entity within its kind, and its value.
    """

    TOPIC = "topic"
    """Topic id: :class:`MetadataTopic`."""
    PARTITION = "partition"
    """Topic id and number: :class:`PartitionRegistration`."""
    CONFIG = "config"
    """``topic:NAME``, ``broker:ID`` and the like: values by property."""
    FEATURE = "feature"
    """Name: level."""
    QUOTA = "quota"
    """Types and names, in order of types: values by name of the quota."""
    ACL = "acl"
    """Id: :class:`AccessControlEntry`."""
    SCRAM = "scram"
    """User and mechanism: :class:`ScramCredential`."""
    TOKEN = "delegation_token"  # noqa: S105 - not a password
    """Id: :class:`DelegationToken`."""
    BROKER = "broker"
    """Node id: :class:`BrokerRegistration`."""
    CONTROLLER = "controller"
    """Node id: :class:`ControllerRegistration`."""
    VOTER = "voter"
    """Node id: :class:`Voter`."""
    QUORUM_LEADER = "quorum_leader"
    """``""``: node id of the elected controller."""
    NEXT_PRODUCER_ID = "next_producer_id"
    """``""``: the number."""


class LogEnd(NamedTuple):
    """Where a metadata log ends; ordered like ``OffsetAndEpoch``.

    Attributes:
        epoch: of the last batch, or of the snapshot if no batch follows it.
        offset: after the last record.
    """

    epoch: int
    offset: int


LOG_BEGIN: Final = LogEnd(0, 0)


class MetadataRecord(NamedTuple):
    """A decoded record of the metadata log or of a snapshot.

    Attributes:
        offset: in the log; in a snapshot its position there.
        timestamp_ms: when the batch was appended.
        name: Kafka's name of the type, also for control records.
    """

    offset: int
    epoch: int
    timestamp_ms: int
    name: str
    fields: Fields


class MetadataBatch(NamedTuple):
    """A batch, or a part of one that is too large to hold.

    Attributes:
        base_offset: of the batch; in a snapshot, the end of what the snapshot covers.
        end: the log's end with this batch; in a snapshot, the end of what it covers.
        timestamp_ms: when the batch was appended; in a snapshot, when the last batch that it
            covers was.
        records: those of the selected types, and control records.
    """

    base_offset: int
    end: LogEnd
    timestamp_ms: int
    records: list[MetadataRecord]


class MetadataChange(NamedTuple):
    """One thing changed; a value is None before it exists or after it is gone.

    Attributes:
        record: that changed it; None for the difference between two images.
        topic: the name of the topic, for a topic or a partition.
    """

    kind: EntityKind
    key: Any
    old: Any
    new: Any
    topic: str | None = None
    record: MetadataRecord | None = None


Entities = Mapping[Any, Any]


class MetadataImage(Struct, frozen=True):
    """A cluster's metadata at one offset. Follows ``MetadataImage``.

    Attributes:
        entities: by kind and key.
        end: the offset after the last record, and its epoch.
        timestamp_ms: when the last batch was appended; None if there is none.
        pending: offset of the record that began the open metadata transaction, whose records do
            not count; None if none is open.
    """

    entities: Mapping[EntityKind, Entities]
    end: LogEnd = LOG_BEGIN
    timestamp_ms: int | None = None
    pending: int | None = None

    def of(self, kind: EntityKind) -> Entities:
        """The entities of a kind by key."""
        return self.entities[kind]

    @property
    def kraft_version(self) -> int:
        """The level of the feature ``kraft.version``."""
        return cast("int", self.of(EntityKind.FEATURE).get(KRAFT_VERSION, 0))

    def topic_name(self, topic_id: str) -> str | None:
        """The name of a topic; None if there is none with this id."""
        topic = self.of(EntityKind.TOPIC).get(topic_id)
        return None if topic is None else cast("MetadataTopic", topic).name


def changes_between(left: MetadataImage, right: MetadataImage) -> Iterator[MetadataChange]:
    """Yield what differs between two images, in the order of kinds, then of names and keys."""
    for kind in EntityKind:
        before, after = left.of(kind), right.of(kind)
        keys = [key for key in before if before[key] != after.get(key)]
        keys += [key for key in after if key not in before]
        if kind is EntityKind.QUORUM_LEADER and not (before and after):
            continue  # A snapshot does not say who was elected before.
        changes = [_difference(kind, key, left, right) for key in keys]
        yield from sorted(changes, key=_place)


def _difference(
    kind: EntityKind, key: Any, left: MetadataImage, right: MetadataImage
) -> MetadataChange:
    topic = None
    if kind in (EntityKind.TOPIC, EntityKind.PARTITION):
        topic_id = key if kind is EntityKind.TOPIC else key[0]
        topic = right.topic_name(topic_id) or left.topic_name(topic_id)
    return MetadataChange(kind, key, left.of(kind).get(key), right.of(kind).get(key), topic)


def _place(change: MetadataChange) -> tuple[Any, ...]:
    if change.kind is EntityKind.QUOTA:
        return tuple((each, name or "") for each, name in change.key)
    # Of two topics with one name, the deleted one comes first.
    return change.topic or "", change.new is not None, change.key


class MetadataReplay(Struct):
    """The metadata while records are replayed.

    Attributes:
        on_fault: takes records that do not apply, and why; they change nothing.
    """

    on_fault: Callable[[MetadataRecord, str], None] = lambda _record, _what: None
    end: LogEnd = LOG_BEGIN
    timestamp_ms: int | None = None
    _entities: dict[EntityKind, dict[Any, Any]] = field(
        default_factory=lambda: {kind: {} for kind in EntityKind}
    )
    _ids: dict[str, str] = field(default_factory=dict)
    """Topic ids by name."""
    _numbers: dict[str, list[int]] = field(default_factory=dict)
    """Partitions by topic id."""
    _open: list[MetadataRecord] | None = None
    """The records of the open metadata transaction, and before them the one that began it."""
    _changes: list[MetadataChange] = field(default_factory=list)
    _record: MetadataRecord | None = None

    def take(self, record: MetadataRecord) -> list[MetadataChange]:
        """Replay a record.

        Returns:
            What changed: in a metadata transaction nothing, at its end all of it.
        """
        match record.name:
            case "BEGIN_TRANSACTION_RECORD":
                if self._open is not None:
                    self.on_fault(record, "a metadata transaction is open already")
                else:
                    self._open = [record]
            case "END_TRANSACTION_RECORD" | "ABORT_TRANSACTION_RECORD":
                taken, self._open = self._open, None
                if taken is None:
                    self.on_fault(record, "no metadata transaction is open")
                elif record.name == "END_TRANSACTION_RECORD":
                    for each in taken[1:]:
                        self._apply(each)
            case _:
                # The Raft layer's control records are not part of a transaction.
                if self._open is None or record.name in _CONTROL:
                    self._apply(record)
                else:
                    self._open.append(record)
        changes, self._changes = self._changes, []
        return changes

    def take_batches(self, batches: Iterable[MetadataBatch]) -> None:
        """Replay all records of batches."""
        for batch in batches:
            for record in batch.records:
                self.take(record)
            self.end, self.timestamp_ms = batch.end, batch.timestamp_ms

    def image(self) -> MetadataImage:
        """The metadata as it is now; later records do not change it."""
        return MetadataImage(
            {kind: dict(entities) for kind, entities in self._entities.items()},
            self.end,
            self.timestamp_ms,
            None if self._open is None else self._open[0].offset,
        )

    def _apply(self, record: MetadataRecord) -> None:
        handler = _HANDLERS.get(record.name)
        if handler is None:
            return
        self._record = record
        try:
            handler(self, record.fields)
        except ReplayFault as fault:
            self.on_fault(record, str(fault))

    def _set(self, kind: EntityKind, key: Any, new: Any, topic: str | None = None) -> None:
        """Set an entity; None removes it."""
        entities = self._entities[kind]
        old = entities.get(key)
        if old == new:
            return
        if new is None:
            del entities[key]
        else:
            entities[key] = new
        self._changes.append(MetadataChange(kind, key, old, new, topic, self._record))

    def _topic_of(self, topic_id: str) -> str:
        topic = self._entities[EntityKind.TOPIC].get(topic_id)
        if topic is None:
            raise ReplayFault(f"there is no topic with id {topic_id}")
        return cast("MetadataTopic", topic).name

    # --- topics

    def _topic(self, record: Fields) -> None:
        name, topic_id = record["name"], record["topicId"]
        self._set(EntityKind.TOPIC, topic_id, MetadataTopic(name, topic_id), name)
        self._drop_partitions(topic_id, name)
        self._ids[name] = topic_id

    def _drop_partitions(self, topic_id: str, name: str) -> None:
        for number in self._numbers.pop(topic_id, ()):
            self._set(EntityKind.PARTITION, (topic_id, number), None, name)

    def _remove_topic(self, record: Fields) -> None:
        topic_id = record["topicId"]
        name = self._topic_of(topic_id)
        self._drop_partitions(topic_id, name)
        self._set(EntityKind.TOPIC, topic_id, None, name)
        self._set(EntityKind.CONFIG, _resource(TOPIC_RESOURCE, name), None)
        if self._ids.get(name) == topic_id:
            del self._ids[name]

    def _partition(self, record: Fields) -> None:
        topic_id, number = record["topicId"], record["partitionId"]
        name = self._topic_of(topic_id)
        new = PartitionRegistration.of_record(record)
        if (topic_id, number) not in self._entities[EntityKind.PARTITION]:
            self._numbers.setdefault(topic_id, []).append(number)
        self._set(EntityKind.PARTITION, (topic_id, number), new, name)

    def _partition_change(self, record: Fields) -> None:
        topic_id, number = record["topicId"], record["partitionId"]
        name = self._topic_of(topic_id)
        old = self._entities[EntityKind.PARTITION].get((topic_id, number))
        if old is None:
            raise ReplayFault(f"topic {name} has no partition {number}")
        self._set(EntityKind.PARTITION, (topic_id, number), old.merged(record), name)

    def _clear_elr(self, record: Fields) -> None:
        name = record["topicName"]
        if name and name not in self._ids:
            raise ReplayFault(f"there is no topic {name}")
        topics = {self._ids[name]: name} if name else {v: k for k, v in self._ids.items()}
        for topic_id, topic in topics.items():
            for number in self._numbers.get(topic_id, ()):
                old = self._entities[EntityKind.PARTITION][topic_id, number]
                self._set(EntityKind.PARTITION, (topic_id, number), old.without_elr(), topic)

    # --- properties

    def _config(self, record: Fields) -> None:
        key = _resource(record["resourceType"], record["resourceName"])
        self._set_item(EntityKind.CONFIG, key, record["name"], record["value"])

    def _quota(self, record: Fields) -> None:
        entity = {each["entityType"]: each["entityName"] for each in record["entity"]}
        value = None if record["remove"] else record["value"]
        self._set_item(EntityKind.QUOTA, tuple(sorted(entity.items())), record["key"], value)

    def _set_item(self, kind: EntityKind, key: Any, name: str, value: Any) -> None:
        """Set one of an entity's properties; None removes it, and the entity with the last."""
        items = dict(self._entities[kind].get(key, {}))
        if value is None:
            items.pop(name, None)
        else:
            items[name] = value
        self._set(kind, key, items or None)

    def _feature(self, record: Fields) -> None:
        # Kafka skips this name, too: the level is in control records (KAFKA-18979).
        if record["name"] != KRAFT_VERSION:
            self._set(EntityKind.FEATURE, record["name"], record["featureLevel"] or None)

    def _producer_ids(self, record: Fields) -> None:
        self._set(EntityKind.NEXT_PRODUCER_ID, "", record["nextProducerId"])

    # --- security

    def _acl(self, record: Fields) -> None:
        self._set(EntityKind.ACL, record["id"], AccessControlEntry.of_record(record))

    def _remove_acl(self, record: Fields) -> None:
        if record["id"] not in self._entities[EntityKind.ACL]:
            raise ReplayFault(f"there is no ACL with id {record['id']}")
        self._set(EntityKind.ACL, record["id"], None)

    def _scram(self, record: Fields) -> None:
        new = ScramCredential.of_record(record)
        self._set(EntityKind.SCRAM, (new.user, new.mechanism), new)

    def _remove_scram(self, record: Fields) -> None:
        key = record["name"], scram_mechanism(record["mechanism"])
        self._set(EntityKind.SCRAM, key, None)

    def _token(self, record: Fields) -> None:
        self._set(EntityKind.TOKEN, record["tokenId"], DelegationToken.of_record(record))

    def _remove_token(self, record: Fields) -> None:
        self._set(EntityKind.TOKEN, record["tokenId"], None)

    # --- nodes

    def _register_broker(self, record: Fields) -> None:
        new = BrokerRegistration.of_record(record)
        self._set(EntityKind.BROKER, new.node_id, new)

    def _unregister_broker(self, record: Fields) -> None:
        self._set(EntityKind.BROKER, record["brokerId"], None)

    def _broker_change(self, record: Fields) -> None:
        self._change_broker(record["brokerId"], record["brokerEpoch"], record)

    def _fence(self, record: Fields) -> None:
        self._change_broker(record["id"], record["epoch"], {"fenced": 1})

    def _unfence(self, record: Fields) -> None:
        self._change_broker(record["id"], record["epoch"], {"fenced": -1})

    def _change_broker(self, node_id: int, epoch: int, record: Fields) -> None:
        old = self._entities[EntityKind.BROKER].get(node_id)
        if old is None:
            raise ReplayFault(f"broker {node_id} is not registered")
        if old.epoch != epoch:
            raise ReplayFault(f"broker {node_id} has epoch {old.epoch}, not {epoch}")
        self._set(EntityKind.BROKER, node_id, old.changed(record))

    def _register_controller(self, record: Fields) -> None:
        new = ControllerRegistration.of_record(record)
        self._set(EntityKind.CONTROLLER, new.node_id, new)

    def _unregister_controller(self, record: Fields) -> None:
        self._set(EntityKind.CONTROLLER, record["controllerId"], None)

    # --- control records

    def _leader_change(self, record: Fields) -> None:
        self._set(EntityKind.QUORUM_LEADER, "", record["leaderId"])
        if not self._entities[EntityKind.FEATURE].get(KRAFT_VERSION):
            # The configuration names the voters; the log has their ids here.
            self._set_voters(Voter(each["voterId"]) for each in record["voters"])

    def _kraft_version(self, record: Fields) -> None:
        self._set(EntityKind.FEATURE, KRAFT_VERSION, record["kRaftVersion"] or None)

    def _voters(self, record: Fields) -> None:
        self._set_voters(map(Voter.of_record, record["voters"]))

    def _set_voters(self, voters: Iterable[Voter]) -> None:
        by_id = {voter.node_id: voter for voter in voters}
        for node_id in list(self._entities[EntityKind.VOTER]):
            if node_id not in by_id:
                self._set(EntityKind.VOTER, node_id, None)
        for node_id, voter in by_id.items():
            self._set(EntityKind.VOTER, node_id, voter)


def _resource(type_id: int, name: str) -> str:
    return f"{_RESOURCE_NAMES.get(type_id, 'unknown')}:{name}"


def resource_of(key: str) -> tuple[int, str]:
    """The type and the name of the resource of a configuration, from the key of its entity."""
    word, _, name = key.partition(":")
    return _RESOURCE_TYPES.get(word, 0), name


_HANDLERS: Final[Mapping[str, Callable[[MetadataReplay, Fields], None]]] = {
    "REGISTER_BROKER_RECORD": MetadataReplay._register_broker,
    "UNREGISTER_BROKER_RECORD": MetadataReplay._unregister_broker,
    "TOPIC_RECORD": MetadataReplay._topic,
    "PARTITION_RECORD": MetadataReplay._partition,
    "CONFIG_RECORD": MetadataReplay._config,
    "PARTITION_CHANGE_RECORD": MetadataReplay._partition_change,
    "FENCE_BROKER_RECORD": MetadataReplay._fence,
    "UNFENCE_BROKER_RECORD": MetadataReplay._unfence,
    "REMOVE_TOPIC_RECORD": MetadataReplay._remove_topic,
    "DELEGATION_TOKEN_RECORD": MetadataReplay._token,
    "USER_SCRAM_CREDENTIAL_RECORD": MetadataReplay._scram,
    "FEATURE_LEVEL_RECORD": MetadataReplay._feature,
    "CLIENT_QUOTA_RECORD": MetadataReplay._quota,
    "PRODUCER_IDS_RECORD": MetadataReplay._producer_ids,
    "BROKER_REGISTRATION_CHANGE_RECORD": MetadataReplay._broker_change,
    "ACCESS_CONTROL_ENTRY_RECORD": MetadataReplay._acl,
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": MetadataReplay._remove_acl,
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": MetadataReplay._remove_scram,
    "REMOVE_DELEGATION_TOKEN_RECORD": MetadataReplay._remove_token,
    "REGISTER_CONTROLLER_RECORD": MetadataReplay._register_controller,
    "UNREGISTER_CONTROLLER_RECORD": MetadataReplay._unregister_controller,
    "CLEAR_ELR_RECORD": MetadataReplay._clear_elr,
    "LEADER_CHANGE": MetadataReplay._leader_change,
    "KRAFT_VERSION": MetadataReplay._kraft_version,
    "KRAFT_VOTERS": MetadataReplay._voters,
}
"""What replays each type of record; NoOp and ZkMigrationState change nothing."""
_CONTROL: Final = frozenset({"LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"})
