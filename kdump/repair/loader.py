"""What a starting and then cleanly stopping broker leaves of a partition.

Follows ``LogLoader.load``, what ``UnifiedLog`` does when it is made, and ``LogManager.shutdown``
as far as it is about one log. The state of the directory is changed in a
:class:`~kdump.repair.workspace.Workspace`, so nothing is written: what comes out is compared with
Kafka's own outcome, shown to people, and applied elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.errors import FormatError
from kdump.formats.java_numbers import parse_long
from kdump.formats.names import FileKind, FileStage
from kdump.formats.partition_metadata import decode_partition_metadata
from kdump.log.partition import Partition
from kdump.repair.account import Account, Outcome, Recorder
from kdump.repair.epochs import LeaderEpochs
from kdump.repair.indexes import InvalidOffset
from kdump.repair.producer_state import ProducerState
from kdump.repair.refusal import Refusal, Refused
from kdump.repair.segment import IndexSettings, LoadedSegment, OffsetOverflow
from kdump.repair.split import put_in_place, split_segment
from kdump.repair.wanted import WantedFile
from kdump.repair.workspace import Stored, Workspace, Written, file_name

Value = TypeVar("Value")

_INT64_MAX: Final = 2**63 - 1
_CHECKPOINT_DELETED: Final = ".checkpoint" + FileStage.DELETED.value
_INDEX_SUFFIXES: Final = (
    FileKind.OFFSET_INDEX.value,
    FileKind.TIME_INDEX.value,
    FileKind.TRANSACTION_INDEX.value,
)


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What loading a partition depends on besides its directory.

    Attributes:
        is_clean: whether the marker of a clean stop is in the log directory.
        recovery_point: what ``recovery-point-offset-checkpoint`` says; 0 where it has no line.
        log_start_offset: what ``log-start-offset-checkpoint`` says; 0 likewise.
        high_watermark: what ``replication-offset-checkpoint`` says; 0 likewise.
        settings: of the topic, for its indexes.
        now_ms: the clock; with ``producer_id_expiration_ms`` it says which producers are
            forgotten when a snapshot is read.
        producer_id_expiration_ms: ``producer.id.expiration.ms``; None forgets none.
    """

    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    settings: IndexSettings = field(default_factory=IndexSettings)
    now_ms: int = 0
    producer_id_expiration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """A partition as a broker leaves it.

    Attributes:
        files: what becomes of each file, by name.
        log_start_offset: where the log begins.
        log_end_offset: where it ends, exclusive.
        recovery_point: what the recovery point checkpoint then says.
        checkpointed_log_start_offset: what the log start checkpoint then says; None for no line.
        active_base_offset: of the last segment.
        leader_epochs: as a broker then has them in memory.
        account: what was done, for people.
    """

    files: dict[str, WantedFile]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    checkpointed_log_start_offset: int | None
    active_base_offset: int
    leader_epochs: tuple[EpochEntry, ...]
    account: Account


