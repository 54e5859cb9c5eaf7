"""The latest records of each group in a partition of ``__consumer_offsets``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from kdump.formats.coordinator_records import decode_key
from kdump.formats.errors import FormatError
from kdump.formats.message_decoder import MessageValue
from kdump.formats.names import TopicPartition
from kdump.formats.schema import RecordType
from kdump.formats.schemas import group_coordinator as types
from kdump.log.batch_validity import NO_OFFSET
from kdump.state.compacted.latest_records import Latest, LatestRecords

_NOTHING: Final = Latest(NO_OFFSET, None)


class RecordEntry(Struct):
    """The latest records of one key."""

    value: Latest = _NOTHING
    tombstone: int = NO_OFFSET

    @property
    def last(self) -> int:
        return max(self.value.offset, self.tombstone)

    def is_alive(self, since: int) -> bool:
        """Whether there is a value at or after ``since`` that no tombstone follows."""
        return self.value.offset >= since and self.value.offset > self.tombstone


class WaitingOffset(Struct, frozen=True):
    """An offset of a transaction that is open."""

    producer_id: int
    record_type: RecordType
    latest: Latest
    is_undecided: bool


class GroupRecords(Struct):
    """The latest records of one group.

    Attributes:
        group_id: its name.
        entries: by type, and by what else is in the key: ``""`` if there is one for the group.
        offsets: the committed offsets, by partition and type.
        pending: the offsets of open transactions, by partition.
        last_commit: offset of the latest record of a transaction that was aborted, or whose marker
            was not seen.
    """

    group_id: str
    entries: dict[RecordType, dict[str, RecordEntry]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    offsets: dict[TopicPartition, dict[RecordType, RecordEntry]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    pending: dict[TopicPartition, list[WaitingOffset]] = field(
        default_factory=lambda: defaultdict(list)
    )
    last_commit: int = NO_OFFSET

    def entry(self, record_type: RecordType, name: str = "") -> RecordEntry:
        """The entry of a key; an empty one if there is no such record."""
        return self.entries[record_type].get(name, RecordEntry())


class GroupRecordSorter:
    """Sorts the latest records by group.

    Attributes:
        problems: keys that cannot be decoded; complete after :meth:`records`.
        skipped_types: records of types that 4.3.1 does not know; likewise.
    """

    def __init__(self, latest: LatestRecords, is_selected: Callable[[str], bool]) -> None:
        self._latest = latest
        self._is_selected = is_selected
        self._found: dict[str, GroupRecords] = {}
        self.problems: list[str] = []
        self.skipped_types = 0

    def records(self) -> list[GroupRecords]:
        """The records of each selected group."""
        latest = self._latest
        for key, value in latest.values.items():
            if (entry := self._entry(key, value.offset)) is not None:
                entry.value = max(entry.value, value, key=lambda each: each.offset)
        for key, offset in latest.tombstones.items():
            if (entry := self._entry(key, offset)) is not None:
                entry.tombstone = max(entry.tombstone, offset)
        for key, offset in latest.not_committed.items():
            if (records := self._of_offset(key, offset)) is not None:
                records[0].last_commit = max(records[0].last_commit, offset)
        for waiting, is_undecided in ((latest.pending, False), (latest.undecided, True)):
            for producer_id, by_key in waiting.items():
                self._add_pending(producer_id, by_key, is_undecided=is_undecided)
        return list(self._found.values())

    def _add_pending(
        self, producer_id: int, by_key: Mapping[bytes, Latest], *, is_undecided: bool
    ) -> None:
        for key, latest in by_key.items():
            if (records := self._of_offset(key, latest.offset)) is not None:
                of_group, partition, record_type = records
                waiting = WaitingOffset(producer_id, record_type, latest, is_undecided)
                of_group.pending[partition].append(waiting)

    def _decoded(self, key: bytes, offset: int) -> tuple[RecordType, MessageValue] | None:
        try:
            record_type, fields = decode_key(types.RECORD_TYPES, key)
        except FormatError as problem:
            self.problems.append(f"the key of the record at offset {offset}: {problem.what}")
            return None
        if record_type is None:
            self.skipped_types += 1
            return None
        return record_type, fields

    def _of(self, group_id: str) -> GroupRecords | None:
        if not self._is_selected(group_id):
            return None
        found = self._found.get(group_id)
        if found is None:
            found = self._found[group_id] = GroupRecords(group_id)
        return found

    def _entry(self, key: bytes, offset: int) -> RecordEntry | None:
        """The entry of a key; None if the key is not that of a selected group."""
        decoded = self._decoded(key, offset)
        if decoded is None:
            return None
        record_type, fields = decoded
        names = list(fields.values())
        records = self._of(names[0])
        if records is None:
            return None
        if len(names) == 3:
            partition = TopicPartition(names[1], names[2])
            return records.offsets[partition].setdefault(record_type, RecordEntry())
        return records.entries[record_type].setdefault(names[1] if names[1:] else "", RecordEntry())

    def _of_offset(
        self, key: bytes, offset: int
    ) -> tuple[GroupRecords, TopicPartition, RecordType] | None:
        """What the key of a committed offset is about; None if its group is not selected."""
        decoded = self._decoded(key, offset)
        if decoded is None:
            return None
        record_type, fields = decoded
        records = self._of(fields["group"])
        partition = TopicPartition(fields["topic"], fields["partition"])
        return None if records is None else (records, partition, record_type)
