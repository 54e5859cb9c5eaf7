"""Batches that the system sends from the files: complete, or the connection ends."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batch, record
from builders.lock_holder import held_elsewhere
from builders.log_directories import file_name, write_log_directory, write_partition
from builders.serving import (
    PATIENCE_S,
    RunningServer,
    connected,
    decoded,
    exactly,
    framed,
    opened,
)
from kdump.formats.names import FileKind
from kdump.log.lock_holders import forget_holders
from kdump.serve.fetch_answers import LARGEST_FETCH_BYTES
from serve.test_answers import WAIT

_BATCHES: Final = 80
_BATCH_BYTES: Final = 100_000
_ROLLED: Final = 10
"""The offset at which the second segment begins."""
_LITTLE_BYTES: Final = 4096


def stored() -> list[bytes]:
    return [batch([record(at, value=bytes([at]) * _BATCH_BYTES)]) for at in range(_BATCHES)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """Return a server of a partition that does not fit into one response."""
    root = write_log_directory(tmp_path / "logs", high_watermarks={("orders", 0): _BATCHES})
    rows = stored()
    segments = {0: b"".join(rows[:_ROLLED]), _ROLLED: b"".join(rows[_ROLLED:])}
    write_partition(root / "orders-0", segments)
    with opened(root) as running:
        yield running


def second_log(server: RunningServer) -> Path:
    partition = server.cluster.logs[0].replica.partition
    return partition.path.local_path / file_name(_ROLLED, FileKind.LOG)


def request(offset: int, partition_max_bytes: int = LARGEST_FETCH_BYTES) -> bytes:
    asked = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": partition_max_bytes,
        "current_leader_epoch": -1,
        "log_start_offset": -1,
    }
    return framed(
        1,
        12,
        replica_id=-1,
        max_wait=WAIT,
        min_bytes=1,
        max_bytes=LARGEST_FETCH_BYTES,
        topics=[{"topic": "orders", "partitions": [asked]}],
        forgotten_topics_data=[],
    )


def answered(connection: socket.socket) -> Any:
    size = int.from_bytes(exactly(connection, 4), "big")
    return decoded(1, 12, exactly(connection, size)).responses[0].partitions[0]


def slow_client(server: RunningServer) -> socket.socket:
    """A client that takes little at once."""
    connection = socket.socket()
    connection.settimeout(PATIENCE_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LITTLE_BYTES)
    connection.connect(("127.0.0.1", server.port))
    return connection


def open_logs(server: RunningServer) -> list[str]:
    """The segments that this process, which is the server's too, has open."""
    partition = str(second_log(server).parent)
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            name = str(each.readlink())
        except FileNotFoundError:
            continue
        found += [name] if name.startswith(partition) else []
    return found


def wait_until_no_log_is_open(server: RunningServer) -> None:
    until = time.monotonic() + PATIENCE_S
    while found := open_logs(server):
        assert time.monotonic() < until, found
        time.sleep(0.01)


