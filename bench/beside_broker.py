"""Measure what a scrub takes from those beside it; print what is left, 1 if nothing is taken.

    python bench/beside_broker.py latency [--pairs N]
    python bench/beside_broker.py pages LOG_DIR

``latency``: a producer's 99th percentile at a busy broker, alone and while ``kdump verify`` reads
the broker's log directory again and again; the median of the ratios of such pairs.

``pages``: how many pages of a log directory that is read from the disk, except for those that were
in memory before, are as they were.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Message, Producer

from builders import busy_broker, kafka_jars
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.kraft_cluster import KraftCluster
from builders.ports import HOST
from kdump.storage.page_cache import PAGE_BYTES, pages_in_memory
from measuring import kdump

_NODE: Final = Node(1, ("d1",), "broker,controller")
_FILLED: Final = {"segment.bytes": str(16 << 20), "retention.ms": "-1"}
_FILLED_BYTES: Final = 6_000_000_000
"""Enough for a scrub to read most of the time, not to start: a real one reads for hours."""
_RECORD: Final = os.urandom(10_000)
_TIMED_RECORD: Final = os.urandom(1000)
_PAUSE_SECONDS: Final = 0.002
_WINDOW_SECONDS: Final = 15.0
_TOUCHED: Final = 7
"""Each so many-th page is in memory before a scrub."""


def latency(pairs: int) -> float:
    """How long a producer waits alone, as a share of how long it waits beside a scrub."""
    with (
        tempfile.TemporaryDirectory() as name,
        ClusterJvms(kafka_jars.newest_cluster_classpath(), Path(name)) as jvms,
    ):
        properties = ALONE | busy_broker.PROPERTIES
        broker = KraftCluster(jvms, Path(name) / "disks", [_NODE], properties=properties)
        broker.format()
        with broker.running() as clients:
            clients.create_topic("filled", 8, replicas=1)
            clients.configure("TOPIC", "filled", **_FILLED)
            clients.create_topic("timed", 1, replicas=1)
            address = f"{HOST}:{_NODE.client_port}"
            _fill(address)
            with busy_broker.busy(address):
                _percentile(address, _WINDOW_SECONDS)  # warms up
                return statistics.median(_pair(address, broker.log_dirs()) for _ in range(pairs))


def _fill(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "batch.size": 1 << 20})
    for number in range(_FILLED_BYTES // len(_RECORD)):
        producer.produce("filled", _RECORD, partition=number % 8)
        if not number % 1000:
            producer.flush()
    producer.flush()


def _pair(address: str, log_dirs: Sequence[Path]) -> float:
    alone = _percentile(address, _WINDOW_SECONDS)
    with _scrubbing(log_dirs):
        beside = _percentile(address, _WINDOW_SECONDS)
    print(f"{alone * 1000:.1f} ms alone, {beside * 1000:.1f} ms beside a scrub", file=sys.stderr)
    return alone / beside


def _percentile(address: str, seconds: float) -> float:
    """The 99th percentile of the time until a record is acknowledged, in seconds."""
    waits: list[float] = []

    def acknowledged(failure: object, message: Message) -> None:
        assert failure is None, failure
        waits.append(message.latency() or 0.0)

    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        producer.produce("timed", _TIMED_RECORD, on_delivery=acknowledged)
        producer.poll(_PAUSE_SECONDS)
        time.sleep(_PAUSE_SECONDS)
    producer.flush()
    return statistics.quantiles(waits, n=100)[-1]


@contextlib.contextmanager
def _scrubbing(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Read log directories again and again."""
    stop = threading.Event()
    words = [*kdump(), "verify", *map(str, log_dirs)]
    quiet = subprocess.DEVNULL

    def scrub() -> None:
        while not stop.is_set():
            with subprocess.Popen(words, stdout=quiet, stderr=quiet) as process:
                while process.poll() is None:
                    if stop.wait(0.05):
                        process.terminate()

    thread = threading.Thread(target=scrub)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def pages(log_dir: Path) -> float:
    """The share of pages that are in memory after a scrub if and only if they were before."""
    files = [path for path in sorted(log_dir.rglob("*")) if path.is_file()]
    for path in files:
        _drop_most(path)
    before = [_in_memory(path) for path in files]
    words = [*kdump(), "verify", "--live", str(log_dir)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    after = [_in_memory(path) for path in files]
    kept = sum(
        was == is_now
        for earlier, later in zip(before, after, strict=True)
        for was, is_now in zip(earlier, later, strict=True)
    )
    every = sum(map(len, before))
    print(f"{sum(map(sum, before))} of {every} pages in memory, {kept} as before", file=sys.stderr)
    return kept / every


def _drop_most(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for position in range(0, path.stat().st_size, _TOUCHED * PAGE_BYTES):
            os.pread(file.fileno(), 1, position)


def _in_memory(path: Path) -> bytes:
    with path.open("rb") as file:
        found = pages_in_memory(file.fileno(), path.stat().st_size)
    assert found is not None, path
    return found


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("latency", "pages"))
    parser.add_argument("--pairs", type=int, default=6, help="number of pairs (6)")
    parser.add_argument("log_dir", nargs="?", type=Path)
    asked = parser.parse_args()
    print(f"{latency(asked.pairs) if asked.what == 'latency' else pages(asked.log_dir):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
