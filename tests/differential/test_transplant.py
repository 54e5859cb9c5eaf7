"""A partition of one real cluster in a broker of another: what its clients read and write.

The source is a broker's disk of a cluster with other ids and with leader epochs above those of the
target. A broker of the target is stopped, gets the partitions, and is started again.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.broker import BrokerHost, Consumed, Key, ProducerSeen, Value
from builders.in_process import run_kdump
from builders.json_answers import objects
from kdump.formats import names

pytestmark = [pytest.mark.differential, pytest.mark.slow]

PLAIN: Final = "orders-0"
ENDED: Final = "txn-a-0"
"""Committed and aborted transactions of three producers."""
HANGING: Final = "txn-hang-0"
"""Two transactions are open."""
SOURCES: Final = {
    "plain": (PLAIN, "refuse"),
    "ended": (ENDED, "refuse"),
    "aborted": (HANGING, "abort"),
    "truncated": (HANGING, "truncate"),
}
"""Topic of the target: the source, and what is done with open transactions."""
NEW: Final[list[tuple[Key, Value]]] = [(b"new-%d" % n, b"value") for n in range(7)]
EVEN_NEWER: Final[list[tuple[Key, Value]]] = [(b"newer-%d" % n, b"value") for n in range(5)]
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What clients saw of the target, by topic, and what kdump said."""

    told: dict[str, dict[str, Any]]
    at_first: dict[str, Consumed]
    producers_at_first: dict[str, dict[int, ProducerSeen]]
    continued: dict[str, Consumed]
    after_a_crash: dict[str, Consumed]
    producers_after_a_crash: dict[str, dict[int, ProducerSeen]]
    strays: list[str]


def place_of(log_dirs: list[Path], topic: str) -> Path:
    (found,) = [each for each in log_dirs if (each / f"{topic}-0").is_dir()]
    return found


def transplant(source: Path, log_dir: Path, topic: str, action: str) -> dict[str, Any]:
    outcome = run_kdump(
        [
            *("transplant", str(source), "--into", str(log_dir), "--topic", topic),
            *("--partition", "0", "--open-transactions", action, "--output", "jsonl"),
        ],
        Path.cwd(),
    )
    assert outcome.exit_status == 1, outcome.stderr
    return next(each for each in objects(outcome.stdout) if each["type"] == "partition")


@pytest.fixture(scope="module")
def seen(broker_host: BrokerHost, broker_log_dirs: list[Path], fixtures: Path) -> Seen:
    host, log_dirs = broker_host, broker_log_dirs
    with host.broker(log_dirs):
        for topic in SOURCES:
            host.create_topic(topic, retention_ms="-1")
    told = {
        topic: transplant(
            fixtures / "states" / "clean" / "b1-d1" / source,
            place_of(log_dirs, topic),
            topic,
            action,
        )
        for topic, (source, action) in SOURCES.items()
    }
    with host.broker(log_dirs):
        at_first = {topic: host.read(topic) for topic in SOURCES}
        producers_at_first = {topic: host.producers_of(topic) for topic in SOURCES}
        host.open_producer("p", "enable.idempotence=true")
        for topic in SOURCES:
            host.send("p", topic, DAY_MS, NEW)
        continued = {topic: host.read(topic) for topic in SOURCES}
    for log_dir in log_dirs:
        (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()
    with host.broker(log_dirs):
        for topic in SOURCES:
            host.send("p", topic, DAY_MS, EVEN_NEWER)
        after = {topic: host.read(topic) for topic in SOURCES}
        producers_after = {topic: host.producers_of(topic) for topic in SOURCES}
    strays = [each.name for path in log_dirs for each in path.glob("*-stray")]
    return Seen(told, at_first, producers_at_first, continued, after, producers_after, strays)


def in_the_old_cluster(fixtures: Path, source: str) -> dict[int, tuple[Key, Value]]:
    """All records that a consumer read in the old cluster, committed or not."""
    path = fixtures / "states" / "clean" / "manifest.records" / f"{source}.jsonl"
    rows = map(json.loads, path.read_text().splitlines())
    return {row["offset"]: (_content(row["key"]), _content(row["value"])) for row in rows}


def _content(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def said_of(fixtures: Path, source: str) -> dict[str, Any]:
    """What the tools said of the partition in the old cluster."""
    manifest = json.loads((fixtures / "states" / "clean" / "manifest.json").read_text())
    topic, _, number = source.rpartition("-")
    said: dict[str, Any] = manifest["topics"][topic]["partitions"][number]
    return said


@pytest.mark.parametrize("topic", SOURCES)
def test_the_records_are_those_of_the_old_cluster(topic: str, seen: Seen, fixtures: Path) -> None:
    source, action = SOURCES[topic]
    said, found = said_of(fixtures, source), seen.at_first[topic]
    written = in_the_old_cluster(fixtures, source)
    assert found.records.items() <= written.items()
    # The open transactions hid committed records after them; their own stay invisible.
    if action == "abort":
        assert said["read_committed"]["count"] <= len(found.records) < len(written)
        assert found.end_offset == seen.told[topic]["log_end_offset"]
    else:
        assert len(found.records) == said["read_committed"]["count"]
    if action == "truncate":
        assert found.end_offset == said["latest_committed"]["offset"]


@pytest.mark.parametrize("topic", ["plain", "ended"])
def test_leader_epochs_are_lowered_to_the_targets(topic: str, seen: Seen) -> None:
    assert seen.told[topic]["highest_leader_epoch"] > seen.told[topic]["lowered_to_epoch"]


@pytest.mark.parametrize("topic", SOURCES)
def test_a_consumer_reads_across_the_seam(topic: str, seen: Seen) -> None:
    at_first, continued = seen.at_first[topic], seen.continued[topic]
    told = seen.told[topic]
    assert at_first.start_offset == told["log_start_offset"]
    assert at_first.end_offset == told["log_end_offset"]
    offsets = range(told["log_end_offset"], told["log_end_offset"] + len(NEW))
    assert continued.records == {**at_first.records, **dict(zip(offsets, NEW, strict=True))}


@pytest.mark.parametrize("topic", SOURCES)
def test_an_idempotent_producer_goes_on_also_after_a_crash(topic: str, seen: Seen) -> None:
    assert seen.producers_at_first[topic] == {}
    (producer,) = seen.producers_after_a_crash[topic].values()
    assert producer.last_sequence == len(NEW) + len(EVEN_NEWER) - 1
    assert len(seen.after_a_crash[topic].records) == (
        len(seen.continued[topic].records) + len(EVEN_NEWER)
    )


def test_no_partition_becomes_stray(seen: Seen) -> None:
    # What the transplant itself has put aside is kept for an undo.
    assert [name for name in seen.strays if ".kdump-" not in name] == []
