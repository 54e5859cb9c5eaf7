"""Records of Kafka 0.7, from which the columns of ``kafka-log`` are built.

An offset is a byte position in the stream of everything that was written to the partition. The
messages of a compressed set have the offset of the set, as in ``dump-segment``. There were no keys,
headers, timestamps or transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from kdump.formats import kafka07, record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.kafka07 import Message07, Stop07, StopReason07
from kdump.log.valid_windows import Damage
from kdump.scan.batches import BatchColumns, Column
from kdump.scan.walk_0_7 import Skipped07, read_entry, valid_messages
from kdump.storage.byte_source import ByteSource
from kdump.tables.kafka_log.rows import HEADERS_TYPE, Rows
from kdump.tables.kafka_log.splits import SourceSplit

_ROWS_TOGETHER: Final = 4096
_BYTES_TOGETHER: Final = 4 << 20
_MAGIC: Final = 0
"""As the messages of magic 0, those of Kafka 0.7 have no timestamps."""


class _Chunk(Struct):
    """Messages for one Arrow batch, each with the entry of the log that holds it."""

    entries: list[Message07]
    entry_of: list[int]
    payloads: list[bytes]
    size_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.payloads) >= _ROWS_TOGETHER or self.size_bytes >= _BYTES_TOGETHER


def rows_0_7(split: SourceSplit, largest_record_bytes: int) -> Iterator[Rows | Damage]:
    """Yield the records of a whole log of Kafka 0.7, and the damage between them, in order.

    Of a damaged compressed set there are no records.

    Raises:
        OSError: the log cannot be read.
    """
    with split.path.open_file() as log:
        chunk = _Chunk([], [], [])
        for found in valid_messages(log):
            if isinstance(found, Message07):
                offset = split.segment.least_offset + found.position
                if split.to_offset is not None and offset >= split.to_offset:
                    break
                if offset < split.from_offset:
                    continue
                payloads = _payloads(found, largest_record_bytes)
                if not isinstance(payloads, FormatError):
                    chunk.entry_of += [len(chunk.entries)] * len(payloads)
                    chunk.entries.append(found)
                    chunk.payloads += payloads
                    chunk.size_bytes += sum(map(len, payloads))
                    if not chunk.is_full:
                        continue
                    damage = None
                else:
                    end = found.position + found.size_bytes
                    damage = Damage(str(split.path), found.position, end, payloads)
            elif _is_padding(log, found, split):
                continue
            else:
                damage = Damage(str(split.path), found.start, found.end, found.problem)
            if chunk.payloads:
                yield _rows(split, chunk)
                chunk = _Chunk([], [], [])
            if damage is not None:
                yield damage
        if chunk.payloads:
            yield _rows(split, chunk)


def _payloads(entry: Message07, largest_bytes: int) -> list[bytes] | FormatError:
    """The messages of an entry; what is wrong with it if it is a damaged set."""
    try:
        if entry.codec is Codec.NONE:
            return [entry.payload]
        inner = kafka07.inner_messages(entry, largest_bytes=largest_bytes)
        return [message.payload for message in inner]
    except FormatError as problem:
        return problem.as_value()


def _is_padding(log: ByteSource, skipped: Skipped07, split: SourceSplit) -> bool:
    """Whether bytes without a message are space that was preallocated at the end of the log."""
    if not split.segment.may_be_padded or skipped.end < log.size_bytes:
        return False
    entry = read_entry(log, skipped.start)
    return isinstance(entry, Stop07) and entry.reason is StopReason07.ZERO_FILL


def _rows(split: SourceSplit, chunk: _Chunk) -> Rows:
    count = len(chunk.payloads)
    batches = _batches(split, chunk.entries)
    batch = np.array(chunk.entry_of, np.int64)
    return Rows(
        origin=split.origin,
        batches=batches,
        batch=batch,
        offset=batches.base_offset[batch],
        timestamp=np.full(count, record_batch.NO_TIMESTAMP, np.int64),
        sequence=np.full(count, record_batch.NO_SEQUENCE, np.int64),
        state=None,
        key=lambda: pa.nulls(count, pa.binary()),
        value=lambda: pa.array(chunk.payloads, pa.binary()),
        headers=lambda: pa.nulls(count, HEADERS_TYPE),
    )


def _batches(split: SourceSplit, entries: Sequence[Message07]) -> BatchColumns:
    """The entries as batches, with -1 for what they do not have."""
    position = np.array([entry.position for entry in entries], np.int64)
    none: Column = np.full(len(entries), -1, np.int64)
    return BatchColumns(
        position=position,
        size_bytes=np.array([entry.size_bytes for entry in entries], np.int64),
        base_offset=split.segment.least_offset + position,
        partition_leader_epoch=none,
        magic=np.full(len(entries), _MAGIC, np.int64),
        crc=np.array([entry.crc for entry in entries], np.int64),
        attributes=np.array([entry.attributes & kafka07.CODEC_MASK for entry in entries], np.int64),
        last_offset_delta=np.zeros(len(entries), np.int64),
        base_timestamp=none,
        max_timestamp=none,
        producer_id=none,
        producer_epoch=none,
        base_sequence=none,
        records_count=none,
        is_valid=np.ones(len(entries), np.bool_),
    )
