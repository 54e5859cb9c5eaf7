"""Millions of batches of one size in columns, and the files of segments that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import crc32c
import numpy as np
import numpy.typing as npt

from data import EPOCH_MS, INDEX_INTERVAL_BYTES

HEADER_FIELDS: Final = (
    ("base_offset", ">i8"),
    ("length", ">i4"),
    ("leader_epoch", ">i4"),
    ("magic", "i1"),
    ("checksum", ">u4"),
    ("attributes", ">i2"),
    ("last_offset_delta", ">i4"),
    ("base_timestamp", ">i8"),
    ("max_timestamp", ">i8"),
    ("producer_id", ">i8"),
    ("producer_epoch", ">i2"),
    ("base_sequence", ">i4"),
    ("count", ">i4"),
)
"""The header of a batch, in the order of the bytes (``DefaultRecordBatch``)."""

_CHECKED_START: Final = 21
_BYTES_BEFORE_LENGTH_ENDS: Final = 12

TRANSACTIONAL: Final = 1 << 4
CONTROL: Final = 1 << 5

Batches = npt.NDArray[Any]
"""Batches of one size: the fields of the header, and ``body``."""


def equal_batches(bodies: Sequence[bytes], count: int, *, records: int) -> Batches:
    """Make ``count`` batches at offset 0, without checksums, with these bodies in turn."""
    (size,) = {len(body) for body in bodies}
    fields = np.dtype([*HEADER_FIELDS, ("body", "u1", (size,))])
    batches = np.zeros(count, fields)
    batches["length"] = fields.itemsize - _BYTES_BEFORE_LENGTH_ENDS
    batches["magic"] = 2
    batches["last_offset_delta"] = records - 1
    batches["base_timestamp"] = EPOCH_MS
    batches["max_timestamp"] = EPOCH_MS + records - 1
    batches["producer_id"] = batches["producer_epoch"] = batches["base_sequence"] = -1
    batches["count"] = records
    pool = np.frombuffer(b"".join(bodies), np.uint8).reshape(len(bodies), size)
    batches["body"] = pool[np.arange(count) % len(bodies)]
    return batches


def seal(batches: Batches) -> Batches:
    """Compute the checksums, and return the batches."""
    rows = batches.view(np.uint8).reshape(len(batches), -1)
    batches["checksum"] = [crc32c.crc32c(row[_CHECKED_START:]) for row in rows]
    return batches


def at_offsets(batches: Batches, base_offset: int) -> Batches:
    """Set consecutive offsets, which no checksum covers, and return the batches."""
    counts = batches["last_offset_delta"].astype(np.int64) + 1
    batches["base_offset"] = base_offset + np.cumsum(counts) - counts
    return batches


def end_offset(batches: Batches) -> int:
    """Return the offset after the last batch."""
    return int(batches["base_offset"][-1]) + int(batches["last_offset_delta"][-1]) + 1


def write_segment(
    partition: Path,
    batches: Batches,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
) -> None:
    """Write the log and the indexes of an inactive segment (``LogSegment.append``)."""
    base_offset = int(batches["base_offset"][0])
    log = partition / f"{base_offset:020d}.log"
    with log.open("wb") as file:
        file.write(memoryview(batches.view(np.uint8)))
    size = batches.dtype.itemsize
    step = index_interval_bytes // size + 1
    rows = np.arange(step, len(batches), step)
    last_offsets = batches["base_offset"] + batches["last_offset_delta"] - base_offset
    offset_entries = np.column_stack([last_offsets[rows], rows * size])
    log.with_suffix(".index").write_bytes(offset_entries.astype(">i4").tobytes())
    log.with_suffix(".timeindex").write_bytes(_time_index(batches, last_offsets, rows))


def _time_index(
    batches: Batches, last_offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> bytes:
    """Build an entry for each of the offset index and one for the end, if the time grows."""
    greatest = np.maximum.accumulate(batches["max_timestamp"].astype(np.int64))
    is_new = np.diff(greatest, prepend=-1) > 0
    of_greatest = np.maximum.accumulate(np.where(is_new, np.arange(len(batches)), 0))
    rows = np.append(rows, len(batches) - 1)
    rows = rows[np.diff(greatest[rows], prepend=-1) > 0]
    entries = np.zeros(len(rows), [("timestamp", ">i8"), ("offset", ">i4")])
    entries["timestamp"] = greatest[rows]
    entries["offset"] = last_offsets[of_greatest[rows]]
    return entries.tobytes()
