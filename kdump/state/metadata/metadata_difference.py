"""What differs between two images of a cluster's metadata, as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kdump.state.metadata.metadata_image import (
    EntityKind,
    MetadataChange,
    MetadataImage,
    changes_between,
)
from kdump.state.metadata.metadata_rows import changed_fields, identity_row


def difference_rows(left: MetadataImage, right: MetadataImage) -> Iterator[dict[str, Any]]:
    """Yield a row for each thing that only one image has, or that differs.

    A topic is one row with its partitions if only one image has it, and also if it was deleted
    and created again under its name.
    """
    changes = list(changes_between(left, right))
    whole = {each.key for each in changes if each.kind is EntityKind.TOPIC}
    gone = {each.topic: each for each in changes if _is_topic(each) and each.new is None}
    created = {each.topic for each in changes if _is_topic(each) and each.new is not None}
    partitions = _partitions(left) | _partitions(right)
    for change in changes:
        if change.kind is EntityKind.PARTITION and change.key[0] in whole:
            continue
        if not _is_topic(change):
            yield _row(change)
        elif change.new is not None and change.topic in gone:
            yield _topic_row(gone[change.topic]._replace(new=change.new), "recreated", partitions)
        elif change.new is not None:
            yield _topic_row(change, "added", partitions)
        elif change.topic not in created:
            yield _topic_row(change, "removed", partitions)


def uncommitted_rows(changes: Iterable[MetadataChange]) -> Iterator[dict[str, Any]]:
    """Yield a row for each change."""
    return map(_row, changes)


def _is_topic(change: MetadataChange) -> bool:
    return change.kind is EntityKind.TOPIC


def _partitions(image: MetadataImage) -> Counter[str]:
    """Count the partitions of each topic by its id."""
    return Counter(topic_id for topic_id, _ in image.of(EntityKind.PARTITION))


def _row(change: MetadataChange) -> dict[str, Any]:
    old, new = changed_fields(change)
    word = "added" if change.old is None else "removed" if change.new is None else "changed"
    return {**identity_row(change), "change": word, "old": old, "new": new}


def _topic_row(change: MetadataChange, word: str, partitions: Counter[str]) -> dict[str, Any]:
    old, new = (
        None if topic is None else {"id": topic.topic_id, "partitions": partitions[topic.topic_id]}
        for topic in (change.old, change.new)
    )
    return {**identity_row(change), "change": word, "old": old, "new": new}
