"""Small segments that are checked together have the results of the check of each by windows."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch
from builders.verified import NOW_MS, file, forged, records, write_segment
from kdump.check.batches import SegmentScope
from kdump.check.part import Level, SegmentPart
from kdump.check.segment_check import check_part
from kdump.check.small_segments import check_small
from kdump.formats.names import FileKind
from kdump.storage.local_disk import local

_BASE = 100


def written(partition: Path, rng: random.Random) -> SegmentScope:
    """Write a segment of a few batches: usual ones, with and without producers, and some others."""
    content = []
    offset = _BASE + rng.choice([0, 0, 0, 3])
    sequences = {7: 0, 8: 2**31 - 3}
    for _ in range(rng.randrange(20)):
        count = rng.randrange(1, 5)
        producer_id = rng.choice([-1, 7, 7, 8])
        data = batch(
            records(offset, count),
            partition_leader_epoch=rng.choice([0, 0, 0, 1]),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequences.get(producer_id, -1),
        )
        if producer_id >= 0:
            sequences[producer_id] = (sequences[producer_id] + count) % 2**31
        odd = {
            "max_timestamp": rng.choice([-1, 0, NOW_MS, NOW_MS + 10**9]),
            "partition_leader_epoch": -1,
            "attributes": rng.choice([8, 0x10, 5, 0x40]),
            "records_count": 0,
            "base_offset": offset + rng.choice([-1, 2]),
            "magic": 3,
        }
        if not rng.randrange(12):
            name = rng.choice(list(odd))
            data = forged(data, **{name: odd[name]})
        content.append(data)
        offset += count
    write_segment(partition, _BASE, content)
    is_clean = rng.choice([True, False])
    return scope_of(partition, next_base_offset=rng.choice([None, offset]), is_clean=is_clean)


def damage(partition: Path, rng: random.Random) -> None:
    kind = rng.choice([FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX])
    path = file(partition, _BASE, kind)
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data) + 1)
    size = rng.choice([1, 4, 12])
    data[at : at + size] = rng.choice([b"", bytes(size), rng.randbytes(size), bytes(24)])
    path.write_bytes(data)
    if not rng.randrange(5):
        file(partition, _BASE, FileKind.TIME_INDEX).unlink()


def scope_of(
    partition: Path, next_base_offset: int | None = None, *, is_clean: bool = True
) -> SegmentScope:
    log = local(file(partition, _BASE, FileKind.LOG))
    return SegmentScope(log, _BASE, next_base_offset, is_clean=is_clean, is_small=True)


def by_windows(scope: SegmentScope, level: Level, *, with_statistics: bool = False) -> SegmentPart:
    return check_part(scope, 0, None, level, NOW_MS, with_statistics=with_statistics)


def without_last_time(part: SegmentPart | None) -> SegmentPart | None:
    return None if part is None else msgspec.structs.replace(part, last_indexed_ms=None)


@pytest.mark.slow
@given(
    st.integers(0, 2**32),
    st.integers(1, 9),
    st.sampled_from([Level.QUICK, Level.DEFAULT]),
    st.sampled_from([0, 0.2, 1]),
    st.booleans(),
)
def test_segments_together_have_the_results_of_each_alone(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    count: int,
    level: Level,
    damaged: float,
    with_statistics: bool,
) -> None:
    rng = random.Random(seed)
    root = tmp_path_factory.mktemp("logs")
    scopes = []
    for number in range(count):
        partition = root / f"orders-{number}"
        partition.mkdir()
        scopes.append(written(partition, rng))
        if rng.random() < damaged:
            damage(partition, rng)
    together = check_small(scopes, level, NOW_MS, with_statistics=with_statistics)
    alone = [by_windows(scope, level, with_statistics=with_statistics) for scope in scopes]
    assert [without_last_time(part) for part in together] == [
        part and one for part, one in zip(together, alone, strict=True)
    ]
    assert all(part is None or not one.findings for part, one in zip(together, alone, strict=True))


@pytest.mark.parametrize("with_statistics", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_usual_segments_are_not_left_to_the_check_by_windows(
    tmp_path: Path, is_clean: bool, with_statistics: bool
) -> None:
    contents = [
        [],
        [batch(records(_BASE, 3))],
        [batch(records(_BASE, 3), producer_id=7, producer_epoch=0, base_sequence=5)],
        [],
        [batch(records(_BASE + 2, 3)), batch(records(_BASE + 5, 1), partition_leader_epoch=4)],
        [],
    ]
    scopes = []
    for number, batches in enumerate(contents):
        partition = tmp_path / str(number)
        partition.mkdir()
        write_segment(partition, _BASE, batches)
        scopes.append(scope_of(partition, is_clean=is_clean))
    together = check_small(scopes, Level.DEFAULT, NOW_MS, with_statistics=with_statistics)
    assert [without_last_time(part) for part in together] == [
        by_windows(scope, Level.DEFAULT, with_statistics=with_statistics) for scope in scopes
    ]


@pytest.mark.parametrize("cut", [1, 40, 100])
def test_a_cut_log_leaves_only_itself_to_the_check_by_windows(tmp_path: Path, cut: int) -> None:
    scopes = []
    for number in range(5):
        partition = tmp_path / str(number)
        partition.mkdir()
        write_segment(partition, _BASE, [batch(records(_BASE, 3)), batch(records(_BASE + 3, 3))])
        scopes.append(scope_of(partition))
    log = file(tmp_path / "2", _BASE, FileKind.LOG)
    log.write_bytes(log.read_bytes()[:-cut])
    together = check_small(scopes, Level.QUICK, NOW_MS)
    assert [part is None for part in together] == [False, False, True, False, False]


def test_the_last_timestamp_of_a_small_segment_is_that_of_its_time_index(tmp_path: Path) -> None:
    write_segment(tmp_path, _BASE, [batch(records(_BASE, 3))])
    (part,) = check_small([scope_of(tmp_path)], Level.DEFAULT, NOW_MS)
    assert part is not None
    assert part.last_indexed_ms == part.max_timestamp
