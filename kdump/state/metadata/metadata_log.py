"""Reading a copy of the cluster's metadata: a snapshot, then the log after it, batch by batch.

A copy is the directory ``__cluster_metadata-0``. Its log has no holes, so that nothing after
damage can be applied: reading ends there, as the log of a starting node does (``KafkaRaftLog``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.control_records import parse_control_record, unknown_control_record
from kdump.formats.errors import FormatError
from kdump.formats.internal_topics import decode_cluster_metadata, unknown_to_kdump
from kdump.formats.names import FileKind, MetadataSnapshotName
from kdump.formats.schemas import metadata
from kdump.log.partition import MetadataSnapshotFile, Partition
from kdump.log.valid_windows import Damage
from kdump.scan.batches import BatchColumns
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection, with_rows
from kdump.scan.walk import MessageSet, Skipped, walk_segment
from kdump.state.metadata.metadata_image import LogEnd, MetadataBatch, MetadataRecord
from kdump.storage.location import Location

_FRAME_VERSION: Final = 1
_SNAPSHOT_HEADER: Final = "SNAPSHOT_HEADER"
_SNAPSHOT_FOOTER: Final = "SNAPSHOT_FOOTER"
_FRAME_BYTES: Final = 2

TYPE_IDS: Final = {each.name: each.id for each in metadata.RECORD_TYPES.values()}
"""Numbers of the types of records by Kafka's names."""


class MetadataDamage(Exception):
    """A file of the copy cannot be read to its end; the message says which, where and why."""


class MetadataReading(Struct, frozen=True):
    """How a copy is read.

    Attributes:
        type_names: the types of records to decode; None for all. Control records always are.
        on_torn_tail: takes an incomplete end of the log, as a crash leaves it.
        on_unreadable: takes a record that cannot be decoded: its offset, and why.
        on_unknown: takes a record that says more than this kdump knows, or may do so, likewise. It
            counts as far as it is known.
    """

    type_names: Collection[str] | None = None
    on_torn_tail: Callable[[Damage], None] = lambda _damage: None
    on_unreadable: Callable[[int, str], None] = lambda _offset, _what: None
    on_unknown: Callable[[int, str], None] = lambda _offset, _what: None

    def snapshot(
        self, partition: Partition, snapshot: MetadataSnapshotFile
    ) -> Iterator[MetadataBatch]:
        """Yield the batches of a snapshot.

        Raises:
            MetadataDamage: the snapshot is damaged or incomplete.
            OSError: it cannot be read.
        """
        end = LogEnd(snapshot.epoch, snapshot.end_offset)
        path = snapshot_path(partition, snapshot)
        timestamp_ms = -1
        is_complete = False
        for step in _steps_in(path, 0):
            if isinstance(step, Damage):
                raise MetadataDamage(str(step))
            damage = _first_damage(step, path)
            if damage is not None:
                raise MetadataDamage(str(damage[1]))
            for batch in self._batches(step):
                for record in batch.records:
                    if record.name == _SNAPSHOT_HEADER:
                        timestamp_ms = record.fields["lastContainedLogTimestamp"]
                    is_complete |= record.name == _SNAPSHOT_FOOTER
                yield MetadataBatch(end.offset, end, timestamp_ms, batch.records)
        if not is_complete:
            raise MetadataDamage(f"{path}: the end of the snapshot is missing")

    def log(self, partition: Partition, start: LogEnd) -> Iterator[MetadataBatch]:
        """Yield the batches of the log from the offset of ``start`` on.

        Raises:
            MetadataDamage: the log begins later, is damaged, or lacks records.
            OSError: it cannot be read.
        """
        segments = partition.segments
        if segments and segments[0].base_offset > start.offset:
            path = partition.segment_path(segments[0], FileKind.LOG)
            raise MetadataDamage(_gap(path, start.offset, segments[0].base_offset))
        expected = start.offset
        skipped: Damage | None = None
        for segment, following in partition.with_following():
            if following is not None and following.base_offset <= start.offset:
                continue
            path = partition.segment_path(segment, FileKind.LOG)
            if segment.base_offset > expected:
                gap = _gap(path, expected, segment.base_offset)
                raise MetadataDamage(str(skipped or gap))
            for step in _steps_in(path, start.offset):
                if isinstance(step, Damage):
                    skipped = step
                    continue
                usable, damage = _usable(step, expected, path)
                if usable.batches.count:
                    expected = int(usable.batches.last_offset[-1]) + 1
                    yield from self._batches(usable, start.offset)
                if damage is not None:
                    # Records that are missing are those between the bytes that were skipped.
                    raise MetadataDamage(str(skipped or damage))
                skipped = None
            if skipped is not None:
                self._report(skipped, segment.log_bytes, is_last=following is None)

    def _report(self, skipped: Damage, size_bytes: int, *, is_last: bool) -> None:
        """Report damage after which no record is missing, or after which there is nothing."""
        # Where nothing comes before it, it is not the end of a log.
        if is_last and (skipped.start == 0 or skipped.end != size_bytes):
            raise MetadataDamage(str(skipped))
        self.on_torn_tail(skipped)

    def _batches(self, columns: RecordColumns, first_offset: int = 0) -> Iterator[MetadataBatch]:
        batches = columns.batches
        begins = np.searchsorted(columns.batch, np.arange(batches.count + 1))
        bounds = zip(
            batches.base_offset.tolist(),
            batches.last_offset.tolist(),
            batches.partition_leader_epoch.tolist(),
            batches.max_timestamp.tolist(),
            is_control(batches).tolist(),
            begins[:-1].tolist(),
            begins[1:].tolist(),
            strict=True,
        )
        offsets = columns.offset.tolist()
        type_ids = None if self.type_names is None else {TYPE_IDS[name] for name in self.type_names}
        for base_offset, last_offset, epoch, timestamp_ms, has_control, begin, end in bounds:
            records = []
            for row in range(begin, end):
                if offsets[row] < first_offset:
                    continue
                decoded = self._decoded(columns, row, has_control, type_ids)
                if decoded is not None:
                    name, fields = decoded
                    records.append(MetadataRecord(offsets[row], epoch, timestamp_ms, name, fields))
            yield MetadataBatch(base_offset, LogEnd(epoch, last_offset + 1), timestamp_ms, records)

    def _decoded(
        self, columns: RecordColumns, row: int, has_control: bool, type_ids: Collection[int] | None
    ) -> tuple[str, dict[str, object]] | None:
        value = columns.value(row)
        try:
            if has_control:
                control = parse_control_record(columns.key(row), value)
                unknown = unknown_control_record(control)
                if unknown is not None:
                    self.on_unknown(int(columns.offset[row]), unknown)
                record_type = control.record_type
                return None if record_type is None else (record_type.name, control.fields)
            if type_ids is not None and not (
                value
                and len(value) >= _FRAME_BYTES
                and value[0] == _FRAME_VERSION
                and value[1] in type_ids
            ):
                return None
            name, version, fields = decode_cluster_metadata(value or b"")
            unknown = unknown_to_kdump(name, version, fields)
            if unknown is not None:
                self.on_unknown(int(columns.offset[row]), unknown)
        except FormatError as error:
            self.on_unreadable(int(columns.offset[row]), str(error))
            return None
        return name, fields


