"""The batches of a segment as columns, read front to back in windows of bounded size.

The walk is Kafka's (``FileLogInputStream``): the length of each batch leads to the next one, and
nothing is checked that the walk does not need. A :class:`Stop` says where it ends and why.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from kdump.formats import message_set, record_batch
from kdump.formats.checksum import crc32c
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.scan import compiled_loops
from kdump.scan.header_columns import HEADER_DTYPE
from kdump.scan.last_block import LastBlock
from kdump.scan.source import shortened
from kdump.storage.byte_source import ByteSource

WINDOW_BYTES: Final = 2 << 20
"""How much of a file is read at once: enough for what is done once for each window not to show,
little enough for the columns of a window to stay in the CPU's cache."""
LARGEST_WINDOW_BYTES: Final = 4 << 20
"""A larger batch is never held in memory as a whole: see :attr:`Window.is_giant`."""
PADDING_BYTES: Final = 64
"""Zeroes after the bytes of a window, so that columns can be read a little past its end."""

_LENGTH: Final = struct.Struct(">i")
_LENGTH_TO_CRC: Final = struct.Struct(
    f">i{record_batch.CRC_START - record_batch.LOG_OVERHEAD_BYTES}xI"
)
"""What the walk reads of a batch from its length field on: the length and magic 2's checksum."""
_HEADER: Final = np.dtype((np.void, record_batch.HEADER_BYTES))
_CHECKSUM_STEP_BYTES: Final = 1 << 20
_GROWTH: Final = 4

Bytes = npt.NDArray[np.uint8]
Column = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class BatchColumns(msgspec.Struct, frozen=True):
    """The headers of n batches; every column has shape (n,) and type int64, except the last.

    With magic 0 and 1, a batch is one message, plain or with a compressed set in it:
    ``base_offset`` is the message's own offset, ``last_offset_delta`` is 0, both timestamps are
    the message's (-1 in magic 0), and ``records_count`` and fields that these magics lack are -1.
    """

    position: Column
    """Byte of the file where the batch begins."""
    size_bytes: Column
    base_offset: Column
    partition_leader_epoch: Column
    magic: Column
    crc: Column
    attributes: Column
    last_offset_delta: Column
    base_timestamp: Column
    max_timestamp: Column
    producer_id: Column
    producer_epoch: Column
    base_sequence: Column
    records_count: Column
    is_valid: Flags
    """Whether the checksum holds and the size can hold a header (``RecordBatch.isValid``)."""

    @property
    def count(self) -> int:
        """How many batches."""
        return len(self.position)

    @property
    def last_offset(self) -> Column:
        return self.base_offset + self.last_offset_delta

    @property
    def next_position(self) -> Column:
        """Byte of the file where each batch ends, exclusive."""
        return self.position + self.size_bytes

    @property
    def is_compressed_set(self) -> Flags:
        """Which are compressed sets of magic 0 and 1, whose headers do not count messages."""
        codec = self.attributes & record_batch.CODEC_MASK
        found: Flags = (self.magic < 2) & (codec != Codec.NONE)
        return found

    @property
    def counts(self) -> Column:
        """How many records each has by its header; 1 of magic 0 and 1, also of a compressed set."""
        return np.where(self.magic < 2, 1, self.records_count)

    def header(self, row: int) -> record_batch.BatchHeader:
        """Return the header of one batch as a value."""
        return record_batch.BatchHeader(
            base_offset=int(self.base_offset[row]),
            length=int(self.size_bytes[row]) - record_batch.LOG_OVERHEAD_BYTES,
            partition_leader_epoch=int(self.partition_leader_epoch[row]),
            magic=int(self.magic[row]),
            crc=int(self.crc[row]),
            attributes=int(self.attributes[row]),
            last_offset_delta=int(self.last_offset_delta[row]),
            base_timestamp=int(self.base_timestamp[row]),
            max_timestamp=int(self.max_timestamp[row]),
            producer_id=int(self.producer_id[row]),
            producer_epoch=int(self.producer_epoch[row]),
            base_sequence=int(self.base_sequence[row]),
            records_count=int(self.records_count[row]),
        )

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns by name, in order."""
        return {name: getattr(self, name) for name in BatchColumns.__struct_fields__}

    def rows(self, keep: slice | Flags | Column) -> BatchColumns:
        """Return only some rows of each column."""
        return BatchColumns(**{name: column[keep] for name, column in self.columns().items()})

    @staticmethod
    def joined(parts: Sequence[BatchColumns]) -> BatchColumns:
        """Return the rows of one or more parts, in order."""
        columns = [part.columns() for part in parts]
        return BatchColumns(
            **{name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
        )


class StopReason(enum.Enum):
    """Why the walk over the batches of a file ended."""

    END = "end"
    """Exactly at the end of the file."""
    ZERO_FILL = "zero fill"
    """A length of 0 among zeroes: preallocated space."""
    SHORT_TAIL = "short tail"
    """Too few bytes are left for the start of a batch."""
    TORN_TAIL = "torn tail"
    """The last batch claims more bytes than the file has."""
    BAD_LENGTH = "bad length"
    """A length that no batch can have."""
    TORN_HEADER = "torn header"
    """A batch that is too small for its own header, at the end of the file."""


class Stop(msgspec.Struct, frozen=True):
    """Where the walk ended and why; ``problem`` is None only at a clean end."""

    position: int
    reason: StopReason
    problem: FormatError | None = None

    @property
    def is_fatal_to_kafka(self) -> bool:
        """Whether Kafka's reader throws here; otherwise it takes this for the end of the log."""
        return self.reason in (
            StopReason.ZERO_FILL,
            StopReason.BAD_LENGTH,
            StopReason.TORN_HEADER,
        )


