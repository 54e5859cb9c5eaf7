"""Runs of batches in a log, and what one producer wrote in each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.load_report import Cause
from kdump.broker.loader.valid_batches import ValidBatches

_MOST_GAPS: Final = 1000
"""A log with more gaps was compacted; its gaps do not separate runs."""


class SequenceSpan(Struct, frozen=True):
    """The first and last epoch and sequence number of one producer in a run."""

    first_epoch: int
    first_sequence: int
    last_epoch: int
    last_sequence: int


def sequence_spans(batches: ValidBatches, rows: slice) -> dict[int, SequenceSpan]:
    """Find the spans of all producers in the selected batches, by producer id."""
    ids = batches.producer_id[rows]
    numbered = np.flatnonzero((ids >= 0) & (batches.base_sequence[rows] >= 0))
    if not numbered.size:
        return {}
    found, first = np.unique(ids[numbered], return_index=True)
    _, last = np.unique(ids[numbered][::-1], return_index=True)
    spans = {}
    for producer_id, begin, end in zip(found.tolist(), first.tolist(), last.tolist(), strict=True):
        head, tail = numbered[begin], numbered[::-1][end]
        spans[producer_id] = SequenceSpan(
            int(batches.producer_epoch[rows][head]),
            int(batches.base_sequence[rows][head]),
            int(batches.producer_epoch[rows][tail]),
            int(batches.last_sequence[rows][tail]),
        )
    return spans


def add_spans(spans: dict[int, SequenceSpan], following: Mapping[int, SequenceSpan]) -> None:
    """Extend the spans of a log by those of the batches after it."""
    for producer_id, span in following.items():
        before = spans.get(producer_id)
        if before is not None:
            span = replace(
                span, first_epoch=before.first_epoch, first_sequence=before.first_sequence
            )
        spans[producer_id] = span


def repeats(before: SequenceSpan, after: SequenceSpan) -> bool:
    """Whether a producer writes sequence numbers again that it has written in the same epoch."""
    return before.last_epoch == after.first_epoch and after.first_sequence <= before.last_sequence


class LogRun(Struct, eq=False):
    """Consecutive batches of one log, with increasing offsets.

    Attributes:
        base_offset: from the name of the log.
        rows: numbers of the batches.
        batches: number of batches.
        spans: of its producers.
        is_outside: whether the log's name rules its offsets out.
        continues: whether it continues the previous run of the file past another log's name.
        is_alone: whether it is one batch that fits neither its neighbours in the file nor the
            file's name: a batch with a wrong offset, not one of another log.
        weight: number of batches of the runs of the file that continue each other.
        is_twice: whether another run has all its batches.
        is_undecided: whether keeping this run and dropping another is about as plausible.
        doubts: the weight of the evidence against it.
        is_contradicted: whether any of that is more than its location.
        is_misplaced: whether offsets are missing before it, and the index of its log describes
            other batches.
        is_replaced: whether the index of its log describes other batches, and the leader epochs or
            a producer snapshot contradict it too.
        is_strange: whether no other log of the partition has any of its producers.
    """

    base_offset: int
    rows: slice
    first: int
    last: int
    batches: int
    spans: Mapping[int, SequenceSpan]
    is_outside: bool
    continues: bool
    is_alone: bool = False
    is_twice: bool = False
    is_undecided: bool = False
    weight: int = 0
    doubts: float = 0
    is_contradicted: bool = False
    is_misplaced: bool = False
    is_replaced: bool = False
    is_strange: bool = False

    def doubt(self, weight: int, *, contradicts: bool = True) -> None:
        """Add evidence against the run; ``contradicts`` unless it is only about its location."""
        self.doubts += weight
        self.is_contradicted |= contradicts

    @property
    def place(self) -> tuple[int, int]:
        """The base offset of its log, and the number of its first batch in it."""
        return self.base_offset, self.rows.start

    @property
    def cause(self) -> Cause:
        """Why the run is dropped, if it is."""
        if self.is_twice:
            return Cause.DUPLICATE
        return Cause.UNDECIDED if self.is_undecided else Cause.FOREIGN

    def overlaps(self, other: LogRun) -> bool:
        """Whether both runs have an offset in common, as far as their ends tell."""
        return self.first <= other.last and other.first <= self.last


def find_runs(
    logs: Mapping[int, ValidBatches], spans: Mapping[int, Mapping[int, SequenceSpan]]
) -> Iterator[LogRun]:
    """Split the logs into runs, in the order of the files.

    A run ends where offsets go back or are missing, and where the name of another log begins. A log
    that is collapsed is one run: nothing speaks against it.
    """
    bases = np.array(sorted(logs), np.int64)
    for base, batches in logs.items():
        if not batches.count:
            continue
        first, last = batches.first_offset, batches.last_offset
        logs_before = np.searchsorted(bases, first, side="right")
        breaks = (first[1:] <= last[:-1]) | (logs_before[1:] != logs_before[:-1])
        has_gap = first[1:] > last[:-1] + 1
        if np.count_nonzero(has_gap) <= _MOST_GAPS:
            breaks |= has_gap
        breaks &= not batches.is_collapsed
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), batches.count]
        own = int(np.searchsorted(bases, base, side="right"))
        found: list[LogRun] = []
        for begin, end in itertools.pairwise(edges):
            rows = slice(begin, end)
            touches = bool(found) and int(first[begin]) == found[-1].last + 1
            continues = touches and not found[-1].is_outside
            is_inside = int(logs_before[begin]) == own
            is_named = begin == 0 and int(first[begin]) == base
            run = LogRun(
                base,
                rows,
                int(first[begin]),
                int(last[end - 1]),
                int(batches.batches[rows].sum()),
                spans[base] if batches.is_collapsed else sequence_spans(batches, rows),
                is_outside=(touches and found[-1].is_outside) or not (is_inside or continues),
                continues=not is_inside and continues,
                is_alone=end - begin == 1 and len(edges) > 2 and not touches and not is_named,
            )
            if touches:
                found[-1].is_alone = False
            found.append(run)
        yield from found
