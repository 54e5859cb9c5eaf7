"""``kdump txns`` finds what the official tools and clients said of real brokers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.json_answers import Row, objects
from builders.log_directories import write_log_directory, write_partition
from builders.metadata_log import topic_record, write_metadata_log
from builders.recovery import marker, of_producer
from builders.transaction_states import key_of, log_of, value_of
from kdump.formats.names import PARTITION_METADATA
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata

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


def text(root: Path, *args: str) -> list[str]:
    outcome = run_kdump(["txns", *args], root)
    assert outcome.exit_status == 0
    return outcome.stdout.decode().splitlines()


def test_people_see_the_command_that_ends_each_hanging_transaction(cluster: Path) -> None:
    commands = [
        line.strip() for line in text(cluster, *CLUSTER_DISKS) if line.startswith("  kafka-")
    ]
    assert commands == [
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic txn-hang"
        f" --partition {partition} --start-offset {offset}"
        for partition, offset in ((0, 8), (1, 6), (2, 3))
    ]


def test_people_are_warned_where_the_coordinator_has_committed(cluster: Path) -> None:
    (line,) = [line for line in text(cluster, *CLUSTER_DISKS) if "before you abort" in line]
    assert line.startswith("before you abort in txn-hang-1: ")


def test_people_see_what_pins_each_last_stable_offset(cluster: Path) -> None:
    lines = text(cluster, *CLUSTER_DISKS)
    begin = lines.index("Last stable offsets below the end of the log:")
    pinned = [line.split() for line in lines[begin + 2 : begin + 8]]
    assert [(words[0], words[1], words[3]) for words in pinned] == [
        ("__consumer_offsets", "3", "35"),
        ("txn-hang", "0", "8"),
        ("txn-hang", "1", "6"),
        ("txn-hang", "2", "3"),
        ("txn-pending", "0", "0"),
        ("txn-pending", "1", "0"),
    ]
    assert " ".join(pinned[1][6:]) == "hanging transaction of producer 3"
    assert " ".join(pinned[4][6:]) == "transaction of ongoing-1 (producer 1008)"


def test_only_hanging_transactions_are_shown_on_request(cluster: Path) -> None:
    rows = txns(cluster, "--hanging", *CLUSTER_DISKS)
    assert {row["type"] for row in rows} == {"open_transaction", "summary"}
    assert all(row["is_hanging"] for row in of_type(rows, "open_transaction"))
    assert len(of_type(rows, "open_transaction")) == 3


def test_a_producer_that_may_still_write_does_not_hang(cluster: Path) -> None:
    # The producers wrote last at ...029, ...030 and ...528.
    soon = ("--hanging", "--now", str(1795285020029 + 60_001), "--max-transaction-timeout")
    for minutes, partitions in (("1", [1]), ("0", [0, 1, 2]), ("2", [])):
        rows = txns(cluster, *soon, minutes, *CLUSTER_DISKS)
        assert [row["partition"] for row in of_type(rows, "open_transaction")] == partitions


def test_a_transactional_id_selects_its_transactions_and_partitions(cluster: Path) -> None:
    rows = txns(cluster, "--transactional-id", "ongoing-[o]*", *CLUSTER_DISKS)
    assert [row["transactional_id"] for row in of_type(rows, "transaction")] == ["ongoing-offsets"]
    places = [(row["topic"], row["partition"]) for row in of_type(rows, "open_transaction")]
    assert places == [("__consumer_offsets", 3), ("txn-pending", 0)]
    assert [(row["topic"], row["partition"]) for row in of_type(rows, "partition")] == places


def test_an_unknown_transactional_id_is_looked_for_in_its_partition(cluster: Path) -> None:
    *_, last = text(cluster, "--transactional-id", "nobody", *CLUSTER_DISKS)
    assert last == "nobody: not in __transaction_state-1: its coordinator does not know it"


def test_a_topic_selects_the_transactions_that_concern_it(cluster: Path) -> None:
    rows = txns(cluster, "--topic", "txn-pending", *CLUSTER_DISKS)
    found = [row["transactional_id"] for row in of_type(rows, "transaction")]
    assert found == ["ongoing-1", "ongoing-offsets"]
    assert {row["topic"] for row in of_type(rows, "open_transaction")} == {"txn-pending"}


def test_a_partition_of_a_transaction_that_is_on_no_disk_is_named(cluster: Path) -> None:
    rows = txns(cluster, "b2-d1")
    (row,) = [row for row in of_type(rows, "transaction") if row["state"] == "Ongoing"]
    assert row["open_partitions"] == ["txn-pending-1"]
    assert row["missing_partitions"] == ["txn-pending-0"]


PREPARE_COMMIT, COMPLETE_COMMIT = 2, 4
OWN_EPOCHS = {"client": 2}


def decided(root: Path, *, epoch: int, own_epochs: bool = True) -> Row:
    """What is said of a transaction in orders-0, whose log says that epoch 5 is complete."""
    value = value_of(
        producer_epoch=epoch, state=PREPARE_COMMIT, tags=OWN_EPOCHS if own_epochs else None
    )
    write_partition(root / "__transaction_state-0", {0: log_of([(key_of("a"), value)])})
    (row,) = of_type(txns(root.parent, "d1"), "transaction")
    return row


def write_orders(root: Path, *, is_next_open: bool = False) -> None:
    log = of_producer(0, epoch=4, transactional=True) + marker(1, commit=True, epoch=5)
    if is_next_open:
        log += of_producer(2, epoch=5, transactional=True)
    write_partition(root / "orders-0", {0: log})


@pytest.mark.parametrize("own_epochs", [False, True])
@pytest.mark.parametrize(("epoch", "refusing"), [(4, ["orders-0"]), (5, []), (6, [])])
def test_partitions_whose_producer_has_gone_on_refuse_an_older_end(
    epoch: int, refusing: list[str], own_epochs: bool, tmp_path: Path
) -> None:
    root = write_log_directory(tmp_path / "d1", clean=False)
    write_orders(root)
    row = decided(root, epoch=epoch, own_epochs=own_epochs)
    assert row["refusing_partitions"] == refusing


@pytest.mark.parametrize(("own_epochs", "refusing"), [(False, []), (True, ["orders-0"])])
def test_the_end_of_a_transaction_does_not_end_the_next_one(
    own_epochs: bool, refusing: list[str], tmp_path: Path
) -> None:
    root = write_log_directory(tmp_path / "d1", clean=False)
    write_orders(root, is_next_open=True)
    row = decided(root, epoch=5, own_epochs=own_epochs)
    assert row["refusing_partitions"] == refusing


def test_a_transaction_that_no_coordinator_can_complete_is_named(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1", clean=False)
    write_orders(root)
    decided(root, epoch=4)
    (line,) = [each for each in text(tmp_path, "d1") if each.startswith("a: ")]
    assert line.startswith("a: its commit is decided, but no coordinator can complete it: ")
    assert " in orders-0, " in line


def test_nothing_is_refused_once_a_transaction_is_complete(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1", clean=False)
    write_orders(root)
    value = value_of(producer_epoch=4, state=COMPLETE_COMMIT, partitions=())
    write_partition(root / "__transaction_state-0", {0: log_of([(key_of("a"), value)])})
    (row,) = of_type(txns(tmp_path, "d1"), "transaction")
    assert row["refusing_partitions"] == []


@pytest.mark.parametrize(("current", "refusing"), [(77, ["orders-0"]), (78, [])])
def test_an_end_is_looked_for_in_the_topic_that_the_metadata_has(
    current: int, refusing: list[str], tmp_path: Path
) -> None:
    """A disk has a deleted topic of the name, too: one in which the producer has gone on."""
    refused = of_producer(0, epoch=4, transactional=True) + marker(1, commit=True, epoch=5)
    for disk, topic_id, log in ("d1", 77, refused), ("d2", 78, batch([record(0)])):
        metadata = encode_partition_metadata(PartitionMetadata(0, uuid.UUID(int=topic_id)))
        root = write_log_directory(tmp_path / disk, clean=False)
        write_partition(root / "orders-0", {0: log}, others={PARTITION_METADATA: metadata})
    value = value_of(producer_epoch=4, state=PREPARE_COMMIT)
    write_partition(tmp_path / "d2/__transaction_state-0", {0: log_of([(key_of("a"), value)])})
    write_metadata_log(tmp_path / "d2", [topic_record("orders", current)])
    outcome = run_kdump(["txns", "--output", "jsonl", "d1", "d2"], tmp_path)
    (row,) = of_type(objects(outcome.stdout), "transaction")
    assert row["refusing_partitions"] == refusing


def test_hostile_names_cannot_reach_the_terminal_or_the_shell(tmp_path: Path) -> None:
    name = "a'\n\x1b[31m; $(id)"
    root = write_log_directory(tmp_path / "d1")
    value = value_of(producer_id=7, partitions=[("orders", [0])])
    write_partition(root / "__transaction_state-0", {0: log_of([(key_of(name), value)])})
    write_partition(root / "orders-0", {0: of_producer(0, 7, transactional=True)})

    assert "\x1b" not in "".join(text(tmp_path, "d1"))

    (row,) = of_type(txns(tmp_path, "d1"), "open_transaction")
    command = row["end_command"].replace("kafka-transactions.sh", "printf '%s|'")
    printed = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    assert printed.decode().split("|")[-2] == name


def test_a_file_of_another_kind_is_reported(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1")
    path = write_partition(root / "orders-0", {0: b""})
    os.mkfifo(path / f"{9:020d}.log")
    outcome = run_kdump(["txns", "d1"], tmp_path)
    assert outcome.exit_status == 8
    assert b"FIFO" in outcome.stderr


def test_a_record_that_no_coordinator_can_read_is_damage(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1")
    log = [(key_of("a"), value_of()), (key_of("b"), value_of(state=4, partitions=None))]
    write_partition(root / "__transaction_state-0", {0: log_of(log)})
    outcome = run_kdump(["txns", "d1"], tmp_path)
    assert outcome.exit_status == 4
    assert b"d1/__transaction_state-0: offset 1: null partitions in state CompleteCommit" in (
        outcome.stderr
    )


def test_without_the_checkpoint_of_high_watermarks_nothing_is_guessed(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1")
    write_partition(root / "orders-0", {0: of_producer(0, 7)})
    (row,) = of_type(txns(tmp_path, "d1"), "partition")
    assert (row["last_stable_offset"], row["high_watermark"], row["pinned_by"]) == (None,) * 3
    assert row["log_end_offset"] == 1


def test_without_the_metadata_it_is_unknown_how_many_coordinators_there_are(
    cluster: Path, tmp_path: Path
) -> None:
    for name in CLUSTER_DISKS:
        ignored = shutil.ignore_patterns("__cluster_metadata-0")
        shutil.copytree(cluster / name, tmp_path / name, ignore=ignored)
    rows = txns(tmp_path, *CLUSTER_DISKS)
    (summary,) = of_type(rows, "summary")
    assert summary["coordinator_partitions"] is None
    hanging = {row["producer_id"]: row["is_hanging"] for row in of_type(rows, "open_transaction")}
    # Producer 4 has a transactional id, whose transaction does not have the partition.
    assert hanging == {3: None, 4: True, 5: False, 1008: False}


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


def test_records_of_an_unknown_version_are_counted(tmp_path: Path) -> None:
    later = b"\0\x09"
    rows = [
        (later + key_of("key")[2:], value_of()),
        (key_of("value"), later + value_of()[2:]),
        (key_of("known"), value_of()),
    ]
    write_partition(write_log_directory(tmp_path) / "__transaction_state-0", {0: log_of(rows)})
    outcome = run_kdump(["txns", "--output", "jsonl", "."], tmp_path)
    ids = [row["transactional_id"] for row in of_type(objects(outcome.stdout), "transaction")]
    assert (outcome.exit_status, ids) == (4, ["known"])
    assert outcome.stderr.endswith(
        b"__transaction_state-0: 2 records of an unknown version: a coordinator skips such records,"
        b" too\n"
    )
