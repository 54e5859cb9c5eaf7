"""``kdump metadata``: the metadata of a real cluster, its history, and what differs."""

from __future__ import annotations

import base64
import json
import random
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.metadata_log import (
    BROKER_RESOURCE,
    config_record,
    partition_change_record,
    topic_record,
    write_metadata_log,
)
from kdump.formats.names import TopicPartition
from kdump.log.partition import Partition, read_partition
from kdump.state.metadata.metadata_image import changes_between
from kdump.state.metadata.metadata_log import MetadataReading
from kdump.state.metadata.metadata_replay import END, CopyReplay, MetadataPoint
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
    partition = of_directory(node / "__cluster_metadata-0")
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


# --- history and differences


def test_the_history_says_who_was_deleted_and_recreated(cluster: Path) -> None:
    events = rows(cluster, "history", "c1002", "--topic", "recreated", "--event", "deleted")
    events += rows(cluster, "history", "c1002", "--topic", "recreated", "--event", "recreated")

    found = [row for row in events if row["type"] == "event"]
    assert [
        (row["offset"], row["event"], row["new"] and row["new"]["partitions"]) for row in found
    ] == [
        (393, "deleted", None),
        (395, "recreated", 3),
    ]
    assert found[0]["old"]["id"] == found[1]["old"]["id"] != found[1]["new"]["id"]


def test_the_history_tells_clean_elections_from_unclean_ones(cluster: Path) -> None:
    events = rows(cluster, "history", "c1002", "--event", "elected")
    unclean = {row["topic"] for row in events if row.get("election") == "unclean"}
    clean = {row["topic"] for row in events if row.get("election") == "clean"}
    # Broker 3 was elected for these after broker 1, which had the last records, was stopped.
    assert unclean == {"div-a", "div-txn"}
    assert "orders" in clean


def test_reassignments_have_a_begin_and_an_end(cluster: Path) -> None:
    events = rows(cluster, "history", "c1002", "--topic", "moved", "--to", "1000")
    found = [
        (row["event"], row["name"]) for row in events if row.get("event", "").startswith("reassign")
    ]
    assert sorted(found) == [
        (event, f"moved-{number}") for event in ("reassigned", "reassigning") for number in range(4)
    ]


def test_what_differs_between_two_offsets_is_the_change_between_them(cluster: Path) -> None:
    outcome = run(cluster, "diff", "c1002", "--from", "392", "--to", "399", "--output", "jsonl")
    found = objects(outcome.stdout)
    assert outcome.exit_status == 1
    changed = {row["name"]: row["change"] for row in found if row["type"] == "difference"}
    assert changed == {
        "recreated": "recreated",
        "deleted-topic": "removed",
        "topic:recreated": "changed",
    }


@pytest.mark.parametrize(
    ("left", "right", "verdict", "status"),
    [
        ("c1002", "c1003", "same", 0),
        ("c1001", "c1002", "prefix", 1),
        ("c1002", "b1-d1", "prefix", 1),
    ],
)
def test_two_copies_are_the_same_or_one_lacks_the_end(
    left: str, right: str, verdict: str, status: int, cluster: Path
) -> None:
    outcome = run(cluster, "diff", left, right, "--output", "jsonl")
    assert (outcome.exit_status, objects(outcome.stdout)[-1]["verdict"]) == (status, verdict)


# --- damage and wrong arguments


@pytest.fixture
def damaged(cluster: Path, tmp_path: Path) -> Path:
    """Give a copy with a damaged batch of offsets 582 and more, between two snapshots."""
    shutil.copytree(cluster / "c1002", tmp_path / "c1002")
    log = tmp_path / "c1002" / "__cluster_metadata-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[50_000] ^= 1
    log.write_bytes(content)
    return tmp_path


def test_the_history_goes_on_after_damage_and_says_what_is_unknown(damaged: Path) -> None:
    outcome = run(damaged, "history", "c1002", "--output", "jsonl")
    found = objects(outcome.stdout)
    assert outcome.exit_status == 4
    assert b"bytes 44985 to 50591" in outcome.stderr
    assert found[-1]["unknown"] == [{"begin_offset": 582, "end_offset": 1532}]
    assert not [row for row in found[:-1] if 582 <= row["offset"] < 1532]
    assert max(row["offset"] for row in found[:-1]) > 1532


