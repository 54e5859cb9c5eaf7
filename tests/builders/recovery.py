"""Recover a partition in a test: the outcome as a value, or the files after it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from builders.apply_target import apply_target
from builders.batches import batch, record
from kdump.broker.loader.load_context import IndexSettings, LoadContext
from kdump.broker.loader.loader import recover_partition
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import offset_index, producer_snapshot, time_index, transaction_index
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from kdump.formats.transaction_index import AbortedTxn
from kdump.log.directory import read_lone_partition
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal


def load(path: Path, *, interval_bytes: int = 4096, **context: Any) -> Recovered | Refusal:
    """Recover the partition in ``path``; ``context`` are the fields of ``LoadContext``."""
    settings = IndexSettings(interval_bytes=interval_bytes)
    partition = read_lone_partition(local(path), "orders-0")
    return recover_partition(partition, LoadContext(settings=settings, **context))


def recovered(path: Path, **context: Any) -> Recovered:
    """Recover a partition that must not be refused."""
    outcome = load(path, **context)
    assert isinstance(outcome, Recovered), outcome
    return outcome


def refused(path: Path, **context: Any) -> Refusal:
    """Recover a partition that must be refused."""
    outcome = load(path, **context)
    assert isinstance(outcome, Refusal), outcome
    return outcome


def files_after(path: Path, **context: Any) -> dict[str, bytes]:
    """Return the files of a copy of the partition in ``path`` after its recovery."""
    outcome = recovered(path, **context)
    copy = path.with_name(f"{path.name} recovered")
    shutil.copytree(path, copy)
    apply_target(copy, outcome.files)
    files = {file.name: file.read_bytes() for file in copy.iterdir()}
    shutil.rmtree(copy)
    return files


def log_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def offset_entries(data: bytes, base_offset: int = 0) -> list[tuple[int, int]]:
    """Return offset and position of each entry of an offset index."""
    index = offset_index.decode(data, base_offset)
    return list(zip(index.offset.tolist(), index.position.tolist(), strict=True))


def time_entries(data: bytes, base_offset: int = 0) -> list[tuple[int, int]]:
    """Return timestamp and offset of each entry of a time index."""
    index = time_index.decode(data, base_offset)
    return list(zip(index.timestamp.tolist(), index.offset.tolist(), strict=True))


def aborted(data: bytes) -> tuple[AbortedTxn, ...]:
    return transaction_index.decode(data).entries


def producers(data: bytes) -> tuple[ProducerEntry, ...]:
    return producer_snapshot.read(data).entries


def of_producer(
    offset: int,
    producer_id: int = 7,
    *,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    transactional: bool = False,
) -> bytes:
    """Make a batch of a producer."""
    return batch(
        [record(offset + step) for step in range(count)],
        attributes=TRANSACTIONAL_FLAG if transactional else 0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def marker(
    offset: int,
    producer_id: int = 7,
    *,
    commit: bool = False,
    epoch: int = 0,
    key: bytes | None = None,
    value: bytes = bytes(6),
) -> bytes:
    """Make the control batch that ends a transaction."""
    named = bytes([0, 0, 0, int(commit)]) if key is None else key
    return batch(
        [record(offset, key=named, value=value)],
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def positions(batches: Sequence[bytes]) -> list[int]:
    """Return the positions of consecutive batches."""
    starts = [0]
    for data in batches:
        starts.append(starts[-1] + len(data))
    return starts[:-1]


def joined(*parts: bytes | Iterable[bytes]) -> bytes:
    """Join batches and sequences of batches."""
    return b"".join(part if isinstance(part, bytes) else b"".join(part) for part in parts)