def assert_next_client_is_answered(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.sendall(request(0, 1))
        assert answered(connection).records == stored()[0]


def test_batches_of_two_segments_are_sent_as_they_are_stored(server: RunningServer) -> None:
    rows, offset = stored(), 0
    with server.connect() as connection:
        while offset < _BATCHES:
            connection.sendall(request(offset))
            got = answered(connection).records
            expected = b"".join(rows[offset:])[: len(got)]
            assert got == expected
            offset += len(got) // len(rows[0])
    wait_until_no_log_is_open(server)


def test_small_and_large_ranges_follow_each_other(server: RunningServer) -> None:
    rows = stored()
    with server.connect() as connection:
        for size in (1, len(rows[0]) - 1, len(rows[0]), 3 * len(rows[0])):
            connection.sendall(request(_ROLLED, size))
            count = max(1, size // len(rows[0]))
            assert answered(connection).records == b"".join(rows[_ROLLED : _ROLLED + count])


def test_a_client_that_takes_little_at_once_gets_everything(server: RunningServer) -> None:
    with slow_client(server) as connection:
        connection.sendall(request(_ROLLED))
        got = answered(connection).records
    assert got == b"".join(stored()[_ROLLED:])[: len(got)]
    assert len(got) > LARGEST_FETCH_BYTES - _BATCH_BYTES * 2


def test_requests_that_are_sent_at_once_are_answered_in_order(server: RunningServer) -> None:
    rows = stored()
    with slow_client(server) as connection:
        connection.sendall(request(30, 300_000) + request(3, 1) + request(50, 300_000))
        for offset, count in ((30, 2), (3, 1), (50, 2)):
            assert answered(connection).records == b"".join(rows[offset : offset + count])


def test_a_file_that_becomes_shorter_while_it_is_sent_ends_the_connection(
    server: RunningServer,
) -> None:
    with slow_client(server) as connection:
        connection.sendall(request(_ROLLED))
        size = int.from_bytes(exactly(connection, 4), "big")
        os.truncate(second_log(server), _BATCH_BYTES)
        assert len(exactly_until_reset(connection, size)) < size
    log = second_log(server)
    assert f"{log}: the file became shorter" in server.lines
    assert_next_client_is_answered(server)
    wait_until_no_log_is_open(server)


def exactly_until_reset(connection: socket.socket, size: int) -> bytes:
    """What arrives of so many bytes."""
    data = b""
    try:
        while len(data) < size and (more := connection.recv(1 << 20)):
            data += more
    except ConnectionResetError:
        pass
    return data


def test_a_file_that_is_written_while_it_is_sent_ends_the_connection(
    server: RunningServer,
) -> None:
    log = second_log(server)
    with slow_client(server) as connection:
        connection.sendall(request(_ROLLED))
        size = int.from_bytes(exactly(connection, 4), "big")
        exactly(connection, _LITTLE_BYTES)
        with log.open("r+b") as file:
            file.seek(3 * _BATCH_BYTES)
            file.write(b"x" * _BATCH_BYTES)
        rest = size - _LITTLE_BYTES
        assert len(exactly_until_reset(connection, rest)) < rest
    assert f"{log}: the file was written while it was sent" in server.lines


def test_a_segment_that_a_broker_appends_to_is_sent_all_the_same(server: RunningServer) -> None:
    log = second_log(server)
    with held_elsewhere(log.parent.parent), slow_client(server) as connection:
        # The server has just looked for a lock, and looks again only some time later.
        forget_holders()
        connection.sendall(request(_ROLLED))
        size = int.from_bytes(exactly(connection, 4), "big")
        begin = exactly(connection, _LITTLE_BYTES)
        with log.open("ab") as file:
            file.write(b"x" * 100)
        data = begin + exactly(connection, size - _LITTLE_BYTES)
    found = decoded(1, 12, data).responses[0].partitions[0].records
    assert found
    assert b"".join(stored()[_ROLLED:]).startswith(found)


def test_a_file_that_is_replaced_while_it_is_sent_is_sent_as_it_was(
    server: RunningServer,
) -> None:
    with slow_client(server) as connection:
        connection.sendall(request(_ROLLED))
        size = int.from_bytes(exactly(connection, 4), "big")
        log = second_log(server)
        other = log.with_suffix(".other")
        other.write_bytes(bytes(log.stat().st_size))
        other.rename(log)
        got = decoded(1, 12, exactly(connection, size)).responses[0].partitions[0].records
    assert got == b"".join(stored()[_ROLLED:])[: len(got)]


def test_a_client_that_is_gone_leaves_no_file_open(server: RunningServer) -> None:
    for _ in range(20):
        with slow_client(server) as connection:
            connection.sendall(request(_ROLLED))
            exactly(connection, 4)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert_next_client_is_answered(server)
    wait_until_no_log_is_open(server)


def test_a_client_that_leaves_before_it_is_answered_leaves_no_file_open(
    server: RunningServer,
) -> None:
    for _ in range(50):
        with connected(server.port) as connection:
            connection.sendall(request(_ROLLED))
    assert_next_client_is_answered(server)
    wait_until_no_log_is_open(server)


def fail_after(monkeypatch: pytest.MonkeyPatch, calls: int, code: int) -> None:
    """Let so many calls send little, and the next ones fail."""
    send, left = os.sendfile, iter(range(calls))

    def send_or_fail(client: int, file: int, start: int, size: int) -> int:
        if next(left, None) is None:
            raise OSError(code, os.strerror(code))
        return send(client, file, start, min(size, _LITTLE_BYTES))

    monkeypatch.setattr(os, "sendfile", send_or_fail)


@pytest.mark.parametrize("calls", [0, 1])
def test_a_file_system_that_does_not_send_files_is_read(
    calls: int, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after(monkeypatch, calls, errno.EINVAL)
    rows = stored()
    with server.connect() as connection:
        connection.sendall(request(_ROLLED, 2 * len(rows[0])))
        assert answered(connection).records == b"".join(rows[_ROLLED : _ROLLED + 2])


def test_a_disk_that_fails_while_a_file_is_sent_ends_the_connection(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after(monkeypatch, 3, errno.EIO)
    with server.connect() as connection:
        connection.sendall(request(_ROLLED))
        size = int.from_bytes(exactly(connection, 4), "big")
        assert len(exactly_until_reset(connection, size)) < size
    assert f"{second_log(server)}: {os.strerror(errno.EIO)}" in server.lines
