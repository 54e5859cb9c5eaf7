"""No record is silently missing, even if indexes and snapshots are damaged.

A query either fails or returns what a starting broker would keep.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import batches, damage, random_partitions
from builders.apply_target import apply_target
from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_directories import (
    offset_index,
    time_index,
    write_log_directory,
    write_partition,
)
from builders.read_records import (
    ReadRecord,
    all_records,
    committed_records,
    data_records,
    last_stable_offset,
    survey_partition,
)
from builders.recovery import files_after, joined, load, marker, of_producer
from builders.samples import seeds
from builders.source_tables import offsets_of, rows_of
from kdump.broker.loader.recovered_partition import Recovered
from kdump.broker.loader.swapped_partition import as_loaded
from kdump.cli.main import cli
from kdump.errors import KdumpError
from kdump.formats import producer_snapshot
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.contents import LogContents
from kdump.log.directory import read_lone_partition
from kdump.storage.local_disk import local
from kdump.tables.kafka_log.damage import DamagedLogError

COMMITTED = {"kafka.isolation.level": "read_committed"}
DROPPING = {"mode": "DROPMALFORMED"}


def partition(tmp_path: Path, logs: dict[int, bytes], **others: bytes) -> Path:
    named = {name.replace("_", ".", 1)[1:]: content for name, content in others.items()}
    return write_partition(tmp_path / "orders-0", logs, others=named)


# ---- Markers ----


def with_two_transactions() -> tuple[bytes, bytes, bytes]:
    """Make a log in three parts: before a commit marker at offset 2, the marker, and after it."""
    before = joined(
        batch([record(0)]),
        of_producer(1, transactional=True),
    )
    after = joined(
        batch([record(3)]),
        of_producer(4, sequence=1, transactional=True),
        marker(5, commit=False),
        of_producer(6, 8, transactional=True),
        marker(7, 8, commit=True),
    )
    return before, marker(2, commit=True), after


@pytest.mark.slow
def test_a_flipped_bit_in_a_marker_fails_a_read_committed_query(
    tmp_path: Path,
) -> None:
    before, valid, after = with_two_transactions()
    log = write_partition(tmp_path / "orders-0", {0: b""}) / f"{0:020d}.log"
    undetected = set()
    for bit in range(len(valid) * 8):
        changed = bytearray(valid)
        changed[bit // 8] ^= 1 << bit % 8
        log.write_bytes(before + changed + after)
        try:
            assert offsets_of(log.parent, **COMMITTED) == [0, 1, 3, 6]
            undetected.add(bit // 8)
        except DamagedLogError:
            continue
    # No checksum covers the leader epoch.
    assert undetected == {12, 13, 14, 15}


def test_a_damaged_marker_hides_only_the_records_of_its_transaction(tmp_path: Path) -> None:
    before, valid, after = with_two_transactions()
    changed = bytearray(valid)
    changed[-1] ^= 1
    path = partition(tmp_path, {0: before + changed + after})
    assert offsets_of(path, **COMMITTED, **DROPPING) == [0, 3, 6]
    states = {
        row["offset"]: row["transactionState"]
        for row in rows_of(path, columns="offset,transactionState", **DROPPING)
    }
    assert states == {0: None, 1: "open", 3: None, 4: "aborted", 6: "committed"}
    rows = rows_of(path, mode="PERMISSIVE", **COMMITTED)
    assert [row["offset"] for row in rows] == [0, None, 3, 6]


def test_a_damaged_marker_in_a_later_segment_is_reported(tmp_path: Path) -> None:
    changed = bytearray(marker(10, commit=True))
    changed[-1] ^= 1
    logs = {0: of_producer(0, transactional=True), 10: bytes(changed) + batch([record(11)])}
    path = partition(tmp_path, logs)
    with pytest.raises(DamagedLogError, match=f"{10:020d}.log"):
        offsets_of(path, endingOffsets='{"orders":{"0":5}}', **COMMITTED)
    assert offsets_of(path, **COMMITTED, **DROPPING) == [11]


@pytest.mark.parametrize(
    "bad",
    [marker(2, key=b"\x00\x00"), marker(2, key=b"\x80\x00\x00\x01"), marker(2, value=b"\x00")],
    ids=["short key", "negative version", "short value"],
)
def test_a_marker_that_no_broker_can_read_is_damage(tmp_path: Path, bad: bytes) -> None:
    before, _, after = with_two_transactions()
    path = partition(tmp_path, {0: before + bad + after})
    for options in ({}, COMMITTED):
        with pytest.raises(DamagedLogError):
            offsets_of(path, **options)


def test_batches_with_offsets_out_of_order_are_damage(tmp_path: Path) -> None:
    rows = batches.batches(4, base_offset=10)
    for at, name in ((0, "before its segment"), (3, "twice"), (5, "after the next segment")):
        folder = tmp_path / name
        folder.mkdir()
        first = batch([record(1)]) if at == 0 else b""
        twice = rows[2] if at == 3 else b""
        last = batch([record(30)]) if at == 5 else b""
        logs = {10: joined(first, rows[:3], twice, rows[3], last), 22: batch([record(22)])}
        path = partition(folder, logs)
        with pytest.raises(DamagedLogError, match="do not fit"):
            offsets_of(path)
        assert offsets_of(path, **DROPPING) == [*range(10, 23)]


# ---- Producer snapshots ----


def snapshot(*open_transactions: tuple[int, int], last_offset: int = -1) -> bytes:
    """Encode a snapshot; each producer has the first offset of its open transaction, or -1."""
    return producer_snapshot.encode(
        [
            ProducerEntry(producer_id, 0, 0, last_offset, 0, 1, 0, begin)
            for producer_id, begin in open_transactions
        ]
    )


def three_segments() -> dict[int, bytes]:
    """Make three segments whose transaction at offset 21 is open."""
    return {
        0: joined(of_producer(0, transactional=True), marker(1, commit=True)),
        10: joined(of_producer(10, sequence=1, transactional=True), batch([record(11)])),
        20: joined(marker(20, commit=True), of_producer(21, 8, transactional=True)),
    }


@pytest.mark.parametrize("offset", [22, 23, 1000])
@pytest.mark.parametrize("begins", [((7, 0),), (), ((9, 11),)])
def test_a_snapshot_inside_a_segment_is_ignored(
    tmp_path: Path, offset: int, begins: tuple[tuple[int, int], ...]
) -> None:
    write_log_directory(tmp_path)
    path = partition(tmp_path, three_segments())
    (path / f"{offset:020d}.snapshot").write_bytes(snapshot(*begins))
    assert offsets_of(path, **COMMITTED) == [0, 10, 11]


@pytest.mark.parametrize(
    "content",
    [
        snapshot(),
        snapshot((7, -1)),
        snapshot((7, 0)),
        snapshot((7, 11)),
        snapshot((7, 10), (8, 12)),
        snapshot((7, 10), last_offset=25),
        b"damaged",
    ],
    ids=["empty", "ended", "too early", "too late", "unknown", "after the log end", "damaged"],
)
def test_a_snapshot_that_contradicts_the_segment_before_it_is_ignored(
    tmp_path: Path, content: bytes
) -> None:
    logs = three_segments()
    logs[20] = of_producer(21, 8, transactional=True)
    logs[10] = joined(
        of_producer(10, sequence=1, transactional=True),
        marker(11, commit=True),
        of_producer(12, sequence=2, transactional=True),
    )
    write_log_directory(tmp_path)
    path = partition(tmp_path, logs)
    (path / f"{20:020d}.snapshot").write_bytes(content)
    assert offsets_of(path, **COMMITTED) == [0, 10]


def test_segments_before_a_valid_snapshot_are_not_read(tmp_path: Path) -> None:
    write_log_directory(tmp_path)
    path = partition(tmp_path, three_segments())
    content = snapshot((7, 10), last_offset=10)
    (path / f"{20:020d}.snapshot").write_bytes(content)
    log = path / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    start = '{"orders":{"0":10}}'
    assert offsets_of(path, startingOffsets=start, **COMMITTED) == [10, 11]


# ---- Random damage ----


def random_partition(rng: random.Random, path: Path) -> bool:
    """Write a partition with random damage; return whether it was shut down cleanly."""
    logs = random_partitions.random_logs(rng)
    path.mkdir()
    for name, content in logs.items():
        (path / name).write_bytes(content)
    files = files_after(path)
    is_clean = rng.random() < 0.3
    if not is_clean:
        files = random_partitions.as_after_crash(files)
    _, files = random_partitions.after_happenings(rng, files)
    shutil.rmtree(path)
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return is_clean


def survey(path: Path) -> LogContents | None:
    """Return the counts of ``info --deep``, or None if it reports damage."""
    partition = as_loaded(read_lone_partition(local(path), path.name))
    contents, problems = survey_partition(partition)
    return None if problems else contents


@pytest.mark.parametrize("seed", seeds(0, count=60, in_main=15))
def test_a_query_fails_or_returns_what_a_starting_broker_keeps(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "orders-0"
    is_clean = random_partition(rng, path)
    recovery_point = rng.choice([0, 0, 100, 1500])
    write_log_directory(tmp_path, clean=is_clean, recovery_points={("orders", 0): recovery_point})
    found, found_committed, counted = None, None, None
    with contextlib.suppress(KdumpError):
        counted = survey(path)
        found = offsets_of(path)
        found_committed = offsets_of(path, **COMMITTED)
    outcome = load(path, is_clean=is_clean, recovery_point=recovery_point, high_watermark=2**62)
    if not isinstance(outcome, Recovered):
        return
    apply_target(path, outcome.files)
    records = all_records(path)
    if counted is not None:
        # A broker may keep an empty segment between others, which then overlap.
        assert survey(path) in (counted, None)
    if found is not None:
        assert found == [each.offset for each in data_records(records)]
    if found_committed is not None:
        # A broker may trust a snapshot that contradicts the log; kdump uses the log.
        ends = {outcome.first_unstable_offset, last_stable_offset(records)}
        assert found_committed in [
            [each.offset for each in committed_records(records, 2**62 if end is None else end)]
            for end in ends
        ]


# ---- Indexes ----


def index_damaged(rng: random.Random, path: Path) -> None:
    """Damage one index of a partition, or replace it by another segment's."""
    indexes = sorted([*path.glob("*.index"), *path.glob("*.timeindex")])
    index = rng.choice(indexes)
    others = [each for each in indexes if each.suffix == index.suffix]
    content = bytearray(index.read_bytes())
    happening = rng.choice([*damage.ANY_FILE, *damage.INDEX, *damage.INDEX, "zeroed tail", "other"])
    if happening == "other":
        index.write_bytes(rng.choice(others).read_bytes())
    elif happening == "zeroed tail":
        at = rng.randrange(len(content) + 1)
        index.write_bytes(content[:at] + bytes(len(content) - at))
    else:
        assert callable(happening)
        index.write_bytes(happening(rng, content))