def recover_partition(partition: Partition, context: LoadContext) -> Recovered | Refusal:
    """Say what Kafka leaves of ``partition`` after loading it and stopping cleanly.

    Reads its directory, and every unflushed segment from end to end where the stop was not
    clean; writes nothing, and holds no more than a window of a segment at a time.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    loader = _Loader(Workspace(partition.path), context)
    try:
        return loader.load()
    except Refused as refused:
        return refused.refusal
    except (OffsetOverflow, InvalidOffset) as problem:
        return Refusal(str(problem), partition.path.name, type(problem).__name__)


class _Segments:
    """The segments of a log by base offset (``LogSegments``)."""

    def __init__(self) -> None:
        self._by_base: dict[int, LoadedSegment] = {}
        self._bases: list[int] = []

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def bases(self) -> list[int]:
        return list(self._bases)

    @property
    def first(self) -> LoadedSegment:
        return self._by_base[self._bases[0]]

    @property
    def last(self) -> LoadedSegment:
        return self._by_base[self._bases[-1]]

    def all(self) -> list[LoadedSegment]:
        return [self._by_base[base] for base in self._bases]

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._by_base

    def add(self, segment: LoadedSegment) -> None:
        if segment.base_offset not in self._by_base:
            insort(self._bases, segment.base_offset)
        self._by_base[segment.base_offset] = segment

    def remove(self, base_offset: int) -> None:
        if self._by_base.pop(base_offset, None) is not None:
            self._bases.remove(base_offset)

    def clear(self) -> None:
        self._by_base.clear()
        self._bases.clear()

    def floor(self, offset: int) -> LoadedSegment | None:
        """The last one that begins at or below ``offset``."""
        at = bisect_right(self._bases, offset)
        return self._by_base[self._bases[at - 1]] if at else None

    def between(self, start: int, end: int) -> list[LoadedSegment]:
        """From the one that holds ``start`` to the last that begins below ``end``."""
        if start == end:
            return []
        low = max(0, bisect_right(self._bases, start) - 1)
        return [self._by_base[base] for base in self._bases[low : bisect_left(self._bases, end)]]


class _Loader:
    """One loading of one partition."""

    def __init__(self, workspace: Workspace, context: LoadContext) -> None:
        self.workspace = workspace
        self.context = context
        self.segments = _Segments()
        self.recorder = Recorder(workspace)

    def load(self) -> Recovered:
        context = self.context
        self.epochs = LeaderEpochs(self.workspace)
        self.producers = self._new_producer_state()
        self._finish_swaps()
        self._retry_on_overflow(self._load_segment_files)
        recovery_point, end_offset = self._retry_on_overflow(self._recover_log)
        self.segments.last.resize_indexes()
        self.epochs.truncate_from_end(end_offset)
        start_offset = max(context.log_start_offset, self.segments.first.base_offset)
        self.epochs.truncate_from_start(context.log_start_offset)
        self.producers.remove_stray_snapshots(self.segments.bases)
        self._rebuild_producers(self.producers, start_offset, end_offset, is_clean=context.is_clean)
        recovery_point = max(recovery_point, start_offset)
        self._find_unstable_offset(start_offset, end_offset)
        self._read_partition_metadata()
        mark = min(context.high_watermark, end_offset)
        self.producers.advance_high_watermark(max(mark, start_offset))
        self._find_unstable_offset(start_offset, end_offset)
        return self._stop(start_offset, end_offset, recovery_point)

    def _stop(self, start_offset: int, end_offset: int, recovery_point: int) -> Recovered:
        """Flush, take the last snapshot and close (``LogManager.shutdown``)."""
        if end_offset + 1 > recovery_point:
            for segment in self.segments.between(recovery_point, end_offset + 1):
                segment.load_indexes()
            recovery_point = max(recovery_point, end_offset)
        self.producers.take_snapshot()
        for segment in self.segments.all():
            segment.close()
        is_ahead = start_offset > self.segments.first.base_offset
        files = self.workspace.wanted()
        return Recovered(
            files=files,
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            recovery_point=recovery_point,
            checkpointed_log_start_offset=start_offset if is_ahead else None,
            active_base_offset=self.segments.last.base_offset,
            leader_epochs=self.epochs.entries,
            account=self.recorder.finish(files),
        )

    def _new_producer_state(self) -> ProducerState:
        context = self.context
        expiration_ms = context.producer_id_expiration_ms
        expire_before_ms = None if expiration_ms is None else context.now_ms - expiration_ms
        return ProducerState(self.workspace, expire_before_ms)

    # Leftovers

    def _finish_swaps(self) -> None:
        """Drop what was being written, and put in place what was complete."""
        swaps = self._drop_temporary_files()
        low, high = _INT64_MAX, -_INT64_MAX - 1
        for name in swaps:
            stem = name.removesuffix(FileStage.SWAP.value)
            if not stem.endswith(FileKind.LOG.value):
                continue
            base_offset = _required_offset(name)
            segment = self._open(base_offset, FileStage.SWAP.value)
            low = min(low, base_offset)
            high = max(high, segment.next_offset())
        for name in self.workspace.names():
            offset = _offset_of(name)
            if name.endswith(FileStage.SWAP.value) or offset is None:
                continue
            if low <= offset < high:
                self.recorder.leftover(name, Outcome.REPLACED)
                self.workspace.remove(name)
        for name in self.workspace.names():
            if name.endswith(FileStage.SWAP.value):
                self.recorder.leftover(name, Outcome.PUT_IN_PLACE)
                self.workspace.rename(name, name.removesuffix(FileStage.SWAP.value))

    def _drop_temporary_files(self) -> list[str]:
        """Delete them; gives the swaps that count, by name."""
        swaps: list[str] = []
        cleaned: list[str] = []
        for name in self.workspace.names():
            if name.endswith(FileStage.DELETED.value) and not name.endswith(_CHECKPOINT_DELETED):
                self.recorder.leftover(name, Outcome.DELETED)
                self.workspace.remove(name)
            elif name.endswith(FileStage.CLEANED.value):
                cleaned.append(name)
            elif name.endswith(FileStage.SWAP.value):
                swaps.append(name)
        least_cleaned = min(map(_required_offset, cleaned), default=_INT64_MAX)
        valid = [name for name in swaps if _required_offset(name) < least_cleaned]
        for name in (*cleaned, *swaps):
            if name not in valid:
                self.recorder.leftover(name, Outcome.DELETED)
                self.workspace.remove(name)
        return valid

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
        put_in_place(parts, old)
        for replaced in old:
            if all(replaced.base_offset != part.base_offset for part in parts):
                self.producers.delete_segment_snapshot(replaced.base_offset)

    def _load_segment_files(self) -> None:
        for segment in self.segments.all():
            segment.close()
        self.segments.clear()
        for name in self.workspace.names():
            if name.endswith(_INDEX_SUFFIXES):
                if file_name(_required_offset(name), FileKind.LOG) not in self.workspace:
                    self.recorder.leftover(name, Outcome.DELETED)
                    self.workspace.remove(name)
            elif name.endswith(FileKind.LOG.value):
                base_offset = _required_offset(name)
                time_index = file_name(base_offset, FileKind.TIME_INDEX)
                has_time_index = time_index in self.workspace
                segment = self._open(base_offset)
                why = segment.needs_recovery(has_time_index=has_time_index)
                if why is not None:
                    self._recover_segment(segment, why, is_rebuilt=True)
                self.segments.add(segment)

    def _open(self, base_offset: int, suffix: str = "") -> LoadedSegment:
        log = file_name(base_offset, FileKind.LOG) + suffix
        if log not in self.workspace:
            self.workspace.put(log, Written(b""))
        return LoadedSegment(self.workspace, base_offset, self.context.settings, suffix)

    def _recover_segment(
        self, segment: LoadedSegment, why: str, *, is_rebuilt: bool = False
    ) -> int:
        producers = self._new_producer_state()
        self._rebuild_producers(
            producers, self.context.log_start_offset, segment.base_offset, is_clean=False
        )
        before = self.workspace.content(segment.log_name)
        self.recorder.recovering(segment.base_offset, why, is_rebuilt=is_rebuilt)
        truncated_bytes = segment.recover(producers, self.epochs)
        if truncated_bytes:
            self._record_cut(segment, before, str(segment.problem))
        producers.take_snapshot()
        return truncated_bytes

    def _record_cut(self, segment: LoadedSegment, before: Stored | Written, why: str) -> None:
        self.recorder.cut(segment.log_name, before, segment.size_bytes, why)

    def _recover_log(self) -> tuple[int, int]:
        """Recover what is not known to be flushed; gives recovery point and end offset."""
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
            before = self.workspace.content(segment.log_name)
            try:
                truncated_bytes = self._recover_segment(segment, "it was not flushed")
            except InvalidOffset as problem:
                truncated_bytes = segment.truncate_to(segment.base_offset)
                if truncated_bytes:
                    self._record_cut(segment, before, str(problem))
            if truncated_bytes:
                segment.next_offset()  # Kafka says it in its log, which may end the loading
                self._delete_segments(unflushed[at + 1 :], "it follows what was cut")
                return

    def _delete_all_below_start(self) -> int | None:
        """The end of the log; all segments go if the log is to begin behind it."""
        if not len(self.segments):
            return None
        end_offset = self.segments.last.next_offset()
        start_offset = self.context.log_start_offset
        if end_offset >= start_offset:
            return end_offset
        self._delete_segments(
            self.segments.all(),
            f"the log ends at {end_offset}, and is to begin at {start_offset}",
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

    # Producers

    def _rebuild_producers(
        self, state: ProducerState, start_offset: int, end_offset: int, *, is_clean: bool
    ) -> None:
        """Bring ``state`` to ``end_offset`` from the newest snapshot and the batches behind it."""
        to_snapshot = [*self.segments.bases[-2:], end_offset]
        if is_clean and not state.has_snapshots:
            # As after an upgrade from a Kafka that had none: nothing is replayed.
            for offset in to_snapshot:
                state.map_end_offset = offset
                state.take_snapshot()
            return
        was_empty = state.is_empty and state.map_end_offset >= end_offset
        state.truncate_and_reload(start_offset, end_offset)
        if end_offset > state.map_end_offset and not was_empty:
            self._replay(state, start_offset, end_offset, to_snapshot)
        state.map_end_offset = end_offset
        state.take_snapshot()

    def _replay(
        self, state: ProducerState, start_offset: int, end_offset: int, to_snapshot: list[int]
    ) -> None:
        last = self.segments.floor(end_offset)
        for segment in self.segments.between(state.map_end_offset, end_offset):
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
                    f"the batch at offset {begin} lies behind that at {end_offset}",
                    segment.log_name,
                    "IllegalArgumentException",
                    first.position,
                )
            state.load_segment_part(segment.windows(first.position, end), segment.log_name)

    def _find_unstable_offset(self, start_offset: int, end_offset: int) -> None:
        """Look for the first open transaction in the log; only the looking has consequences."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return
        offset = max(unstable, start_offset)
        segment = self.segments.floor(offset)
        if segment is None or offset >= end_offset:
            return
        for candidate in self.segments.between(offset, _INT64_MAX):
            if candidate.translate(offset) is not None:
                return

    def _read_partition_metadata(self) -> None:
        if names.PARTITION_METADATA not in self.workspace:
            return
        try:
            decode_partition_metadata(self.workspace.read(names.PARTITION_METADATA))
        except FormatError as problem:
            raise Refused(
                str(problem), names.PARTITION_METADATA, "KafkaStorageException"
            ) from problem


def _offset_of(name: str) -> int | None:
    """The number before the first dot, if there is one."""
    stem, dot, _ = name.partition(".")
    return parse_long(stem) if dot else None


def _required_offset(name: str) -> int:
    offset = _offset_of(name)
    if offset is None:
        raise Refused("the name does not begin with an offset", name, "NumberFormatException")
    return offset
