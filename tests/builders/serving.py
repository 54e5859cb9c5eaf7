"""``kdump serve`` in a thread of this process, and what its clients see."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    TopicPartition,
)
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from kdump.cli.output.diagnostics import Diagnostics
from kdump.jobs.listing.partition_facts import with_partitions_as_loaded
from kdump.log.directory import read_log_directory
from kdump.log.selection import PartitionSelection
from kdump.serve.admission import Admission
from kdump.serve.messages import built, encoded
from kdump.serve.served_cluster import ServedCluster, ServeRequest, newest_image, open_cluster
from kdump.serve.served_notices import ServedNotices
from kdump.serve.server import ProtocolServer
from kdump.storage.local_disk import local
from kdump.storage.location import Location

PATIENCE_S: Final = 30
CLUSTER: Final = ("b1-d1", "b2-d1", "b2-d2", "b3-d1", "c1001", "c1002", "c1003")
"""The disks of the fixture ``cluster``."""


USUAL: Final = {
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
    "include_fenced_brokers": False,
    "allow_auto_topic_creation": False,
}
"""Fields of requests that most tests do not set."""


@dataclass(slots=True)
class RunningServer:
    """A server, and what it said.

    Attributes:
        cluster: what it serves.
        notices: what it counted.
        lines: what it said.
        admission: how clients come in.
        port: at 127.0.0.1.
    """

    cluster: ServedCluster
    notices: ServedNotices
    lines: list[str]
    admission: Admission = field(default_factory=Admission)
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _ready: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    _thread: threading.Thread = field(init=False)

    async def _run(self) -> None:
        server = ProtocolServer(self.cluster, self.notices, self.admission)
        try:
            _, self.port = await server.listen("127.0.0.1", 0)
        finally:
            self._ready.set()
        await self._stop.wait()
        await server.close()

    # ---- Clients ----

    def connect(self) -> socket.socket:
        """A connection that sends bytes of any kind."""
        return connected(self.port)

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Send one request, and return the response as ``kio`` decodes it."""
        return answer_at(self.port, api_key, version, **fields)

    @contextlib.contextmanager
    def consumer(self, **configs: Any) -> Iterator[Consumer]:
        """A consumer of librdkafka; the names of ``configs`` have ``_`` for the dot."""
        with opened_consumer(self.address, **configs) as consumer:
            yield consumer

    def read(
        self,
        partitions: Iterable[tuple[str, int]],
        level: str = "read_uncommitted",
        start: int = OFFSET_BEGINNING,
    ) -> dict[tuple[str, int], list[Read]]:
        """All records of partitions from an offset on."""
        with self.consumer(isolation_level=level) as consumer:
            return read_with(consumer, partitions, start)


class Read(NamedTuple):
    """A record that a consumer got."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int

    @classmethod
    def of(cls, message: Any) -> Self:
        kind, timestamp = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            timestamp = -1
        return cls(message.offset(), message.key(), message.value(), timestamp)


@contextlib.contextmanager
def opened_consumer(address: str, **configs: Any) -> Iterator[Consumer]:
    """A consumer of any cluster; the names of ``configs`` have ``_`` for the dot."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **{name.replace("_", "."): value for name, value in configs.items()},
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read_with(
    consumer: Consumer, partitions: Iterable[tuple[str, int]], start: int = OFFSET_BEGINNING
) -> dict[tuple[str, int], list[Read]]:
    """All records of partitions from an offset on.

    Args:
        consumer: with ``enable.partition.eof``.
    """
    found: dict[tuple[str, int], list[Read]] = {each: [] for each in partitions}
    left = set(found)
    consumer.assign([TopicPartition(*key, start) for key in found])
    while left:
        each = consumer.poll(PATIENCE_S)
        assert each is not None, f"nothing comes from {left}"
        key = (str(each.topic()), int(each.partition() or 0))
        error = each.error()
        if error is None:
            found[key].append(Read.of(each))
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(key)
        else:
            raise AssertionError(str(error))
    return found


def connected(port: int) -> socket.socket:
    """A connection to a port of this machine."""
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def answer_at(port: int, api_key: int, version: int, **fields: Any) -> Any:
    """Send one request to a port, and return the response as ``kio`` decodes it."""
    with connected(port) as connection:
        connection.sendall(framed(api_key, version, **fields))
        data = received(connection)
    return decoded(api_key, version, data)


def decoded(api_key: int, version: int, data: bytes) -> Any:
    """A response from its bytes."""
    schema = load_response_schema(api_key, version)
    header, start = entity_reader(schema.__header_schema__)(data, 0)
    assert header.correlation_id == 7
    answer, size = entity_reader(schema)(data, start)
    assert start + size == len(data)
    return answer


def framed(api_key: int, version: int, **fields: Any) -> bytes:
    """A request as bytes, with its length."""
    schema = load_request_schema(api_key, version)
    header_schema: Any = schema.__header_schema__
    header = built(
        header_schema,
        {
            "request_api_key": api_key,
            "request_api_version": version,
            "correlation_id": 7,
            "client_id": "a test",
        },
    )
    data = encoded(header) + encoded(built(schema, {**USUAL, **fields}))
    return len(data).to_bytes(4, "big") + data


def received(connection: socket.socket) -> bytes:
    """One response without its length; shorter if the connection ends."""
    size = int.from_bytes(exactly(connection, 4), "big")
    return exactly(connection, size)


def exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes; fewer if the connection ends."""
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def opened(
    *paths: Path | Location,
    skips_damage: bool = False,
    broker_id: int | None = None,
    server_properties: Mapping[str, str] | None = None,
) -> RunningServer:
    """A server of log directories; it runs while its context is open."""
    problems = Diagnostics()
    directories = [
        with_partitions_as_loaded(read_log_directory(_location(path)), problems) for path in paths
    ]
    lines: list[str] = []
    notices = ServedNotices(lines.append, skips_damage)
    request = ServeRequest(
        directories,
        newest_image(directories, lines.append),
        PartitionSelection(),
        broker_id,
        server_properties,
    )

    def fail(_replica: object, failure: OSError) -> None:
        raise failure

    return RunningServer(open_cluster(request, notices, fail), notices, lines)


def _location(path: Path | Location) -> Location:
    return local(path) if isinstance(path, Path) else path


def fingerprint(records: Iterable[Read]) -> str:
    """As the manifests of the fixtures have it."""
    digest = hashlib.sha256()
    for each in records:
        key, value = (_text(content) for content in (each.key, each.value))
        digest.update(f"{each.offset}\t{key}\t{value}\t{each.timestamp}\n".encode())
    return digest.hexdigest()


def _text(content: bytes | None) -> str:
    return "-" if content is None else b64encode(content).decode()
