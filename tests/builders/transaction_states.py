"""Records of ``__transaction_state``, as coordinators write them or not."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from builders.batches import batch, record
from kdump.scan.batches import read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.window_records import read_records
from kdump.target.virtual_directory import BytesSource

Pair = tuple[bytes | None, bytes | None]
Topics = Sequence[tuple[str, Sequence[int]]]

_TAGS = {
    "previous": (0, ">q"),
    "next": (1, ">q"),
    "client": (2, ">h"),
    "epoch": (3, ">h"),
    "unknown": (7, ">i"),
}


def key_of(transactional_id: str) -> bytes:
    """The key of the records of a transactional id."""
    data = transactional_id.encode()
    return struct.pack(">hh", 0, len(data)) + data


def value_of(
    *,
    version: int = 1,
    producer_id: int = 7,
    producer_epoch: int = 0,
    timeout_ms: int = 60_000,
    state: int = 1,
    partitions: Topics | None = (("orders", (0,)),),
    last_change_ms: int = 2_000,
    start_time_ms: int = 1_000,
    tags: Mapping[str, int] | None = None,
) -> bytes:
    """The value of a record; tags are written only in version 1 and above."""
    is_flexible = version >= 1
    head = struct.pack(">hqhib", version, producer_id, producer_epoch, timeout_ms, state)
    times = struct.pack(">qq", last_change_ms, start_time_ms)
    tail = _tags(tags or {}) if is_flexible else b""
    return head + _partitions(partitions, is_flexible) + times + tail


def _partitions(topics: Topics | None, is_flexible: bool) -> bytes:
    if topics is None:
        return b"\0" if is_flexible else struct.pack(">i", -1)
    parts = [_count(len(topics), is_flexible)]
    for topic, numbers in topics:
        name = topic.encode()
        parts.append(_varint(len(name) + 1) if is_flexible else struct.pack(">h", len(name)))
        parts += [name, _count(len(numbers), is_flexible)]
        parts += [struct.pack(">i", number) for number in numbers]
        parts.append(b"\0" if is_flexible else b"")
    return b"".join(parts)


def _count(count: int, is_flexible: bool) -> bytes:
    return _varint(count + 1) if is_flexible else struct.pack(">i", count)


def _tags(tags: Mapping[str, int]) -> bytes:
    known = sorted((*_TAGS[name], number) for name, number in tags.items())
    fields = [
        _varint(tag) + _varint(struct.calcsize(layout)) + struct.pack(layout, number)
        for tag, layout, number in known
    ]
    return _varint(len(fields)) + b"".join(fields)


def _varint(number: int) -> bytes:
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def log_of(log: Sequence[Pair], first_offset: int = 0) -> bytes:
    """The batches of a log, a few records each."""
    rows = list(enumerate(log, first_offset))
    return b"".join(
        batch([record(offset, key=key, value=value) for offset, (key, value) in part])
        for part in _parts(rows)
    )


def columns_of(log: Sequence[Pair]) -> Iterator[RecordColumns]:
    """The records of a log whose offsets count from 0."""
    for window in read_windows(BytesSource(log_of(log))):
        yield from read_records(window)


def joined_columns_of(log: Sequence[Pair]) -> Iterator[RecordColumns]:
    """The same in one batch."""
    rows = [record(offset, key=key, value=value) for offset, (key, value) in enumerate(log)]
    for window in read_windows(BytesSource(batch(rows) if rows else b"")):
        if window.batches.count:
            yield from read_records(window)


def _parts(rows: list[tuple[int, Pair]]) -> Iterator[list[tuple[int, Pair]]]:
    for at in range(0, len(rows), 5):
        yield rows[at : at + 5]
