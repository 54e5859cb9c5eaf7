"""``kdump diff`` of real replicas, and of logs made by hand."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batch, batches, record
from builders.compactable_directories import NOW_MS, plain_directory
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import TOPIC_ID_TEXT, write_log_directory, write_partition
from kdump.formats import names
from kdump.formats.checkpoints import encode_leader_epoch_checkpoint

DISKS: Final = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")


def diff(*args: str | Path, cwd: Path | None = None) -> Outcome:
    return run_kdump(["diff", *map(str, args)], cwd or Path.cwd())


def rows_of(*args: str | Path, cwd: Path | None = None) -> list[dict[str, Any]]:
    """The rows about two replicas."""
    outcome = diff(*args, "--output", "jsonl", cwd=cwd)
    return [row for row in objects(outcome.stdout) if row["type"] == "partition"]


def name_of(row: dict[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"


@pytest.fixture(scope="module")
def cluster(fixtures: Path) -> Path:
    """Give the disks of a cluster whose brokers 1 and 3 led some partitions in turn."""
    return fixtures / "states" / "clean"


@pytest.fixture(scope="module")
def rows(cluster: Path) -> list[dict[str, Any]]:
    """Give the rows of all brokers, each with each."""
    return rows_of(*DISKS, cwd=cluster)


def told(cluster: Path, name: str) -> Any:
    return json.loads((cluster / f"{name}.json").read_text())


def test_the_ends_are_those_that_the_leaders_reported(
    cluster: Path, rows: list[dict[str, Any]]
) -> None:
    of_left, of_right = told(cluster, "ends-1"), told(cluster, "ends-3")
    found = {
        name_of(row): (row["left_end_offset"], row["right_end_offset"])
        for row in rows
        if row["topic"].startswith("div-")
    }
    assert found == {
        name: (of_left[name]["end_offset"], of_right[name]["end_offset"]) for name in found
    }
    assert len(found) == 5


def test_every_follower_truncates_as_it_logged(cluster: Path, rows: list[dict[str, Any]]) -> None:
    topics = told(cluster, "after")["topics"]
    logged = {
        (int(broker), name): end
        for broker, truncations in told(cluster, "truncations").items()
        for name, end in truncations
    }
    predicted, ends = {}, {}
    for row in rows:
        if row["topic"] == "__cluster_metadata":
            continue
        leader = topics[row["topic"]]["partitions"][str(row["partition"])]["leader"]
        for follower, other in (("left", "right"), ("right", "left")):
            if row[f"{other}_node_id"] == leader:
                key = row[f"{follower}_node_id"], name_of(row)
                predicted[key] = row[f"{follower}_truncates_to"]
                ends[key] = row[f"{follower}_end_offset"]
    # Followers without epochs log that they truncate to their high watermark, the end of the log.
    assert {key: predicted[key] for key in logged} == logged
    assert {key for key, end in predicted.items() if end < ends[key]} == {
        (1, "div-a-0"),
        (1, "div-a-1"),
        (1, "div-txn-0"),
    }


def test_what_a_truncation_loses_is_what_only_the_follower_has(rows: list[dict[str, Any]]) -> None:
    (row,) = (row for row in rows if name_of(row) == "div-a-0")
    assert (row["verdict"], row["common_end_offset"], row["common_epoch"]) == ("diverged", 24, 2)
    assert (row["left_only_records"], row["left_lost_records"]) == (7, 7)
    assert (row["right_only_records"], row["right_lost_records"]) == (5, 5)
    assert (row["suggested_leader"], row["suggested_leader_loses"]) == ("broker 1", 5)
    assert (row["elected_leader"], row["elected_leader_loses"]) == ("broker 3", 7)


def test_replicas_that_were_in_sync_are_the_same(rows: list[dict[str, Any]]) -> None:
    differing = {name_of(row) for row in rows if row["verdict"] != "same"}
    assert differing == {
        "__cluster_metadata-0",
        *("div-a-0", "div-a-1", "div-a-2", "div-txn-0", "lag-prefix-0", "lag-prefix-1"),
    }


def test_a_compacted_replica_is_the_same_as_its_original(tmp_path: Path) -> None:
    original = plain_directory(tmp_path / "original", ("users",))
    compacted = shutil.copytree(original, tmp_path / "compacted")
    words = ["--topic", "users", "--config", "cleanup.policy=compact", "--now", str(NOW_MS)]
    assert run_kdump(["compact", *words, str(compacted)], tmp_path).exit_status == 0
    (row,) = rows_of(original, compacted)
    assert row["verdict"] == "same"
    assert row["right_compacted_records"] > 0
    assert row["left_compacted_records"] == 0


def test_records_that_are_missing_where_nothing_was_compacted_are_a_difference(
    tmp_path: Path,
) -> None:
    original = plain_directory(tmp_path / "original", ("users",))
    compacted = shutil.copytree(original, tmp_path / "compacted")
    words = ["--topic", "users", "--config", "cleanup.policy=compact", "--now", str(NOW_MS)]
    run_kdump(["compact", *words, str(compacted)], tmp_path)
    run_kdump(["checkpoint", "set", str(compacted), "cleaner-offset", "users-0=0"], tmp_path)
    (row,) = rows_of(original, compacted)
    assert row["verdict"] == "diverged"
    assert row["right_missing_ranges"]


def test_the_copies_of_two_disks_are_a_side_of_their_own(cluster: Path, tmp_path: Path) -> None:
    copies = [shutil.copytree(cluster / name, tmp_path / name) for name in ("b2-d1", "b2-d2")]
    found = rows_of("b2-d1", "b2-d2", *copies, "--topic", "late-clean", cwd=cluster)
    assert [(name_of(row), row["verdict"]) for row in found] == [
        (f"late-clean-{number}", "same") for number in range(3)
    ]


def test_two_partitions_are_compared_whatever_their_names_are(
    cluster: Path, tmp_path: Path
) -> None:
    left = shutil.copytree(cluster / "b1-d1" / "div-a-0", tmp_path / "no name")
    right = shutil.copytree(cluster / "b3-d1" / "div-a-0", tmp_path / "x\x1b[31m-0")
    (row,) = rows_of(left, right)
    assert (row["verdict"], row["common_end_offset"], row["topic"]) == ("diverged", 24, None)
    shown = diff(left, right).stdout.decode()
    assert "\x1b" not in shown


def test_a_replica_that_cannot_be_read_is_not_missing(cluster: Path, tmp_path: Path) -> None:
    shutil.copytree(cluster / "b1-d1" / "div-a-0", tmp_path / "b" / "div-a-0")
    (log,) = (tmp_path / "b" / "div-a-0").glob("*.log")
    log.unlink()
    os.mkfifo(log)
    outcome = diff(tmp_path / "b", cluster / "b3-d1", "--partition", "div-a-0")
    assert b"FIFO" in outcome.stderr
    assert b"missing" not in outcome.stdout
    assert outcome.exit_status == 8


def test_a_replica_that_a_broker_would_truncate_while_loading_is_not_elected(
    fixtures: Path, tmp_path: Path
) -> None:
    crashed = fixtures / "out" / "crashed" / "d1"
    damaged = shutil.copytree(crashed, tmp_path / "damaged")
    log = damaged / "crash-none-0" / f"{100:020d}.log"
    content = bytearray(log.read_bytes())
    content[81920:86016] = bytes(4096)
    log.write_bytes(content)
    (row,) = rows_of(damaged, crashed, "--topic", "crash-none")
    assert (row["verdict"], row["damaged_on"]) == ("damaged", "left")
    assert row["left_unreadable_records"] == 22
    (dropped,) = row["left_recoverable_ranges"]
    assert row["left_loaded_end_offset"] < dropped["start"]
    assert dropped["end"] == row["left_end_offset"]
    assert row["right_recoverable_ranges"] == []
    assert row["suggested_leader"] == row["elected_leader"] == str(crashed)
    outcome = diff(damaged, crashed, "--topic", "crash-none")
    assert b"a starting broker would drop valid batches of offsets" in outcome.stderr
    assert b"DAMAGED" in outcome.stdout
    assert outcome.exit_status == 5


def test_a_replica_whose_records_a_start_deletes_should_not_lead(tmp_path: Path) -> None:
    """The checkpoint claims that its log begins after its end."""
    original = plain_directory(tmp_path / "original", ("users",))
    copy = shutil.copytree(original, tmp_path / "copy")
    (copy / names.LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nusers 0 999999\n")
    (row,) = rows_of(copy, original)
    assert (row["verdict"], row["damaged_on"]) == ("damaged", "left")
    (dropped,) = row["left_recoverable_ranges"]
    assert dropped == {"start": row["right_start_offset"], "end": row["right_end_offset"]}
    assert (row["suggested_leader"], row["suggested_leader_loses"]) == (str(original), 0)


def test_one_broker_alone_cannot_be_compared(cluster: Path) -> None:
    outcome = diff("b2-d1", "b2-d2", cwd=cluster)
    assert outcome.exit_status == 16
    assert b"diff requires replicas of two brokers" in outcome.stderr


def test_partitions_that_a_broker_need_not_have_are_no_difference(cluster: Path) -> None:
    outcome = diff("b1-d1", "b3-d1", "--topic", "late-clean", cwd=cluster)
    assert outcome.exit_status == 0
    assert b"as they should be" in outcome.stdout


def test_the_records_that_are_listed_are_those_that_a_consumer_loses(cluster: Path) -> None:
    outcome = diff(
        *("b1-d1", "b3-d1", "--partition", "div-a-0", "--records", "--output", "jsonl"), cwd=cluster
    )
    records = [row for row in objects(outcome.stdout) if row["type"] == "record"]
    values = {
        side: [r["value"] for r in records if r["side"] == side] for side in ("left", "right")
    }
    assert (len(values["left"]), len(values["right"])) == (7, 5)
    assert all(value.startswith(f"{side} clean") for side in values for value in values[side])


def with_topic_id(root: Path) -> Path:
    write_topic_id(root / "users-0", TOPIC_ID_TEXT)
    return root


def with_another_topic_id(partition: Path) -> None:
    write_topic_id(partition, "AAAAAAAAAAAAAAAAAAAAAg")


def write_topic_id(partition: Path, topic_id: str) -> None:
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def test_replicas_of_two_topics_of_one_name_are_not_compared(tmp_path: Path) -> None:
    left = with_topic_id(plain_directory(tmp_path / "left", ("users",)))
    right = shutil.copytree(left, tmp_path / "right")
    with_another_topic_id(right / "users-0")
    outcome = diff("--output", "jsonl", "left", "right", cwd=tmp_path)
    assert outcome.exit_status == 1
    (row,) = (each for each in objects(outcome.stdout) if each["type"] == "partition")
    assert (row["verdict"], row["left_end_offset"], row["left_truncates_to"]) == (
        *("unrelated", None, None),
    )
    assert row["left_topic_id"] != row["right_topic_id"] == "AAAAAAAAAAAAAAAAAAAAAg"
    assert b"left/users-0, right/users-0: not compared: their topics have one name" in (
        outcome.stderr
    )
    assert b"unrelated" in diff("left", "right", cwd=tmp_path).stdout


def test_the_replicas_of_one_topic_are_compared_beside_that_of_another_one(tmp_path: Path) -> None:
    first = with_topic_id(plain_directory(tmp_path / "a", ("users",)))
    copies = [shutil.copytree(first, tmp_path / name) for name in ("b", "c")]
    with_another_topic_id(copies[0] / "users-0")
    verdicts = {
        (row["left"], row["right"]): row["verdict"] for row in rows_of("a", "b", "c", cwd=tmp_path)
    }
    assert verdicts == {
        ("a", "b"): "unrelated",
        ("a", "c"): "same",
        ("b", "c"): "unrelated",
    }


def test_the_records_of_one_topic_are_listed_beside_another_one(tmp_path: Path) -> None:
    first = with_topic_id(plain_directory(tmp_path / "a", ("users",)))
    copies = [shutil.copytree(first, tmp_path / name) for name in ("b", "c")]
    with_another_topic_id(copies[0] / "users-0")
    logs = sorted((copies[1] / "users-0").glob("*.log"))
    logs[-1].write_bytes(b"")
    outcome = diff("--records", "--output", "jsonl", "a", "b", "c", cwd=tmp_path)
    listed = [row for row in objects(outcome.stdout) if row["type"] == "record"]
    assert listed
    assert {(row["only_on"], row["not_on"]) for row in listed} == {("a", "c")}


def test_two_partitions_that_were_named_are_compared_whatever_their_topic_ids_are(
    tmp_path: Path,
) -> None:
    left = with_topic_id(plain_directory(tmp_path / "left", ("users",)))
    right = shutil.copytree(left, tmp_path / "right")
    with_another_topic_id(right / "users-0")
    (row,) = rows_of(left / "users-0", right / "users-0")
    assert row["verdict"] == "same"


def test_a_truncation_inside_a_batch_names_the_byte_and_loses_the_whole_batch(
    tmp_path: Path,
) -> None:
    no_epochs = {names.LEADER_EPOCH_CHECKPOINT: encode_leader_epoch_checkpoint([])}
    log = batches(3)
    for name in ("left", "right"):
        root = write_log_directory(
            tmp_path / name, recovery_points={("t", 0): 9}, high_watermarks={("t", 0): 4}
        )
        write_partition(root / "t-0", {0: b"".join(log)}, others=no_epochs)
    with (tmp_path / "right" / "t-0" / f"{0:020d}.log").open("ab") as longer:
        longer.write(batch([record(9)]))
    (row,) = rows_of("left", "right", cwd=tmp_path)
    assert (row["left_truncates_to"], row["right_truncates_to"]) == (4, 4)
    assert row["right_cut_batch"] == {
        "path": f"right/t-0/{0:020d}.log",
        "position": len(log[0]),
        "base_offset": 3,
    }
    assert f"right/t-0/{0:020d}.log: byte {len(log[0])}: offset 4".encode() in (
        diff("left", "right", cwd=tmp_path).stderr
    )
