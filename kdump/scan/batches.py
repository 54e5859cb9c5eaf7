"""The batches of a segment as columns, read front to back in windows of bounded size.

The walk is Kafka's (``FileLogInputStream``): each batch says how long it is, nothing else is
trusted to find the next one, and nothing is checked that the walk does not need. Where it ends,
a :class:`Stop` says why.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import crc32c
import numpy as np
import numpy.typing as npt

from kdump.formats import message_set, record_batch
from kdump.formats.errors import FormatError
from kdump.storage.byte_source import ByteSource

WINDOW_BYTES: Final = 1 << 20
"""How much of a file is looked at together: columns of a window stay within a core's cache."""
LARGEST_WINDOW_BYTES: Final = 4 << 20
"""A batch of more bytes than this is never held as a whole: see :attr:`Window.is_giant`."""
PADDING_BYTES: Final = 64
"""Zeroes behind the bytes of a window, so that columns may be read a little past its end."""

_LENGTH: Final = struct.Struct(">i")
_LENGTH_TO_CRC: Final = struct.Struct(
    f">i{record_batch.CRC_START - record_batch.LOG_OVERHEAD_BYTES}xI"
)
"""What the walk reads of a batch, from its length on: the length and the checksum of magic 2."""
_HEADER: Final = np.dtype((np.void, record_batch.HEADER_BYTES))
_CHECKSUM_STEP_BYTES: Final = 1 << 20
_GROWTH: Final = 4

Bytes = npt.NDArray[np.uint8]
Column = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The headers of n batches, each column an array of shape (n,) and type int64 but the last.

    For magic 0 and 1 a batch is one message, plain or wrapping a set: ``base_offset`` is then
    its own offset, as ``last_offset_delta`` is 0, both times are the message's (-1 in magic 0),
    ``records_count`` is -1 (not known), and what these magics do not have is -1.
    """

    position: Column
    """Byte of the file at which the batch begins."""
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
        """Byte of the file behind each batch."""
        return self.position + self.size_bytes

    def header(self, row: int) -> record_batch.BatchHeader:
        """One batch's header as a value."""
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
        """Each column under its name, in order."""
        return {name: getattr(self, name) for name in BatchColumns.__slots__}

    def rows(self, keep: slice | Flags | Column) -> BatchColumns:
        """Only some rows of each column."""
        return BatchColumns(**{name: column[keep] for name, column in self.columns().items()})


class StopReason(enum.Enum):
    """Why the walk over the batches of a file ended."""

    END = "end"
    """Exactly at the end of the file."""
    ZERO_FILL = "zero fill"
    """A length of 0 among zeroes: space that was set aside and never written."""
    SHORT_TAIL = "short tail"
    """Bytes are left, but not enough for what every batch begins with."""
    TORN_TAIL = "torn tail"
    """The last batch claims more bytes than the file has."""
    BAD_LENGTH = "bad length"
    """A length that no batch can have."""
    TORN_HEADER = "torn header"
    """A batch too small for its own header, at the end of the file."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the walk ended and why; ``problem`` is None only at a clean end."""

    position: int
    reason: StopReason
    problem: FormatError | None = None

    @property
    def is_fatal_to_kafka(self) -> bool:
        """Whether Kafka's reader throws there, rather than taking it for the end of the log."""
        return self.reason in (
            StopReason.ZERO_FILL,
            StopReason.BAD_LENGTH,
            StopReason.TORN_HEADER,
        )


