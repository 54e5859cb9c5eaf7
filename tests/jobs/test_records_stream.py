"""A stream of records, without Spark: where it begins, how far it goes, and what is lost."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import log_directories
from builders.batches import records_at
from builders.lock_holder import held_elsewhere
from builders.message_sets import message_07
from builders.recovery import marker, of_producer
from kdump.errors import KdumpError, UsageProblem
from kdump.formats.names import TopicPartition
from kdump.jobs.table_rows.records_stream import (
    RecordsStream,
    StreamOffsets,
    _limited,
    offsets_as_json,
    offsets_of_json,
    open_records_stream,
)
from kdump.log.lock_holders import forget_holders

ORDERS = TopicPartition("orders", 0)
USERS = TopicPartition("users", 0)
LOG = "00000000000000000000.log"
LOG_0_7 = "00000000000000000000.kafka"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Write a log of two segments with ten records each, and one of five records."""
    path = log_directories.write_log_directory(tmp_path / "data")
    log_directories.write_partition(
        path / "orders-0", {0: records_at(0, 10), 10: records_at(10, 10)}
    )
    log_directories.write_partition(path / "users-0", {0: records_at(0, 5)})
    return path


def stream(path: Path, **options: str) -> RecordsStream:
    return open_records_stream({"path": str(path), "columns": "topic,offset"} | options)


def read(opened: RecordsStream, start: StreamOffsets, end: StreamOffsets) -> list[tuple[str, int]]:
    """Return topic and offset of the records of a micro-batch, as workers read it."""
    again: RecordsStream = pickle.loads(pickle.dumps(opened))
    return sorted(
        (row["topic"], row["offset"])
        for split in opened.splits(start, end)
        for rows in again.read(split)
        for row in rows.to_pylist()
    )


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


# Where it begins


@pytest.mark.parametrize(
    ("options", "orders", "users"),
    [
        ({}, 20, 5),
        ({"startingOffsets": "latest"}, 20, 5),
        ({"startingOffsets": "earliest"}, 0, 0),
        ({"startingOffsets": '{"orders":{"0":7}}'}, 7, 0),
        ({"startingOffsets": '{"orders":{"0":-1},"users":{"0":-2}}'}, 20, 0),
        ({"startingTimestamp": "0"}, 0, 0),
        ({"startingTimestamp": "9000000000000"}, 20, 5),
    ],
)
def test_where_a_stream_begins(
    log_dir: Path, options: dict[str, str], orders: int, users: int
) -> None:
    assert stream(log_dir, **options).initial() == {ORDERS: orders, USERS: users}


def test_an_offset_outside_of_the_log_is_refused(log_dir: Path) -> None:
    at_21 = {"startingOffsets": '{"orders":{"0":21}}'}
    with pytest.raises(KdumpError, match=r"orders-0: startingOffsets is 21, outside .*0 to 20"):
        stream(log_dir, **at_21).initial()
    going_on = stream(log_dir, failOnDataLoss="false", **at_21)
    assert going_on.initial()[ORDERS] == 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, r"no option endingOffsets: trigger\(availableNow=True\)"),
        ({"table": "batches"}, "only the table records"),
        ({"replicas": "all"}, "one replica of each partition"),
        ({"maxOffsetsPerTrigger": "0"}, "a number of at least 1"),
        ({"maxFilesPerTrigger": "1"}, "a stream of kafka-log has no option 'maxfilespertrigger'"),
    ],
)
def test_options_that_a_stream_does_not_have_are_refused(
    log_dir: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageProblem, match=said):
        stream(log_dir, **options)


def test_a_log_of_0_7_is_followed_without_times(tmp_path: Path) -> None:
    log = log_directories.write_log_directory(tmp_path / "old") / "orders-0" / LOG_0_7
    log.parent.mkdir()
    log.write_bytes(message_07(b"first"))
    opened = stream(tmp_path / "old", startingTimestamp="0")
    start = opened.initial()
    assert start == opened.ends() == {ORDERS: log.stat().st_size}
    append(log, message_07(b"second"))
    assert read(opened, start, opened.latest(start, None)) == [("orders", start[ORDERS])]


def test_a_segment_alone_is_no_stream(log_dir: Path) -> None:
    with pytest.raises(UsageProblem, match="is not the log that a broker has of a partition"):
        stream(log_dir / "orders-0" / LOG).initial()


# How far it goes


def test_each_micro_batch_has_what_is_new(log_dir: Path) -> None:
    opened = stream(log_dir, startingOffsets="earliest")
    start = opened.initial()
    end = opened.latest(start, None)
    assert len(read(opened, start, end)) == 25
    assert opened.latest(end, None) == end
    assert not opened.splits(end, end)
    append(log_dir / "users-0" / LOG, records_at(5, 3))
    log_directories.write_partition(log_dir / "users-1", {0: records_at(0, 1)})
    after = opened.latest(end, None)
    assert read(opened, end, after) == [("users", 0), *(("users", at) for at in (5, 6, 7))]


