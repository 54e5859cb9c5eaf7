"""The records of an image of a cluster's metadata, as a snapshot has them.

Follows ``MetadataImage.write`` and what it calls. The ``metadata.version`` decides which version a
record has, and what cannot be written; Kafka's ``ImageWriterOptions`` refuses a loss, or hands it
to whoever asked, and so does :func:`records_of`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from kdump.formats.feature_levels import (
    HIGHEST_METADATA_VERSION,
    LOWEST_METADATA_VERSION,
    METADATA_VERSIONS,
)
from kdump.formats.internal_topics import encode_cluster_metadata
from kdump.formats.java.jackson import message_node
from kdump.formats.message_json import MessageJsonError, fields_from_json
from kdump.formats.schema import RecordType
from kdump.formats.schemas import metadata
from kdump.state.metadata.metadata_entities import MIGRATING_DIRECTORY
from kdump.state.metadata.metadata_image import (
    KRAFT_VERSION,
    METADATA_VERSION,
    EntityKind,
    MetadataImage,
    resource_of,
)

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
_MIGRATION: Final = 8  # 3.4-IV0
_SCRAM: Final = 11  # 3.5-IV2
_DELEGATION_TOKENS: Final = 14  # 3.6-IV2
_CONTROLLER_REGISTRATION: Final = 15  # 3.7-IV0
DIRECTORY_ASSIGNMENT: Final = 17  # 3.7-IV2
_ELR: Final = 23  # 4.0-IV1
_CORDONED_DIRECTORIES: Final = 30  # 4.3-IV0


class ImageLoss(enum.Enum):
    """What records of some ``metadata.version`` cannot say; the value is how people call it."""

    MIGRATING_BROKERS = "which brokers are migrating from ZooKeeper"
    BROKER_DIRECTORIES = "the log directories of brokers"
    CORDONED_DIRECTORIES = "the cordoned log directories of brokers"
    CONTROLLERS = "the registrations of controllers"
    REPLICA_DIRECTORIES = "the log directories of replicas"
    ELIGIBLE_LEADER_REPLICAS = "the eligible leader replicas of partitions"
    """Not a loss to Kafka, which leaves them out where the feature is off."""
    SCRAM = "SCRAM credentials"
    DELEGATION_TOKENS = "delegation tokens"

    @property
    def is_lost(self) -> bool:
        """Whether nothing brings it back; brokers and controllers report the rest again."""
        return self in (ImageLoss.SCRAM, ImageLoss.DELEGATION_TOKENS)


class UnwritableImageError(ValueError):
    """An image that cannot be written as records; the message says why."""


class ImageRecord(NamedTuple):
    """A record to be written.

    Attributes:
        name: Kafka's name of the type.
        fields: all that this version has.
    """

    name: str
    version: int
    fields: Mapping[str, Any]

    def encode(self) -> bytes:
        """The bytes of the record's value.

        Raises:
            EncodingError: a value does not fit its field.
        """
        return encode_cluster_metadata(self.name, self.version, self.fields)

    def node(self) -> dict[str, Any]:
        """The record as ``kafka-dump-log`` prints it: type, version and data.

        Bytes are bytes: JSON has them in base64. They are secrets.
        """
        schema = _TYPES[self.name].value
        data = message_node(schema, dict(self.fields), self.version)
        return {"type": self.name, "version": self.version, "data": data}


_TYPES: Final[Mapping[str, RecordType]] = {
    each.name: each for each in metadata.RECORD_TYPES.values()
}


def record_from_json(node: object) -> ImageRecord:
    """Read a record from parsed JSON, as :meth:`ImageRecord.node` makes it.

    Raises:
        MessageJsonError: it is not a record; the message begins with the field.
    """
    if not isinstance(node, dict) or node.keys() != {"type", "version", "data"}:
        raise MessageJsonError("a record must be an object with type, version and data")
    name, version = node["type"], node["version"]
    if not isinstance(name, str) or name not in _TYPES:
        raise MessageJsonError(f"type: there is no record type {name!r}")
    if isinstance(version, bool) or not isinstance(version, int):
        raise MessageJsonError("version: must be a whole number")
    return ImageRecord(name, version, fields_from_json(_TYPES[name].value, version, node["data"]))


def records_of(
    image: MetadataImage,
    metadata_version: int | None = None,
    *,
    on_loss: Callable[[ImageLoss], None],
) -> Iterator[ImageRecord]:
    """Yield the records that make an image, in the order in which a snapshot has them.

    Voters and ``kraft.version`` are not among them: they are in control records.

    Args:
        metadata_version: level of the feature to write for (default: that of the image).
        on_loss: takes what that level cannot hold; each loss once.

    Raises:
        UnwritableImageError: the level is unknown.
    """
    level = _level_of(image) if metadata_version is None else metadata_version
    if not level:
        raise UnwritableImageError(
            f"the metadata has no level of {METADATA_VERSION}: nothing was ever written to it, or"
            " what begins it is missing"
        )
    if level not in METADATA_VERSIONS:
        raise UnwritableImageError(
            f"{METADATA_VERSION} {level} is unknown; known are {LOWEST_METADATA_VERSION} to"
            f" {HIGHEST_METADATA_VERSION}"
        )
    yield from _ImageWriter(image, level, level, on_loss, set()).records()


def all_records_of(
    image: MetadataImage, *, on_loss: Callable[[ImageLoss], None]
) -> Iterator[ImageRecord]:
    """Yield the records that keep an image for later, whatever its ``metadata.version`` is.

    With a level that this kdump does not know, the records are as of the highest that it knows, and
    say that level; without one they do not say any. They are not meant for a controller: whoever
    writes them for one takes :func:`records_of`, which refuses both.

    Args:
        on_loss: as of :func:`records_of`.
    """
    level = _level_of(image)
    written = level if level in METADATA_VERSIONS else HIGHEST_METADATA_VERSION
    yield from _ImageWriter(image, level, written, on_loss, set()).records()


def _level_of(image: MetadataImage) -> int:
    return int(image.of(EntityKind.FEATURE).get(METADATA_VERSION, 0))


class _ImageWriter(Struct, frozen=True):
    """Writes an image for one ``metadata.version``.

    Attributes:
        said_level: the level that the records say; 0 for none.
        level: the level that decides their versions.
    """

    image: MetadataImage
    said_level: int
    level: int
    on_loss: Callable[[ImageLoss], None]
    reported: set[ImageLoss]

    def records(self) -> Iterator[ImageRecord]:
        yield from self._features()
        yield from self._brokers()
        yield from self._controllers()
        yield from self._topics()
        yield from self._configs()
        yield from self._quotas()
        for next_id in self.image.of(EntityKind.NEXT_PRODUCER_ID).values():
            if next_id >= 0:
                fields = {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": next_id}
                yield ImageRecord("PRODUCER_IDS_RECORD", 0, fields)
        for acl in self._sorted(EntityKind.ACL):
            yield ImageRecord("ACCESS_CONTROL_ENTRY_RECORD", 0, acl.record())
        if self._can_write(EntityKind.SCRAM, _SCRAM, ImageLoss.SCRAM):
            for credential in self._sorted(EntityKind.SCRAM):
                yield ImageRecord("USER_SCRAM_CREDENTIAL_RECORD", 0, credential.record())
        if self._can_write(EntityKind.TOKEN, _DELEGATION_TOKENS, ImageLoss.DELEGATION_TOKENS):
            for token in self._sorted(EntityKind.TOKEN):
                yield ImageRecord("DELEGATION_TOKEN_RECORD", 0, token.record())

    def _sorted(self, kind: EntityKind) -> list[Any]:
        entities = self.image.of(kind)
        return [entities[key] for key in sorted(entities)]

    def _can_write(self, kind: EntityKind, first_level: int, loss: ImageLoss) -> bool:
        """Whether the level has records of this kind; reports the loss of what there is."""
        if self.level < first_level and self.image.of(kind):
            self._lose(loss)
        return self.level >= first_level

    def _lose(self, loss: ImageLoss) -> None:
        if loss not in self.reported:
            self.reported.add(loss)
            self.on_loss(loss)

    def _features(self) -> Iterator[ImageRecord]:
        """``metadata.version`` first: it may decide how records after it are read."""
        levels = {METADATA_VERSION: self.said_level} if self.said_level else {}
        features = self.image.of(EntityKind.FEATURE)
        levels |= {name: features[name] for name in sorted(features) if name not in levels}
        levels.pop(KRAFT_VERSION, None)
        for name, level in levels.items():
            fields = {"name": name, "featureLevel": level}
            yield ImageRecord("FEATURE_LEVEL_RECORD", 0, fields)

    def _brokers(self) -> Iterator[ImageRecord]:
        # ``MetadataVersion.registerBrokerRecordVersion``.
        since = (_CORDONED_DIRECTORIES, DIRECTORY_ASSIGNMENT, _MIGRATION)
        version = next((4 - at for at, each in enumerate(since) if self.level >= each), 1)
        optional = (
            ("isMigratingZkBroker", 2, ImageLoss.MIGRATING_BROKERS),
            ("logDirs", 3, ImageLoss.BROKER_DIRECTORIES),
            ("cordonedLogDirs", 4, ImageLoss.CORDONED_DIRECTORIES),
        )
        for broker in self._sorted(EntityKind.BROKER):
            fields = broker.record()
            for name, first_version, loss in optional:
                if version < first_version:
                    value = fields.pop(name)
                    # An empty list of cordoned directories says more than none.
                    if value or (value is not None and name == "cordonedLogDirs"):
                        self._lose(loss)
            yield ImageRecord("REGISTER_BROKER_RECORD", version, fields)

    def _controllers(self) -> Iterator[ImageRecord]:
        loss = ImageLoss.CONTROLLERS
        if self._can_write(EntityKind.CONTROLLER, _CONTROLLER_REGISTRATION, loss):
            for controller in self._sorted(EntityKind.CONTROLLER):
                yield ImageRecord("REGISTER_CONTROLLER_RECORD", 0, controller.record())

    def _topics(self) -> Iterator[ImageRecord]:
        partitions: dict[str, list[int]] = {}
        registrations = self.image.of(EntityKind.PARTITION)
        for topic_id, number in sorted(registrations):
            partitions.setdefault(topic_id, []).append(number)
        topics = self.image.of(EntityKind.TOPIC)
        for topic in sorted(topics.values(), key=lambda each: (each.name, each.topic_id)):
            yield ImageRecord("TOPIC_RECORD", 0, topic.record())
            for number in partitions.get(topic.topic_id, ()):
                fields = registrations[topic.topic_id, number].record(topic.topic_id, number)
                yield self._partition(fields)

    def _partition(self, fields: dict[str, Any]) -> ImageRecord:
        # ``MetadataVersion.partitionRecordVersion``.
        version = 2 if self.level >= _ELR else 1 if self.level >= DIRECTORY_ASSIGNMENT else 0
        has_elr = self.image.of(EntityKind.FEATURE).get(ELIGIBLE_LEADER_REPLICAS, 0) > 0
        if version < 2 or not has_elr:
            lists = [fields.pop("eligibleLeaderReplicas"), fields.pop("lastKnownElr")]
            if any(lists):
                self._lose(ImageLoss.ELIGIBLE_LEADER_REPLICAS)
            if version == 2:
                fields |= {"eligibleLeaderReplicas": None, "lastKnownElr": None}
        if version < 1 and set(fields.pop("directories")) - {MIGRATING_DIRECTORY}:
            self._lose(ImageLoss.REPLICA_DIRECTORIES)
        return ImageRecord("PARTITION_RECORD", version, fields)

    def _configs(self) -> Iterator[ImageRecord]:
        configs = self.image.of(EntityKind.CONFIG)
        for key in sorted(configs):
            type_id, resource = resource_of(key)
            for name in sorted(configs[key]):
                fields = {
                    "resourceType": type_id,
                    "resourceName": resource,
                    "name": name,
                    "value": configs[key][name],
                }
                yield ImageRecord("CONFIG_RECORD", 0, fields)

    def _quotas(self) -> Iterator[ImageRecord]:
        quotas = self.image.of(EntityKind.QUOTA)
        for entity in sorted(quotas, key=lambda each: [(kind, name or "") for kind, name in each]):
            for key in sorted(quotas[entity]):
                fields = {
                    "entity": [{"entityType": kind, "entityName": name} for kind, name in entity],
                    "key": key,
                    "value": quotas[entity][key],
                    "remove": False,
                }
                yield ImageRecord("CLIENT_QUOTA_RECORD", 0, fields)
