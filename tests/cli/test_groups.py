"""``kdump groups`` says what the official tools said of groups, from disks alone."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batch, batches, record
from builders.group_records import offset_key, offset_value, text_field
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import TOPIC_ID, write_log_directory, write_partition
from kdump.formats.names import PARTITION_METADATA

CLUSTER: Final = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")
Answers = list[dict[str, Any]]
NO_EXPIRY: Final = "offsets.retention.minutes=99999999"


def groups(*words: str | Path) -> Outcome:
    return run_kdump(["groups", *map(str, words)], Path.cwd())


def answered(*words: str | Path) -> Answers:
    outcome = groups("--output", "jsonl", *words)
    assert outcome.stderr == b""
    assert outcome.exit_status == 0
    return objects(outcome.stdout)


def of_type(name: str, rows: Iterable[Mapping[str, Any]]) -> Answers:
    return [dict(row) for row in rows if row["type"] == name]


@pytest.fixture(scope="module")
def clean_dirs(fixtures: Path) -> tuple[Path, ...]:
    return tuple(fixtures / "out" / "clean" / name for name in ("d1", "d2"))


@pytest.fixture(scope="module")
def cluster_dirs(fixtures: Path) -> tuple[Path, ...]:
    return tuple(fixtures / "states" / "clean" / name for name in CLUSTER)


@pytest.fixture(scope="module")
def clean(clean_dirs: tuple[Path, ...]) -> Answers:
    return answered("--members", *clean_dirs)


@pytest.fixture(scope="module")
def cluster(cluster_dirs: tuple[Path, ...]) -> Answers:
    return answered("--members", *cluster_dirs)


@pytest.fixture(scope="module")
def clean_manifest(fixtures: Path) -> Any:
    return json.loads((fixtures / "out" / "manifest.clean.json").read_text())


@pytest.fixture(scope="module")
def cluster_manifest(fixtures: Path) -> Any:
    return json.loads((fixtures / "states" / "clean" / "manifest.json").read_text())["groups"]


def partition_of(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"


def offsets_as_admin_says(rows: Answers) -> dict[str, dict[str, dict[str, Any]]]:
    found = defaultdict[str, dict[str, dict[str, Any]]](dict)
    for row in of_type("group", rows):
        found[row["group"]] = {}
    for row in of_type("offset", rows):
        if row["committed_offset"] is not None:
            found[row["group"]][partition_of(row)] = {
                "offset": row["committed_offset"],
                "leaderEpoch": row["leader_epoch"],
                "metadata": row["metadata"],
            }
    for row in of_type("share_offset", rows):
        found[row["group"]][partition_of(row)] = {
            "startOffset": row["start_offset"],
            "leaderEpoch": row["leader_epoch"],
            "lag": row["lag"],
        }
    return dict(found)


def test_offsets_of_all_types_of_groups_are_what_the_admin_client_said(
    clean: Answers, clean_manifest: Any
) -> None:
    assert offsets_as_admin_says(clean) == clean_manifest["groupOffsets"]


def test_groups_have_the_type_and_state_that_the_admin_client_said(
    clean: Answers, clean_manifest: Any
) -> None:
    said = {
        each["groupId"]: (each["type"].lower(), each["groupState"].lower(), each["protocol"])
        for each in clean_manifest["groups"]
    }
    assert said == {
        row["group"]: (row["group_type"], row["state"].lower(), row["protocol_type"])
        for row in of_type("group", clean)
    }


def members_as_admin_says(rows: Answers) -> dict[str, dict[str, Any]]:
    found = defaultdict[str, dict[str, Any]](dict)
    for row in of_type("member", rows):
        if any("kind" in each for each in row["assigned"]):
            continue  # tasks of Kafka Streams
        found[row["group"]][row["member_id"]] = {
            "clientId": row["client_id"],
            "host": row["client_host"],
            "instance": row["instance_id"],
            "epoch": row["epoch"],
            "assigned": assigned_partitions(row["assigned"]),
            "target": assigned_partitions(row["target"]),
        }
    return dict(found)


def assigned_partitions(assigned: list[dict[str, Any]] | None) -> list[str] | None:
    if assigned is None:
        return None
    return sorted(f"{each['topic']}-{n}" for each in assigned for n in each["partitions"])


def described_members(descriptions: Iterable[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """The members in answers of the admin client, by group and id."""
    found: dict[str, dict[str, Any]] = {}
    for name, description in descriptions:
        members = {
            each["consumerId"]: {
                "clientId": each["clientId"],
                "host": each["host"],
                "instance": each.get("groupInstanceId"),
                "epoch": each.get("memberEpoch"),
                "assigned": sorted(each["assignment"]["topicPartitions"]),
                "target": each.get("targetAssignment")
                and sorted(each["targetAssignment"]["topicPartitions"]),
            }
            for each in description["members"]
        }
        if members:
            found[name] = members
    return found


def test_members_and_assignments_are_what_the_admin_client_said(
    clean: Answers, clean_manifest: Any
) -> None:
    expected = described_members(
        (name, each["describeConsumerGroups"])
        for name, each in clean_manifest["groupDescriptions"].items()
        if "describeConsumerGroups" in each
    )
    assert expected
    found = members_as_admin_says(clean)
    assert {name: found[name] for name in expected} == expected


def test_a_share_group_has_its_members(clean: Answers, clean_manifest: Any) -> None:
    (said,) = clean_manifest["groupDescriptions"]["share-group-1"]["describeShareGroups"]["members"]
    (member,) = (row for row in of_type("member", clean) if row["group"] == "share-group-1")
    assert (member["member_id"], member["client_id"], member["epoch"]) == (
        said["consumerId"],
        said["clientId"],
        said["memberEpoch"],
    )
    assert assigned_partitions(member["assigned"]) == said["assignment"]["topicPartitions"]


def test_a_streams_group_has_its_tasks(clean: Answers, clean_manifest: Any) -> None:
    description = clean_manifest["groupDescriptions"]["streams-group-1"]["describeStreamsGroups"]
    (said,) = description["members"]
    (member,) = (row for row in of_type("member", clean) if row["group"] == "streams-group-1")
    assert member["member_id"] == said["memberId"]
    assert member["assigned"] == [
        {"kind": "active", "subtopology": each["subtopologyId"], "partitions": each["partitions"]}
        for each in said["assignment"]["activeTasks"]
    ]


def test_an_offset_of_an_open_transaction_is_pending_and_not_committed(clean: Answers) -> None:
    (row,) = (row for row in of_type("offset", clean) if row["pending"])
    assert (row["group"], partition_of(row)) == ("eos-group", "multi.part-topic_x-3")
    assert row["committed_offset"] is None
    assert [each["offset"] for each in row["pending"]] == [77]


def test_lag_in_a_cluster_is_what_the_official_tool_said(
    cluster: Answers, cluster_manifest: Any
) -> None:
    said = {
        (name, partition): {key: offset.get(key) for key in ("committed_offset", "lag")}
        | {"log_end_offset": offset["log_end_offset"], "leader_epoch": offset.get("leader_epoch")}
        for name, each in cluster_manifest.items()
        for partition, offset in each["offsets"].items()
        if "committed_offset" in offset
    }
    assert said == {
        (row["group"], partition_of(row)): {
            key: row[key] for key in ("committed_offset", "lag", "log_end_offset", "leader_epoch")
        }
        for row in of_type("offset", cluster)
        if row["committed_offset"] is not None
    }


def test_share_groups_of_a_cluster_have_delivered_what_the_official_tool_said(
    cluster: Answers, cluster_manifest: Any
) -> None:
    said = {
        name: each["offsets"] for name, each in cluster_manifest.items() if each["type"] == "Share"
    }
    found = offsets_as_admin_says(cluster)
    assert {name: found[name] for name in said} == said


def test_groups_of_a_cluster_are_in_the_state_that_the_official_tool_said(
    cluster: Answers, cluster_manifest: Any
) -> None:
    assert {
        name: (each["type"].lower(), each["state"], each["protocol_type"])
        for name, each in cluster_manifest.items()
    } == {
        row["group"]: (row["group_type"], row["state"], row["protocol_type"])
        for row in of_type("group", cluster)
    }


def test_members_of_a_cluster_are_what_the_admin_client_said(
    cluster: Answers, cluster_manifest: Any
) -> None:
    expected = described_members(
        (name, each["description"]) for name, each in cluster_manifest.items()
    )
    found = members_as_admin_says(cluster)
    assert {name: found[name] for name in expected} == expected


def test_only_offsets_of_selected_partitions_are_shown(clean_dirs: tuple[Path, ...]) -> None:
    rows = answered("--topic", "codec-*", "--partition", "codec-lz4-0", *clean_dirs)
    assert {partition_of(row) for row in of_type("offset", rows)} == {"codec-lz4-0"}


def test_only_selected_groups_are_shown(clean_dirs: tuple[Path, ...]) -> None:
    rows = answered("--group", "kip848-g*", "--group", "eos-group", *clean_dirs)
    assert {row["group"] for row in rows if row["type"] != "summary"} == {
        "kip848-group",
        "eos-group",
    }


def directory_of(root: Path, *records: tuple[bytes | None, bytes | None]) -> Path:
    """A log directory whose ``__consumer_offsets-0`` has these records, a batch for each."""
    directory = write_log_directory(root / "logs")
    log = b"".join(batch([record(number, *each)]) for number, each in enumerate(records))
    write_partition(directory / "__consumer_offsets-0", {0: log})
    return directory


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param((None, b"x"), id="no key"),
        pytest.param((b"", b"x"), id="an empty key"),
        pytest.param((b"\0\1\x7f\xff", b"x"), id="a key that ends early"),
        pytest.param((offset_key(b"forged"), b"\0\x09" + bytes(30)), id="an unknown version"),
        pytest.param((offset_key(b"forged"), b"\0\3\0"), id="a value that ends early"),
        pytest.param((offset_key(b"forged"), b""), id="an empty value"),
        pytest.param(
            (b"\0\2" + text_field(b"forged"), b"\0\3" + text_field(b"c") + b"\x7f" * 40),
            id="a count that no record can have",
        ),
    ],
)
def test_a_record_that_no_coordinator_loads_is_reported_and_the_rest_is_shown(
    forged: tuple[bytes | None, bytes | None], tmp_path: Path
) -> None:
    directory = directory_of(tmp_path, forged, (offset_key(b"good"), offset_value(7)))
    outcome = groups("--output", "jsonl", directory)
    assert b"a coordinator does not load it" in outcome.stderr
    assert outcome.exit_status == 4
    rows = of_type("offset", objects(outcome.stdout))
    shown = {row["group"]: row["committed_offset"] for row in rows}
    assert shown["good"] == 7
    assert shown.get("forged") is None


def test_a_record_of_a_type_that_kafka_does_not_know_is_skipped(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, (b"\0\x63?", b"x"), (offset_key(b"good"), offset_value(7)))
    assert [row["group"] for row in of_type("offset", answered(directory))] == ["good"]


def test_control_characters_in_names_are_escaped_for_people(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, (offset_key(b"\x1b[31mred\n"), offset_value(7)))
    outcome = groups(directory)
    assert b"\\x1b[31mred\\n" in outcome.stdout
    assert b"\x1b" not in outcome.stdout


def test_a_log_cut_by_a_crash_is_read_up_to_its_last_valid_batch(tmp_path: Path) -> None:
    key = offset_key(b"g")
    directory = directory_of(tmp_path, (key, offset_value(7)), (key, offset_value(8)))
    log = directory / "__consumer_offsets-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    outcome = groups("--output", "jsonl", directory)
    assert str(log).encode() in outcome.stderr
    assert outcome.exit_status == 4
    (row,) = of_type("offset", objects(outcome.stdout))
    assert (row["committed_offset"], row["is_uncertain"]) == (7, False)


def test_an_offset_before_damage_in_the_middle_is_uncertain(tmp_path: Path) -> None:
    before, after = offset_key(b"before"), offset_key(b"after")
    directory = directory_of(
        tmp_path, (before, offset_value(1)), (b"?" * 9, b"?"), (after, offset_value(2))
    )
    log = directory / "__consumer_offsets-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[content.index(b"?????")] ^= 1
    log.write_bytes(content)
    rows = of_type("offset", objects(groups("--output", "jsonl", directory).stdout))
    assert {row["group"]: row["is_uncertain"] for row in rows} == {"before": True, "after": False}


def test_a_group_whose_partition_is_missing_is_unknown_and_not_without_offsets(
    tmp_path: Path,
) -> None:
    directory = directory_of(tmp_path, (offset_key(b"a"), offset_value(7)))
    (directory / "__consumer_offsets-0").rename(directory / "__consumer_offsets-1")
    rows = answered("--group", "a", "--group", "b", directory)
    assert {row["group"]: row["state"] for row in of_type("group", rows)} == {
        "a": "Empty",
        "b": None,
    }
    (summary,) = of_type("summary", rows)
    assert summary["unknown_groups"] == ["b"]
    assert summary["consumer_offsets"] == {
        "partitions": 2,
        "is_count_known": False,
        "missing_partitions": [0],
        "unreadable_partitions": [],
    }


def test_a_group_that_is_in_no_partition_is_a_usage_error(clean_dirs: tuple[Path, ...]) -> None:
    outcome = groups("--group", "nobody", *clean_dirs)
    assert b"no group 'nobody'" in outcome.stderr
    assert outcome.exit_status == 16


def test_an_offset_past_its_retention_is_shown_as_expired(
    clean_dirs: tuple[Path, ...],
) -> None:
    config = ("--config", "offsets.retention.minutes=1", "--now", "2027-01-01")
    rows = of_type("offset", answered("--group", "simple-assign", *config, *clean_dirs))
    assert [row["is_expired"] for row in rows] == [True, True]


def test_an_offset_of_an_earlier_topic_of_the_same_name_has_no_lag(tmp_path: Path) -> None:
    earlier = offset_value(2, topic_id=uuid.UUID(int=7))
    current = offset_value(2, topic_id=TOPIC_ID)
    directory = directory_of(
        tmp_path, (offset_key(b"earlier"), earlier), (offset_key(b"current"), current)
    )
    write_partition(directory / "orders-0", {0: b"".join(batches(1))})
    found = {
        row["group"]: (row["topic_state"], row["lag"], row["note"])
        for row in of_type("offset", answered("--config", NO_EXPIRY, directory))
    }
    assert found == {
        "earlier": ("recreated", None, "committed for an earlier topic of this name"),
        "current": ("live", 1, ""),
    }


def test_an_offset_without_a_topic_id_past_the_end_of_a_younger_topic_is_named(
    tmp_path: Path,
) -> None:
    directory = directory_of(tmp_path, (offset_key(b"g"), offset_value(500)))
    write_partition(directory / "orders-0", {0: b"".join(batches(1))})
    (row,) = of_type("offset", answered("--config", NO_EXPIRY, directory))
    # kafka-consumer-groups shows a negative lag, too.
    assert (row["topic_state"], row["lag"]) == ("live", -497)
    assert row["note"] == "past the end of the log"


def test_a_replica_of_an_earlier_topic_is_not_the_log_that_a_group_reads(
    cluster_dirs: tuple[Path, ...], tmp_path: Path
) -> None:
    metadata = cluster_dirs[0] / "__cluster_metadata-0"
    root = tmp_path / "logs"
    directory = directory_of(tmp_path, (offset_key(b"g", b"txn-hang"), offset_value(2)))
    shutil.copytree(metadata, root / metadata.name)
    # Its topic id is not the one that the metadata has.
    write_partition(directory / "txn-hang-0", {0: b"".join(batches(1))})
    (row,) = of_type("offset", answered(directory))
    assert (row["log_end_offset"], row["lag"], row["topic_state"]) == (None, None, "live")


def test_only_the_topics_that_groups_read_are_asked_for_their_id(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, (offset_key(b"g"), offset_value(1)))
    for name in ("orders-0", "users-0"):
        write_partition(directory / name, {0: b"".join(batches(1))})
    (directory / "users-0" / PARTITION_METADATA).write_bytes(b"damaged")
    (row,) = of_type("offset", answered("--config", NO_EXPIRY, directory))
    assert (row["topic"], row["topic_state"]) == ("orders", "live")


def test_the_tombstone_of_an_update_keeps_a_share_coordinator_from_loading(tmp_path: Path) -> None:
    directory = write_log_directory(tmp_path / "logs")
    key = b"\0\1" + text_field(b"g") + bytes(16) + bytes(4)
    write_partition(directory / "__share_group_state-0", {0: batch([record(0, key, None)])})
    outcome = groups(directory)
    assert b"a coordinator does not load it: 1 tombstone of updates" in outcome.stderr
    assert outcome.exit_status == 4
