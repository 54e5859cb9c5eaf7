"""A cluster's metadata as they were at a moment, for the disks and nodes that it has now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

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
    entities[EntityKind.CONFIG] = _safe_configs(now, then)
    topics, kept = then.of(EntityKind.TOPIC), now.of(EntityKind.TOPIC)
    entities[EntityKind.PARTITION] = {
        (topic_id, number): each
        for image, of_topic in ((now, topics.keys() & kept), (then, topics.keys() - kept.keys()))
        for (topic_id, number), each in image.of(EntityKind.PARTITION).items()
        if topic_id in of_topic
    }
    return replace(now, entities=entities)


def _safe_configs(now: MetadataImage, then: MetadataImage) -> Mapping[str, Mapping[str, str]]:
    """The configurations of then; ``min.insync.replicas`` as eligible leader replicas need it.

    Where they are on, all brokers have one value, which was set when they were switched on
    (``ConfigurationControlManager.maybeGenerateElrSafetyRecords``).
    """
    configs = dict(then.of(EntityKind.CONFIG))
    if not now.of(EntityKind.FEATURE).get(ELIGIBLE_LEADER_REPLICAS):
        return configs
    known = now.of(EntityKind.CONFIG).get(_ALL_BROKERS, {})
    own = configs.get(_ALL_BROKERS, {})
    if MIN_INSYNC_REPLICAS in known and MIN_INSYNC_REPLICAS not in own:
        configs[_ALL_BROKERS] = {**own, MIN_INSYNC_REPLICAS: known[MIN_INSYNC_REPLICAS]}
    for key in [each for each in configs if _is_of_one_broker(each)]:
        values = {name: configs[key][name] for name in configs[key] if name != MIN_INSYNC_REPLICAS}
        configs[key] = values
        if not values:
            del configs[key]
    return configs


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
