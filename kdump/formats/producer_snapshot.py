"""The producer snapshot (``.snapshot``): the state of a partition's producers at an offset.

A header, then the entries. The checksum is CRC-32C over everything after itself, including bytes
after the last entry.

Follows ``org.apache.kafka.storage.internals.log.ProducerStateManager`` (``readSnapshot`` and
``writeSnapshot``) and the schema ``ProducerSnapshot``. Errors have Kafka's messages, because its
dump tool prints them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kdump.formats.checksum import crc32c
from kdump.formats.errors import FormatError
from kdump.formats.fixed_layout import field_start, layout
from kdump.formats.record_batch import wrap_int32

HEADER_FIELDS: Final = (
    ("version", "h"),
    ("crc", "I"),
    ("entries_count", "i"),
)
ENTRY_FIELDS: Final = (
    ("producer_id", "q"),
    ("epoch", "h"),
    ("last_sequence", "i"),
    ("last_offset", "q"),
    ("offset_delta", "i"),
    ("timestamp", "q"),
    ("coordinator_epoch", "i"),
    ("current_txn_first_offset", "q"),
)
"""Header and entry, in the order of the bytes: name and struct format of each field."""

HEADER_BYTES: Final = layout(HEADER_FIELDS).size
_ENTRY: Final = layout(ENTRY_FIELDS)
ENTRY_BYTES: Final = _ENTRY.size

CRC_START: Final = field_start(HEADER_FIELDS, "crc")
COUNT_START: Final = field_start(HEADER_FIELDS, "entries_count")
CHECKED_START: Final = COUNT_START
"""First byte that the checksum covers."""

VERSION: Final = 1
"""The only version that Kafka reads, and the one that it writes."""

_INT32_MAX: Final = 2**31 - 1


class ProducerEntry(Struct, frozen=True):
    """The state of one producer; times in milliseconds since 1970, offsets -1 where there is none.

    Attributes:
        epoch: its current epoch.
        last_sequence: of its last batch.
        last_offset: of its last batch; below 0 where the log holds none.
        offset_delta: last offset of that batch minus the first.
        timestamp: greatest of that batch.
        coordinator_epoch: of the coordinator that wrote its last transaction marker.
        current_txn_first_offset: where its open transaction begins; below 0 where none is open.

    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def first_sequence(self) -> int:
        """Of its last batch (``BatchMetadata.firstSeq``): sequences wrap from 2³¹-1 to 0."""
        if self.last_sequence < self.offset_delta:
            before_wrap = wrap_int32(self.offset_delta - self.last_sequence)
            return wrap_int32(_INT32_MAX - before_wrap + 1)
        return wrap_int32(self.last_sequence - self.offset_delta)


class ProducerSnapshot(Struct, frozen=True):
    """A snapshot as stored; :func:`crc_problem` checks ``crc``."""

    crc: int
    entries: tuple[ProducerEntry, ...]
    version: int = VERSION
    trailing_bytes: int = 0


def decode(data: bytes | bytearray | memoryview) -> ProducerSnapshot:
    """Read a snapshot, whether or not its checksum holds.

    Raises:
        FormatError: where Kafka finds that the bytes do not follow the schema; ``what`` is the
            message of its ``CorruptSnapshotException``.

    """
    size = len(data)
    if size < CRC_START:
        raise _ends_early(0, HEADER_BYTES, size)
    version = int.from_bytes(data[:CRC_START], signed=True)
    if version != VERSION:
        raise _against_schema(
            f"Snapshot contained an unknown file version {version}", 0, VERSION, version
        )
    if size < HEADER_BYTES:
        raise _ends_early(CRC_START, HEADER_BYTES, size)
    crc = int.from_bytes(data[CRC_START:COUNT_START])
    count = int.from_bytes(data[COUNT_START:HEADER_BYTES], signed=True)
    available = size - HEADER_BYTES
    expected = f"0 to {available // ENTRY_BYTES} entries"
    if count < 0:
        message = "non-nullable field producerEntries was serialized as null"
        raise _against_schema(message, COUNT_START, expected, count)
    if count > available:
        message = (
            f"Tried to allocate a collection of size {count}, "
            f"but there are only {available} bytes remaining."
        )
        raise _against_schema(message, COUNT_START, expected, count)
    if count * ENTRY_BYTES > available:
        last_whole = HEADER_BYTES + available // ENTRY_BYTES * ENTRY_BYTES
        raise _ends_early(last_whole, HEADER_BYTES + count * ENTRY_BYTES, size)
    held = memoryview(data)[HEADER_BYTES : HEADER_BYTES + count * ENTRY_BYTES]
    entries = tuple(ProducerEntry(*row) for row in _ENTRY.iter_unpack(held))
    return ProducerSnapshot(crc, entries, version, available - count * ENTRY_BYTES)


def crc_problem(
    data: bytes | bytearray | memoryview, snapshot: ProducerSnapshot
) -> FormatError | None:
    """Give the mismatch between the stored checksum and that of ``data``, as a value, or None."""
    computed = compute_crc(data)
    if computed == snapshot.crc:
        return None
    return FormatError(
        "Snapshot is corrupt (CRC is no longer valid). "
        f"Stored crc: {snapshot.crc}. Computed crc: {computed}",
        position=CRC_START,
        expected=computed,
        found=snapshot.crc,
    )


def read(data: bytes | bytearray | memoryview) -> ProducerSnapshot:
    """Read a snapshot that Kafka would read too.

    Raises:
        FormatError: where Kafka throws a ``CorruptSnapshotException``; ``what`` is its message.

    """
    snapshot = decode(data)
    problem = crc_problem(data, snapshot)
    if problem is not None:
        raise problem
    return snapshot


def compute_crc(data: bytes | bytearray | memoryview) -> int:
    """Give the checksum that a whole snapshot should have stored."""
    return crc32c(memoryview(data)[CHECKED_START:])


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    """Give the bytes that Kafka writes for these entries, in their order."""
    rows = [_ENTRY.pack(*(getattr(entry, name) for name, _ in ENTRY_FIELDS)) for entry in entries]
    body = len(rows).to_bytes(HEADER_BYTES - COUNT_START) + b"".join(rows)
    crc = crc32c(body)
    return VERSION.to_bytes(CRC_START, signed=True) + crc.to_bytes(COUNT_START - CRC_START) + body


def _against_schema(message: str, position: int, expected: object, found: object) -> FormatError:
    return FormatError(
        f"Snapshot failed schema validation: {message}",
        position=position,
        expected=expected,
        found=found,
    )


def _ends_early(position: int, expected_bytes: int, found_bytes: int) -> FormatError:
    # Java's BufferUnderflowException has no message of its own, and prints as null.
    return _against_schema("null", position, f"{expected_bytes} bytes", found_bytes)
