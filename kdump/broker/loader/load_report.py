"""What loading a partition does to it, told for people: what is lost, and what is put right."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kdump.formats import names, record_batch
from kdump.formats.compression import Codec
from kdump.scan.batches import Window
from kdump.scan.walk import walk_segment
from kdump.target.target_file import Kept, KeptUpTo, TargetFile
from kdump.target.virtual_directory import (
    INDEX_SUFFIXES,
    Content,
    VirtualDirectory,
    Written,
    part_of,
)


class Outcome(enum.Enum):
    """What becomes of a leftover."""

    DELETED = "deleted"
    PUT_IN_PLACE = "put in place"
    """Lost its ``.swap``: what it was made for is finished."""
    REPLACED = "replaced"
    """Deleted, because what is put in place holds its batches."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that something interrupted left behind, and what becomes of it."""

    name: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Loss:
    """What bytes that go hold.

    Attributes:
        size_bytes: how many.
        batches: how many whole batches with a valid checksum are in them.
        records: in those; None where only decompressing messages of magic 0 or 1 could tell.
        first_offset: of those; None where there are none.
        last_offset: of those.
        damaged_bytes: the bytes outside of those, but for space that was never written.
    """

    size_bytes: int
    batches: int
    records: int | None
    first_offset: int | None
    last_offset: int | None
    damaged_bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A log that ends earlier.

    Attributes:
        name: of the log.
        position: its first byte that goes.
        reason: why.
        loss: what goes.
        is_padding: whether that is nothing but zeroes that were never written: no batch follows,
            and nobody has noted down that the log was longer.
    """

    name: str
    position: int
    reason: str
    loss: Loss
    is_padding: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """A segment that goes as a whole."""

    name: str
    reason: str
    loss: Loss


@dataclass(frozen=True, slots=True)
class SwapLoss:
    """What a log held that was replaced by a ``.swap``, and the swap does not hold.

    Or what an unfinished log held that is deleted, and no other log holds.

    Attributes:
        name: of the log.
        loss: the batches of which records are lost, and those records.
    """

    name: str
    loss: Loss

    @property
    def is_unfinished(self) -> bool:
        """Whether it is about a ``.swap`` or ``.cleaned`` that is deleted."""
        return not self.name.endswith(names.FileKind.LOG.value)


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """A segment that was gone through from end to end, and why.

    ``is_rebuilt`` says that it was because of its indexes, not of the stop.
    """

    base_offset: int
    reason: str
    is_rebuilt: bool


@dataclass(frozen=True, slots=True)
class Split:
    """A segment that becomes several."""

    name: str
    base_offsets: tuple[int, ...]


class Cause(enum.Enum):
    """Why bytes of a log are set aside."""

    DAMAGED = "damaged"
    """They are no valid batch."""
    DUPLICATE = "duplicate"
    """They are a batch that the log has already."""
    OUT_OF_ORDER = "out of order"
    """They are a valid batch, and its offsets belong to others."""
    NOT_LOADABLE = "not loadable"
    """They are a valid batch on which Kafka's loading ends."""
    FOREIGN = "foreign"
    """They are valid batches of another log."""
    UNDECIDED = "undecided"
    """They are valid batches in whose place others stay, and little tells which belong there."""
    MISSING = "missing"
    """They are no bytes: offsets that were missing before."""
    UNFINISHED = "unfinished"
    """They are all of a file that was being written, and hold batches that no log has."""


