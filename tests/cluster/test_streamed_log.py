"""A stream of Spark beside a busy broker has each record once, also if it is killed.

Clients write on when the stream has read, and the broker deletes what was read, and nothing else:
no stream is too slow for it.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from builders import busy_broker
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory
from builders.ports import HOST
from builders.streamed_log import StreamedLog
from builders.waiting import until

pytestmark = [ON_BOTH_KAFKAS, pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

TOPICS: Final = ("events", "keyed", "ledger")
DELETED: Final = ("events", "ledger")
"""Topics whose records the broker may delete."""
ROUNDS: Final = 20
"""Of each producer, for each micro-batch; what two have is still unread."""
BATCH_OFFSETS: Final = 3 * 50 * ROUNDS
RUNS: Final = 2
BATCHES: Final = 3


@contextmanager
def what_was_read_is_deleted(address: str, stream: StreamedLog) -> Iterator[None]:
    """Delete the records of the micro-batches that were finished, all the time."""
    admin = AdminClient(busy_broker.connection(address))
    stop = threading.Event()

    def delete() -> None:
        before: dict[tuple[str, int], int] = {}
        while not stop.wait(0.1):
            if (ends := stream.finished_offsets()) == before:
                continue
            read = [
                TopicPartition(*place, offset)
                for place, offset in ends.items()
                if place[0] in DELETED
            ]
            for deleted in admin.delete_records(read).values():
                deleted.result()
            before = ends

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete)
        try:
            yield
        finally:
            stop.set()
            deleting.result()


def begins_at(log_dirs: list[Path], partition: str) -> int:
    """The base offset of the first segment of a partition."""
    return min(int(each.stem) for path in log_dirs for each in path.glob(f"{partition}/*.log"))


@pytest.fixture(scope="module")
def streamed(
    cluster_jvms: ClusterJvms, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[pa.Table]:
    """Return what a stream gave out that was killed several times."""
    node = Node(1, ("d1", "d2"), "broker,controller")
    with in_memory(tmp_path_factory.mktemp("streamed")) as folder:
        shutil.copytree(fixtures / "out" / "clean", folder / "clean")
        broker = KraftCluster(
            cluster_jvms, folder / "clean", [node], properties=ALONE | busy_broker.PROPERTIES
        )
        stream = StreamedLog(
            broker.log_dirs(),
            folder,
            startingOffsets="earliest",
            subscribe=",".join(TOPICS),
            columns="topic,partition,offset,key,value",
            maxOffsetsPerTrigger=str(BATCH_OFFSETS),
            **{"kafka.isolation.level": "read_committed"},
        )
        address = f"{HOST}:{node.client_port}"
        with broker.running() as clients:
            for topic in TOPICS:
                clients.create_topic(topic, 3, replicas=1)
                configs = busy_broker.TOPICS[topic] | {"retention.bytes": "-1"}
                clients.configure("TOPIC", topic, **configs)
            with what_was_read_is_deleted(address, stream):
                with busy_broker.busy(address, most_rounds=lambda: ROUNDS * (2 + stream.finished)):
                    for _ in range(RUNS):
                        stream.run_and_kill(BATCHES)
                stream.run()
                until(
                    lambda: begins_at(broker.log_dirs(), "events-0") > 0,
                    "records of events-0 are deleted",
                )
        yield stream.rows()


def numbers_of(streamed: pa.Table, topic: str) -> list[int]:
    """Return the numbers of the records of a topic, in no order."""
    values = streamed.filter(pc.field("topic") == topic)["value"].to_pylist()
    numbers = [int(value.partition(b":")[0]) for value in values]
    assert values == list(map(busy_broker.value_of, numbers))
    assert len(set(numbers)) == len(numbers) > BATCHES * RUNS
    return numbers


def test_each_record_of_a_log_that_is_not_compacted_is_there_once(streamed: pa.Table) -> None:
    assert numbers_of(streamed, "events")
    for number in range(3):
        own = (pc.field("topic") == "events") & (pc.field("partition") == number)
        offsets = sorted(streamed.filter(own)["offset"].to_pylist())
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_the_last_record_of_each_key_of_a_compacted_log_is_there(streamed: pa.Table) -> None:
    numbers = numbers_of(streamed, "keyed")
    last = max(numbers)
    assert set(range(last - busy_broker.KEYS + 1, last + 1)) <= set(numbers)


def test_no_record_of_an_aborted_transaction_is_there(streamed: pa.Table) -> None:
    assert not [each for each in numbers_of(streamed, "ledger") if each // 50 % 3 == 0]
