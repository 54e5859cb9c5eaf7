"""Which records compaction keeps, rule by rule."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.compact_for_differ import compact, compact_round, live_of
from builders.message_sets import message
from builders.recover_for_differ import recover
from kdump.broker.cleaner.cleaned_segment import GroupRewriter
from kdump.broker.cleaner.cleaned_transactions import NO_TXN_BATCHES
from kdump.broker.cleaner.compaction_keys import NO_RECORDS
from kdump.broker.cleaner.compaction_preview import preview
from kdump.broker.cleaner.compaction_round import Compacted, Round, begin_round
from kdump.broker.cleaner.compaction_scan import PartToScan, ScannedPart, scan_part
from kdump.broker.loader.load_context import load_context
from kdump.formats import names
from kdump.formats.checkpoints import OffsetEntry, encode_offset_checkpoint
from kdump.formats.compression import Codec
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    TRANSACTIONAL_FLAG,
    Record,
    decode_header,
)
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.scan.records import RecordColumns
from kdump.scan.walk import walk_segment
from kdump.state.metadata.settings import TopicSettings
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal
from kdump.target.target_file import CopiedFrom, Kept

PARTITION = TopicPartition("case", 0)
NOW_MS = BASE_TIMESTAMP_MS + 86_400_000
DAY_MS = 86_400_000

Row = tuple[int, bytes | None, bytes | None]


def log_dir(path: Path, segments: Sequence[Sequence[bytes]]) -> Path:
    """Write a clean log directory with one partition, whose last segment is active."""
    partition = path / str(PARTITION)
    partition.mkdir(parents=True)
    end = 0
    for batches in segments:
        (partition / f"{end:020d}.log").write_bytes(b"".join(batches))
        end = last_offset(batches[-1]) + 1
    recover(path)
    line = OffsetEntry(PARTITION, end)
    (path / names.REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint([line]))
    return path


def last_offset(data: bytes) -> int:
    return decode_header(data).last_offset if data[16] == 2 else int.from_bytes(data[:8])


def put(offset: int, key: bytes | None, value: bytes | None = b"v") -> Record:
    return record(offset, key, value)


def active(offset: int) -> list[bytes]:
    """Make an active segment, which compaction leaves unchanged."""
    return [batch([put(offset, b"active")])]


def compacted(path: Path, now_ms: int = NOW_MS, **given: str) -> Compacted:
    """Compact in place; ``given`` are Kafka's properties, with underscores for dots."""
    settings = {name.replace("_", "."): value for name, value in given.items()}
    outcome = compact(path, settings, now_ms=now_ms)[PARTITION]
    assert isinstance(outcome, Compacted), outcome
    return outcome


def refusal_of(path: Path) -> Refusal:
    outcome = compact(path, {}, now_ms=NOW_MS)[PARTITION]
    assert isinstance(outcome, Refusal)
    return outcome


def rows(path: Path, base_offset: int = 0) -> list[Row]:
    """Read offset, key and value of the records in a segment."""
    found: list[Row] = []
    for columns in steps(path, base_offset):
        found.extend(
            (int(columns.offset[row]), columns.key(row), columns.value(row))
            for row in range(columns.count)
        )
    return found


def steps(path: Path, base_offset: int = 0) -> list[RecordColumns]:
    with local(path / str(PARTITION) / f"{base_offset:020d}.log").open_file() as source:
        found = list(walk_segment(source, with_records=True))
    return [step for step in found if isinstance(step, RecordColumns)]


def begun_round(path: Path, settings: TopicSettings | None = None) -> Round:
    directory = read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY)
    context = load_context(directory, PARTITION, now_ms=NOW_MS)
    begun = begin_round(directory.partitions[0], context, settings or TopicSettings(), None)
    assert isinstance(begun, Round)
    return begun


def scanned(part: PartToScan) -> ScannedPart:
    found = scan_part(part)
    assert isinstance(found, ScannedPart)
    return found


