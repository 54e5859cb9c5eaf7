"""Rebuild producer snapshots from the log."""

from __future__ import annotations

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.log_segments import unindexed_segments
from kdump.broker.loader.producer_replay import rebuild_producers
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.log.partition import Partition
from kdump.repair.rebuild.repaired import Repaired, changes
from kdump.state.transactions.producer_state_manager import ProducerStateManager, snapshot_name
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory


def rebuild_snapshots(partition: Partition, context: LoadContext) -> Repaired:
    """Rebuild the producer snapshots by replaying all batches of the partition.

    There is one at the start of each segment but the first, as a broker writes when it begins a
    segment, and one at the end of the log, as when it stops. The old snapshots are not used:
    producers without a batch in the log are forgotten, as after a recovery from the
    log's beginning. Other snapshots go.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    if partition.is_0_7 or not partition.segments:
        return Repaired({})
    directory = VirtualDirectory(partition.path)
    before = [name for name in directory.snapshot_names() if _is_snapshot(name)]
    for name in before:
        directory.remove(name)
    try:
        segments = unindexed_segments(partition, directory, context.settings)
        producers = ProducerStateManager(directory, context.expire_before_ms)
        for offset in (*segments.bases[1:], segments.last.next_offset()):
            rebuild_producers(producers, segments, context.log_start_offset, offset)
    except Refused as refused:
        return Repaired({}, (refused.refusal,))
    wanted = {snapshot_name(offset) for offset in (*segments.bases[1:], producers.map_end_offset)}
    for name in directory.snapshot_names():
        if _is_snapshot(name) and name not in wanted:
            directory.remove(name)
    return Repaired(changes(directory, {*before, *wanted}))


def _is_snapshot(name: str) -> bool:
    parsed = names.parse_offset_file_name(name)
    return parsed is not None and parsed.kind is FileKind.PRODUCER_SNAPSHOT
