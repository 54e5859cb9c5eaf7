"""Choose, of batches whose offsets conflict, those that form a sequence with increasing offsets.

The base offset is outside a batch's checksum, so a wrong one shows only beside other batches.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np

from kdump.scan.batches import Column, Flags

BATCH_WEIGHT: Final = 1 << 28
"""The weight of a batch: more than all preferences together."""


def touched(first: Column, last: Column) -> Column:
    """Count for each batch the neighbours, 0 to 2, whose offsets adjoin its own."""
    adjoins = first[1:] == last[:-1] + 1
    found = np.zeros(len(first), np.int64)
    found[1:] += adjoins
    found[:-1] += adjoins
    return found


def heaviest_sequence(first: Column, last: Column, weights: Column) -> Flags:
    """Find the heaviest subsequence of batches with increasing offsets."""
    ends: list[int] = []  # of the best sequences so far, increasing in both end and weight
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