@dataclass(frozen=True, slots=True)
class QuarantinedRange:
    """Bytes of a log that go out of it, and into a file of their own.

    Attributes:
        name: of the log, as it is on disk.
        start: its first byte that goes.
        end: behind the last.
        file: what has those bytes then, but for zeroes at their end; None for nothing but zeroes.
        cause: what they are.
        reason: the same in words.
        first_offset: of what is lost with them; None where no offset is missing.
        last_offset: of that; None also where it is not known how far it went.
        records: how many are lost; None where that is not known.
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
        """How many records can be lost at most; None where that is not known."""
        if self.records is not None or self.first_offset is None or self.last_offset is None:
            return self.records
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class AddedMarker:
    """An abort marker that takes the place of one that was lost."""

    name: str
    producer_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LoadReport:
    """All that loading does.

    Attributes:
        cuts: logs that end earlier; at most one where the stop was unclean.
        dropped: segments that go.
        splits: segments that become several.
        leftovers: of what was interrupted.
        recovered: segments that were gone through.
        rebuilt_indexes: names of index files that get other entries than they have.
        set_aside: what goes out of logs into files of its own; only salvaging does that.
        made_markers: ends of transactions that were lost, and without which Kafka would not load
            the log; likewise.
        ignored_log_start_offset: where the log was to begin, behind its end: a broker would have
            deleted all of it, salvaging lets it begin with its first segment.
        swap_losses: what is lost of logs that swaps replace.
    """

    cuts: tuple[Cut, ...]
    dropped: tuple[Dropped, ...]
    splits: tuple[Split, ...]
    leftovers: tuple[Leftover, ...]
    recovered: tuple[RecoveredSegment, ...]
    rebuilt_indexes: tuple[str, ...]
    quarantined: tuple[QuarantinedRange, ...] = ()
    added_markers: tuple[AddedMarker, ...] = ()
    ignored_log_start_offset: int | None = None
    swap_losses: tuple[SwapLoss, ...] = ()

    @property
    def loses_data(self) -> bool:
        """Whether any byte of a log goes."""
        aside = any(piece.cause is not Cause.MISSING for piece in self.quarantined)
        return bool(self.cuts or self.dropped or aside or self.swap_losses)


class Recorder:
    """Keeps the account while a partition is loaded."""

    def __init__(self, directory: VirtualDirectory) -> None:
        self._directory = directory
        self._cuts: list[Cut] = []
        self._dropped: list[Dropped] = []
        self._splits: list[Split] = []
        self._leftovers: dict[str, Leftover] = {}
        self._recovered: dict[int, RecoveredSegment] = {}
        self._swap_losses: list[SwapLoss] = []

    def swap_loss(self, loss: SwapLoss) -> None:
        self._swap_losses.append(loss)

    def leftover(self, name: str, outcome: Outcome) -> None:
        self._leftovers.setdefault(name, Leftover(name, outcome))

    def recovering(self, base_offset: int, why: str, *, is_rebuilt: bool) -> None:
        self._recovered.setdefault(base_offset, RecoveredSegment(base_offset, why, is_rebuilt))

    def split(self, segment_name: str, base_offsets: list[int]) -> None:
        self._splits.append(Split(segment_name, tuple(base_offsets)))

    def cut(self, name: str, before: Content, position: int, why: str, *, is_padding: bool) -> None:
        """Note that the log ``name``, which was ``before``, ends at ``position``."""
        loss = self._loss(part_of(before, position, before.size_bytes))
        if is_padding:
            loss = replace(loss, damaged_bytes=0)
        self._cuts.append(Cut(name, position, why, loss, is_padding))

    def dropped(self, name: str, why: str) -> None:
        """Note that a segment goes; to be called while it is there."""
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
        )

    def _loss(self, lost: Content) -> Loss:
        return measure_loss(self._directory, lost)


def measure_loss(directory: VirtualDirectory, lost: Content) -> Loss:
    """Count what is sound in bytes that go."""
    if isinstance(lost, Written):
        return Loss(lost.size_bytes, 0, 0, None, None, lost.size_bytes)
    batches = sound_bytes = 0
    records: int | None = 0
    first_offset: int | None = None
    last_offset: int | None = None
    with directory.open_content(lost) as source:
        for step in walk_segment(source, with_records=False, follow_bad=True):
            if not isinstance(step, Window):
                continue
            sound = step.batches.rows(step.batches.is_valid)
            if not sound.count:
                continue
            batches += sound.count
            sound_bytes += int(sound.size_bytes.sum())
            is_legacy = sound.magic < 2
            wraps = is_legacy & ((sound.attributes & record_batch.CODEC_MASK) != Codec.NONE)
            if wraps.any():
                records = None
            elif records is not None:
                records += int(np.where(is_legacy, 1, sound.records_count).sum())
            first = int(sound.base_offset.min())
            last = int(np.max(sound.last_offset))
            first_offset = first if first_offset is None else min(first, first_offset)
            last_offset = last if last_offset is None else max(last, last_offset)
    return Loss(
        lost.size_bytes,
        batches,
        records,
        first_offset,
        last_offset,
        lost.size_bytes - sound_bytes,
    )
