"""Find offsets that were missing from a partition before it was salvaged.

In a log that was never compacted, missing offsets are lost records, and no repair brings them back.
For each gap, salvage creates an empty file beside the logs, named like quarantined bytes. The next
verification then knows the gap and no longer reports it as damage.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kdump.broker.loader.load_report import Cause, QuarantinedRange
from kdump.broker.loader.valid_batches import ValidBatches
from kdump.check.gaps import is_known, quarantined_bases
from kdump.formats.names import FileKind
from kdump.target.virtual_directory import file_name


@dataclass(slots=True)
class LogOffsets:
    """The offsets of a log, as far as finding gaps needs them.

    Attributes:
        base_offset: from the name of the log.
        first: its first offset; None if it has no batches or does not tell.
        gaps: first and last offset of each gap between its batches; none if it is thinned.
        is_thinned: whether batches have fewer records than offsets, as compaction leaves them.
    """

    base_offset: int
    first: int | None = None
    last: int = -1
    gaps: list[tuple[int, int]] = field(default_factory=list)
    is_thinned: bool = False
    _before: int | None = None
    """Last offset of the last batch so far."""

    def __post_init__(self) -> None:
        self.last = self.base_offset - 1

    def add(self, batches: ValidBatches) -> None:
        """Take the next batches of the log, which are not collapsed."""
        first, last, records = batches.first_offset, batches.last_offset, batches.records_count
        # A compressed message set of magic 0 or 1 does not say where it begins.
        is_known = records >= 0
        if (is_known & (records < last - first + 1)).any():
            self.is_thinned = True
            self.gaps.clear()
        if not self.is_thinned:
            low = np.append(last[:1] if self._before is None else self._before, last[:-1]) + 1
            rows = np.flatnonzero((first > low) & is_known)
            self.gaps.extend(zip(low[rows].tolist(), (first[rows] - 1).tolist(), strict=True))
        if self._before is None:
            self.first = int(first[0]) if is_known[0] else None
            self.last = int(last.max())
        self.last = max(self.last, int(last.max()))
        self._before = int(last[-1])


def missing_ranges(
    log_offsets: Mapping[int, LogOffsets], known: Collection[str]
) -> Iterator[QuarantinedRange]:
    """Find the unknown gaps of a partition that was never compacted, each with its empty file.

    Args:
        log_offsets: of the logs as they are on disk, by base offset.
        known: names of the files in the directory; those of quarantined bytes mark known gaps.
    """
    logs = [log_offsets[base] for base in sorted(log_offsets)]
    if any(log.is_thinned for log in logs):
        return
    quarantined = quarantined_bases(known)
    for low, high, first, last in _gaps(logs):
        if is_known(low, high, quarantined):
            continue
        log = file_name(high, FileKind.LOG)
        yield QuarantinedRange(
            name=log,
            start=0,
            end=0,
            file=f"damaged-{log}-0-0",
            cause=Cause.MISSING,
            reason="they were missing before",
            first_offset=first,
            last_offset=last,
            records=None,
        )


def _gaps(logs: Sequence[LogOffsets]) -> Iterator[tuple[int, int, int, int]]:
    """Base offsets of the logs before and after each gap, and its first and last offset."""
    with_data = [log for log in logs if log.first is not None]
    for log in logs:
        for first, last in log.gaps:
            yield log.base_offset, log.base_offset, first, last
    for before, after in itertools.pairwise(with_data):
        if after.first is not None and after.first > before.last + 1:
            yield before.base_offset, after.base_offset, before.last + 1, after.first - 1
