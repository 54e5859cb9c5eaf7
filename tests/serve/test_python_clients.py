"""The clients of other projects, which decode batches and lead groups in their own way."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any, Final

import aiokafka
import kafka
import pytest

from builders.serving import PATIENCE_S, Read, RunningServer

pytestmark = pytest.mark.slow

TOPICS: Final = (
    *("orders", "payments", "txn-a", "txn-hang", "users"),
    *("codec-gzip", "codec-lz4", "codec-snappy", "codec-zstd"),
)
"""Topics with transactions, all codecs, and logs that were compacted."""
LEVELS: Final = pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])


@pytest.fixture(scope="module")
def partitions(fixtures: Path) -> list[tuple[str, int]]:
    said = json.loads((fixtures / "states" / "clean" / "manifest.json").read_text())
    return [
        (topic, int(number)) for topic in TOPICS for number in said["topics"][topic]["partitions"]
    ]


def options(server: RunningServer, **others: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": server.address,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **others,
    }


def read_by_kafka_python(
    server: RunningServer, partitions: list[tuple[str, int]], **others: Any
) -> dict[tuple[str, int], list[Read]]:
    consumer = kafka.KafkaConsumer(**options(server, **others))
    try:
        every = [kafka.TopicPartition(*each) for each in partitions]
        ends = consumer.end_offsets(every)
        consumer.assign(every)
        found: dict[tuple[str, int], list[Read]] = {each: [] for each in partitions}
        for _ in itertools.repeat(None, 10_000):
            if all(consumer.position(each) >= ends[each] for each in every):
                return found
            for key, records in consumer.poll(timeout_ms=1_000).items():
                found[key.topic, key.partition] += map(plain, records)
        raise AssertionError("it does not come to the end")
    finally:
        consumer.close()


async def read_by_aiokafka(
    server: RunningServer, partitions: list[tuple[str, int]], level: str
) -> dict[tuple[str, int], list[Read]]:
    async with aiokafka.AIOKafkaConsumer(**options(server, isolation_level=level)) as consumer:
        every = [aiokafka.TopicPartition(*each) for each in partitions]
        consumer.assign(every)
        ends = await consumer.end_offsets(every)
        found: dict[tuple[str, int], list[Read]] = {each: [] for each in partitions}
        for _ in itertools.repeat(None, 10_000):
            positions = [(await consumer.position(each)) >= ends[each] for each in every]
            if all(positions):
                return found
            for key, records in (await consumer.getmany(timeout_ms=1_000)).items():
                found[key.topic, key.partition] += map(plain, records)
        raise AssertionError("it does not come to the end")


def plain(record: Any) -> Read:
    return Read(record.offset, record.key, record.value, record.timestamp)


@LEVELS
def test_kafka_python_reads_what_librdkafka_reads(
    level: str, dead_cluster: RunningServer, partitions: list[tuple[str, int]]
) -> None:
    found = read_by_kafka_python(dead_cluster, partitions, isolation_level=level)
    assert found == dead_cluster.read(partitions, level)


@pytest.mark.parametrize(
    "version", [(0, 11), (2, 1), (3, 5)], ids=lambda each: f"{each[0]}.{each[1]}"
)
def test_requests_of_older_versions_of_kafka_are_answered(
    version: tuple[int, int], dead_cluster: RunningServer, partitions: list[tuple[str, int]]
) -> None:
    found = read_by_kafka_python(dead_cluster, partitions, api_version=version)
    assert found == dead_cluster.read(partitions)


@LEVELS
def test_aiokafka_reads_what_librdkafka_reads(
    level: str, dead_cluster: RunningServer, partitions: list[tuple[str, int]]
) -> None:
    found = asyncio.run(read_by_aiokafka(dead_cluster, partitions, level))
    assert found == dead_cluster.read(partitions, level)


def test_a_group_of_kafka_python_goes_on_where_it_has_committed(
    dead_cluster_of_a_test: RunningServer,
) -> None:
    def next_offset() -> int:  # of the only partition
        consumer = kafka.KafkaConsumer(
            "codec-zstd", **options(dead_cluster_of_a_test, group_id="kafka-python")
        )
        try:
            polled = consumer.poll(timeout_ms=PATIENCE_S * 1_000, max_records=1)
            ((key, (record,)),) = polled.items()
            metadata = kafka.OffsetAndMetadata(record.offset + 1, "", -1)
            consumer.commit({key: metadata})
            offset = record.offset
            assert isinstance(offset, int)
            return offset
        finally:
            consumer.close()

    first = next_offset()
    assert next_offset() > first


def test_a_group_of_aiokafka_goes_on_where_it_has_committed(
    dead_cluster_of_a_test: RunningServer,
) -> None:
    async def next_offset() -> int:  # of the only partition
        given = options(dead_cluster_of_a_test, group_id="aiokafka")
        async with aiokafka.AIOKafkaConsumer("codec-zstd", **given) as consumer:
            record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            key = aiokafka.TopicPartition(record.topic, record.partition)
            await consumer.commit({key: record.offset + 1})
            offset = record.offset
            assert isinstance(offset, int)
            return offset

    first = asyncio.run(next_offset())
    assert asyncio.run(next_offset()) > first
