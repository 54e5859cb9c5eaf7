"""Make ``__consumer_offsets`` with the commits of many groups."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import numpy as np

from data import (
    BASE_OFFSET,
    EPOCH_MS,
    INDEX_INTERVAL_BYTES,
    SegmentShape,
    encode_varint,
    finished,
    sealed,
    write_root,
)

_GROUPS: Final = 4_000
_COMMITTED_PARTITIONS: Final = 5


def make_group_offsets(name: str, size_bytes: int, folder: Path) -> Path:
    """Write the log directory ``FOLDER/NAME`` with ``__consumer_offsets-0`` unless it exists.

    Each of 4,000 groups commits the offsets of five partitions in a batch, again and again: 20,000
    keys have millions of records. Segments have at most 1 GiB.
    """
    directory = folder / name
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        partition = unfinished / "__consumer_offsets-0"
        partition.mkdir(parents=True)
        pool = [_commit(number) for number in range(_GROUPS)]
        batch_bytes = len(pool[0])
        base_offset = written = 0
        while written < size_bytes:
            count = -(-min(1 << 30, size_bytes - written) // batch_bytes) - 1
            log = partition / f"{base_offset:020d}.log"
            _write_in_turn(log, pool, count, base_offset)
            entries = _offset_index_of_equal_batches(batch_bytes, count)
            log.with_suffix(".index").write_bytes(entries)
            base_offset += count * _COMMITTED_PARTITIONS
            written += (count + 1) * batch_bytes
        end = [f"__consumer_offsets 0 {base_offset}"]
        write_root(unfinished, end, end, is_clean=True)
    return directory


def _write_in_turn(log: Path, pool: list[bytearray], count: int, base_offset: int) -> None:
    """Write ``count`` batches, those of the pool again and again, at the following offsets.

    They have one size; no checksum covers the offsets, which are set in columns.
    """
    batches = np.frombuffer(b"".join(pool), np.uint8).reshape(len(pool), -1).copy()
    with log.open("wb") as file:
        for first in range(0, count, len(pool)):
            rows = np.arange(first, min(first + len(pool), count))
            offsets = (base_offset + rows * _COMMITTED_PARTITIONS).astype(">i8")
            in_bytes = offsets.view(np.uint8).reshape(len(rows), -1)
            batches[: len(rows), : BASE_OFFSET.size] = in_bytes
            file.write(batches[: len(rows)].tobytes())


def _offset_index_of_equal_batches(batch_bytes: int, count: int) -> bytes:
    """Build what :func:`data.offset_index_of` finds in a log of group offsets."""
    step = INDEX_INTERVAL_BYTES // batch_bytes + 1
    rows = np.arange(step, count, step)
    last_offsets = (rows + 1) * _COMMITTED_PARTITIONS - 1
    return np.column_stack([last_offsets, rows * batch_bytes]).astype(">i4").tobytes()


def _commit(number: int) -> bytearray:
    """The batch in which a group commits its offsets."""
    group, topic = f"billing-service-{number:05d}".encode(), b"orders.events.v1"
    records = bytearray()
    for partition in range(_COMMITTED_PARTITIONS):
        key = struct.pack(
            f">hh{len(group)}sh{len(topic)}si", 1, len(group), group, len(topic), topic, partition
        )
        value = struct.pack(">hqihq", 3, 1_000 * number, 5, 0, EPOCH_MS)
        delta = encode_varint(partition)
        body = b"".join(
            (
                b"\0",
                delta,
                delta,
                encode_varint(len(key)),
                key,
                encode_varint(len(value)),
                value,
                b"\0",
            )
        )
        records += encode_varint(len(body)) + body
    shape = SegmentShape("", 0, _COMMITTED_PARTITIONS)
    return sealed(shape, bytes(records))
