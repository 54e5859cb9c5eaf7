"""The leader epochs and producer ids in batch headers, with as little reading as is safe.

A log's epochs only rise, so that its last batch has the highest; but not where a cluster was
rebuilt with too low an epoch, and not where messages of an old format follow. Then the epoch
checkpoint shows it: a broker drops the entries of higher epochs when a lower one follows
(``LeaderEpochFileCache``). So a few headers are compared with the checkpoint, and all are read
where the two disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kdump.formats import record_batch
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
        base_offset: its first offset.
        end_offset: after its last one.
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


@dataclass(slots=True)
class HeaderSums:
    """What the headers that were read add up to.

    Attributes:
        first_offsets: by leader epoch, where the first batch of it begins.
        highest_producer_id: None if no batch has one.
        falls: where the epoch is lower than before: the offset, and both epochs.
        last: the last batch; None without one, or if it is of an old format.
    """

    first_offsets: dict[int, int] = field(default_factory=dict)
    highest_producer_id: int | None = None
    falls: list[tuple[int, int, int]] = field(default_factory=list)
    last: LastBatch | None = None
    _last_epoch: int = -1
    _end: int = 0

    def begin_segment(self, base_offset: int) -> None:
        """Begin to take the batches of a segment."""
        self._end = base_offset

    def pass_damage(self) -> None:
        """Take note of damage: what was between the batches around it is not known."""
        self._end = -1

    def take(self, batches: BatchColumns) -> None:
        """Take in the next batches."""
        is_new = batches.magic >= _FIRST_MAGIC_WITH_EPOCHS
        epoch = batches.partition_leader_epoch[is_new]
        base = batches.base_offset[is_new]
        known = epoch >= 0
        epoch, base = epoch[known], base[known]
        if epoch.size:
            before = np.concatenate(([self._last_epoch], epoch[:-1]))
            for row in np.flatnonzero(epoch != before).tolist():
                self._begin(int(before[row]), int(epoch[row]), int(base[row]))
            self._last_epoch = int(epoch[-1])
        if batches.count:
            self._take_last(batches)
            highest = int(batches.producer_id.max())
            if highest >= 0:
                self.take_producer_id(highest)

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

    def _begin(self, before: int, epoch: int, offset: int) -> None:
        self.first_offsets.setdefault(epoch, offset)
        if epoch < before:
            self.falls.append((offset, before, epoch))

    def take_producer_id(self, producer_id: int) -> None:
        """Take in a producer id that was found elsewhere."""
        self.highest_producer_id = max(producer_id, self.highest_producer_id or 0)

    @property
    def highest_epoch(self) -> int | None:
        return max(self.first_offsets, default=None)


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
        partition: the partition.
        segment: the segment.
        following: the next one; None for the last.
        sums: takes what the headers say.
        on_damage: takes damage.
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
        samples: the headers.
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
