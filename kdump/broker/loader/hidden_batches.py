"""Find what a log has on disk, and a broker does not have after loading it.

Loading trusts small files: the offset index of the active segment says where the log ends, the log
start offset where it begins, the newest producer snapshot which transactions are open. If one of
them is wrong nothing is deleted, but the broker does not see valid batches. It gives their offsets
to new records, or never shows them to consumers.

To compare that with all of a log would be to read it. Here the small files are compared with each
other first, and only where two contradict each other are the batches read. After a clean shutdown
all of them agree about the end of the log, and leader epochs begin where the log begins.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from kdump.broker.loader.load_report import HiddenBatches, Loss, WrongTxn, measure_loss
from kdump.broker.loader.loaded_segment import LoadedSegment
from kdump.broker.loader.log_segments import LogSegments
from kdump.broker.loader.producer_replay import rebuild_producers
from kdump.formats import record_batch
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.scan.selection import Selection
from kdump.scan.source import read_at
from kdump.state.transactions.producer_state_manager import ProducerStateManager
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory


def batches_past_end(
    directory: VirtualDirectory,
    segments: LogSegments,
    end_offset: int,
    recovered: Container[int],
    *,
    is_in_doubt: bool,
) -> Iterator[HiddenBatches]:
    """Yield the batches that a broker does not reach: past the end, or where others begin.

    Args:
        recovered: base offsets of the segments that were recovered, whose indexes are right.
        is_in_doubt: whether to read the other segments, too.

    Raises:
        OSError: a log cannot be read.
    """
    every = segments.all()
    for at, segment in enumerate(every):
        following = every[at + 1 :]
        bound = following[0].base_offset if following else end_offset
        is_recovered = segment.base_offset in recovered
        is_reached = segment.next_offset() <= bound if is_recovered else not is_in_doubt
        if following:
            segment.tail = None  # only the last one's is asked for
        if is_reached:
            continue
        content = directory.content(segment.log_name)
        loss = measure_loss(directory, content, Selection(from_offset=bound))
        if loss.batches and not any(_has(directory, other, loss) for other in following):
            why = f"the log would end at {bound}"
            if following:
                why = f"segment {following[0].log_name} begins at {bound}"
            yield HiddenBatches(segment.log_name, why, loss)


def _has(directory: VirtualDirectory, segment: LoadedSegment, loss: Loss) -> bool:
    """Whether a segment has the offsets of some batches, too."""
    own = measure_loss(directory, directory.content(segment.log_name))
    return (
        loss.offsets is not None
        and own.offsets is not None
        and (own.offsets[0] <= loss.offsets[0] and loss.offsets[1] <= own.offsets[1])
    )


def batches_before_start(
    directory: VirtualDirectory, segments: LogSegments, start_offset: int
) -> Iterator[HiddenBatches]:
    """Yield the batches that begin before ``start_offset``.

    Raises:
        OSError: a log cannot be read.
    """
    for segment in segments.all():
        if segment.base_offset > start_offset:
            return
        content = directory.content(segment.log_name)
        loss = measure_loss(directory, content, Selection(to_offset=start_offset))
        if loss.batches:
            why = f"the log would begin at {start_offset}"
            yield HiddenBatches(segment.log_name, why, loss, is_before_start=True)


def contradict_producers(
    segments: LogSegments, producers: Iterable[ProducerEntry], start_offset: int
) -> bool:
    """Whether the last batches, or those where transactions begin, contradict what a broker has.

    A producer without an open transaction may be missing because it expired, but not if one that
    wrote earlier is there.

    Args:
        producers: that the broker has after loading it.

    Raises:
        OSError: a log cannot be read.
    """
    known = {entry.producer_id: entry for entry in producers}
    tail = segments.last.tail
    if tail is not None and tail.count:
        oldest = min((entry.timestamp for entry in known.values()), default=None)
        last_rows = {pid: row for row, pid in enumerate(tail.producer_id.tolist()) if pid >= 0}
        for producer_id, row in last_rows.items():
            entry = known.get(producer_id)
            flags = int(tail.attributes[row]) & record_batch.OF_TRANSACTIONS
            is_open = flags == record_batch.TRANSACTIONAL_FLAG
            if entry is None:
                timestamp = int(tail.max_timestamp[row])
                if is_open or (oldest is not None and oldest <= timestamp):
                    return True
            elif is_open != (entry.current_txn_first_offset >= 0) or (
                not flags and entry.last_offset != tail.last_offset[row]
            ):
                return True
    return any(
        not _begins_txn(segments, entry.producer_id, entry.current_txn_first_offset)
        for entry in known.values()
        if entry.current_txn_first_offset >= start_offset
    )


def _begins_txn(segments: LogSegments, producer_id: int, offset: int) -> bool:
    """Whether a batch of a transaction of that producer begins at ``offset``."""
    segment = segments.floor(offset)
    try:
        found = None if segment is None else segment.translate(offset)
    except Refused:
        return False
    if segment is None or found is None or found.base_offset != offset:
        return False
    return _is_txn_batch(segment, found.position, producer_id)


def _is_txn_batch(segment: LoadedSegment, position: int, producer_id: int) -> bool:
    with segment.directory.open(segment.log_name) as source:
        data = read_at(source, position, record_batch.HEADER_BYTES)
    if len(data) < record_batch.HEADER_BYTES or data[record_batch.MAGIC_START] < 2:
        return False
    header = record_batch.decode_header(data)
    flags = header.attributes & record_batch.OF_TRANSACTIONS
    return flags == record_batch.TRANSACTIONAL_FLAG and header.producer_id == producer_id


def wrong_txns(
    directory: VirtualDirectory,
    segments: LogSegments,
    open_txns: Mapping[int, int],
    bounds: tuple[int, int],
    *,
    is_foreign: bool,
    is_compacted: bool,
) -> Iterator[WrongTxn]:
    """Compare the open transactions of a broker with those of the whole log.

    Args:
        directory: the directory, which is not changed.
        open_txns: first offset of each transaction that the broker takes for open, by producer.
        bounds: where to begin to compare, and the end of the log.
        is_foreign: whether what the broker has of producers contradicts the log otherwise. Else an
            older transaction may be open although no batch of it is left.
        is_compacted: whether markers may be missing because their records are.

    Raises:
        OSError: a log cannot be read.
    """
    start_offset, end_offset = bounds
    apart = directory.copy()
    for name in apart.snapshot_names():
        apart.remove(name)
    state = ProducerStateManager(apart, None)
    try:
        rebuild_producers(state, segments, start_offset, end_offset)
    except Refused:
        return
    own = state.open_txns
    for producer_id, offset in sorted(open_txns.items()):
        if own.get(producer_id) != offset:
            if offset >= start_offset or (is_foreign and producer_id not in own):
                yield WrongTxn(producer_id, offset, is_open=False)
        elif offset == min(own.values()) and not _begins_txn(segments, producer_id, offset):
            # An offset index leads past it, and so the last stable offset is too high.
            yield WrongTxn(producer_id, offset, is_open=True)
    for producer_id, offset in sorted(own.items()):
        if not is_compacted and producer_id not in open_txns:
            yield WrongTxn(producer_id, offset, is_open=True)
