"""Logs of Kafka 0.7, as clients of today read them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ClusterJvms
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.message_sets import message_07
from builders.serving import Read, RunningServer, opened
from kdump.formats.record_batch import HEADER_BYTES, decode_header, decode_records
from serve.test_answers import fetch, offset_of

GZIP: Final = 1
BASE: Final = 1000
SET: Final = message_07(
    gzip.compress(b"".join(message_07(b"in a set %d" % each) for each in range(3))),
    attributes=GZIP,
)
FIRST: Final = (message_07(b"a", magic=0), SET, message_07(b"d"))
SECOND: Final = tuple(message_07(b"message %d" % each) for each in range(2000))
NEXT: Final = BASE + sum(map(len, FIRST))
"""Where the second segment begins."""
END: Final = NEXT + sum(map(len, SECOND))


def write(root: Path, first: bytes, second: bytes) -> Path:
    path = root / "logs" / "orders-0"
    path.mkdir(parents=True)
    (path / f"{BASE:020d}.kafka").write_bytes(first)
    (path / f"{BASE + len(first):020d}.kafka").write_bytes(second)
    return path.parent


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write(tmp_path, b"".join(FIRST), b"".join(SECOND))


@pytest.fixture
def server(log_dir: Path) -> Iterator[RunningServer]:
    with opened(log_dir) as running:
        yield running


def found_by_grep(log_dir: Path) -> list[tuple[int, str | None]]:
    """The offset and the value of each message, as kdump finds them without a server."""
    outcome = run_kdump(["grep", "--value", "", "--output", "jsonl", str(log_dir)], log_dir)
    rows = [row for row in objects(outcome.stdout) if row["type"] == "record"]
    return [(row["offset"], row["value"]) for row in rows]


def own_offsets(rows: Sequence[tuple[int, str | None]]) -> list[tuple[int, str | None]]:
    """Give each message of a compressed set the offset after the one before it."""
    found: list[tuple[int, str | None]] = []
    for offset, value in rows:
        found.append((max(offset, found[-1][0] + 1 if found else 0), value))
    return found


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def read(server: RunningServer, start: int) -> list[Read]:
    return server.read([("orders", 0)], start=start)["orders", 0]


def test_messages_have_the_offsets_that_grep_has(server: RunningServer, log_dir: Path) -> None:
    expected = own_offsets(found_by_grep(log_dir))
    rows = read(server, BASE)
    assert [(each.offset, text(each.value)) for each in rows] == expected
    assert len(rows) == 5 + len(SECOND)
    assert {(each.key, each.timestamp) for each in rows} == {(None, -1)}


def test_the_consumer_of_kafka_reads_every_message(
    server: RunningServer,
    log_dir: Path,
    newest_classpath: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "jvms").mkdir()
    with ClusterJvms(newest_classpath, tmp_path / "jvms") as jvms:
        clients = ClusterClients(jvms)
        clients.ask("connect", bootstrap=server.address)
        for isolation in ("read_uncommitted", "read_committed"):
            rows = clients.read(("orders", 0), isolation=isolation)["orders-0"]
            expected = own_offsets(found_by_grep(log_dir))
            assert [(row[0], row[3]) for row in rows] == expected
        ends = clients.list_offsets(
            [[("orders", 0, "earliest")], [("orders", 0, "latest")]], "READ_UNCOMMITTED"
        )
        assert [rows[0][0] for rows in ends] == [BASE, END]


@pytest.mark.parametrize(("timestamp", "offset"), [(-2, BASE), (-1, END), (-3, -1), (0, -1)])
def test_times_lead_to_the_ends_only(timestamp: int, offset: int, server: RunningServer) -> None:
    assert offset_of(server, timestamp).offset == offset


def test_every_offset_leads_to_the_next_message(server: RunningServer) -> None:
    rows = read(server, BASE)
    for start in range(BASE, NEXT + 40):
        found = read_from(server, start)
        assert found == next((each.offset for each in rows if each.offset >= start), None)


def read_from(server: RunningServer, start: int) -> int | None:
    """The offset of the first record from there on that a fetch has."""
    data = fetch(server, start).records
    batches = segment_records(data)
    return next((each for each in batches if each >= start), None)


def segment_records(data: bytes) -> Iterator[int]:
    """The offsets of the records in some batches."""
    while data:
        header = decode_header(data)
        body = data[HEADER_BYTES : header.size_bytes]
        yield from (each.offset for each in decode_records(header, body))
        data = data[header.size_bytes :]


@pytest.mark.parametrize("offset", [0, BASE - 1, END + 1])
def test_offsets_outside_are_refused(offset: int, server: RunningServer) -> None:
    assert fetch(server, offset).error_code == ErrorCode.offset_out_of_range


def test_the_end_has_nothing(server: RunningServer) -> None:
    found = fetch(server, END)
    assert (found.error_code, found.records, found.high_watermark) == (ErrorCode.none, b"", END)


def test_damage_is_corrupt_or_left_out(tmp_path: Path) -> None:
    damaged = bytearray(b"".join(FIRST))
    damaged[len(FIRST[0]) + 20] ^= 1
    root = write(tmp_path, bytes(damaged), b"".join(SECOND[:2]))
    with opened(root) as server:
        assert read_from(server, BASE) == BASE
        found = fetch(server, BASE + len(FIRST[0]))
        assert found.error_code == ErrorCode.corrupt_message
    with opened(root, skips_damage=True) as server:
        assert [each.value for each in read(server, BASE)] == [
            b"a",
            b"d",
            *(b"message 0", b"message 1"),
        ]
        lost = BASE + len(FIRST[0])
        assert any(
            f"offsets {lost} to {lost + len(SET) - 1} are left out" in each for each in server.lines
        )


def test_a_set_with_more_messages_than_bytes_is_damage(tmp_path: Path) -> None:
    many = gzip.compress(message_07(b"") * 5000)
    wrapper = message_07(many, attributes=GZIP)
    assert len(wrapper) < 5000
    root = write(tmp_path, wrapper, SECOND[0])
    with opened(root, skips_damage=True) as server:
        assert read_from(server, BASE) == BASE + len(wrapper)
        assert any("more messages than bytes" in each for each in server.lines)


def test_the_torn_end_of_a_log_is_not_served(tmp_path: Path) -> None:
    root = write(tmp_path, b"".join(FIRST), SECOND[0] + SECOND[1][:-1])
    with opened(root) as server:
        assert offset_of(server, -1).offset == NEXT + len(SECOND[0])
        assert [each.value for each in read(server, NEXT)] == [b"message 0"]
    (line,) = server.lines
    assert line.startswith(
        f"orders-0: the log ends at offset {NEXT + len(SECOND[0])}, before damage"
    )


def test_a_small_fetch_has_at_least_one_message(server: RunningServer) -> None:
    found = fetch(server, NEXT, partition_max_bytes=1)
    assert found.records.count(b"message ") == 1


def test_an_offset_in_the_last_message_leads_to_the_end(server: RunningServer) -> None:
    found = fetch(server, END - 1)
    assert found.error_code == ErrorCode.none
    header = decode_header(found.records)
    assert (header.records_count, header.last_offset) == (0, END - 1)


def test_sets_without_messages_lead_to_the_end(tmp_path: Path) -> None:
    empty = message_07(gzip.compress(b""), attributes=GZIP)
    root = write(tmp_path, b"".join(FIRST), empty * 3)
    with opened(root) as server:
        assert decode_header(fetch(server, NEXT).records).last_offset == NEXT + 3 * len(empty) - 1


def test_a_fetch_of_tiny_messages_is_not_larger_than_asked_for(tmp_path: Path) -> None:
    root = write(tmp_path, b"".join(FIRST), message_07(b"") * 20_000)
    with opened(root) as server:
        assert 0 < len(fetch(server, NEXT, partition_max_bytes=10_000).records) <= 10_000


def test_an_end_that_could_not_be_read_is_looked_up_again(
    server: RunningServer, log_dir: Path
) -> None:
    last = log_dir / "orders-0" / f"{NEXT:020d}.kafka"
    last.rename(last.with_suffix(".away"))
    assert offset_of(server, -1).error_code != ErrorCode.none
    last.with_suffix(".away").rename(last)
    assert offset_of(server, -1).offset == END


@pytest.mark.parametrize("base", [BASE, NEXT])
def test_a_file_that_becomes_shorter_is_an_error_of_its_partition(base: int, log_dir: Path) -> None:
    path = log_dir / "orders-0" / f"{base:020d}.kafka"
    with opened(log_dir) as server:
        assert offset_of(server, -1).offset == END
        with path.open("r+b") as log:
            log.truncate(path.stat().st_size - 20)
        assert fetch(server, base).error_code is ErrorCode.kafka_storage_error
    assert any("became shorter" in line and path.name in line for line in server.lines)
