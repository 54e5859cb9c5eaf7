"""A cluster's metadata as they were at a moment, for the disks and nodes that it has now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from kdump.state.metadata.config_keys import REMOTE_STORAGE_ENABLE, is_true
from kdump.state.metadata.image_records import ELIGIBLE_LEADER_REPLICAS
from kdump.state.metadata.metadata_image import (
    BROKER_RESOURCE,
    EntityKind,
    MetadataImage,
    resource_of,
)

_OF_THE_MOMENT: Final = (
    EntityKind.TOPIC,
    EntityKind.CONFIG,
    EntityKind.QUOTA,
    EntityKind.ACL,
    EntityKind.SCRAM,
    EntityKind.TOKEN,
)

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
_ALL_BROKERS: Final = "broker:"


def rewound_image(now: MetadataImage, then: MetadataImage) -> MetadataImage:
    """Topics, configurations, quotas, ACLs, credentials and tokens of then; all else of now.

    The replicas, leaders and leader epochs of partitions that are still there have to fit the
    disks, and nodes and features the programs that start. Of topics that were deleted since,
    partitions are as they were.
    """
    entities = {**now.entities} | {kind: then.of(kind) for kind in _OF_THE_MOMENT}
    entities[EntityKind.CONFIG] = _configs(now, then)
    topics, kept = then.of(EntityKind.TOPIC), now.of(EntityKind.TOPIC)
    entities[EntityKind.PARTITION] = {
        (topic_id, number): each
        for image, of_topic in ((now, topics.keys() & kept), (then, topics.keys() - kept.keys()))
        for (topic_id, number), each in image.of(EntityKind.PARTITION).items()
        if topic_id in of_topic
    }
    return replace(now, entities=entities)


def _configs(now: MetadataImage, then: MetadataImage) -> Mapping[str, Mapping[str, str]]:
    """The configurations of then; what features and disks of now need stays."""
    configs = {key: dict(values) for key, values in then.of(EntityKind.CONFIG).items()}
    if now.of(EntityKind.FEATURE).get(ELIGIBLE_LEADER_REPLICAS):
        _set_minimum(configs, now)
    kept = then.of(EntityKind.TOPIC).keys() & now.of(EntityKind.TOPIC).keys()
    for topic_id in kept:
        # Otherwise a log begins with its first local record: what is only remote is gone.
        key = f"topic:{now.topic_name(topic_id)}"
        if is_true(now.of(EntityKind.CONFIG).get(key, {}).get(REMOTE_STORAGE_ENABLE, "")):
            configs.setdefault(key, {})[REMOTE_STORAGE_ENABLE] = "true"
    return {key: values for key, values in configs.items() if values}


def _set_minimum(configs: dict[str, dict[str, str]], now: MetadataImage) -> None:
    """Give all brokers one ``min.insync.replicas``, as eligible leader replicas need it.

    Kafka sets it when they are switched on, and removes those of single brokers
    (``ConfigurationControlManager.maybeGenerateElrSafetyRecords``).
    """
    minimum = now.of(EntityKind.CONFIG).get(_ALL_BROKERS, {}).get(MIN_INSYNC_REPLICAS)
    if minimum is not None:
        configs.setdefault(_ALL_BROKERS, {}).setdefault(MIN_INSYNC_REPLICAS, minimum)
    for key in filter(_is_of_one_broker, configs):
        configs[key].pop(MIN_INSYNC_REPLICAS, None)


def _is_of_one_broker(key: str) -> bool:
    resource_type, name = resource_of(key)
    return resource_type == BROKER_RESOURCE and name != ""


def later_topics(
    now: MetadataImage, then: MetadataImage, removed_since: Iterable[str]
) -> tuple[str, ...]:
    """The ids of topics that were created after then, in order.

    Args:
        removed_since: the ids of topics that were deleted after then.
    """
    known = {*now.of(EntityKind.TOPIC), *removed_since}
    return tuple(sorted(known - then.of(EntityKind.TOPIC).keys()))


def later_partitions(now: MetadataImage, then: MetadataImage) -> tuple[tuple[str, int], ...]:
    """The ids and numbers of partitions that topics of then got later, in order."""
    topics = then.of(EntityKind.TOPIC)
    before = then.of(EntityKind.PARTITION)
    added = (key for key in now.of(EntityKind.PARTITION) if key[0] in topics and key not in before)
    return tuple(sorted(added))
