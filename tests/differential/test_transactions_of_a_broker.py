"""``kdump txns`` on the disks of a broker is what the broker says when it runs."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from builders.broker import BrokerHost
from builders.in_process import run_kdump
from builders.json_answers import Row, objects
from builders.memory import in_memory
from builders.transaction_questions import (
    CoordinatorAnswer,
    OpenAnswer,
    PartitionAnswer,
    TransactionQuestions,
)
from builders.transaction_states import key_of, value_of
from kdump.formats.java.java_text import coordinator_partition

pytestmark = [pytest.mark.differential, pytest.mark.slow]

TOPICS: Final = ("ended", "ongoing", "hanging", "mixed")
COORDINATORS: Final = 2
"""Partitions of ``__transaction_state`` in the directories that the test begins with."""
OF_EACH: Final = ("tx-1", "tx-2")
"""Transactional ids in both of them."""
LONG: Final = "transaction.timeout.ms=800000"
FIND_HANGING: Final = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")


def ids_of_first_partition(name: str) -> Iterator[str]:
    """Transactional ids whose records are in partition 0, where the test can write."""
    candidates = (f"{name}-{number}" for number in itertools.count())
    return (each for each in candidates if coordinator_partition(each, COORDINATORS) == 0)


@dataclass(frozen=True, slots=True)
class Story:
    """Observations of one broker.

    ``running`` are kdump's rows of a copy that was made while the broker ran, ``stopped`` those
    after it was stopped; the rest are the answers of the broker that was started then. ``after`` is
    what was left hanging after the commands of ``stopped`` were run.
    """

    running: list[Row]
    stopped: list[Row]
    coordinators: dict[str, CoordinatorAnswer]
    partitions: dict[str, PartitionAnswer]
    hanging: list[str]
    after: list[str]
    left: dict[str, PartitionAnswer]


@pytest.fixture(scope="module")
def log_dirs(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Give a copy of the directories of a broker that was stopped cleanly."""
    with in_memory(tmp_path_factory.mktemp("transactions")) as folder:
        shutil.copytree(fixtures / "out" / "clean", folder / "clean")
        yield [folder / "clean" / name for name in ("d1", "d2")]


@pytest.fixture(scope="module")
def story(broker_host: BrokerHost, log_dirs: list[Path]) -> Story:
    """Run the scenario."""
    ask = TransactionQuestions(broker_host)
    with broker_host.broker(log_dirs):
        write(broker_host, ask)
        # A broker renames such a file while it is copied.
        unfinished = shutil.ignore_patterns("*.tmp")
        copies = [
            shutil.copytree(each, each.parent / f"{each.name}-copy", ignore=unfinished)
            for each in log_dirs
        ]
        running = rows_of(copies)
        for each in copies:
            shutil.rmtree(each)
    stopped = rows_of(log_dirs)
    with broker_host.broker(log_dirs):
        coordinators, partitions = ask.coordinators(*OF_EACH), ask.partitions()
        hanging = ask.run_tool(FIND_HANGING)
        for row in of_type(stopped, "open_transaction"):
            if row["is_hanging"]:
                command = row["end_command"].split(" ")
                ask.run_tool(command[3:])
        after, left = ask.run_tool(FIND_HANGING), ask.partitions()
    return Story(running, stopped, coordinators, partitions, hanging, after, left)


