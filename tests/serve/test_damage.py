"""Damaged logs: a fetch fails where damage begins, or leaves it out; never a wrong record."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from builders.batches import batches
from builders.damage import batch_positions
from builders.log_directories import write_log_directory, write_partition
from builders.recovery import of_producer
from builders.serving import RunningServer, opened
from builders.transactional_logs import random_steps, write_transactional_log
from builders.verified import forged, with_body
from kdump.formats.names import TopicPartition
from kdump.serve.served_log import empty_batch
from serve.test_answers import fetch, offset_of

LOG = "00000000000000000000.log"
KEY: Final = TopicPartition("orders", 0)


def flip(log: bytearray, at: int) -> None:
    log[at + 70] ^= 1


def zero(log: bytearray, at: int) -> None:
    log[at : at + 80] = bytes(80)


def forge_offset(log: bytearray, at: int) -> None:
    log[at : at + 8] = (2**40).to_bytes(8, "big")


DAMAGES = (flip, zero, forge_offset)


@pytest.fixture
def damaged(log_dir: Path, request: pytest.FixtureRequest) -> Path:
    """The log directory with the fifth batch damaged, offsets 12 to 14."""
    path = log_dir / "orders-0" / LOG
    log = bytearray(path.read_bytes())
    damage: Callable[[bytearray, int], None] = request.param
    damage(log, batch_positions(log)[4])
    path.write_bytes(log)
    return log_dir


@pytest.mark.parametrize("damaged", DAMAGES, indirect=True)
def test_a_fetch_ends_before_damage_and_fails_at_it(damaged: Path) -> None:
    with opened(damaged) as server:
        assert fetch(server, 0).records == b"".join(batches(4))
        for offset in (12, 13, 14):
            found = fetch(server, offset)
            assert (found.error_code, found.records) == (ErrorCode.corrupt_message, b"")
        assert fetch(server, 15).records == b"".join(batches(10)[5:])
    assert "orders-0: offsets 12 to 14 are not served" in server.lines[0]
    assert LOG in server.lines[0]


def test_all_damage_in_a_row_is_told(log_dir: Path) -> None:
    every = batches(10)
    shutil.rmtree(log_dir / "orders-0")
    logs = {0: b"".join(every[:5]), 15: b"".join(every[5:])}
    for base_offset, number in ((0, 4), (15, 0)):
        log = bytearray(logs[base_offset])
        flip(log, batch_positions(log)[number])
        logs[base_offset] = bytes(log)
    write_partition(log_dir / "orders-0", logs)
    with opened(log_dir) as server:
        assert fetch(server, 12).error_code is ErrorCode.corrupt_message
    assert len(server.lines) == 2
    for line, base_offset in zip(server.lines, logs, strict=True):
        assert line.startswith("orders-0: offsets 12 to 17 are not served")
        assert f"{base_offset:020d}.log" in line


@pytest.mark.parametrize("damaged", DAMAGES, indirect=True)
def test_damage_is_left_out_if_that_is_asked_for(damaged: Path) -> None:
    with opened(damaged, skips_damage=True) as server:
        assert fetch(server, 0).records == b"".join(batches(4))
        assert fetch(server, 12).records == b"".join(batches(10)[5:])
    assert "orders-0: damaged, left out: offsets 12 to 14" in server.notices.summary()


@pytest.mark.parametrize("damaged", [flip], indirect=True)
def test_a_consumer_reads_everything_but_the_damage(damaged: Path) -> None:
    with opened(damaged, skips_damage=True) as server:
        found = server.read([("orders", 0)])["orders", 0]
    assert [each.offset for each in found] == [*range(12), *range(15, 30)]


@pytest.mark.parametrize("number", [0, 9])
def test_a_batch_with_more_records_than_offsets_is_sent_once(number: int, log_dir: Path) -> None:
    """Kafka's consumer goes on after the offsets of the header."""
    path = log_dir / "orders-0" / LOG
    every = batches(10)
    every[number] = forged(every[number], last_offset_delta=1)
    path.write_bytes(b"".join(every))
    after_header = 3 * number + 2
    with opened(log_dir) as server:
        assert fetch(server, after_header - 1, partition_max_bytes=1).records == every[number]
        following = fetch(server, after_header, partition_max_bytes=1).records
    assert following == (every[1] if number == 0 else empty_batch(after_header, 30))


def open_after_damage(log_dir: Path) -> None:
    """Batches with a damaged one, 3 to 5, before a transaction that is open from 6 on."""
    path = log_dir / "orders-0" / LOG
    first, second = bytearray(batches(1)[0]), bytearray(batches(2)[1])
    second[70] ^= 1
    path.write_bytes(bytes(first + second) + of_producer(6, 7, transactional=True))
    write_log_directory(log_dir, high_watermarks={("orders", 0): 7})


def test_damage_before_an_open_transaction_is_damage(log_dir: Path) -> None:
    open_after_damage(log_dir)
    with opened(log_dir) as server:
        found = fetch(server, 3, isolation_level=1)
        assert (found.error_code, found.records) == (ErrorCode.corrupt_message, b"")


def test_a_consumer_reaches_the_last_stable_offset_after_damage(log_dir: Path) -> None:
    open_after_damage(log_dir)
    with opened(log_dir, skips_damage=True) as server:
        found = server.read([("orders", 0)], "read_committed")["orders", 0]
    assert [each.offset for each in found] == [0, 1, 2]


