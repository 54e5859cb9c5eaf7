"""Convert messages of magic 0 and 1 to batches of magic 2: the cleaner writes nothing else.

Follows ``MemoryRecords.filterTo``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kdump.broker.cleaner.rebuilt_batches import NewBatch
from kdump.broker.cleaner.record_retention import NO_HORIZON, RetentionRules
from kdump.formats import record_batch
from kdump.formats.compression import Codec, compress
from kdump.formats.message_set import Message
from kdump.formats.record_batch import BatchHeader, Record
from kdump.scan.batches import BatchColumns
from kdump.scan.walk import MessageSet
from kdump.target.refusal import Refused


def live_messages(found: MessageSet, rules: RetentionRules) -> list[Message]:
    """The messages that no later message replaces."""
    if not found.messages:
        return []
    offsets = np.array([message.offset for message in found.messages], np.int64)
    is_live = rules.live.columns_between(int(offsets.min()), int(offsets.max()) + 1).has(offsets)
    return [message for message, stays in zip(found.messages, is_live, strict=True) if stays]


def _as_it_is(record: Record) -> Record:
    return record


def rewritten(
    found: MessageSet,
    kept: list[Message],
    new_horizon_ms: int,
    log_name: str,
    *,
    keeps_offsets: bool = False,
    written: Callable[[Record], Record] = _as_it_is,
) -> NewBatch:
    """Write a batch of magic 2 with the messages ``kept``; there is at least one.

    Args:
        found: the messages as they are.
        kept: those that stay.
        new_horizon_ms: delete horizon of a batch with tombstones; :data:`NO_HORIZON` for none.
        log_name: for refusals.
        keeps_offsets: whether the batch begins and ends where ``found`` does, rather than with the
            first and last message that stay.
        written: what is written for each; with the same offset and time, and null where it is null.

    Raises:
        Refused: Kafka's cleaner fails on them.
    """
    batches = found.window.batches
    position = int(batches.position[0])
    outer = _outer_flags(batches)
    is_append_time = bool(outer & record_batch.LOG_APPEND_TIME_FLAG)
    append_time = int(batches.max_timestamp[0])
    timestamps = [message.timestamp for message in kept]
    if min(timestamps) < record_batch.NO_TIMESTAMP:
        raise Refused(
            f"a message has the timestamp {min(timestamps)}",
            log_name,
            "IllegalArgumentException",
            position,
        )
    has_tombstones = any(message.value is None for message in kept)
    horizon_ms = new_horizon_ms if has_tombstones else NO_HORIZON
    base_timestamp = horizon_ms if horizon_ms >= 0 else timestamps[0]
    ends = found.messages if keeps_offsets else kept
    base_offset, last_offset = ends[0].offset, ends[-1].offset
    body = b"".join(
        record_batch.encode_record(written(_record(each)), base_offset, base_timestamp)
        for each in kept
    )
    codec = Codec.of_attributes(int(batches.attributes[0]))
    max_timestamp = append_time if is_append_time else max(timestamps)
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=record_batch.NO_PARTITION_LEADER_EPOCH,
        magic=2,
        crc=0,
        attributes=outer | (record_batch.DELETE_HORIZON_FLAG if horizon_ms >= 0 else 0),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=record_batch.NO_PRODUCER_ID,
        producer_epoch=record_batch.NO_PRODUCER_EPOCH,
        base_sequence=record_batch.NO_SEQUENCE,
        records_count=len(kept),
    )
    content = body if codec is Codec.NONE else compress(codec, body)
    return NewBatch(record_batch.encode_batch(header, content), max_timestamp)


def emptied(found: MessageSet) -> NewBatch:
    """Write a batch of magic 2 without records in place of the messages, for their offsets."""
    base_offset, last_offset = found.messages[0].offset, found.messages[-1].offset
    max_timestamp = int(found.window.batches.max_timestamp[0])
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=record_batch.NO_PARTITION_LEADER_EPOCH,
        magic=2,
        crc=0,
        attributes=_outer_flags(found.window.batches) & ~record_batch.CODEC_MASK,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=record_batch.NO_TIMESTAMP,
        max_timestamp=max_timestamp,
        producer_id=record_batch.NO_PRODUCER_ID,
        producer_epoch=record_batch.NO_PRODUCER_EPOCH,
        base_sequence=record_batch.NO_SEQUENCE,
        records_count=0,
    )
    return NewBatch(record_batch.encode_batch(header, b""), max_timestamp)


def _outer_flags(batches: BatchColumns) -> int:
    """Codec and timestamp type; magic 0 has no timestamps and counts as create time."""
    mask = record_batch.CODEC_MASK
    if batches.magic[0] > 0:
        mask |= record_batch.LOG_APPEND_TIME_FLAG
    return int(batches.attributes[0]) & mask


def _record(message: Message) -> Record:
    return Record(message.offset, message.timestamp, -1, message.key, message.value)
