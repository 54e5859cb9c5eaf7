"""A small segment that is checked in plain Python has the result of the check by columns."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch
from builders.verified import NOW_MS, file, forged, records, write_segment
from kdump.check import segment_check
from kdump.check.batches import SegmentScope
from kdump.check.part import Level, SegmentPart
from kdump.check.segment_check import check_part
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
    return SegmentScope(
        local(file(partition, _BASE, FileKind.LOG)),
        _BASE,
        rng.choice([None, offset]),
        is_clean=True,
    )


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


def checked(scope: SegmentScope, level: Level) -> SegmentPart:
    part = check_part(scope, 0, None, level, NOW_MS)
    return dataclasses.replace(part, last_indexed_ms=None)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([Level.QUICK, Level.DEFAULT]), st.booleans())
def test_both_checks_agree_about_every_segment(
    tmp_path_factory: pytest.TempPathFactory, seed: int, level: Level, is_damaged: bool
) -> None:
    rng = random.Random(seed)
    partition = tmp_path_factory.mktemp("logs") / "orders-0"
    partition.mkdir()
    scope = written(partition, rng)
    if is_damaged:
        damage(partition, rng)
    small = checked(scope, level)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_check, "LARGEST_SMALL_LOG_BYTES", -1)
        assert small == checked(scope, level)


def test_the_last_timestamp_of_a_small_segment_is_that_of_its_time_index(tmp_path: Path) -> None:
    write_segment(tmp_path, _BASE, [batch(records(_BASE, 3))])
    scope = SegmentScope(local(file(tmp_path, _BASE, FileKind.LOG)), _BASE, is_clean=True)
    part = check_part(scope, 0, None, Level.DEFAULT, NOW_MS)
    assert part.last_indexed_ms == part.max_timestamp
