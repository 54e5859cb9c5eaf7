"""Measure ``kdump serve``; print the figure.

    python bench/served.py throughput [--pairs N]
    python bench/served.py start LOG_DIR
    python bench/served.py memory LOG_DIR
    python bench/served.py idle LOG_DIR

``throughput``: Kafka's ConsumerPerformance reads 3 M records of 200 bytes in two partitions from a
broker, and from ``kdump serve`` over the same disk: the broker's time, without that for the
rebalance, as a share of kdump's; the median of such pairs.

``start``: how many partitions are served for each second from the start of the program on.

``memory``: 200 MB as a share of the peak memory with fifty consumers.

``idle``: the share of ten seconds in which 1,000 idle connections leave the processor alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from builders import kafka_jars
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.kraft_cluster import KraftCluster
from builders.ports import HOST, free_port
from measuring import kdump

_NODE: Final = Node(1, ("d1",), "broker,controller")
_RECORDS: Final = 3_000_000
_RECORD: Final = os.urandom(200)
_PARTITIONS: Final = 2
_BATCH_BYTES: Final = 16 << 10
_FETCH_MS_COLUMN: Final = 7
_CONSUMERS: Final = 50
_RECORDS_EACH: Final = 40_000
_LIMIT_BYTES: Final = 200e6
_CONNECTIONS: Final = 1000
_IDLE_SECONDS: Final = 10.0


class Server(NamedTuple):
    """A running ``kdump serve``."""

    process: subprocess.Popen[str]
    address: str
    partitions: int

    def status(self, name: str) -> int:
        """Return a figure of /proc/PID/status, in bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (line,) = (each for each in lines if each.startswith(f"{name}:"))
        return int(line.split()[1]) << 10

    def cpu_seconds(self) -> float:
        """Return the processor time since the start."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _serving(log_dirs: Sequence[Path]) -> Iterator[Server]:
    address = f"{HOST}:{free_port()}"
    words = [*kdump(), "serve", "--listen", address, *map(str, log_dirs)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()  # Serving N topics with M partitions …
        try:
            yield Server(process, address, int(said[4].replace(",", "")))
        finally:
            process.terminate()
            process.communicate()


def throughput(pairs: int) -> float:
    """How long a consumer reads from a broker, as a share of how long it reads from kdump."""
    with (
        tempfile.TemporaryDirectory() as name,
        ClusterJvms(kafka_jars.newest_cluster_classpath(), Path(name)) as jvms,
    ):
        broker = KraftCluster(jvms, Path(name) / "disks", [_NODE], properties=ALONE)
        broker.format()
        address = f"{HOST}:{_NODE.client_port}"
        with broker.running() as clients:
            clients.create_topic("read", _PARTITIONS, replicas=1)
            _fill(address)
            _fetch_ms(address)  # warms up
            by_broker = [_fetch_ms(address) for _ in range(pairs)]
        with _serving(broker.log_dirs()) as server:
            _fetch_ms(server.address)  # verifies checksums
            by_kdump = [_fetch_ms(server.address) for _ in range(pairs)]
    print(f"ms: {by_broker} by the broker, {by_kdump} by kdump", file=sys.stderr)
    return statistics.median(by_broker) / statistics.median(by_kdump)


def _fill(address: str) -> None:
    producer = Producer(
        {"bootstrap.servers": address, "batch.size": _BATCH_BYTES, "linger.ms": 20, "acks": "all"}
    )
    for number in range(_RECORDS):
        producer.produce("read", _RECORD, partition=number % _PARTITIONS)
        if not number % 10_000:
            producer.flush()
    producer.flush()


def _fetch_ms(address: str) -> int:
    """Read everything with Kafka's own program; return its time without that for the rebalance."""
    tool = "org.apache.kafka.tools.ConsumerPerformance"
    options = ("--bootstrap-server", address, "--topic", "read", "--num-records", str(_RECORDS))
    java = ("java", "-Xmx512m", "-cp", kafka_jars.jars_classpath(), tool, *options)
    said = subprocess.run(java, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    figures = said.stdout.decode().splitlines()[-1].split(", ")
    assert int(figures[4]) >= _RECORDS, figures
    return int(figures[_FETCH_MS_COLUMN])


def start(log_dir: Path) -> float:
    """How many partitions are served for each second of the start."""
    begin = time.monotonic()
    with _serving([log_dir]) as server:
        return server.partitions / (time.monotonic() - begin)


def memory(log_dir: Path) -> float:
    """The limit of memory as a share of the peak while many consumers read at once."""
    with _serving([log_dir]) as server:
        readers = [
            threading.Thread(target=_consume, args=(server.address, number))
            for number in range(_CONSUMERS)
        ]
        for each in readers:
            each.start()
        for each in readers:
            each.join()
        return _LIMIT_BYTES / server.status("VmHWM")


def _consume(address: str, number: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reader-{number}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 2048,
        }
    )
    consumer.assign([TopicPartition("topic", 0, 0)])
    count = 0
    while count < _RECORDS_EACH:
        found = consumer.consume(1000, timeout=30)
        assert found, "nothing more is served"
        count += len(found)
    consumer.close()


def idle(log_dir: Path) -> float:
    """The share of some seconds in which the server does nothing with many idle connections."""
    with _serving([log_dir]) as server, contextlib.ExitStack() as connections:
        host, _, port = server.address.partition(":")
        for _ in range(_CONNECTIONS):
            connections.enter_context(socket.create_connection((host, int(port))))
        time.sleep(1)
        before = server.cpu_seconds()
        time.sleep(_IDLE_SECONDS)
        return 1 - (server.cpu_seconds() - before) / _IDLE_SECONDS


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("throughput", "start", "memory", "idle"))
    parser.add_argument("--pairs", type=int, default=3, help="number of pairs (3)")
    parser.add_argument("log_dir", nargs="?", type=Path)
    asked = parser.parse_args()
    if asked.what == "throughput":
        found = throughput(asked.pairs)
    else:
        measure = {"start": start, "memory": memory, "idle": idle}[asked.what]
        found = measure(asked.log_dir)
    print(f"{found:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
