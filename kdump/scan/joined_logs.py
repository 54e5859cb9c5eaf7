"""The batches of many small logs as columns, with the number of the log beside each.

For a few batches, a call of NumPy costs more than what it computes; for those of fifty logs it does
not. So their bytes are walked in one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.scan.batches import (
    PADDING_BYTES,
    BatchColumns,
    Bytes,
    Column,
    Flags,
    is_among,
    whole_batches,
)


class JoinedBatches(Struct, frozen=True):
    """The batches of several logs, in order.

    Attributes:
        batches: their headers, all read as of magic 2; positions count from the start of each log.
        log: the number of the log, for each batch.
        is_covered: for each log, whether its batches cover all of it. Otherwise some are missing,
            and others may be none.
        joined_position: for each batch, its position in all logs together.
        begin: for each log, where it begins in all logs together.
        data: the bytes of all logs, then :data:`~kdump.scan.batches.PADDING_BYTES` zeroes.
    """

    batches: BatchColumns
    log: Column
    is_covered: Flags
    joined_position: Column
    begin: Column
    data: Bytes


def read_joined(logs: Sequence[bytes], *, checksums: bool) -> JoinedBatches:
    """Read the batches of logs; ``checksums`` as for :func:`~kdump.scan.batches.read_windows`."""
    sizes = np.array([len(each) for each in logs], np.int64)
    ends = np.cumsum(sizes)
    begins = ends - sizes
    data = np.frombuffer(b"".join((*logs, bytes(PADDING_BYTES))), np.uint8)
    batches, _ = whole_batches(data, checksums=checksums)
    missed = _first_missed(begins, sizes, batches.position)
    if missed is not None:
        parts = []
        while missed is not None:
            # What precedes a log leads past its start, or nowhere.
            start = int(begins[missed])
            parts.append(batches.rows(batches.position < start))
            found, _ = whole_batches(data[start:], checksums=checksums)
            batches = replace(found, position=found.position + start)
            rest = slice(missed + 1, None)
            later = _first_missed(begins[rest], sizes[rest], batches.position)
            missed = None if later is None else missed + 1 + later
        batches = BatchColumns.joined([*parts, batches])
    log = np.searchsorted(begins, batches.position, "right") - 1
    covered = np.bincount(log, batches.size_bytes, len(logs)).astype(np.int64)
    return JoinedBatches(
        replace(batches, position=batches.position - begins[log]),
        log,
        covered == sizes,
        batches.position,
        begins,
        data,
    )


def _first_missed(begins: Column, sizes: Column, positions: Column) -> int | None:
    """The first log that has bytes, and no batch at its start; None if there is none."""
    missed = np.flatnonzero(~is_among(begins, positions) & (sizes > 0))
    return int(missed[0]) if missed.size else None
