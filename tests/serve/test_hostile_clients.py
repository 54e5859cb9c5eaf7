"""Requests of all kinds end their own connection, at worst."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode

from builders.batches import batches
from builders.log_directories import write_log_directory, write_partition
from builders.serving import PATIENCE_S, RunningServer, framed, opened, received
from kdump.serve import server as protocol_server
from kdump.serve.message_shapes import MalformedMessage
from kdump.serve.messages import decode_request, versions_of
from kdump.serve.server import LARGEST_QUESTION_BYTES, LARGEST_REQUEST_BYTES
from serve.test_answers import OFFERED, WAIT, fetch
from serve.test_groups import JOINING

MOST_GROWTH_BYTES: Final = 256 << 20
KEYS = frozenset(OFFERED)
METADATA = framed(3, 12, topics=[{"name": "orders", "topic_id": None}])[4:]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    root = write_log_directory(
        tmp_path_factory.mktemp("hostile") / "logs", high_watermarks={("orders", 0): 30}
    )
    write_partition(root / "orders-0", {0: b"".join(batches(10))})
    with opened(root) as running:
        yield running


def is_closed_after(server: RunningServer, data: bytes) -> bool:
    """Whether the server ends the connection, without a response."""
    with server.connect() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        try:
            return received(connection) == b""
        except ConnectionError:
            return True


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff" + bytes(100),
        b"\0\0\0\0",
        b"\0\0\0\x07" + bytes(7),
        sized(METADATA)[:-5],
        sized(METADATA[:-1]),
        sized(bytes(1000)),
        sized(b"\0\x3d" + bytes(LARGEST_QUESTION_BYTES)),
    ],
    ids=lambda data: data[:12].hex(),
)
def test_a_malformed_request_ends_its_connection(data: bytes, server: RunningServer) -> None:
    assert is_closed_after(server, data)
    assert fetch(server, 0).records == b"".join(batches(10))


@pytest.mark.parametrize("api_key", [-1, 4, 17, 19, 20, 1000])
def test_what_is_not_offered_ends_its_connection(api_key: int, server: RunningServer) -> None:
    request = api_key.to_bytes(2, "big", signed=True) + bytes(2) + b"\0\0\0\x07\xff\xff"
    assert is_closed_after(server, sized(request + bytes(20)))


def test_an_array_that_claims_to_be_huge_is_not_believed() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f"):
        request = METADATA[:16] + b"\0" + claim + bytes(40)
        with pytest.raises(MalformedMessage):
            decode_request(request, KEYS)
    old = b"\0\x03\0\x01\0\0\0\x07\xff\xff"
    for count in (b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00", b"\xff\xff\xff\xfe"):
        with pytest.raises(MalformedMessage):
            decode_request(old + count + bytes(40), KEYS)


def test_an_array_that_must_not_be_null_is_refused() -> None:
    describe_groups = b"\0\x0f\0\0\0\0\0\x07\xff\xff"
    assert decode_request(describe_groups + bytes(4), KEYS).body.groups == ()
    with pytest.raises(MalformedMessage, match="null"):
        decode_request(describe_groups + b"\xff\xff\xff\xff", KEYS)


@pytest.mark.parametrize("api_key", sorted(KEYS))
def test_random_requests_are_decoded_or_refused(api_key: int) -> None:
    rng = random.Random(api_key)
    oldest, newest = versions_of(api_key)
    for _ in range(2000):
        version = rng.randint(oldest, newest)
        head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4)
        body = bytes(rng.choice((0, 1, 2, 3, 127, 128, 255, rng.randrange(256))) for _ in range(60))
        with contextlib.suppress(MalformedMessage):
            decode_request(head + body[: rng.randrange(60)], KEYS)


def test_changed_requests_are_decoded_or_refused() -> None:
    rng = random.Random(1)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    usual = framed(
        1,
        12,
        replica_id=-1,
        max_wait=WAIT,
        min_bytes=1,
        topics=[{"topic": "orders", "partitions": [asked] * 3}],
        forgotten_topics_data=[],
    )[4:]
    assert decode_request(usual, KEYS).body.topics[0].topic == "orders"
    for _ in range(3000):
        data = bytearray(usual)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        with contextlib.suppress(MalformedMessage):
            decode_request(bytes(data[: rng.randint(8, len(data))]), KEYS)


@pytest.mark.slow
def test_requests_for_a_hundred_thousand_partitions_wait_for_each_other(
    server: RunningServer,
) -> None:
    """Each answer takes a hundred times the bytes of its request."""
    partitions = [-1 - number for number in range(100_000)]
    request = framed(61, 0, topics=[{"name": "nowhere", "partition_indexes": partitions}])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def ask() -> int:
        with server.connect() as connection:
            connection.settimeout(600)
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return sum(map(len, iter(lambda: connection.recv(1 << 20), b"")))

    with ThreadPoolExecutor(8) as clients:
        answers = {each.result() for each in [clients.submit(ask) for _ in range(8)]}
    assert len(answers) == 1
    assert answers.pop() > len(request)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) * 1024 < MOST_GROWTH_BYTES


def test_clients_that_claim_large_requests_hold_nobody_up(server: RunningServer) -> None:
    with contextlib.ExitStack() as connections:
        for _ in range(20):
            claiming = connections.enter_context(server.connect())
            claiming.sendall(LARGEST_REQUEST_BYTES.to_bytes(4, "big"))
        assert fetch(server, 0).records == b"".join(batches(10))


def test_a_client_that_takes_no_response_holds_nobody_up(server: RunningServer) -> None:
    slow = [server.connect() for _ in range(40)]
    request = framed(3, 12, topics=None) * 50
    for each in slow:
        each.setblocking(False)
        each.send(request)
    assert fetch(server, 0).records == b"".join(batches(10))
    for each in slow:
        each.close()


POLL = framed(
    1,
    12,
    replica_id=-1,
    max_wait=timedelta(minutes=1),
    min_bytes=1,
    max_bytes=1 << 20,
    topics=[
        {
            "topic": "orders",
            "partitions": [{"partition": 0, "fetch_offset": 30, "partition_max_bytes": 1 << 20}],
        }
    ],
    forgotten_topics_data=[],
)
"""A fetch at the end of the log, which waits for a minute."""


def test_a_consumer_that_leaves_while_it_waits_is_forgotten(log_dir: Path) -> None:
    with opened(log_dir) as server:
        fetch(server, 0)
        before = open_descriptors()
        for _ in range(20):
            with server.connect() as connection:
                connection.sendall(POLL)
        wait_until_closed(server, 21, before)


def test_a_member_that_leaves_while_it_waits_for_others_is_forgotten(log_dir: Path) -> None:
    long = timedelta(minutes=30)
    joining = {**JOINING, "session_timeout": long, "rebalance_timeout": long}
    with opened(log_dir) as server:
        before = open_descriptors()
        assert server.ask(11, 2, **joining).error_code is ErrorCode.none
        with server.connect() as connection:
            connection.sendall(framed(11, 2, **joining))
        wait_until_closed(server, 2, before)


def wait_until_closed(server: RunningServer, connections: int, descriptors: int) -> None:
    """Wait until so many connections were made, and no more files are open than before."""
    until = time.monotonic() + PATIENCE_S
    while server.notices.clients < connections or open_descriptors() > descriptors:
        assert time.monotonic() < until
        time.sleep(0.05)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


GROUPS: Final = {"groups": [{"group_id": "g", "topics": None}] * 9}


@pytest.mark.parametrize(
    ("api_key", "version", "fields", "once"),
    [
        (3, 9, {"topics": [{"name": "orders"}] * 9}, "topics"),
        (9, 9, {**GROUPS, "require_stable": False}, "groups"),
        (15, 6, {"groups": ["g"] * 9, "include_authorized_operations": False}, "groups"),
        (69, 1, {"group_ids": ["g"] * 9, "include_authorized_operations": False}, "groups"),
        (61, 0, {"topics": [{"name": "orders", "partition_indexes": [0] * 9}] * 9}, "topics"),
        (90, 0, GROUPS, "groups"),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_what_is_named_again_is_answered_once(
    api_key: int, version: int, fields: dict[str, Any], once: str, server: RunningServer
) -> None:
    """A request of some bytes for each would have a response of any size."""
    (found,) = getattr(server.ask(api_key, version, **fields), once)
    if api_key == 61:
        assert len(found.partitions) == 1


def test_a_partition_whose_offset_is_asked_for_twice_is_refused(server: RunningServer) -> None:
    """Follows ``ListOffsetsRequest.duplicatePartitions``."""
    partition = {"partition_index": 0, "timestamp": -1}
    topics = [{"name": "orders", "partitions": [partition, partition]}]
    answer = server.ask(2, 10, replica_id=-1, isolation_level=0, topics=topics, timeout=WAIT)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.invalid_request}


def test_large_responses_that_nobody_takes_are_bounded(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol_server, "_LARGE_RESPONSES_BYTES", 4 << 20)
    request = framed(15, 6, groups=["g"], include_authorized_operations=False)
    with opened(log_dir) as server, contextlib.ExitStack() as connections:
        joined = server.ask(11, 2, **JOINING)
        member = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
        assigned = [{"member_id": joined.member_id, "assignment": bytes(1 << 19)}]
        server.ask(14, 5, group_instance_id=None, assignments=assigned, **member)
        slow = [connections.enter_context(server.connect()) for _ in range(20)]
        for each in slow:
            each.sendall(request * 30)  # more than the system holds for a client
        until = time.monotonic() + PATIENCE_S
        while not any("are not taken" in line for line in server.lines):
            assert time.monotonic() < until
            time.sleep(0.01)
        described = server.ask(15, 6, groups=["g"], include_authorized_operations=False)
        assert len(described.groups[0].members[0].member_assignment) == 1 << 19
