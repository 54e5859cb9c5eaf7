"""Load a partition as a starting broker does, and close it as a clean shutdown does.

Follows ``LogLoader.load``, the constructor of ``UnifiedLog``, and ``LogManager.shutdown`` as far as
it concerns one log. All changes are made to a
:class:`~kdump.target.virtual_directory.VirtualDirectory`, so nothing is written. The outcome can be
compared with Kafka's own, shown to people, and applied elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from msgspec.structs import replace

from kdump.broker.loader.claims import Claims
from kdump.broker.loader.hidden_batches import (
    batches_before_start,
    batches_past_end,
    contradict_producers,
    wrong_txns,
)
from kdump.broker.loader.indexes import InvalidOffset
from kdump.broker.loader.interrupted_swaps import drop_orphan, required_offset
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.load_report import Recorder
from kdump.broker.loader.loaded_segment import (
    LoadedSegment,
    OffsetOverflow,
    open_segment,
)
from kdump.broker.loader.log_segments import LogSegments
from kdump.broker.loader.producer_replay import rebuild_producers
from kdump.broker.loader.recovered_partition import Recovered
from kdump.broker.loader.segment_recovery import recover_segment
from kdump.broker.loader.segment_split import replace_segments, split_segment
from kdump.broker.loader.small_partition import load_small
from kdump.broker.loader.swap_losses import SwapRules, resolve_swaps
from kdump.formats import names
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.formats.partition_metadata import decode_partition_metadata
from kdump.formats.record_batch import wrap_int64
from kdump.log.log_search import within_log
from kdump.log.partition import Partition
from kdump.state.epochs.epoch_history import begin_before
from kdump.state.epochs.leader_epochs import LeaderEpochs
from kdump.state.transactions.producer_state_manager import ProducerStateManager
from kdump.storage.entries import Entry
from kdump.storage.location import Location
from kdump.target.refusal import Refusal, Refused
from kdump.target.virtual_directory import (
    INDEX_SUFFIXES,
    Content,
    VirtualDirectory,
    file_name,
    part_of,
)

Value = TypeVar("Value")

_INT64_MAX: Final = 2**63 - 1


def recover_partition(partition: Partition, context: LoadContext) -> Recovered | Refusal:
    """Predict what Kafka makes of ``partition`` by loading it and shutting down cleanly.

    Reads its directory, and all of every unflushed segment after an unclean shutdown. Writes
    nothing, and holds no more than a window of a segment in memory.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    return load_directory(VirtualDirectory(partition.path, context.store), context)


def recover_usual(
    path: Location, context: LoadContext, entries: Iterable[Entry] | None = None
) -> Recovered | None:
    """Like :func:`recover_partition`, if the partition is small and everything in it is as usual.

    Args:
        path: of its directory, which need not be listed before.
        context: as there.
        entries: of its directory, if it was just listed.

    Returns:
        None for any other partition.

    Raises:
        OSError: the directory cannot be listed.
    """
    return load_small(VirtualDirectory(path, entries=entries), context)


def load_directory(directory: VirtualDirectory, context: LoadContext) -> Recovered | Refusal:
    """Like :func:`recover_partition`, for a virtual directory, which is changed.

    Raises:
        OSError: as :func:`recover_partition`.
    """
    usual = load_small(directory, context)
    if usual is not None:
        return usual
    try:
        return _Loader(directory, context).load()
    except Refused as refused:
        return refused.refusal
    except OffsetOverflow as problem:
        file = problem.segment.log_name
        return Refusal(str(problem), file, "LogSegmentOffsetOverflowException")
    except InvalidOffset as problem:
        return Refusal(str(problem), directory.path.name, "InvalidOffsetException")


