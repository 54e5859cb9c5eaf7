"""The replay of one copy of the cluster's metadata up to an offset or a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from msgspec import Struct, field

from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.log.partition import MetadataSnapshotFile, Partition
from kdump.state.metadata.metadata_image import (
    LOG_BEGIN,
    LogEnd,
    MetadataBatch,
    MetadataChange,
    MetadataImage,
    MetadataRecord,
    MetadataReplay,
)
from kdump.state.metadata.metadata_log import MetadataDamage, MetadataReading

OnProblem = Callable[[str], None]
"""Takes a sentence about damage, with the file."""


class MetadataPoint(Struct, frozen=True):
    """A point of the metadata log; at most one attribute is set, and without one it is the end.

    Attributes:
        offset: of the last record that counts.
        time_ms: batches that were appended later do not count, nor those after them.
    """

    offset: int | None = None
    time_ms: int | None = None

    def excludes(self, batch: MetadataBatch) -> bool:
        """Whether a batch of the log is after this point."""
        if self.time_ms is not None:
            return batch.timestamp_ms > self.time_ms
        return self.offset is not None and batch.base_offset > self.offset

    def __str__(self) -> str:
        return f"offset {self.offset}" if self.time_ms is None else "that time"


class UnknownMetadataError(KdumpError):
    """Damage makes the metadata at a point unknown."""

    exit_status = ExitStatus.DAMAGE_LEFT


END: MetadataPoint = MetadataPoint()


class CopyReplay(Struct):
    """The replay of a copy.

    Attributes:
        partition: the directory of the copy.
        on_problem: takes what is damaged; each is reported once.
        type_names: the types of records to replay; None for all.
        start: where the log is read from: the end of the snapshot that was loaded.
        is_cut: whether damage ended the reading.
        unknown: sentences about records that this kdump does not know, or knows only in part: what
            is written from the replay lacks what they say. They were reported as well.
    """

    partition: Partition
    on_problem: OnProblem
    type_names: Collection[str] | None = None
    start: LogEnd = LOG_BEGIN
    is_cut: bool = False
    unknown: list[str] = field(default_factory=list)
    _replay: MetadataReplay = field(default_factory=MetadataReplay)

    def image_at(self, point: MetadataPoint) -> MetadataImage:
        """The metadata at a point, from the newest snapshot before it.

        Raises:
            UsageProblem: the copy does not reach back to the point, or ends before it.
        UnknownMetadataError: the log is damaged before the point.
            OSError: a file cannot be read.
        """
        self._begin(self._snapshots_before(point))
        for _ in self.changes(point):
            pass
        image = self.image()
        if point.offset is not None and image.end.offset < point.offset:
            if self.is_cut:
                raise UnknownMetadataError(
                    f"{self.partition.path}: the metadata at offset {point.offset} is unknown: the"
                    f" log is damaged after offset {image.end.offset - 1}; name another copy"
                )
            raise UsageProblem(
                f"{self.partition.path}: offset {point.offset} is past the end of the metadata,"
                f" {image.end.offset}"
            )
        return image

    def begin_with_oldest(self) -> None:
        """Load what lies before the oldest record of the log whose effect can be known.

        Raises:
            OSError: a file cannot be read.
        """
        segments = self.partition.segments
        candidates: list[MetadataSnapshotFile | None] = [
            each
            for each in self.partition.metadata_snapshots
            if not segments or each.end_offset >= segments[0].base_offset
        ]
        if self._begins_at_zero:
            candidates.append(None)
        # The snapshot of offset 0, which a formatted controller has, comes before the beginning.
        candidates.sort(key=lambda each: (0, True) if each is None else (each.end_offset, False))
        self._begin(candidates)

    def resume(self) -> bool:
        """Load the next snapshot after the damage that ended the reading, if there is one.

        Raises:
            OSError: a file cannot be read.
        """
        reached = self._replay.end.offset
        later = [each for each in self.partition.metadata_snapshots if each.end_offset > reached]
        if not self.is_cut or not later:
            return False
        self.is_cut = False
        self._begin([*later])
        return self.start.offset > reached

    @property
    def end(self) -> LogEnd:
        """Where the replayed records end."""
        return self._replay.end

    def image(self) -> MetadataImage:
        """The metadata as it is now."""
        return self._replay.image()

    def changes(self, point: MetadataPoint) -> Iterator[tuple[MetadataBatch, list[MetadataChange]]]:
        """Yield the batches of the log after :attr:`start`, with what each changed.

        Raises:
            OSError: a file cannot be read.
        """
        reading = self._reading()
        try:
            for batch in reading.log(self.partition, self.start):
                if point.excludes(batch):
                    return
                changes: list[MetadataChange] = []
                end = batch.end
                for record in batch.records:
                    if point.offset is not None and record.offset > point.offset:
                        break
                    changes += self._replay.take(record)
                if point.offset is not None and end.offset > point.offset:
                    end = LogEnd(end.epoch, point.offset + 1)
                self._replay.end, self._replay.timestamp_ms = end, batch.timestamp_ms
                yield batch, changes
        except MetadataDamage as damaged:
            self.on_problem(str(damaged))
            self.is_cut = True

    @property
    def _begins_at_zero(self) -> bool:
        segments = self.partition.segments
        return bool(segments) and segments[0].base_offset == 0

    def _snapshots_before(self, point: MetadataPoint) -> list[MetadataSnapshotFile | None]:
        """The snapshots that end at the point or before it, newest first; None for an empty one."""
        snapshots = self.partition.metadata_snapshots
        most = None if point.time_ms is None else self._first_after(point.time_ms)
        candidates: list[MetadataSnapshotFile | None] = [
            each
            for each in reversed(snapshots)
            if (point.offset is None or each.end_offset <= point.offset + 1)
            and (most is None or each.end_offset <= most)
            and (point.time_ms is None or self._is_before(each, point.time_ms))
        ]
        if self._begins_at_zero:
            candidates.append(None)
        if not candidates and point != END:
            oldest = snapshots[0].end_offset if snapshots else None
            raise UsageProblem(
                f"{self.partition.path}: {point} is before the oldest metadata on this disk"
                + ("" if oldest is None else f", the snapshot of offset {oldest}")
            )
        return candidates

    def _first_after(self, time_ms: int) -> int | None:
        """The offset of the first batch of the log that was appended after a time; None if none.

        By clocks that differ, or go back, batches after it can say an earlier time: they are
        reported, because they do not count.
        """
        found: int | None = None
        segments = self.partition.segments
        begin = LogEnd(0, segments[0].base_offset if segments else 0)
        try:
            for batch in MetadataReading(type_names=()).log(self.partition, begin):
                if batch.timestamp_ms > time_ms:
                    found = batch.base_offset if found is None else found
                elif found is not None:
                    self.on_problem(
                        f"{self.partition.path}: the record at offset {batch.base_offset} is not"
                        f" later than that time, and does not count, because the one at offset"
                        f" {found} is later: the clocks of the controllers differ, or were set back"
                    )
                    break
        except MetadataDamage:
            pass  # who reads the log up to it reports it
        return found

    def _is_before(self, snapshot: MetadataSnapshotFile, time_ms: int) -> bool:
        """Whether everything in a snapshot was appended up to a time; True if that is unknown."""
        reading = MetadataReading(type_names=())
        try:
            for batch in reading.snapshot(self.partition, snapshot):
                if batch.records:
                    return batch.timestamp_ms <= time_ms
        except MetadataDamage:
            pass
        return True

    def _begin(self, candidates: list[MetadataSnapshotFile | None]) -> None:
        """Load the first of the snapshots that can be read."""
        for snapshot in candidates:
            self._replay = MetadataReplay(on_fault=self._on_fault)
            self.unknown.clear()
            self.start = LOG_BEGIN
            if snapshot is None:
                return
            try:
                self._replay.take_batches(self._reading().snapshot(self.partition, snapshot))
            except MetadataDamage as damaged:
                self.on_problem(str(damaged))
                continue
            self.start = LogEnd(snapshot.epoch, snapshot.end_offset)
            return
        self._replay = MetadataReplay(on_fault=self._on_fault)
        self.start = LOG_BEGIN

    def _reading(self) -> MetadataReading:
        return MetadataReading(
            self.type_names,
            on_torn_tail=lambda damage: self.on_problem(str(damage)),
            on_unreadable=lambda offset, what: self._on_unknown(
                f"{self.partition.path}: the record at offset {offset} cannot be decoded: {what}"
            ),
            on_unknown=lambda offset, what: self._on_unknown(
                f"{self.partition.path}: the record at offset {offset}: {what}"
            ),
        )

    def _on_unknown(self, what: str) -> None:
        self.unknown.append(what)
        self.on_problem(what)

    def _on_fault(self, record: MetadataRecord, what: str) -> None:
        self.on_problem(
            f"{self.partition.path}: the {record.name} at offset {record.offset} has no effect:"
            f" {what}"
        )
