"""Spark's own source for Kafka reads what a dead cluster has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from builders.serving import RunningServer
from builders.spark_kafka import LEVELS, Rows, read_with_spark

pytestmark = [pytest.mark.soak, pytest.mark.slow]

TOPICS: Final = ("orders", "txn-a", "txn-hang", "codec-zstd", "codec-snappy", "users")


@pytest.fixture(scope="module")
def found(
    shared_dead_cluster: RunningServer,
    spark_kafka_jars: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Rows]:
    """What Spark reads, at both levels and as a stream."""
    folder = tmp_path_factory.mktemp("spark")
    return read_with_spark(
        spark_kafka_jars.glob("*.jar"), shared_dead_cluster.address, TOPICS, folder
    )


def expected(server: RunningServer, level: str) -> Rows:
    """What another client reads."""
    every = [(name, number) for name in TOPICS for number in server.cluster.topics[name].partitions]
    return {key: rows for key, rows in server.read(every, level).items() if rows}


@pytest.mark.parametrize("level", LEVELS)
def test_a_query_has_each_record_once(
    level: str, found: dict[str, Rows], dead_cluster: RunningServer
) -> None:
    assert found[level] == expected(dead_cluster, level)


def test_a_stream_has_each_record_once(found: dict[str, Rows], dead_cluster: RunningServer) -> None:
    assert found["stream"] == expected(dead_cluster, "read_uncommitted")