def test_an_offset_after_damage_is_unknown_and_the_end_is_known_by_a_snapshot(
    damaged: Path, images: dict[str, Any]
) -> None:
    outcome = run(damaged, "show", "c1002", "--at", "1000")
    assert (outcome.exit_status, outcome.stdout) == (4, b"")
    assert b"the metadata at offset 1000 is unknown" in outcome.stderr

    (found,) = rows(damaged, "show", "c1002")
    assert found["configs"] == images["c1002"]["configs"]


def test_a_log_cut_at_any_byte_has_the_metadata_of_its_complete_batches(
    cluster: Path, tmp_path: Path
) -> None:
    path = cluster / "c1002" / "__cluster_metadata-0"
    whole = CopyReplay(of_directory(path), pytest.fail)
    content = (path / f"{0:020d}.log").read_bytes()
    cut_path = tmp_path / "__cluster_metadata-0"
    cut_path.mkdir()
    for size in random.Random(1).sample(range(len(content)), 25):
        (cut_path / f"{0:020d}.log").write_bytes(content[:size])
        image = CopyReplay(of_directory(cut_path), lambda _problem: None).image_at(END)
        if image.end.offset:
            expected = whole.image_at(MetadataPoint(image.end.offset - 1))
            assert not list(changes_between(expected, image))


def of_directory(path: Path) -> Partition:
    return read_partition(local(path), TopicPartition("__cluster_metadata", 0))


def test_log_directories_of_several_clusters_are_refused(cluster: Path, fixtures: Path) -> None:
    outcome = run(cluster, "show", "c1001", str(fixtures / "out" / "clean-mv39" / "meta"))
    assert outcome.exit_status == 16
    assert b"several clusters" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "b2-d2"), b"no __cluster_metadata-0 in b2-d2"),
        (("show", "c1001", "--at", "9999"), b"past the end of the metadata, 1882"),
        (("show", "c1001", "--at", "soon"), b"not an offset, nor a time"),
        (("show", "c1001", "--topic", "nope"), b"no partition in the metadata matches"),
        (("history", "c1001", "--event", "nope"), b"is not one of"),
        (("diff", "c1001"), b"give two LOG_DIRs to compare, or one and --from"),
        (("diff", "c1001", "c1002", "--from", "1"), b"require a single LOG_DIR"),
    ],
)
def test_wrong_arguments_are_usage_errors(
    words: tuple[str, ...], message: bytes, cluster: Path
) -> None:
    outcome = run(cluster, *words)
    assert (outcome.exit_status, outcome.stdout) == (16, b"")
    assert message in outcome.stderr


def test_values_of_passwords_are_redacted(tmp_path: Path) -> None:
    key = "listener.name.ssl.ssl.keystore.password"
    records = [config_record(BROKER_RESOURCE, "1", key, secret) for secret in ("swordfish", "hush")]
    write_metadata_log(tmp_path, records)
    for words in (("show", "."), ("history", "."), ("diff", ".", "--from", "0")):
        said = run(tmp_path, *words, "--output", "jsonl").stdout
        assert b"[redacted]" in said
        assert b"swordfish" not in said
        assert b"hush" not in said


def test_a_record_that_does_not_apply_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    write_metadata_log(tmp_path, [topic_record("t", 1), partition_change_record(1, 7, [1])])
    outcome = run(tmp_path, "show", ".", "--output", "jsonl")
    assert outcome.exit_status == 4
    assert b"PARTITION_CHANGE_RECORD at offset 1 has no effect" in outcome.stderr
    assert objects(outcome.stdout)[0]["topics"][0]["partitions"] == []


def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    write_metadata_log(tmp_path, [topic_record("a\x1b[2Jb", 1)])
    for words in (("show", "."), ("history", "."), ("diff", ".", "--from", "0")):
        assert b"\x1b" not in run(tmp_path, *words).stdout
