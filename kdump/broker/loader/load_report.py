"""The report of loading a partition, for people: what is lost, and what is repaired."""

from __future__ import annotations

import enum
from collections.abc import Container, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.formats import names
from kdump.scan.batches import Window
from kdump.scan.selection import Selection
from kdump.scan.walk import ALL, walk_segment
from kdump.target.target_file import Kept, KeptUpTo, TargetFile
from kdump.target.virtual_directory import (
    INDEX_SUFFIXES,
    Content,
    VirtualDirectory,
    Written,
    part_of,
)


class LeftoverOutcome(enum.Enum):
    """What the loader does with a leftover file; the value is the word for it."""

    DELETED = "deleted"
    PUT_IN_PLACE = "put in place"
    """Renamed without its ``.swap``: the interrupted operation is finished."""
    REPLACED = "replaced"
    """Deleted, because a swap contains its batches."""


class HandledLeftover(Struct, frozen=True):
    """A leftover file of an interrupted operation, and what the loader does with it."""

    name: str
    outcome: LeftoverOutcome


class Loss(Struct, frozen=True):
    """The content of bytes that are lost.

    Attributes:
        size_bytes: how many bytes.
        batches: how many whole, valid batches are in them.
        records: of those batches; None if counting them needs decompression of messages of magic 0
            or 1.
        first_offset: of those batches; None if there are none.
        last_offset: of those batches.
        damaged_bytes: bytes that are not in those batches, without preallocated space.
    """

    size_bytes: int
    batches: int
    records: int | None
    first_offset: int | None
    last_offset: int | None
    damaged_bytes: int

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The first and the last offset of the batches; None if there are none."""
        if self.first_offset is None or self.last_offset is None:
            return None
        return self.first_offset, self.last_offset


class LogCut(Struct, frozen=True):
    """A log that is truncated.

    Attributes:
        position: its new size, in bytes.
        reason: why it is truncated.
        is_padding: whether the truncated bytes are only preallocated space: zeroes, no batch
            follows, and no checkpoint indicates that the log was longer.
    """

    name: str
    position: int
    reason: str
    loss: Loss
    is_padding: bool = False


class Dropped(Struct, frozen=True):
    """A segment that is deleted."""

    name: str
    reason: str
    loss: Loss


class SwapLoss(Struct, frozen=True):
    """Records of a log that its replacement, a ``.swap`` file, does not contain.

    Or records of an unfinished, deleted log that no other log contains.

    Attributes:
        loss: the lost records, and the batches that they are in.
    """

    name: str
    loss: Loss

    @property
    def is_unfinished(self) -> bool:
        """Whether the log is a ``.swap`` or ``.cleaned`` file that is deleted."""
        return not self.name.endswith(names.FileKind.LOG.value)


class HiddenBatches(Struct, frozen=True):
    """Valid batches that stay in a log, and that a broker does not have after loading it.

    Attributes:
        name: of the log.
        reason: what hides them.
        loss: the batches; ``size_bytes`` is their size.
        is_before_start: whether the log start offset hides them: for the broker they are deleted.
    """

    name: str
    reason: str
    loss: Loss
    is_before_start: bool = False


class WrongTxn(Struct, frozen=True):
    """A transaction about which a broker, after loading the log, contradicts the log.

    Attributes:
        producer_id: of the transaction.
        first_offset: where it begins.
        is_open: whether the log leaves it open, and the broker does not know it. Otherwise the
            broker takes it for open, and read_committed consumers wait at it.
    """

    producer_id: int
    first_offset: int
    is_open: bool


class RecoveredSegment(Struct, frozen=True):
    """A segment that was recovered, and why.

    ``is_rebuilt`` is true if the reason is its indexes, not an unclean shutdown.
    """

    base_offset: int
    reason: str
    is_rebuilt: bool


class SplitSegment(Struct, frozen=True):
    """A segment that is split into several."""

    name: str
    base_offsets: tuple[int, ...]


class Cause(enum.Enum):
    """Why bytes of a log are quarantined."""

    DAMAGED = "damaged"
    """They are not a valid batch."""
    DUPLICATE = "duplicate"
    """They are a second copy of a batch of the log."""
    OUT_OF_ORDER = "out of order"
    """They are a valid batch, but other batches have its offsets."""
    NOT_LOADABLE = "not loadable"
    """They are a valid batch that makes Kafka fail to load the log."""
    FOREIGN = "foreign"
    """They are valid batches of another log."""
    UNDECIDED = "undecided"
    """They are valid batches that conflict with others, and it is unclear which belong there."""
    MISSING = "missing"
    """There are no bytes: these offsets were missing before."""
    UNFINISHED = "unfinished"
    """They are a whole unfinished file with batches that no log contains."""


class QuarantinedRange(Struct, frozen=True):
    """A byte range of a log that is moved from it to a separate file.

    Attributes:
        name: of the log on disk.
        start: first byte of the range.
        end: end of the range, exclusive.
        file: name of the file with those bytes, without trailing zeroes; None if all are zeroes.
        cause: why they are quarantined.
        reason: the same in words.
        first_offset: of the records that are lost with them; None if no offset is missing.
        last_offset: of those records; None also if unknown.
        records: how many are lost; None if unknown.
    """

    name: str
    start: int
    end: int
    file: str | None
    cause: Cause
    reason: str
    first_offset: int | None
    last_offset: int | None
    records: int | None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def most_records(self) -> int | None:
        """Upper limit of the number of lost records; None if unknown."""
        if self.records is not None or self.first_offset is None or self.last_offset is None:
            return self.records
        return self.last_offset - self.first_offset + 1


class AddedMarker(Struct, frozen=True):
    """An abort marker that replaces a lost one."""

    name: str
    producer_id: int
    offset: int


class DoubtfulLog(Struct, frozen=True):
    """A log that stays although it may be that of another partition.

    Attributes:
        name: of its file.
        against: the files beside it that describe other batches, in words.
    """

    name: str
    against: tuple[str, ...]


class LoadReport(Struct, frozen=True):
    """Everything that loading does to a partition.

    Attributes:
        cuts: truncated logs; at most one after an unclean shutdown.
        dropped: deleted segments.
        leftovers: leftover files.
        rebuilt_indexes: names of index files that get other entries.
        quarantined: byte ranges that are moved to separate files; only salvage does that.
        added_markers: abort markers that replace lost ones, without which Kafka would not load the
            log; only salvage adds them.
        ignored_log_start_offset: a log start offset after the end of the log, at which a broker
            would delete the whole log; salvage ignores it.
        swap_losses: records that are lost with logs that swaps replace.
        hidden: batches that stay on disk and that a broker no longer has.
        wrong_txns: transactions that the broker has and the log has not, or the reverse.
        doubtful: logs that stay and may be those of another partition; only salvage names them.
    """

    cuts: tuple[LogCut, ...]
    dropped: tuple[Dropped, ...]
    splits: tuple[SplitSegment, ...]
    leftovers: tuple[HandledLeftover, ...]
    recovered: tuple[RecoveredSegment, ...]
    rebuilt_indexes: tuple[str, ...]
    quarantined: tuple[QuarantinedRange, ...] = ()
    added_markers: tuple[AddedMarker, ...] = ()
    ignored_log_start_offset: int | None = None
    swap_losses: tuple[SwapLoss, ...] = ()
    hidden: tuple[HiddenBatches, ...] = ()
    wrong_txns: tuple[WrongTxn, ...] = ()
    doubtful: tuple[DoubtfulLog, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether loading does nothing but write small files and indexes."""
        return self.ignored_log_start_offset is None and not (
            self.cuts
            or self.dropped
            or self.splits
            or self.leftovers
            or self.recovered
            or self.quarantined
            or self.added_markers
            or self.swap_losses
            or self.hides_data
            or self.doubtful
        )

    @property
    def hides_data(self) -> bool:
        """Whether a broker has less after loading than what the logs hold."""
        return bool(self.hidden or self.wrong_txns)

    @property
    def loses_data(self) -> bool:
        """Whether any byte of a log is lost."""
        aside = any(piece.cause is not Cause.MISSING for piece in self.quarantined)
        return bool(self.cuts or self.dropped or aside or self.swap_losses)


