"""A map of a segment's log: which of its bytes are valid, padding or damaged, in order."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.scan.batches import BatchColumns

MOST_RUNS: Final = 400
"""A part of a segment with more runs has the rest as one of kind :attr:`RunKind.MIXED`."""


class RunKind(enum.Enum):
    """The kind of some bytes of a log; the value is the word for it."""

    VALID = "valid"
    PADDING = "padding"
    DAMAGED = "damaged"
    MIXED = "valid and damaged"
    """Too many changes to show one by one."""


class ByteRun(Struct, frozen=True):
    """Consecutive bytes of one kind.

    Attributes:
        start: first byte of the file.
        end: byte after the last.
        first_offset: of the first valid batch; None if there is none.
        last_offset: of the last valid batch.
    """

    kind: RunKind
    start: int
    end: int
    first_offset: int | None = None
    last_offset: int | None = None

    def joined(self, following: ByteRun) -> ByteRun:
        """One run of this one and the one after it."""
        firsts = (self.first_offset, following.first_offset)
        lasts = (following.last_offset, self.last_offset)
        return replace(
            self,
            end=following.end,
            first_offset=next((each for each in firsts if each is not None), None),
            last_offset=next((each for each in lasts if each is not None), None),
        )


class LogMapBuilder:
    """The runs of a part of a segment's log, from front to back."""

    def __init__(self) -> None:
        self._runs: list[ByteRun] = []

    def add_batches(self, batches: BatchColumns, good: BatchColumns) -> None:
        """Add consecutive batches.

        Args:
            batches: all of them, at least one.
            good: those that are valid.
        """
        if good.count == batches.count:
            self.add(_run_of(batches, RunKind.VALID))
            return
        is_good = np.isin(batches.position, good.position)
        edges = np.flatnonzero(is_good[1:] != is_good[:-1]) + 1
        bounds = [0, *edges.tolist(), batches.count]
        for start, end in itertools.pairwise(bounds):
            rows = batches.rows(slice(start, end))
            self.add(_run_of(rows, RunKind.VALID if is_good[start] else RunKind.DAMAGED))

    def add_bytes(self, start: int, end: int, *, is_padding: bool) -> None:
        """Add bytes that are not a batch."""
        self.add(ByteRun(RunKind.PADDING if is_padding else RunKind.DAMAGED, start, end))

    def add(self, run: ByteRun) -> None:
        """Add the next bytes."""
        add_run(self._runs, run)

    def runs(self) -> tuple[ByteRun, ...]:
        return tuple(self._runs)


def _run_of(batches: BatchColumns, kind: RunKind) -> ByteRun:
    start, end = int(batches.position[0]), int(batches.next_position[-1])
    if kind is not RunKind.VALID:
        return ByteRun(kind, start, end)
    return ByteRun(kind, start, end, int(batches.base_offset[0]), int(batches.last_offset[-1]))


def add_run(runs: list[ByteRun], run: ByteRun) -> None:
    """Add a run, joined to the one before if both are of one kind, or if there are too many."""
    if runs and (runs[-1].kind is run.kind or runs[-1].kind is RunKind.MIXED):
        runs[-1] = runs[-1].joined(run)
    elif len(runs) >= MOST_RUNS:
        runs[-1] = replace(runs[-1].joined(run), kind=RunKind.MIXED)
    else:
        runs.append(run)


def joined_runs(parts: Iterable[tuple[ByteRun, ...]]) -> tuple[ByteRun, ...]:
    """The runs of a segment, from those of its parts in order."""
    runs: list[ByteRun] = []
    for part in parts:
        for run in part:
            add_run(runs, run)
    return tuple(runs)