def indexed_partition(rng: random.Random, path: Path) -> list[ReadRecord]:
    """Write a partition with many index entries, and damage some indexes."""
    path.mkdir()
    for name, content in random_partitions.random_logs(rng).items():
        (path / name).write_bytes(content)
    files = files_after(path, interval_bytes=rng.choice([0, 300, 4096]))
    for name, content in files.items():
        (path / name).write_bytes(content)
    for _ in range(rng.randrange(1, 5)):
        index_damaged(rng, path)
    return all_records(path)


@pytest.mark.parametrize("seed", seeds(0, count=25, in_main=8))
def test_no_query_misses_a_record_because_of_damaged_indexes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "orders-0"
    everything = indexed_partition(rng, path)
    records = data_records(everything)
    offsets = [each.offset for each in records]
    for _ in range(4):
        time_ms = rng.choice(everything).timestamp_ms + rng.choice([-1, 0, 0, 1])
        # Control records have a timestamp, too.
        first = min(
            (each.offset for each in everything if each.timestamp_ms >= time_ms), default=2**62
        )
        offset = rng.choice(everything).offset
        assert offsets_of(path, startingTimestamp=str(time_ms)) == [
            o for o in offsets if o >= first
        ]
        assert offsets_of(path, endingTimestamp=str(time_ms)) == [o for o in offsets if o < first]
        by_offset = f'{{"orders":{{"0":{offset}}}}}'
        assert offsets_of(path, startingOffsets=by_offset) == [o for o in offsets if o >= offset]
        moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=time_ms)
        since = [("GreaterThanOrEqual", "timestamp", moment)]
        assert offsets_of(path, since) == [
            each.offset for each in records if each.timestamp_ms >= time_ms
        ]


