"""The records of an image are those that Kafka writes into a snapshot of it."""

from __future__ import annotations

import json
import random
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

from builders.java_server import JavaServer
from differential.test_metadata_image import LOG, NODES, metadata_partition, read_image
from kdump.formats.feature_levels import LOWEST_METADATA_VERSION
from kdump.formats.java.jackson import node_text
from kdump.formats.names import CLUSTER_METADATA_TOPIC
from kdump.state.metadata.image_records import (
    ImageLoss,
    record_from_json,
    records_of,
)
from kdump.state.metadata.metadata_image import MetadataImage, MetadataRecord, MetadataReplay
from kdump.state.metadata.metadata_replay import MetadataPoint

pytestmark = pytest.mark.differential

HIGHEST_OF_4_3_1: Final = 31
LOSSES: Final = {
    "the isMigratingZkBroker state": ImageLoss.MIGRATING_BROKERS,
    "the online log directories": ImageLoss.BROKER_DIRECTORIES,
    "the cordoned log directories": ImageLoss.CORDONED_DIRECTORIES,
    "controller registration data": ImageLoss.CONTROLLERS,
    "the directory assignment state": ImageLoss.REPLICA_DIRECTORIES,
    "ScramImage": ImageLoss.SCRAM,
    "DelegationTokenImage": ImageLoss.DELEGATION_TOKENS,
}
"""How Kafka's name of each loss begins."""


Records = list[dict[str, Any]]


def ordered(value: Any) -> Any:
    """A record with its lists of objects in one order: Kafka has them in hash maps."""
    if isinstance(value, dict):
        return {name: ordered(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return sorted(map(ordered, value), key=lambda each: json.dumps(each, sort_keys=True))
    return value


def groups(records: Records) -> list[tuple[str, list[Any]]]:
    """Runs of records of one kind; a topic and its partitions are one thing."""
    things: list[tuple[str, Any]] = []
    for record in map(ordered, records):
        if record["type"] == "PARTITION_RECORD":
            things[-1][1][1].append(json.dumps(record, sort_keys=True))
        else:
            things.append((record["type"], [json.dumps(record, sort_keys=True), []]))
    for _, thing in things:
        thing[1].sort()
    return [
        (kind, sorted(each for _, each in run)) for kind, run in groupby(things, lambda x: x[0])
    ]


def require_same(
    image: MetadataImage, level: int, metadata_server: JavaServer, log: Path, last_offset: int
) -> None:
    answer = metadata_server.ask_words(["records", str(log), str(last_offset), str(level)])
    theirs: Records = json.loads(answer["records"])
    lost = set[ImageLoss]()
    ours: Records = [
        json.loads(node_text(record.node()))
        for record in records_of(image, level, on_loss=lost.add)
    ]
    assert ours[0] == theirs[0]
    assert groups(ours) == groups(theirs)
    expected = {
        loss
        for words in json.loads(answer["losses"])
        for start, loss in LOSSES.items()
        if words.startswith(start)
    }
    assert lost - {ImageLoss.ELIGIBLE_LEADER_REPLICAS} == expected
    if not lost:
        require_image(ours, image, level)


def require_image(records: Records, image: MetadataImage, level: int) -> None:
    """The records make the image again, apart from what control records say."""
    replay = MetadataReplay()
    for node in records:
        record = record_from_json(node)
        replay.take(MetadataRecord(0, 0, 0, record.name, record.fields))
    for kind, entities in image.entities.items():
        if kind.value in ("voter", "quorum_leader"):
            continue
        expected = dict(entities)
        if kind.value == "feature":
            expected.pop("kraft.version", None)
            expected["metadata.version"] = level
        assert replay.image().of(kind) == expected


@pytest.mark.parametrize("node", NODES)
def test_of_logs_that_real_nodes_wrote(
    node: str, fixtures: Path, metadata_server: JavaServer
) -> None:
    path = fixtures / "states" / "clean" / node / f"{CLUSTER_METADATA_TOPIC}-0"
    partition = metadata_partition(path)
    end = read_image(partition, MetadataPoint()).end.offset
    choice = random.Random(node)
    for offset in [end - 1, *choice.sample(range(end), 3)]:
        image = read_image(partition, MetadataPoint(offset))
        for level in (30, choice.randint(LOWEST_METADATA_VERSION, HIGHEST_OF_4_3_1)):
            require_same(image, level, metadata_server, path / LOG, offset)


@pytest.mark.parametrize("seed", range(100, 105))
def test_of_random_images_at_every_metadata_version(
    seed: int, tmp_path: Path, metadata_server: JavaServer
) -> None:
    path = tmp_path / f"{CLUSTER_METADATA_TOPIC}-0"
    path.mkdir()
    end = int(metadata_server.ask_words(["write", str(path / LOG), str(seed), "500"])["end"])
    image = read_image(metadata_partition(path), MetadataPoint(end - 1))
    for level in range(LOWEST_METADATA_VERSION, HIGHEST_OF_4_3_1 + 1):
        require_same(image, level, metadata_server, path / LOG, end - 1)
