"""Finding the next valid batch after damage."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from builders.batches import batch, batches, record
from builders.message_sets import message
from builders.sources import BytesSource
from kdump.scan import resync
from kdump.scan.resync import find_batch, is_valid_batch

NOISE = random.Random(7).randbytes(5_000)


@pytest.mark.parametrize(
    "valid",
    [
        pytest.param(batch([record(5)]), id="magic 2"),
        pytest.param(message(5, magic=1), id="magic 1"),
        pytest.param(message(5, magic=0), id="magic 0"),
    ],
)
@pytest.mark.parametrize("gap", [0, 1, 61, 4_000])
def test_a_valid_batch_is_found_after_noise(valid: bytes, gap: int) -> None:
    source = BytesSource(NOISE[:gap] + valid + NOISE)
    assert find_batch(source, 0) == gap


def test_a_batch_across_two_search_steps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_FIRST_STEP_BYTES", 100)
    monkeypatch.setattr(resync, "_STEP_BYTES", 100)
    valid = batch([record(5)])
    for gap in range(180, 320):
        assert find_batch(BytesSource(NOISE[:gap] + valid), 0) == gap


def test_noise_is_not_a_batch() -> None:
    assert find_batch(BytesSource(NOISE), 0) is None


def test_a_batch_with_a_wrong_checksum_is_not_found() -> None:
    first, second = batches(2)
    assert find_batch(BytesSource(first[:-1] + b"\xff" + second), 0) == len(first)


def test_a_truncated_batch_is_not_valid() -> None:
    (part,) = batches(1)
    assert not is_valid_batch(BytesSource(part[:-1]), 0, len(part) - 1)


def test_the_search_starts_at_the_given_byte() -> None:
    first, second = batches(2)
    assert find_batch(BytesSource(first + second), 1) == len(first)


@dataclass(slots=True)
class CountedSource:
    """Bytes in memory that count how many are read."""

    data: bytes
    read_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = BytesSource(self.data).read_into(buffer, position)
        self.read_bytes += filled
        return filled


@pytest.mark.parametrize("magic", [0, 1])
def test_a_large_old_message_is_read_only_if_key_and_value_fill_it(magic: int) -> None:
    large = message(5, magic=magic, value=bytes(1 << 20))
    damaged = large + b"after the value!"
    damaged = damaged[:8] + (len(damaged) - 12).to_bytes(4) + damaged[12:]
    for content, expected in ((large, True), (damaged, False)):
        source = CountedSource(content)
        assert is_valid_batch(source, 0, len(content)) == expected
        assert (source.read_bytes > 1 << 20) == expected