def test_the_last_record_of_each_key_is_kept_with_its_offset(tmp_path: Path) -> None:
    first = batch([put(0, b"a", b"1"), put(1, b"b", b"2"), put(2, b"a", b"3")])
    second = batch([put(3, b"c", b"4"), put(4, b"b", b"5")])
    path = log_dir(tmp_path / "d", [[first, second], active(5)])

    compacted(path)

    assert rows(path) == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]


@pytest.mark.parametrize("codec", Codec)
def test_a_rebuilt_batch_keeps_its_codec_and_its_offsets(tmp_path: Path, codec: Codec) -> None:
    records = [put(offset, b"k%d" % (offset % 3), b"x" * 200) for offset in range(40)]
    path = log_dir(tmp_path / "d", [[batch(records, codec=codec)], active(40)])

    compacted(path)

    batches = steps(path)[0].batches
    assert batches.attributes.tolist() == [codec]
    assert (batches.base_offset.tolist(), batches.last_offset.tolist()) == ([0], [39])
    assert [row[0] for row in rows(path)] == [37, 38, 39]


def test_records_without_a_key_are_deleted_and_counted(tmp_path: Path) -> None:
    path = log_dir(tmp_path / "d", [[batch([put(0, None), put(1, b"a"), put(2, None)])], active(3)])

    begun = begun_round(path)
    parts = [scanned(part) for part in begun.parts_to_scan()]
    found = {part.path: parts for part in begun.parts_to_scan()}
    live, keys = live_of(found)
    (group,) = begun.groups_to_rewrite(found, live)
    rewriter = GroupRewriter(group)
    assert list(rewriter.pieces())
    outcome = rewriter.outcome
    assert not isinstance(outcome, Refusal)
    summary = preview(
        begun,
        begun.finish([outcome]),
        keys=keys,
        records_without_key=sum(part.records_without_key for part in parts),
        tombstones=sum(part.tombstones for part in parts),
    )

    assert summary.records_without_key == 2
    assert (summary.before.records, summary.after.records) == (3, 1)
    assert (summary.keys_before, summary.keys_after) == (1, 1)


def test_a_tombstone_is_deleted_after_its_delete_horizon(tmp_path: Path) -> None:
    path = log_dir(tmp_path / "d", [[batch([put(0, b"a"), put(1, b"a", None)])], active(2)])

    compacted(path, NOW_MS)
    batches = steps(path)[0].batches
    assert rows(path) == [(1, b"a", None)]
    assert batches.attributes[0] & DELETE_HORIZON_FLAG
    assert batches.base_timestamp[0] == NOW_MS + DAY_MS

    (path / names.CLEANER_OFFSET_CHECKPOINT).unlink()
    compacted(path, NOW_MS + DAY_MS)
    assert rows(path) == []


def test_an_unchanged_segment_is_not_written(tmp_path: Path) -> None:
    whole = [batch([put(offset, b"k%d" % offset)]) for offset in range(9)]
    path = log_dir(tmp_path / "d", [whole, active(9)])

    begun = begun_round(path)
    found = {part.path: [scanned(part)] for part in begun.parts_to_scan()}
    (group,) = begun.groups_to_rewrite(found, live_of(found)[0])
    rewriter = GroupRewriter(group)

    size_bytes = len(b"".join(whole))
    assert list(rewriter.pieces()) == [CopiedFrom(f"{0:020d}.log", 0, size_bytes)]
    outcome = rewriter.outcome
    assert not isinstance(outcome, Refusal)
    finished = begun.finish([outcome])
    assert finished.files[f"{0:020d}.log"] == Kept()
    assert finished.cleaner_offset == 9


def test_merged_segments_get_the_modification_time_of_the_last(tmp_path: Path) -> None:
    path = log_dir(
        tmp_path / "d",
        [[batch([put(0, b"a")])], [batch([put(1, b"b")])], [batch([put(2, b"a")])], active(3)],
    )
    for base_offset in (0, 1, 2):
        log = path / str(PARTITION) / f"{base_offset:020d}.log"
        os.utime(log, ns=(0, (1_000 + base_offset) * 10**6))

    outcome = compacted(path)

    logs = sorted(log.name for log in (path / str(PARTITION)).glob("*.log"))
    assert logs == [f"{0:020d}.log", f"{3:020d}.log"]
    assert rows(path) == [(1, b"b", b"v"), (2, b"a", b"v")]
    assert set(outcome.modified_ms.values()) == {1_002}


