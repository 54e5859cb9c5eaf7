"""Committed offsets that lie beyond the end of a log, and the records that lower them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from kdump.formats.coordinator_records import decode_key, read_prefix
from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.message_decoder import MessageValue, decode
from kdump.formats.message_encoder import encode
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import NO_SEQUENCE, Record, encode_lone_record
from kdump.formats.schema import RecordType
from kdump.formats.schemas.group_coordinator import (
    LEGACY_OFFSET_COMMIT,
    OFFSET_COMMIT,
    RECORD_TYPES,
)
from kdump.state.compacted.latest_records import LatestRecords

_NO_EPOCH = -1


class LoweredOffset(Struct, frozen=True):
    """A committed offset that lies beyond the end of its log, and is set to that end.

    Attributes:
        partition: that it consumes.
        committed: what it had committed.
        end_offset: of the log; what it has committed afterwards.
        key: of its record.
        value: of the new record.
    """

    group: str
    partition: TopicPartition
    committed: int
    end_offset: int
    key: bytes
    value: bytes


def offsets_past_ends(
    latest: LatestRecords, ends: Mapping[TopicPartition, int], committing: Collection[int]
) -> list[LoweredOffset]:
    """Find the committed offsets that lie beyond the ends of their logs; in a fixed order.

    Args:
        latest: the records of a partition of ``__consumer_offsets``.
        ends: where logs end; others are not known.
        committing: the producers whose transactions a coordinator is going to commit: their offsets
            will be committed.

    Raises:
        FormatError: a record cannot be read.
    """
    newest = dict(latest.values)
    for producer_id in committing:
        for key, waiting in latest.pending.get(producer_id, {}).items():
            known = newest.get(key)
            if known is None or known.offset < waiting.offset:
                newest[key] = waiting
    found = []
    for key, record in newest.items():
        if record.value is None or latest.tombstones.get(key, -1) > record.offset:
            continue
        record_type, fields = decode_key(RECORD_TYPES, key)
        if record_type not in (OFFSET_COMMIT, LEGACY_OFFSET_COMMIT):
            continue
        partition = TopicPartition(fields["topic"], fields["partition"])
        end = ends.get(partition)
        if end is None:
            continue
        version, value = _value(record_type, record.value)
        if value["offset"] > end:
            lower = _with_offset(record_type, version, value, end)
            found.append(
                LoweredOffset(fields["group"], partition, value["offset"], end, key, lower)
            )
    return sorted(found, key=lambda each: each.key)


def lowered_ends(
    records: Iterable[tuple[bytes | None, bytes | None]],
) -> dict[TopicPartition, int]:
    """The ends of logs to which records lower committed offsets.

    Args:
        records: keys and values, each of them one for which :func:`lowers` is true.
    """
    found = dict[TopicPartition, int]()
    for key, value in records:
        assert key is not None
        assert value is not None
        record_type, fields = decode_key(RECORD_TYPES, key)
        assert record_type is not None
        partition = TopicPartition(fields["topic"], fields["partition"])
        found[partition] = _value(record_type, value)[1]["offset"]
    return found


def lowers(latest: LatestRecords, key: bytes | None, value: bytes | None) -> bool:
    """Whether a record is one that lowers a committed offset of a log, and changes nothing else.

    Args:
        latest: the records of the log.
        key: of the record.
        value: of the record.

    Raises:
        FormatError: it cannot be read, or what it replaces.
    """
    if key is None or value is None:
        return False
    record_type, _ = decode_key(RECORD_TYPES, key)
    if record_type not in (OFFSET_COMMIT, LEGACY_OFFSET_COMMIT):
        return False
    offset = _value(record_type, value)[1]["offset"]
    for known in (latest.values.get(key), *(own.get(key) for own in latest.pending.values())):
        if known is not None and known.value is not None:
            version, old = _value(record_type, known.value)
            if old["offset"] > offset and _with_offset(record_type, version, old, offset) == value:
                return True
    return False


def _with_offset(record_type: RecordType, version: int, value: MessageValue, offset: int) -> bytes:
    lower = {**value, "offset": offset}
    if "leaderEpoch" in lower:
        lower["leaderEpoch"] = _NO_EPOCH
    return version.to_bytes(2, "big") + encode(record_type.value, lower, version)


def _value(record_type: RecordType, data: bytes) -> tuple[int, MessageValue]:
    cursor = Cursor(data)
    version = read_prefix(cursor, "value")
    if version not in record_type.value.versions:
        raise FormatError("unknown version of a committed offset", found=version)
    return version, decode(record_type.value, cursor, version)


def record_batches(
    records: Iterable[tuple[bytes, bytes]], base_offset: int, leader_epoch: int, timestamp_ms: int
) -> Iterator[bytes]:
    """The batches of records, as a coordinator appends them; one for each record.

    Args:
        records: keys and values.
        base_offset: where the log ends.
        leader_epoch: the latest of the log.
    """
    for offset, (key, value) in enumerate(records, base_offset):
        record = Record(offset, timestamp_ms, NO_SEQUENCE, key, value)
        yield encode_lone_record(record, leader_epoch)