def test_a_torn_tail_is_not_served(log_dir: Path) -> None:
    path = log_dir / "orders-0" / LOG
    path.write_bytes(path.read_bytes()[:-10])
    (log_dir / ".kafka_cleanshutdown").unlink()
    with opened(log_dir) as server:
        assert fetch(server, 0).records == b"".join(batches(9))
        assert fetch(server, 27).high_watermark == 27
        assert fetch(server, 28).error_code is ErrorCode.offset_out_of_range


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_damage_shows_a_record_that_was_not_committed(seed: int, tmp_path: Path) -> None:
    steps = random_steps(seed, 60)
    rng = random.Random(seed)
    root = write_transactional_log(tmp_path / "logs", steps, bases=[0, 25], clean=True).parent
    with opened(root) as server:
        committed = server.read([("orders", 0)], "read_committed")["orders", 0]
    for path in (root / "orders-0").glob("*.log"):
        log = bytearray(path.read_bytes())
        for position in rng.sample(batch_positions(log), 3):
            log[position + 62] ^= 1
        path.write_bytes(log)
    with opened(root, skips_damage=True) as server:
        found = server.read([("orders", 0)], "read_committed")["orders", 0]
    assert {each.offset for each in found} <= {each.offset for each in committed}


UNREADABLE: Final = {
    "codec": lambda content: forged(content, attributes=6),
    "compression": lambda content: forged(content, attributes=1),
    "records": lambda content: with_body(content, b"\xff" * 60),
    "count": lambda content: forged(content, records_count=-1),
    "few records": lambda content: forged(content, records_count=30),
    "many records": lambda content: forged(content, records_count=1),
}
"""Batches whose checksum is right, at which Kafka's consumer stops for ever."""


@pytest.mark.parametrize("number", [0, 4, 9])
@pytest.mark.parametrize("kind", UNREADABLE)
def test_batches_without_readable_records_are_left_out(
    kind: str, number: int, log_dir: Path
) -> None:
    every = batches(10)
    lost = range(3 * number, 3 * number + 3)
    every[number] = UNREADABLE[kind](every[number])
    (log_dir / "orders-0" / LOG).write_bytes(b"".join(every))
    with opened(log_dir) as server:
        assert fetch(server, lost[0], partition_max_bytes=1).records == every[number]
        assert server.lines == []
    with opened(log_dir, skips_damage=True) as server:
        found = server.read([("orders", 0)])["orders", 0]
    assert [each.offset for each in found] == [each for each in range(30) if each not in lost]
    assert server.notices.lost_ranges(KEY) == [(lost[0], lost[-1] + 1)]


def test_the_end_is_never_before_the_start(log_dir: Path) -> None:
    """A consumer that is sent from the one to the other would never come to rest."""
    marks, starts = {("orders", 0): 5}, {("orders", 0): 12}
    write_log_directory(log_dir, high_watermarks=marks, log_start_offsets=starts)
    with opened(log_dir) as server:
        assert (offset_of(server, -2).offset, offset_of(server, -1).offset) == (12, 12)
        assert fetch(server, 12).error_code is ErrorCode.none


def ends_after(log_dir: Path, *, lost_bytes: int) -> RunningServer:
    """Return a server that was asked for the end of the log, which lacks its last bytes."""
    path = log_dir / "orders-0" / LOG
    path.write_bytes(path.read_bytes()[:-lost_bytes])
    with opened(log_dir) as server:
        assert offset_of(server, -1).offset == 27
        fetch(server, 27)
    return server


def test_a_torn_end_is_told_once(log_dir: Path) -> None:
    server = ends_after(log_dir, lost_bytes=10)
    missing, torn = server.lines
    assert missing == (
        "orders-0: the log ends at offset 27, before the high watermark on disk, 30: records are"
        " missing"
    )
    assert torn.startswith("orders-0: the log ends at offset 27, before damage: ")
    assert LOG in torn
    assert server.notices.has_damage
    assert [*server.notices.summary()][1:] == server.lines


def test_a_lost_batch_at_the_end_is_told(log_dir: Path) -> None:
    server = ends_after(log_dir, lost_bytes=len(batches(10)[-1]))
    (missing,) = server.lines
    assert missing.endswith("the high watermark on disk, 30: records are missing")


def test_a_batch_that_a_broker_is_writing_is_no_loss(locked_dir: Path) -> None:
    write_log_directory(locked_dir, clean=False, high_watermarks={("orders", 0): 27})
    write_partition(locked_dir / "orders-0", {0: b"".join(batches(10))[:-10]})
    with opened(locked_dir) as server:
        assert offset_of(server, -1).offset == 27
        assert fetch(server, 27).error_code is ErrorCode.none
    assert server.lines == []
    assert not server.notices.has_damage


def test_a_log_that_a_broker_discards_is_told(log_dir: Path) -> None:
    write_log_directory(log_dir, log_start_offsets={("orders", 0): 31})
    with opened(log_dir) as server:
        assert offset_of(server, -1).offset == 31
    assert any("a starting broker deletes all its records" in each for each in server.lines)


@pytest.mark.parametrize("damaged", [flip], indirect=True)
def test_who_asks_for_each_lost_offset_is_told_of_one_range(damaged: Path) -> None:
    with opened(damaged) as server:
        for offset in (14, 13, 12, 13):
            fetch(server, offset)
    assert [*server.notices.summary()][1:] == ["orders-0: damaged, not served: offsets 12 to 14"]
