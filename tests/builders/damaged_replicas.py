"""A few partitions of a real cluster whose brokers were killed, and damage to their replicas."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest import mock

from builders.cluster_disks import METADATA
from builders.dead_clusters import CONTROLLER
from builders.log_directories import offset_checkpoint
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.formats import names
from kdump.formats.checkpoints import (
    EpochEntry,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
)
from kdump.formats.names import PartitionState
from kdump.jobs.collect.collect import CollectRequest, collect
from kdump.jobs.collect.metadata_copy import collect_metadata
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.repair.cluster.cluster_rules import PlanRequest, plan_cluster
from kdump.state.metadata.cluster_plan import ClusterPlan
from kdump.state.metadata.disk_collection import (
    CollectedMetadata,
    CollectedPartition,
    DiskCollection,
)
from kdump.storage.local_disk import local

DISKS: Final = {"b1-d1": 1, "b2-d1": 2, "b2-d2": 2, "b3-d1": 3}
HERE: Final = EngineOptions(EngineChoice.LOCAL, processes=1)
NOW_MS: Final = 1_800_000_000_000
_ROOT_FILES: Final = (
    names.META_PROPERTIES,
    names.REPLICATION_OFFSET_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
)


def kill_brokers(cluster: Path, folder: Path, partitions: Iterable[str]) -> Path:
    """Copy some partitions of all brokers, and their metadata, as if they had been killed.

    Nothing of their logs is flushed.
    """
    for disk in DISKS:
        (folder / disk).mkdir(parents=True)
        for name in _ROOT_FILES:
            if (cluster / disk / name).exists():
                shutil.copy(cluster / disk / name, folder / disk)
        for name in (METADATA, *partitions):
            if (cluster / disk / name).exists():
                shutil.copytree(cluster / disk / name, folder / disk / name)
    return folder


def collected(folder: Path, disks: Iterable[str] = tuple(DISKS)) -> list[DiskCollection]:
    """Collect what each disk knows."""
    with mock.patch(f"{collect.__module__}.{collect_metadata.__name__}", _metadata_of):
        return [
            collect(CollectRequest([read_log_directory(local(folder / disk))], NOW_MS), HERE)
            for disk in disks
        ]


_metadata_by_files: Final = dict[tuple[tuple[str, bytes], ...], CollectedMetadata | None]()


def _metadata_of(directory: LogDirectory, _time_ms: None) -> CollectedMetadata | None:
    """What is collected of a copy of the metadata, which is read once: most cases do not damage it.

    That takes as long as everything else that a case does.
    """
    files = sorted(directory.path.local_path.glob(f"{METADATA}/*"))
    key = tuple((path.name, path.read_bytes()) for path in files if path.is_file())
    if key not in _metadata_by_files:
        _metadata_by_files[key] = collect_metadata(directory)
    return _metadata_by_files[key]


def planned(collections: Iterable[DiskCollection], *settings: tuple[str, str]) -> ClusterPlan:
    """Plan for a new controller."""
    return plan_cluster(PlanRequest(tuple(collections), (CONTROLLER,), settings))


def replicas(collections: Iterable[DiskCollection], name: str) -> dict[int, CollectedPartition]:
    """The replicas of a partition by node."""
    return {
        directory.node_id or 0: each
        for collection in collections
        for directory in collection.log_directories
        for each in directory.partitions
        if each.directory == name
        or (f"{each.topic}-{each.partition}", each.state) == (name, PartitionState.FUTURE)
    }


# --- damage


GARBLED: Final = b"0\n2\n7 x\n"
"""A checkpoint that no broker can read."""
Damage = Callable[[Path, random.Random], None]
"""Damages the directory of a partition."""


def lose_logs(path: Path, _drawn: random.Random) -> None:
    """Lose all files of the log, but not the epoch checkpoint."""
    for each in path.iterdir():
        if each.name[0].isdigit():
            each.unlink()


def lose_metadata(path: Path, _drawn: random.Random) -> None:
    (path / names.PARTITION_METADATA).unlink(missing_ok=True)


def move_start(path: Path, drawn: random.Random) -> None:
    """Let the log start after its end, or somewhere in the log."""
    _set_start(path, drawn.choice((999_999, drawn.randrange(1, 40))))


def move_start_after_the_end(path: Path, _drawn: random.Random) -> None:
    _set_start(path, 999_999)


def _set_start(path: Path, offset: int) -> None:
    _set_offset(path, names.LOG_START_OFFSET_CHECKPOINT, offset)


def _set_offset(path: Path, checkpoint: str, offset: int) -> None:
    topic, _, number = path.name.rpartition("-")
    file = path.parent / checkpoint
    lines: dict[tuple[str, int], int] = {}
    if file.exists():
        lines.update(decode_offset_checkpoint(file.read_bytes()))
    file.write_bytes(offset_checkpoint(lines | {(topic, int(number)): offset}))


def cut_half(path: Path, drawn: random.Random) -> None:
    """Lose the end of the last segment."""
    log = _a_log(path, None)
    if log is not None and log.stat().st_size:
        os.truncate(log, drawn.randrange(log.stat().st_size))


def cut_last_batch(path: Path) -> None:
    log = _a_log(path, None)
    assert log is not None
    *_, (at, _) = batches_of(log.read_bytes())
    os.truncate(log, at)


def delete_the_oldest(path: Path, drawn: random.Random) -> None:
    """Delete the oldest segments as retention does; perhaps all, so that an empty one is left."""
    batches = [
        data for log in sorted(path.glob("*.log")) for _, data in batches_of(log.read_bytes())
    ]
    if not batches:
        return
    kept = batches[drawn.randrange(1, len(batches) + 1) :]
    last = batches[-1]
    end = int.from_bytes(last[:8]) + int.from_bytes(last[23:27]) + 1
    start = int.from_bytes(kept[0][:8]) if kept else end
    for each in path.iterdir():
        if each.name[0].isdigit():
            each.unlink()
    (path / f"{start:020d}.log").write_bytes(b"".join(kept))
    _set_start(path, start)
    checkpoint = path / names.LEADER_EPOCH_CHECKPOINT
    if checkpoint.exists() and checkpoint.read_bytes() != GARBLED:
        entries = decode_leader_epoch_checkpoint(checkpoint.read_bytes())
        before = [each.epoch for each in entries if each.start_offset <= start][-1:]
        after = [each for each in entries if each.start_offset > start]
        first = [EpochEntry(epoch, start) for epoch in before]
        checkpoint.write_bytes(encode_leader_epoch_checkpoint([*first, *after]))


def empty_logs(path: Path, _drawn: random.Random) -> None:
    for log in path.glob("*.log"):
        os.truncate(log, 0)


def zero_a_batch(path: Path, drawn: random.Random) -> None:
    """Zero one batch of a log."""
    log = _a_log(path, drawn)
    batches = [] if log is None else list(batches_of(log.read_bytes()))
    if log is not None and batches:
        content = bytearray(log.read_bytes())
        at, data = drawn.choice(batches)
        content[at : at + len(data)] = bytes(len(data))
        log.write_bytes(content)


def take_out_a_batch(path: Path, drawn: random.Random) -> None:
    """Take a batch out of the middle, as if its segment were lost: nothing of a start notices."""
    log = _a_log(path, None)
    batches = [] if log is None else [data for _, data in batches_of(log.read_bytes())]
    if log is not None and len(batches) > 2:
        del batches[drawn.randrange(1, len(batches) - 1)]
        log.write_bytes(b"".join(batches))
        for index in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
            index.unlink(missing_ok=True)


def lose_a_segment(path: Path, drawn: random.Random) -> None:
    """Lose the files of a segment that others follow."""
    *logs, _ = sorted(path.glob("*.log")) or [path]
    lost = drawn.choice(logs).stem if logs else None
    for each in path.glob(f"{lost}.*"):
        each.unlink()


def flip_a_bit(path: Path, drawn: random.Random) -> None:
    """Flip a bit that the checksum of a batch covers: no broker notices another one."""
    log = _a_log(path, drawn)
    batches = [] if log is None else list(batches_of(log.read_bytes()))
    if log is not None and batches:
        content = bytearray(log.read_bytes())
        at, data = drawn.choice(batches)
        content[drawn.randrange(at + 17, at + len(data))] ^= 1 << drawn.randrange(8)
        log.write_bytes(content)


def misplace_the_last_batch(path: Path, drawn: random.Random) -> None:
    """Flip a bit of its base offset, which no checksum covers, so that the log seems longer."""
    _flip_in_last_header(path, drawn.choice((5, 4)))


def raise_the_last_epoch(path: Path, _drawn: random.Random) -> None:
    """Flip a bit of the leader epoch of the last batch, which no checksum covers."""
    _flip_in_last_header(path, 13)


def _flip_in_last_header(path: Path, at: int) -> None:
    log = _a_log(path, None)
    assert log is not None
    content = bytearray(log.read_bytes())
    *_, (start, _) = batches_of(bytes(content))
    content[start + at] ^= 1
    log.write_bytes(content)


def misplace_a_batch(path: Path, drawn: random.Random) -> None:
    """Flip a bit of the base offset of a batch that others follow."""
    _flip_before_the_last_header(path, drawn, drawn.choice((3, 4, 5, 6)))


def change_an_epoch(path: Path, drawn: random.Random) -> None:
    """Flip a bit of the leader epoch of a batch that others follow."""
    _flip_before_the_last_header(path, drawn, drawn.choice((13, 14, 15)))


def _flip_before_the_last_header(path: Path, drawn: random.Random, at: int) -> None:
    log = _a_log(path, None)
    content = bytearray() if log is None else bytearray(log.read_bytes())
    *starts, _ = [start for start, _ in batches_of(bytes(content))] or [0]
    if log is not None and starts:
        content[drawn.choice(starts) + at] ^= 1 << drawn.randrange(8)
        log.write_bytes(content)


def lose_epochs(path: Path, _drawn: random.Random) -> None:
    (path / names.LEADER_EPOCH_CHECKPOINT).unlink(missing_ok=True)


def raise_epochs(path: Path, drawn: random.Random) -> None:
    """Let the epoch checkpoint claim a later epoch."""
    checkpoint = path / names.LEADER_EPOCH_CHECKPOINT
    if not checkpoint.exists() or checkpoint.read_bytes() == GARBLED:
        return
    entries = decode_leader_epoch_checkpoint(checkpoint.read_bytes())
    last = entries[-1] if entries else EpochEntry(0, 0)
    entries.append(EpochEntry(last.epoch + 5, last.start_offset + drawn.randrange(1, 60)))
    checkpoint.write_bytes(encode_leader_epoch_checkpoint(entries))


def remove(path: Path, _drawn: random.Random) -> None:
    shutil.rmtree(path)


def nothing(_path: Path, _drawn: random.Random) -> None:
    """Damage nothing."""


DAMAGES: Final[tuple[Damage, ...]] = (
    *(lose_logs, lose_metadata, move_start, cut_half, empty_logs, zero_a_batch, flip_a_bit),
    *(take_out_a_batch, lose_a_segment),
    *(lose_epochs, raise_epochs, misplace_a_batch, change_an_epoch, remove, nothing, nothing),
)


def change_topic_id(path: Path, _drawn: random.Random) -> None:
    """Let it be of a topic that the cluster does not have."""
    (path / names.PARTITION_METADATA).write_text("version: 0\ntopic_id: VGhpcyBpcyBub3QgaXQhIQ\n")


def garble_epochs(path: Path, _drawn: random.Random) -> None:
    (path / names.LEADER_EPOCH_CHECKPOINT).write_bytes(GARBLED)


def add_future_snapshot(path: Path, _drawn: random.Random) -> None:
    """Leave a producer snapshot of an offset that the log does not reach."""
    snapshots = sorted(path.glob("*.snapshot"))
    if snapshots:
        shutil.copy(snapshots[-1], path / f"{999_999:020d}.snapshot")


def damage_transaction_index(path: Path, _drawn: random.Random) -> None:
    log = _a_log(path, None)
    if log is not None:
        log.with_suffix(".txnindex").write_bytes(b"\0\7" + bytes(32))


def leave_cleaned(path: Path, drawn: random.Random) -> None:
    """Leave a segment that the cleaner did not finish."""
    log = _a_log(path, drawn)
    if log is not None:
        shutil.copy(log, path / f"{log.name}.cleaned")


def leave_swapped(path: Path, drawn: random.Random) -> None:
    """Leave a segment that only a start gives its name."""
    log = _a_log(path, drawn)
    if log is not None:
        log.rename(path / f"{log.name}.swap")


def leave_deleted(path: Path, drawn: random.Random) -> None:
    """Leave a segment that a start deletes."""
    log = _a_log(path, drawn)
    if log is not None:
        log.rename(path / f"{log.name}.deleted")


def mark_as_deleted(path: Path, _drawn: random.Random) -> None:
    path.rename(f"{path}.{7:032x}-delete")


def mark_as_stray(path: Path, _drawn: random.Random) -> None:
    path.rename(f"{path}.{7:032x}-stray")


def mark_as_future(path: Path, _drawn: random.Random) -> None:
    """Leave only a copy that the broker was making on this disk."""
    path.rename(f"{path}.{7:032x}-future")


def raise_high_watermark(path: Path, _drawn: random.Random) -> None:
    _set_offset(path, names.REPLICATION_OFFSET_CHECKPOINT, 999_999)


def raise_recovery_point(path: Path, _drawn: random.Random) -> None:
    """Let everything count as flushed, and more than there is."""
    _set_offset(path, names.RECOVERY_POINT_CHECKPOINT, 999_999)


MORE_DAMAGES: Final[tuple[Damage, ...]] = (
    *DAMAGES,
    *(change_topic_id, garble_epochs, add_future_snapshot, damage_transaction_index),
    *(leave_cleaned, leave_swapped, leave_deleted),
    *(mark_as_deleted, mark_as_stray, mark_as_future),
    *(raise_high_watermark, raise_recovery_point),
)
"""With those of small files, leftover files and whole directories."""
DAMAGES_AND_RETENTION: Final = (*MORE_DAMAGES, delete_the_oldest)
"""With what is no damage: a broker that deleted the oldest records, and perhaps all."""


def damage_some(
    folder: Path, partitions: Iterable[str], seed: int, damages: Sequence[Damage] = DAMAGES
) -> None:
    """Damage some replicas of partitions."""
    drawn = random.Random(seed)
    for name in partitions:
        for path in sorted(folder.glob(f"*/{name}")):
            for damage in drawn.sample(damages, drawn.choice((0, 1, 1, 2))):
                if path.exists():
                    damage(path, drawn)


def _a_log(path: Path, drawn: random.Random | None) -> Path | None:
    """One of the logs; the last one without ``drawn``."""
    logs = sorted(path.glob("*.log"))
    if not logs:
        return None
    return logs[-1] if drawn is None else drawn.choice(logs)


# --- what a disk has

_HEADER_BYTES: Final = 61


def batches_of(log: bytes) -> Iterator[tuple[int, bytes]]:
    """The batches of a log with their positions, up to the first one that is damaged."""
    at = 0
    while at + _HEADER_BYTES <= len(log):
        size = 12 + int.from_bytes(log[at + 8 : at + 12])
        if size < _HEADER_BYTES or at + size > len(log):
            return
        yield at, log[at : at + size]
        at += size


@dataclass(frozen=True, slots=True, order=True)
class Held:
    """A batch that a replica holds.

    Its leader epoch is the one that it had before it was damaged, as no checksum covers it.
    """

    base_offset: int
    data: bytes
    leader_epoch: int = field(compare=False)

    @property
    def last_offset(self) -> int:
        return self.base_offset + int.from_bytes(self.data[7:11])


def held(valid: Path, damaged: Path, *, misplaced: bool = False) -> set[Held]:
    """The batches of a valid log that are in a damaged one, too, wherever they are now.

    Args:
        valid: the directory of the partition before it was damaged.
        damaged: the same afterwards.
        misplaced: whether to count those with another base offset, too.
    """
    swapped = [path for path in damaged.glob("*.log.swap") if not path.with_suffix("").exists()]
    # A start gives the second ones their name.
    content = b"".join(path.read_bytes() for path in (*damaged.glob("*.log"), *swapped))
    found = set()
    for log in valid.glob("*.log"):
        for _, data in batches_of(log.read_bytes()):
            is_like = re.escape(data[8:12]) + b".{4}" + re.escape(data[16:])
            pattern = (b".{8}" if misplaced else re.escape(data[:8])) + is_like
            if data in content or re.search(pattern, content, re.DOTALL):
                epoch = int.from_bytes(data[12:16], signed=True)
                found.add(Held(int.from_bytes(data[:8]), data[16:], epoch))
    return found
