"""The bytes of a KRaft snapshot (``<end offset>-<epoch>.checkpoint``), batch by batch.

A snapshot is a log of its own: its offsets begin at 0, and every batch has the epoch of its name.
The first batch holds the control records SnapshotHeader and, with ``kraft.version`` 1,
KRaftVersion and Voters; the last one holds SnapshotFooter. Between them are the records of the
state, uncompressed.

The same records have the same bytes here as from Kafka's ``RecordsSnapshotWriter``,
``RaftSnapshotWriter`` and ``BatchAccumulator``: records arrive in lists of 1,024, a batch ends
where the next list would make it longer than 8 MiB, and that list is then a batch by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import field

from kdump.formats import record_batch
from kdump.formats.message_encoder import EncodingError, encode
from kdump.formats.record_batch import BatchHeader, Record, encode_batch, encode_record
from kdump.formats.schema import MessageSchema
from kdump.formats.schemas import control

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""``KafkaRaftClient.MAX_BATCH_SIZE_BYTES``; a reader refuses a larger batch."""
_LIST_RECORDS: Final = 1024
"""``SnapshotEmitter.DEFAULT_BATCH_SIZE``."""
_CONTROL_KEY: Final = struct.Struct(">hh")
_TYPE_IDS: Final = {each.value.name: each.id for each in control.RECORD_TYPES.values()}


class SnapshotHead(msgspec.Struct, frozen=True):
    """What a snapshot says before its records.

    Attributes:
        epoch: of the last record that it covers.
        last_timestamp_ms: when that record was appended.
        created_ms: when the snapshot is written.
        kraft_version: 0 or 1.
        voters: fields of the voters in a VotersRecord; none with kraft.version 0.
    """

    epoch: int
    last_timestamp_ms: int
    created_ms: int
    kraft_version: int = 0
    voters: Sequence[Mapping[str, Any]] = ()

    def control_records(self) -> Iterator[tuple[MessageSchema, Mapping[str, Any]]]:
        """The control records that begin the snapshot: their schemas and fields."""
        yield (
            control.SNAPSHOT_HEADER_RECORD,
            {"version": 0, "lastContainedLogTimestamp": self.last_timestamp_ms},
        )
        if self.kraft_version > 0:
            yield (
                control.KRAFT_VERSION_RECORD,
                {"version": 0, "kRaftVersion": self.kraft_version},
            )
            yield control.VOTERS_RECORD, {"version": 0, "voters": list(self.voters)}


def encode_snapshot(head: SnapshotHead, values: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the batches of a snapshot.

    Args:
        values: of the records, encoded; they are taken as the batches are written.

    Raises:
        EncodingError: a record is larger than a batch may be.
    """
    batches = _Batches(head.epoch, head.created_ms)
    yield batches.control(head.control_records())
    remaining = iter(values)
    while group := list(islice(remaining, _LIST_RECORDS)):
        is_drained = False
        for part in batches.fitting(group):
            if not batches.has_room(part):
                yield batches.finish()
                is_drained = True
            batches.add(part)
        if is_drained:
            yield batches.finish()
    if batches.is_begun:
        yield batches.finish()
    yield batches.control([(control.SNAPSHOT_FOOTER_RECORD, {"version": 0})])


class _Batches(msgspec.Struct):
    """Batches one after another."""

    epoch: int
    created_ms: int
    _next_offset: int = 0
    _begun: list[bytes] = field(default_factory=list)
    _begun_bytes: int = record_batch.HEADER_BYTES

    @property
    def is_begun(self) -> bool:
        """Whether there are records that are in no batch yet."""
        return bool(self._begun)

    def fitting(self, group: list[bytes]) -> list[list[bytes]]:
        """A list of values; one by one if together they are too large for any batch.

        Raises:
            EncodingError: one is too large by itself.
        """
        if record_batch.HEADER_BYTES + _size_of(group, 0) <= MAX_BATCH_BYTES:
            return [group]
        for value in group:
            if record_batch.HEADER_BYTES + _size_of([value], 0) > MAX_BATCH_BYTES:
                raise EncodingError(
                    f"a record of {len(value)} bytes does not fit into a batch of a snapshot,"
                    f" which may have {MAX_BATCH_BYTES} bytes"
                )
        return [[value] for value in group]

    def has_room(self, group: list[bytes]) -> bool:
        """Whether the batch may have these records, too."""
        return self._begun_bytes + _size_of(group, len(self._begun)) <= MAX_BATCH_BYTES

    def add(self, group: list[bytes]) -> None:
        """Add records to the batch."""
        for value in group:
            encoded = self._record(len(self._begun), None, value)
            self._begun.append(encoded)
            self._begun_bytes += len(encoded)

    def finish(self) -> bytes:
        """The batch; the next one begins."""
        batch = self._batch(self._begun, 0)
        self._begun, self._begun_bytes = [], record_batch.HEADER_BYTES
        return batch

    def control(self, records: Iterable[tuple[MessageSchema, Mapping[str, Any]]]) -> bytes:
        encoded = [
            self._record(
                at, _CONTROL_KEY.pack(0, _TYPE_IDS[schema.name]), encode(schema, fields, 0)
            )
            for at, (schema, fields) in enumerate(records)
        ]
        return self._batch(encoded, record_batch.CONTROL_FLAG)

    def _record(self, delta: int, key: bytes | None, value: bytes) -> bytes:
        record = Record(delta, self.created_ms, record_batch.NO_SEQUENCE, key, value)
        return encode_record(record, 0, self.created_ms)

    def _batch(self, records: Sequence[bytes], attributes: int) -> bytes:
        header = BatchHeader(
            base_offset=self._next_offset,
            length=0,
            partition_leader_epoch=self.epoch,
            magic=2,
            crc=0,
            attributes=attributes,
            last_offset_delta=len(records) - 1,
            base_timestamp=self.created_ms,
            max_timestamp=self.created_ms,
            producer_id=record_batch.NO_PRODUCER_ID,
            producer_epoch=record_batch.NO_PRODUCER_EPOCH,
            base_sequence=record_batch.NO_SEQUENCE,
            records_count=len(records),
        )
        self._next_offset += len(records)
        return encode_batch(header, b"".join(records))


def _size_of(group: Sequence[bytes], first_delta: int) -> int:
    """The bytes of records with these values; offsets take more bytes later in a batch."""
    return sum(_record_bytes(first_delta + at, len(value)) for at, value in enumerate(group))


def _record_bytes(delta: int, value_bytes: int) -> int:
    # Attributes, timestamp delta, the length of no key, and the count of headers are a byte each.
    body = 4 + _varint_bytes(delta) + _varint_bytes(value_bytes) + value_bytes
    return _varint_bytes(body) + body


def _varint_bytes(value: int) -> int:
    """The size of a zig-zag varint of 0 or more."""
    return max(1, -(-(value.bit_length() + 1) // 7))
