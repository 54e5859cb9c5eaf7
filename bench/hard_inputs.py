"""Make log directories that are hard to work on in little memory.

Each is clean, with all that a broker writes. :func:`make_unclean` derives what the same broker
leaves when it is killed before it flushed anything.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from data import (
    EMPTY_SNAPSHOT,
    EPOCH_MS,
    INDEX_BYTES,
    SegmentShape,
    encode_records,
    finished,
    link_logs,
    write_root,
)
from equal_batches import (
    CONTROL,
    TRANSACTIONAL,
    Batches,
    at_offsets,
    end_offset,
    equal_batches,
    seal,
    write_segment,
)
from kdump.formats import producer_snapshot, transaction_index
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.transaction_index import AbortedTxn

_POOL: Final = 500
_DAY_MS: Final = 86_400_000
_ABORT: Final = bytes.fromhex("20 00 00 00 08 00000000 0c 0000 00000000 00")
"""The record of an abort marker, of epoch 0 of the coordinator."""


def make_partitions_of_three(count: int, folder: Path) -> Path:
    """Write ``FOLDER/partitions-COUNT``: 14 files in each partition, three of them logs.

    Ten partitions make a topic. A segment has two batches, and an entry in each index.
    """
    directory = folder / f"partitions-{count}"
    if directory.exists():
        return directory
    names = [f"topic-{number // 10:05d}-{number % 10}" for number in range(count)]
    with finished(directory) as unfinished:
        for name in names:
            (unfinished / name).mkdir(parents=True)
        first = unfinished / names[0]
        end = 0
        for day in range(3):
            batches = _batches_of("text", 36, 2)
            for field in ("base_timestamp", "max_timestamp"):
                batches[field] += day * _DAY_MS
            batches = at_offsets(seal(batches), end)
            write_segment(first, batches)
            end = end_offset(batches)
            (first / f"{end:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)
        contents = {path.name: path.read_bytes() for path in first.iterdir()}
        for number, name in enumerate(names):
            for file, content in contents.items():
                (unfinished / name / file).write_bytes(content)
            write_identity(unfinished / name, number // 10)
        ends = [f"{name[:-2]} {name[-1]} {end}" for name in names]
        write_root(unfinished, ends, ends, is_clean=True)
    return directory


def make_segments(count: int, folder: Path) -> Path:
    """Write ``FOLDER/many-segments-COUNT``: one partition with a batch in each segment."""

    def write(partition: Path) -> int:
        batches = at_offsets(seal(_batches_of("text", 9, count)), 0)
        for number in range(count):
            write_segment(partition, batches[number : number + 1])
            end = end_offset(batches[: number + 1])
            (partition / f"{end:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)
        return end_offset(batches)

    return _one_partition(folder / f"many-segments-{count}", write)


def make_one_record_batches(count: int, folder: Path) -> Path:
    """Write ``FOLDER/one-record-batches-COUNT``: one segment with batches of one record."""

    def write(partition: Path) -> int:
        batches = at_offsets(_pooled("text", 1, count), 0)
        write_segment(partition, batches)
        return end_offset(batches)

    return _one_partition(folder / f"one-record-batches-{count}", write)


def make_producers(count: int, folder: Path) -> Path:
    """Write ``FOLDER/live-producers-COUNT``: a batch of each producer, and their snapshot."""

    def write(partition: Path) -> int:
        batches = at_offsets(_of_producers("text", count), 0)
        write_segment(partition, seal(batches))
        (partition / f"{count:020d}.snapshot").write_bytes(_snapshot(count))
        return count

    return _one_partition(folder / f"live-producers-{count}", write)


def make_aborted_txns(count: int, folder: Path) -> Path:
    """Write ``FOLDER/aborted-txns-COUNT``: all transactions begin, then all are aborted."""

    def write(partition: Path) -> int:
        data = _of_producers("tiny", count)
        data["attributes"] = TRANSACTIONAL
        markers = equal_batches([_ABORT], count, records=1)
        markers["attributes"] = TRANSACTIONAL | CONTROL
        markers["producer_id"] = np.arange(count)
        markers["producer_epoch"] = 0
        write_segment(partition, at_offsets(seal(data), 0))
        write_segment(partition, at_offsets(seal(markers), count))
        (partition / f"{count:020d}.snapshot").write_bytes(_snapshot(count, is_open=True))
        entries = (
            AbortedTxn(number, number, count + number, _stable_after(number, count))
            for number in range(count)
        )
        (partition / f"{count:020d}.txnindex").write_bytes(transaction_index.encode(entries))
        (partition / f"{2 * count:020d}.snapshot").write_bytes(
            _snapshot(count, coordinator_epoch=0)
        )
        return 2 * count

    return _one_partition(folder / f"aborted-txns-{count}", write)


def _stable_after(number: int, count: int) -> int:
    """Return the last stable offset when a transaction ends: where the next one began."""
    return number + 1 if number + 1 < count else 2 * count


def make_index_interval_0(folder: Path, *, batches: int = 800_000) -> Path:
    """Write ``FOLDER/index-interval-0``: entries in both indexes for every batch.

    Eight partitions, which are links to one, have four segments each, with so many batches of
    growing timestamps: the indexes of 800,000 have 500 MB in total.
    """

    def write(partition: Path) -> int:
        end = 0
        for _ in range(4):
            made = _batches_of("tiny", 1, batches)
            for field in ("base_timestamp", "max_timestamp"):
                made[field] += end + np.arange(batches)
            write_segment(partition, at_offsets(seal(made), end), index_interval_bytes=0)
            end = end_offset(made)
            (partition / f"{end:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)
        return end

    return _one_partition(folder / "index-interval-0", write, linked=8)


def make_small_batches(folder: Path, *, batches: int = (1 << 30) // 100) -> Path:
    """Write ``FOLDER/100-byte-batches``: 8 GiB in eight partitions, which are links to one."""

    def write(partition: Path) -> int:
        made = at_offsets(_pooled("tiny", 1, batches), 0)
        write_segment(partition, made)
        return end_offset(made)

    return _one_partition(folder / "100-byte-batches", write, linked=8)


def _one_partition(directory: Path, write: Callable[[Path], int], *, linked: int = 1) -> Path:
    """Write a clean log directory of ``topic-0``, and of partitions that are links to it."""
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        first = unfinished / "topic-0"
        first.mkdir(parents=True)
        end = write(first)
        last = first / f"{end:020d}.snapshot"
        if not last.exists():
            last.write_bytes(EMPTY_SNAPSHOT)
        write_identity(first, 0)
        for number in range(1, linked):
            shutil.copytree(first, unfinished / f"topic-{number}", copy_function=link_logs)
        ends = [f"topic {number} {end}" for number in range(linked)]
        write_root(unfinished, ends, ends, is_clean=True)
    return directory


def write_identity(partition: Path, topic: int) -> None:
    """Write the files of a partition that do not depend on its log."""
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    topic_id = f"{topic:05d}".ljust(22, "A")
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")


def _batches_of(values: str, records: int, count: int) -> Batches:
    """Make batches with records of such values, without checksums."""
    shape = SegmentShape("", 0, records, values)
    rng = random.Random(1)
    bodies = [encode_records(shape, rng) for _ in range(min(_POOL, count))]
    return equal_batches(bodies, count, records=records)


def _pooled(values: str, records: int, count: int) -> Batches:
    """Make batches that repeat, so that few checksums are computed."""
    pool = seal(_batches_of(values, records, _POOL))
    return pool[np.arange(count) % _POOL]


def _of_producers(values: str, count: int) -> Batches:
    """Make a batch of one record for each producer, without checksums."""
    batches = _batches_of(values, 1, count)
    batches["producer_id"] = np.arange(count)
    batches["producer_epoch"] = batches["base_sequence"] = 0
    return batches


def _snapshot(producers: int, *, coordinator_epoch: int = -1, is_open: bool = False) -> bytes:
    """Encode the snapshot of producers that wrote one record each, at the offset of their id."""
    return producer_snapshot.encode(
        ProducerEntry(
            producer_id=number,
            epoch=0,
            last_sequence=0,
            last_offset=number,
            offset_delta=0,
            timestamp=EPOCH_MS,
            coordinator_epoch=coordinator_epoch,
            current_txn_first_offset=number if is_open else -1,
        )
        for number in range(producers)
    )


def make_unclean(name: str, folder: Path, *, is_preallocated: bool = True) -> Path:
    """Write ``FOLDER/NAME-unclean``: the broker of ``FOLDER/NAME`` was killed before it flushed.

    The logs are links. With ``is_preallocated``, the indexes of active segments are sparse files
    of 10 MiB, as a broker makes them.
    """
    directory = folder / f"{name}-unclean"
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        shutil.copytree(folder / name, unfinished, copy_function=link_logs)
        (unfinished / ".kafka_cleanshutdown").unlink()
        points = unfinished / "recovery-point-offset-checkpoint"
        lines = points.read_text().splitlines()
        zeros = [f"{line.rpartition(' ')[0]} 0" for line in lines[2:]]
        points.write_text("\n".join([*lines[:2], *zeros, ""]))
        for partition in _partitions_of(unfinished):
            max(partition.glob("*.snapshot")).unlink()
            active = max(partition.glob("*.log"))
            if is_preallocated:
                os.truncate(active.with_suffix(".index"), INDEX_BYTES)
                os.truncate(active.with_suffix(".timeindex"), INDEX_BYTES // 12 * 12)
    return directory


def _partitions_of(directory: Path) -> Iterator[Path]:
    return (path for path in directory.iterdir() if path.is_dir())


def copy_input(
    name: str, copy: str, folder: Path, *, is_truncated: bool, without_indexes: bool
) -> Path:
    """Write or replace ``FOLDER/COPY``, with links to the logs of ``FOLDER/NAME``; return its path.

    With ``is_truncated``, the first log of each partition is no link, but a copy that a command
    can truncate.
    """
    directory = folder / copy
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(folder / name, directory, copy_function=link_logs)
    for partition in _partitions_of(directory):
        if without_indexes:
            for suffix in ("index", "timeindex", "txnindex"):
                for path in partition.glob(f"*.{suffix}"):
                    path.unlink()
        if is_truncated:
            log = min(partition.glob("*.log"))
            log.unlink()
            shutil.copyfile(folder / name / partition.name / log.name, log)
    return directory


def delete_topics(copy: str, folder: Path) -> None:
    """Rename the partitions of ``FOLDER/COPY`` as a broker does when their topics are deleted."""
    for number, partition in enumerate(_partitions_of(folder / copy)):
        partition.rename(partition.with_name(f"{partition.name}.{number:032x}-delete"))


def make_empty(name: str, folder: Path) -> Path:
    """Write or replace ``FOLDER/NAME``, another log directory of the same broker."""
    directory = folder / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    write_root(directory, [], [], is_clean=True, directory_id="a2R1bXBCZW5jaERpclR3bw")
    return directory
