"""Salvage reads a log at most three times, and keeps nothing of each batch in memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import field

from builders.batches import batch, record
from builders.log_directories import write_partition
from builders.recovery import marker, of_producer
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.load_report import Cause
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import producer_snapshot
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import CRC_START, TRANSACTIONAL_FLAG
from kdump.log.directory import read_lone_partition
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.storage.local_disk import LocalDisk, LocalFile, local
from kdump.storage.location import Location

SEGMENTS: Final = 6
TRANSACTIONS: Final = 20
"""In each segment: a batch in a transaction, its marker, and a batch after it."""

Damage = Callable[[list[list[bytes]]], None]


class CountedFile(LocalFile):
    """A file that counts the bytes read from it."""

    count: list[int]

    def read_into(self, buffer: memoryview, position: int) -> int:
        read = super().read_into(buffer, position)
        self.count[0] += read
        return read


class CountingDisk(LocalDisk, frozen=True):
    """The local disk; it counts the bytes that are read from logs."""

    count: list[int] = field(default_factory=lambda: [0])

    def open_file(self, location: Location) -> LocalFile:
        file = CountedFile(location)
        file.count = self.count if location.path.endswith(".log") else [0]
        return file


def filled(offset: int, *, transactional: bool, producer_id: int) -> bytes:
    """A batch of a producer with 96 KB, so that a pass over a log is far more than a search."""
    return batch(
        [record(offset, b"k", b"%6d" % offset * 16_000)],
        attributes=TRANSACTIONAL_FLAG if transactional else 0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset // 3 * 2 + (not transactional),
    )


def transactions(first: int, count: int) -> list[bytes]:
    found = []
    for at in range(first, first + 3 * count, 3):
        producer_id = 7 + at // 3 % 2
        found += [
            filled(at, transactional=True, producer_id=producer_id),
            marker(at + 1, producer_id),
            filled(at + 2, transactional=False, producer_id=producer_id),
        ]
    return found


def flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[CRC_START] ^= 1
    return bytes(changed)


def lose_markers(logs: list[list[bytes]]) -> None:
    for log in logs:
        log[1::3] = map(flipped, log[1::3])


def lose_the_last_marker(logs: list[list[bytes]]) -> None:
    logs[-1][-2] = flipped(logs[-1][-2])


def remove_markers(logs: list[list[bytes]]) -> None:
    """Leave no free offset: each batch after a transaction begins where its marker was."""
    for at, log in enumerate(logs):
        first = at * 3 * TRANSACTIONS
        log[2::3] = [of_producer(first + 3 * n + 1, 7, count=2) for n in range(TRANSACTIONS)]
        log[1::3] = [b""] * TRANSACTIONS


def lose_data(logs: list[list[bytes]]) -> None:
    for log in logs:
        log[::30] = map(flipped, log[::30])


def repeat_batches(logs: list[list[bytes]]) -> None:
    for log in logs:
        log[10:10] = log[4:7]


def copy_a_segment(logs: list[list[bytes]]) -> None:
    logs[3] = list(logs[2])


def tear_the_end(logs: list[list[bytes]]) -> None:
    logs[-1][-1] = logs[-1][-1][:-9]


def all_of_it(logs: list[list[bytes]]) -> None:
    for damage in (copy_a_segment, repeat_batches, lose_the_last_marker, tear_the_end):
        damage(logs)
    for log in logs:
        log[30] = flipped(log[30])


@pytest.mark.parametrize("has_stale_snapshot", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        lose_markers,
        lose_the_last_marker,
        remove_markers,
        lose_data,
        repeat_batches,
        copy_a_segment,
        tear_the_end,
        all_of_it,
    ],
)
def test_a_log_is_read_three_times_at_most_whatever_is_damaged(
    tmp_path: Path, damage: Damage, has_stale_snapshot: bool
) -> None:
    offsets = 3 * TRANSACTIONS
    logs = [transactions(offsets * number, TRANSACTIONS) for number in range(SEGMENTS)]
    damage(logs)
    others = {f"{0:020d}.snapshot": open_txn(8)} if has_stale_snapshot else {}
    path = write_partition(
        tmp_path / "orders-0",
        {offsets * number: b"".join(log) for number, log in enumerate(logs)},
        others=others,
    )
    size_bytes = sum(len(data) for log in logs for data in log)
    disk = CountingDisk()

    outcome = salvaged(Location(disk, str(path)))

    assert isinstance(outcome, Recovered)
    # The search for what follows damage, and for an offset, reads a part of a segment again.
    assert disk.count[0] <= 3.4 * size_bytes


def open_txn(producer_id: int) -> bytes:
    """A snapshot that contradicts the log: it says that a transaction is open at its start."""
    return producer_snapshot.encode([ProducerEntry(producer_id, 0, 0, 0, 0, 0, -1, 0)])


def salvaged(path: Location, **context: Any) -> object:
    partition = read_lone_partition(path, path.name)
    return repair_partition(partition, LoadContext(**context), Policy.SALVAGE)


def test_memory_depends_on_the_damage_and_not_on_the_batches(tmp_path: Path) -> None:
    peaks = []
    for count in (60_000, 120_000):
        logs = many_small_batches(count)
        path = write_partition(tmp_path / f"of-{count}" / "orders-0", logs)
        tracemalloc.start()
        try:
            outcome = salvaged(local(path))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert isinstance(outcome, Recovered)
        assert [each.cause for each in outcome.report.quarantined] == [Cause.DAMAGED] * 8
        assert len(outcome.report.added_markers) == 4
    # Only the new indexes grow: by 20 bytes for more than 50 batches.
    assert peaks[1] - peaks[0] < 4 * 60_000


def many_small_batches(count: int) -> dict[int, bytes]:
    """Four logs; in each, a marker and a batch are damaged."""
    after_offset = batch([record(0)])[8:]
    logs = {}
    for base in range(0, 4 * count, count):
        end = base + count - 4
        body = [struct.pack(">q", offset) + after_offset for offset in range(base, end)]
        body[count // 2] = flipped(body[count // 2])
        body += [
            of_producer(end, sequence=base, transactional=True),
            flipped(marker(end + 1)),
            of_producer(end + 2, sequence=base + 1, count=2),
        ]
        logs[base] = b"".join(body)
    return logs
