"""Log directories after a clean shutdown, with something to compact."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.compactable_logs import compactable_logs
from builders.recover_for_differ import recover
from kdump.formats import names
from kdump.formats.checkpoints import OffsetEntry, encode_offset_checkpoint
from kdump.formats.record_batch import Record
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.scan.records import RecordColumns
from kdump.scan.walk import walk_segment
from kdump.storage.local_disk import local

NOW_MS: Final = BASE_TIMESTAMP_MS + 10 * 86_400_000
KEYS: Final = 7


def plain_directory(path: Path, topics: Sequence[str] = ("users",), segments: int = 3) -> Path:
    """Write a log directory whose partitions hold ten values of each key in inactive segments.

    One record of each partition has no key. The active segment has one record.
    """
    for topic in topics:
        partition = path / f"{topic}-0"
        partition.mkdir(parents=True)
        offset = 0
        for _ in range(segments):
            begin, written = offset, []
            for _ in range(10 * KEYS // segments // 5):
                written.append(batch([_plain(offset + step) for step in range(5)]))
                offset += 5
            (partition / f"{begin:020d}.log").write_bytes(b"".join(written))
        (partition / f"{offset:020d}.log").write_bytes(batch([record(offset, b"active", b"one")]))
    return closed(path)


def _plain(offset: int) -> Record:
    key = None if offset == 3 else b"key-%d" % (offset % KEYS)
    return record(offset, key, b"value-%d" % offset)


def varied_directory(path: Path, seed: int, count: int = 4) -> Path:
    """Write a log directory with varied partitions, generated from a seed."""
    rng = random.Random(seed)
    for number in range(count):
        partition = path / f"case-{number}"
        partition.mkdir(parents=True)
        for name, content in compactable_logs(rng).items():
            (partition / name).write_bytes(content)
    return closed(path)


def closed(path: Path) -> Path:
    """Give the log directory the checkpoints of a clean shutdown with everything replicated."""
    recover(path)
    offsets = read_log_directory(
        local(path), DirectoryKind.LOG_DIRECTORY
    ).checkpoints.recovery_points
    lines = [OffsetEntry(partition, end) for partition, end in (offsets or {}).items()]
    (path / names.REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(lines))
    return path


def last_values(partition: Path) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key."""
    found: dict[bytes | None, bytes | None] = {}
    for log in sorted(partition.glob("*.log")):
        with local(log).open_file() as source:
            for step in walk_segment(source, with_records=True):
                if isinstance(step, RecordColumns):
                    found.update((step.key(row), step.value(row)) for row in range(step.count))
    return found
