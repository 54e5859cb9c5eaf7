"""Real brokers over log directories, and what their clients write and read."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders.java_server import JavaServer
from builders.ports import HOST, free_port

PROPERTIES: Final = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.backoff.ms": "50",
    # Disable everything that runs by the clock: retention, transaction timeouts.
    "log.initial.task.delay.ms": "3600000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
"""Properties of a broker that is its own controller, and whose cleaner cleans everything."""

PATIENT_FOR_10_S: Final = "initial.broker.registration.timeout.ms=10000"
"""How long a broker waits for the controller before it ends, instead of a minute."""

Key = bytes | None
Value = bytes | None


@dataclass(frozen=True, slots=True)
class Consumed:
    """The records of a partition that a ``read_committed`` consumer gets.

    ``records`` are keys and values by offset; ``end_offset`` is the last stable offset.
    """

    start_offset: int
    end_offset: int
    records: Mapping[int, tuple[Key, Value]]

    def latest(self) -> dict[Key, bytes]:
        """Return the last value of each key that is not deleted."""
        last = dict(self.records[offset] for offset in sorted(self.records))
        return {key: value for key, value in last.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ProducerSeen:
    """A broker's state of a producer of a partition."""

    epoch: int
    last_sequence: int


class RequestFailed(Exception):
    """The error of a broker or one of its clients."""


class BrokerHost(JavaServer):
    """The server ``tests/java/src/BrokerHost.java``: one broker after another, and clients.

    All brokers have the same address, so that a producer does not notice that one was replaced by
    another. They log to ``log``.

    Attributes:
        address: of all brokers.
    """

    def __init__(self, classpath: str, log: Path, *, patience_s: int = 60) -> None:
        self._log = log
        self._log_start_bytes = 0
        client_port, controller_port = free_port(), free_port()
        self.address = f"{HOST}:{client_port}"
        self._listeners = {
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{controller_port}",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        }
        super().__init__(
            classpath,
            "BrokerHost",
            "-Xmx384m",
            f"-Daddress={self.address}",
            f"-Dpatience={patience_s}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients=error",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=error",
            f"-Dorg.slf4j.simpleLogger.logFile={log}",
        )

    @contextlib.contextmanager
    def broker(self, log_dirs: Sequence[Path], *properties: str) -> Iterator[None]:
        """Start a broker on log directories, with the metadata in the first; stop it cleanly.

        ``properties`` are KEY=VALUE and go before :data:`PROPERTIES`.
        """
        self._log_start_bytes = self._log.stat().st_size if self._log.exists() else 0
        given = PROPERTIES | self._listeners | {"log.dirs": ",".join(map(str, log_dirs))}
        given["metadata.log.dir"] = str(log_dirs[0])
        try:
            self._ask("start", *(f"{name}={value}" for name, value in given.items()), *properties)
            yield
        finally:
            self._ask("stop")

    def logged(self) -> list[str]:
        """Return the log lines of the last broker."""
        with self._log.open("rb") as file:
            file.seek(self._log_start_bytes)
            return file.read().decode(errors="replace").splitlines()

    def create_topic(self, topic: str, **properties: str) -> None:
        """Create a topic with one partition; the properties' names have ``_`` for the dot."""
        words = (f"{name.replace('_', '.')}={value}" for name, value in properties.items())
        self._ask("create", topic, *words)

    def open_producer(self, name: str, *properties: str) -> None:
        """Open a producer with properties KEY=VALUE, which stays open as long as this host."""
        self._ask("open", name, *properties)

    def send(
        self, producer: str, topic: str, timestamp_ms: int, pairs: Iterable[tuple[Key, Value]]
    ) -> None:
        """Write records to partition 0; returns when all are acknowledged."""
        words = (_word(content) for pair in pairs for content in pair)
        self._ask("send", producer, topic, str(timestamp_ms), *words)

    @contextlib.contextmanager
    def transaction(self, producer: str, *, commits: bool) -> Iterator[None]:
        """Begin a transaction, and commit or abort it at the end."""
        self._ask("begin", producer)
        yield
        self._ask("commit" if commits else "abort", producer)

    def begin(self, producer: str) -> None:
        """Begin a transaction."""
        self._ask("begin", producer)

    def read(self, topic: str) -> Consumed:
        """Consume partition 0."""
        said = self._ask("read", topic)
        start_offset, end_offset = int(said.pop("start")), int(said.pop("end"))
        records = {int(offset): _key_and_value(what) for offset, what in said.items()}
        return Consumed(start_offset, end_offset, records)

    def producers_of(self, topic: str) -> dict[int, ProducerSeen]:
        """Return the producers of partition 0, by id."""
        said = self._ask("producers", topic)
        return {
            int(name): ProducerSeen(*(int(number) for number in what.split("\t")))
            for name, what in said.items()
        }

    def served_directories(self) -> dict[str, list[str]]:
        """Return the partitions loaded from each log directory; none if it is offline."""
        return {
            path: [name for name in what[1:-1].split(", ") if name] if what[0] == "[" else []
            for path, what in self._ask("dirs").items()
        }

    def logs(self) -> dict[str, tuple[int, int]]:
        """Return the log start offset and the log end offset of each log, by its directory."""
        return {
            path: (int(start), int(end))
            for path, what in self._ask("logs").items()
            for start, end in [what.split("\t")]
        }

    def wait_until_offline(self, log_dir: Path) -> None:
        """Wait until the broker marks a log directory as failed."""
        self._ask("offline", str(log_dir))

    def wait_until_ended(self) -> None:
        """Wait until a started broker ends by itself.

        Raises:
            RequestFailed: the broker has ended.
        """
        self._ask("end")

    def configure_broker(self, node: str, *properties: str) -> None:
        """Set a broker's dynamic configuration, KEY=VALUE; an empty node stands for all brokers."""
        self._ask("configure", node, *properties)

    def retain(self) -> dict[str, int]:
        """Apply retention to all logs now; return how many segments each partition has lost."""
        return {name: int(count) for name, count in self._ask("retain").items()}

    def wait_for_cleaner(self) -> int:
        """Wait until the cleaner has checked all logs again; return its ``max-dirty-percent``."""
        return int(self._ask("clean")["max-dirty-percent"])

    def _ask(self, *words: str) -> dict[str, str]:
        said = self.ask_words(words)
        if "failed" in said:
            raise RequestFailed(f"{words[0]}: {said['failed']}")
        return said


def _word(content: bytes | None) -> str:
    return "-" if content is None else base64.b64encode(content).decode()


def _key_and_value(words: str) -> tuple[Key, Value]:
    key, value = (
        None if word == "-" else base64.b64decode(word, validate=True) for word in words.split("\t")
    )
    return key, value