class Window(msgspec.Struct, frozen=True):
    """Consecutive whole batches and their bytes.

    Attributes:
        data: the bytes from file position ``start`` on, then :data:`PADDING_BYTES` zeroes.
        start: file position of ``data[0]``.
        batches: one row for each batch, in file order.
        stop: where the walk ended; only in the last window.
    """

    source: ByteSource
    data: Bytes
    start: int
    batches: BatchColumns
    stop: Stop | None = None

    @property
    def is_giant(self) -> bool:
        """Whether this is one batch that is too large to hold; ``data`` is its header only."""
        return (
            self.batches.count == 1
            and int(self.batches.size_bytes[0]) > len(self.data) - PADDING_BYTES
        )

    def rows(self, keep: slice | Flags) -> Window:
        """Return only some of the batches."""
        return replace(self, batches=self.batches.rows(keep))

    def batch_bytes(self, row: int) -> memoryview:
        """Return the bytes of one batch, header included; not for a giant."""
        begin = int(self.batches.position[row]) - self.start
        return memoryview(self.data)[begin : begin + int(self.batches.size_bytes[row])]


def read_windows(
    source: ByteSource,
    start: int = 0,
    end: int | None = None,
    *,
    checksums: bool = True,
    window_bytes: int = WINDOW_BYTES,
    first_bytes: int | None = None,
    buffer: Bytes | None = None,
    needed_end: int | None = None,
) -> Iterator[Window]:
    """Walk the batches of ``source`` from byte ``start``, where a batch must begin.

    Memory grows neither with the file nor with the lengths in it: a batch of more than
    :data:`LARGEST_WINDOW_BYTES` comes alone, as a giant.

    Args:
        start: byte to begin at.
        end: byte at which the file counts as ended; None for its real end.
        checksums: whether to verify checksums; otherwise ``is_valid`` only covers sizes.
        window_bytes: how much to read at once.
        first_bytes: how much to read first; later windows grow to ``window_bytes``. For callers
            that may need only a few batches.
        buffer: where to read to if the bytes fit. A window is then valid only until the next one
            is requested, but no memory is allocated for each.
        needed_end: where the caller probably stops: a window ends there rather than past it.

    Yields:
        Windows without gaps between them. The last one has the stop, and may have no batch.

    Raises:
        OSError: reading fails.
    """
    end = source.size_bytes if end is None else min(end, source.size_bytes)
    position = start
    # The walk must see a header before it can say that a batch is not whole.
    usual = max(first_bytes or window_bytes, record_batch.HEADER_BYTES)
    wanted = _up_to(needed_end, position, usual)
    while True:
        data = _read_padded(source, position, min(wanted, end - position), buffer)
        available_bytes = len(data) - PADDING_BYTES
        starts, broken, walked, stop = _walk(data, available_bytes, position, end, checksums)
        if not starts and stop is None:
            claimed = (
                record_batch.LOG_OVERHEAD_BYTES
                + _LENGTH.unpack_from(data, record_batch.LENGTH_START)[0]
            )
            if claimed > LARGEST_WINDOW_BYTES or _is_falsely_long(source, data, position, claimed):
                window = _giant(source, data, position, claimed, checksums)
                yield window
                position += claimed
                wanted = _up_to(needed_end, position, usual)
            else:
                wanted = max(claimed, record_batch.HEADER_BYTES)
            continue
        columns = _columns(data, np.array(starts, np.int64), walked, position)
        if broken:
            columns.is_valid[broken] = False
        _fill_legacy(data, starts, columns, checksums)
        yield Window(source, data, position, columns, stop)
        if stop is not None:
            return
        position += walked
        if walked >= available_bytes // 2:
            usual = min(usual * _GROWTH, window_bytes)
        wanted = _up_to(needed_end, position, usual)


