"""Offsets that were missing from a partition before it was salvaged.

In a log that was never compacted they are lost records, and no repair brings them back. Salvage
puts an empty file beside the logs for each hole, with the name of bytes that were moved aside from
there, so that the next verification knows of the hole and does not call it damage for ever.
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
    """What there is to know of the offsets in a log to find holes.

    Attributes:
        base_offset: from the name of the log.
        first: its first offset; None without batches.
        last: its last offset.
        holes: first and last offset of each hole between its batches.
        is_thinned: whether batches hold fewer records than offsets, as compaction leaves them.
    """

    base_offset: int
    first: int | None
    last: int
    holes: tuple[tuple[int, int], ...]
    is_thinned: bool


def offsets_of_log(base_offset: int, batches: ValidBatches) -> LogOffsets:
    """Look for holes in a log, whose batches are not collapsed."""
    if not batches.count:
        return LogOffsets(base_offset, None, base_offset - 1, (), is_thinned=False)
    first, last, records = batches.first_offset, batches.last_offset, batches.records_count
    # A compressed message set of magic 0 or 1 does not say where it begins.
    is_known = records >= 0
    rows = np.flatnonzero((first[1:] > last[:-1] + 1) & is_known[1:])
    is_thinned = bool((is_known & (records < last - first + 1)).any())
    holes = tuple(zip((last[rows] + 1).tolist(), (first[rows + 1] - 1).tolist(), strict=True))
    first_offset = int(first[0]) if is_known[0] else None
    return LogOffsets(base_offset, first_offset, int(last.max()), holes, is_thinned)


def missing_ranges(
    log_offsets: Mapping[int, LogOffsets], known: Collection[str]
) -> Iterator[QuarantinedRange]:
    """The holes in a log that was never compacted, each with the empty file that stands for it.

    Args:
        log_offsets: of the logs as they are on disk, by base offset.
        known: names of files in the directory; where one was moved aside, the hole is known.
    """
    logs = [log_offsets[base] for base in sorted(log_offsets)]
    if any(log.is_thinned for log in logs):
        return
    quarantined = quarantined_bases(known)
    for low, high, first, last in _holes(logs):
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


def _holes(logs: Sequence[LogOffsets]) -> Iterator[tuple[int, int, int, int]]:
    """Base offsets of the logs before and after each hole, and its first and last offset."""
    with_data = [log for log in logs if log.first is not None]
    for log in logs:
        for first, last in log.holes:
            yield log.base_offset, log.base_offset, first, last
    for before, after in itertools.pairwise(with_data):
        if after.first is not None and after.first > before.last + 1:
            yield before.base_offset, after.base_offset, before.last + 1, after.first - 1
