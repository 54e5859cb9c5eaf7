"""``kdump diff --elect``: who should lead the partitions without a leader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from builders.batches import batches
from builders.in_process import Outcome, run_kdump
from builders.json_answers import all_objects
from builders.json_schemas import problems_of_objects
from builders.log_directories import write_log_directory, write_partition
from builders.metadata_log import partition_record, topic_record, write_metadata_log
from builders.runbook import commands_of, words_of
from kdump.formats import names
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata

LOG: Final = batches(3)
TOPICS: Final = ("__consumer_offsets", "orders", "alone", "gone", "led")


def number_of(topic: str) -> int:
    """Return the number in the id of a topic."""
    return 100 + TOPICS.index(topic)


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """Write the disks of brokers 1 and 2, and the metadata: only ``led-0`` has a leader."""
    held = {
        1: {"__consumer_offsets-0": 2, "orders-0": 3, "alone-0": 3, "led-0": 3},
        2: {"__consumer_offsets-0": 3, "orders-0": 1, "led-0": 1},
    }
    for node, partitions in held.items():
        path = write_log_directory(tmp_path / f"b{node}")
        properties = path / "meta.properties"
        properties.write_text(re.sub(r"node.id=.*", f"node.id={node}", properties.read_text()))
        for name, count in partitions.items():
            topic_id = UUID(int=number_of(name.rpartition("-")[0]))
            metadata = encode_partition_metadata(PartitionMetadata(0, topic_id))
            write_partition(
                path / name,
                {0: b"".join(LOG[:count])},
                others={names.PARTITION_METADATA: metadata},
            )
    replicas = {"__consumer_offsets": (1, 2), "orders": (2, 1), "alone": (1,), "gone": (3,)}
    records = [
        record
        for topic, nodes in replicas.items()
        for record in (
            topic_record(topic, number_of(topic)),
            partition_record(number_of(topic), 0, nodes, nodes, leader=-1),
        )
    ]
    led = number_of("led")
    records += [topic_record("led", led), partition_record(led, 0, (1, 2), (1, 2))]
    write_metadata_log(write_log_directory(tmp_path / "controller"), records)
    return tmp_path


def elect(disks: Path, *args: str) -> Outcome:
    line = ["diff", "--elect", "elect.json", "--metadata", "controller", *args, "b1", "b2"]
    return run_kdump(line, disks)


def keys_in(path: Path) -> list[str]:
    partitions = json.loads(path.read_text())["partitions"]
    return [f"{each['topic']}-{each['partition']}" for each in partitions]


def told(output: str) -> list[str]:
    """Return the lines about partitions without a leader."""
    lines = output.splitlines()
    first = lines.index("4 partitions without a leader, by the cluster's metadata:") + 1
    return lines[first : first + 4]


def test_each_broker_gets_a_file_with_the_partitions_that_it_should_lead(disks: Path) -> None:
    elect(disks)
    assert keys_in(disks / "elect-1.json") == ["alone-0", "orders-0"]
    assert keys_in(disks / "elect-2.json") == ["__consumer_offsets-0"]


def test_what_each_choice_loses_is_said_internal_topics_first(disks: Path) -> None:
    assert told(elect(disks).stdout.decode()) == [
        "__consumer_offsets-0: elect broker 2, 0 records lost; broker 1: 3 records lost",
        "alone-0: elect broker 1, 0 records lost",
        "gone-0: none of its replicas is here: name the disks of broker 3",
        "orders-0: elect broker 1, 0 records lost; broker 2: 6 records lost",
    ]


def test_programs_get_the_same_as_objects(disks: Path) -> None:
    people = elect(disks).stdout.decode()
    for path in disks.glob("elect-*.json"):
        path.unlink()
    answer = all_objects(elect(disks, "--output", "json").stdout)
    assert list(problems_of_objects("diff", answer)) == []
    rows = [each for each in answer if each["type"] == "election"]
    assert [_said(each) for each in rows] == told(people)
    files = {each["file"]: keys_in(disks / each["file"]) for each in rows if each["file"]}
    assert files == {
        each["file"]: [_key(one) for one in rows if one["file"] == each["file"]]
        for each in rows
        if each["file"]
    }


def _key(election: dict[str, Any]) -> str:
    return f"{election['topic']}-{election['partition']}"


def _said(election: dict[str, Any]) -> str:
    """Say what an object says, as people are told."""
    if election["problem"]:
        return f"{_key(election)}: {election['problem']}"
    first, *others = (
        f"broker {each['node_id']}{{}} {each['lost_records']} records lost"
        for each in election["candidates"]
    )
    assert election["candidates"][0]["node_id"] == election["elected_node_id"]
    said = [f"elect {first.format(',')}", *(each.format(":") for each in others)]
    return f"{_key(election)}: {'; '.join(said)}"


def test_replicas_that_are_not_here_are_named(disks: Path) -> None:
    line = ["diff", "--elect", "elect.json", "--metadata", "controller", "b1"]
    said = run_kdump(line, disks).stdout.decode()
    assert (
        "orders-0: elect broker 1, 0 records lost; the replica of broker 2 is not here, and may"
        " have more" in said
    )


def test_the_brokers_to_elect_are_started_one_after_the_other(disks: Path) -> None:
    said = elect(disks).stdout.decode()
    assert "start broker 1 without the other brokers, elect its 2 partitions, and stop it:" in said
    assert "--election-type unclean --path-to-json-file elect-2.json" in said


def test_only_selected_partitions_are_elected(disks: Path) -> None:
    elect(disks, "--topic", "orders")
    assert [path.name for path in disks.glob("*.json")] == ["elect-1.json"]


def test_the_log_of_a_single_replica_is_read_too(disks: Path) -> None:
    log = disks / "b1" / "alone-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    outcome = elect(disks)
    assert b"alone-0: elect broker 1, 0 records lost, and its log is damaged" in outcome.stdout
    assert b"alone-0" in outcome.stderr
    assert outcome.exit_status & 4


def test_a_file_that_exists_is_not_replaced(disks: Path) -> None:
    (disks / "elect-1.json").write_text("mine")
    assert elect(disks).exit_status == 16
    assert (disks / "elect-1.json").read_text() == "mine"
    assert not (disks / "elect-2.json").exists()


def test_the_runbook_leads_to_files_for_kafkas_tool(disks: Path) -> None:
    names = {
        "CONTROLLER": "controller",
        "TOPIC-N": "orders-0",
        "DIR...": "b1 b2",
        "DIR": "b1",
    }
    lines = [words_of(line, names)[1:] for line in commands_of("which-replica-leads")[:4]]
    found, _, salvage, records = [run_kdump(line, disks) for line in lines]
    assert keys_in(disks / "elect-1.json") == ["alone-0", "orders-0"]
    assert b"orders-0: elect broker 1" in found.stdout
    assert salvage.exit_status in (0, 1)
    assert b'"type": "record"' in records.stdout or b'"type":"record"' in records.stdout


def test_an_election_needs_the_metadata_of_the_cluster(disks: Path) -> None:
    outcome = run_kdump(["diff", "--elect", "elect.json", "b1", "b2"], disks)
    assert outcome.exit_status == 16
    assert b"--metadata" in outcome.stderr


def test_a_replica_that_becomes_stray_is_not_elected(disks: Path) -> None:
    """Its broker has no log after a start, however much the directory has."""
    (disks / "b1" / "orders-0" / names.PARTITION_METADATA).unlink()
    done = elect(disks)
    said = done.stdout.decode().splitlines()
    (orders,) = [line for line in said if line.startswith("orders-0: elect")]
    assert orders.startswith("orders-0: elect broker 2, 6 records lost; broker 1: no broker loads")
    assert "renames it to -stray; 'kdump verify --repair' writes the id" in done.stderr.decode()


def test_none_is_elected_where_all_replicas_become_stray(disks: Path) -> None:
    (disks / "b1" / "alone-0" / names.PARTITION_METADATA).unlink()
    said = elect(disks).stdout.decode()
    assert "alone-0: " in said
    assert "renames it to -stray" in said
    assert "alone-0" not in keys_in(disks / "elect-1.json")
