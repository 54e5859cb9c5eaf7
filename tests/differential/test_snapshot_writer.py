"""Snapshots have the bytes that Kafka writes for the same records, and Kafka reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from builders.java_server import JavaServer
from differential.test_metadata_image import LOG, metadata_partition, read_image, require_same
from kdump.formats.names import CLUSTER_METADATA_TOPIC, MetadataSnapshotName
from kdump.formats.snapshot_writer import MAX_BATCH_BYTES, SnapshotHead, encode_snapshot
from kdump.state.metadata.image_records import ImageRecord, records_of
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage
from kdump.state.metadata.metadata_nodes import Listener, Voter
from kdump.state.metadata.metadata_replay import MetadataPoint

pytestmark = pytest.mark.differential

NOW: Final = 1_790_000_000_123
NAME: Final = MetadataSnapshotName(123_456_789_012, 77)
VOTERS: Final = (
    Voter(3001, "AAAAAAAAAAAAAAAAAAAABQ", (Listener("CONTROLLER", "h1", 9093),), (0, 1)),
    Voter(3002, "AAAAAAAAAAAAAAAAAAAABg", (Listener("CONTROLLER", "::1", 65535),), (0, 1)),
)
LEVEL: Final = ImageRecord(
    "FEATURE_LEVEL_RECORD", 0, {"name": "metadata.version", "featureLevel": 30}
)


def snapshot_as_kafka(
    folder: Path,
    records: Iterable[ImageRecord],
    metadata_server: JavaServer,
    voters: Iterable[Voter] = (),
) -> MetadataImage:
    """Write a snapshot, require that Kafka does the same, and return what kdump reads."""
    ours, theirs = (folder / each / f"{CLUSTER_METADATA_TOPIC}-0" for each in ("ours", "theirs"))
    for each in (ours, theirs):
        each.mkdir(parents=True)
    rows = [voter.record() for voter in voters]
    head = SnapshotHead(NAME.epoch, NOW - 5, NOW, kraft_version=1 if rows else 0, voters=rows)
    batches = list(encode_snapshot(head, (record.encode() for record in records)))
    assert max(map(len, batches)) <= MAX_BATCH_BYTES
    (ours / str(NAME)).write_bytes(b"".join(batches))
    words = ["snapshot", str(ours), str(NAME.end_offset), str(NAME.epoch), str(theirs), str(NOW)]
    described: dict[str, Any] = json.loads(metadata_server.ask_words(words)["image"])
    assert (theirs / str(NAME)).read_bytes() == b"".join(batches)
    image = read_image(metadata_partition(ours), MetadataPoint())
    require_same(image, described)
    assert image.end == (NAME.epoch, NAME.end_offset)
    assert image.timestamp_ms == NOW - 5
    return image


@pytest.mark.parametrize("voters", [(), VOTERS], ids=["static voters", "dynamic voters"])
def test_of_a_random_image(
    voters: tuple[Voter, ...], tmp_path: Path, metadata_server: JavaServer
) -> None:
    path = tmp_path / "log" / f"{CLUSTER_METADATA_TOPIC}-0"
    path.mkdir(parents=True)
    end = int(metadata_server.ask_words(["write", str(path / LOG), "7", "600"])["end"])
    image = read_image(metadata_partition(path), MetadataPoint(end - 1))
    records = records_of(image, 30, on_loss=lambda _loss: None)
    again = snapshot_as_kafka(tmp_path, records, metadata_server, voters)
    assert tuple(again.of(EntityKind.VOTER).values()) == voters
    assert again.kraft_version == bool(voters)
    for kind in (EntityKind.TOPIC, EntityKind.CONFIG, EntityKind.SCRAM, EntityKind.BROKER):
        assert again.of(kind) == image.of(kind)


@pytest.mark.slow
def test_of_110000_records_in_several_batches(tmp_path: Path, metadata_server: JavaServer) -> None:
    def config(number: int) -> ImageRecord:
        fields = {
            "resourceType": 2,
            "resourceName": f"topic-{number // 10}",
            "name": f"name-{number % 10}",
            "value": "v" * (number % 300),
        }
        return ImageRecord("CONFIG_RECORD", 0, fields)

    records = chain([LEVEL], map(config, range(110_000)))
    image = snapshot_as_kafka(tmp_path, records, metadata_server, VOTERS)
    assert sum(map(len, image.of(EntityKind.CONFIG).values())) == 110_000


def test_without_records(tmp_path: Path, metadata_server: JavaServer) -> None:
    assert not snapshot_as_kafka(tmp_path, [LEVEL], metadata_server).of(EntityKind.TOPIC)
