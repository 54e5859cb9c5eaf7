"""Random partitions, and damage to their directories, generated from a seed.

A partition is generated as logs only; Kafka itself loads it and writes indexes and snapshots.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from builders import damage
from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.message_sets import message, wrapped_values
from kdump.formats.compression import Codec
from kdump.formats.names import LEADER_EPOCH_CHECKPOINT, FileKind, OffsetFileName
from kdump.formats.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG

Files = dict[str, bytes]

CODECS: Final = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
SEGMENT_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")
PADDED_BYTES: Final = 65536
"""Approximate size of the preallocated index of an active segment."""


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    has_txn: bool = False


@dataclass(slots=True)
class _Writer:
    """Writer of batches as a leader appends them: offsets, epochs and sequences increase."""

    rng: random.Random
    offset: int = 0
    epoch: int = 0
    timestamp_ms: int = BASE_TIMESTAMP_MS
    producers: list[_Producer] = field(default_factory=list)

    def __post_init__(self) -> None:
        ids = self.rng.sample(range(200_000), self.rng.choice([1, 4, 4, 30]))
        self.producers = [_Producer(producer_id) for producer_id in ids]

    def next_batch(self) -> bytes:
        rng = self.rng
        self.timestamp_ms += rng.randrange(-10_000, 50_000)
        if rng.random() < 0.04:
            self.epoch += rng.choice([1, 2])
        producer = rng.choice(self.producers)
        if producer.has_txn and rng.random() < 0.3:
            return self._marker(producer)
        if rng.random() < 0.4:
            return self._data(None)
        return self._data(producer)

    def legacy(self, magic: int) -> bytes:
        """Write one message of magic 0 or 1, or several in a wrapper."""
        if self.rng.random() < 0.5:
            data = message(self.offset, magic=magic, timestamp=self.timestamp_ms)
            self.offset += 1
            return data
        values = [self.rng.randbytes(20) for _ in range(self.rng.randrange(1, 5))]
        data = wrapped_values(values, first_offset=self.offset, magic=magic)
        self.offset += len(values)
        return data

    def _data(self, producer: _Producer | None) -> bytes:
        rng = self.rng
        count = rng.randrange(1, 8)
        records = [
            record(
                self.offset + step,
                key=None if rng.random() < 0.1 else b"key-%d" % rng.randrange(40),
                value=None if rng.random() < 0.1 else rng.randbytes(rng.randrange(90)),
                timestamp=self.timestamp_ms + rng.randrange(-1000, 1000),
            )
            for step in range(count)
        ]
        codec = rng.choice(CODECS)
        self.offset += count + (rng.randrange(20) if rng.random() < 0.1 else 0)
        if producer is None:
            return batch(records, codec=codec, partition_leader_epoch=self.epoch)
        is_transactional = producer.has_txn or rng.random() < 0.4
        producer.has_txn = is_transactional
        data = batch(
            records,
            codec=codec,
            attributes=TRANSACTIONAL_FLAG if is_transactional else 0,
            partition_leader_epoch=self.epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
        )
        producer.sequence += count
        return data

    def _marker(self, producer: _Producer) -> bytes:
        rng = self.rng
        kind, coordinator_epoch = rng.randrange(2), rng.randrange(5)
        if rng.random() < 0.3:
            producer.epoch += 1
            producer.sequence = 0
        producer.has_txn = False
        data = batch(
            [
                record(
                    self.offset,
                    key=bytes(2) + kind.to_bytes(2),
                    value=bytes(2) + coordinator_epoch.to_bytes(4),
                    timestamp=self.timestamp_ms,
                )
            ],
            attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
            partition_leader_epoch=self.epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        self.offset += 1
        return data


def random_logs(rng: random.Random, *, may_overflow: bool = True) -> Files:
    """Generate the logs of a partition, one to five segments.

    Args:
        rng: source of all random choices.
        may_overflow: let a few segments hold offsets too far apart for their index. A broker splits
            these, and leaves a leader epoch checkpoint that does not match the new segments.
    """
    writer = _Writer(rng, offset=rng.choice([0, 0, 0, 1000]))
    logs: Files = {}
    legacy_magic = rng.choice([0, 1]) if rng.random() < 0.1 else None
    for _ in range(rng.choice([1, 2, 3, 5])):
        base_offset = writer.offset
        log = bytearray()
        for _ in range(rng.choice([1, 5, 20, 60])):
            if legacy_magic is not None and rng.random() < 0.9:
                log += writer.legacy(legacy_magic)
            else:
                legacy_magic = None
                log += writer.next_batch()
        if rng.random() < 0.02 and may_overflow:
            # Old compaction merged segments beyond what a 32-bit index can hold.
            writer.offset += 2**31
            log += b"".join(writer.next_batch() for _ in range(rng.randrange(1, 9)))
        logs[str(OffsetFileName(base_offset, FileKind.LOG))] = bytes(log)
    return logs


def as_after_crash(files: Files) -> Files:
    """Change the files to those of a killed broker: padded indexes, no snapshot at the end."""
    after = dict(files)
    bases = sorted(name[:20] for name in files if name.endswith(".log"))
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        name = bases[-1] + suffix
        size = PADDED_BYTES // entry_bytes * entry_bytes
        after[name] = after.get(name, b"").ljust(size, b"\0")
    for name in files:
        if name.endswith(".snapshot") and name[:20] not in bases:
            del after[name]
    return after


Happening = Callable[[random.Random, Files], None]
"""A function that changes the files of a partition in place."""


def content_damaged(rng: random.Random, files: Files) -> None:
    _, after = damage.damaged(rng, files)
    files.clear()
    files.update(after)


def log_damaged(rng: random.Random, files: Files) -> None:
    name = rng.choice(_logs(files))
    damages = (*damage.ANY_FILE, *damage.LOG, *damage.LOG)
    files[name] = bytes(rng.choice(damages)(rng, bytearray(files[name])))


def file_missing(rng: random.Random, files: Files) -> None:
    del files[rng.choice(sorted(files))]


def segment_missing(rng: random.Random, files: Files) -> None:
    base = rng.choice(_logs(files))[:20]
    for name in sorted(files):
        if name.startswith(base) and (rng.random() < 0.9 or name.endswith(".log")):
            del files[name]


def swap_interrupted(rng: random.Random, files: Files) -> None:
    _give_suffix(rng, files, ".swap", keep=rng.random() < 0.4)


def cleaning_interrupted(rng: random.Random, files: Files) -> None:
    _give_suffix(rng, files, ".cleaned", keep=True)


def deletion_interrupted(rng: random.Random, files: Files) -> None:
    _give_suffix(rng, files, ".deleted", keep=rng.random() < 0.5)


def orphan_index(rng: random.Random, files: Files) -> None:
    files[f"{rng.randrange(2000):020d}{rng.choice(SEGMENT_SUFFIXES[1:])}"] = rng.randbytes(24)


def snapshot_elsewhere(rng: random.Random, files: Files) -> None:
    snapshots = [name for name in sorted(files) if name.endswith(".snapshot")]
    if snapshots:
        files[f"{rng.randrange(900):020d}.snapshot"] = files[rng.choice(snapshots)]


def epochs_damaged(rng: random.Random, files: Files) -> None:
    last = int(_logs(files)[-1][:20])
    files[LEADER_EPOCH_CHECKPOINT] = rng.choice(
        [
            b"",
            b"0\n0\n",
            b"0\n1\n0 0\n\n",
            b"0\n2\n0 0\n",
            b"1\n0\n",
            b"0\n2\n3 9\n1 4\n",
            b"0\n2\n0 0\n1 %d\n" % (last + rng.randrange(100)),
            b"0\n1\n0 -5\n",
            b"0\n1\n-1 5\n",
            b"0\n-1\n",
            b"0\r\n1\r\n7  0\r\n",
        ]
    )


def strange_name(rng: random.Random, files: Files) -> None:
    names = (
        "README",
        ".DS_Store",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata.tmp",
        "0.log",
        "7.log",
        "7.index",
        "00000000000000000003.foo.swap",
        "00000000000000000900-0000000004.checkpoint.deleted",
        "abc.index",
        "abc.log",
        "abc.snapshot",
        "5.snapshot",
        "abc.swap",
        "abc.cleaned",
        "abc.deleted",
        "00000000000000000000.log.bak",
        "-5.index",
    )
    files[rng.choice(names)] = rng.choice([b"", b"hello"])


def metadata_there(rng: random.Random, files: Files) -> None:
    files["partition.metadata"] = rng.choice(
        [
            b"version: 0\ntopic_id: lr5S-dRKRWmPcDKmX_2mNw\n",
            b"version: 0\ntopic_id: lr5S-dRKRWmPcDKmX_2mNw",
            b"version: 0\n",
            b"",
            b"version: x\ntopic_id: lr5S-dRKRWmPcDKmX_2mNw\n",
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
        ]
    )


HAPPENINGS: Final[tuple[Happening, ...]] = (
    content_damaged,
    content_damaged,
    content_damaged,
    log_damaged,
    log_damaged,
    log_damaged,
    log_damaged,
    file_missing,
    segment_missing,
    swap_interrupted,
    swap_interrupted,
    cleaning_interrupted,
    deletion_interrupted,
    orphan_index,
    snapshot_elsewhere,
    epochs_damaged,
    strange_name,
    metadata_there,
)


def after_happenings(rng: random.Random, files: Files) -> tuple[list[str], Files]:
    """Damage the files up to three times; return the names of the damages, and the files."""
    after = dict(files)
    happened = []
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        if not _logs(after):
            break
        happening = rng.choice(HAPPENINGS)
        happening(rng, after)
        happened.append(happening.__name__)
    return happened, after


def checkpointed_offsets(rng: random.Random, end_offset: int) -> Iterator[tuple[str, int]]:
    """Yield random lines of the three checkpoints for a log that ends at ``end_offset``."""
    within = rng.randrange(end_offset + 1)
    recovery_point = rng.choice([0, 0, within, within, end_offset, end_offset + 50])
    yield "recovery-point-offset-checkpoint", recovery_point
    if rng.random() < 0.25:
        yield "log-start-offset-checkpoint", rng.choice([within, within, 0, end_offset + 10])
    yield "replication-offset-checkpoint", rng.choice([end_offset, within])


def _logs(files: Files) -> list[str]:
    return sorted(name for name in files if name.endswith(".log") and len(name) == 24)


def _give_suffix(rng: random.Random, files: Files, suffix: str, *, keep: bool) -> None:
    """Rename or copy the files of one segment, usually all of them."""
    base = rng.choice(_logs(files))[:20]
    for kind in SEGMENT_SUFFIXES:
        name = base + kind
        if name in files and (kind == ".log" or rng.random() < 0.8):
            files[name + suffix] = files[name] if keep else files.pop(name)
