"""Rebuild the indexes of segments as Kafka writes them when it recovers a segment."""

from __future__ import annotations

from collections.abc import Collection

from kdump.broker.loader.indexes import InvalidOffset
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.loaded_segment import LoadedSegment, OffsetOverflow
from kdump.broker.loader.log_segments import LogSegments, unindexed_segments
from kdump.broker.loader.producer_replay import rebuild_producers
from kdump.broker.loader.segment_recovery import recover_segment
from kdump.formats import names, producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.log.partition import Partition
from kdump.repair.rebuild.repaired import Repaired, changes
from kdump.state.epochs.leader_epochs import LeaderEpochs
from kdump.state.transactions.producer_state_manager import ProducerStateManager, snapshot_name
from kdump.target.refusal import Refusal, Refused
from kdump.target.virtual_directory import INDEX_SUFFIXES, VirtualDirectory, file_name


def rebuild_indexes(
    partition: Partition, context: LoadContext, base_offsets: Collection[int] | None = None
) -> Repaired:
    """Rebuild the indexes of segments; logs do not change.

    The transaction index depends on the producers at the start of a segment. They come from the
    newest snapshot at or below it, or from the segment before if that is rebuilt too.

    Args:
        context: as for the loader; its settings decide.
        base_offsets: of the segments to look at; None for all.

    Returns:
        The files that differ. A segment whose log is damaged, or that Kafka could not recover as
        it is, is refused: where its batches would end is not for an index to decide.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    if partition.is_0_7:
        return Repaired({})
    directory = VirtualDirectory(partition.path, context.store)
    directory.remove(names.LEADER_EPOCH_CHECKPOINT)
    try:
        segments = unindexed_segments(partition, directory, context.settings)
    except Refused as refused:
        return Repaired({}, (refused.refusal,))
    rebuilt: list[str] = []
    refusals = []
    for base_offset in segments.bases:
        if base_offsets is not None and base_offset not in base_offsets:
            continue
        try:
            _rebuild(directory, segments, base_offset, context)
        except Refused as refused:
            refusals.append(refused.refusal)
        except (InvalidOffset, OffsetOverflow) as problem:
            log = file_name(base_offset, FileKind.LOG)
            refusals.append(Refusal(str(problem), log, type(problem).__name__))
        else:
            rebuilt.extend(file_name(base_offset, FileKind(kind)) for kind in INDEX_SUFFIXES)
    # What stops the replay of producers in one segment stops it for each segment behind.
    return Repaired(changes(directory, rebuilt), tuple(dict.fromkeys(refusals)))


def _rebuild(
    directory: VirtualDirectory, segments: LogSegments, base_offset: int, context: LoadContext
) -> None:
    """Write the indexes of a segment, and the snapshot at its end, to ``directory``.

    Raises:
        Refused: its log is damaged, or Kafka cannot recover it.
        InvalidOffset: an offset or a time does not follow those before it.
        OffsetOverflow: an offset does not fit the indexes.
    """
    own = _files_for(directory, base_offset)
    producers = ProducerStateManager(own, context.expire_before_ms)
    rebuild_producers(producers, segments, context.log_start_offset, base_offset)
    segment = LoadedSegment(own, base_offset, context.settings)
    if recover_segment(segment, producers, LeaderEpochs(own)):
        position = None if segment.problem is None else segment.problem.position
        raise Refused("the log is damaged", segment.log_name, "", position)
    producers.take_snapshot()
    segment.release()
    kinds = [FileKind(suffix) for suffix in INDEX_SUFFIXES]
    for name in (*map(segment.name, kinds), snapshot_name(producers.map_end_offset)):
        if name in own:
            directory.put(name, own.content(name))


def _files_for(directory: VirtualDirectory, base_offset: int) -> VirtualDirectory:
    """The files of the segment at ``base_offset``, and the snapshots before it.

    A partition may have tens of thousands of files; recovering one segment needs few.

    Raises:
        Refused: a snapshot has a name without an offset.
    """
    kinds = [FileKind.LOG, *(FileKind(suffix) for suffix in INDEX_SUFFIXES)]
    wanted = [file_name(base_offset, kind) for kind in kinds]
    for name in directory.list_snapshots().at_or_below(base_offset):
        wanted.append(name)
        if _is_readable(directory, name):
            break
    return directory.only(wanted)


def _is_readable(directory: VirtualDirectory, snapshot: str) -> bool:
    try:
        producer_snapshot.read(directory.read(snapshot))
    except FormatError:
        return False
    return True
