"""Rebuild ``leader-epoch-checkpoint`` from the batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.log_segments import LogSegments, unindexed_segments
from kdump.formats import names
from kdump.log.partition import Partition
from kdump.repair.rebuild.repaired import Repaired, changes
from kdump.scan.batches import BatchColumns, Column
from kdump.state.epochs.epoch_history import begin_before
from kdump.state.epochs.leader_epochs import LeaderEpochs
from kdump.state.epochs.rising_epochs import rising_epochs
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory


def rebuild_leader_epochs(partition: Partition, context: LoadContext) -> Repaired:
    """Rebuild the leader epoch checkpoint from all batches of the partition.

    A checkpoint that contradicts no batch stays: it may have epochs in which nothing was written,
    or whose first batch was compacted away. Epochs that begin before the log does are older than
    the deletion of its first records, and begin there, too. A checkpoint that contradicts a batch
    is not used at all. Batches whose epochs contradict those of more others do not count.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    if partition.is_0_7 or not partition.segments:
        return Repaired({})
    directory = VirtualDirectory(partition.path)
    try:
        runs = _runs(unindexed_segments(partition, directory, context.settings))
        if _agrees(directory.copy(), runs, context.log_start_offset):
            epochs = LeaderEpochs(directory)
            if not begin_before(epochs.entries, context.log_start_offset):
                return Repaired({})
        else:
            directory.remove(names.LEADER_EPOCH_CHECKPOINT)
            epochs = LeaderEpochs(directory)
            is_next = np.diff(runs.epoch, prepend=-1) > 0
            begins = (runs.epoch[is_next].tolist(), runs.base_offset[is_next].tolist())
            for epoch, start_offset in zip(*begins, strict=True):
                epochs.assign(epoch, start_offset)
    except Refused as refused:
        return Repaired({}, (refused.refusal,))
    epochs.truncate_from_start(context.log_start_offset)
    return Repaired(changes(directory, [names.LEADER_EPOCH_CHECKPOINT]))


class _Runs(NamedTuple):
    """Consecutive batches of one leader epoch each, in the order of the log.

    Attributes:
        epoch: of the batches.
        base_offset: of the first batch.
        last_base_offset: of the last batch.
        last_offset: of the last batch.
    """

    epoch: Column
    base_offset: Column
    last_base_offset: Column
    last_offset: Column


def _runs(segments: LogSegments) -> _Runs:
    """The runs of all batches with an epoch, without those that contradict more others.

    Raises:
        Refused: the log cannot be read to its end.
    """
    found = [
        _runs_of(window.batches) for segment in segments.all() for window in segment.windows(0)
    ]
    runs = _Runs(*map(np.concatenate, zip(*found, strict=True)))
    if not len(runs.epoch):
        return runs
    is_rising = rising_epochs(runs.epoch, runs.base_offset, int(runs.last_offset[-1]) + 1)
    return _Runs(*(column[is_rising] for column in runs))


def _runs_of(batches: BatchColumns) -> _Runs:
    """The runs in a window; those of magic 0 and 1 have no epoch."""
    own = batches.rows(batches.partition_leader_epoch >= 0)
    epoch = own.partition_leader_epoch
    is_change = epoch[1:] != epoch[:-1]
    is_any = np.ones(min(own.count, 1), np.bool_)
    is_first, is_last = np.append(is_any, is_change), np.append(is_change, is_any)
    return _Runs(
        epoch[is_first],
        own.base_offset[is_first],
        own.base_offset[is_last],
        own.last_offset[is_last],
    )


def _agrees(directory: VirtualDirectory, runs: _Runs, start_offset: int) -> bool:
    """Whether the checkpoint exists and has the epoch of every batch at its offset."""
    if names.LEADER_EPOCH_CHECKPOINT not in directory:
        return False
    try:
        entries = LeaderEpochs(directory).entries
    except Refused:
        return False
    starts = np.array([entry.start_offset for entry in entries], np.int64)
    known = np.array([-1, *(entry.epoch for entry in entries)], np.int64)
    at_first = np.searchsorted(starts, np.maximum(runs.base_offset, start_offset), side="right")
    at_last = np.searchsorted(starts, np.maximum(runs.last_base_offset, start_offset), side="right")
    is_wrong = (known[at_first] != runs.epoch) | (at_first != at_last)
    return not (is_wrong & (runs.last_offset >= start_offset)).any()
