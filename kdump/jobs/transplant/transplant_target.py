"""What the copy of the metadata in a log directory says of a partition that comes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from kdump.errors import KdumpError, UsageProblem
from kdump.formats.directory_ids import is_reserved
from kdump.formats.names import TopicPartition
from kdump.formats.uuids import format_uuid, parse_uuid
from kdump.log.directory import LogDirectory
from kdump.phases import phase
from kdump.state.metadata.config_keys import REMOTE_STORAGE_ENABLE, is_true
from kdump.state.metadata.metadata_entities import PartitionRegistration
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage
from kdump.state.metadata.metadata_replay import END, CopyReplay, OnProblem

_TOPIC_RECORDS: Final = (
    *("TOPIC_RECORD", "REMOVE_TOPIC_RECORD", "CONFIG_RECORD"),
    *("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"),
    *("BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"),
)


class TargetTopic(Struct, frozen=True):
    """What the target's copy of the metadata says of the partition.

    Attributes:
        topic_id: of the topic; None if the metadata does not have the topic.
        registration: of the partition; None if it does not have the partition.
        is_remote: whether the topic has remote storage.
    """

    topic_id: str | None = None
    registration: PartitionRegistration | None = None
    is_remote: bool = False


def topic_on(
    directory: LogDirectory, key: TopicPartition, on_problem: OnProblem
) -> TargetTopic | None:
    """What the copy of the metadata in a log directory says; None if there is none."""
    for partition in directory.partitions:
        if partition.is_cluster_metadata:
            with phase(f"reading {partition.path}"):
                image = CopyReplay(partition, on_problem, _TOPIC_RECORDS).image_at(END)
            return _topic_in(image, key)
    return None


def refuse_damage(what: str) -> None:
    """Refuse a damaged copy of the target's metadata.

    Raises:
        KdumpError: always.
    """
    raise KdumpError(
        f"{what}; what the target knows of the topic is uncertain; nothing has been changed"
    )


def _topic_in(image: MetadataImage, key: TopicPartition) -> TargetTopic:
    for topic_id, topic in image.of(EntityKind.TOPIC).items():
        if topic.name == key.topic:
            configs: Mapping[str, str] = image.of(EntityKind.CONFIG).get(f"topic:{key.topic}", {})
            return TargetTopic(
                topic_id,
                image.of(EntityKind.PARTITION).get((topic_id, key.partition)),
                is_true(configs.get(REMOTE_STORAGE_ENABLE, "")),
            )
    return TargetTopic()


def require_replica_here(
    target: LogDirectory, key: TopicPartition, topic: TargetTopic | None
) -> None:
    """Refuse a partition that the target's broker would not keep, or has on another disk."""
    if topic is None or topic.topic_id is None:
        return
    if topic.registration is None:
        raise UsageProblem(f"{key}: the topic has no such partition in the target's metadata")
    properties, replicas = target.meta_properties, topic.registration.replicas
    if properties is None or properties.node_id is None:
        return
    if properties.node_id not in replicas:
        where = ", ".join(map(str, replicas))
        raise UsageProblem(
            f"{key}: its replicas are on {where}, not on node {properties.node_id}, which would"
            " rename the directory to -stray: transplant into one of those"
        )
    assigned = parse_uuid(topic.registration.directories[replicas.index(properties.node_id)])
    if assigned is None or is_reserved(assigned) or properties.directory_id in (None, assigned):
        return
    raise UsageProblem(
        f"{key}: node {properties.node_id} has it in the log directory with the id"
        f" {format_uuid(assigned)}, and does not start with two directories of one partition:"
        " transplant into that one"
    )