class Recorder:
    """Collects the report while a partition is loaded."""

    def __init__(self, directory: VirtualDirectory) -> None:
        self._directory = directory
        self._cuts: list[LogCut] = []
        self._dropped: list[Dropped] = []
        self._splits: list[SplitSegment] = []
        self._leftovers: dict[str, HandledLeftover] = {}
        self._recovered: dict[int, RecoveredSegment] = {}
        self._swap_losses: list[SwapLoss] = []
        self._hidden: list[HiddenBatches] = []
        self._wrong_txns: list[WrongTxn] = []

    @property
    def removes_batches(self) -> bool:
        """Whether a log is truncated, other than by padding, or deleted."""
        return bool(self._dropped) or not all(cut.is_padding for cut in self._cuts)

    @property
    def recovered_bases(self) -> Container[int]:
        """Base offsets of the segments that were recovered."""
        return self._recovered.keys()

    @property
    def replayed(self) -> Container[int]:
        """Base offsets of the segments that were recovered because they were not flushed."""
        recovered = self._recovered.values()
        return {segment.base_offset for segment in recovered if not segment.is_rebuilt}

    @property
    def rebuilds_indexes(self) -> bool:
        """Whether segments were recovered because of their indexes."""
        return any(segment.is_rebuilt for segment in self._recovered.values())

    def hidden(self, batches: HiddenBatches) -> None:
        self._hidden.append(batches)

    def wrong_txn(self, txn: WrongTxn) -> None:
        self._wrong_txns.append(txn)

    def swap_loss(self, loss: SwapLoss) -> None:
        self._swap_losses.append(loss)

    def leftover(self, name: str, outcome: LeftoverOutcome) -> None:
        self._leftovers.setdefault(name, HandledLeftover(name, outcome))

    def recovering(self, base_offset: int, why: str, *, is_rebuilt: bool) -> None:
        self._recovered.setdefault(base_offset, RecoveredSegment(base_offset, why, is_rebuilt))

    def split(self, segment_name: str, base_offsets: list[int]) -> None:
        self._splits.append(SplitSegment(segment_name, tuple(base_offsets)))

    def cut(self, name: str, before: Content, position: int, why: str, *, is_padding: bool) -> None:
        """Record that the log ``name``, with content ``before``, is truncated to ``position``."""
        loss = self._loss(part_of(before, position, before.size_bytes))
        if is_padding:
            loss = replace(loss, damaged_bytes=0)
        self._cuts.append(LogCut(name, position, why, loss, is_padding))

    def dropped(self, name: str, why: str) -> None:
        """Record that a segment is deleted; to be called while it still exists."""
        loss = self._loss(self._directory.content(name))
        self._dropped.append(Dropped(name, why, loss))

    def finish(self, files: Mapping[str, TargetFile]) -> LoadReport:
        rebuilt = [
            name
            for name, target in files.items()
            if name.endswith(INDEX_SUFFIXES) and not isinstance(target, Kept | KeptUpTo)
        ]
        return LoadReport(
            cuts=tuple(self._cuts),
            dropped=tuple(self._dropped),
            splits=tuple(self._splits),
            leftovers=tuple(self._leftovers.values()),
            recovered=tuple(self._recovered.values()),
            rebuilt_indexes=tuple(rebuilt),
            swap_losses=tuple(self._swap_losses),
            hidden=tuple(self._hidden),
            wrong_txns=tuple(self._wrong_txns),
        )

    def _loss(self, lost: Content) -> Loss:
        return measure_loss(self._directory, lost)


