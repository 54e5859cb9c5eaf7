"""Kafka's ``LogCleanerManager``, and brokers of two directories with something to clean."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders.batches import BASE_TIMESTAMP_MS
from builders.compactable_logs import NOW_MS, compactable_logs
from builders.java_server import JavaServer
from builders.loading import Clock, LoaderServer
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.formats.checkpoints import encode_offset_checkpoint
from kdump.formats.names import TopicPartition
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.storage.local_disk import local

TOPICS: Final = ("a", "users", "Orders.v2", "__consumer_offsets", "b_-.c", "x" * 240)
_LAG_MS: Final = NOW_MS - BASE_TIMESTAMP_MS - 10**6
_MAX_INT64: Final = str(2**63 - 1)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What Kafka's cleaner knows of a log.

    Attributes:
        problem: ``uncleanable`` if it fails on it, ``refused`` if the log does not load; all other
            facts are 0 then.
        bucket: of the hash map of all logs of the broker.
        turn: its place in the order of cleaning, from 1; None if it is not cleaned.
    """

    problem: str = ""
    first_dirty_offset: int = 0
    first_uncleanable_offset: int = 0
    end_offset: int = 0
    clean_bytes: int = 0
    cleanable_bytes: int = 0
    compaction_delay_ms: int = 0
    bucket: int = 0
    turn: int | None = None


class CleanerManagerServer(JavaServer):
    """The server ``tests/java/src/CleanerManagerServer.java``."""

    def __init__(self, classpath: str) -> None:
        opened = "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED"
        super().__init__(classpath, "CleanerManagerServer", "-Xmx1g", opened)

    def ask(
        self, directories: Iterable[Path], now_ms: int, topics: Mapping[str, Mapping[str, str]]
    ) -> tuple[dict[str, LogFacts], str | None]:
        """Ask for the queue of a broker, whose directories may be changed.

        Returns:
            The facts by name of the partition, and the exception that ends the cleaner's thread
            before it is through; None if it is not ended.
        """
        words = [":".join(map(str, directories)), str(now_ms)]
        words += [
            f"{topic}/{key}={value}"
            for topic, configs in topics.items()
            for key, value in configs.items()
        ]
        said = self.ask_words(words)
        thread = said.pop("thread", None)
        return {name: _facts(text.split()) for name, text in said.items()}, thread


def _facts(words: list[str]) -> LogFacts:
    if not words[0].isdecimal():
        return LogFacts(words[0])
    return LogFacts("", *map(int, words))


def random_topics(rng: random.Random) -> dict[str, dict[str, str]]:
    """Give the configuration of each of :data:`TOPICS`."""
    return {
        topic: {
            "cleanup.policy": rng.choice(["compact", "compact", "compact,delete", "delete"]),
            "min.cleanable.dirty.ratio": rng.choice(["0", "0.2", "0.5", "0.9", "1.0"]),
            "min.compaction.lag.ms": rng.choice(["0", "0", "0", str(_LAG_MS)]),
            "max.compaction.lag.ms": rng.choice([_MAX_INT64, _MAX_INT64, str(_LAG_MS + 10**6)]),
        }
        for topic in TOPICS
    }


def write_broker(
    root: Path, loader: LoaderServer, rng: random.Random, count: int, *, is_clean: bool = True
) -> list[Path]:
    """Write two log directories with ``count`` partitions, and the checkpoints of a broker."""
    directories = [root / "d1", root / "d2"]
    for directory in directories:
        directory.mkdir(parents=True)
    for number in range(count):
        name = f"{rng.choice(TOPICS)}-{number}"
        partition = rng.choice(directories) / name
        partition.mkdir()
        for file, content in compactable_logs(rng).items():
            (partition / file).write_bytes(content)
    for directory in directories:
        refused = loader.load(directory, IndexSettings(), Clock())
        assert not refused, refused
        ends = _ends(directory)
        marks = {
            key: rng.choice([end, end, end, end, rng.randrange(end + 1)])
            for key, end in ends.items()
            if rng.random() < 0.95
        }
        starts = {key: rng.randrange(end + 1) for key, end in ends.items() if rng.random() < 0.2}
        lines = {key: rng.randrange(end + 9) for key, end in ends.items() if rng.random() < 0.6}
        _write(directory / names.REPLICATION_OFFSET_CHECKPOINT, marks)
        _write(directory / names.LOG_START_OFFSET_CHECKPOINT, starts)
        _write(directory / names.CLEANER_OFFSET_CHECKPOINT, lines)
        if is_clean:
            (directory / names.CLEAN_SHUTDOWN_MARKER).write_text('{"version":0,"brokerEpoch":7}')
        for log in sorted(directory.glob("*/*.log")):
            modified_ns = rng.randrange(BASE_TIMESTAMP_MS, NOW_MS) * 10**6
            os.utime(log, ns=(modified_ns, modified_ns))
    return directories


def _ends(directory: Path) -> dict[TopicPartition, int]:
    checkpoints = read_log_directory(local(directory), DirectoryKind.LOG_DIRECTORY).checkpoints
    return dict(checkpoints.recovery_points or {})


def _write(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    path.write_bytes(encode_offset_checkpoint(offsets.items()))
