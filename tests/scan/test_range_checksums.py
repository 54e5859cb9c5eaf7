"""The checksum of any range, and how much is read where headers claim too much."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from builders.batches import batch, record
from builders.message_sets import message
from builders.sources import BytesSource
from kdump.formats.checksum import crc32c
from kdump.scan import last_block
from kdump.scan.range_checksums import CRC32_POLYNOMIAL, CRC32C_POLYNOMIAL, RangeChecksums
from kdump.scan.walk import Skipped, walk_windows

SIZE_BYTES: Final = 160 << 10
"""More than what is kept of the file."""


@pytest.mark.parametrize(
    ("polynomial", "compute"), [(CRC32C_POLYNOMIAL, crc32c), (CRC32_POLYNOMIAL, zlib.crc32)]
)
def test_it_is_that_of_the_bytes(polynomial: int, compute: Callable[..., int]) -> None:
    rng = random.Random(3)
    data = rng.randbytes(70_000)
    checksums = RangeChecksums(BytesSource(data), polynomial)
    for _ in range(200):
        start = rng.randrange(len(data))
        end = rng.randrange(start, len(data) + 1)
        assert checksums.of(start, end) == compute(data[start:end])


@dataclass(slots=True)
class CountingSource:
    """Counts the bytes that are read."""

    data: bytes
    read_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_into(self, buffer: memoryview, position: int) -> int:
        part = self.data[position : position + len(buffer)]
        buffer[: len(part)] = part
        self.read_bytes += len(part)
        return len(part)


def false_batch(size_bytes: int) -> bytes:
    """A header that claims so many bytes; its checksum is wrong."""
    header = bytearray(batch([record(1)])[:61])
    header[8:12] = (size_bytes - 12).to_bytes(4, "big")
    return bytes(header)


def false_message(size_bytes: int) -> bytes:
    """The same of magic 1, with a value that fills it."""
    header = bytearray(message(1, magic=1, key=None, value=b"")[:34])
    header[8:12] = (size_bytes - 12).to_bytes(4, "big")
    header[30:34] = (size_bytes - 34).to_bytes(4, "big")
    return bytes(header)


def hostile_log(size_bytes: int, false: Callable[[int], bytes], *, with_valid: bool) -> bytes:
    """Headers that each claim half of the file; with valid batches between, if asked for."""
    valid = batch([record(0)])
    piece = false(size_bytes // 2) + (valid if with_valid else b"")
    return piece * (size_bytes // len(piece))


@pytest.mark.slow
@pytest.mark.parametrize("with_valid", [False, True], ids=["alone", "between batches"])
@pytest.mark.parametrize("false", [false_batch, false_message])
def test_what_is_read_of_false_lengths_grows_with_the_file(
    false: Callable[[int], bytes], with_valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_block, "_FREE_BYTES", 0)
    read_bytes = []
    for size_bytes in (SIZE_BYTES, 3 * SIZE_BYTES):
        source = CountingSource(hostile_log(size_bytes, false, with_valid=with_valid))
        found = list(walk_windows(source, follow_bad=True))
        assert any(isinstance(step, Skipped) for step in found)
        read_bytes.append(source.read_bytes)
    assert read_bytes[1] < 5 * read_bytes[0]