def test_half_a_batch_is_read_when_it_is_whole(log_dir: Path) -> None:
    opened = stream(log_dir)
    start = opened.initial()
    whole = records_at(5, 3)
    append(log_dir / "users-0" / LOG, whole[:-10])
    assert opened.latest(start, None) == start
    append(log_dir / "users-0" / LOG, whole[-10:])
    assert read(opened, start, opened.latest(start, None)) == [("users", at) for at in (5, 6, 7)]


def test_a_stream_of_committed_records_waits_for_open_transactions(log_dir: Path) -> None:
    log = log_dir / "users-0" / LOG
    opened = stream(log_dir, **{"kafka.isolation.level": "read_committed"})
    start = opened.initial()
    append(log, of_producer(5, count=2, transactional=True) + records_at(7, 1))
    assert opened.latest(start, None) == start
    append(log, marker(8, commit=True))
    assert read(opened, start, opened.latest(start, None)) == [("users", at) for at in (5, 6, 7)]


def test_a_stream_that_ends_goes_to_where_the_logs_ended(log_dir: Path) -> None:
    opened = stream(log_dir, startingOffsets="earliest")
    start = opened.initial()
    last = opened.ends()
    append(log_dir / "users-0" / LOG, records_at(5, 3))
    log_directories.write_partition(log_dir / "users-1", {0: records_at(0, 1)})
    assert opened.latest(start, None, last) == {ORDERS: 20, USERS: 5}
    assert opened.latest({ORDERS: 20, USERS: 8}, None, last) == {ORDERS: 20, USERS: 8}


SIZES = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), min_size=1, max_size=9)


@given(SIZES, st.integers(1, 2**63))
def test_a_limit_is_kept_but_every_log_goes_on(sizes: list[tuple[int, int]], most: int) -> None:
    begin = {TopicPartition("t", number): start for number, (start, _) in enumerate(sizes)}
    end = {TopicPartition("t", n): start + size for n, (start, size) in enumerate(sizes)}
    found = _limited(begin, end, most)
    assert all(begin[key] <= found[key] <= end[key] for key in begin)
    assert all(found[key] > begin[key] for key in begin if end[key] > begin[key])
    assert sum(found[key] - begin[key] for key in begin) <= most + len(sizes)


def test_offsets_are_kept_in_the_form_of_sparks_own_source() -> None:
    offsets = {USERS: 2**62, TopicPartition("orders", 11): 3, ORDERS: 0}
    kept = offsets_as_json(offsets)
    assert kept == {"orders": {"0": 0, "11": 3}, "users": {"0": 2**62}}
    assert offsets_of_json(kept) == offsets


# What is lost


def lost(opened: RecordsStream, start: StreamOffsets) -> str:
    with pytest.raises(KdumpError) as caught:
        read(opened, start, opened.latest(start, None))
    return str(caught.value)


def test_records_that_retention_deleted_are_missed(log_dir: Path) -> None:
    opened = stream(log_dir)
    (log_dir / "orders-0" / LOG).unlink()
    start = {ORDERS: 3, USERS: 0}
    assert "orders-0 begins at 10: offsets from 3 on are deleted" in lost(opened, start)
    going_on = stream(log_dir, failOnDataLoss="false")
    found = read(going_on, start, going_on.latest(start, None))
    assert [offset for topic, offset in found if topic == "orders"] == [*range(10, 20)]


def test_a_log_that_ends_earlier_and_one_that_is_gone_are_missed(log_dir: Path) -> None:
    opened = stream(log_dir)
    assert "orders-0 ends at 20, before offset 22" in lost(opened, {ORDERS: 22, USERS: 5})
    shutil.rmtree(log_dir / "users-0")
    start = {ORDERS: 20, USERS: 5}
    assert "users-0 is gone" in lost(opened, start)
    assert stream(log_dir, failOnDataLoss="false").latest(start, None) == {ORDERS: 20}


def test_a_new_log_that_does_not_begin_at_0_is_missed(log_dir: Path) -> None:
    (log_dir / "orders-0" / LOG).unlink()
    assert "orders-0 is new, and begins at 10" in lost(stream(log_dir), {USERS: 5})


def test_retention_that_is_faster_than_a_worker_is_noticed(log_dir: Path) -> None:
    opened = stream(log_dir, startingOffsets="earliest")
    start = opened.initial()
    forget_holders()
    with held_elsewhere(log_dir):
        splits = opened.splits(start, opened.latest(start, None))
        (log_dir / "orders-0" / LOG).unlink()
        with pytest.raises(KdumpError, match="offsets from 0 on were deleted while they were read"):
            [batch for split in splits for batch in opened.read(split)]
    forget_holders()