def write(host: BrokerHost, ask: TransactionQuestions) -> None:
    """Let transactions end, go on, and hang."""
    now_ms = round(time.time() * 1000)
    pairs = [(b"key", b"value")] * 3
    for topic in TOPICS:
        host.create_topic(topic)
    hanging = ids_of_first_partition("txns-hanging")
    names = ["txns-ended", "txns-ongoing", *itertools.islice(hanging, 2)]
    for name in names:
        host.open_producer(name, f"transactional.id={name}", LONG)
    for commits in (True, False, True):
        with host.transaction(names[0], commits=commits):
            host.send(names[0], "ended", now_ms, pairs)
            host.send(names[0], "mixed", now_ms, pairs)
            ask.commit_offset(names[0], "group-ended", "ended", 3)
    host.begin(names[1])
    host.send(names[1], "ongoing", now_ms, pairs)
    host.send(names[1], "mixed", now_ms, pairs)
    ask.commit_offset(names[1], "group-ongoing", "ended", 2)
    for name in names[2:]:
        host.begin(name)
        host.send(name, "hanging", now_ms, pairs)
        host.send(name, "hanging", now_ms, pairs)
    with host.transaction(names[0], commits=True):
        host.send(names[0], "mixed", now_ms, pairs)
        host.send(names[0], "hanging", now_ms, pairs)
    host.open_producer("forger", "client.id=__admin_client", "enable.idempotence=false")
    forged = list(itertools.islice(ids_of_first_partition("forged"), 5))
    records = [
        (key_of(names[2]), None),
        (key_of(names[3]), value_of(state=5, partitions=(), producer_id=424242)),
        (key_of(forged[0]), value_of(version=0, state=0, partitions=None, start_time_ms=-1)),
        (key_of(forged[1]), value_of(version=0, state=1, partitions=[("orders", [3, 1, 2])])),
        (key_of(forged[2]), value_of(tags={"client": 2, "previous": 5, "next": 6})),
        (key_of(forged[2]), value_of(version=2, state=4)),
        (key_of(forged[3]), value_of(state=4, partitions=())),
        (key_of(forged[3]), None),
        (b"\0\1\0\1a", b"a key of another version"),
        (key_of(forged[4]), value_of(state=5, partitions=(), timeout_ms=5)),
    ]
    host.send("forger", "__transaction_state", now_ms, records)


def rows_of(log_dirs: list[Path]) -> list[Row]:
    args = ("txns", "--output", "jsonl", "--max-transaction-timeout", "0")
    outcome = run_kdump([*args, *map(str, log_dirs)], Path.cwd())
    # A key and a value of other versions were written, which the broker skips.
    assert (outcome.exit_status, outcome.stderr.count(b"\n")) == (4, 1)
    assert b"__transaction_state-0: 2 records of an unknown version" in outcome.stderr
    return objects(outcome.stdout)


def of_type(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["type"] == kind]


def coordinators_in(rows: list[Row]) -> dict[str, CoordinatorAnswer]:
    return {
        row["transactional_id"]: CoordinatorAnswer(
            row["state"],
            row["producer_id"],
            row["producer_epoch"],
            row["timeout_ms"],
            row["start_time_ms"],
            tuple(sorted(row["partitions"])),
        )
        for row in of_type(rows, "transaction")
    }


def open_in(rows: list[Row]) -> dict[str, tuple[OpenAnswer, ...]]:
    found: dict[str, tuple[OpenAnswer, ...]] = {}
    for row in of_type(rows, "open_transaction"):
        epoch = row["coordinator_epoch"]
        answer = OpenAnswer(
            row["first_offset"],
            row["producer_id"],
            row["producer_epoch"],
            -1 if epoch is None else epoch,
            row["last_time_ms"],
        )
        name = f"{row['topic']}-{row['partition']}"
        found[name] = (*found.get(name, ()), answer)
    return found


def open_at(partitions: dict[str, PartitionAnswer]) -> dict[str, tuple[OpenAnswer, ...]]:
    return {
        name: each.open_transactions for name, each in partitions.items() if each.open_transactions
    }


def test_transactions_are_those_of_the_coordinators(story: Story) -> None:
    assert coordinators_in(story.stopped) == story.coordinators
    assert coordinators_in(story.running) == story.coordinators


def test_open_transactions_are_those_of_the_producers(story: Story) -> None:
    assert open_in(story.stopped) == open_at(story.partitions)
    assert open_in(story.running) == open_at(story.partitions)
    assert {"ongoing-0", "hanging-0", "mixed-0"} < open_in(story.stopped).keys()


def test_last_stable_offsets_are_those_of_the_broker(story: Story) -> None:
    found = {
        f"{row['topic']}-{row['partition']}": row["last_stable_offset"]
        for row in of_type(story.stopped, "partition")
    }
    assert found == {name: each.last_stable_offset for name, each in story.partitions.items()}


def test_hanging_transactions_are_those_of_find_hanging(story: Story) -> None:
    fields = ("topic", "partition", "producer_id", "producer_epoch", "first_offset")
    found = [
        [str(row[field]) for field in fields]
        for row in of_type(story.stopped, "open_transaction")
        if row["is_hanging"]
    ]
    table = [line.split() for line in story.hanging[1:]]
    assert sorted(found) == sorted([*line[:4], line[5]] for line in table)
    assert [line[0] for line in found] == ["hanging", "hanging"]


def test_the_commands_end_exactly_the_hanging_transactions(story: Story) -> None:
    assert story.after[1:] == []
    before = open_at(story.partitions)
    assert open_at(story.left) == {name: before[name] for name in before if name != "hanging-0"}
