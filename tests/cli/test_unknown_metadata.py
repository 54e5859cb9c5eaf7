"""Metadata that this kdump does not know: it is named, and never lost in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from builders.batches import batch, record
from builders.freeing import of_type
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import write_partition
from builders.metadata_log import (
    TOPIC_RESOURCE,
    config_record,
    feature_record,
    partition_record,
    topic_record,
    write_metadata_log,
)
from builders.trees import contents_of
from kdump.errors import ExitStatus
from kdump.formats.feature_levels import HIGHEST_METADATA_VERSION, METADATA_VERSION
from kdump.formats.internal_topics import encode_cluster_metadata

CONTROLLER: Final = "4001@localhost:9093"
BEGINNING: Final = (
    feature_record(METADATA_VERSION, HIGHEST_METADATA_VERSION),
    topic_record("orders", 7),
    partition_record(7, 0, [1], [0x1234]),
    encode_cluster_metadata(
        "USER_SCRAM_CREDENTIAL_RECORD",
        0,
        {"name": "alice", "mechanism": 1, "salt": b"s", "iterations": 4096}
        | {"storedKey": b"k", "serverKey": b"k"},
    ),
)
CONFIG: Final = config_record(TOPIC_RESOURCE, "orders", "retention.ms", "1000")
LEVEL: Final = feature_record(METADATA_VERSION, 77)
PARTLY_KNOWN: Final = {
    "feature": (feature_record("future.version", 1), b"future.version"),
    "level of a feature": (feature_record("share.version", 9), b"share.version 9"),
    "type": (b"\x01\x63\x00something", b"99"),
    "version": (b"\x01\x04\x05" + CONFIG[3:], b"version 5 of CONFIG_RECORD"),
    "unreadable version": (b"\x01\x04\x05" + CONFIG[3:] + b"new", b"garbage"),
    "tag": (CONFIG[:-1] + b"\x01\x09\x02hi", b"CONFIG_RECORD has fields"),
}
ALL: Final = {"metadata.version": (LEVEL, b"metadata.version 77"), **PARTLY_KNOWN}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "d1"
    path.mkdir()
    (path / "meta.properties").write_text(
        "version=1\ncluster.id=mPHVX3oWRzmBMf7Uo2cEmw\nnode.id=1\n"
        "directory.id=AAAAAAAAAAAAAAAAAAASNA\n"
    )
    partition = write_partition(path / "orders-0", {0: batch([record(0, b"key", b"value")])})
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n")
    return path


def write(log_dir: Path, *more: bytes) -> None:
    write_metadata_log(log_dir, [*BEGINNING, *more], epoch=1)


def collected(log_dir: Path) -> Outcome:
    arguments = ["metadata", "collect", "--out", "c.json", str(log_dir)]
    return run_kdump(arguments, log_dir.parent)


def plan(folder: Path, *options: str) -> Outcome:
    arguments = ["metadata", "plan", "--controller", CONTROLLER, "--out", "p.json", *options]
    return run_kdump([*arguments, "c.json"], folder)


def apply(folder: Path) -> Outcome:
    return run_kdump(["metadata", "apply", "p.json", "controller"], folder)


def test_the_newest_level_that_is_known_is_no_problem(log_dir: Path) -> None:
    write(log_dir)
    assert collected(log_dir).exit_status == ExitStatus.SOUND
    assert plan(log_dir.parent).exit_status == ExitStatus.SOUND


def test_a_controller_that_was_unregistered_is_gone(log_dir: Path) -> None:
    fields = {"controllerId": 3001, "incarnationId": "AAAAAAAAAAAAAAAAAAAACQ"}
    fields |= {"zkMigrationReady": False, "endPoints": [], "features": []}
    write(
        log_dir,
        encode_cluster_metadata("REGISTER_CONTROLLER_RECORD", 0, fields),
        encode_cluster_metadata("UNREGISTER_CONTROLLER_RECORD", 0, {"controllerId": 3001}),
    )
    folder = log_dir.parent
    (shown,) = objects(answer(folder, "show", log_dir).stdout)
    assert shown["controllers"] == []
    events = of_type(objects(answer(folder, "history", log_dir).stdout), "event")
    assert [[each["event"], each["name"]] for each in events if each["entity"] == "controller"] == [
        ["registered", "3001"],
        ["unregistered", "3001"],
    ]
    found = of_type(objects(answer(folder, "diff", "--from", "4", log_dir).stdout), "difference")
    assert [[each["entity"], each["change"]] for each in found] == [["controller", "removed"]]


def answer(folder: Path, *arguments: str | Path) -> Outcome:
    return run_kdump(["metadata", *map(str, arguments), "--output", "jsonl"], folder)


@pytest.mark.parametrize("case", ALL)
def test_readers_name_it(case: str, log_dir: Path) -> None:
    unknown, named = ALL[case]
    write(log_dir, unknown)
    for arguments in (["show"], ["history"], ["diff", "--from", "0"]):
        outcome = run_kdump(["metadata", *arguments, str(log_dir)], log_dir.parent)
        assert outcome.exit_status & ExitStatus.DAMAGE_LEFT, arguments
        assert named in outcome.stderr, arguments
    outcome = collected(log_dir)
    assert outcome.exit_status == ExitStatus.DAMAGE_LEFT
    assert named in outcome.stderr


@pytest.mark.parametrize("case", PARTLY_KNOWN)
def test_a_plan_without_it_is_a_loss_to_be_accepted(case: str, log_dir: Path) -> None:
    unknown, named = PARTLY_KNOWN[case]
    write(log_dir, unknown)
    collected(log_dir)
    folder = log_dir.parent
    (folder / "controller").mkdir()
    refused = plan(folder)
    assert refused.exit_status == ExitStatus.DAMAGE_LEFT
    assert named in refused.stdout
    rebuilt = ["metadata", "rebuild", "--controller", CONTROLLER, "--into", "controller"]
    assert run_kdump([*rebuilt, str(log_dir)], folder).exit_status & ExitStatus.DAMAGE_LEFT
    assert not list((folder / "controller").iterdir())
    assert not (folder / "p.json").exists()
    assert plan(folder, "--accept-loss").exit_status == ExitStatus.SOUND
    planned = json.loads((folder / "p.json").read_text())
    assert [each["code"] for each in planned["notices"] if each["needs_acceptance"]] == [
        "unknown-records"
    ]
    assert [each["data"]["name"] for each in planned["scram"]] == ["alice"]
    assert apply(folder).exit_status == ExitStatus.SOUND


def test_no_plan_has_a_metadata_version_that_is_unknown(log_dir: Path) -> None:
    write(log_dir, LEVEL)
    collected(log_dir)
    folder = log_dir.parent
    for options in ([], ["--accept-loss"]):
        refused = plan(folder, *options)
        assert refused.exit_status == ExitStatus.USAGE
        assert b"metadata.version 77 is unknown" in refused.stderr
        assert b"--set feature.metadata.version=33" in refused.stderr
    lowered = ["--set", "feature.metadata.version=33"]
    assert plan(folder, *lowered).exit_status == ExitStatus.DAMAGE_LEFT
    assert plan(folder, *lowered, "--accept-loss").exit_status == ExitStatus.SOUND
    planned = json.loads((folder / "p.json").read_text())
    assert [each["data"]["name"] for each in planned["scram"]] == ["alice"]
    assert [topic["name"] for topic in planned["topics"]] == ["orders"]


def test_a_level_below_those_of_kafka_4_keeps_its_records(log_dir: Path) -> None:
    write_metadata_log(log_dir, [feature_record(METADATA_VERSION, 6), *BEGINNING[1:]], epoch=1)
    collected(log_dir)
    assert plan(log_dir.parent).exit_status == ExitStatus.USAGE
    raised = plan(log_dir.parent, "--set", "feature.metadata.version=25")
    assert raised.exit_status == ExitStatus.SOUND
    assert [
        each["data"]["name"]
        for each in json.loads((log_dir.parent / "p.json").read_text())["scram"]
    ] == ["alice"]


def test_a_collection_without_records_is_no_empty_copy(log_dir: Path) -> None:
    """Such as an older kdump wrote for a metadata.version that it did not know."""
    write(log_dir)
    collected(log_dir)
    path = log_dir.parent / "c.json"
    document = json.loads(path.read_text())
    metadata = document["log_directories"][0]["metadata"]
    metadata |= {"records": [], "problems": ["the metadata cannot be written as records"]}
    path.write_text(json.dumps(document))
    refused = plan(log_dir.parent)
    assert refused.exit_status == ExitStatus.DAMAGE_LEFT
    assert b"collect again" in refused.stdout


@pytest.mark.parametrize("case", ALL)
def test_a_reset_of_the_quorum_refuses_it(case: str, log_dir: Path) -> None:
    unknown, named = ALL[case]
    write(log_dir, unknown)
    before = contents_of(log_dir)
    outcome = run_kdump(["quorum", "reset", "--voter", CONTROLLER, str(log_dir)], log_dir.parent)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert named in outcome.stderr
    assert contents_of(log_dir) == before


@pytest.mark.parametrize("case", ALL)
def test_no_command_has_a_trace(case: str, log_dir: Path) -> None:
    unknown, _ = ALL[case]
    write(log_dir, unknown)
    for arguments in (
        *(["verify"], ["ls"], ["info"], ["groups"], ["txns"], ["quorum", "show"]),
        *(["recover", "--dry-run"], ["retain", "--dry-run"], ["compact", "--dry-run"]),
        *(["identity"], ["undelete", "--dry-run"]),
    ):
        run_kdump([*arguments, str(log_dir)], log_dir.parent)
    log = log_dir / "__cluster_metadata-0" / "00000000000000000000.log"
    outcome = run_kdump(["dump-segment", "--cluster-metadata-decoder", str(log)], log_dir)
    assert outcome.exit_status == ExitStatus.SOUND
