"""Find offsets that were missing from a partition before it was salvaged.

In a log that was never compacted, missing offsets are lost records, and no repair brings them back.
For each gap, salvage creates an empty file beside the logs, named like quarantined bytes. The next
verification then knows the gap and no longer reports it as damage.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kdump.broker.loader.load_report import Cause, QuarantinedRange
from kdump.broker.loader.valid_batches import ValidBatches
from kdump.check.gaps import is_known, quarantined_bases
from kdump.formats.names import FileKind
from kdump.target.virtual_directory import file_name


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The offsets of a log, as far as finding gaps needs them.

    Attributes:
        base_offset: from the name of the log.
        first: its first offset; None if it has no batches or does not tell.
        last: its last offset.
        gaps: first and last offset of each gap between its batches.
        is_thinned: whether batches have fewer records than offsets, as compaction leaves them.
    """

    base_offset: int
    first: int | None
    last: int
    gaps: tuple[tuple[int, int], ...]
    is_thinned: bool


def offsets_of_log(base_offset: int, batches: ValidBatches) -> LogOffsets:
    """Find the gaps in a log whose batches are not collapsed."""
    if not batches.count:
        return LogOffsets(base_offset, None, base_offset - 1, (), is_thinned=False)
    first, last, records = batches.first_offset, batches.last_offset, batches.records_count
    # A compressed message set of magic 0 or 1 does not say where it begins.
    is_known = records >= 0
    rows = np.flatnonzero((first[1:] > last[:-1] + 1) & is_known[1:])
    is_thinned = bool((is_known & (records < last - first + 1)).any())
    gaps = tuple(zip((last[rows] + 1).tolist(), (first[rows + 1] - 1).tolist(), strict=True))
    first_offset = int(first[0]) if is_known[0] else None
    return LogOffsets(base_offset, first_offset, int(last.max()), gaps, is_thinned)


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
