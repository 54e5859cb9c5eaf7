"""The image of a metadata log at any offset is the one that Kafka has."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from builders.java_server import JavaServer
from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState, TopicPartition
from kdump.log.partition import Partition, read_partition
from kdump.state.metadata.metadata_image import MetadataImage
from kdump.state.metadata.metadata_replay import CopyReplay, MetadataPoint
from kdump.state.metadata.metadata_rows import image_row
from kdump.state.metadata.rewound_image import rewound_image
from kdump.storage.local_disk import local

pytestmark = pytest.mark.differential

NODES: Final = ("b1-d1", "b2-d1", "b3-d1", "c1001", "c1002", "c1003")
LOG: Final = f"{0:020d}.log"
MS_EACH: Final = 1000
OF_THE_MOMENT: Final = ("configs", "acls", "scram", "quotas", "delegation_tokens")


def kafka_image(metadata_server: JavaServer, log: Path, last_offset: int) -> dict[str, Any]:
    """Kafka's image after the record at an offset."""
    answer = metadata_server.ask_words(["image", str(log), str(last_offset)])
    image: dict[str, Any] = json.loads(answer["image"])
    return image


def metadata_partition(path: Path) -> Partition:
    key = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
    return read_partition(local(path), key, PartitionState.LIVE)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def same_fields(ours: Any, theirs: Any) -> Any:
    """Our value with only the fields that Kafka's has, lists of rows without order."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {name: same_fields(ours[name], theirs[name]) for name in theirs if name in ours}
    if isinstance(theirs, list) and theirs and isinstance(theirs[0], dict):
        return in_order([{name: row[name] for name in theirs[0]} for row in ours])
    return ours


def require_same(image: MetadataImage, expected: dict[str, Any]) -> None:
    found = image_row(image)
    found["next_producer_id"] = (
        -1 if found["next_producer_id"] is None else found["next_producer_id"]
    )
    # With kraft.version 0, voters are not in Kafka's records; kdump names those of an election.
    if not image.kraft_version:
        found["voters"] = expected["voters"]
    topics = {topic["id"]: topic for topic in found.pop("topics")}
    theirs = {topic["id"]: topic for topic in expected.pop("topics")}
    assert topics.keys() == theirs.keys()
    for topic_id, topic in theirs.items():
        assert topics[topic_id]["name"] == topic["name"]
        assert same_fields(topics[topic_id]["partitions"], topic["partitions"]) == in_order(
            topic["partitions"]
        )
    for name, value in expected.items():
        wanted = in_order(value) if value and isinstance(value, list) else value
        assert same_fields(found[name], value) == wanted, name


@pytest.mark.parametrize("node", NODES)
def test_at_random_offsets_of_a_log_that_real_controllers_wrote(
    node: str, fixtures: Path, metadata_server: JavaServer
) -> None:
    path = fixtures / "states" / "clean" / node / f"{CLUSTER_METADATA_TOPIC}-0"
    partition = metadata_partition(path)
    end = read_image(partition, MetadataPoint()).end.offset
    for offset in sorted(random.Random(node).sample(range(end), 8)):
        image = read_image(partition, MetadataPoint(offset))
        assert image.end.offset == offset + 1
        require_same(image, kafka_image(metadata_server, path / LOG, offset))


def random_log(folder: Path, seed: int, server: JavaServer) -> tuple[Path, Partition, int]:
    """Let Kafka write a log; return it, its partition, and its end offset."""
    path = folder / f"{CLUSTER_METADATA_TOPIC}-0"
    path.mkdir()
    end = server.ask_words(["write", str(path / LOG), str(seed), "400"])["end"]
    return path / LOG, metadata_partition(path), int(end)


@pytest.mark.parametrize("seed", range(8))
def test_at_random_offsets_of_a_log_of_random_records(
    seed: int, tmp_path: Path, metadata_server: JavaServer
) -> None:
    log, partition, end = random_log(tmp_path, seed, metadata_server)
    for offset in [*sorted(random.Random(seed).sample(range(end - 1), 10)), end - 1]:
        image = read_image(partition, MetadataPoint(offset))
        require_same(image, kafka_image(metadata_server, log, offset))


def read_image(partition: Partition, point: MetadataPoint) -> MetadataImage:
    on_problem: Callable[[str], None] = lambda _problem: None  # noqa: E731 - faults are wanted
    return CopyReplay(partition, on_problem).image_at(point)


@pytest.mark.parametrize("seed", range(4))
def test_what_goes_back_to_a_moment_is_as_kafka_has_it_then_and_the_rest_as_at_the_end(
    seed: int, tmp_path: Path, metadata_server: JavaServer
) -> None:
    """Moments between records, and in the middle of metadata transactions."""
    log, partition, end = random_log(tmp_path, seed, metadata_server)
    now = read_image(partition, MetadataPoint())
    last = kafka_image(metadata_server, log, end - 1)
    for offset in sorted(random.Random(seed).sample(range(end - 1), 10)):
        time_ms = time_of(offset) + random.Random(offset).choice([0, MS_EACH - 1])
        then = kafka_image(metadata_server, log, offset)
        image = rewound_image(now, read_image(partition, MetadataPoint(time_ms=time_ms)))
        require_same(image, rewound_answer(last, then))


def time_of(offset: int) -> int:
    """When the batch of a record was appended (``RandomMetadataLog.timestamp``)."""
    return 1_700_000_000_000 + MS_EACH * offset


def rewound_answer(last: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Kafka's two answers put together: topics that are still there have their replicas of now."""
    rows = {topic["id"]: topic for topic in last["topics"]}
    topics = [rows.get(topic["id"], topic) for topic in then["topics"]]
    return {**last, **{name: then[name] for name in OF_THE_MOMENT}, "topics": topics}
