"""``kdump metadata``: the metadata of a real cluster, its history, and what differs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from kdump.formats.names import TopicPartition
from kdump.log.partition import read_partition
from kdump.state.metadata_log import MetadataReading
from kdump.storage.local_disk import local

NODES: Final = ("b1-d1", "b2-d1", "b3-d1", "c1001", "c1002", "c1003")
OF_IMAGE: Final = (
    *("next_offset", "epoch", "kraft_version", "next_producer_id", "configs", "features"),
)
LISTS: Final = ("acls", "scram", "quotas", "brokers", "voters")


@pytest.fixture(scope="session")
def cluster(fixtures: Path) -> Path:
    """Give the disks of a cluster of three brokers and three controllers."""
    return fixtures / "states" / "clean"


@pytest.fixture(scope="session")
def images(cluster: Path) -> dict[str, Any]:
    """Give Kafka's own image of every node's copy."""
    found: dict[str, Any] = json.loads((cluster / "images.json").read_text())
    return found


def run(cluster: Path, *words: str) -> Outcome:
    return run_kdump(["metadata", *words], cluster)


def rows(cluster: Path, *words: str) -> list[dict[str, Any]]:
    return objects(run(cluster, *words, "--output", "jsonl").stdout)


def of_image(row: dict[str, Any], image: dict[str, Any]) -> dict[str, Any]:
    """The fields of a row that Kafka's image has."""
    return {name: row[name] for name in image}


@pytest.mark.parametrize("node", NODES)
def test_the_metadata_of_every_copy_is_the_image_that_kafka_has(
    node: str, cluster: Path, images: dict[str, Any]
) -> None:
    (found,) = rows(cluster, "show", node)
    expected = images[node]

    assert {name: found[name] for name in OF_IMAGE} == {name: expected[name] for name in OF_IMAGE}
    for name in LISTS:
        assert [of_image(row, expected[name][0]) for row in found[name]] == expected[name]
    (sample, *_) = expected["topics"][0]["partitions"]
    assert [
        {
            "name": topic["name"],
            "id": topic["id"],
            "partitions": [of_image(row, sample) for row in topic["partitions"]],
        }
        for topic in found["topics"]
    ] == expected["topics"]


def test_json_is_one_object_between_header_and_end(cluster: Path) -> None:
    answer = json.loads(run(cluster, "show", "c1001", "--output", "json").stdout)
    assert [each["type"] for each in answer] == ["header", "metadata", "end"]


def test_the_most_advanced_copy_is_shown_and_what_the_others_lack(cluster: Path) -> None:
    (found,) = rows(cluster, "show", *NODES)

    assert (found["node_id"], found["next_offset"]) == (1002, 1883)
    others = {each["node_id"]: each for each in found["other_copies"]}
    assert {node: (each["verdict"], each["end_offset"]) for node, each in others.items()} == {
        1003: ("same", 1883),
        1001: ("prefix", 1882),
        3: ("prefix", 1882),
        2: ("prefix", 1882),
        1: ("prefix", 1533),
    }


def test_what_a_majority_of_the_voters_has_is_committed(cluster: Path) -> None:
    (found,) = rows(cluster, "show", "c1002", "c1003")
    assert (found["committed_end_offset"], found["uncommitted"]) == (1883, [])


def test_of_a_single_copy_only_what_a_snapshot_covers_is_known_to_be_committed(
    cluster: Path,
) -> None:
    (found,) = rows(cluster, "show", "c1002")

    assert found["committed_end_offset"] == 1532
    partitions = {
        (topic["name"], each["partition"]): each["is_committed"]
        for topic in found["topics"]
        for each in topic["partitions"]
    }
    changed = {
        (each["topic"], each["partition"])
        for each in found["uncommitted"]
        if each["entity"] == "partition"
    }
    assert {key for key, is_committed in partitions.items() if is_committed is None} == changed
    assert ("cache", 2) in changed
    assert not {broker["is_committed"] for broker in found["brokers"]} - {None}
    assert {acl["is_committed"] for acl in found["acls"]} == {True}


def scram_secrets(node: Path) -> list[str]:
    """Salts and keys in the newest snapshot of a copy, in every form that output could have."""
    partition = read_partition(
        local(node / "__cluster_metadata-0"), TopicPartition("__cluster_metadata", 0)
    )
    batches = MetadataReading().snapshot(partition, partition.metadata_snapshots[-1])
    secrets = [
        record.fields[name]
        for batch in batches
        for record in batch.records
        if record.name == "USER_SCRAM_CREDENTIAL_RECORD"
        for name in ("salt", "storedKey", "serverKey")
    ]
    return [
        text
        for secret in secrets
        for text in (secret.hex(), base64.b64encode(secret).decode(), repr(secret))
    ]


@pytest.mark.parametrize("output", ["text", "json", "csv"])
def test_salts_and_keys_of_scram_users_are_nowhere_in_the_output(
    output: str, cluster: Path
) -> None:
    secrets = scram_secrets(cluster / "c1002")
    assert len(secrets) == 2 * 3 * 3
    for words in (("show", "c1002"), ("history", "c1002"), ("diff", "c1002", "--from", "0")):
        said = run(cluster, *words, "--output", output).stdout.decode()
        assert "SCRAM-SHA-256" in said
        assert not [secret for secret in secrets if secret in said]
