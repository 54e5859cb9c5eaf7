"""Make partitions with many segments, producers or transactions, but few bytes.

Each is a log directory with one partition, ``topic-0``, of a broker killed before it flushed
anything. Comparing one with a quarter of it shows whether time grows linearly.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from data import EMPTY_SNAPSHOT, EPOCH_MS, finished, write_root
from kdump.formats.record_batch import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    encode_batch,
    encode_record,
)

_VALUE: Final = b"x" * 1200
_ABORT_KEY: Final = bytes(4)
_MARKER_VALUE: Final = bytes(6)


def make_many_segments(count: int, folder: Path) -> Path:
    """Write ``FOLDER/segments-COUNT``: one batch per segment, a snapshot at every other segment."""
    files = {}
    for base_offset in range(count):
        name = f"{base_offset:020d}"
        files[f"{name}.log"] = _batch(base_offset)
        files[f"{name}.index"] = b""
        files[f"{name}.timeindex"] = struct.pack(">qi", EPOCH_MS, 0)
        if base_offset % 2:
            files[f"{name}.snapshot"] = EMPTY_SNAPSHOT
    return _write(folder / f"segments-{count}", files, count)


def make_many_producers(count: int, folder: Path) -> Path:
    """Write ``FOLDER/producers-COUNT``: one batch per producer, in ten segments."""
    per_segment = -(-count // 10)
    files = {
        f"{first:020d}.log": b"".join(
            _batch(offset, producer_id=offset)
            for offset in range(first, min(first + per_segment, count))
        )
        for first in range(0, count, per_segment)
    }
    return _write(folder / f"producers-{count}", files, count)


def make_many_open_txns(count: int, folder: Path) -> Path:
    """Write ``FOLDER/open-txns-COUNT``: all transactions begin, then all are aborted."""
    begun = (
        _batch(offset, producer_id=offset, attributes=TRANSACTIONAL_FLAG) for offset in range(count)
    )
    ended = (_abort_marker(count + producer_id, producer_id) for producer_id in range(count))
    log = b"".join((*begun, *ended))
    return _write(folder / f"open-txns-{count}", {f"{0:020d}.log": log}, 2 * count)


def _batch(offset: int, *, producer_id: int = -1, attributes: int = 0) -> bytes:
    return _encoded(offset, producer_id, attributes, b"key", _VALUE)


def _abort_marker(offset: int, producer_id: int) -> bytes:
    attributes = TRANSACTIONAL_FLAG | CONTROL_FLAG
    return _encoded(offset, producer_id, attributes, _ABORT_KEY, _MARKER_VALUE)


def _encoded(offset: int, producer_id: int, attributes: int, key: bytes, value: bytes) -> bytes:
    has_sequence = producer_id >= 0 and not attributes & CONTROL_FLAG
    header = BatchHeader(
        base_offset=offset,
        length=0,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=EPOCH_MS,
        max_timestamp=EPOCH_MS,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if has_sequence else -1,
        records_count=1,
    )
    record = Record(offset, EPOCH_MS, -1, key, value, ())
    return encode_batch(header, encode_record(record, offset, EPOCH_MS))


def _write(directory: Path, files: Mapping[str, bytes], end_offset: int) -> Path:
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        partition = unfinished / "topic-0"
        partition.mkdir(parents=True)
        for name, content in _with_small_files(files):
            (partition / name).write_bytes(content)
        write_root(unfinished, ["topic 0 0"], [f"topic 0 {end_offset}"], is_clean=False)
    return directory


def _with_small_files(files: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
    yield from files.items()
    yield "leader-epoch-checkpoint", b"0\n1\n0 0\n"
    yield "partition.metadata", b"version: 0\ntopic_id: a2R1bXBCZW5jaFRvcGljMQ"
