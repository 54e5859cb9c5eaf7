"""MirrorMaker 2 copies a dead cluster, which ``kdump serve`` serves, into a living broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import TopicPartition

from builders.broker import BrokerHost
from builders.mirror_maker import SOURCE, mirroring
from builders.serving import (
    CLUSTER,
    PATIENCE_S,
    Read,
    RunningServer,
    opened,
    opened_consumer,
    read_with,
)

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

TOPICS: Final = ("orders", "groups-in")
GROUP: Final = "g-classic"
MOST_S: Final = 240
Key = tuple[str, int]


class Mirrored(NamedTuple):
    """What the living broker has.

    Attributes:
        records: by topic and number, without offsets: the living broker gives its own.
        committed: offsets of the group.
    """

    records: dict[Key, list[Read]]
    committed: dict[Key, int]


@pytest.fixture(scope="module")
def dead(fixtures: Path) -> Iterator[RunningServer]:
    with opened(*(fixtures / "states" / "clean" / name for name in CLUSTER)) as running:
        yield running


@pytest.fixture(scope="module")
def expected(dead: RunningServer) -> Mirrored:
    """What another client finds in the dead cluster."""
    keys = [(topic, number) for topic in TOPICS for number in dead.cluster.topics[topic].partitions]
    records = dead.read(keys, "read_committed")
    return Mirrored(_without_offsets(records), _committed(dead.address, keys))


@pytest.fixture(scope="module")
def mirrored(
    dead: RunningServer,
    expected: Mirrored,
    broker_host: BrokerHost,
    broker_log_dirs: list[Path],
    mirror_maker_classpath: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Mirrored:
    """What the living broker has when all records and some offsets have arrived."""
    folder = tmp_path_factory.mktemp("mirror")
    classpath = mirror_maker_classpath
    with (
        broker_host.broker(broker_log_dirs),
        mirroring(classpath, dead.address, broker_host.address, TOPICS, [GROUP], folder) as log,
    ):
        deadline = time.monotonic() + MOST_S
        while True:
            found = _found(broker_host.address, expected)
            if _has_arrived(found, expected):
                return found
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(1)


def _found(address: str, expected: Mirrored) -> Mirrored:
    keys = [(f"{SOURCE}.{topic}", number) for topic, number in expected.records]
    with opened_consumer(address, group_id=GROUP) as consumer:
        topics = consumer.list_topics(timeout=PATIENCE_S).topics
        if not {(name, number) for name in topics for number in topics[name].partitions} >= {*keys}:
            return Mirrored({}, {})
        records = read_with(consumer, keys)
    return Mirrored(
        {_original(key): rows for key, rows in _without_offsets(records).items()},
        {_original(key): offset for key, offset in _committed(address, keys).items()},
    )


def _has_arrived(found: Mirrored, expected: Mirrored) -> bool:
    counts = {key: len(rows) for key, rows in expected.records.items()}
    is_whole = {key: len(rows) for key, rows in found.records.items()} == counts
    return is_whole and bool(found.committed)


def _original(key: Key) -> Key:
    return key[0].removeprefix(f"{SOURCE}."), key[1]


def _without_offsets(found: dict[Key, list[Read]]) -> dict[Key, list[Read]]:
    return {key: [each._replace(offset=0) for each in rows] for key, rows in found.items()}


def _committed(address: str, keys: list[Key]) -> dict[Key, int]:
    with opened_consumer(address, group_id=GROUP) as consumer:
        offsets = consumer.committed([TopicPartition(*key) for key in keys], timeout=PATIENCE_S)
    return {(each.topic, each.partition): each.offset for each in offsets if each.offset >= 0}


def test_the_records_are_those_of_the_dead_cluster(mirrored: Mirrored, expected: Mirrored) -> None:
    assert mirrored.records == expected.records


def test_the_group_goes_on_at_or_before_what_it_has_not_read(
    mirrored: Mirrored, expected: Mirrored
) -> None:
    """MirrorMaker knows the place of some records only: it takes one before, or none.

    The first record is at 0 there: so is an offset of the group at the start of a log.
    """
    assert any(mirrored.committed.values())
    for key, offset in mirrored.committed.items():
        assert 0 <= offset <= expected.committed[key]