def snapshot_path(partition: Partition, snapshot: MetadataSnapshotFile) -> Location:
    """The location of a snapshot's file."""
    return partition.path / str(MetadataSnapshotName(snapshot.end_offset, snapshot.epoch))


def _steps_in(path: Location, first_offset: int) -> Iterator[RecordColumns | Damage]:
    """Yield the records of a file from an offset on, and the bytes that are not batches.

    Raises:
        MetadataDamage: there are messages of an old format.
        OSError: the file cannot be read.
    """
    selection = Selection(from_offset=first_offset)
    with path.open_file() as source:
        for step in walk_segment(source, with_records=True, selection=selection, follow_bad=True):
            if isinstance(step, RecordColumns) and step.batches.count:
                yield step
            elif isinstance(step, Skipped):
                yield Damage(str(path), step.start, step.end, step.problem)
            elif isinstance(step, MessageSet):
                what = "a message of an old format, which no metadata log has"
                raise MetadataDamage(str(_damage_at(step.window.batches, 0, path, what)))


def _usable(
    columns: RecordColumns, expected: int, path: Location
) -> tuple[RecordColumns, Damage | None]:
    """The records before the first damaged batch, or before a gap; and the damage."""
    found = [
        each for each in (_first_damage(columns, path), _first_gap(columns, expected, path)) if each
    ]
    if not found:
        return columns, None
    row, damage = min(found, key=lambda each: each[0])
    return with_rows(replace(columns, problems={}), columns.batch < row), damage


def _first_damage(columns: RecordColumns, path: Location) -> tuple[int, Damage] | None:
    """The row of the first damaged batch, and what is wrong with it."""
    batches = columns.batches
    problems: dict[int, FormatError | str] = {**columns.problems}
    if not batches.is_valid.all():
        problems[int(np.argmin(batches.is_valid))] = "its checksum is wrong"
    if not problems:
        return None
    row = min(problems)
    return row, _damage_at(batches, row, path, problems[row])


def _first_gap(columns: RecordColumns, expected: int, path: Location) -> tuple[int, Damage] | None:
    """The row of the first batch that does not follow the one before it."""
    batches = columns.batches
    if columns.is_continued:
        return None
    follows = np.concatenate(([expected], batches.last_offset[:-1] + 1))
    is_gap = batches.base_offset != follows
    # The first batch may begin before the offset from which the log is read.
    is_gap[0] = batches.base_offset[0] > expected
    if not is_gap.any():
        return None
    row = int(np.argmax(is_gap))
    what = f"offset {int(follows[row])} should be here, not {int(batches.base_offset[row])}"
    return row, _damage_at(batches, row, path, what)


def _damage_at(
    batches: BatchColumns, row: int, path: Location, problem: FormatError | str
) -> Damage:
    start, end = int(batches.position[row]), int(batches.next_position[row])
    return Damage(str(path), start, end, problem)


def _gap(path: Location, expected: int, found: int) -> str:
    return f"{path}: offsets {expected} to {found - 1} are missing before this file"
