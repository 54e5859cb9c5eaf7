"""The records of a partition's valid batches, across segments, and the damage between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batches
from kdump.log.directory import read_lone_partition
from kdump.log.valid_records import valid_records
from kdump.log.valid_windows import Damage
from kdump.scan.records import RecordColumns
from kdump.storage.local_disk import local

BATCHES = 8
RECORDS = 3
"""In each batch."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition of two segments."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    made = batches(BATCHES)
    (folder / "00000000000000000000.log").write_bytes(b"".join(made[:5]))
    (folder / "00000000000000000015.log").write_bytes(b"".join(made[5:]))
    return folder


def offsets_and_damage(folder: Path) -> tuple[list[int], list[Damage]]:
    damage: list[Damage] = []
    offsets: list[int] = []
    partition = read_lone_partition(local(folder), folder.name)
    for step in valid_records(partition, damage.append):
        assert isinstance(step, RecordColumns)
        offsets += step.offset.tolist()
    return offsets, damage


def test_records_of_all_segments_come_in_order(folder: Path) -> None:
    assert offsets_and_damage(folder) == (list(range(BATCHES * RECORDS)), [])


def test_damage_is_reported_and_the_records_after_it_come(folder: Path) -> None:
    log = folder / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    offsets, damage = offsets_and_damage(folder)
    assert offsets == [each for each in range(BATCHES * RECORDS) if each not in (12, 13, 14)]
    assert [each.path for each in damage] == [str(log)]


def test_a_torn_tail_is_damage(folder: Path) -> None:
    log = folder / "00000000000000000015.log"
    log.write_bytes(log.read_bytes()[:-1])
    offsets, damage = offsets_and_damage(folder)
    assert offsets == list(range((BATCHES - 1) * RECORDS))
    assert damage[0].end == log.stat().st_size
