"""Open transactions of cut, damaged and incomplete log directories; engines agree."""

from __future__ import annotations

import os
import pickle
import uuid
from pathlib import Path

import pytest

from builders.log_directories import write_log_directory, write_partition
from builders.metadata_log import partition_record, topic_record, write_metadata_log
from builders.recovery import marker, of_producer
from builders.transaction_states import key_of, log_of, value_of
from builders.transactional_logs import (
    Step,
    open_after,
    random_steps,
    write_transactional_log,
)
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.engine.spark import SparkEngine
from kdump.formats.names import PARTITION_METADATA, FileKind, OffsetFileName
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.jobs.transactions.open_transactions import (
    PartitionTransactions,
    TxnsReport,
    TxnsRequest,
    txns,
)
from kdump.jobs.transactions.partition_transactions import TxnsJob, TxnsResult, TxnsSplit
from kdump.log.directory import read_log_directory
from kdump.log.selection import PartitionSelection
from kdump.state.transactions.stability import Pin
from kdump.storage.local_disk import local

NOW_MS = 1_800_000_000_000
"""Long after the records were written."""
HERE = EngineOptions(EngineChoice.LOCAL, processes=1)
WORKERS = EngineOptions(EngineChoice.LOCAL, processes=2)
BASES = (0, 8, 17)


def report(*roots: Path, options: EngineOptions = HERE, now_ms: int = NOW_MS) -> TxnsReport:
    directories = [read_log_directory(local(root)) for root in roots]
    return txns(TxnsRequest(directories, PartitionSelection(), now_ms), options)


def orders(found: TxnsReport) -> PartitionTransactions:
    (partition,) = [each for each in found.partitions if each.topic_partition.topic == "orders"]
    return partition


def log_name(base: int) -> str:
    return str(OffsetFileName(base, FileKind.LOG))


def split_of(partition: Path, *, clean: bool, steps: int) -> TxnsSplit:
    return TxnsSplit(
        local(partition),
        name=partition.name,
        flushed_offset=None if clean else steps,
        high_watermark=steps,
    )


# ---- Cut logs


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "clean"), [(1, True), (2, False)], ids=["clean", "unclean"])
def test_a_log_cut_at_any_byte_has_no_ended_transaction_open(
    seed: int, clean: bool, quick_path: Path
) -> None:
    steps = random_steps(seed, 22)
    path = write_transactional_log(quick_path / "d1", steps, bases=BASES, clean=clean)
    split = split_of(path, clean=clean, steps=len(steps))
    for base, end in zip(reversed(BASES), (22, 17, 8), strict=True):
        log = path / log_name(base)
        ends = {sum(len(step.data) for step in steps[base:at]): at for at in range(base, end + 1)}
        for size in range(log.stat().st_size, -1, -1):
            os.truncate(log, size)
            whole = max(at for begin, at in ends.items() if begin <= size)

            result = TxnsJob().run(split)

            assert isinstance(result, TxnsResult)
            found = {txn.producer_id: txn.first_offset for txn in result.log.open_txns}
            assert found == open_after(steps[:whole])
            assert not result.log.uncertain_txns
            assert result.log_end_offset == whole
        log.unlink()


def test_a_transaction_whose_marker_was_cut_off_is_open_though_its_coordinator_committed_it(
    tmp_path: Path,
) -> None:
    steps = random_steps(1, 3)
    data = [step for step in steps if not step.is_marker][:1]
    root = tmp_path / "d1"
    write_transactional_log(root, data, bases=(0,), clean=False)
    committed = value_of(producer_id=data[0].producer_id, state=4, partitions=())
    write_partition(root / "__transaction_state-0", {0: log_of([(key_of("tx"), committed)])})

    (opened,) = orders(report(root)).open_transactions

    assert opened.is_certain
    assert opened.judgement.is_hanging
    assert opened.judgement.transaction is not None
    assert opened.judgement.transaction.state.value == "CompleteCommit"


# ---- Damage


def damaged(tmp_path: Path, steps: list[Step], at: int) -> Path:
    """A log with one damaged batch."""
    root = tmp_path / "d1"
    path = write_transactional_log(root, steps, bases=(0,), clean=False)
    log = path / log_name(0)
    content = bytearray(log.read_bytes())
    content[sum(len(step.data) for step in steps[: at + 1]) - 1] ^= 1
    log.write_bytes(content)
    return root


