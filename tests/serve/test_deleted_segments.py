"""Segments that a broker deletes: nothing keeps them on the disk between two fetches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builders.damage import batch_positions
from builders.log_directories import write_log_directory
from builders.recovery import marker, of_producer
from builders.serving import RunningServer, opened, read_with
from builders.transactional_logs import (
    Step,
    open_after,
    random_steps,
    write_transactional_log,
)
from serve.test_answers import fetch


def open_files(folder: Path) -> list[str]:
    """The files of a folder that this process, which is the server's too, has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            name = str(each.readlink())
        except FileNotFoundError:
            continue
        found += [name] if name.startswith(str(folder)) else []
    return found


def next_offset(records: bytes) -> int:
    """The offset after the last of some batches."""
    last = batch_positions(records)[-1]
    base = int.from_bytes(records[last : last + 8], "big")
    return base + int.from_bytes(records[last + 23 : last + 27], "big") + 1


@pytest.mark.parametrize("level", [0, 1])
def test_no_segment_is_open_between_fetches(level: int, tmp_path: Path) -> None:
    log = write_transactional_log(tmp_path / "logs", random_steps(3, 60), bases=[0, 25], clean=True)
    with opened(log.parent) as server:
        offset, fetches = 0, 0
        while records := fetch(server, offset, isolation_level=level, max_bytes=1).records:
            assert open_files(log) == []
            offset, fetches = next_offset(records), fetches + 1
    assert fetches > 20


def test_deleted_segments_are_not_kept(tmp_path: Path) -> None:
    log = write_transactional_log(tmp_path / "logs", random_steps(3, 60), bases=[0, 25], clean=True)
    with opened(log.parent) as server:
        fetch(server, 0, isolation_level=1, max_bytes=1)
        for path in log.glob("*.log"):
            path.unlink()
        assert [each for each in open_files(log) if each.endswith("(deleted)")] == []


def committed(server: RunningServer, **configs: int) -> list[int]:
    with server.consumer(isolation_level="read_committed", **configs) as consumer:
        return [each.offset for each in read_with(consumer, [("orders", 0)])["orders", 0]]


@pytest.mark.parametrize("is_damaged", [False, True], ids=["valid", "damaged"])
@pytest.mark.parametrize("seed", range(4))
def test_small_fetches_tell_of_the_same_committed_records(
    seed: int, is_damaged: bool, tmp_path: Path
) -> None:
    steps = random_steps(seed, 60)
    for producer_id in open_after(steps):
        data = marker(len(steps), producer_id, commit=True)
        steps.append(Step(len(steps), producer_id, True, data))
    log = write_transactional_log(tmp_path / "logs", steps, bases=[0, 25], clean=True)
    rng = random.Random(seed)
    for path in log.glob("*.log") if is_damaged else ():
        damaged = bytearray(path.read_bytes())
        for position in rng.sample(batch_positions(damaged), 3):
            damaged[position + 62] ^= 1
        path.write_bytes(damaged)
    with opened(log.parent, skips_damage=True) as server:
        large = committed(server)
        assert large
        assert committed(server, max_partition_fetch_bytes=1) == large


def test_transactions_end_as_the_file_says_that_is_read(log_dir: Path) -> None:
    """Someone may put another file in the place of a log, or write over it."""
    data = b"".join(of_producer(at, 1, sequence=at, transactional=True) for at in (0, 1))
    path = log_dir / "orders-0" / "00000000000000000000.log"
    write_log_directory(log_dir, high_watermarks={("orders", 0): 3})
    path.write_bytes(data + marker(2, 1, commit=True))
    with opened(log_dir) as server:
        assert fetch(server, 0, isolation_level=1, max_bytes=1).aborted_transactions == ()
        path.write_bytes(data + marker(2, 1, commit=False))
        (aborted,) = fetch(server, 1, isolation_level=1, max_bytes=1).aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (1, 1)