def whole_batches(data: Bytes, *, checksums: bool) -> tuple[BatchColumns, int]:
    """Read the whole batches with which bytes begin, and where they end; all as of magic 2.

    Args:
        data: the bytes, then :data:`PADDING_BYTES` zeroes.
        checksums: as for :func:`read_windows`.
    """
    size_bytes = len(data) - PADDING_BYTES
    starts, broken, walked, _ = _walk(data, size_bytes, 0, size_bytes, checksums)
    columns = _columns(data, np.array(starts, np.int64), walked, 0)
    columns.is_valid[broken] = False
    return columns, walked


def is_among(values: Column, others: Column) -> Flags:
    """Which of ``values`` are in ``others``, which rise."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(others, values), len(others) - 1)
    found: Flags = others[at] == values
    return found


def _up_to(needed_end: int | None, position: int, size: int) -> int:
    """How much to read for a window of ``size`` that ends where the caller probably stops."""
    if needed_end is None or needed_end <= position:
        return size
    return max(record_batch.HEADER_BYTES, min(size, needed_end - position))


def new_buffer(window_bytes: int) -> Bytes:
    """Return a buffer for a window of this size."""
    return np.empty(window_bytes + PADDING_BYTES, np.uint8)


def _read_padded(source: ByteSource, position: int, size: int, buffer: Bytes | None) -> Bytes:
    size = max(size, 0)
    if buffer is None or size + PADDING_BYTES > len(buffer):
        buffer = new_buffer(size)
    data = buffer[: size + PADDING_BYTES]
    filled = source.read_into(memoryview(data)[:size], position)
    if filled < size:
        raise shortened(position + filled)
    data[size:] = 0
    return data


def _walk(
    data: Bytes, available: int, position: int, end: int, checksums: bool
) -> tuple[list[int], list[int], int, Stop | None]:
    """Step from batch to batch and verify the checksums of magic 2, if ``checksums`` is set.

    Returns the starts of the whole batches in ``data``, the rows with a wrong checksum (this
    means nothing for magic 0 and 1), where the last batch ends, and the stop if it is here.
    """
    starts, broken, at = compiled_loops.whole_batches(data, available, checksums)
    view = memoryview(data)
    unpack = _LENGTH_TO_CRC.unpack_from
    compute = crc32c
    add = starts.append
    remaining = end - position
    prefix, overhead = record_batch.PREFIX_BYTES, record_batch.LOG_OVERHEAD_BYTES
    length_start, covered = record_batch.LENGTH_START, record_batch.CHECKED_START
    least, magic_start = record_batch.MIN_LENGTH_BYTES, record_batch.MAGIC_START
    header = record_batch.HEADER_BYTES
    while at + prefix < available:
        length, crc = unpack(view, at + length_start)
        following = at + overhead + length
        if following > available or length < header:
            if length < least:
                return starts, broken, at, _bad_length(data, at, position, end, length)
            if following > remaining:
                return starts, broken, at, _torn(position + at, length, remaining - at)
            if following > available:
                break
            # A header that is larger than its batch extends into the bytes after the batch.
            if view[at + magic_start] in range(2, 128) and at + header > available:
                if at + header <= remaining:
                    break
                return starts, broken, at, _torn_header(position + at, length)
        if checksums and compute(view[at + covered : following]) != crc:
            broken.append(len(starts))
        add(at)
        at = following
    if position + available < end:
        return starts, broken, at, None
    if at == remaining:
        return starts, broken, at, Stop(position + at, StopReason.END)
    problem = FormatError(
        "too few bytes for a batch at the end of the file",
        position=position + at,
        expected=f"more than {prefix} bytes or none",
        found=remaining - at,
    )
    return starts, broken, at, Stop(position + at, StopReason.SHORT_TAIL, problem)


def _bad_length(data: Bytes, at: int, position: int, end: int, length: int) -> Stop:
    is_zero = not data[at : at + record_batch.PREFIX_BYTES].any()
    reason = StopReason.ZERO_FILL if is_zero else StopReason.BAD_LENGTH
    what = "zeroes instead of a batch" if is_zero else "batch length is impossible"
    problem = FormatError(
        what,
        position=position + at,
        expected=f"a length of {record_batch.MIN_LENGTH_BYTES} or more",
        found=f"{length} ({end - position - at} bytes to the end of the file)",
    )
    return Stop(position + at, reason, problem)


def _torn(position: int, length: int, remaining: int) -> Stop:
    problem = FormatError(
        "batch reaches past the end of the file",
        position=position,
        expected=f"{record_batch.LOG_OVERHEAD_BYTES + length} bytes",
        found=remaining,
    )
    return Stop(position, StopReason.TORN_TAIL, problem)


def _torn_header(position: int, length: int) -> Stop:
    problem = FormatError(
        "batch is too small for its header",
        position=position,
        expected=f"a length of {record_batch.HEADER_BYTES - record_batch.LOG_OVERHEAD_BYTES}"
        " or more",
        found=length,
    )
    return Stop(position, StopReason.TORN_HEADER, problem)


def _columns(data: Bytes, starts: Column, walked: int, position: int) -> BatchColumns:
    """Return the magic 2 headers that begin at ``starts``; checksums are not verified here."""
    # View every byte of the window as the start of a header, then pick the right ones: several
    # times faster than gathering them byte by byte.
    anywhere = np.ndarray(len(data) - record_batch.HEADER_BYTES + 1, _HEADER, data, 0, (1,))
    fields = anywhere[starts].view(HEADER_DTYPE)
    size_bytes = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=size_bytes[:-1])
    size_bytes[-1:] = walked - starts[-1:]
    return BatchColumns(
        position=starts + position,
        size_bytes=size_bytes,
        base_offset=fields["base_offset"].astype(np.int64),
        partition_leader_epoch=fields["partition_leader_epoch"].astype(np.int64),
        magic=fields["magic"].astype(np.int64),
        crc=fields["crc"].astype(np.int64),
        attributes=fields["attributes"].astype(np.int64),
        last_offset_delta=fields["last_offset_delta"].astype(np.int64),
        base_timestamp=fields["base_timestamp"].astype(np.int64),
        max_timestamp=fields["max_timestamp"].astype(np.int64),
        producer_id=fields["producer_id"].astype(np.int64),
        producer_epoch=fields["producer_epoch"].astype(np.int64),
        base_sequence=fields["base_sequence"].astype(np.int64),
        records_count=fields["records_count"].astype(np.int64),
        is_valid=size_bytes >= record_batch.HEADER_BYTES,
    )


def _fill_legacy(data: Bytes, starts: list[int], columns: BatchColumns, checksums: bool) -> None:
    """Replace the rows of magic 0 and 1, which were read as magic 2."""
    is_legacy = columns.magic < 2
    if not is_legacy.any():
        return
    rows = np.flatnonzero(is_legacy)
    view = memoryview(data)
    for column in (
        columns.partition_leader_epoch,
        columns.producer_id,
        columns.producer_epoch,
        columns.base_sequence,
        columns.records_count,
    ):
        column[rows] = -1
    columns.last_offset_delta[rows] = 0
    for row in rows.tolist():
        begin = starts[row]
        entry = view[begin : begin + int(columns.size_bytes[row])]
        try:
            header = message_set.decode_header(view, begin)
        except FormatError:
            # No Kafka wrote a magic below 0: no field means anything.
            columns.attributes[row] = 0
            columns.base_timestamp[row] = columns.max_timestamp[row] = -1
            columns.is_valid[row] = False
            continue
        columns.crc[row] = header.crc
        columns.attributes[row] = header.attributes
        columns.base_timestamp[row] = columns.max_timestamp[row] = header.timestamp
        columns.is_valid[row] = not checksums or message_set.is_valid(entry)


def _giant(
    source: ByteSource, data: Bytes, position: int, size_bytes: int, checksums: bool
) -> Window:
    header = np.zeros(record_batch.HEADER_BYTES + PADDING_BYTES, np.uint8)
    header[: record_batch.HEADER_BYTES] = data[: record_batch.HEADER_BYTES]
    columns = _columns(header, np.zeros(1, np.int64), size_bytes, position)
    _fill_legacy(header, [0], columns, checksums=False)
    if checksums:
        columns.is_valid[0] = int(columns.crc[0]) == _giant_checksum(
            source, columns, position, size_bytes
        )
    return Window(source, header, position, columns)


def _is_falsely_long(source: ByteSource, data: Bytes, position: int, size_bytes: int) -> bool:
    """Whether a batch that has not been read as a whole has a wrong checksum, after damage.

    A false length is not worth reading so many bytes.
    """
    magic = int(data[record_batch.MAGIC_START])
    if not isinstance(source, LastBlock) or magic > record_batch.NEWEST_MAGIC:
        return False
    end = position + size_bytes
    if magic < record_batch.NEWEST_MAGIC:
        stored = data[record_batch.LOG_OVERHEAD_BYTES : message_set.CHECKED_START]
        computed = source.crc32(position + message_set.CHECKED_START, end)
    else:
        stored = data[record_batch.CRC_START : record_batch.CHECKED_START]
        computed = source.crc32c(position + record_batch.CHECKED_START, end)
    return int.from_bytes(stored.tobytes(), "big") != computed


def _giant_checksum(
    source: ByteSource, columns: BatchColumns, position: int, size_bytes: int
) -> int:
    is_legacy = int(columns.magic[0]) < 2
    first = message_set.CHECKED_START if is_legacy else record_batch.CHECKED_START
    if isinstance(source, LastBlock):
        checksum = source.crc32 if is_legacy else source.crc32c
        return checksum(position + first, position + size_bytes)
    computed = 0
    for chunk in read_chunks(source, position + first, position + size_bytes):
        computed = (message_set.update_crc if is_legacy else crc32c)(chunk, computed)
    return computed


def read_chunks(
    source: ByteSource, start: int, end: int, chunk_bytes: int = _CHECKSUM_STEP_BYTES
) -> Iterator[memoryview]:
    """Read the bytes from ``start`` to ``end`` in pieces, each in its own buffer."""
    for position in range(start, end, chunk_bytes):
        size = min(chunk_bytes, end - position)
        buffer = memoryview(bytearray(size))
        if source.read_into(buffer, position) < size:
            raise shortened(position)
        yield buffer
