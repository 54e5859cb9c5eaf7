"""Which batches of several logs can stand behind each other with rising offsets.

A base offset lies outside of a batch's checksum, so one that is wrong is not noticed by itself;
nor is a batch that is there twice. What stays is the longest row of batches in which none begins
at or below the end of the one before. Of rows that are as long, one whose batches lie within
their segments, begin a log at its name, and touch their neighbours in the file, is preferred: it
is the batches with a wrong offset that do none of that.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from kdump.broker.loader.valid_batches import ValidBatches
from kdump.scan.batches import Column, Flags

INT32_MAX = 2**31 - 1
"""The most that an offset may lie behind the name of its log."""
_WEIGHT = 1 << 28
"""Of a batch: more than all preferences together can be."""


def log_order(logs: Mapping[int, ValidBatches]) -> list[int]:
    """The base offsets of ``logs`` in the order of what the logs hold.

    That is the order of their names, but where a file has a name that is not its own.
    """
    following = _following(logs)

    def middle(base_offset: int) -> tuple[int, int]:
        batches = logs[base_offset]
        if not batches.count:
            return base_offset, base_offset
        own = _within(batches.first_offset, base_offset, following[base_offset])
        return int(np.sort(own)[own.size // 2]), base_offset

    return sorted(logs, key=middle)


def _following(bases: Iterable[int]) -> dict[int, int]:
    """For each base offset the next one, where the offsets of its segment end."""
    ordered = sorted(set(bases))
    return dict(itertools.zip_longest(ordered, ordered[1:], fillvalue=2**63 - 1))


def _within(first: Column, low: int, high: int) -> Column:
    """The offsets that lie within a segment; all of them where none does.

    Batches outside of their segment do not tell where it belongs.
    """
    own: Column = first[(first >= low) & (first < high)]
    return own if own.size else first


def rising_batches(
    logs: Mapping[int, ValidBatches], let_go: Mapping[int, Collection[int]]
) -> dict[int, Flags]:
    """Which batches of each log stay.

    Args:
        logs: their batches, by base offset.
        let_go: numbers of those that cannot stay, by base offset of their log.
    """
    pieces = _pieces(logs)
    first = _joined([logs[base].first_offset[rows] for base, rows in pieces])
    last = _joined([logs[base].last_offset[rows] for base, rows in pieces])
    batches = _joined([logs[base].batches[rows] for base, rows in pieces])
    kept = {base: np.ones(logs[base].count, np.bool_) for base in logs}
    for base, rows_let_go in let_go.items():
        kept[base][list(rows_let_go)] = False
    keep = np.concatenate([np.empty(0, np.bool_), *(kept[base][rows] for base, rows in pieces)])
    if not (first[keep][1:] > last[keep][:-1]).all():
        # A batch that cannot stay still tells that those beside it are where they belong.
        weights = _WEIGHT * batches + _preferences(pieces, first, last)
        keep[keep] = _heaviest_row(first[keep], last[keep], weights[keep])
    begin = 0
    for base, rows in pieces:
        end = begin + rows.stop - rows.start
        kept[base][rows] = keep[begin:end]
        begin = end
    return kept


def _pieces(logs: Mapping[int, ValidBatches]) -> list[tuple[int, slice]]:
    """Ranges of batches, by base offset of their log, in the order of what they hold.

    Where offsets leap over the names of other logs, those may lie between. The pieces of one log
    stay in the order of the file. A single batch is no piece behind others: it is one with a wrong
    offset, rather.
    """
    bases = np.array(sorted(logs), np.int64)
    following = _following(logs)
    found: list[tuple[int, int, int, int]] = []
    for base_offset, batches in logs.items():
        names_below_last = np.searchsorted(bases, batches.last_offset[:-1], side="right")
        leaps = np.flatnonzero(names_below_last < np.searchsorted(bases, batches.first_offset[1:]))
        edges = [0, *(leaps + 1).tolist(), batches.count]
        edges = [0, *(begin for begin, end in itertools.pairwise(edges[1:]) if end - begin > 1)]
        place = -1
        for begin, end in itertools.pairwise([*edges, batches.count]):
            if begin < end:
                first = batches.first_offset[begin:end]
                own = np.sort(_within(first, base_offset, following[base_offset]))
                place = max(place, int(own[(own.size - 1) // 2]))
                found.append((place, base_offset, begin, end))
    return [(base_offset, slice(begin, end)) for _, base_offset, begin, end in sorted(found)]


def _preferences(pieces: Sequence[tuple[int, slice]], first: Column, last: Column) -> Column:
    """How well each batch fits where it stands, from 0 to 5."""
    following = _following(base for base, _ in pieces)
    counts = [rows.stop - rows.start for _, rows in pieces]
    low = np.repeat(np.array([base for base, _ in pieces], np.int64), counts)
    high = np.repeat(np.array([following[base] for base, _ in pieces], np.int64), counts)
    begins = np.concatenate([np.arange(rows.start, rows.stop) == 0 for _, rows in pieces])
    touches = first[1:] == last[:-1] + 1
    within = (first >= low) & (last < high)
    preference: Column = within + 2 * (begins & (first == low))
    preference[1:] += touches
    preference[:-1] += touches
    return preference


def _heaviest_row(first: Column, last: Column, weights: Column) -> Flags:
    """Weighted, as the longest rising subsequence: batches that end lowest for each weight."""
    ends: list[int] = []  # of the best rows so far, rising in both end and weight
    totals: list[int] = []
    tails: list[int] = []
    before = np.full(len(first), -1, np.int64)
    columns = zip(first.tolist(), last.tolist(), weights.tolist(), strict=True)
    for row, (begin, end, weight) in enumerate(columns):
        at = bisect_left(ends, begin) - 1
        total = weight
        if at >= 0:
            total += totals[at]
            before[row] = tails[at]
        place = bisect_left(ends, end)
        if place and totals[place - 1] >= total:
            continue
        beaten = place
        while beaten < len(ends) and totals[beaten] <= total:
            beaten += 1
        if place < beaten or place == len(ends) or ends[place] != end:
            ends[place:beaten] = [end]
            totals[place:beaten] = [total]
            tails[place:beaten] = [row]
    keep = np.zeros(len(first), np.bool_)
    row = tails[-1] if tails else -1
    while row >= 0:
        keep[row] = True
        row = int(before[row])
    return keep


def _joined(parts: Sequence[Column]) -> Column:
    return np.concatenate([np.empty(0, np.int64), *parts])
