"""Kafka's consumer gets the records of a log minus those that were erased."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.erasures import erased, is_named, random_erasure, records_of
from builders.java_server import JavaServer

pytestmark = [pytest.mark.differential, pytest.mark.slow]

PROGRAM: Final = "org.apache.kafka.clients.consumer.internals.ConsumerServer"
CASES: Final = 150


@pytest.fixture(scope="module", params=["java_classpath", "newest_consumer_classpath"])
def consumer(request: pytest.FixtureRequest) -> Iterator[JavaServer]:
    with JavaServer(request.getfixturevalue(request.param), PROGRAM) as running:
        yield running


def test_exactly_the_named_records_are_gone(consumer: JavaServer, tmp_path: Path) -> None:
    def consumed(log: bytes) -> list[int]:
        path = tmp_path / "consumed.log"
        path.write_bytes(log)
        (offsets,) = consumer.ask_words([str(path), f"0-{len(log)}"]).values()
        return [int(each) for each in offsets.split()]

    changed = 0
    for seed in range(CASES):
        log, named = random_erasure(random.Random(seed))
        gone = {each[0] for each in records_of(log) if is_named(named, each)}
        before = consumed(log)

        after = consumed(erased(tmp_path / f"{0:020d}.log", log, named))

        assert after == [offset for offset in before if offset not in gone], seed
        changed += after != before
    assert changed > CASES / 3
