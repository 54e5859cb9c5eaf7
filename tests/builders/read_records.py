"""Read the records of a partition from its complete logs, without any other file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kdump.formats.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from kdump.log.contents import LogContents, merged, survey_segment
from kdump.log.partition import Partition
from kdump.log.problems import FileProblem
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, walk_segment
from kdump.storage.local_disk import local

ABORT, COMMIT = 0, 1


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record with fields of its batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False

    @property
    def is_marker(self) -> bool:
        return self.is_control and self.producer_id >= 0


def all_records(partition: Path) -> list[ReadRecord]:
    """Return all records of the logs in use, including control records."""
    logs = sorted(partition.glob("*.log"))
    return [record for log in logs for record in _records_of(log)]


def data_records(records: list[ReadRecord]) -> list[ReadRecord]:
    return [record for record in records if not record.is_control]


def last_stable_offset(records: list[ReadRecord]) -> int | None:
    """Return the first offset of the first open transaction, or None."""
    begun: dict[int, int] = {}
    for record in records:
        if record.is_marker:
            begun.pop(record.producer_id, None)
        elif record.is_transactional and not record.is_control:
            begun.setdefault(record.producer_id, record.offset)
    return min(begun.values(), default=None)


def committed_records(
    records: list[ReadRecord], before_offset: int | None = None
) -> list[ReadRecord]:
    """Return non-transactional and committed records before an end offset.

    The default end offset is the last stable offset.
    """
    if before_offset is None:
        before_offset = last_stable_offset(records)
    markers = defaultdict(list)
    for record in records:
        if record.is_marker:
            kind = int.from_bytes((record.key or b"")[2:4], "big")
            markers[record.producer_id].append((record.offset, kind))

    def is_committed(record: ReadRecord) -> bool:
        if not record.is_transactional:
            return True
        own = sorted(markers[record.producer_id])
        return next((kind for offset, kind in own if offset > record.offset), ABORT) == COMMIT

    return [
        record
        for record in data_records(records)
        if (before_offset is None or record.offset < before_offset) and is_committed(record)
    ]


def _records_of(log: Path) -> Iterator[ReadRecord]:
    with local(log).open_file() as source:
        for step in walk_segment(source, with_records=True):
            if isinstance(step, MessageSet):
                for message in step.messages:
                    yield ReadRecord(message.offset, message.timestamp, message.key, message.value)
            elif isinstance(step, RecordColumns):
                yield from _records_in(step)


def _records_in(columns: RecordColumns) -> Iterator[ReadRecord]:
    for at, row in enumerate(columns.batch.tolist()):
        attributes = int(columns.batches.attributes[row])
        yield ReadRecord(
            int(columns.offset[at]),
            int(columns.timestamp[at]),
            columns.key(at),
            columns.value(at),
            int(columns.batches.producer_id[row]),
            bool(attributes & TRANSACTIONAL_FLAG) and int(columns.batches.producer_id[row]) >= 0,
            bool(attributes & CONTROL_FLAG),
        )


def survey_partition(partition: Partition) -> tuple[LogContents, list[FileProblem]]:
    """Count what is in the valid batches of all segments; the damage, too."""
    surveyed = [
        survey_segment(partition.segment_path(segment, segment.log_kind), segment, following)
        for segment, following in partition.with_following()
    ]
    return (
        merged(contents for contents, _ in surveyed),
        [problem for _, problems in surveyed for problem in problems],
    )