def test_snapshots_of_replaced_segments_are_deleted(tmp_path: Path) -> None:
    path = log_dir(tmp_path / "d", [[batch([put(0, b"a")])], [batch([put(1, b"b")])], active(2)])
    partition = path / str(PARTITION)
    (partition / f"{1:020d}.snapshot").write_bytes((partition / f"{3:020d}.snapshot").read_bytes())

    compacted(path)

    kept = sorted(int(each.stem) for each in partition.glob("*.snapshot"))
    assert kept == [2, 3]


def of_producer(
    offset: int, key: bytes, sequence: int, flags: int = 0, producer_id: int = 7
) -> bytes:
    return batch(
        [put(offset, key)],
        attributes=flags,
        base_sequence=sequence,
        producer_id=producer_id,
        producer_epoch=0,
    )


def test_the_last_batch_of_a_producer_is_kept_empty(tmp_path: Path) -> None:
    first, last = of_producer(0, b"a", 0), of_producer(1, b"a", 1)
    path = log_dir(tmp_path / "d", [[first, last, batch([put(2, b"a")])], active(3)])

    compacted(path)

    with local(path / str(PARTITION) / f"{0:020d}.log").open_file() as source:
        windows = list(walk_segment(source, with_records=False))
    batches = windows[0].batches  # type: ignore[union-attr]
    assert batches.base_offset.tolist() == [1, 2]
    assert batches.records_count.tolist() == [0, 1]
    assert batches.base_sequence.tolist() == [1, -1]


def marker(offset: int, kind: int, producer_id: int = 7) -> bytes:
    one = record(offset, b"\0\0" + kind.to_bytes(2), bytes(6))
    flags = TRANSACTIONAL_FLAG | CONTROL_FLAG
    return batch([one], attributes=flags, producer_id=producer_id, producer_epoch=0)


def test_aborted_records_are_deleted_and_replace_no_others(tmp_path: Path) -> None:
    segment = [
        batch([put(0, b"a", b"old")]),
        of_producer(1, b"a", 0, TRANSACTIONAL_FLAG),
        marker(2, 0),
        batch([put(3, b"b")]),
    ]
    path = log_dir(tmp_path / "d", [segment, active(4)])

    compacted(path)

    assert [row[0] for row in rows(path)] == [0, 2, 3]
    assert (path / str(PARTITION) / f"{0:020d}.txnindex").stat().st_size


def test_a_marker_without_records_is_deleted_after_its_delete_horizon(tmp_path: Path) -> None:
    segment = [
        of_producer(0, b"a", 0, TRANSACTIONAL_FLAG, producer_id=8),
        marker(1, 1, producer_id=8),
        batch([put(2, b"a")]),
    ]
    path = log_dir(tmp_path / "d", [segment, active(3)])
    for snapshot in (path / str(PARTITION)).glob("*.snapshot"):
        snapshot.unlink()  # so that no producer is active
    now_ms = NOW_MS
    left = []
    for _ in range(3):
        compacted(path, now_ms)
        (path / names.CLEANER_OFFSET_CHECKPOINT).unlink()
        left.append([row[0] for row in rows(path)])
        now_ms += DAY_MS

    assert left == [[1, 2], [1, 2], [2]]


def test_messages_of_magic_0_and_1_become_batches_of_magic_2(tmp_path: Path) -> None:
    segment = [message(0, b"a", b"1", magic=0), message(1, b"b", b"2"), message(2, b"a", b"3")]
    path = log_dir(tmp_path / "d", [segment, active(3)])

    compacted(path)

    assert rows(path) == [(1, b"b", b"2"), (2, b"a", b"3")]


