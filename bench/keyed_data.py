"""Make log directories to compact: every record has a random key of a given number of keys."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data import (
    BASE_OFFSET,
    BATCHES_IN_POOL,
    EMPTY_SNAPSHOT,
    KEY_DIGITS,
    SegmentShape,
    encode_records,
    finished,
    link_logs,
    sealed,
    write_indexes,
    write_root,
)


def make_compactable(
    name: str, shape: SegmentShape, segments: int, partitions: int, folder: Path
) -> Path:
    """Write the log directory ``FOLDER/NAME`` unless it exists; gives its path.

    The directory is clean. Each partition has ``segments`` segments of ``shape``, with keys of
    their own, and an active segment with a single batch. The logs of all partitions are links to
    those of the first.
    """
    directory = folder / name
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        first = unfinished / "topic-0"
        first.mkdir(parents=True)
        batches = _batches_of_random_keys(shape)
        end_offset = 0
        for number in range(segments + 1):
            log = first / f"{end_offset:020d}.log"
            with log.open("wb") as file:
                while file.tell() < (shape.size_bytes if number < segments else 1):
                    batch = next(batches)
                    BASE_OFFSET.pack_into(batch, 0, end_offset)
                    file.write(batch)
                    end_offset += shape.records_per_batch
            write_indexes(log, shape)
        (first / f"{end_offset:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)
        (first / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        (first / "partition.metadata").write_text("version: 0\ntopic_id: a2R1bXBCZW5jaFRvcGljMQ")
        for number in range(1, partitions):
            shutil.copytree(first, unfinished / f"topic-{number}", copy_function=link_logs)
        ends = [f"topic {number} {end_offset}" for number in range(partitions)]
        write_root(unfinished, ends, ends, is_clean=True)
    return directory


def link_partitions(name: str, source: str, partitions: int, folder: Path) -> Path:
    """Write ``FOLDER/NAME`` unless it exists: so many partitions like the first of a source."""
    directory = folder / name
    if directory.exists():
        return directory
    first = folder / source / "topic-0"
    with finished(directory) as unfinished:
        unfinished.mkdir()
        for number in range(partitions):
            shutil.copytree(first, unfinished / f"topic-{number}", copy_function=link_logs)
        end = max(int(path.stem) for path in first.glob("*.snapshot"))
        ends = [f"topic {number} {end}" for number in range(partitions)]
        write_root(unfinished, ends, ends, is_clean=True)
    return directory


def make_list_of_keys(count: int, folder: Path) -> Path:
    """Write ``FOLDER/listed-keys-COUNT/keys`` unless it exists; returns its directory.

    Every tenth key of a compactable directory is in it, and keys that it does not have.
    """
    directory = folder / f"listed-keys-{count}"
    if not directory.exists():
        with finished(directory) as unfinished:
            unfinished.mkdir()
            keys = (f"key-{10 * number:0{KEY_DIGITS}d}\n" for number in range(count))
            (unfinished / "keys").write_text("".join(keys))
    return directory


def _batches_of_random_keys(shape: SegmentShape) -> Iterator[bytearray]:
    """Yield batches without end; every record has a random key."""
    generator = np.random.default_rng(1)
    rng = random.Random(1)
    pool = [encode_records(shape, rng) for _ in range(BATCHES_IN_POOL)]
    # Records have sizes that depend only on their number in the batch.
    (size,) = {len(records) for records in pool}
    content = np.frombuffer(b"".join(pool), np.uint8).reshape(len(pool), size).copy()
    found = [match.end() for match in re.finditer(rb"key-(?=[0-9]{8})", pool[0])]
    assert len(found) == shape.records_per_batch, "values that hold no key"
    at_digits = np.array(found)[:, None] + np.arange(KEY_DIGITS)
    powers = 10 ** np.arange(KEY_DIGITS - 1, -1, -1)
    while True:
        keys = generator.integers(shape.keys, size=(len(pool), shape.records_per_batch))
        content[:, at_digits] = keys[..., None] // powers % 10 + ord("0")
        for records in content:
            yield sealed(shape, records.tobytes())
