"""The valid batches of a log, and the damage between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batches
from kdump.formats.checksum import crc32c
from kdump.formats.compression import Codec
from kdump.formats.record_batch import (
    CHECKED_START,
    CONTROL_FLAG,
    CRC_START,
    HEADER_BYTES,
    MAGIC_START,
    PREFIX_BYTES,
)
from kdump.log.batch_validity import LogPart
from kdump.log.valid_windows import Damage, valid_windows
from kdump.scan.batches import WINDOW_BYTES
from kdump.storage.local_disk import local

LAST_OFFSET_DELTA_AT = 23
COUNT = 8


def found_in(path: Path, window_bytes: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The base offsets of the valid batches, and the ranges of damaged bytes."""
    offsets: list[int] = []
    damages: list[tuple[int, int]] = []
    with local(path).open_file() as log:
        for step in valid_windows(log, LogPart(), window_bytes=window_bytes):
            if isinstance(step, Damage):
                damages.append((step.start, step.end))
            else:
                offsets += step.batches.base_offset.tolist()
    return offsets, damages


@pytest.mark.parametrize("damaged", range(COUNT))
@pytest.mark.parametrize("windows", [1, 2, 3, WINDOW_BYTES])
def test_an_offset_in_a_damaged_batch_condemns_no_other(
    damaged: int, windows: int, tmp_path: Path
) -> None:
    """Wherever the windows end in which the log is read."""
    valid = batches(COUNT)
    size = len(valid[0])
    log = bytearray(b"".join(valid))
    log[damaged * size + LAST_OFFSET_DELTA_AT] = 0x7F
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(log)
    offsets, damages = found_in(path, min(windows * size, WINDOW_BYTES))
    assert offsets == [3 * number for number in range(COUNT) if number != damaged]
    assert damages == [(damaged * size, (damaged + 1) * size)]


def with_field(data: bytes, start: int, value: int, size: int) -> bytes:
    """Overwrite a field of a batch; the checksum stays as it is."""
    changed = bytearray(data)
    changed[start : start + size] = value.to_bytes(size, "big", signed=True)
    return bytes(changed)


def rechecked(data: bytes) -> bytes:
    """Give a batch the checksum of its bytes."""
    crc = crc32c(data[CHECKED_START:]).to_bytes(4, "big")
    return data[:CRC_START] + crc + data[CHECKED_START:]


WINDOWS = pytest.mark.parametrize("windows", [1, 2, 3, WINDOW_BYTES])


@pytest.mark.parametrize("wrong_offset", [0, 266, 1, 14, 2**40])
@pytest.mark.parametrize("damaged", range(1, COUNT - 1))
@WINDOWS
def test_a_wrong_base_offset_condemns_no_other_batch(
    damaged: int, wrong_offset: int, windows: int, tmp_path: Path
) -> None:
    """It is outside the checksum: a batch that leaps ahead hides none of those after it."""
    valid = batches(COUNT)
    size = len(valid[0])
    valid[damaged] = with_field(valid[damaged], 0, wrong_offset, 8)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(valid))
    offsets, damages = found_in(path, min(windows * size, WINDOW_BYTES))
    assert offsets == [3 * number for number in range(COUNT) if number != damaged]
    assert damages == [(damaged * size, (damaged + 1) * size)]


@WINDOWS
def test_a_batch_that_leaps_ahead_of_damage_is_damaged_too(windows: int, tmp_path: Path) -> None:
    valid = batches(COUNT)
    size = len(valid[0])
    valid[3] = with_field(valid[3], 0, 266, 8)
    valid[4] = with_field(valid[4], 0, 2**60, 8)
    valid[4] = valid[4][:-1] + b"\xff"
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(valid))
    offsets, damages = found_in(path, min(windows * size, WINDOW_BYTES))
    assert offsets == [0, 3, 6, 15, 18, 21]
    assert damages == [(3 * size, 4 * size), (4 * size, 5 * size)]


@WINDOWS
def test_of_batches_that_occur_twice_the_first_counts(windows: int, tmp_path: Path) -> None:
    valid = batches(COUNT)
    size = len(valid[0])
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join([*valid[:4], *valid[2:]]))
    offsets, damages = found_in(path, min(windows * size, WINDOW_BYTES))
    assert offsets == [3 * number for number in range(COUNT)]
    assert len(damages) == 2


@pytest.mark.parametrize("magic", [3, 9, 127, -1])
def test_a_batch_of_an_unknown_magic_is_damaged(magic: int, tmp_path: Path) -> None:
    """The magic is outside the checksum, too."""
    valid = batches(3)
    size = len(valid[0])
    valid[1] = with_field(valid[1], MAGIC_START, magic, 1)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(valid))
    assert found_in(path, WINDOW_BYTES) == ([0, 6], [(size, 2 * size)])


@pytest.mark.parametrize("first", [2**63 - 1, 2**63 - 2, 2**63 - 3])
def test_offsets_past_the_last_one_are_damaged(first: int, tmp_path: Path) -> None:
    """The end offset of a log, one above its last offset, is a positive 64-bit number."""
    valid = batches(2)
    size = len(valid[0])
    valid[1] = with_field(valid[1], 0, first, 8)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(valid))
    assert found_in(path, WINDOW_BYTES) == ([0], [(size, 2 * size)])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_control_batch_without_a_control_record_is_damaged(codec: Codec, tmp_path: Path) -> None:
    valid = batches(3, codec=codec)
    attributes = CONTROL_FLAG | codec
    valid[1] = rechecked(with_field(valid[1], CHECKED_START, attributes, 2))
    if codec is not Codec.NONE:
        valid[1] = rechecked(valid[1][:HEADER_BYTES] + bytes(len(valid[1]) - HEADER_BYTES))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(valid))
    size = len(valid[0])
    assert found_in(path, WINDOW_BYTES) == ([0, 6], [(size, size + len(valid[1]))])


@WINDOWS
def test_a_batch_that_claims_more_offsets_than_its_records_have_is_read(
    windows: int, tmp_path: Path
) -> None:
    """Only its header is damaged, and nothing after it."""
    valid = batches(COUNT)
    size = len(valid[0])
    valid[2] = rechecked(with_field(valid[2], LAST_OFFSET_DELTA_AT, 500, 4))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(valid))
    offsets, damages = found_in(path, min(windows * size, WINDOW_BYTES))
    assert offsets == [3 * number for number in range(COUNT)]
    assert damages == [(2 * size, 2 * size + HEADER_BYTES)]


def test_a_batch_that_claims_fewer_offsets_than_its_records_have_is_valid(tmp_path: Path) -> None:
    """A consumer gets all records; the next batch may not have their offsets."""
    valid = batches(3)
    valid[1] = rechecked(with_field(valid[1], LAST_OFFSET_DELTA_AT, 1, 4))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(valid))
    assert found_in(path, WINDOW_BYTES) == ([0, 3, 6], [])


@pytest.mark.parametrize("zeroes", [1, 12, PREFIX_BYTES, PREFIX_BYTES + 1, 4096])
def test_a_few_zeroes_are_a_torn_batch_and_more_are_padding(zeroes: int, tmp_path: Path) -> None:
    """As for ``verify``: a few may be the start of an offset."""
    log = b"".join(batches(2))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(log + bytes(zeroes))
    with local(path).open_file() as source:
        found = list(valid_windows(source, LogPart(may_be_padded=True)))
    damages = [(step.start, step.end) for step in found if isinstance(step, Damage)]
    is_torn = zeroes <= PREFIX_BYTES
    assert damages == ([(len(log), len(log) + zeroes)] if is_torn else [])
