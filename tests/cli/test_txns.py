"""``kdump txns`` finds what the official tools and clients said of real brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import run_kdump
from builders.json_answers import Row, objects

CLUSTER_DISKS = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")
CHANGED_LATER = ("div-", "lag-prefix", "late-clean", "expanded")
"""Topics of the cluster that were written to after its manifest was made."""


def txns(root: Path, *args: str) -> list[Row]:
    outcome = run_kdump(["txns", "--output", "jsonl", *args], root)
    assert (outcome.exit_status, outcome.stderr) == (0, b"")
    return objects(outcome.stdout)


def of_type(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["type"] == kind]


@pytest.fixture(scope="module")
def cluster(fixtures: Path) -> Path:
    return fixtures / "states" / "clean"


@pytest.fixture(scope="module")
def cluster_rows(cluster: Path) -> list[Row]:
    return txns(cluster, *CLUSTER_DISKS)


@pytest.fixture(scope="module")
def manifest(cluster: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cluster / "manifest.json").read_text())
    return found


@pytest.fixture(scope="module")
def clean(fixtures: Path) -> Path:
    return fixtures / "out" / "clean"


@pytest.fixture(scope="module")
def clean_rows(clean: Path) -> list[Row]:
    return txns(clean, "d1", "d2")


@pytest.fixture(scope="module")
def clean_manifest(clean: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((clean.parent / "manifest.clean.json").read_text())
    return found


def test_the_hanging_transactions_of_a_cluster_are_those_of_find_hanging(
    cluster: Path, cluster_rows: list[Row]
) -> None:
    hanging = [row for row in of_type(cluster_rows, "open_transaction") if row["is_hanging"]]
    fields = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch")
    found = [[str(row[field]) for field in fields] for row in hanging]
    assert found == json.loads((cluster / "hanging.json").read_text())


def test_transactions_of_a_cluster_are_those_of_its_coordinators(
    cluster_rows: list[Row], manifest: dict[str, Any]
) -> None:
    found = {
        row["transactional_id"]: {
            "state": row["state"],
            "producer_id": row["producer_id"],
            "producer_epoch": row["producer_epoch"],
            "timeout_ms": row["timeout_ms"],
            "start_time_ms": row["start_time_ms"],
            "partitions": row["partitions"],
        }
        for row in of_type(cluster_rows, "transaction")
    }
    expected = {
        name: {"start_time_ms": None, **described}
        for name, described in manifest["transactions"].items()
    }
    for described in expected.values():
        del described["coordinator"]
    assert found == expected
    assert len(found) == len(manifest["transactions_listed"])


def test_open_transactions_of_a_cluster_are_those_of_its_producers(
    cluster_rows: list[Row], manifest: dict[str, Any]
) -> None:
    found = {
        (row["topic"], str(row["partition"]), row["first_offset"]): (
            row["producer_id"],
            row["producer_epoch"],
            -1 if row["coordinator_epoch"] is None else row["coordinator_epoch"],
            row["last_time_ms"],
        )
        for row in of_type(cluster_rows, "open_transaction")
    }
    expected = {
        (topic, partition, producer["txn_start_offset"]): (
            producer["producer_id"],
            producer["producer_epoch"],
            producer["coordinator_epoch"],
            producer["last_timestamp"],
        )
        for topic, said in manifest["topics"].items()
        for partition, described in said["partitions"].items()
        for producer in described["producers"]
        if "txn_start_offset" in producer
    }
    assert found == expected


def test_last_stable_offsets_of_a_cluster_are_the_ends_for_committed_reads(
    cluster_rows: list[Row], manifest: dict[str, Any]
) -> None:
    found = {
        (row["topic"], str(row["partition"])): (row["high_watermark"], row["last_stable_offset"])
        for row in of_type(cluster_rows, "partition")
        if not row["topic"].startswith(CHANGED_LATER)
    }
    assert found == {
        (topic, partition): (each["latest"]["offset"], each["latest_committed"]["offset"])
        for topic, said in manifest["topics"].items()
        for partition, each in said["partitions"].items()
        if not topic.startswith(CHANGED_LATER)
    }


def test_replicas_that_end_elsewhere_are_named(cluster_rows: list[Row]) -> None:
    differing = {
        f"{row['topic']}-{row['partition']}": row["differing_replicas"]
        for row in of_type(cluster_rows, "partition")
        if row["differing_replicas"]
    }
    assert differing["div-a-0"] == ["b1-d1"]
    assert all(name.startswith(CHANGED_LATER) for name in differing)


def test_transactions_of_a_broker_are_those_of_its_coordinator(
    clean_rows: list[Row], clean_manifest: dict[str, Any]
) -> None:
    found = {
        row["transactional_id"]: {
            "state": row["state"],
            "producerId": row["producer_id"],
            "producerEpoch": row["producer_epoch"],
            "transactionTimeoutMs": row["timeout_ms"],
            "transactionStartTimeMs": row["start_time_ms"],
            "topicPartitions": row["partitions"],
        }
        for row in of_type(clean_rows, "transaction")
    }
    expected = {
        name: {
            **described,
            # The admin client's enumeration has ONGOING for what brokers call Ongoing.
            "state": described["state"].title().replace("_", ""),
        }
        for name, described in clean_manifest["transactionDescriptions"].items()
    }
    for described in expected.values():
        del described["coordinatorId"]
    assert found == expected


def test_last_stable_offsets_of_a_broker_are_the_ends_for_committed_reads(
    clean_rows: list[Row], clean_manifest: dict[str, Any]
) -> None:
    found = {
        (row["topic"], str(row["partition"])): row["last_stable_offset"]
        for row in of_type(clean_rows, "partition")
    }
    assert found["txn-hanging", "0"] == 13
    # Some of the partitions in the manifest are left out of the fixtures.
    assert found == {
        (topic, partition): each["listOffsets.latest.read_committed"]["offset"]
        for topic, said in clean_manifest["topics"].items()
        for partition, each in said["partitions"].items()
        if (topic, partition) in found
    }


def test_an_ongoing_transaction_pins_the_offsets_that_it_is_going_to_commit(
    clean_rows: list[Row],
) -> None:
    (row,) = [
        row
        for row in of_type(clean_rows, "open_transaction")
        if row["topic"] == "__consumer_offsets"
    ]
    assert (row["transactional_id"], row["records"]) == ("hang-1", 1)
    assert (row["is_ongoing"], row["is_hanging"]) == (True, False)
    assert row["end_command"].endswith(" forceTerminateTransaction --transactionalId hang-1")


def test_without_the_coordinators_partition_nothing_is_said_to_hang(cluster: Path) -> None:
    rows = txns(cluster, "b2-d1")
    (summary,) = of_type(rows, "summary")
    assert summary["missing_coordinator_partitions"] == [2]
    unknown = [
        row["producer_id"]
        for row in of_type(rows, "open_transaction")
        if row["is_hanging"] is None and row["end_command"] is None
    ]
    assert unknown == [3]