@pytest.mark.parametrize("seed", range(8))
def test_damage_makes_uncertain_what_was_open_before_it_and_has_no_later_marker(
    seed: int, tmp_path: Path
) -> None:
    steps = random_steps(seed, 14)
    found = orders(report(damaged(tmp_path, steps, 6)))

    ended_later = {step.producer_id for step in steps[7:] if step.is_marker}
    uncertain = {
        producer_id: offset
        for producer_id, offset in open_after(steps[:6]).items()
        if producer_id not in ended_later
    }
    certain = {
        producer_id: offset
        for producer_id, offset in open_after(steps[7:]).items()
        if producer_id not in uncertain
    }
    assert {
        each.txn.producer_id: each.txn.first_offset
        for each in found.open_transactions
        if not each.is_certain
    } == uncertain
    assert {
        each.txn.producer_id: each.txn.first_offset
        for each in found.open_transactions
        if each.is_certain
    } == certain
    assert found.stability.last_stable_offset is None


def test_damage_in_a_coordinators_log_leaves_unknown_what_hangs(tmp_path: Path) -> None:
    root = tmp_path / "d1"
    steps = [step for step in random_steps(1, 9) if not step.is_marker][:1]
    write_transactional_log(root, steps, bases=(0,), clean=True)
    parts = [log_of([(key_of("a"), value_of(producer_id=99))], offset) for offset in range(3)]
    broken = parts[1][:-1] + bytes([parts[1][-1] ^ 1])
    path = write_partition(root / "__transaction_state-0", {0: b"".join(parts)})
    write_metadata_log(
        root, [topic_record("__transaction_state", 1), partition_record(1, 0, [1], [1])]
    )
    assert orders(report(root)).open_transactions[0].judgement.is_hanging
    (path / log_name(0)).write_bytes(parts[0] + broken + parts[2])

    found = report(root)

    assert orders(found).open_transactions[0].judgement.is_hanging is None
    assert len(found.damages) == 1
    assert not found.problems
    (transaction,) = (each for _, each in found.transactions())
    assert transaction.is_certain


