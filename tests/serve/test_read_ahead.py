"""What a client will probably ask for next is read before it asks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from builders.lock_holder import held_elsewhere
from builders.serving import PATIENCE_S, RunningServer, exactly, opened
from kdump.log.special_times import IsolationLevel
from kdump.serve import read_ahead
from kdump.serve.fetch_answers import FetchAnswers
from kdump.serve.fetch_question import AskedPartition, AskedTopic, FetchedTopics, FetchQuestion
from kdump.serve.read_ahead import ReadAhead
from kdump.serve.stored_batches import FilesToSend
from serve.test_sent_files import (
    answered,
    exactly_until_reset,
    request,
    second_log,
    server,
    stored,
    wait_until_no_log_is_open,
)

__all__ = ["server"]


def question(offset: int) -> FetchQuestion:
    asked = AskedTopic("orders", (AskedPartition(0, offset, 100, -1),))
    return FetchQuestion((asked,), IsolationLevel.READ_UNCOMMITTED, 100)


class Disk:
    """Where ten offsets are read at once; notes each reading, and what was closed of it."""

    def __init__(self) -> None:
        self.read_offsets: list[int] = []
        self.closed: list[int] = []
        self.all_ahead: set[ReadAhead] = set()

    async def read(self, asked: FetchQuestion, files: FilesToSend | None) -> FetchedTopics:
        offset = asked.topics[0].partitions[0].fetch_offset
        self.read_offsets.append(offset)
        if files is not None:
            opened_files = contextlib.ExitStack()
            opened_files.callback(self.closed.append, offset)
            files.keep(opened_files)
        return FetchedTopics([], 10, question(offset + 10))

    def client(self) -> ReadAhead:
        return ReadAhead(self.read, self.all_ahead)


async def fetch(client: ReadAhead, *offsets: int) -> None:
    """Ask, and take the answers."""
    for offset in offsets:
        with FilesToSend() as files:
            found = await client.find(question(offset), files)
        assert found.following == question(offset + 10)
        client.answered()
        await asyncio.sleep(0)  # what is read ahead is read


def after(offsets: list[int]) -> Disk:
    """A disk on which a client read some offsets, and left."""
    disk = Disk()

    async def run() -> None:
        client = disk.client()
        await fetch(client, *offsets)
        client.forget()

    asyncio.run(run())
    return disk


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what was read ahead, however slow the machine is."""
    monkeypatch.setattr(read_ahead, "_KEPT_S", 3600.0)


def test_what_follows_is_read_once_for_a_client_that_goes_on() -> None:
    assert after([0, 10, 20, 30]).read_offsets == [0, 10, 20, 30, 40]


def test_nothing_is_read_ahead_for_the_first_question() -> None:
    assert after([0]).read_offsets == [0]


def test_a_client_that_asks_for_something_else_gets_that() -> None:
    assert after([0, 10, 50, 10]).read_offsets == [0, 10, 20, 50, 10]


@pytest.mark.parametrize("offsets", [[0], [0, 10], [0, 10, 20], [0, 10, 50]])
def test_all_files_are_closed_in_the_end(offsets: list[int]) -> None:
    disk = after(offsets)
    assert sorted(disk.closed) == sorted(disk.read_offsets)
    assert not disk.all_ahead


def test_files_are_closed_if_the_client_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()

    async def run() -> None:
        client = disk.client()
        await fetch(client, 0)
        monkeypatch.setattr(read_ahead, "_KEPT_S", 0.1)
        with monkeypatch.context() as context:
            context.setattr(client, "_since_answer_s", lambda: 0.0)
            await fetch(client, 10)
        async with asyncio.timeout(PATIENCE_S):
            while disk.all_ahead:
                await asyncio.sleep(0.01)

    asyncio.run(run())
    assert disk.read_offsets == disk.closed == [0, 10, 20]


def test_nothing_is_read_ahead_for_a_client_that_takes_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "_KEPT_S", 0.0)
    assert after([0, 10, 20]).read_offsets == [0, 10, 20]


def test_it_is_bounded_for_how_many_clients_something_is_read_ahead() -> None:
    disk = Disk()

    async def run() -> None:
        clients = [disk.client() for _ in range(40)]
        for each in clients:
            await fetch(each, 0, 10)
        assert disk.read_offsets.count(20) == 16
        clients[0].forget()
        await fetch(clients[-1], 20)
        assert disk.read_offsets.count(30) == 1
        for each in clients:
            each.forget()

    asyncio.run(run())


# ---- Over a connection ----


def fetched(connection: socket.socket, offset: int, count: int) -> bytes:
    """Fetch so many batches, for which the request has just room."""
    connection.sendall(request(offset, count * len(stored()[0])))
    found: bytes = answered(connection).records
    return found


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(moves=st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, -2, 7]), st.integers(1, 3))))
def test_clients_get_what_they_ask_for(server: RunningServer, moves: list[tuple[int, int]]) -> None:
    rows, offset = stored(), 20
    with server.connect() as connection:
        for move, count in moves:
            offset = (offset + move) % (len(rows) - count)
            assert fetched(connection, offset, count) == b"".join(rows[offset : offset + count])
            offset += count
    wait_until_no_log_is_open(server)


def wait_for(readings: list[FetchedTopics], count: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while len(readings) < count:
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[FetchedTopics]:
    """Return what is read from the disk, as it is."""
    noted, read = list[FetchedTopics](), FetchAnswers._found

    def read_and_note(*args: Any) -> FetchedTopics:
        found = read(*args)
        noted.append(found)
        return found

    monkeypatch.setattr(FetchAnswers, "_found", read_and_note)
    return noted


def test_what_was_written_after_it_was_read_ahead_is_not_sent(
    server: RunningServer, readings: list[FetchedTopics]
) -> None:
    with server.connect() as connection:
        fetched(connection, 20, 3)
        fetched(connection, 23, 3)
        wait_for(readings, 3)
        with second_log(server).open("r+b") as file:
            file.seek((26 - 10) * len(stored()[0]) + 1000)
            file.write(b"x")
        connection.sendall(request(26, 3 * len(stored()[0])))
        size = int.from_bytes(exactly(connection, 4), "big")
        assert len(exactly_until_reset(connection, size)) < size
    with server.connect() as connection:
        connection.sendall(request(26))
        assert answered(connection).error_code is ErrorCode.corrupt_message


def test_nothing_is_read_ahead_beside_a_broker(
    server: RunningServer, readings: list[FetchedTopics]
) -> None:
    root: Path = second_log(server).parent.parent
    with held_elsewhere(root), opened(root) as living, living.connect() as connection:
        for offset in (20, 23):
            fetched(connection, offset, 3)
    assert [each.following for each in readings] == [None, None]
