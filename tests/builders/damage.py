"""Random damage to the files of a partition, as by crashes, bad disks and people."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import Final

import crc32c

Damage = Callable[[random.Random, bytearray], bytearray]
"""A function that damages the content of a file; it may change and return the same object."""

_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")

LOG_OVERHEAD: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
BATCH_OVERHEAD: Final = 61

HEADER_FIELDS: Final = (
    (0, ">q"),  # base offset
    (8, ">i"),  # length
    (12, ">i"),  # partition leader epoch
    (16, ">b"),  # magic
    (17, ">I"),  # checksum
    (21, ">h"),  # attributes
    (23, ">i"),  # last offset delta
    (27, ">q"),  # base timestamp
    (35, ">q"),  # max timestamp
    (43, ">q"),  # producer id
    (51, ">h"),  # producer epoch
    (53, ">i"),  # base sequence
    (57, ">i"),  # record count
)
"""Position and format of each field of a batch; message sets share the first four."""


def batch_positions(log: bytes | bytearray) -> list[int]:
    """Return the positions of batches by following their length fields."""
    position, found = 0, []
    while position + LOG_OVERHEAD + 5 <= len(log):
        (length,) = _LENGTH.unpack_from(log, position + 8)
        if length <= 0 or position + LOG_OVERHEAD + length > len(log):
            break
        found.append(position)
        position += LOG_OVERHEAD + length
    return found


def checksum_again(log: bytearray, position: int) -> None:
    """Correct the checksum of the batch (magic 2) at ``position``."""
    (length,) = _LENGTH.unpack_from(log, position + 8)
    end = position + LOG_OVERHEAD + length
    if log[position + MAGIC_POSITION] == 2 and position + BATCH_OVERHEAD <= end <= len(log):
        checksum = crc32c.crc32c(bytes(log[position + ATTRIBUTES_POSITION : end]))
        _CRC.pack_into(log, position + CRC_POSITION, checksum)


# ---- Any file ----


def cut(rng: random.Random, content: bytearray) -> bytearray:
    return content[: rng.randrange(len(content) + 1)]


def bit_flipped(rng: random.Random, content: bytearray) -> bytearray:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def zeroes_at_end(rng: random.Random, content: bytearray) -> bytearray:
    return content + bytes(rng.choice([1, 4, 8, 12, 17, 61, 512, 4096]))


def garbage_at_end(rng: random.Random, content: bytearray) -> bytearray:
    return content + rng.randbytes(rng.choice([1, 3, 8, 12, 17, 61, 100, 3000]))


def zeroes_inside(rng: random.Random, content: bytearray) -> bytearray:
    if content:
        start = rng.randrange(len(content))
        size = len(content[start : start + rng.choice([1, 8, 61, 512])])
        content[start : start + size] = bytes(size)
    return content


def emptied(rng: random.Random, content: bytearray) -> bytearray:
    return bytearray()


def all_zeroes(rng: random.Random, content: bytearray) -> bytearray:
    return bytearray(len(content))


# ---- Logs ----


def header_field_changed(rng: random.Random, content: bytearray) -> bytearray:
    """Set one field of a batch header to an edge value; leave the checksum unchanged."""
    positions = batch_positions(content)
    if positions:
        _change_field(rng, content, rng.choice(positions))
    return content


def header_field_forged(rng: random.Random, content: bytearray) -> bytearray:
    """Set one field of a batch header to an edge value, and correct the checksum."""
    positions = batch_positions(content)
    if positions:
        position = rng.choice(positions)
        _change_field(rng, content, position)
        checksum_again(content, position)
    return content


def record_forged(rng: random.Random, content: bytearray) -> bytearray:
    """Flip a bit of the records, and correct the checksum."""
    positions = batch_positions(content)
    if positions:
        position = rng.choice(positions)
        (length,) = _LENGTH.unpack_from(content, position + 8)
        begin, end = position + BATCH_OVERHEAD, position + LOG_OVERHEAD + length
        if begin < end:
            # Lengths and counts are at the start of a record: damage these more often.
            at = rng.choice([rng.randrange(begin, end), rng.randrange(begin, min(begin + 12, end))])
            content[at] ^= 1 << rng.randrange(8)
            checksum_again(content, position)
    return content


def attributes_forged(rng: random.Random, content: bytearray) -> bytearray:
    """Change the codec, timestamp type or kind of a batch, and correct the checksum."""
    positions = batch_positions(content)
    if positions:
        position = rng.choice(positions)
        content[position + ATTRIBUTES_POSITION + 1] ^= 1 << rng.randrange(8)
        checksum_again(content, position)
    return content


def batch_twice(rng: random.Random, content: bytearray) -> bytearray:
    positions = [*batch_positions(content), len(content)]
    if len(positions) > 1:
        at = rng.randrange(len(positions) - 1)
        begin, end = positions[at], positions[at + 1]
        return content[:end] + content[begin:end] + content[end:]
    return content


def batch_missing(rng: random.Random, content: bytearray) -> bytearray:
    positions = [*batch_positions(content), len(content)]
    if len(positions) > 1:
        at = rng.randrange(len(positions) - 1)
        return content[: positions[at]] + content[positions[at + 1] :]
    return content


def bytes_removed(rng: random.Random, content: bytearray) -> bytearray:
    """Remove bytes inside a batch, so that the rest is shifted."""
    if content:
        at = rng.randrange(len(content))
        del content[at : at + rng.choice([1, 2, 7, 40])]
    return content


# ---- Indexes ----


def index_entry_changed(rng: random.Random, content: bytearray) -> bytearray:
    if len(content) >= 4:
        at = rng.randrange(len(content) // 4) * 4
        value = rng.choice([0, 1, -1, 2**31 - 1, -(2**31), rng.randrange(1, 5000)])
        _LENGTH.pack_into(content, at, value)
    return content


def index_entry_twice(rng: random.Random, content: bytearray) -> bytearray:
    if len(content) >= 24:
        at = rng.randrange(len(content) // 24) * 24
        return content[:at] + content[at : at + 24] + content[at:]
    return content


ANY_FILE: Final[tuple[Damage, ...]] = (
    cut,
    bit_flipped,
    zeroes_at_end,
    garbage_at_end,
    zeroes_inside,
    emptied,
    all_zeroes,
)
LOG: Final[tuple[Damage, ...]] = (
    header_field_changed,
    header_field_forged,
    record_forged,
    attributes_forged,
    batch_twice,
    batch_missing,
    bytes_removed,
)
INDEX: Final[tuple[Damage, ...]] = (index_entry_changed, index_entry_twice)


def damaged(rng: random.Random, files: Mapping[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """Damage or remove one file of a partition; return the name of the damage, and the files."""
    after = dict(files)
    logs = [name for name in files if name.endswith((".log", ".checkpoint"))]
    others = [name for name in files if name not in logs]
    name = rng.choice(logs if rng.random() < 0.6 or not others else others)
    if rng.random() < 0.05:
        del after[name]
        return f"{name} removed", after
    suffix = name.rpartition(".")[2]
    special = LOG if name in logs else INDEX if suffix.endswith("index") else ()
    function = rng.choice([*ANY_FILE, *special, *special])
    after[name] = bytes(function(rng, bytearray(files[name])))
    return f"{suffix} {function.__name__}", after


def _change_field(rng: random.Random, content: bytearray, position: int) -> None:
    (length,) = _LENGTH.unpack_from(content, position + 8)
    fields = HEADER_FIELDS if content[position + MAGIC_POSITION] == 2 else HEADER_FIELDS[:4]
    at, layout = rng.choice(fields)
    bits = struct.calcsize(layout) * 8
    edges = [0, 1, 2, 3, 13, 2 ** (bits - 1) - 1]
    if layout[1].islower():
        edges += [-1, -(2 ** (bits - 1)), -61]
    near_length = [length - 1, length + 1, 48, 49, 50, 13, 14, 2**30]
    value = rng.choice(near_length if at == 8 and rng.random() < 0.5 else edges)
    if position + at + bits // 8 <= len(content):
        struct.pack_into(layout, content, position + at, value)
