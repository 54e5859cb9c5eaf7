"""Choose the batches of several logs that form one sequence with increasing offsets.

The base offset is outside a batch's checksum, so a wrong one is not noticed by itself; nor is a
batch that occurs twice. The longest sequence stays in which no batch begins at or below the end of
the one before. Of equally long sequences, the preferred one has batches within their segments, at
the name of their log, and next to their neighbours in the file, because batches with a wrong offset
have none of these.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from kdump.broker.loader.valid_batches import ValidBatches
from kdump.scan.batches import Column, Flags
from kdump.scan.increasing_offsets import BATCH_WEIGHT, heaviest_sequence, touched

INT32_MAX = 2**31 - 1
"""How far above the name of its log an offset may be."""


def log_order(logs: Mapping[int, ValidBatches]) -> list[int]:
    """Sort the base offsets of ``logs`` by the offsets in the logs.

    That is the order of their names, unless a file has a wrong name.
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
    """Map each base offset to the next one, where its segment ends."""
    ordered = sorted(set(bases))
    return dict(itertools.zip_longest(ordered, ordered[1:], fillvalue=2**63 - 1))


def _within(first: Column, low: int, high: int) -> Column:
    """The offsets within a segment, or all if none is.

    Batches outside their segment do not tell where it belongs.
    """
    own: Column = first[(first >= low) & (first < high)]
    return own if own.size else first


def increasing_batches(
    logs: Mapping[int, ValidBatches], dropped: Mapping[int, Collection[int]]
) -> dict[int, Flags]:
    """Choose which batches of each log stay.

    Args:
        logs: their batches, by base offset.
        dropped: numbers of the batches that cannot stay, by base offset of their log.
    """
    pieces = _pieces(logs)
    first = _joined([logs[base].first_offset[rows] for base, rows in pieces])
    last = _joined([logs[base].last_offset[rows] for base, rows in pieces])
    batches = _joined([logs[base].batches[rows] for base, rows in pieces])
    kept = {base: np.ones(logs[base].count, np.bool_) for base in logs}
    for base, rows_dropped in dropped.items():
        kept[base][list(rows_dropped)] = False
    keep = np.concatenate([np.empty(0, np.bool_), *(kept[base][rows] for base, rows in pieces)])
    if not (first[keep][1:] > last[keep][:-1]).all():
        # A batch that cannot stay still shows that its neighbours are where they belong.
        weights = BATCH_WEIGHT * batches + _preferences(pieces, first, last)
        keep[keep] = heaviest_sequence(first[keep], last[keep], weights[keep])
    begin = 0
    for base, rows in pieces:
        end = begin + rows.stop - rows.start
        kept[base][rows] = keep[begin:end]
        begin = end
    return kept


def _pieces(logs: Mapping[int, ValidBatches]) -> list[tuple[int, slice]]:
    """Split logs into ranges of batches, in the order of their offsets.

    A log is split where its offsets pass the names of other logs, because those may belong between.
    The pieces of one log keep the order of the file. A single batch after others is not a piece: it
    more likely has a wrong offset.
    """
    bases = np.array(sorted(logs), np.int64)
    following = _following(logs)
    found: list[tuple[int, int, int, int]] = []
    for base_offset, batches in logs.items():
        logs_before = np.searchsorted(bases, batches.last_offset[:-1], side="right")
        leaps = np.flatnonzero(logs_before < np.searchsorted(bases, batches.first_offset[1:]))
        edges = [0, *(leaps + 1).tolist(), batches.count]
        edges = [0, *(begin for begin, end in itertools.pairwise(edges[1:]) if end - begin > 1)]
        location = -1
        for begin, end in itertools.pairwise([*edges, batches.count]):
            if begin < end:
                first = batches.first_offset[begin:end]
                own = np.sort(_within(first, base_offset, following[base_offset]))
                location = max(location, int(own[(own.size - 1) // 2]))
                found.append((location, base_offset, begin, end))
    return [(base_offset, slice(begin, end)) for _, base_offset, begin, end in sorted(found)]


def _preferences(pieces: Sequence[tuple[int, slice]], first: Column, last: Column) -> Column:
    """Rate how well each batch fits its location, from 0 to 5."""
    following = _following(base for base, _ in pieces)
    counts = [rows.stop - rows.start for _, rows in pieces]
    low = np.repeat(np.array([base for base, _ in pieces], np.int64), counts)
    high = np.repeat(np.array([following[base] for base, _ in pieces], np.int64), counts)
    begins = np.concatenate([np.arange(rows.start, rows.stop) == 0 for _, rows in pieces])
    within = (first >= low) & (last < high)
    preference: Column = within + 2 * (begins & (first == low)) + touched(first, last)
    return preference


def _joined(parts: Sequence[Column]) -> Column:
    return np.concatenate([np.empty(0, np.int64), *parts])
