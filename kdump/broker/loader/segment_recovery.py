"""Recover a segment: check every batch, truncate at the first invalid one, rebuild the indexes.

Follows ``LogSegment.recover``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kdump.broker.loader.index_builder import IndexBuilder
from kdump.broker.loader.loaded_segment import LoadedSegment, OffsetOverflow
from kdump.formats.errors import FormatError
from kdump.formats.record_batch import wrap_int64
from kdump.formats.transaction_index import AbortedTxn
from kdump.scan.batches import Window, read_windows
from kdump.state.epochs.leader_epochs import LeaderEpochs
from kdump.state.transactions.markers import InvalidMarker
from kdump.state.transactions.producer_state_manager import ProducerStateManager
from kdump.state.transactions.producers import CompletedTxn, append_batches

_INT32_MAX: Final = 2**31 - 1


def recover_segment(
    segment: LoadedSegment, producers: ProducerStateManager, epochs: LeaderEpochs
) -> int:
    """Check every batch, truncate at the first invalid one, and rebuild the indexes.

    Args:
        producers: their state at the base offset; is advanced to the end.
        epochs: the leader epochs of the log; epochs of the segment are added.

    Returns:
        How many bytes were truncated.

    Raises:
        InvalidOffset: an offset or a timestamp is lower than the one before.
        OffsetOverflow: an offset does not fit the indexes; nothing was truncated.
        Refused: Kafka cannot recover this segment.
    """
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.transaction_index.reset()
    segment.max_timestamp = None
    segment.problem = None
    builder = IndexBuilder(segment.base_offset, segment.settings.interval_bytes)
    valid_bytes = 0
    try:
        with segment.directory.open(segment.log_name) as source:
            for window in read_windows(source):
                valid_bytes, problem = _recover_window(segment, window, builder, producers, epochs)
                if problem is not None:
                    segment.problem = problem
                    break
    finally:
        segment.max_timestamp = builder.max_timestamp
        builder.store(segment.offset_index, segment.time_index)
        segment.transaction_index.store()
    truncated_bytes = segment.size_bytes - valid_bytes
    segment.directory.truncate(segment.log_name, valid_bytes)
    segment.offset_index.trim()
    segment.time_index.append_last(*segment.known_max_timestamp())
    segment.time_index.trim()
    return truncated_bytes


def _recover_window(
    segment: LoadedSegment,
    window: Window,
    builder: IndexBuilder,
    producers: ProducerStateManager,
    epochs: LeaderEpochs,
) -> tuple[int, FormatError | None]:
    """Recover the batches of ``window``.

    Returns:
        The position up to which the log is valid, and the problem there, if there is one.
    """
    batches = window.batches
    count = batches.count
    problem = None if window.stop is None else window.stop.problem
    overflow: int | None = None
    if not batches.is_valid.all():
        count = int(np.argmin(batches.is_valid))
        problem = FormatError(
            "batch is not valid: its checksum does not match",
            position=int(batches.position[count]),
        )
    relative = batches.last_offset[:count] - segment.base_offset
    fits = (relative >= 0) & (relative <= _INT32_MAX)
    if not fits.all():
        count = int(np.argmin(fits))
        overflow = int(batches.last_offset[count])
    planned = builder.plan(batches.rows(slice(0, count)))
    count = min(count, planned.count)
    try:
        epochs.assign_all(batches.rows(slice(0, count)))
        for txn in append_batches(window, count, producers.producers, segment.log_name):
            _complete_txn(segment, txn, producers)
    except InvalidMarker as invalid:
        # Kafka counts the batch as valid before it parses the marker.
        builder.commit(planned, invalid.row + 1, segment.offset_index, segment.time_index)
        problem = FormatError(str(invalid), position=int(batches.position[invalid.row]))
        return int(batches.next_position[invalid.row]), problem
    builder.commit(planned, planned.reach, segment.offset_index, segment.time_index)
    if planned.invalid is not None:
        raise planned.invalid
    if overflow is not None:
        raise OffsetOverflow(segment, overflow)
    new = np.flatnonzero(batches.magic[:count] >= 2)
    if new.size:
        producers.map_end_offset = wrap_int64(int(batches.last_offset[new[-1]]) + 1)
    return int(batches.next_position[count - 1]) if count else window.start, problem


def _complete_txn(
    segment: LoadedSegment, txn: CompletedTxn, producers: ProducerStateManager
) -> None:
    if txn.is_aborted:
        segment.transaction_index.append(
            AbortedTxn(
                txn.producer_id,
                txn.first_offset,
                txn.last_offset,
                producers.producers.last_stable_offset(txn),
            )
        )
    producers.complete_txn(txn, segment.log_name)
