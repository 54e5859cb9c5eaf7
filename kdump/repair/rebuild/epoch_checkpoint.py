"""Rebuild ``leader-epoch-checkpoint`` from the batches."""

from __future__ import annotations

import numpy as np

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.log_segments import LogSegments, unindexed_segments
from kdump.formats import names
from kdump.log.partition import Partition
from kdump.repair.rebuild.repaired import Repaired, changes
from kdump.state.epochs.epoch_history import begin_before
from kdump.state.epochs.leader_epochs import LeaderEpochs
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory


def rebuild_leader_epochs(partition: Partition, context: LoadContext) -> Repaired:
    """Rebuild the leader epoch checkpoint from all batches of the partition.

    A checkpoint that contradicts no batch stays: it may have epochs in which nothing was written,
    or whose first batch was compacted away. Epochs that begin before the log does are older than
    the deletion of its first records, and begin there, too. A checkpoint that contradicts a batch
    is not used at all.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    if partition.is_0_7 or not partition.segments:
        return Repaired({})
    directory = VirtualDirectory(partition.path)
    try:
        segments = unindexed_segments(partition, directory, context.settings)
        if _agrees(directory.copy(), segments, context.log_start_offset):
            epochs = LeaderEpochs(directory)
            if not begin_before(epochs.entries, context.log_start_offset):
                return Repaired({})
        else:
            directory.remove(names.LEADER_EPOCH_CHECKPOINT)
            epochs = LeaderEpochs(directory)
            for segment in segments.all():
                for window in segment.windows(0):
                    epochs.assign_all(window.batches)
    except Refused as refused:
        return Repaired({}, (refused.refusal,))
    epochs.truncate_from_start(context.log_start_offset)
    return Repaired(changes(directory, [names.LEADER_EPOCH_CHECKPOINT]))


def _agrees(directory: VirtualDirectory, segments: LogSegments, start_offset: int) -> bool:
    """Whether the checkpoint exists and has the epoch of every batch at its offset.

    Raises:
        Refused: the log cannot be read to its end.
    """
    if names.LEADER_EPOCH_CHECKPOINT not in directory:
        return False
    try:
        entries = LeaderEpochs(directory).entries
    except Refused:
        return False
    starts = np.array([entry.start_offset for entry in entries], np.int64)
    known = np.array([-1, *(entry.epoch for entry in entries)], np.int64)
    for segment in segments.all():
        for window in segment.windows(0):
            batches = window.batches
            has_epoch = (batches.magic >= 2) & (batches.partition_leader_epoch >= 0)
            offset = np.maximum(batches.base_offset, start_offset)
            is_in_log = has_epoch & (batches.last_offset >= start_offset)
            at = np.searchsorted(starts, offset, side="right")
            if (is_in_log & (known[at] != batches.partition_leader_epoch)).any():
                return False
    return True
