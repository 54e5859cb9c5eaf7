"""A plan is read back after people edited it; what contradicts itself is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from builders.cluster_documents import PLANS, damaged
from builders.json_schemas import problem_of_document
from kdump.formats.json_document import DocumentError
from kdump.state.metadata.cluster_plan import (
    ClusterPlan,
    PlannedConfig,
    PlannedController,
    PlannedFeature,
    PlannedTopic,
    PlannedTopicPartition,
    Source,
    SourceKind,
)
from kdump.state.metadata.cluster_plan_json import decode_plan, encode_plan

FROM_DISK = Source(SourceKind.DISK, "node 1 /data/d1")
IDS = ("Xia8jFxURT6Z0Ngpe1QksQ", "Sq8Vn5_ZSZGDsyjIgdp7Tg")


def topic(name: str, topic_id: str, count: int = 2) -> PlannedTopic:
    partitions = tuple(
        PlannedTopicPartition(
            partition=number,
            replicas=(1, 2),
            directories=IDS,
            isr=(1,),
            elr=(),
            last_known_elr=(),
            removing_replicas=(),
            adding_replicas=(),
            leader=1,
            leader_recovery_state="RECOVERED",
            leader_epoch=7,
            partition_epoch=9,
            sources={"partition": FROM_DISK},
        )
        for number in range(count)
    )
    configs = (PlannedConfig("cleanup.policy", "compact", FROM_DISK),)
    return PlannedTopic(name, topic_id, FROM_DISK, configs, partitions)


PLAN = ClusterPlan(
    kdump="0.1.0",
    created_ms=1795292332040,
    cluster_id="c",
    snapshot_offset=100,
    snapshot_epoch=7,
    kraft_version=1,
    controller_listener="CONTROLLER",
    controllers=(PlannedController(1001, "host", 9093, IDS[0]),),
    next_producer_id=1000,
    sources={"cluster_id": FROM_DISK},
    features=(PlannedFeature("metadata.version", 29, FROM_DISK),),
    topics=(topic("billing", IDS[0]), topic("orders", IDS[1])),
)


def text_of(plan: ClusterPlan) -> bytes:
    return b"".join(encode_plan(plan))


@given(PLANS)
def test_a_plan_is_read_back(plan: ClusterPlan) -> None:
    assert decode_plan(text_of(plan)) == plan


@given(PLANS)
def test_a_plan_is_what_the_schema_describes(plan: ClusterPlan) -> None:
    assert problem_of_document("metadata-plan", json.loads(text_of(plan))) is None


@given(damaged(PLANS.map(text_of).map(json.loads)))
def test_a_damaged_plan_is_refused_or_read(document: Any) -> None:
    try:
        plan = decode_plan(json.dumps(document).encode())
    except DocumentError:
        return
    assert decode_plan(text_of(plan)) == plan


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        *holders, last = path.split(".")
        found: Any = document
        for key in holders:
            found = found[int(key) if key.isdigit() else key]
        found[int(last) if last.isdigit() else last] = value

    return edit


def without_partition_0(document: dict[str, Any]) -> None:
    del document["topics"][0]["partitions"][0]


FIRST = "topics.0.partitions.0"


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (without_partition_0, "topics[0].partitions: partition 0 is missing"),
        (change("topics.0.partitions", []), "topics[0].partitions: partition 0 is missing"),
        (change("topics.1.name", "billing"), "topics[1]: billing is in the list twice"),
        (change("topics.1.topic_id", IDS[0]), "billing and orders have the same id"),
        (change(f"{FIRST}.leader", 2), "topics[0].partitions[0].leader: 2 is not in the ISR"),
        (change(f"{FIRST}.isr", [3]), "topics[0].partitions[0].isr: 3 is not a replica"),
        (change(f"{FIRST}.replicas", [1, 1]), "replicas: a node is in the list twice"),
        (change(f"{FIRST}.replicas", [1]), "partitions[0].directories: not one for each replica"),
        (change(f"{FIRST}.replicas", []), "topics[0].partitions[0].replicas: there is none"),
        (change("topics.0.source", "hearsay"), "topics[0].source: not one of copy, old-copy, disk"),
        (change("controllers.0.directory_id", None), "each controller needs a directory_id"),
        (change("controllers", []), "controllers: there is none"),
        (change("controllers.0.port", 0), "controllers[0].port: not a number from 1 to 65535"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(
    edit: Callable[[dict[str, Any]], None], what: str
) -> None:
    document = json.loads(text_of(PLAN))
    edit(document)
    with pytest.raises(DocumentError) as raised:
        decode_plan(json.dumps(document).encode())
    assert what in str(raised.value)


def test_the_records_of_a_plan_are_in_the_order_of_a_snapshot() -> None:
    assert [each.type for each in PLAN.records()] == [
        "FEATURE_LEVEL_RECORD",
        *("TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_RECORD") * 2,
        *("CONFIG_RECORD",) * 2,
        "PRODUCER_IDS_RECORD",
    ]
