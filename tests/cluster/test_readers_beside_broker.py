"""Commands that read a directory beside a busy broker find no damage, and each record once."""

from __future__ import annotations

import csv
import io
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from builders import busy_broker
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.in_process import Outcome, run_kdump
from builders.kraft_cluster import KraftCluster
from builders.lock_holder import complaints
from builders.memory import in_memory
from builders.ports import HOST
from builders.served_process import served

pytestmark = [
    ON_BOTH_KAFKAS,
    pytest.mark.usefixtures("running_spark"),
    pytest.mark.soak,
    pytest.mark.differential,
    pytest.mark.slow,
]

ROUNDS: Final = 4
QUERY_ROUNDS: Final = 2
"""Of queries, which take as long as all other commands."""
PATIENCE_S: Final = 120
PARTITIONS: Final = {(topic, number) for topic in busy_broker.TOPICS for number in range(3)}
COUNTS_OF_FILES: Final = (
    "SELECT (SELECT COUNT(*) FROM segments), (SELECT COUNT(*) FROM partitions),"
    " (SELECT COUNT(*) FROM batches)"
)
COMMANDS: Final = {
    ("ls",): 0,
    ("info",): 0,
    ("verify",): 0,
    ("groups",): 0,
    ("txns",): 0,
    ("lookup", "--timestamp", "latest"): 0,
    ("lookup", "--offset", "1000"): 0,
    ("grep", "no record has this"): 1,
    ("export", "--out", "exported"): 0,
    ("export", "--out", "exported", "--isolation-level", "read_committed"): 0,
    ("report", "--force", "--out", "report.html"): 0,
    ("query", COUNTS_OF_FILES): 0,
}
"""Commands over log directories, with the status that they have where nothing is wrong."""
COUNTS: Final = (
    "SELECT topic, partition, COUNT(*) AS records, COUNT(DISTINCT offset) AS offsets,"
    " MIN(offset) AS first, MAX(offset) AS last FROM records"
    " WHERE topic IN ('events', 'keyed', 'ledger') GROUP BY topic, partition"
)
CONTENTS: Final = (
    "SELECT COUNT(*) AS records, SUM(CASE WHEN CAST(key AS STRING) ="
    " CAST(CAST(split_part(CAST(value AS STRING), ':', 1) AS BIGINT)"
    f" % {busy_broker.KEYS} AS STRING) THEN 1 ELSE 0 END) AS sound FROM records"
    " WHERE topic IN ('events', 'keyed', 'ledger')"
)


@pytest.fixture(scope="module")
def log_dirs(
    cluster_jvms: ClusterJvms, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """Return the log directories of a broker that is busy as long as the tests run."""
    node = Node(1, ("d1", "d2"), "broker,controller")
    with in_memory(tmp_path_factory.mktemp("busy")) as folder:
        shutil.copytree(fixtures / "out" / "clean", folder / "clean")
        broker = KraftCluster(
            cluster_jvms, folder / "clean", [node], properties=ALONE | busy_broker.PROPERTIES
        )
        with broker.running(), busy_broker.busy(f"{HOST}:{node.client_port}"):
            time.sleep(3)
            yield list(map(str, broker.log_dirs()))


def run(words: tuple[str, ...], log_dirs: list[str], folder: Path) -> Outcome:
    shutil.rmtree(folder / "exported", ignore_errors=True)
    return run_kdump([*words, *log_dirs], folder)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_reader_finds_nothing_wrong(
    words: tuple[str, ...], log_dirs: list[str], tmp_path: Path
) -> None:
    for _ in range(QUERY_ROUNDS if words[0] == "query" else ROUNDS):
        outcome = run(words, log_dirs, tmp_path)
        assert complaints(outcome) == []
        assert outcome.exit_status == COMMANDS[words], outcome.stdout


def rows(statement: str, log_dirs: list[str], folder: Path) -> list[dict[str, str]]:
    outcome = run(("query", "--output", "csv", statement), log_dirs, folder)
    assert complaints(outcome) == []
    assert outcome.exit_status == 0
    return list(csv.DictReader(io.StringIO(outcome.stdout.decode())))


def test_the_table_of_findings_has_no_damage(log_dirs: list[str], tmp_path: Path) -> None:
    for _ in range(QUERY_ROUNDS):
        damage = "SELECT code, path, what FROM findings WHERE severity <> 'info'"
        assert rows(damage, log_dirs, tmp_path) == []


def test_each_record_is_a_row(log_dirs: list[str], tmp_path: Path) -> None:
    for _ in range(QUERY_ROUNDS):
        found = rows(COUNTS, log_dirs, tmp_path)
        assert {row["topic"] for row in found} == busy_broker.TOPICS.keys()
        for row in found:
            assert row["records"] == row["offsets"]
            if row["topic"] == "events":  # retention only deletes its first records
                assert int(row["records"]) == int(row["last"]) - int(row["first"]) + 1


def test_records_are_what_was_written(log_dirs: list[str], tmp_path: Path) -> None:
    (row,) = rows(CONTENTS, log_dirs, tmp_path)
    assert int(row["sound"]) == int(row["records"]) > 0


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_consumer_of_served_logs_gets_each_record_once(level: str, log_dirs: list[str]) -> None:
    with served(["serve", *log_dirs], beside_broker=True) as address:
        for _ in range(ROUNDS):
            found = consumed(address, level)
            assert found.keys() == PARTITIONS
            for (topic, _number), offsets in found.items():
                assert offsets == sorted(set(offsets))
                if topic == "events":  # retention only deletes its first records
                    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def consumed(address: str, level: str) -> dict[tuple[str, int], list[int]]:
    """Read all partitions to where they end at first; each value has to be what was written."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "readers",
            "enable.auto.commit": False,
            "isolation.level": level,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    ends = {
        each: consumer.get_watermark_offsets(TopicPartition(*each), timeout=PATIENCE_S)[1]
        for each in PARTITIONS
    }
    consumer.assign([TopicPartition(*each, 0) for each in sorted(PARTITIONS)])
    found = defaultdict[tuple[str, int], list[int]](list)
    ended: set[tuple[str, int]] = set()
    until = time.monotonic() + PATIENCE_S
    while ended < PARTITIONS:
        assert time.monotonic() < until, PARTITIONS - ended
        for message in consumer.consume(1000, 0.5):
            place = (str(message.topic()), int(message.partition() or 0))
            failure, value = message.error(), message.value()
            if failure is not None:
                assert failure.code() == KafkaError._PARTITION_EOF, failure
                ended.add(place)
                continue
            assert value is not None
            assert value == busy_broker.value_of(int(value.partition(b":")[0]))
            found[place].append(int(message.offset() or 0))
            if found[place][-1] >= ends[place] - 1:
                ended.add(place)
    consumer.close()
    return found