@dataclass(frozen=True, slots=True)
class Window:
    """Some whole batches in a row, and their bytes.

    Attributes:
        source: what was read.
        data: the bytes, from file position ``start`` on, with :data:`PADDING_BYTES` of zeroes.
        start: file position of ``data[0]``.
        batches: one row a batch, in the order of the file.
        stop: where the walk ended, in the last window only.
    """

    source: ByteSource
    data: Bytes
    start: int
    batches: BatchColumns
    stop: Stop | None = None

    @property
    def is_giant(self) -> bool:
        """Whether this is one batch that is too large to hold: ``data`` is then its header."""
        return (
            self.batches.count == 1
            and int(self.batches.size_bytes[0]) > len(self.data) - PADDING_BYTES
        )

    def rows(self, keep: slice | Flags) -> Window:
        """Only some of the batches."""
        return replace(self, batches=self.batches.rows(keep))

    def batch_bytes(self, row: int) -> memoryview:
        """The bytes of one batch, header included; not for a giant."""
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
) -> Iterator[Window]:
    """Walk the batches of ``source`` from byte ``start``, which must be a batch's first.

    Memory does not grow with the file, nor with what a header claims: a batch of more than
    :data:`LARGEST_WINDOW_BYTES` comes alone, as a giant.

    Args:
        source: the file.
        start: byte at which to begin.
        end: byte at which the file is taken to end (by default where it does).
        checksums: whether to compute them; without, ``is_valid`` speaks of sizes only.
        window_bytes: how much to read together.
        first_bytes: how much at first, and then more from window to window; for whoever may soon
            go on elsewhere.
        buffer: where bytes are read to as far as they fit; a window is then good only until the
            next one is asked for, but nobody has to make room for each.

    Yields:
        Windows without gaps between them; the last one, which may hold no batch, has the stop.

    Raises:
        OSError: when reading fails.
    """
    end = source.size_bytes if end is None else min(end, source.size_bytes)
    position = start
    wanted = usual = first_bytes or window_bytes
    while True:
        data = _read_padded(source, position, min(wanted, end - position), buffer)
        available = len(data) - PADDING_BYTES
        starts, broken, walked, stop = _walk(data, available, position, end, checksums)
        if not starts and stop is None:
            claimed = (
                record_batch.LOG_OVERHEAD_BYTES
                + _LENGTH.unpack_from(data, record_batch.LENGTH_START)[0]
            )
            if claimed > LARGEST_WINDOW_BYTES:
                window = _giant(source, data, position, claimed, checksums)
                yield window
                position += claimed
                wanted = usual
            else:
                wanted = max(claimed, record_batch.HEADER_BYTES)
            continue
        columns = _columns(data, np.array(starts, np.int64), walked, position)
        columns.is_valid[broken] = False
        _fill_legacy(data, starts, columns, checksums)
        yield Window(source, data, position, columns, stop)
        if stop is not None:
            return
        position += walked
        wanted = usual = min(usual * _GROWTH, window_bytes)


def new_buffer(window_bytes: int) -> Bytes:
    """Room for a window of so many bytes."""
    return np.empty(window_bytes + PADDING_BYTES, np.uint8)


def _read_padded(source: ByteSource, position: int, size: int, buffer: Bytes | None) -> Bytes:
    size = max(size, 0)
    if buffer is None or size + PADDING_BYTES > len(buffer):
        buffer = new_buffer(size)
    data = buffer[: size + PADDING_BYTES]
    filled = source.read_into(memoryview(data)[:size], position)
    if filled < size:
        raise OSError(f"the file became shorter while it was read (at byte {position + filled})")
    data[size:] = 0
    return data


def _walk(
    data: Bytes, available: int, position: int, end: int, checksums: bool
) -> tuple[list[int], list[int], int, Stop | None]:
    """Hop from batch to batch, and compute the checksums of magic 2 on the way, if wanted.

    Gives the starts of the whole batches in ``data``, which of them have another checksum (of
    magic 0 and 1 that says nothing), how far they reach, and the stop if it is here.
    """
    starts: list[int] = []
    broken: list[int] = []
    view = memoryview(data)
    unpack = _LENGTH_TO_CRC.unpack_from
    compute = crc32c.crc32c
    add = starts.append
    at = 0
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
            # A header that is larger than its batch is read on into whatever follows.
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
        "bytes too few for a batch at the end of the file",
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
    """What the headers of magic 2 say that begin at ``starts``; nothing is known of checksums."""
    # Every byte of the window as the first of a header, of which the right ones are taken: several
    # times as fast as to gather them byte by byte.
    anywhere = np.ndarray(len(data) - record_batch.HEADER_BYTES + 1, _HEADER, data, 0, (1,))
    fields = anywhere[starts].view(record_batch.HEADER_DTYPE)
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
    """Put what messages of magic 0 and 1 say where the fields of magic 2 were read."""
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
            # A magic below 0, which nothing ever wrote: no field means anything.
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


def _giant_checksum(
    source: ByteSource, columns: BatchColumns, position: int, size_bytes: int
) -> int:
    is_legacy = int(columns.magic[0]) < 2
    first = message_set.CHECKED_START if is_legacy else record_batch.CHECKED_START
    computed = 0
    for chunk in read_chunks(source, position + first, position + size_bytes):
        if is_legacy:
            computed = message_set.update_crc(chunk, computed)
        else:
            computed = crc32c.crc32c(chunk, computed)
    return computed


def read_chunks(
    source: ByteSource, start: int, end: int, chunk_bytes: int = _CHECKSUM_STEP_BYTES
) -> Iterator[memoryview]:
    """The bytes from ``start`` to ``end`` in pieces, each in a buffer of its own."""
    for position in range(start, end, chunk_bytes):
        size = min(chunk_bytes, end - position)
        buffer = memoryview(bytearray(size))
        if source.read_into(buffer, position) < size:
            raise OSError(f"the file became shorter while it was read (at byte {position})")
        yield buffer