def measure_loss(directory: VirtualDirectory, lost: Content, selection: Selection = ALL) -> Loss:
    """Count the valid batches in bytes that are lost; with a selection, only those count."""
    if isinstance(lost, Written):
        return Loss(lost.size_bytes, 0, 0, None, None, lost.size_bytes)
    batches = valid_bytes = 0
    records: int | None = 0
    first_offset: int | None = None
    last_offset: int | None = None
    with directory.open_content(lost) as source:
        for step in walk_segment(source, with_records=False, selection=selection, follow_bad=True):
            if not isinstance(step, Window):
                continue
            valid = step.batches.rows(step.batches.is_valid)
            if selection.to_offset is not None:
                # The first offset of a wrapped message set is not known.
                is_before = (valid.magic >= 2) | (valid.last_offset < selection.to_offset)
                valid = valid.rows(is_before)
            if not valid.count:
                continue
            batches += valid.count
            valid_bytes += int(valid.size_bytes.sum())
            if valid.is_compressed_set.any():
                records = None
            elif records is not None:
                records += int(valid.counts.sum())
            first = int(valid.base_offset.min())
            last = int(np.max(valid.last_offset))
            first_offset = first if first_offset is None else min(first, first_offset)
            last_offset = last if last_offset is None else max(last, last_offset)
    size_bytes = lost.size_bytes if selection.is_all else valid_bytes
    return Loss(
        size_bytes,
        batches,
        records,
        first_offset,
        last_offset,
        size_bytes - valid_bytes,
    )
