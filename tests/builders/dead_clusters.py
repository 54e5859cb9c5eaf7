"""Collections of a cluster whose controllers are lost."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from kdump.formats.checkpoints import EpochEntry
from kdump.formats.dynamic_voter import DynamicVoter
from kdump.formats.names import PartitionState
from kdump.repair.cluster.cluster_rules import PlanRequest, plan_cluster
from kdump.state.metadata.cluster_plan import ClusterPlan, PlannedTopicPartition
from kdump.state.metadata.disk_collection import (
    ClaimedPartition,
    CollectedDirectory,
    CollectedLoad,
    CollectedMetadata,
    CollectedPartition,
    CollectedRecord,
    DiskCollection,
    RemovedTopic,
    TopicClaim,
    encode_collection,
)

CLUSTER: Final = "a-cluster"
CONTROLLER: Final = DynamicVoter(1000, "localhost", 9093)
CREATED_MS: Final = 1795292332040


def an_id(name: str) -> str:
    """A UUID as Kafka writes it, the same for the same name."""
    digest = hashlib.sha256(name.encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def replica(
    topic: str,
    number: int = 0,
    *,
    end: int | None = 100,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
    batch_epoch: int | None = None,
    topic_id: str | None = "",
    state: PartitionState = PartitionState.LIVE,
    producer_id: int | None = None,
    start: int = 0,
    missing: Sequence[range] = (),
) -> CollectedPartition:
    """A partition's directory; its topic has the id of its name."""
    entries = tuple(EpochEntry(*each) for each in epochs)
    return CollectedPartition(
        directory=f"{topic}-{number}{state.value}",
        topic=topic,
        partition=number,
        state=state,
        topic_id=an_id(topic) if topic_id == "" else topic_id,
        leader_epochs=entries,
        highest_epoch=max(
            (each for each in (batch_epoch, *(each.epoch for each in entries)) if each is not None),
            default=None,
        ),
        log_start_offset=None if end is None else start,
        log_end_offset=end,
        loaded=_loaded(start, end, entries),
        last_stable_offset=end,
        high_watermark=end,
        highest_producer_id=producer_id,
        size_bytes=1000,
        missing_offsets=tuple(missing),
    )


def _loaded(start: int, end: int | None, entries: Sequence[EpochEntry]) -> CollectedLoad | None:
    if end is None:
        return None
    return CollectedLoad(start, end, tuple(each for each in entries if each.start_offset < end))


def disk(node_id: int, *partitions: CollectedPartition, **fields: Any) -> CollectedDirectory:
    """A log directory of a broker that was stopped cleanly."""
    path = fields.pop("path", f"/data/{node_id}")
    return CollectedDirectory(
        path=path,
        cluster_id=fields.pop("cluster_id", CLUSTER),
        node_id=node_id,
        directory_id=fields.pop("directory_id", an_id(f"{node_id} {path}")),
        is_clean_shutdown=fields.pop("is_clean_shutdown", True),
        broker_epoch=fields.pop("broker_epoch", 10),
        partitions=partitions,
        **fields,
    )


def record(record_type: str, version: int = 0, **data: Any) -> CollectedRecord:
    """A record of the metadata."""
    return CollectedRecord(record_type, version, data)


def topic_records(
    name: str,
    partitions: Iterable[Sequence[int]] = ((1, 2),),
    *,
    topic_id: str | None = None,
    leader_epoch: int = 0,
    **fields: Any,
) -> list[CollectedRecord]:
    """A topic and its partitions, given as their replicas; the first of each leads."""
    topic_id = topic_id or an_id(name)
    records = [record("TOPIC_RECORD", name=name, topicId=topic_id)]
    for number, replicas in enumerate(partitions):
        values = {
            "partitionId": number,
            "topicId": topic_id,
            "replicas": list(replicas),
            "isr": list(replicas),
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": replicas[0],
            "leaderEpoch": leader_epoch,
            "partitionEpoch": 0,
            "directories": [an_id(f"{node} /data/{node}") for node in replicas],
        }
        records.append(CollectedRecord("PARTITION_RECORD", 1, values | fields))
    return records


def config(topic: str, name: str, value: str) -> CollectedRecord:
    """A property of a topic."""
    return record("CONFIG_RECORD", resourceType=2, resourceName=topic, name=name, value=value)


def acl(name: str) -> CollectedRecord:
    """An ACL with the id of its name."""
    return record(
        "ACCESS_CONTROL_ENTRY_RECORD",
        id=an_id(name),
        resourceType=2,
        resourceName=name,
        patternType=3,
        principal="User:alice",
        host="*",
        operation=3,
        permissionType=3,
    )


def broker(node_id: int, epoch: int = 5) -> CollectedRecord:
    """A registered broker."""
    return record(
        "REGISTER_BROKER_RECORD",
        3,
        brokerId=node_id,
        isMigratingZkBroker=False,
        incarnationId=an_id(f"incarnation {node_id}"),
        brokerEpoch=epoch,
        endPoints=[],
        features=[],
        rack=None,
        fenced=False,
        inControlledShutdown=True,
        logDirs=[an_id(f"{node_id} /data/{node_id}")],
    )


LEVELS: Final = (record("FEATURE_LEVEL_RECORD", name="metadata.version", featureLevel=25),)


def copy(*records: CollectedRecord, end: int = 500, epoch: int = 3, **fields: Any) -> Any:
    """A copy of the cluster's metadata."""
    values: dict[str, Any] = {
        "epoch": epoch,
        "end_offset": end,
        "timestamp_ms": CREATED_MS,
        "committed_end_offset": None,
        "highest_epoch": epoch,
        "highest_offset": end,
        "kraft_version": 1,
        "voters": (),
        "removed_topics": (),
        "records": (*LEVELS, *records),
    }
    return CollectedMetadata(**(values | fields))


def removed(topic: str, topic_id: str | None = None, *, committed: bool | None = None) -> Any:
    """A topic whose deletion is in the log of a copy."""
    return RemovedTopic(topic, topic_id or an_id(topic), 490, 3, CREATED_MS, committed)


def claim(topic: str, *partitions: ClaimedPartition, source: str = "__consumer_offsets") -> Any:
    """What an internal topic says of another topic."""
    return TopicClaim(source, topic, None, partitions)


def collected(*directories: CollectedDirectory, created_ms: int = CREATED_MS) -> DiskCollection:
    """A collection of one host."""
    return DiskCollection("0.1.0", created_ms, directories)


def write_collection(path: Path, *directories: CollectedDirectory) -> Path:
    """Write the collection of a host."""
    path.write_bytes(b"".join(encode_collection(collected(*directories))))
    return path


def plan_of(
    *directories: CollectedDirectory,
    settings: Sequence[tuple[str, str]] = (),
    controllers: Sequence[DynamicVoter] = (CONTROLLER,),
) -> ClusterPlan:
    """The plan for some log directories, each collected on a host of its own."""
    hosts = [collected(each) for each in directories]
    return plan_cluster(PlanRequest(hosts, controllers, settings))


def partition_of(plan: ClusterPlan, topic: str, number: int = 0) -> PlannedTopicPartition:
    """A partition of a plan."""
    (found,) = (each for each in plan.topics if each.name == topic)
    return found.partitions[number]


def codes(plan: ClusterPlan) -> set[str]:
    """The codes of a plan's notices."""
    return {each.code for each in plan.notices}


def refusing(plan: ClusterPlan) -> list[tuple[str, str | None]]:
    """Code and topic of what refuses a plan without ``--accept-loss``."""
    return [(each.code, each.topic) for each in plan.notices if each.needs_acceptance]
