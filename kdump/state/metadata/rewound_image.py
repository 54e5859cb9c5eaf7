"""A cluster's metadata as they were at a moment, for the disks and nodes that it has now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kdump.state.metadata.metadata_image import (
    EntityKind,
    MetadataImage,
)

_OF_THE_MOMENT: Final = (
    EntityKind.TOPIC,
    EntityKind.CONFIG,
    EntityKind.QUOTA,
    EntityKind.ACL,
    EntityKind.SCRAM,
    EntityKind.TOKEN,
)


def rewound_image(now: MetadataImage, then: MetadataImage) -> MetadataImage:
    """Topics, configurations, quotas, ACLs, credentials and tokens of then; all else of now.

    The replicas, leaders and leader epochs of partitions that are still there have to fit the
    disks, and nodes and features the programs that start. Of topics that were deleted since,
    partitions are as they were.
    """
    entities = {**now.entities} | {kind: then.of(kind) for kind in _OF_THE_MOMENT}
    topics, kept = then.of(EntityKind.TOPIC), now.of(EntityKind.TOPIC)
    entities[EntityKind.PARTITION] = {
        (topic_id, number): each
        for image, of_topic in ((now, topics.keys() & kept), (then, topics.keys() - kept.keys()))
        for (topic_id, number), each in image.of(EntityKind.PARTITION).items()
        if topic_id in of_topic
    }
    return replace(now, entities=entities)


def later_topics(
    now: MetadataImage, then: MetadataImage, removed_since: Iterable[str]
) -> tuple[str, ...]:
    """The ids of topics that were created after then, in order.

    Args:
        removed_since: the ids of topics that were deleted after then.
    """
    known = {*now.of(EntityKind.TOPIC), *removed_since}
    return tuple(sorted(known - then.of(EntityKind.TOPIC).keys()))
