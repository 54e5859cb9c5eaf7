"""Replay a log to advance the state of its producers to an offset.

Follows ``UnifiedLog.rebuildProducerState`` and ``loadProducersFromRecords``.
"""

from __future__ import annotations

from kdump.broker.loader.log_segments import LogSegments
from kdump.state.transactions.producer_state_manager import ProducerStateManager
from kdump.target.refusal import Refused


def rebuild_producers(
    state: ProducerStateManager,
    segments: LogSegments,
    start_offset: int,
    end_offset: int,
    *,
    is_clean: bool = False,
) -> None:
    """Advance ``state`` to ``end_offset`` from the newest snapshot and the batches after it.

    Takes snapshots on the way, as Kafka does.

    Args:
        state: the producers of the log.
        segments: the segments that are loaded so far.
        start_offset: first offset of the log.
        end_offset: where to stop, exclusive.
        is_clean: whether the log is being loaded after a clean shutdown.

    Raises:
        Refused: Kafka cannot append a batch.
    """
    to_snapshot = [*segments.last_bases(2), end_offset]
    if is_clean and not state.has_snapshots:
        # As after an upgrade from a Kafka without snapshots: nothing is replayed.
        for offset in to_snapshot:
            state.map_end_offset = offset
            state.take_snapshot()
        return
    was_empty = state.is_empty and state.map_end_offset >= end_offset
    state.truncate_and_reload(start_offset, end_offset)
    if end_offset > state.map_end_offset and not was_empty:
        _replay(state, segments, start_offset, end_offset, to_snapshot)
    state.map_end_offset = end_offset
    state.take_snapshot()


def _replay(
    state: ProducerStateManager,
    segments: LogSegments,
    start_offset: int,
    end_offset: int,
    to_snapshot: list[int],
) -> None:
    last = segments.floor(end_offset)
    for segment in segments.between(state.map_end_offset, end_offset):
        begin = max(segment.base_offset, state.map_end_offset, start_offset)
        state.map_end_offset = begin
        if segment.base_offset in to_snapshot:
            state.take_snapshot()
        end = segment.size_bytes
        if segment is last:
            found = segment.translate(end_offset)
            end = segment.size_bytes if found is None else found.position
        first = segment.translate(begin)
        if first is None:
            continue
        if end < first.position:
            raise Refused(
                f"the batch at offset {begin} comes after the one at {end_offset}",
                segment.log_name,
                "IllegalArgumentException",
                first.position,
            )
        state.load_segment_part(segment.windows(first.position, end), segment.log_name)
