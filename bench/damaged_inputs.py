"""Make large logs with damaged places that destroy the ends of transactions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from data import (
    EPOCH_MS,
    SegmentShape,
    encode_records,
    finished,
    link_logs,
    write_indexes,
    write_root,
)
from equal_batches import CONTROL, TRANSACTIONAL, Batches, equal_batches, seal
from hard_inputs import write_identity
from kdump.formats import producer_snapshot
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import HEADER_LAYOUT, LOG_OVERHEAD_BYTES

COMMIT: Final = bytes.fromhex("20 00 00 00 08 00000001 0c 0000 00000000 00")
"""The record of a commit marker, of epoch 0 of the coordinator."""

_SHAPE: Final = SegmentShape("", 0, records_per_batch=97)
_RECORDS: Final = _SHAPE.records_per_batch
_BATCHES: Final = 9
_OFFSETS: Final = _BATCHES * _RECORDS + 1
_PRODUCERS: Final = 50
_CHUNK: Final = 500
_DAMAGE: Final = b"\xaa" * 1_000


def make_damaged(
    name: str, segments: int, places: int, folder: Path, *, segment_bytes: int = 1 << 30
) -> Path:
    """Write ``FOLDER/NAME``: one partition that is damaged in so many places.

    Fifty producers in turn commit a transaction of eight batches, and write one batch outside of
    it. At each damaged place the end of a transaction's last batch, and its commit marker, are
    overwritten: Kafka does not load the batch that follows unless another marker is inserted.
    """
    directory = folder / name
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        partition = unfinished / "topic-0"
        partition.mkdir(parents=True)
        per_segment = segment_bytes // _transactions(0, 1).nbytes
        total = segments * per_segment
        damaged = np.arange(places) * total // places
        for first in range(0, total, per_segment):
            log = partition / f"{first * _OFFSETS:020d}.log"
            with log.open("wb") as file:
                for rows in _chunks(first, first + per_segment):
                    file.write(memoryview(rows))
            write_indexes(log, _SHAPE)
            end = first + per_segment
            snapshot = partition / f"{end * _OFFSETS:020d}.snapshot"
            snapshot.write_bytes(_snapshot(end))
            _damage(log, damaged[(first <= damaged) & (damaged < end)] - first)
        write_identity(partition, 0)
        ends = [f"topic 0 {total * _OFFSETS}"]
        write_root(unfinished, ends, ends, is_clean=True)
    return directory


def link_damaged(name: str, source: str, partitions: int, segments: int, folder: Path) -> Path:
    """Write ``FOLDER/NAME``: so many partitions with the first segments of ``FOLDER/SOURCE``."""
    directory = folder / name
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        whole = folder / source / "topic-0"
        logs = sorted(whole.glob("*.log"))
        end = int(logs[segments].stem) if segments < len(logs) else None
        for number in range(partitions):
            partition = unfinished / f"topic-{number}"
            partition.mkdir(parents=True)
            for path in whole.iterdir():
                is_before = not path.stem.isdigit() or end is None or int(path.stem) < end
                if is_before or path.name == f"{end:020d}.snapshot":
                    link_logs(str(path), str(partition / path.name))
        end = max(int(path.stem) for path in (unfinished / "topic-0").glob("*.snapshot"))
        ends = [f"topic {number} {end}" for number in range(partitions)]
        write_root(unfinished, ends, ends, is_clean=True)
    return directory


def make_false_lengths(name: str, size_bytes: int, folder: Path) -> Path:
    """Write ``FOLDER/NAME``: one partition, in whose log each header claims half of the file."""
    directory = folder / name
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        partition = unfinished / "topic-0"
        partition.mkdir(parents=True)
        length = size_bytes // 2 - LOG_OVERHEAD_BYTES
        header = HEADER_LAYOUT.pack(0, length, 0, 2, 0, 0, 0, EPOCH_MS, EPOCH_MS, -1, -1, -1, 1)
        (partition / f"{0:020d}.log").write_bytes(header * (size_bytes // len(header)))
        write_identity(partition, 0)
        write_root(unfinished, ["topic 0 0"], ["topic 0 0"], is_clean=False)
    return directory


def _chunks(first: int, end: int) -> Iterator[npt.NDArray[np.uint8]]:
    for begin in range(first, end, _CHUNK):
        yield _transactions(begin, min(begin + _CHUNK, end))


def _transactions(first: int, end: int) -> npt.NDArray[np.uint8]:
    """Encode the transactions with these numbers, one in each row, with what follows it."""
    numbers = np.arange(first, end)
    data = equal_batches(_bodies(), len(numbers) * _BATCHES, records=_RECORDS)
    of_transaction = np.repeat(numbers, _BATCHES)
    in_transaction = np.tile(np.arange(_BATCHES), len(numbers))
    is_outside = in_transaction == _BATCHES - 1
    data["attributes"] = np.where(is_outside, 0, TRANSACTIONAL)
    data["base_offset"] = of_transaction * _OFFSETS + in_transaction * _RECORDS + is_outside
    turns = of_transaction // _PRODUCERS
    data["base_sequence"] = (turns * _BATCHES + in_transaction) * _RECORDS
    _set_producers(data, of_transaction)
    markers = equal_batches([COMMIT], len(numbers), records=1)
    markers["attributes"] = TRANSACTIONAL | CONTROL
    markers["base_offset"] = numbers * _OFFSETS + (_BATCHES - 1) * _RECORDS
    _set_producers(markers, numbers)
    in_rows = seal(data).view(np.uint8).reshape(len(numbers), _BATCHES, -1)
    transactional = in_rows[:, :-1].reshape(len(numbers), -1)
    columns = [
        transactional,
        seal(markers).view(np.uint8).reshape(len(numbers), -1),
        in_rows[:, -1],
    ]
    return np.ascontiguousarray(np.hstack(columns))


def _set_producers(batches: Batches, transactions: npt.NDArray[np.int64]) -> None:
    batches["producer_id"] = transactions % _PRODUCERS
    batches["producer_epoch"] = 0


def _bodies() -> list[bytes]:
    rng = random.Random(1)
    return [encode_records(_SHAPE, rng) for _ in range(_BATCHES)]


def _snapshot(end: int) -> bytes:
    """Encode the snapshot after the transactions before number ``end``."""
    numbers = sorted(range(max(0, end - _PRODUCERS), end), key=lambda number: number % _PRODUCERS)
    return producer_snapshot.encode(
        ProducerEntry(
            producer_id=number % _PRODUCERS,
            epoch=0,
            last_sequence=(number // _PRODUCERS + 1) * (_OFFSETS - 1) - 1,
            last_offset=(number + 1) * _OFFSETS - 1,
            offset_delta=_RECORDS - 1,
            timestamp=EPOCH_MS + _RECORDS - 1,
            coordinator_epoch=0,
            current_txn_first_offset=-1,
        )
        for number in numbers
    )


def _damage(log: Path, transactions: npt.NDArray[np.int64]) -> None:
    """Overwrite the ends of transactions, which all have one size."""
    rows = _transactions(0, 1)
    after_marker = equal_batches(_bodies(), 1, records=_RECORDS).nbytes
    with log.open("r+b") as file:
        for number in transactions.tolist():
            file.seek((number + 1) * rows.nbytes - after_marker - len(_DAMAGE))
            file.write(_DAMAGE)