def test_segments_are_unchanged_where_kafka_fails_on_an_old_message(tmp_path: Path) -> None:
    path = log_dir(tmp_path / "d", [[message(0, b"a"), message(1, None)], active(2)])
    before = (path / str(PARTITION) / f"{0:020d}.log").read_bytes()

    outcome = compacted(path)

    assert outcome.stopped_by is not None
    assert "magic 0 or 1" in outcome.stopped_by.reason
    assert (path / str(PARTITION) / f"{0:020d}.log").read_bytes() == before
    assert outcome.cleaner_offset is None


def test_a_damaged_batch_is_refused_and_not_rewritten_with_a_valid_checksum(tmp_path: Path) -> None:
    path = log_dir(tmp_path / "d", [[batch([put(0, b"a"), put(1, b"b")])], active(2)])
    log = path / str(PARTITION) / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data)

    refusal = refusal_of(path)

    assert (refusal.file, refusal.position) == (log.name, 0)


def test_offsets_that_do_not_increase_are_refused(tmp_path: Path) -> None:
    path = log_dir(tmp_path / "d", [[batch([put(0, b"a")]), batch([put(1, b"b")])], active(2)])
    log = path / str(PARTITION) / f"{0:020d}.log"
    data = log.read_bytes()
    log.write_bytes(data[len(data) // 2 :] + data[: len(data) // 2])

    assert "follows one that ends at 1" in refusal_of(path).reason


def test_a_segment_scanned_in_parts_gives_the_same_live_records(tmp_path: Path) -> None:
    batches = [
        batch([put(2 * step, b"k%d" % (step % 7)), put(2 * step + 1, None)]) for step in range(30)
    ]
    path = log_dir(tmp_path / "d", [batches, active(60)])
    begun = begun_round(path)
    (whole,) = begun.parts_to_scan()
    cut = sum(map(len, batches[:11]))
    parts = [
        PartToScan(whole.path, 0, cut, whole.mapped_position, whole.first_dirty_offset),
        PartToScan(whole.path, cut, None, whole.mapped_position, whole.first_dirty_offset),
    ]

    live, keys = live_of({whole.path: [scanned(part) for part in parts]})
    expected, expected_keys = live_of({whole.path: [scanned(whole)]})

    assert keys == expected_keys == 7
    assert live == expected


@pytest.mark.slow
def test_a_batch_larger_than_the_window_is_compacted(tmp_path: Path) -> None:
    large = [put(0, b"a", b"x" * (3 << 20)), put(1, b"b", b"y" * (3 << 20)), put(2, b"a", b"z")]
    path = log_dir(tmp_path / "d", [[batch(large), batch([put(3, b"c")])], active(4)])

    compacted(path)

    assert [row[0] for row in rows(path)] == [1, 2, 3]


def test_inputs_and_results_of_the_steps_can_be_pickled(tmp_path: Path) -> None:
    path = log_dir(tmp_path / "d", [[batch([put(0, b"a"), put(1, b"a", None)])], active(2)])
    begun = pickle.loads(pickle.dumps(begun_round(path)))

    found = {
        part.path: [pickle.loads(pickle.dumps(scanned(pickle.loads(pickle.dumps(part)))))]
        for part in begun.parts_to_scan()
    }
    groups = pickle.loads(pickle.dumps(list(begun.groups_to_rewrite(found, live_of(found)[0]))))
    rewriter = GroupRewriter(groups[0])
    assert len(list(rewriter.pieces())) == 1
    assert pickle.loads(pickle.dumps(rewriter.outcome)) == rewriter.outcome


def test_without_a_cleanable_range_the_loaded_files_are_unchanged(tmp_path: Path) -> None:
    begun = begun_round(log_dir(tmp_path / "d", [active(0)]))

    outcome = compact_round(begun)

    assert isinstance(outcome, Compacted)
    assert outcome.files == begun.loaded.files
    assert outcome.cleaner_offset is None


def test_parts_without_keys_and_transactions_share_what_is_empty() -> None:
    records, txns = pickle.loads(pickle.dumps((NO_RECORDS, NO_TXN_BATCHES)))

    assert records is NO_RECORDS
    assert txns is NO_TXN_BATCHES