class _Loader:
    """Loads one partition."""

    def __init__(self, directory: VirtualDirectory, context: LoadContext) -> None:
        self.directory = directory
        self.context = context
        self.segments = LogSegments()
        self.recorder = Recorder(directory)

    def load(self) -> Recovered:
        context = self.context
        self.epochs = LeaderEpochs(self.directory)
        self.producers = ProducerStateManager(self.directory, context.expire_before_ms)
        claims = self._claims()
        resolve_swaps(self.directory, context.settings, self.recorder, SwapRules.of(context))
        self._retry_on_overflow(self._load_segment_files)
        recovery_point, end_offset = self._retry_on_overflow(self._recover_log)
        self.segments.last.resize_indexes()
        self.epochs.truncate_from_end(end_offset)
        start_offset = max(context.log_start_offset, self.segments.first.base_offset)
        self.epochs.truncate_from_start(context.log_start_offset)
        self.producers.remove_stray_snapshots(self.segments.bases)
        self.has_snapshots = self.producers.has_snapshots
        rebuild_producers(
            self.producers, self.segments, start_offset, end_offset, is_clean=context.is_clean
        )
        recovery_point = max(recovery_point, start_offset)
        with self.segments.only_looked_at():
            self._compare_with_log(claims, start_offset, end_offset)
        self._find_unstable_batch(start_offset, end_offset)  # the search itself can fail
        self._read_partition_metadata()
        mark = within_log(context.high_watermark, start_offset, end_offset)
        self.producers.advance_high_watermark(mark)
        unstable_offset = self._find_unstable_batch(start_offset, end_offset)
        stopped = self._stop(start_offset, end_offset, recovery_point)
        return replace(stopped, unstable_batch_offset=unstable_offset)

    def _stop(self, start_offset: int, end_offset: int, recovery_point: int) -> Recovered:
        """Flush, take the final snapshot and close (``LogManager.shutdown``)."""
        flushed_to = wrap_int64(end_offset + 1)  # overflows after the last offset, as in Kafka
        if flushed_to > recovery_point:
            for segment in self.segments.between(recovery_point, flushed_to):
                segment.load_indexes()
            recovery_point = max(recovery_point, end_offset)
        self.producers.take_snapshot()
        for segment in self.segments.all():
            segment.close(is_active=segment is self.segments.last)
            segment.release()
        is_ahead = start_offset > self.segments.first.base_offset
        files = self.directory.target_files()
        return Recovered(
            files=files,
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            recovery_point=recovery_point,
            checkpointed_log_start_offset=start_offset if is_ahead else None,
            active_base_offset=self.segments.last.base_offset,
            leader_epochs=self.epochs.entries,
            report=self.recorder.finish(files),
            producers=self.producers.entries(),
            first_unstable_offset=self.producers.first_unstable_offset,
        )

    # What the log has, and the broker has not

    def _claims(self) -> Claims:
        return Claims(
            (self.context.recovery_point, self.context.high_watermark),
            self.epochs.entries,
            tuple(self.directory.list_snapshots().offsets),
        )

    def _compare_with_log(self, claims: Claims, start_offset: int, end_offset: int) -> None:
        """Record what the broker does not see of what is left of the log."""
        directory, segments = self.directory, self.segments
        is_in_doubt = not self.recorder.removes_batches and (
            claims.go_past(end_offset) or claims.lack_snapshot(segments.bases)
        )
        for hidden in batches_past_end(
            directory,
            segments,
            end_offset,
            self.recorder.recovered_bases,
            is_in_doubt=is_in_doubt or segments.last.ends_early,
        ):
            self.recorder.hidden(hidden)
        if segments.last.ends_early or begin_before(claims.epochs, start_offset):
            for hidden in batches_before_start(directory, segments, start_offset):
                self.recorder.hidden(hidden)
        self._compare_txns(start_offset, end_offset, is_in_doubt=is_in_doubt)

    def _compare_txns(self, start_offset: int, end_offset: int, *, is_in_doubt: bool) -> None:
        """Record the transactions that the broker has and the log has not, and the reverse."""
        if not self.context.is_clean and self.segments.first.base_offset in self.recorder.replayed:
            return  # they come from the log
        # Before 0.11 there were neither producers nor leader epochs.
        is_forgotten = not self.has_snapshots and bool(self.epochs.entries)
        producers = self.producers
        is_foreign = contradict_producers(self.segments, producers.entries(), start_offset)
        begin = start_offset
        if not (is_foreign or is_in_doubt or is_forgotten or self.recorder.rebuilds_indexes):
            # Only what follows an open transaction can contradict it.
            first_offsets = [each for each in producers.open_txns.values() if each >= begin]
            begin = min(first_offsets, default=end_offset)
        if begin < end_offset:
            bounds = (begin, end_offset)
            for wrong in wrong_txns(
                self.directory,
                self.segments,
                producers.open_txns,
                bounds,
                is_foreign=is_foreign,
                is_compacted=self.context.is_compacted is True,
            ):
                self.recorder.wrong_txn(wrong)

    # Loading and recovering segments

    def _retry_on_overflow(self, step: Callable[[], Value]) -> Value:
        while True:
            try:
                return step()
            except OffsetOverflow as overflow:
                self._split(overflow.segment)

    def _split(self, segment: LoadedSegment) -> None:
        parts = split_segment(segment)
        old = [segment] if segment.base_offset in self.segments else []
        for part in parts:
            self.segments.add(part)
        for replaced in old:
            if replaced.base_offset != min(part.base_offset for part in parts):
                self.segments.remove(replaced.base_offset)
        self.recorder.split(segment.log_name, [part.base_offset for part in parts])
        replace_segments(parts, old)
        for replaced in old:
            if all(replaced.base_offset != part.base_offset for part in parts):
                self.producers.delete_segment_snapshot(replaced.base_offset)

    def _load_segment_files(self) -> None:
        for segment in self.segments.all():
            segment.close(is_active=False)
        self.segments.clear()
        for name in self.directory.names():
            if name.endswith(INDEX_SUFFIXES):
                drop_orphan(self.directory, name, self.recorder)
            elif name.endswith(FileKind.LOG.value):
                base_offset = required_offset(name)
                time_index = file_name(base_offset, FileKind.TIME_INDEX)
                has_time_index = time_index in self.directory
                segment = self._open(base_offset)
                why = segment.needs_recovery(has_time_index=has_time_index)
                if why is not None:
                    self._recover_segment(segment, why, is_rebuilt=True)
                self.segments.add(segment)

    def _open(self, base_offset: int) -> LoadedSegment:
        return open_segment(self.directory, base_offset, self.context.settings)

    def _recover_segment(
        self, segment: LoadedSegment, why: str, *, is_rebuilt: bool = False
    ) -> int:
        producers = ProducerStateManager(self.directory, self.context.expire_before_ms)
        start_offset = self.context.log_start_offset
        rebuild_producers(producers, self.segments, start_offset, segment.base_offset)
        before = self.directory.content(segment.log_name)
        self.recorder.recovering(segment.base_offset, why, is_rebuilt=is_rebuilt)
        truncated_bytes = recover_segment(segment, producers, self.epochs)
        if truncated_bytes:
            self._record_cut(segment, before, str(segment.problem))
        producers.take_snapshot()
        segment.release()
        return truncated_bytes

    def _record_cut(self, segment: LoadedSegment, before: Content, why: str) -> None:
        self.recorder.cut(
            segment.log_name,
            before,
            segment.size_bytes,
            why,
            is_padding=self._is_padding(segment, before),
        )

    def _is_padding(self, segment: LoadedSegment, before: Content) -> bool:
        """Whether the truncated bytes are preallocated space that was never written.

        They are if they are zeroes, and nothing indicates that the log was longer: no later
        segment, and no checkpoint of how far it was flushed or replicated.
        """
        lost = part_of(before, segment.size_bytes, before.size_bytes)
        if self.directory.end_of_data(lost):
            return False
        following = [base for base in self._live_bases() if base > segment.base_offset]
        checkpointed = max(self.context.recovery_point, self.context.high_watermark)
        try:
            return segment.next_offset() >= min(following, default=checkpointed)
        except Refused:
            return False

    def _live_bases(self) -> Iterator[int]:
        """Base offsets of the existing logs, whether or not they are loaded yet."""
        for name in self.directory.names():
            parsed = names.parse_offset_file_name(name)
            if parsed is not None and str(parsed) == name and parsed.kind is FileKind.LOG:
                yield parsed.offset

    def _recover_log(self) -> tuple[int, int]:
        """Recover unflushed segments; returns recovery point and log end offset."""
        context = self.context
        if not context.is_clean:
            self._recover_unflushed()
        end_offset = self._delete_all_below_start()
        is_whole = end_offset is not None
        if not len(self.segments):
            self.segments.add(self._open(context.log_start_offset))
        if end_offset is None:
            end_offset = self.segments.last.next_offset()
        if context.is_clean and is_whole:
            return end_offset, end_offset
        return min(context.recovery_point, end_offset), end_offset

    def _recover_unflushed(self) -> None:
        unflushed = self.segments.between(self.context.recovery_point, _INT64_MAX)
        for at, segment in enumerate(unflushed):
            before = self.directory.content(segment.log_name)
            try:
                truncated_bytes = self._recover_segment(segment, "it was not flushed")
            except (InvalidOffset, Refused) as problem:
                if isinstance(problem, Refused) and not problem.refusal.is_io_error:
                    raise
                truncated_bytes = segment.truncate_to(segment.base_offset)
                if truncated_bytes:
                    self._record_cut(segment, before, str(problem))
            if truncated_bytes:
                segment.next_offset()  # Kafka logs it; reading it may abort loading
                self._delete_segments(unflushed[at + 1 :], "it follows the truncated bytes")
                return

    def _delete_all_below_start(self) -> int | None:
        """The log end offset; deletes all segments if the log start offset is after it."""
        if not len(self.segments):
            return None
        end_offset = self.segments.last.next_offset()
        start_offset = self.context.log_start_offset
        if end_offset >= start_offset:
            return end_offset
        self._delete_segments(
            self.segments.all(),
            f"the log ends at {end_offset}, before the log start offset {start_offset}",
            with_snapshots=False,
        )
        self.epochs.clear()
        self.producers.truncate_fully(start_offset)
        return None

    def _delete_segments(
        self, segments: list[LoadedSegment], why: str, *, with_snapshots: bool = True
    ) -> None:
        for segment in segments:
            self.recorder.dropped(segment.log_name, why)
            self.segments.remove(segment.base_offset)
            segment.delete()
            if with_snapshots:
                self.producers.delete_segment_snapshot(segment.base_offset)

    def _find_unstable_batch(self, start_offset: int, end_offset: int) -> int | None:
        """Base offset of the batch with the first unstable offset, or of the first one after it.

        Follows ``UnifiedLog.maybeIncrementFirstUnstableOffset``.
        """
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return None
        offset = max(unstable, start_offset)
        segment = self.segments.floor(offset)
        if segment is None or offset >= end_offset:
            return offset
        for candidate in self.segments.between(offset, _INT64_MAX):
            found = candidate.translate(offset)
            if found is not None:
                return found.base_offset
        return end_offset

    def _read_partition_metadata(self) -> None:
        self.directory.require_no_directory(names.PARTITION_METADATA, "KafkaStorageException")
        if names.PARTITION_METADATA not in self.directory:
            return
        try:
            decode_partition_metadata(self.directory.read(names.PARTITION_METADATA))
        except FormatError as problem:
            raise Refused(
                str(problem), names.PARTITION_METADATA, "KafkaStorageException"
            ) from problem
