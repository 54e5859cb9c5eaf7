"""Leader epochs, producer ids and gaps in batch headers, and whether the checkpoint has the epochs.

A log's epochs only rise, so that its last batch has the highest; but not where a cluster was
rebuilt with too low an epoch, and not where messages of an old format follow. Then the epoch
checkpoint shows it: a broker drops the entries of higher epochs when a lower one follows
(``LeaderEpochFileCache``). No checksum covers the epoch in a header: one that neither the
checkpoint nor the batches after it have may be wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from kdump.formats import record_batch
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.names import FileKind
from kdump.log.headers import batch_span_at
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, OnDamage, segment_part, valid_windows
from kdump.scan.batches import BatchColumns
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.state.transactions.open_transactions import TransactionReplay

_FIRST_MAGIC_WITH_EPOCHS = 2


class LastBatch(NamedTuple):
    """The last batch that was read, and what comes before it in its segment.

    Attributes:
        end_offset: after its last offset.
        leader_epoch: -1 if it has none.
        offset_before: after the last offset of the batch before it, or the base of the segment; -1
            if damage is before it.
        epoch_before: the leader epoch of that batch; -1 if there is none.
    """

    base_offset: int
    end_offset: int
    leader_epoch: int
    offset_before: int
    epoch_before: int


class EpochSample(NamedTuple):
    """The first offset of a batch, and its leader epoch."""

    offset: int
    leader_epoch: int


class EpochSpan(NamedTuple):
    """Batches of one leader epoch that follow each other: the first and last of their offsets."""

    leader_epoch: int
    first_offset: int
    last_offset: int

    @property
    def samples(self) -> tuple[EpochSample, EpochSample]:
        """The first and the last of its offsets."""
        first = EpochSample(self.first_offset, self.leader_epoch)
        return first, EpochSample(self.last_offset, self.leader_epoch)


class HeaderSums(Struct):
    """What the headers that were read add up to.

    Attributes:
        runs: the leader epochs, in the order of the batches.
        highest_producer_id: None if no batch has one.
        last: the last batch; None without one, or if it is of an old format.
        missing: the offsets that no batch has, from the start of the log to the last one. Those
            before a batch of an old format are not known: its first offset is not in its header.
        damaged: those of them that are at damage: the cleaner did not remove them all.
    """

    runs: list[EpochSpan] = field(default_factory=list)
    highest_producer_id: int | None = None
    last: LastBatch | None = None
    missing: list[range] = field(default_factory=list)
    damaged: list[range] = field(default_factory=list)
    _is_after_damage: bool = False
    _end: int = 0
    _next: int | None = None

    def begin_log(self, start_offset: int | None) -> None:
        """Begin to take the batches of a log; its start may not be known."""
        self._next = start_offset

    def end_log(self, end_offset: int) -> None:
        """Take note of where the log ends: its last batch may be damaged, and is missing then."""
        if self._next is not None and self._next < end_offset:
            self._miss(range(self._next, end_offset))
            self._next = end_offset

    def begin_segment(self, base_offset: int) -> None:
        """Begin to take the batches of a segment."""
        self._end = base_offset

    def pass_damage(self) -> None:
        """Take note of damage: what was between the batches around it is not known."""
        self._end = -1
        self._is_after_damage = True

    def take(self, batches: BatchColumns) -> None:
        """Take in the next batches."""
        has_epoch = batches.magic >= _FIRST_MAGIC_WITH_EPOCHS
        has_epoch &= batches.partition_leader_epoch >= 0
        epoch = batches.partition_leader_epoch[has_epoch]
        if epoch.size:
            first = batches.base_offset[has_epoch]
            last = batches.last_offset[has_epoch]
            edges = [0, *(np.flatnonzero(np.diff(epoch)) + 1).tolist(), epoch.size]
            for begin, end in itertools.pairwise(edges):
                self._take_run(EpochSpan(int(epoch[begin]), int(first[begin]), int(last[end - 1])))
        if batches.count:
            self._take_missing(batches)
            self._take_last(batches)
            highest = int(batches.producer_id.max())
            if highest >= 0:
                self.take_producer_id(highest)

    def _take_missing(self, batches: BatchColumns) -> None:
        start = int(batches.base_offset[0]) if self._next is None else self._next
        ends = np.maximum.accumulate(np.concatenate(([start], batches.last_offset + 1)))
        before = ends[:-1]
        is_gap = (batches.base_offset > before) & (batches.magic >= _FIRST_MAGIC_WITH_EPOCHS)
        for row in np.flatnonzero(is_gap).tolist():
            self._is_after_damage &= row == 0
            self._miss(range(int(before[row]), int(batches.base_offset[row])))
        self._is_after_damage = False
        self._next = int(ends[-1])

    def _miss(self, offsets: range) -> None:
        self.missing.append(offsets)
        if self._is_after_damage:
            self.damaged.append(offsets)

    def _take_last(self, batches: BatchColumns) -> None:
        before, epoch_before = self._end, -1
        if batches.count > 1:
            before = int(batches.last_offset[-2]) + 1
            epoch_before = int(batches.partition_leader_epoch[-2])
        elif self.last is not None and self.last.end_offset == before:
            epoch_before = self.last.leader_epoch
        self._end = int(batches.last_offset[-1]) + 1
        self.last = None
        if batches.magic[-1] >= _FIRST_MAGIC_WITH_EPOCHS:
            epoch = int(batches.partition_leader_epoch[-1])
            base_offset = int(batches.base_offset[-1])
            self.last = LastBatch(base_offset, self._end, epoch, before, epoch_before)

    def _take_run(self, run: EpochSpan) -> None:
        if self.runs and self.runs[-1].leader_epoch == run.leader_epoch:
            run = self.runs.pop()._replace(last_offset=run.last_offset)
        self.runs.append(run)

    def take_producer_id(self, producer_id: int) -> None:
        """Take in a producer id that was found elsewhere."""
        self.highest_producer_id = max(producer_id, self.highest_producer_id or 0)

    @property
    def highest_epoch(self) -> int | None:
        return max((run.leader_epoch for run in self.runs), default=None)

    @property
    def falls(self) -> list[tuple[EpochSpan, EpochSpan]]:
        """Where the epoch is lower than before: the batches before, and those from there on."""
        pairs = itertools.pairwise(self.runs)
        return [(run, after) for run, after in pairs if after.leader_epoch < run.leader_epoch]

    def undoubted_samples(self) -> list[EpochSample]:
        """The epochs of the batches that are not where the epoch falls: one of those is wrong."""
        doubtful = {run for fall in self.falls for run in fall}
        return [each for run in self.runs if run not in doubtful for each in run.samples]

    def rising(self) -> list[EpochEntry]:
        """Where each epoch begins, without those that lower ones follow."""
        rising: list[EpochEntry] = []
        for run in reversed(self.runs):
            if not rising or run.leader_epoch < rising[-1].epoch:
                rising.append(EpochEntry(run.leader_epoch, run.first_offset))
            elif run.leader_epoch == rising[-1].epoch:
                rising[-1] = EpochEntry(run.leader_epoch, run.first_offset)
        return rising[::-1]


def read_headers(
    partition: Partition,
    segment: Segment,
    following: Segment | None,
    sums: HeaderSums,
    on_damage: OnDamage,
    transactions: TransactionReplay | None = None,
) -> None:
    """Read all batches of a segment.

    Args:
        following: the next one; None for the last.
        transactions: takes the batches, too.

    Raises:
        OSError: the log cannot be read.
    """
    sums.begin_segment(segment.base_offset)
    with partition.segment_path(segment, FileKind.LOG).open_file() as log:
        for step in valid_windows(log, segment_part(segment, following)):
            if transactions is not None:
                transactions.take(step, on_damage)
            elif isinstance(step, Damage):
                on_damage(step)
            if isinstance(step, Damage):
                sums.pass_damage()
            else:
                sums.take(step.batches)


def first_headers(partition: Partition, segments: Iterable[Segment]) -> list[EpochSample]:
    """The first header of each segment, if it has one that says its epoch.

    Raises:
        OSError: a log cannot be read.
    """
    samples = []
    for segment in segments:
        if not segment.log_bytes:
            continue
        with partition.segment_path(segment, FileKind.LOG).open_file() as log:
            span = batch_span_at(log, 0)
        if span is not None and span.base_offset >= segment.base_offset:
            samples.append(EpochSample(span.base_offset, span.leader_epoch))
    return samples


def agree(history: EpochHistory | None, samples: Iterable[EpochSample], log_start: int) -> bool:
    """Whether a checkpoint has the epochs of some headers, each where its batch is.

    Args:
        history: of the checkpoint; None if that is missing or malformed.
        log_start: batches that begin before it are not in the checkpoint.
    """
    with_epoch = [
        each
        for each in samples
        if each.leader_epoch != record_batch.NO_PARTITION_LEADER_EPOCH and each.offset >= log_start
    ]
    if history is None:
        return not with_epoch
    return all(history.epoch_for_offset(each.offset) == each.leader_epoch for each in with_epoch)
