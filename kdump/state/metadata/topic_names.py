"""The names of topics by their ids, also of topics that are deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdump.log.partition import Partition
from kdump.state.metadata.cluster import ClusterImage, ClusterTopic, cluster_partition
from kdump.state.metadata.cluster_plan import ClusterPlan
from kdump.state.metadata.metadata_image import LOG_BEGIN, LogEnd, MetadataBatch
from kdump.state.metadata.metadata_log import MetadataDamage, MetadataReading

_TOPIC: Final = "TOPIC_RECORD"


def read_topic_names(partition: Partition) -> dict[str, str]:
    """Read the names of all topics that a copy of the metadata has ever had, by id.

    Everything that can be read counts: its snapshots, and its log up to the first damage.

    Raises:
        OSError: a file cannot be read.
    """
    reading = MetadataReading((_TOPIC,))
    found: dict[str, str] = {}
    for snapshot in partition.metadata_snapshots:
        _collect(reading.snapshot(partition, snapshot), found)
    start = partition.segments[0].base_offset if partition.segments else 0
    _collect(reading.log(partition, LogEnd(0, start) if start else LOG_BEGIN), found)
    return found


def _collect(batches: Iterable[MetadataBatch], into: dict[str, str]) -> None:
    try:
        for batch in batches:
            for record in batch.records:
                if record.name == _TOPIC:
                    into[str(record.fields["topicId"])] = str(record.fields["name"])
    except MetadataDamage:
        return


def topics_of_plan(plan: ClusterPlan) -> ClusterImage:
    """The metadata about topics that brokers have once a plan is applied."""
    return ClusterImage(
        topics={
            topic.name: ClusterTopic(
                topic.name,
                topic.topic_id,
                {each.name: each.value for each in topic.configs},
                {each.partition: cluster_partition(each.registration) for each in topic.partitions},
            )
            for topic in plan.topics
        },
        broker_configs={},
        log_dirs={
            int(each.data.get("brokerId", -1)): tuple(each.data.get("logDirs") or ())
            for each in plan.brokers
        },
        end=LogEnd(plan.snapshot_epoch, plan.snapshot_offset),
    )
