"""What the log cleaner of a broker sees: which logs it takes next, and what keeps it from others.

A task loads one partition as a starting broker does and reads the headers that decide. No records
are compacted, and nothing is written.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.cleaner.cleanable_log import CompactedLog, loaded_log
from kdump.broker.cleaner.cleanable_range import Hold
from kdump.broker.cleaner.log_to_clean import LogToClean, log_to_clean
from kdump.broker.loader.load_context import IndexSettings, LoadContext
from kdump.broker.loader.loaded_segment import open_segment
from kdump.broker.loader.loader import load_directory
from kdump.broker.loader.recovered_partition import Recovered
from kdump.broker.retention.retention import SegmentFate, fates
from kdump.broker.retention.retention_outcome import retainable_log
from kdump.engine.job import Split
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.headers import batch_span_at
from kdump.scan.batches import Stop, StopReason, read_windows
from kdump.state.metadata.settings import TopicSettings
from kdump.target.refusal import Refusal, Refused
from kdump.target.virtual_directory import SNAPSHOT_SUFFIX, VirtualDirectory

READ_BYTES: Final = 4096
"""About how much is read of a segment: an index entry and a header."""


class PinningTransaction(Struct, frozen=True):
    """The open transaction at the first uncleanable offset.

    Attributes:
        start_time_ms: timestamp of its first record; None if the batch is gone.
    """

    first_offset: int
    producer_id: int
    producer_epoch: int
    start_time_ms: int | None


class TornTail(Struct, frozen=True):
    """Bytes at the end of a log that are no whole batch, after an unclean shutdown.

    Attributes:
        file: name of the log.
        position: of the first byte.
    """

    file: str
    position: int
    size_bytes: int


class CleanerView(Struct, frozen=True):
    """A log as the cleaner sees it.

    Attributes:
        log: what it chooses by.
        log_start_offset: first offset of the log.
        log_end_offset: end of the log, exclusive.
        high_watermark: between those two.
        last_stable_offset: likewise.
        transaction: what keeps the last stable offset back; None if nothing does, or if it is a
            transaction whose end is past the high watermark.
        deletable_segments: how many old segments the cleaner deletes after each round.
        deletable_bytes: their size.
        torn_tail: bytes at the end that are no batch; None after a clean shutdown.
    """

    log: LogToClean
    segments: int
    log_bytes: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    transaction: PinningTransaction | None
    deletable_segments: int
    deletable_bytes: int
    torn_tail: TornTail | None


class Uncleanable(Struct, frozen=True):
    """The cleaner fails on a log when it looks at it, and marks its partition as uncleanable."""

    refusal: Refusal


CleanerOutcome = CleanerView | Uncleanable | Refusal | Unreadable
"""A refusal says why a broker does not load the log."""


class CleanerSplit(Split, frozen=True, kw_only=True):
    """A compacted partition.

    Attributes:
        cleaner_offset: from ``cleaner-offset-checkpoint``; None if it has no line.
    """

    context: LoadContext
    topic: TopicSettings
    cleaner_offset: int | None


class CleanerViewJob(Struct, frozen=True):
    """Finds what the cleaner sees of a partition."""

    def run(self, split: CleanerSplit, /) -> CleanerOutcome:
        """Look at one partition; damage and files that cannot be read are outcomes, too."""
        try:
            return _view(split)
        except OSError as failure:
            return Unreadable.of(failure, split.path)


def _view(split: CleanerSplit) -> CleanerOutcome:
    directory, loaded = _load(split)
    if isinstance(loaded, Refusal):
        return loaded
    context, topic = split.context, split.topic
    torn_tail = None if context.is_clean else _cut_torn_tail(directory, loaded)
    log = loaded_log(directory, loaded, context.high_watermark, topic, context.now_ms)
    try:
        to_clean = log_to_clean(log, split.cleaner_offset)
    except Refused as refused:
        return Uncleanable(refused.refusal)
    deleted: list[SegmentFate] = []
    if topic.is_deleted or log.log_start_offset > log.segments[0].base_offset:
        retainable = retainable_log(directory, loaded, context, context.high_watermark)
        deleted = [each for each in fates(retainable, topic, context.now_ms) if each.is_deleted]
    is_pinned = to_clean.cleanable.held_by is Hold.OPEN_TRANSACTION
    return CleanerView(
        log=to_clean,
        segments=len(log.segments),
        log_bytes=sum(segment.size_bytes for segment in log.segments),
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        transaction=_pinning(log, loaded.first_unstable_offset) if is_pinned else None,
        deletable_segments=len(deleted),
        deletable_bytes=sum(each.segment.size_bytes for each in deleted),
        torn_tail=torn_tail,
    )


def _load(split: CleanerSplit) -> tuple[VirtualDirectory, Recovered | Refusal]:
    """Load a partition; after an unclean shutdown, as its files are, without checking records.

    What a starting broker would recover is read completely only if the log does not load without
    that, or if no producer snapshot says which transactions were open.
    """
    directory = VirtualDirectory(split.path)
    has_snapshots = any(name.endswith(SNAPSHOT_SUFFIX) for name in directory.names())
    if split.context.is_clean or has_snapshots:
        loaded = load_directory(directory, replace(split.context, is_clean=True))
        if split.context.is_clean or isinstance(loaded, Recovered):
            return directory, loaded
        directory = VirtualDirectory(split.path)
    return directory, load_directory(directory, split.context)


def _pinning(log: CompactedLog, first_offset: int | None) -> PinningTransaction | None:
    for entry in log.producers:
        if entry.current_txn_first_offset == first_offset and first_offset is not None:
            return PinningTransaction(
                first_offset, entry.producer_id, entry.epoch, _start_time_ms(log, first_offset)
            )
    return None


def _start_time_ms(log: CompactedLog, offset: int) -> int | None:
    """Time of the first record of the batch with ``offset``; None if no header has it."""
    if offset < log.log_start_offset:
        return None
    (base_offset,) = (each.base_offset for each in log.between(offset, offset + 1)[:1])
    segment = open_segment(log.directory, base_offset, IndexSettings())
    try:
        found = segment.translate(offset)
    except Refused:
        return None
    if found is None:
        return None
    with log.directory.open(segment.log_name) as source:
        span = batch_span_at(source, found.position)
    return None if span is None else span.first_timestamp_ms


def _cut_torn_tail(directory: VirtualDirectory, loaded: Recovered) -> TornTail | None:
    """Cut bytes after the last whole batch off, as recovery does; not preallocated space."""
    segment = open_segment(directory, loaded.active_base_offset, IndexSettings())
    try:
        found = segment.translate(segment.offset_index.last_offset)
    except Refused:
        return None
    stop: Stop | None = None
    with directory.open(segment.log_name) as source:
        for window in read_windows(source, found.position if found else 0, checksums=False):
            stop = window.stop
    if stop is None or stop.reason in (StopReason.END, StopReason.ZERO_FILL):
        return None
    torn_tail = TornTail(segment.log_name, stop.position, segment.size_bytes - stop.position)
    directory.truncate(segment.log_name, stop.position)
    return torn_tail