@pytest.mark.parametrize("seed", seeds(0, count=25, in_main=8))
def test_no_dump_misses_a_record_because_of_damaged_indexes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "orders-0"
    indexed_partition(rng, path)
    log = rng.choice(sorted(path.glob("*.log")))
    for each in path.glob("*.log"):
        if each != log:
            each.unlink()
    records = all_records(path)
    time_ms, offset = rng.choice(records).timestamp_ms, rng.choice(records).offset
    since = [each.offset for each in records if each.timestamp_ms >= time_ms]
    rest = [each.offset for each in records if each.offset >= offset]
    assert dumped(log, "--from-time", str(time_ms)) == since
    assert dumped(log, "--from-offset", str(offset)) == rest


def dumped(log: Path, *options: str) -> list[int]:
    """Return the offsets of the records in a dump."""
    arguments = ["dump-segment", "--output", "jsonl", *options, str(log)]
    outcome = run_kdump(arguments, log.parent)
    rows = objects(outcome.stdout)
    return [row["offset"] for row in rows if row["type"] == "record"]


def timed(base_offset: int, *times: int, claim: int | None = None) -> bytes:
    rows = [record(base_offset + at, timestamp=ms) for at, ms in enumerate(times)]
    return batch(rows, max_timestamp=claim)


def test_a_batch_whose_max_timestamp_is_too_low_hides_no_record(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: joined(timed(0, 10), timed(1, 50, 40, claim=20), timed(3, 30))})
    log = path / f"{0:020d}.log"
    assert offsets_of(path, startingTimestamp="40") == [1, 2, 3]
    assert dumped(log, "--from-time", "40") == [1, 2]
    outcome = CliRunner().invoke(
        cli, ["dump-segment", "--from-time", "40", str(log)], standalone_mode=False
    )
    assert "baseOffset: 1 lastOffset: 2" in outcome.stdout
    assert outcome.stdout.count("baseOffset") == 1


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_time_that_may_be_in_damage_fails_the_query_with_and_without_index(
    tmp_path: Path, is_indexed: bool
) -> None:
    first, second, third = timed(0, 10), bytearray(timed(1, 40)), timed(2, 50)
    second[-1] ^= 1
    index = offset_index((1, len(first)), (2, len(first + second)))
    path = write_partition(
        tmp_path / "orders-0",
        {0: joined(first, bytes(second), third)},
        offset_indexes={0: index} if is_indexed else None,
        time_indexes={0: time_index((10, 0))} if is_indexed else None,
    )
    with pytest.raises(DamagedLogError):
        offsets_of(path, startingTimestamp="40")
    assert offsets_of(path, startingTimestamp="40", **DROPPING) == [2]


def test_a_time_index_with_a_zeroed_tail_hides_no_segment(tmp_path: Path) -> None:
    logs = {
        0: joined(timed(at, 100 + at) for at in range(4)),
        4: timed(4, 200),
    }
    path = write_partition(
        tmp_path / "orders-0",
        logs,
        time_indexes={0: time_index((100, 0), padding=3)},
    )
    assert offsets_of(path, startingTimestamp="102") == [2, 3, 4]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_unreadable_index_does_not_fail_a_query(tmp_path: Path, suffix: str) -> None:
    path = partition(tmp_path, {0: joined(timed(at, 100 + at) for at in range(4))})
    index = path / f"{0:020d}{suffix}"
    index.unlink()
    index.mkdir()
    assert offsets_of(path, startingTimestamp="102") == [2, 3]
    assert offsets_of(path, startingOffsets='{"orders":{"0":1}}') == [1, 2, 3]
