"""Make the data of the bench: segments of a given size and shape, and large log directories.

Seeds are fixed, so that all machines measure over the same bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EPOCH_MS: Final = 1_767_225_600_000

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_AFTER_CHECKSUM: Final = struct.Struct(">hiqqqhii")
_BASE_OFFSET: Final = struct.Struct(">q")
_BYTES_BEFORE_LENGTH_ENDS: Final = 12
_CODECS: Final = {"none": 0, "lz4": 3, "zstd": 4}

_KEY_DIGITS: Final = 8
_INDEX_INTERVAL_BYTES: Final = 4096
_INDEX_BYTES: Final = 10 << 20
"""Size that a broker preallocates for each index of the active segment."""
_EMPTY_SNAPSHOT: Final = bytes.fromhex("0001 48674bc7 00000000")

_BATCHES_IN_POOL: Final = 500
"""A segment repeats this number of batches at other offsets, which no checksum covers."""


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """The shape of a segment.

    Attributes:
        name: name of its directory.
        size_bytes: size of the file, to within a batch.
        records_per_batch: number of records, with keys of 12 bytes and values of 100 bytes.
        values: ``"text"`` (JSON with random words), ``"short"`` (the same in 80 bytes),
            ``"random"`` (any bytes).
        codec: ``"none"``, ``"lz4"`` or ``"zstd"``.
        keys: number of distinct keys, chosen at random for each record; 0 to repeat the keys of
            the repeated batches.
    """

    name: str
    size_bytes: int
    records_per_batch: int = 97
    values: str = "text"
    codec: str = "none"
    keys: int = 0


@contextlib.contextmanager
def finished(path: Path) -> Iterator[Path]:
    """Yield the path at which to make a file or directory; it gets its name when it is complete."""
    unfinished = path.with_name(path.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    yield unfinished
    unfinished.rename(path)


def make_segment(shape: SegmentShape, folder: Path) -> Path:
    """Write ``FOLDER/NAME/00000000000000000000.log`` unless it exists; return its path."""
    path = folder / shape.name / f"{0:020d}.log"
    if not path.exists():
        with finished(path) as unfinished, unfinished.open("wb") as file:
            for batch in _batches(shape):
                if file.tell() >= shape.size_bytes:
                    break
                file.write(batch)
    return path


def _batches(shape: SegmentShape) -> Iterator[bytearray]:
    """Yield batches without end."""
    rng = random.Random(1)
    pool: list[bytearray] = []
    base_offset = 0
    while True:
        if len(pool) < _BATCHES_IN_POOL:
            batch = _batch(shape, rng)
            pool.append(batch)
        else:
            batch = pool[base_offset // shape.records_per_batch % _BATCHES_IN_POOL]
        _BASE_OFFSET.pack_into(batch, 0, base_offset)
        yield batch
        base_offset += shape.records_per_batch


def _batch(shape: SegmentShape, rng: random.Random) -> bytearray:
    return _sealed(shape, _records(shape, rng))


def _records(shape: SegmentShape, rng: random.Random) -> bytes:
    """Encode the records of a batch, uncompressed."""
    value = _VALUES[shape.values]
    records = bytearray()
    for delta in range(shape.records_per_batch):
        key = b"key-%0*d" % (_KEY_DIGITS, rng.randrange(100_000))
        content = value(rng)
        body = b"".join(
            (
                b"\0",
                _varint(delta),
                _varint(delta),
                _varint(len(key)),
                key,
                _varint(len(content)),
                content,
                b"\0",
            )
        )
        records += _varint(len(body)) + body
    return bytes(records)


def _sealed(shape: SegmentShape, records: bytes) -> bytearray:
    """Encode the batch of ``records`` at offset 0."""
    import crc32c

    compressed = _compressed(records, shape.codec)
    count = shape.records_per_batch
    fields = (_CODECS[shape.codec], count - 1, EPOCH_MS, EPOCH_MS + count - 1, -1, -1, -1, count)
    checksum = crc32c.crc32c(_AFTER_CHECKSUM.pack(*fields) + compressed)
    length = _HEADER.size + len(compressed) - _BYTES_BEFORE_LENGTH_ENDS
    return bytearray(_HEADER.pack(0, length, 0, 2, checksum, *fields) + compressed)


def _compressed(content: bytes, codec: str) -> bytes:
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=3).compress(content)
    if codec == "lz4":
        import lz4.frame

        frame: bytes = lz4.frame.compress(
            content, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
        )
        return frame
    return content


def _varint(value: int) -> bytes:
    zigzag = value << 1
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_WORDS: Final = (
    "order",
    "basket",
    "status",
    "region",
    "omega",
    "gamma",
    "iota",
    "lambda",
    "temperature",
    "alpha",
    "pending",
    "shipped",
)


def _text(rng: random.Random, size_bytes: int = 100) -> bytes:
    words = " ".join(rng.choice(_WORDS) for _ in range(12))
    begin = f'{{"id":{rng.randrange(10**9):09d},"note":"{words}'.encode()
    return begin[: size_bytes - 2].ljust(size_bytes - 2) + b'"}'


def _short_text(rng: random.Random) -> bytes:
    return _text(rng, 80)


def _random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(100)


_VALUES: Final[dict[str, Callable[[random.Random], bytes]]] = {
    "text": _text,
    "short": _short_text,
    "random": _random_bytes,
}


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
                    _BASE_OFFSET.pack_into(batch, 0, end_offset)
                    file.write(batch)
                    end_offset += shape.records_per_batch
            _write_indexes(log, shape)
        (first / f"{end_offset:020d}.snapshot").write_bytes(_EMPTY_SNAPSHOT)
        (first / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        (first / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        for number in range(1, partitions):
            shutil.copytree(first, unfinished / f"topic-{number}", copy_function=_link_logs)
        ends = [f"topic {number} {end_offset}" for number in range(partitions)]
        write_root(unfinished, ends, ends, is_clean=True)
    return directory


def _batches_of_random_keys(shape: SegmentShape) -> Iterator[bytearray]:
    """Yield batches without end; every record has a random key."""
    import numpy as np

    generator = np.random.default_rng(1)
    rng = random.Random(1)
    pool = [_records(shape, rng) for _ in range(_BATCHES_IN_POOL)]
    at_digits = []
    for records in pool:
        found = [match.end() for match in re.finditer(rb"key-(?=[0-9]{8})", records)]
        assert len(found) == shape.records_per_batch, "values that hold no key"
        at_digits.append(np.array(found)[:, None] + np.arange(_KEY_DIGITS))
    powers = 10 ** np.arange(_KEY_DIGITS - 1, -1, -1)
    for number in itertools.count():
        row = number % _BATCHES_IN_POOL
        content = np.frombuffer(pool[row], np.uint8).copy()
        keys = generator.integers(shape.keys, size=shape.records_per_batch)
        content[at_digits[row]] = keys[:, None] // powers % 10 + ord("0")
        yield _sealed(shape, content.tobytes())


def _write_indexes(log: Path, shape: SegmentShape) -> None:
    """Write the indexes of an inactive segment."""
    offset_index, _ = _offset_index(log)
    log.with_suffix(".index").write_bytes(offset_index)
    # All batches have the same timestamps; the time index has the first batch.
    last = shape.records_per_batch - 1
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", EPOCH_MS + last, last))


def _link_logs(source: str, target: str) -> None:
    """Copy a file, but link a log, since no program writes to it."""
    if source.endswith(".log"):
        Path(target).hardlink_to(source)
    else:
        shutil.copyfile(source, target)


def make_log_directory(folder: Path, partitions: int) -> Path:
    """Write a log directory of ``partitions`` partitions with six files each; return its path."""
    directory = folder / f"directory-{partitions}"
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        batch = bytes(_batch(SegmentShape("any", 0, records_per_batch=5), random.Random(1)))
        files = {
            f"{0:020d}.log": batch,
            f"{0:020d}.index": b"",
            f"{0:020d}.timeindex": struct.pack(">qi", EPOCH_MS + 4, 4),
            f"{5:020d}.snapshot": _EMPTY_SNAPSHOT,
            "leader-epoch-checkpoint": b"0\n1\n0 0\n",
        }
        names = [f"topic-{number // 10:04d}-{number % 10}" for number in range(partitions)]
        for name in names:
            partition = unfinished / name
            partition.mkdir(parents=True)
            for file, content in files.items():
                (partition / file).write_bytes(content)
            topic_id = f"{name[6:10]:A<22}"
            (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        lines = [name.rpartition("-")[0] + f" {name[-1]} 5" for name in names]
        write_root(unfinished, lines, lines, is_clean=True)
    return directory


def make_partitions(
    name: str, shape: SegmentShape, partitions: int, folder: Path, *, is_clean: bool
) -> Path:
    """Write the log directory ``FOLDER/NAME`` unless it exists; gives its path.

    All partitions have the same segment, as links to one file. With ``is_clean``, the directory has
    a clean shutdown marker; without, it is that of a broker killed before it flushed anything.
    """
    directory = folder / name
    if directory.exists():
        return directory
    log = make_segment(shape, folder)
    offset_index, end_offset = _offset_index(log)
    last = shape.records_per_batch - 1
    time_index = struct.pack(">qi", EPOCH_MS + last, last)
    padding = 0 if is_clean else _INDEX_BYTES
    files = {
        f"{0:020d}.index": offset_index + bytes(max(0, padding - len(offset_index))),
        f"{0:020d}.timeindex": time_index + bytes(max(0, padding - padding % 12 - len(time_index))),
        "leader-epoch-checkpoint": b"0\n1\n0 0\n",
        "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    }
    if is_clean:
        files[f"{end_offset:020d}.snapshot"] = _EMPTY_SNAPSHOT
    with finished(directory) as unfinished:
        for number in range(partitions):
            partition = unfinished / f"topic-{number}"
            partition.mkdir(parents=True)
            (partition / log.name).hardlink_to(log)
            for file, content in files.items():
                (partition / file).write_bytes(content)
        ends = [f"topic {number} {end_offset}" for number in range(partitions)]
        starts = [f"topic {number} 0" for number in range(partitions)]
        write_root(unfinished, ends if is_clean else starts, ends, is_clean=is_clean)
    return directory


_GROUPS: Final = 4_000
_COMMITTED_PARTITIONS: Final = 5


def make_group_offsets(name: str, size_bytes: int, folder: Path) -> Path:
    """Write the log directory ``FOLDER/NAME`` with ``__consumer_offsets-0`` unless it exists.

    Each of 4,000 groups commits the offsets of five partitions in a batch, again and again: 20,000
    keys have millions of records. Segments have at most 1 GiB.
    """
    directory = folder / name
    if directory.exists():
        return directory
    with finished(directory) as unfinished:
        partition = unfinished / "__consumer_offsets-0"
        partition.mkdir(parents=True)
        pool = [_commit(number) for number in range(_GROUPS)]
        batch_bytes = len(pool[0])
        base_offset = written = 0
        while written < size_bytes:
            count = -(-min(1 << 30, size_bytes - written) // batch_bytes) - 1
            log = partition / f"{base_offset:020d}.log"
            _write_in_turn(log, pool, count, base_offset)
            entries = _offset_index_of_equal_batches(batch_bytes, count)
            log.with_suffix(".index").write_bytes(entries)
            base_offset += count * _COMMITTED_PARTITIONS
            written += (count + 1) * batch_bytes
        end = [f"__consumer_offsets 0 {base_offset}"]
        write_root(unfinished, end, end, is_clean=True)
    return directory


def _write_in_turn(log: Path, pool: list[bytearray], count: int, base_offset: int) -> None:
    """Write ``count`` batches, those of the pool again and again, at the following offsets.

    They have one size; no checksum covers the offsets, which are set in columns.
    """
    import numpy as np

    batches = np.frombuffer(b"".join(pool), np.uint8).reshape(len(pool), -1).copy()
    with log.open("wb") as file:
        for first in range(0, count, len(pool)):
            rows = np.arange(first, min(first + len(pool), count))
            offsets = (base_offset + rows * _COMMITTED_PARTITIONS).astype(">i8")
            in_bytes = offsets.view(np.uint8).reshape(len(rows), -1)
            batches[: len(rows), : _BASE_OFFSET.size] = in_bytes
            file.write(batches[: len(rows)].tobytes())


def _offset_index_of_equal_batches(batch_bytes: int, count: int) -> bytes:
    """Build what :func:`_offset_index` finds in a log of group offsets, without reading it."""
    import numpy as np

    step = _INDEX_INTERVAL_BYTES // batch_bytes + 1
    rows = np.arange(step, count, step)
    last_offsets = (rows + 1) * _COMMITTED_PARTITIONS - 1
    return np.column_stack([last_offsets, rows * batch_bytes]).astype(">i4").tobytes()


def _commit(number: int) -> bytearray:
    """The batch in which a group commits its offsets."""
    group, topic = f"billing-service-{number:05d}".encode(), b"orders.events.v1"
    records = bytearray()
    for partition in range(_COMMITTED_PARTITIONS):
        key = struct.pack(
            f">hh{len(group)}sh{len(topic)}si", 1, len(group), group, len(topic), topic, partition
        )
        value = struct.pack(">hqihq", 3, 1_000 * number, 5, 0, EPOCH_MS)
        delta = _varint(partition)
        body = b"".join(
            (b"\0", delta, delta, _varint(len(key)), key, _varint(len(value)), value, b"\0")
        )
        records += _varint(len(body)) + body
    shape = SegmentShape("", 0, _COMMITTED_PARTITIONS)
    return _sealed(shape, bytes(records))


def copy_partitions(name: str, copy: str, folder: Path) -> Path:
    """Write or replace ``FOLDER/COPY``, with the segments of ``FOLDER/NAME``; return its path.

    The logs are links: loading or compacting the copy does not write to a valid log.
    """
    directory = folder / copy
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(folder / name, directory, copy_function=_link_logs)
    return directory


def remove_export(folder: Path) -> None:
    """Remove ``FOLDER/exported``: an export that is complete would not be written again."""
    shutil.rmtree(folder / "exported", ignore_errors=True)


def _offset_index(log: Path) -> tuple[bytes, int]:
    """Build the offset index of a segment as a broker does; return it and the log end offset."""
    entries = bytearray()
    base_offset = end_offset = int(log.stem)
    since_entry = 0
    with log.open("rb") as file:
        while header := file.read(_HEADER.size):
            fields = _HEADER.unpack(header)
            size = _BYTES_BEFORE_LENGTH_ENDS + fields[1]
            position = file.tell() - _HEADER.size
            end_offset = fields[0] + fields[6] + 1
            if since_entry > _INDEX_INTERVAL_BYTES:
                entries += struct.pack(">ii", end_offset - 1 - base_offset, position)
                since_entry = 0
            since_entry += size
            file.seek(position + size)
    return bytes(entries), end_offset


def write_root(
    directory: Path, recovery_points: list[str], high_watermarks: list[str], *, is_clean: bool
) -> None:
    """Write the files in the root of a log directory."""
    for name, lines in (
        ("recovery-point-offset-checkpoint", recovery_points),
        ("replication-offset-checkpoint", high_watermarks),
    ):
        (directory / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    (directory / "meta.properties").write_text(
        "#\n#Sat Nov 21 00:00:00 UTC 2026\ncluster.id=kdumpBenchAAAAAAAAAAAA\nversion=1\n"
        "node.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    if is_clean:
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
