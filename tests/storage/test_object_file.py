"""Files of object stores: which ranges they ask for, and that their bytes are right."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from kdump.scan.source import end_of_data
from kdump.storage.local_disk import local
from kdump.storage.object_file import (
    REQUESTS_AHEAD,
    SMALL_FILE_BYTES,
    ObjectFile,
    ObjectVersion,
    forget_kept_blocks,
)
from kdump.storage.request_buffers import LARGEST_REQUEST_BYTES
from kdump.storage.store_connection import OpenObject, StoreVersion

MIB: Final = 1 << 20


@dataclass(slots=True)
class Connection:
    """A store with one object, which notes the ranges that it is asked for."""

    data: bytes
    ranges: list[tuple[int, int]] = field(default_factory=list)
    lookups: int = 0

    def open_object(self, _path: str, _name: str, *, is_again: bool = False) -> OpenObject:
        self.lookups += 1
        return OpenObject(None, StoreVersion(len(self.data), b"tag", None))

    def read_range(self, _opened: OpenObject, start: int, buffer: memoryview, _name: str) -> int:
        piece = self.data[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        self.ranges.append((start, start + len(buffer)))
        return len(piece)

    def open(self, name: str = "an-object") -> ObjectFile:
        connection: Any = self
        return ObjectFile(local(name), connection, name, ObjectVersion(len(self.data), 0))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    forget_kept_blocks()
    yield
    forget_kept_blocks()


def some_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def read(file: ObjectFile, start: int, end: int) -> bytes:
    buffer = bytearray(end - start)
    assert file.read_into(memoryview(buffer), start) == len(buffer)
    return bytes(buffer)


def scattered(size: int, seed: int) -> Iterator[tuple[int, int]]:
    """Reads of any size; many continue where the last one ended, or go back a little."""
    rng = random.Random(seed)
    end = 0
    for _ in range(60):
        start = rng.choice((end, max(0, end - rng.randrange(1, 20_000)), rng.randrange(size)))
        if rng.random() < 0.2:
            start = max(0, start - rng.randrange(1, 6 * MIB))
        end = min(size, start + rng.choice((100, 70_000, MIB, 9 * MIB)))
        yield start, end


@pytest.mark.parametrize("seed", range(4))
def test_any_reads_give_the_bytes_of_the_object(seed: int) -> None:
    zeroes = bytes(7 * MIB)
    data = some_bytes(6 * MIB) + zeroes + some_bytes(5 * MIB) + zeroes
    connection = Connection(data)
    for number, expected_end in enumerate((None, len(data), 8 * MIB)):
        with connection.open() as file:
            file.expected_end = expected_end
            for start, end in scattered(len(data), seed + 100 * number):
                assert read(file, start, end) == data[start:end]


def test_memory_that_is_used_again_does_not_change_what_was_kept() -> None:
    one, other = some_bytes(9 * MIB), some_bytes(10 * MIB)
    for _ in range(2):
        for name, data in (("one", one), ("other", other)):
            with Connection(data).open(name) as file:
                for start in range(0, len(data), MIB // 2):
                    end = min(len(data), start + MIB // 2)
                    assert read(file, start, end) == data[start:end]


def windows(connection: Connection, window_bytes: int, back: int) -> int:
    """Read as batches are read: each window begins where the last whole batch ended."""
    size = len(connection.data)
    with connection.open() as file:
        file.expected_end = size
        position = 0
        while position < size:
            end = min(size, position + window_bytes)
            assert read(file, position, end) == connection.data[position:end]
            position = end if end == size else end - back
    return size


def test_each_byte_of_a_log_is_asked_for_once() -> None:
    connection = Connection(some_bytes(30 * MIB + 12_345))
    size = windows(connection, LARGEST_REQUEST_BYTES, 11_000)
    assert sum(end - start for start, end in connection.ranges) == size
    assert len(connection.ranges) == -(-size // LARGEST_REQUEST_BYTES)
    assert connection.lookups == 2  # once more at the end: it may have been replaced meanwhile


def test_no_more_is_asked_for_than_the_reader_said() -> None:
    connection = Connection(some_bytes(20 * MIB))
    with connection.open() as file:
        file.expected_end = 9 * MIB
        read(file, MIB, 5 * MIB)
        read(file, 5 * MIB, 9 * MIB)
    assert max(connection.ranges)[1] == 9 * MIB


def test_a_reader_of_a_few_headers_does_not_ask_for_all_of_the_log() -> None:
    connection = Connection(some_bytes(64 * MIB))
    with connection.open() as file:
        for start in range(0, 160 << 10, 4096):
            read(file, start, start + 4096)
    assert sum(end - start for start, end in connection.ranges) <= MIB


def test_padding_that_is_read_from_its_end_takes_few_requests() -> None:
    data = some_bytes(300_000) + bytes(10 * MIB - 300_000)
    connection = Connection(data)
    with connection.open() as file:
        assert end_of_data(file, 0, len(data)) == 300_000
    assert len(connection.ranges) <= 2 + len(data) // LARGEST_REQUEST_BYTES
    assert sum(end - start for start, end in connection.ranges) == len(data)


@pytest.mark.parametrize("used_bytes", [0, 8, 300_000])
def test_padding_is_asked_for_once_in_a_run(used_bytes: int) -> None:
    data = some_bytes(used_bytes) + bytes(10 * MIB - used_bytes)
    connection = Connection(data)
    for _ in range(2):
        with connection.open() as file:
            assert end_of_data(file, 0, len(data)) == used_bytes
            assert read(file, 0, used_bytes) == data[:used_bytes]
    assert sum(end - start for start, end in connection.ranges) == len(data)


def test_a_small_file_is_one_request() -> None:
    connection = Connection(some_bytes(SMALL_FILE_BYTES))
    for _ in range(2):
        with connection.open() as file:
            read(file, 500, 600)
            read(file, 0, SMALL_FILE_BYTES)
    assert connection.ranges == [(0, SMALL_FILE_BYTES)]
    assert connection.lookups == 1


def test_requests_are_under_way_while_the_first_is_waited_for() -> None:
    connection = Connection(some_bytes(40 * MIB))
    with connection.open() as file:
        file.expected_end = len(connection.data)
        read(file, 0, LARGEST_REQUEST_BYTES)
        for each in list(file._ahead):
            each.block()
    assert len(connection.ranges) == 1 + REQUESTS_AHEAD


def test_an_object_that_became_shorter_is_an_error() -> None:
    connection = Connection(some_bytes(3 * MIB))
    with connection.open() as file:
        read(file, 0, 10)
        connection.data = connection.data[:MIB]
        with pytest.raises(OSError, match="changed while it was read"):
            read(file, 2 * MIB, 3 * MIB)
        connection.data = some_bytes(3 * MIB)
