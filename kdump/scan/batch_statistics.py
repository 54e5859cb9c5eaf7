"""Statistics of batches: how much there is by time, by size of a batch, and by codec.

Only headers are used, so they cost little beside a walk that reads them anyway. Statistics of the
parts of a log add up to those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from kdump.formats import record_batch
from kdump.scan.batches import BatchColumns, Column

_SECOND_MS: Final = 1000
_HOUR_MS: Final = 3600 * _SECOND_MS
_DAY_MS: Final = 24 * _HOUR_MS
CELL_WIDTHS_MS: Final = (
    *(_SECOND_MS, 10 * _SECOND_MS, 60 * _SECOND_MS, 600 * _SECOND_MS),
    *(_HOUR_MS, 6 * _HOUR_MS, _DAY_MS, 10 * _DAY_MS, 100 * _DAY_MS, 1000 * _DAY_MS),
)
"""How wide a cell of a histogram may be; each is a multiple of those before."""
MOST_CELLS: Final = 256
"""A histogram with more cells gets wider ones, while there are wider ones."""


class Volume(NamedTuple):
    """An amount of data.

    Attributes:
        batches: how many.
        records: in them; a compressed message set (magic 0 and 1) counts as one.
        size_bytes: of the batches, as they are stored.
    """

    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    def plus(self, other: Volume) -> Volume:
        return Volume(
            self.batches + other.batches,
            self.records + other.records,
            self.size_bytes + other.size_bytes,
        )


NOTHING: Final = Volume()


class TimeHistogram(Struct, frozen=True):
    """Batches by their maximum timestamp.

    Attributes:
        width_ms: of a cell; one of :data:`CELL_WIDTHS_MS`.
        cells: by number: cell n begins at n times the width. Empty cells are left out.
    """

    width_ms: int = CELL_WIDTHS_MS[0]
    cells: Mapping[int, Volume] = field(default_factory=dict)

    def __add__(self, other: TimeHistogram) -> TimeHistogram:
        width_ms = max(self.width_ms, other.width_ms)
        cells = dict(self.widened(width_ms).cells)
        for number, volume in other.widened(width_ms).cells.items():
            cells[number] = cells[number].plus(volume) if number in cells else volume
        return TimeHistogram(width_ms, cells).narrowed()

    def widened(self, width_ms: int) -> TimeHistogram:
        """The same with wider cells."""
        if width_ms == self.width_ms:
            return self
        factor = width_ms // self.width_ms
        cells: dict[int, Volume] = {}
        for number, volume in self.cells.items():
            wide = number // factor
            cells[wide] = cells[wide].plus(volume) if wide in cells else volume
        return TimeHistogram(width_ms, cells)

    def narrowed(self) -> TimeHistogram:
        """The same with at most :data:`MOST_CELLS` cells, if wide ones are enough for that."""
        found = self
        while len(found.cells) > MOST_CELLS and found.width_ms < CELL_WIDTHS_MS[-1]:
            wider = next(each for each in CELL_WIDTHS_MS if each > found.width_ms)
            found = found.widened(wider)
        return found


class BatchStatistics(Struct, frozen=True):
    """Statistics of valid batches.

    Attributes:
        times: by maximum timestamp.
        untimed: batches without a timestamp.
        sizes: by size: those of number n have at least 2 to the power of n bytes, and less than
            twice as many.
        codecs: by the number of the codec in the attributes.
    """

    times: TimeHistogram = field(default_factory=TimeHistogram)
    untimed: Volume = NOTHING
    sizes: Mapping[int, Volume] = field(default_factory=dict)
    codecs: Mapping[int, Volume] = field(default_factory=dict)

    def __add__(self, other: BatchStatistics) -> BatchStatistics:
        return BatchStatistics(
            self.times + other.times,
            self.untimed.plus(other.untimed),
            _sum(self.sizes, other.sizes),
            _sum(self.codecs, other.codecs),
        )

    @property
    def total(self) -> Volume:
        found = Volume()
        for each in self.codecs.values():
            found = found.plus(each)
        return found


def _sum(left: Mapping[int, Volume], right: Mapping[int, Volume]) -> dict[int, Volume]:
    found = dict(left)
    for number, volume in right.items():
        found[number] = found[number].plus(volume) if number in found else volume
    return found


def batch_statistics(batches: BatchColumns) -> BatchStatistics:
    """The statistics of valid batches; there is at least one."""
    size_bytes = batches.size_bytes
    records = batches.counts
    timestamp = batches.max_timestamp
    width_ms = CELL_WIDTHS_MS[0]
    is_timed = timestamp >= 0
    if is_timed.all():
        untimed = Volume()
        cells = dict(_volumes(timestamp // width_ms, size_bytes, records))
    else:
        untimed = Volume(*_sums(size_bytes[~is_timed], records[~is_timed]))
        timed = timestamp[is_timed] // width_ms
        cells = dict(_volumes(timed, size_bytes[is_timed], records[is_timed]))
    codec = batches.attributes & record_batch.CODEC_MASK
    exponent = np.frexp(size_bytes)[1].astype(np.int64) - 1
    return BatchStatistics(
        TimeHistogram(width_ms, cells).narrowed(),
        untimed,
        dict(_volumes(exponent, size_bytes, records)),
        dict(_volumes(codec, size_bytes, records)),
    )


def _sums(size_bytes: Column, records: Column) -> tuple[int, int, int]:
    return len(size_bytes), int(records.sum()), int(size_bytes.sum())


def _volumes(key: Column, size_bytes: Column, records: Column) -> Iterator[tuple[int, Volume]]:
    """The sums of the rows of each key."""
    if not key.size:
        return
    if (key == key[0]).all():
        yield int(key[0]), Volume(*_sums(size_bytes, records))
        return
    found, row = np.unique(key, return_inverse=True)
    batches = np.bincount(row)
    sums = [np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)]
    np.add.at(sums[0], row, records)
    np.add.at(sums[1], row, size_bytes)
    for number, *counts in zip(found, batches, *sums, strict=True):
        yield int(number), Volume(*map(int, counts))
