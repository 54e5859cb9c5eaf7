"""``--kafka-version``: the rules of the broker that will start, and of a later one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batch, record
from builders.freeing import of_type
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import offset_checkpoint, write_partition
from builders.metadata_log import (
    TOPIC_RESOURCE,
    config_record,
    feature_record,
    topic_record,
    write_metadata_log,
)
from builders.verified import LogModel
from kdump.errors import ExitStatus
from kdump.formats import names
from kdump.formats.clean_shutdown import encode_clean_shutdown
from kdump.formats.transaction_index import AbortedTxn, encode
from kdump.state.metadata.cluster import ClusterImage
from kdump.state.metadata.settings import Settings

OLD: Final = ["--kafka-version=4.3.1"]
NEW: Final = ["--kafka-version=4.4.0"]


def verified(path: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    outcome = run_kdump(["verify", str(path), "--output", "jsonl", *options], path)
    return outcome.exit_status, of_type(objects(outcome.stdout), "finding")


@pytest.mark.parametrize("version", [1, -1])
def test_a_transaction_index_of_another_version_keeps_a_newer_broker_from_starting(
    version: int, tmp_path: Path
) -> None:
    partition = LogModel().write(tmp_path / "logs")
    index = next(partition.glob("*.txnindex"), None) or partition / "00000000000000000012.txnindex"
    index.write_bytes(encode([AbortedTxn(7, 12, 13, 12, version)]))
    status, found = verified(partition.parent, *NEW, "--quick")
    assert status & ExitStatus.DAMAGE_LEFT
    assert "transaction-index-version" in {each["code"] for each in found}
    assert "load-refused" in {each["code"] for each in found}
    _, found = verified(partition.parent, *OLD, "--quick")
    assert not {"transaction-index-version", "load-refused"} & {each["code"] for each in found}
    _, found = verified(partition.parent, "--quick")
    assert "transaction-index-version" in {each["code"] for each in found}, "the newest is expected"


@pytest.fixture
def keyless(tmp_path: Path) -> Path:
    """A compacted log whose first segment ends with a record that compaction drops."""
    path = tmp_path / "logs"
    first = batch([record(0, b"a", b"1")]) + batch([record(1, None, b"2")])
    write_partition(path / "orders-0", {0: first, 2: batch([record(2, b"b", b"3")])})
    (path / names.REPLICATION_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({("orders", 0): 3}))
    (path / names.CLEAN_SHUTDOWN_MARKER).write_bytes(encode_clean_shutdown(-1))
    return path


def compacted(path: Path, *options: str) -> Outcome:
    config = ["--config=cleanup.policy=compact", "--no-undo", "--topic=orders"]
    return run_kdump(["compact", str(path), *config, *options], path)


@pytest.mark.parametrize(("options", "batches"), [(OLD, 2), (NEW, 1), ([], 1)])
def test_the_cleaner_keeps_an_empty_batch_by_the_rule_of_the_version(
    options: list[str], batches: int, keyless: Path
) -> None:
    assert compacted(keyless, *options).exit_status == ExitStatus.SOUND
    log = keyless / "orders-0" / "00000000000000000000.log"
    dumped = run_kdump(["dump-segment", "--output", "jsonl", str(log)], keyless)
    assert len(of_type(objects(dumped.stdout), "batch")) == batches


@pytest.mark.parametrize(
    ("level", "reason"), [(3, "3.3"), (21, "3.9"), (30, "4.3"), (33, "4.4"), (77, "4.4")]
)
def test_the_version_is_at_least_that_of_the_clusters_metadata(level: int, reason: str) -> None:
    settings = Settings(cluster=ClusterImage({}, {}, metadata_version=level))
    assert str(settings.kafka_version) == reason
    assert settings.kafka_version_reason == f"metadata.version {level} of the cluster"
    registered = ClusterImage({}, {}, metadata_version=level, known_levels={1: 33})
    assert str(Settings(cluster=registered, node_id=1).kafka_version) == "4.4"
    assert str(Settings(cluster=registered, node_id=2).kafka_version) == reason


@pytest.mark.parametrize("text", ["4.5", "5.0.0", "x", "4", ""])
def test_an_unknown_version_is_refused(text: str, tmp_path: Path) -> None:
    outcome = run_kdump(["verify", str(tmp_path), f"--kafka-version={text}"], tmp_path)
    assert outcome.exit_status == ExitStatus.USAGE


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], "upgrade-topic-config"),
        (["--kafka-version=3.9.1"], "upgrade-topic-config"),
        (NEW, "topic-config-refused"),
        (OLD, "topic-config-refused"),
    ],
)
def test_what_only_a_later_version_refuses_is_advice(
    options: list[str], code: str, tmp_path: Path
) -> None:
    partition = LogModel().write(tmp_path / "logs")
    small = config_record(TOPIC_RESOURCE, "orders", "segment.bytes", "16384")
    level = feature_record("metadata.version", 21)
    write_metadata_log(partition.parent, [level, topic_record("orders", 4711), small])
    _, found = verified(partition.parent, *options)
    codes = {"upgrade-topic-config": "info", "topic-config-refused": "severe"}
    assert [(each["code"], each["severity"]) for each in found if each["code"] in codes] == [
        (code, codes[code])
    ]


def test_reports_say_which_kafka_they_speak_of(keyless: Path) -> None:
    unconfigured = b"by the rules of Kafka 4.4: the newest that this kdump knows"
    for command in (["verify"], ["recover", "--dry-run"], ["retain", "--dry-run", "--topic=*"]):
        outcome = run_kdump([*command, str(keyless)], keyless)
        assert unconfigured in outcome.stdout.splitlines(), command
        outcome = run_kdump([*command, str(keyless), *OLD], keyless)
        assert b"by the rules of Kafka 4.3.1: --kafka-version" in outcome.stdout.splitlines()
    assert b"by the rules of Kafka 4.3.1" in compacted(keyless, *OLD).stdout


@pytest.mark.parametrize(
    "command",
    [
        ["verify"],
        ["recover", "--dry-run"],
        ["retain", "--dry-run", "--topic=*"],
        ["compact", "--dry-run", "--all-compacted", "--config=cleanup.policy=compact"],
    ],
)
def test_json_says_which_kafka_it_speaks_of(command: list[str], keyless: Path) -> None:
    for options, version, reason in (
        ([], "4.4", "the newest that this kdump knows"),
        (OLD, "4.3.1", "--kafka-version"),
    ):
        arguments = [*command, str(keyless), *options, "--output", "jsonl"]
        (summary,) = of_type(objects(run_kdump(arguments, keyless).stdout), "summary")
        assert summary["kafka"] == [{"version": version, "reason": reason}]


def test_the_page_says_which_kafka_it_speaks_of(keyless: Path) -> None:
    run_kdump(["report", str(keyless), *OLD, "--out", str(keyless.parent / "page.html")], keyless)
    page = (keyless.parent / "page.html").read_text()
    assert "<span>by the rules of Kafka 4.3.1: --kafka-version</span>" in page
