"""Find the first wanted record of one batch, and read no more of the batch than that takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats import record_batch
from kdump.formats.compression import Codec, decompress_chunks
from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.message_set import Message
from kdump.formats.record_batch import BatchHeader, Record
from kdump.log.headers import BatchSpan
from kdump.scan.source import read_at
from kdump.storage.byte_source import ByteSource

if TYPE_CHECKING:
    from kdump.scan.batches import BatchColumns
    from kdump.scan.records import RecordColumns
    from kdump.scan.selection import Selection

_CHUNK_BYTES: Final = 64 << 10
_MOST_HELD_BYTES: Final = 16 << 20
"""A larger record of a compressed batch is not decoded here; ``scan.records`` has that limit."""
_FEW_BYTES: Final = 1 << 20
_FEW_RECORDS: Final = 2000
"""So many records are decoded one by one in less time than importing NumPy takes."""


class FoundRecord(Struct, frozen=True):
    """A record, and the batch that holds it.

    Attributes:
        timestamp_ms: of the record; None if it has none.
        key_bytes: size of the key; None for null.
        value_bytes: size of the value; None for null.
        position: byte of the log at which the batch begins.
        batch_base_offset: the first offset of the batch; of a compressed message of magic 0 or 1,
            that of the first message in it.
        batch_last_offset: the last one.
        magic: of the batch.
        leader_epoch: of the batch; None in magic 0 and 1.
        attributes: of the batch.
        is_checked: whether the checksum of the batch was verified.
    """

    offset: int
    timestamp_ms: int | None
    key_bytes: int | None
    value_bytes: int | None
    position: int
    batch_bytes: int
    batch_base_offset: int
    batch_last_offset: int
    magic: int
    leader_epoch: int | None
    attributes: int
    is_checked: bool

    @property
    def codec(self) -> Codec:
        return Codec.of_attributes(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        return self.magic > 0 and bool(self.attributes & record_batch.LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return self.magic > 1 and bool(self.attributes & record_batch.TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return self.magic > 1 and bool(self.attributes & record_batch.CONTROL_FLAG)


def first_record(
    log: ByteSource, span: BatchSpan, wanted: Selection, most_bytes: int
) -> FoundRecord | FormatError | str | None:
    """Find the first wanted record of a batch.

    The checksum of a batch is verified, unless the batch has more than ``most_bytes``: then only
    its beginning is read, up to the record, and all of it only if ``most_bytes`` do not reach.

    Args:
        log: the segment's log.
        wanted: offsets and times of the record.
        most_bytes: how much to read of a larger batch.

    Returns:
        The record; what is wrong with the batch, if it is damaged before a wanted record; or None
        if it has no such record.

    Raises:
        OSError: the log cannot be read.
    """
    if span.size_bytes > most_bytes:
        found = _in_prefix(log, span, wanted, most_bytes)
    else:
        found = _in_few(log, span, wanted)
    return _in_columns(log, span, wanted) if found is None else found


def _in_few(log: ByteSource, span: BatchSpan, wanted: Selection) -> FoundRecord | None:
    """The record if the batch is valid and has few; None for anything else, which columns say."""
    if span.size_bytes > _FEW_BYTES:
        return None
    data = read_at(log, span.position, span.size_bytes)
    if len(data) < span.size_bytes or data[record_batch.MAGIC_START] != 2:
        return None
    header = record_batch.decode_header(data)
    if header.attributes & record_batch.CONTROL_FLAG or not record_batch.has_right_crc(data):
        return None
    if not 0 < header.records_count <= _FEW_RECORDS:
        return None
    return _first_wanted(header, data, span, wanted, is_checked=True)


def _in_columns(
    log: ByteSource, span: BatchSpan, wanted: Selection
) -> FoundRecord | FormatError | str | None:
    """As :func:`first_record`, for any batch."""
    import numpy as np

    from kdump.log.batch_validity import by_itself
    from kdump.scan.batches import LARGEST_WINDOW_BYTES, read_windows
    from kdump.scan.records import RecordColumns
    from kdump.scan.walk import MessageSet, expand_window

    at_once = min(span.size_bytes, LARGEST_WINDOW_BYTES)
    window = next(read_windows(log, span.position, span.next_position, window_bytes=at_once))
    if not window.batches.count:
        return "its checksum is wrong"
    batches = window.batches
    if batches.magic[0] >= record_batch.NEWEST_MAGIC:
        deltas = np.array([span.last_offset - span.base_offset])
        window = replace(window, batches=replace(batches, last_offset_delta=deltas))
    problem = by_itself(window)[1].get(0)
    if problem is not None:
        return problem
    for step in expand_window(window, wanted, with_records=True, only_valid=True):
        match step:
            case RecordColumns(count=count) if count:
                return _of_columns(step, span)
            case RecordColumns(problems={0: problem}):
                return problem
            case MessageSet(messages=[first, *_]):
                whole = next(expand_window(window, with_records=True, only_valid=True))
                assert isinstance(whole, MessageSet)
                return _of_message(first, span, whole.messages[0].offset, window.batches)
            case MessageSet(problem=FormatError() as problem):
                return problem
    return None


def _of_columns(records: RecordColumns, span: BatchSpan) -> FoundRecord:
    """The first of some records of a batch."""
    header = records.batches.header(int(records.batch[0]))
    key_size, value_size = int(records.key_size[0]), int(records.value_size[0])
    return _of_batch(
        header,
        span,
        int(records.offset[0]),
        int(records.timestamp[0]),
        None if key_size < 0 else key_size,
        None if value_size < 0 else value_size,
        is_checked=True,
    )


def _of_batch(
    header: BatchHeader,
    span: BatchSpan,
    offset: int,
    timestamp: int,
    key_bytes: int | None,
    value_bytes: int | None,
    *,
    is_checked: bool,
) -> FoundRecord:
    epoch = header.partition_leader_epoch
    return FoundRecord(
        offset=offset,
        timestamp_ms=_or_none(timestamp, record_batch.NO_TIMESTAMP),
        key_bytes=key_bytes,
        value_bytes=value_bytes,
        position=span.position,
        batch_bytes=span.size_bytes,
        batch_base_offset=header.base_offset,
        batch_last_offset=header.last_offset,
        magic=header.magic,
        leader_epoch=_or_none(epoch, record_batch.NO_PARTITION_LEADER_EPOCH),
        attributes=header.attributes,
        is_checked=is_checked,
    )


def _of_message(
    message: Message, span: BatchSpan, base_offset: int, batches: BatchColumns
) -> FoundRecord:
    """A message of magic 0 or 1, from the batch in the only row of ``batches``."""
    key_size, value_size = message.key_size_bytes, message.value_size_bytes
    return FoundRecord(
        offset=message.offset,
        timestamp_ms=_or_none(message.timestamp, record_batch.NO_TIMESTAMP),
        key_bytes=None if key_size < 0 else key_size,
        value_bytes=None if value_size < 0 else value_size,
        position=span.position,
        batch_bytes=span.size_bytes,
        batch_base_offset=base_offset,
        batch_last_offset=span.last_offset,
        magic=int(batches.magic[0]),
        leader_epoch=None,
        attributes=int(batches.attributes[0]),
        is_checked=True,
    )


def _or_none(value: int, nothing: int) -> int | None:
    return None if value == nothing else value


def _in_prefix(
    log: ByteSource, span: BatchSpan, wanted: Selection, prefix_bytes: int
) -> FoundRecord | None:
    """A wanted record that the first bytes of a large batch hold; None if they hold none.

    Nothing else is said of the batch: its checksum takes all bytes.
    """
    data = read_at(log, span.position, prefix_bytes)
    if len(data) < record_batch.HEADER_BYTES or data[record_batch.MAGIC_START] != 2:
        return None
    return _first_wanted(record_batch.decode_header(data), data, span, wanted, is_checked=False)


def _first_wanted(
    header: BatchHeader, data: bytes, span: BatchSpan, wanted: Selection, *, is_checked: bool
) -> FoundRecord | None:
    """The first wanted record in the beginning of a batch; None if none is, or after damage."""
    body = memoryview(data)[record_batch.HEADER_BYTES :]
    least = header.base_offset
    try:
        for record in _records(header, body):
            if not least <= record.offset <= span.last_offset:
                return None  # the columns say which records are valid
            least = record.offset + 1
            if wanted.wants(record.offset, record.timestamp):
                return _of_batch(
                    header,
                    span,
                    record.offset,
                    record.timestamp,
                    None if record.key is None else len(record.key),
                    None if record.value is None else len(record.value),
                    is_checked=is_checked,
                )
    except FormatError:
        pass  # in a prefix, mostly because the bytes end
    return None


def _records(header: BatchHeader, body: memoryview) -> Iterator[Record]:
    """The records of the beginning of a batch, decompressed no further than they are taken.

    Raises:
        FormatError: where the bytes end, or are damaged.
    """
    held = bytearray()
    left = header.records_count
    codec = Codec.of_attributes(header.attributes)
    for chunk in decompress_chunks(codec, body, chunk_bytes=_CHUNK_BYTES):
        held += chunk
        cursor = Cursor(held)
        end = 0
        while left > 0 and _has_whole_record(cursor):
            yield record_batch.decode_record(header, cursor)
            end = cursor.position
            left -= 1
        del held[:end]
        if len(held) > _MOST_HELD_BYTES:
            return


def _has_whole_record(cursor: Cursor) -> bool:
    """Whether the bytes at a cursor hold a record, by its length; the cursor stays."""
    start = cursor.position
    try:
        length = cursor.varint()
        return 0 <= length <= cursor.remaining
    except FormatError:
        return False
    finally:
        cursor.position = start
