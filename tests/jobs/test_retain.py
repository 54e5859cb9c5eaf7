"""Retention chooses segments across all directories; the job itself writes nothing."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import crc32c
import pytest

from builders.batches import BASE_TIMESTAMP_MS
from builders.freeing import second_partition
from builders.log_directories import offset_checkpoint
from builders.trees import tree_of
from builders.verified import END_OFFSET, PARTITION, LogModel, write_segment
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.engine.spark import SparkEngine
from kdump.formats import names, record_batch
from kdump.jobs.retain.old_segments import NotCleanError, NotDeleted, PartitionDeletion
from kdump.jobs.retain.retain import RetainRequest, retain
from kdump.jobs.retain.segment_deletion import (
    ByRetention,
    DecideLater,
    DeleteSegmentsJob,
    DeleteSegmentsSplit,
    DeletionRule,
    FirstSegments,
    delete_segments_split,
)
from kdump.log.directory import read_log_directory
from kdump.log.selection import PartitionSelection
from kdump.repair.verdict.verdict import Verdict, VerdictKind
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local
from kdump.target.target_file import NewBytes

REPLICATED = {names.REPLICATION_OFFSET_CHECKPOINT: END_OFFSET}
KNOWN = {"remote.storage.enable": "false", "retention.ms": "1000", "cleanup.policy": "delete"}
OLD = Settings(given=KNOWN)
DAY_MS = 86_400_000
ALL_IS_OLD_MS = BASE_TIMESTAMP_MS + 9_000
RULES = (DecideLater(), ByRetention(OLD.topic("orders"), ALL_IS_OLD_MS), FirstSegments(1))
HERE = EngineOptions(EngineChoice.LOCAL, processes=1)
WORKERS = EngineOptions(EngineChoice.LOCAL, processes=2)


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """Write log directories of two brokers; the second has the older records."""
    younger = LogModel().write(tmp_path / "younger").parent
    model = LogModel()
    for base_offset, batches in model.segments.items():
        model.segments[base_offset] = [_made_earlier(each) for each in batches]
    older = model.write(tmp_path / "older").parent
    path = older / names.META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(b"node.id=7", b"node.id=8"))
    return younger, older


def _made_earlier(batch: bytes) -> bytes:
    """Make the records of a batch a day older."""
    times = record_batch.HEADER_BYTES - 34
    base_ms, largest_ms = struct.unpack_from(">qq", batch, times)
    earlier = struct.pack(">qq", base_ms - DAY_MS, largest_ms - DAY_MS)
    checked = batch[record_batch.CHECKED_START : times] + earlier + batch[times + 16 :]
    crc = crc32c.crc32c(checked)
    return batch[: record_batch.CRC_START] + struct.pack(">I", crc) + checked


def request(*roots: Path, **options: object) -> RetainRequest:
    fields: dict[str, object] = {"selection": PartitionSelection(("*",)), "now_ms": ALL_IS_OLD_MS}
    locations = list(map(local, roots))
    settings = dict.fromkeys(locations, options.pop("settings", OLD))
    directories = list(map(read_log_directory, locations))
    return RetainRequest(directories, settings, **(fields | options))  # type: ignore[arg-type]


def partitions(asked: RetainRequest) -> list[PartitionDeletion]:
    return [each for result in retain(asked) for each in result.partitions]


def test_the_oldest_segments_of_all_directories_are_deleted_first(roots: tuple[Path, Path]) -> None:
    younger, older = partitions(request(*roots, free_bytes=1))
    assert [len(younger.deleted), len(older.deleted)] == [0, 1]

    both = partitions(request(*roots, free_bytes=older.freed_bytes + 1))
    assert [len(each.deleted) for each in both] == [0, 2]


def test_at_least_the_requested_space_is_freed(roots: tuple[Path, Path]) -> None:
    most_bytes = sum(each.freed_bytes for each in partitions(request(*roots)))
    for wanted_bytes in range(1, most_bytes + 1, 97):
        freed = partitions(request(*roots, free_bytes=wanted_bytes))
        assert sum(each.freed_bytes for each in freed) >= wanted_bytes

    freed = partitions(request(*roots, free_bytes=most_bytes + 1))
    assert sum(each.freed_bytes for each in freed) == most_bytes


@pytest.mark.slow
@pytest.mark.parametrize("free_bytes", [None, 1], ids=["retention", "free"])
def test_workers_have_the_same_result(roots: tuple[Path, Path], free_bytes: int | None) -> None:
    asked = request(*roots, free_bytes=free_bytes)

    assert retain(asked, HERE) == retain(asked, WORKERS)


def test_spark_has_the_same_result(roots: tuple[Path, Path], spark: SparkEngine) -> None:
    splits = [split_of(root, rule) for root in roots for rule in RULES]

    found = dict(spark.run(DeleteSegmentsJob(), splits))

    assert found == {split: DeleteSegmentsJob().run(split) for split in splits}


def test_splits_and_results_are_small(roots: tuple[Path, Path]) -> None:
    for rule in RULES:
        split = split_of(roots[0], rule)
        data = pickle.dumps((DeleteSegmentsJob(), split, DeleteSegmentsJob().run(split)))
        assert pickle.loads(data) == (DeleteSegmentsJob(), split, DeleteSegmentsJob().run(split))
        assert len(data) < 4096


def split_of(root: Path, rule: DeletionRule) -> DeleteSegmentsSplit:
    directory = read_log_directory(local(root))
    (partition,) = directory.partitions
    return delete_segments_split(
        partition, directory, OLD, rule, now_ms=ALL_IS_OLD_MS, is_replicated=False
    )


def test_a_log_start_offset_at_the_first_segment_is_removed_as_by_a_broker(
    roots: tuple[Path, Path],
) -> None:
    path = roots[0] / names.LOG_START_OFFSET_CHECKPOINT
    path.write_bytes(b"0\n2\norders 0 0\nothers 1 5\n")

    (result,) = retain(request(roots[0], now_ms=0))

    assert result.target.partitions == ()
    assert result.target.root == {path.name: NewBytes(b"0\n1\nothers 1 5\n")}


def test_the_job_writes_nothing(roots: tuple[Path, Path]) -> None:
    before = [tree_of(root) for root in roots]

    assert sum(each.freed_bytes for each in partitions(request(*roots)))

    assert [tree_of(root) for root in roots] == before


def test_the_log_start_offset_is_durable_before_anything_is_deleted(
    roots: tuple[Path, Path],
) -> None:
    (result, _) = retain(request(*roots))

    first = result.target.interim[names.LOG_START_OFFSET_CHECKPOINT]
    assert first == NewBytes(b"0\n1\norders 0 18\n")
    assert names.CLEAN_SHUTDOWN_MARKER not in result.target.root


def test_a_directory_without_deletions_is_unchanged(roots: tuple[Path, Path]) -> None:
    for result in retain(request(*roots, now_ms=0)):
        assert (result.target.partitions, dict(result.target.root)) == ((), {})
        assert dict(result.target.interim) == {}


def test_a_directory_without_selected_partitions_need_not_be_clean(
    roots: tuple[Path, Path],
) -> None:
    younger, older = roots
    (older / names.CLEAN_SHUTDOWN_MARKER).unlink()
    second_partition(younger, "payments-0", REPLICATED)

    (result,) = retain(request(*roots, selection=PartitionSelection(("pay*",))))

    assert result.directory.path == local(younger)
    with pytest.raises(NotCleanError):
        retain(request(*roots))


def test_segments_of_compacted_logs_are_freed_only_if_selected_by_exact_name(
    roots: tuple[Path, Path],
) -> None:
    root = roots[0]
    second_partition(root, "payments-0", REPLICATED)
    compacted = Settings(given=KNOWN | {"cleanup.policy": "compact"})

    orders, payments = partitions(request(root, settings=compacted, free_bytes=1))
    assert (orders.deleted, payments.deleted) == ((), ())

    selection = PartitionSelection(("*", "payments"))
    orders, payments = partitions(
        request(root, settings=compacted, free_bytes=1, selection=selection)
    )
    assert (orders.unchanged, payments.unchanged) == (NotDeleted.COMPACTED, None)
    assert len(payments.deleted) == 1


def test_segments_below_the_log_start_are_deleted_whatever_the_policy(
    roots: tuple[Path, Path],
) -> None:
    root = roots[0]
    line = {names.LOG_START_OFFSET_CHECKPOINT: 13}
    second_partition(root, "payments-0", REPLICATED | line)
    compacted = Settings(given=KNOWN | {"cleanup.policy": "compact"})

    orders, payments = partitions(request(root, settings=compacted))

    assert [len(orders.deleted), len(payments.deleted)] == [0, 1]
    assert payments.deleted[0].why == "it is before the log start offset"


def test_a_log_start_offset_counts_where_leader_epochs_begin_before_it(
    roots: tuple[Path, Path],
) -> None:
    root = roots[0]
    (root / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({PARTITION: 13}))

    (orders,) = partitions(request(root, now_ms=BASE_TIMESTAMP_MS))

    assert orders.problem is None
    assert [each.why for each in orders.deleted] == ["it is before the log start offset"]
    assert orders.log_start_offset == 13


def test_a_log_that_ends_before_its_log_start_offset_is_left_unchanged(
    roots: tuple[Path, Path],
) -> None:
    root = roots[0]
    (root / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({PARTITION: 19}))

    (orders,) = partitions(request(root))

    assert (orders.deleted, orders.outcome) == ((), None)
    assert isinstance(orders.problem, Verdict)
    assert orders.problem.kind is VerdictKind.LOSS


def test_retention_by_size_deletes_whole_segments_above_the_limit(tmp_path: Path) -> None:
    model = LogModel()
    root = model.write(tmp_path / "logs").parent
    sizes = {base_offset: sum(map(len, batches)) for base_offset, batches in model.segments.items()}
    write_segment(root / "orders-0", 12, model.segments[12])
    for limit, count in ((sum(sizes.values()), 0), (sizes[12] + 1, 0), (sizes[12], 1), (0, 2)):
        settings = Settings(given=KNOWN | {"retention.bytes": str(limit), "retention.ms": "-1"})
        (orders,) = partitions(request(root, settings=settings))
        assert len(orders.deleted) == count, limit
