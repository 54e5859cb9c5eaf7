"""A plan that writes the metadata of an image again, as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from kdump.formats.java.jackson import node_text
from kdump.state.metadata.cluster_plan import (
    ClusterPlan,
    Notice,
    PlannedConfig,
    PlannedController,
    PlannedFeature,
    PlannedRecord,
    PlannedTopic,
    PlannedTopicPartition,
    ResourceConfig,
    Source,
    SourceKind,
)
from kdump.state.metadata.cluster_plan_json import encode_plan
from kdump.state.metadata.image_records import ImageRecord, records_of
from kdump.state.metadata.metadata_image import (
    EntityKind,
    MetadataImage,
    MetadataRecord,
    MetadataReplay,
    resource_of,
)

COPY: Final = Source(SourceKind.COPY, "the test")


def write_small_plan(path: Path, *notices: Notice) -> Path:
    """Write a plan of one topic for controller 1, and return its file."""
    records: dict[str, dict[str, Any]] = {
        "FEATURE_LEVEL_RECORD": {"name": "metadata.version", "featureLevel": 30},
        "TOPIC_RECORD": {"name": "orders", "topicId": "Xia8jFxURT6Z0Ngpe1QksQ"},
    }
    replay = MetadataReplay()
    for at, (name, fields) in enumerate(records.items()):
        replay.take(MetadataRecord(at, 0, 0, name, fields))
    controllers = [PlannedController(1, "h", 9093, None)]
    plan = plan_of(replay.image(), controllers, cluster_id="c", kraft_version=0)
    topics = tuple(replace(topic, partitions=_ONE_PARTITION) for topic in plan.topics)
    plan = replace(plan, topics=topics, notices=notices)
    path.write_bytes(b"".join(encode_plan(plan)))
    return path


_ONE_PARTITION: Final = (
    PlannedTopicPartition(
        partition=0,
        replicas=(1,),
        directories=("AAAAAAAAAAAAAAAAAAAAAA",),
        isr=(1,),
        elr=(),
        last_known_elr=(),
        removing_replicas=(),
        adding_replicas=(),
        leader=1,
        leader_recovery_state="RECOVERED",
        leader_epoch=7,
        partition_epoch=9,
        sources={"partition": COPY},
    ),
)


def plan_of(
    image: MetadataImage,
    controllers: Iterable[PlannedController],
    *,
    cluster_id: str,
    kraft_version: int = 1,
    offset: int = 5_000_000,
    epoch: int = 5_000,
) -> ClusterPlan:
    """Make the plan; its brokers are fenced."""
    records = list(records_of(image, on_loss=lambda _loss: None))
    features = image.of(EntityKind.FEATURE)
    return ClusterPlan(
        kdump="0",
        created_ms=1_790_000_000_000,
        cluster_id=cluster_id,
        snapshot_offset=offset,
        snapshot_epoch=epoch,
        kraft_version=kraft_version,
        controller_listener="CONTROLLER",
        controllers=tuple(sorted(controllers, key=lambda each: each.node_id)),
        next_producer_id=image.of(EntityKind.NEXT_PRODUCER_ID).get("", 0),
        sources={"cluster_id": COPY},
        features=tuple(
            PlannedFeature(name, features[name], COPY)
            for name in sorted(features)
            if name != "kraft.version"
        ),
        topics=tuple(_topics(image)),
        configs=tuple(_configs(image)),
        brokers=_kept(records, "REGISTER_BROKER_RECORD", fenced=True),
        acls=_kept(records, "ACCESS_CONTROL_ENTRY_RECORD"),
        scram=_kept(records, "USER_SCRAM_CREDENTIAL_RECORD"),
        quotas=_kept(records, "CLIENT_QUOTA_RECORD"),
        delegation_tokens=_kept(records, "DELEGATION_TOKEN_RECORD"),
    )


def _kept(records: Iterable[ImageRecord], name: str, **changes: Any) -> tuple[PlannedRecord, ...]:
    return tuple(
        PlannedRecord(
            name, each.version, json.loads(node_text(each.node()))["data"] | changes, COPY
        )
        for each in records
        if each.name == name
    )


def _topics(image: MetadataImage) -> Iterable[PlannedTopic]:
    partitions = image.of(EntityKind.PARTITION)
    configs = image.of(EntityKind.CONFIG)
    for topic in sorted(image.of(EntityKind.TOPIC).values(), key=lambda each: each.name):
        own = configs.get(f"topic:{topic.name}", {})
        yield PlannedTopic(
            topic.name,
            topic.topic_id,
            COPY,
            tuple(PlannedConfig(name, own[name], COPY) for name in sorted(own)),
            tuple(
                PlannedTopicPartition(
                    partition=number,
                    replicas=each.replicas,
                    directories=each.directories,
                    isr=each.isr,
                    elr=each.elr,
                    last_known_elr=each.last_known_elr,
                    removing_replicas=each.removing_replicas,
                    adding_replicas=each.adding_replicas,
                    leader=each.leader,
                    leader_recovery_state=each.leader_recovery_state,
                    leader_epoch=each.leader_epoch,
                    partition_epoch=each.partition_epoch,
                    sources={"partition": COPY},
                )
                for (topic_id, number), each in sorted(partitions.items())
                if topic_id == topic.topic_id
            ),
        )


def _configs(image: MetadataImage) -> Iterable[ResourceConfig]:
    configs = image.of(EntityKind.CONFIG)
    for key in sorted(configs):
        type_id, resource = resource_of(key)
        if not key.startswith("topic:"):
            for name, value in sorted(configs[key].items()):
                yield ResourceConfig(type_id, resource, name, value, COPY)
