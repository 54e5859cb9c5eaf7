"""Logs with records to erase, and what is left by the simplest reading of the manual."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from builders.compactable_logs import KEYS, compactable_logs
from kdump.broker.cleaner.compaction_rewrite import Piece
from kdump.formats import record_batch
from kdump.repair.erase.erased_log import LogToErase
from kdump.repair.erase.mask import Mask
from kdump.repair.erase.named_records import NamedRecords
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, walk_segment
from kdump.storage.local_disk import local
from kdump.target.target_file import CopiedFrom
from kdump.target.virtual_directory import BytesSource

PARTITION = "orders-0"


def erased(path: Path, log: bytes, named: NamedRecords, mask: Mask | None = None) -> bytes:
    """Write ``log``, and return what it becomes."""
    path.write_bytes(log)
    chunks = LogToErase(local(path), named.matcher(PARTITION), mask=mask).chunks()
    return b"".join(_content(log, chunk.piece) for chunk in chunks)


def _content(log: bytes, piece: Piece | None) -> bytes:
    assert piece is not None
    return log[piece.start : piece.end] if isinstance(piece, CopiedFrom) else piece


Read = tuple[int, int, bytes | None, bytes | None, object, bool]


def records_of(log: bytes) -> Iterator[Read]:
    """Offset, timestamp, key, value and headers of each record, and whether it is control."""
    for step in walk_segment(BytesSource(log), with_records=True):
        if isinstance(step, MessageSet):
            for each in step.messages:
                yield each.offset, each.timestamp, each.key, each.value, (), False
        elif isinstance(step, RecordColumns):
            for row in range(step.count):
                flags = int(step.batches.attributes[step.batch[row]])
                yield (
                    int(step.offset[row]),
                    int(step.timestamp[row]),
                    step.key(row),
                    step.value(row),
                    step.headers(row),
                    bool(flags & record_batch.CONTROL_FLAG),
                )


def is_named(named: NamedRecords, each: Read) -> bool:
    """Whether a record is named, by the simplest reading of the words."""
    offset, _, key, _, _, is_control = each
    has_key = key is not None and (key in named.keys or key.startswith(named.prefixes))
    return not is_control and (has_key or offset in named.offsets.get(PARTITION, ()))


def random_erasure(rng: random.Random) -> tuple[bytes, NamedRecords]:
    """Return a log of all formats and codecs, and some of its records, by key and by offset."""
    logs = compactable_logs(rng)
    log = logs[rng.choice(sorted(logs))]
    keys = rng.sample(range(KEYS + 1), rng.randrange(9))
    prefixes = rng.sample([b"key-1", b"key-24", b"nobody"], rng.randrange(3))
    present = sorted({each[0] for each in records_of(log)})
    offsets = rng.sample(present, min(len(present), rng.randrange(6)))
    named = NamedRecords(
        frozenset(b"key-%d" % number * (1 + number % 3 * 10) for number in keys),
        tuple(sorted(prefixes)),
        {PARTITION: tuple(sorted(offsets)), "others-0": (0, 1, 2)},
    )
    return log, named
