"""Around damage, bytes are read from the file once, and are the same as in the file."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batches
from builders.sources import BytesSource
from kdump.scan.batches import Window
from kdump.scan.last_block import LastBlock
from kdump.scan.walk import Skipped, walk_windows

DATA = random.Random(5).randbytes(700_000)
SIZES = st.one_of(st.integers(0, 100), st.integers(0, 70_000), st.integers(0, 400_000))


@dataclass(slots=True)
class CountingSource:
    """Bytes that count how many of them were read."""

    data: bytes
    read: int = field(default=0)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = BytesSource(self.data).read_into(buffer, position)
        self.read += filled
        return filled


@given(st.lists(st.tuples(st.integers(0, len(DATA) + 9), SIZES), max_size=30), st.data())
def test_whatever_was_read_before_the_bytes_are_those_of_the_file(
    reads: list[tuple[int, int]], drawn: st.DataObject
) -> None:
    end = drawn.draw(st.integers(0, len(DATA)))
    blocks = LastBlock(BytesSource(DATA), end)
    for position, size in reads:
        buffer = bytearray(size)
        filled = blocks.read_into(memoryview(buffer), position)
        assert bytes(buffer[:filled]) == DATA[position : position + size]


@pytest.mark.parametrize("damage", [b"\xff" * 20, b"\0\0\0\1" * 5], ids=["lengths", "offsets"])
@pytest.mark.parametrize("each", [3, 40, 600])
def test_a_log_with_much_damage_is_read_once(damage: bytes, each: int) -> None:
    parts = batches(3_000, 3)
    whole = len(b"".join(parts))
    for number in range(1, len(parts), each):
        parts[number] = damage + parts[number][len(damage) :]
    source = CountingSource(b"".join(parts))

    steps = list(walk_windows(source, follow_bad=True, window_bytes=64 << 10))

    assert sum(isinstance(step, Skipped) for step in steps) == len(range(1, len(parts), each))
    assert source.read < 1.5 * whole
    assert all(step.source is source for step in steps if isinstance(step, Window))
