"""Metadata as rows of plain values for output, without secrets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kdump.state.metadata.metadata_image import EntityKind, MetadataChange, MetadataImage

REDACTED: Final = "[redacted]"
"""What ``MetadataNodePrinter`` prints instead of a secret."""
_TOPIC_CONFIG: Final = "topic:"
_SECRET_NAMES: Final = (
    *("password", "passphrase", "secret", "sasl.jaas.config"),
    *("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates"),
)
"""Ends of the names of properties that Kafka treats as passwords."""


def config_row(values: Mapping[str, str]) -> dict[str, str]:
    """Properties and values; the values of passwords are replaced."""
    return {
        name: REDACTED if name.endswith(_SECRET_NAMES) else values[name] for name in sorted(values)
    }


def entity_row(kind: EntityKind, value: Any) -> dict[str, Any] | None:
    """The fields of an entity; None for one that does not exist."""
    if value is None:
        return None
    match kind:
        case EntityKind.CONFIG:
            return dict(config_row(value))
        case EntityKind.QUOTA:
            return {name: value[name] for name in sorted(value)}
        case EntityKind.FEATURE:
            return {"level": value}
        case EntityKind.QUORUM_LEADER:
            return {"leader": value}
        case EntityKind.NEXT_PRODUCER_ID:
            return {"next_producer_id": value}
    row: dict[str, Any] = value.row()
    return row


def identity_row(change: MetadataChange) -> dict[str, Any]:
    """What changed: ``entity``, ``name``, and the topic and partition that it belongs to."""
    kind, key = change.kind, change.key
    topic, partition = change.topic, None
    match kind:
        case EntityKind.TOPIC:
            name = str(topic)
        case EntityKind.PARTITION:
            partition = key[1]
            name = f"{topic}-{partition}"
        case EntityKind.QUOTA:
            name = ", ".join(f"{each}={'<default>' if of is None else of}" for each, of in key)
        case EntityKind.SCRAM:
            name = " ".join(key)
        case EntityKind.CONFIG:
            name = key
            topic = key.removeprefix(_TOPIC_CONFIG) if key.startswith(_TOPIC_CONFIG) else None
        case EntityKind.QUORUM_LEADER | EntityKind.NEXT_PRODUCER_ID:
            name = kind.value
        case _:
            name = str(key)
    return {"entity": kind.value, "name": name, "topic": topic, "partition": partition}


def changed_fields(change: MetadataChange) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The old and new fields: all of them if one is None, otherwise those that differ."""
    old, new = entity_row(change.kind, change.old), entity_row(change.kind, change.new)
    if old is None or new is None:
        return old, new
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if change.kind is EntityKind.CONFIG:
        # Of two passwords nothing is known but that they differ.
        names += [name for name in new if name not in names and _differs(change, name)]
    old = {name: old[name] for name in names if name in old}
    new = {name: new[name] for name in names if name in new}
    if change.kind is EntityKind.SCRAM and not change.old.has_same_keys(change.new):
        new["salt_and_keys"] = "changed"
    return old, new


def _differs(change: MetadataChange, name: str) -> bool:
    different: bool = change.old.get(name) != change.new.get(name)
    return different


Doubtful = Collection[tuple[EntityKind, Any]]
"""Kinds and keys of entities that records changed which are not known to be committed."""


def image_row(image: MetadataImage, doubtful: Doubtful = ()) -> dict[str, Any]:
    """The whole image, in the order of names and ids.

    Args:
        doubtful: what gets null for ``is_committed``; everything else gets true.
    """

    def rows(kind: EntityKind, keys: Iterable[Any]) -> list[dict[str, Any]]:
        entities = image.of(kind)
        return [entities[key].row() | _committed(kind, key, doubtful) for key in keys]

    def sorted_rows(kind: EntityKind) -> list[dict[str, Any]]:
        return rows(kind, sorted(image.of(kind)))

    acls = image.of(EntityKind.ACL)
    features = image.of(EntityKind.FEATURE)
    configs = image.of(EntityKind.CONFIG)
    return {
        "next_offset": image.end.offset,
        "epoch": image.end.epoch,
        "timestamp_ms": image.timestamp_ms,
        "leader": image.of(EntityKind.QUORUM_LEADER).get(""),
        "kraft_version": image.kraft_version,
        "next_producer_id": image.of(EntityKind.NEXT_PRODUCER_ID).get(""),
        "topics": topic_rows(image, doubtful),
        "configs": {key: config_row(configs[key]) for key in sorted(configs)},
        "features": {name: features[name] for name in sorted(features)},
        "acls": rows(EntityKind.ACL, sorted(acls, key=lambda key: (acls[key].principal, key))),
        "scram": sorted_rows(EntityKind.SCRAM),
        "quotas": quota_rows(image, doubtful),
        "delegation_tokens": sorted_rows(EntityKind.TOKEN),
        "brokers": sorted_rows(EntityKind.BROKER),
        "controllers": sorted_rows(EntityKind.CONTROLLER),
        "voters": sorted_rows(EntityKind.VOTER),
    }


def _committed(kind: EntityKind, key: Any, doubtful: Doubtful) -> dict[str, bool | None]:
    return {"is_committed": None if (kind, key) in doubtful else True}


def topic_rows(image: MetadataImage, doubtful: Doubtful) -> list[dict[str, Any]]:
    """The topics by name, each with its partitions."""
    partitions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    registrations = image.of(EntityKind.PARTITION)
    for key in sorted(registrations):
        topic_id, number = key
        row = {"partition": number, **registrations[key].row()}
        partitions[topic_id].append(row | _committed(EntityKind.PARTITION, key, doubtful))
    topics = sorted(image.of(EntityKind.TOPIC).values(), key=lambda each: each.name)
    return [
        {
            "name": each.name,
            "id": each.topic_id,
            "partitions": partitions.get(each.topic_id, []),
            **_committed(EntityKind.TOPIC, each.topic_id, doubtful),
        }
        for each in topics
    ]


def quota_rows(image: MetadataImage, doubtful: Doubtful) -> list[dict[str, Any]]:
    """The client quotas: of users, then of their clients, defaults first."""
    quotas = image.of(EntityKind.QUOTA)

    def place(entity: tuple[tuple[str, str | None], ...]) -> tuple[str, ...]:
        names = dict(entity)
        return tuple(names.get(each) or "" for each in ("user", "client-id", "ip"))

    return [
        {
            "entity": dict(entity),
            "quotas": entity_row(EntityKind.QUOTA, quotas[entity]),
            **_committed(EntityKind.QUOTA, entity, doubtful),
        }
        for entity in sorted(quotas, key=place)
    ]
