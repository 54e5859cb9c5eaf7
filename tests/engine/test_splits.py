from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from builders import batches, large_segments
from builders.index_files import offset_index_bytes
from builders.large_segments import LargeSegment
from kdump.engine import splits
from kdump.engine.job import Split
from kdump.log.partition import Partition

TARGET = 64 << 10


@pytest.fixture(scope="module")
def segment() -> LargeSegment:
    return LargeSegment.of(400)


def cut(partition: Partition, target_bytes: int = TARGET) -> list[Split]:
    return list(splits.partition_splits(partition, target_bytes))


def assert_cut_at_batches(parts: list[Split], segment: LargeSegment) -> None:
    assert parts[0].start == 0
    assert parts[-1].end is None
    assert all(before.end == after.start for before, after in itertools.pairwise(parts))
    assert {part.start for part in parts} <= set(segment.positions)
    assert sum(part.size_bytes for part in parts) == len(segment.log)


@pytest.mark.parametrize("is_indexed", [True, False], ids=["by the index", "by headers"])
def test_a_large_segment_is_split_at_batches_into_parts_of_equal_size(
    tmp_path: Path, segment: LargeSegment, is_indexed: bool
) -> None:
    partition = large_segments.write(
        tmp_path, segment, index=segment.index() if is_indexed else None
    )
    parts = cut(partition)
    assert_cut_at_batches(parts, segment)
    assert len(parts) == round(len(segment.log) / TARGET)
    sizes = [part.size_bytes for part in parts]
    assert max(sizes) - min(sizes) < TARGET // 4


def test_a_segment_slightly_larger_than_a_split_is_not_split(
    tmp_path: Path, segment: LargeSegment
) -> None:
    partition = large_segments.write(tmp_path, segment, index=segment.index())
    path = partition.path / f"{0:020d}.log"
    assert cut(partition, len(segment.log) * 3 // 4) == [
        Split(path, 0, None, len(segment.log), "orders-0")
    ]


def test_without_index_entries_batch_headers_give_the_split_points(
    tmp_path: Path, segment: LargeSegment
) -> None:
    third = len(segment.log) // 3
    index = segment.index(skipping_bytes=(third, 2 * third))
    parts = cut(large_segments.write(tmp_path, segment, index=index))
    assert_cut_at_batches(parts, segment)
    assert len(parts) == round(len(segment.log) / TARGET)


def test_entries_that_do_not_point_to_a_batch_are_ignored(
    tmp_path: Path, segment: LargeSegment
) -> None:
    astray = [(number, position + 7) for number, position in enumerate(segment.positions)]
    parts = cut(large_segments.write(tmp_path, segment, index=offset_index_bytes(astray)))
    assert_cut_at_batches(parts, segment)
    assert len(parts) == round(len(segment.log) / TARGET)


def test_an_entry_with_an_offset_below_its_batch_is_ignored(
    tmp_path: Path, segment: LargeSegment
) -> None:
    low = [(number, position) for number, position in enumerate(segment.positions)]
    log_alone = tmp_path / "alone"
    wrong = cut(large_segments.write(tmp_path, segment, index=offset_index_bytes(low)))
    alone = cut(large_segments.write(log_alone, segment))
    assert [part.start for part in wrong] == [part.start for part in alone]


def test_the_padding_of_an_index_changes_no_split(tmp_path: Path, segment: LargeSegment) -> None:
    bare = cut(large_segments.write(tmp_path, segment, index=segment.index()))
    index = segment.index() + bytes(1 << 20)
    padded = cut(large_segments.write(tmp_path / "padded", segment, index=index))
    assert [part.start for part in padded] == [part.start for part in bare]


def test_headers_give_the_split_points_that_an_index_has_after_padding(
    tmp_path: Path, segment: LargeSegment
) -> None:
    torn = bytes(1 << 20) + segment.index()
    parts = cut(large_segments.write(tmp_path, segment, index=torn))
    assert_cut_at_batches(parts, segment)
    assert len(parts) == round(len(segment.log) / TARGET)


def test_a_random_index_still_gives_valid_splits(tmp_path: Path, segment: LargeSegment) -> None:
    parts = cut(large_segments.write(tmp_path, segment, index=b"\xff\x07" * 4001))
    assert_cut_at_batches(parts, segment)


def test_a_batch_inside_a_value_is_not_a_split_point(tmp_path: Path) -> None:
    inner = batches.batch([batches.record(0, value=b"inner" * 10)])
    outer = [batches.batch([batches.record(number, value=inner * 50)]) for number in range(200)]
    positions = [0, *itertools.accumulate(map(len, outer))][:-1]
    segment = LargeSegment(b"".join(outer), positions)
    parts = cut(large_segments.write(tmp_path, segment))
    assert len(parts) > 3
    assert_cut_at_batches(parts, segment)


def test_after_damage_split_points_are_valid_batches_from_the_index(
    tmp_path: Path, segment: LargeSegment
) -> None:
    torn = bytearray(segment.log)
    at = segment.positions[10]
    torn[at : at + 12] = bytes(12)
    damaged = LargeSegment(bytes(torn), segment.positions)
    parts = cut(large_segments.write(tmp_path, damaged, index=segment.index()))
    assert_cut_at_batches(parts, damaged)
    assert len(parts) == round(len(segment.log) / TARGET)


def test_after_damage_and_without_an_index_the_rest_is_one_split(
    tmp_path: Path, segment: LargeSegment
) -> None:
    torn = bytearray(segment.log)
    at = segment.positions[300]
    torn[at : at + 12] = bytes(12)
    damaged = LargeSegment(bytes(torn), segment.positions)
    parts = cut(large_segments.write(tmp_path, damaged))
    assert_cut_at_batches(parts, damaged)
    assert parts[-1].start <= at
    assert 1 < len(parts) < round(len(segment.log) / TARGET)


def test_zeroes_are_one_split(tmp_path: Path) -> None:
    preallocated = LargeSegment(bytes(4 * TARGET), [0])
    assert len(cut(large_segments.write(tmp_path, preallocated))) == 1


@pytest.mark.parametrize(
    ("total_bytes", "cores", "expected"),
    [
        (0, 8, splits.SMALLEST_SPLIT_BYTES),
        (1 << 40, 8, splits.LARGEST_SPLIT_BYTES),
        (512 << 20, 4, 32 << 20),
    ],
)
def test_splits_are_small_enough_to_keep_all_cores_busy(
    total_bytes: int, cores: int, expected: int
) -> None:
    assert splits.split_bytes(total_bytes, cores) == expected