def test_a_state_before_damage_is_uncertain(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1")
    parts = [log_of([(key_of(name), value_of())], offset) for offset, name in enumerate("abc")]
    broken = parts[1][:-1] + bytes([parts[1][-1] ^ 1])
    write_partition(root / "__transaction_state-0", {0: parts[0] + broken + parts[2]})
    found = {each.transactional_id: each.is_certain for _, each in report(root).transactions()}
    assert found == {"a": False, "c": True}


# ---- The last stable offset


@pytest.mark.parametrize(
    ("high_watermark", "expected"),
    [
        pytest.param(4, (1, Pin.TRANSACTION), id="a transaction"),
        pytest.param(1, (1, Pin.HIGH_WATERMARK), id="the high watermark"),
        pytest.param(None, (1, Pin.TRANSACTION), id="a transaction, whatever the high watermark"),
    ],
)
def test_a_last_stable_offset_is_pinned(
    high_watermark: int | None, expected: tuple[int, Pin], tmp_path: Path
) -> None:
    steps = two_transactions()
    root = tmp_path / "d1"
    write_transactional_log(root, steps, bases=(0,), clean=True)
    marks = {} if high_watermark is None else {("orders", 0): high_watermark}
    write_log_directory(root, recovery_points={("orders", 0): 4}, high_watermarks=marks)
    assert tuple(orders(report(root)).stability) == expected


def two_transactions() -> list[Step]:
    """The transaction of one producer ends, that of another does not."""
    return [
        Step(0, 7, False, of_producer(0, 7, transactional=True)),
        Step(1, 8, False, of_producer(1, 8, transactional=True)),
        Step(2, 7, True, marker(2, 7, commit=True)),
        Step(3, 8, False, of_producer(3, 8, transactional=True)),
    ]


def test_a_marker_past_the_high_watermark_pins_the_start_of_its_transaction(
    tmp_path: Path,
) -> None:
    root = tmp_path / "d1"
    write_transactional_log(root, two_transactions(), bases=(0,), clean=False)
    write_log_directory(root, clean=False, high_watermarks={("orders", 0): 2})
    assert tuple(orders(report(root)).stability) == (0, Pin.UNREPLICATED_TRANSACTION)


@pytest.mark.parametrize("seed", range(6))
def test_the_first_unstable_offset_counts_markers_past_the_high_watermark(
    seed: int, tmp_path: Path
) -> None:
    steps = random_steps(seed, 20)
    root = tmp_path / "d1"
    path = write_transactional_log(root, steps, bases=(0,), clean=False)
    for high_watermark in range(21):
        split = TxnsSplit(
            local(path), name=path.name, flushed_offset=20, high_watermark=high_watermark
        )
        result = TxnsJob().run(split)
        assert isinstance(result, TxnsResult)
        unreplicated = [
            first
            for step in steps[high_watermark:]
            if step.is_marker
            and (first := open_after(steps[: step.offset]).get(step.producer_id)) is not None
        ]
        expected = min([*open_after(steps).values(), *unreplicated], default=None)
        assert result.log.first_unstable_offset == expected


# ---- Sizes


@pytest.mark.parametrize("bases", [(0,), BASES])
def test_sizes_are_those_of_the_batches(bases: tuple[int, ...], tmp_path: Path) -> None:
    steps = random_steps(5, 22)
    root = tmp_path / "d1"
    write_transactional_log(root, steps, bases=bases, clean=True)
    opened = orders(report(root)).open_transactions
    assert len(opened) > 1
    for each in opened:
        own = [
            step.data
            for step in steps[each.txn.first_offset :]
            if step.producer_id == each.txn.producer_id
        ]
        assert each.size is not None
        assert (each.size.batches, each.size.records) == (len(own), len(own))
        assert each.size.size_bytes == sum(map(len, own))
        assert each.size.pinned_bytes == sum(
            len(step.data) for step in steps[each.txn.first_offset :]
        )


# ---- Replicas, and engines


def test_the_most_advanced_replica_is_read(tmp_path: Path) -> None:
    steps = two_transactions()
    roots = [tmp_path / name for name in ("d1", "d2")]
    write_transactional_log(roots[0], steps[:2], bases=(0,), clean=True)
    write_transactional_log(roots[1], steps, bases=(0,), clean=True)
    found = orders(report(*roots))
    assert str(found.replica.log_directory.path) == str(roots[1])
    assert [str(each.log_directory.path) for each, _ in found.other_ends] == [str(roots[0])]
    assert [each.txn.producer_id for each in found.open_transactions] == [8]


def test_a_transaction_does_not_hang_because_one_replica_lacks_its_marker(tmp_path: Path) -> None:
    steps = two_transactions()
    roots = [tmp_path / name for name in ("d1", "d2")]
    for root, held in zip(roots, ([*steps[:2], steps[3]], steps), strict=True):
        write_transactional_log(root, held, bases=(0,), clean=False)
    assert [each.txn.producer_id for each in orders(report(*roots)).open_transactions] == [8]


def test_topics_of_one_name_with_different_ids_are_read_each(tmp_path: Path) -> None:
    steps = two_transactions()
    roots = [tmp_path / name for name in ("d1", "d2")]
    for root, held in zip(roots, (steps, steps[:2]), strict=True):
        write_transactional_log(root, held, bases=(0,), clean=True)
    recreated = encode_partition_metadata(PartitionMetadata(0, uuid.UUID(int=77)))
    (roots[0] / "orders-0" / PARTITION_METADATA).write_bytes(recreated)
    assert {
        str(each.replica.log_directory.path): [
            txn.txn.producer_id for txn in each.open_transactions
        ]
        for each in report(*roots).partitions
        if each.topic_partition.topic == "orders"
    } == {str(roots[0]): [8], str(roots[1]): [7, 8]}


def test_a_replica_that_becomes_stray_is_read_only_where_there_is_no_other(tmp_path: Path) -> None:
    steps = two_transactions()
    roots = [tmp_path / name for name in ("d1", "d2")]
    for root, held in zip(roots, (steps, steps[:2]), strict=True):
        write_transactional_log(root, held, bases=(0,), clean=True)
    (roots[0] / "orders-0" / PARTITION_METADATA).unlink()
    assert str(orders(report(*roots)).replica.log_directory.path) == str(roots[1])
    assert str(orders(report(roots[0])).replica.log_directory.path) == str(roots[0])


@pytest.mark.slow
def test_workers_have_the_same_result(tmp_path: Path) -> None:
    roots = [tmp_path / f"d{number}" for number in range(3)]
    for number, root in enumerate(roots):
        write_transactional_log(root, random_steps(number, 22), bases=BASES, clean=bool(number % 2))
    here, there = report(*roots), report(*roots, options=WORKERS)
    assert here.partitions == there.partitions
    assert (here.damages, here.problems) == (there.damages, there.problems)


def test_spark_has_the_same_result(tmp_path: Path, spark: SparkEngine) -> None:
    splits = []
    for number in range(3):
        steps = random_steps(number, 22)
        path = write_transactional_log(
            tmp_path / f"d{number}", steps, bases=BASES, clean=bool(number % 2)
        )
        splits.append(split_of(path, clean=bool(number % 2), steps=22))
    assert dict(spark.run(TxnsJob(), splits)) == {split: TxnsJob().run(split) for split in splits}


def test_splits_and_results_are_small(tmp_path: Path) -> None:
    steps = random_steps(3, 22)
    path = write_transactional_log(tmp_path / "d1", steps, bases=BASES, clean=False)
    split = split_of(path, clean=False, steps=22)
    data = pickle.dumps((TxnsJob(), split, TxnsJob().run(split)))
    assert pickle.loads(data) == (TxnsJob(), split, TxnsJob().run(split))
    assert len(data) < 4096
