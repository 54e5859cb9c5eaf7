"""Make the data of the bench: segments of a given size and shape, and large log directories.

Seeds are fixed, so that all machines measure over the same bytes.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EPOCH_MS: Final = 1_767_225_600_000

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_AFTER_CHECKSUM: Final = struct.Struct(">hiqqqhii")
BASE_OFFSET: Final = struct.Struct(">q")
_BYTES_BEFORE_LENGTH_ENDS: Final = 12
_CODECS: Final = {"none": 0, "lz4": 3, "zstd": 4}

KEY_DIGITS: Final = 8
INDEX_INTERVAL_BYTES: Final = 4096
INDEX_BYTES: Final = 10 << 20
"""Size that a broker preallocates for each index of the active segment."""
EMPTY_SNAPSHOT: Final = bytes.fromhex("0001 48674bc7 00000000")

BATCHES_IN_POOL: Final = 500
"""A segment repeats this number of batches at other offsets, which no checksum covers."""


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """The shape of a segment.

    Attributes:
        name: name of its directory.
        size_bytes: size of the file, to within a batch.
        records_per_batch: number of records, with keys of 12 bytes and values of 100 bytes.
        values: ``"text"`` (JSON with random words), ``"short"`` (the same in 80 bytes),
            ``"tiny"`` (in 20 bytes), ``"random"`` (any bytes).
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
        if len(pool) < BATCHES_IN_POOL:
            batch = _batch(shape, rng)
            pool.append(batch)
        else:
            batch = pool[base_offset // shape.records_per_batch % BATCHES_IN_POOL]
        BASE_OFFSET.pack_into(batch, 0, base_offset)
        yield batch
        base_offset += shape.records_per_batch


def _batch(shape: SegmentShape, rng: random.Random) -> bytearray:
    return sealed(shape, encode_records(shape, rng))


def encode_records(shape: SegmentShape, rng: random.Random) -> bytes:
    """Encode the records of a batch, uncompressed."""
    value = _VALUES[shape.values]
    records = bytearray()
    for delta in range(shape.records_per_batch):
        key = b"key-%0*d" % (KEY_DIGITS, rng.randrange(100_000))
        content = value(rng)
        body = b"".join(
            (
                b"\0",
                encode_varint(delta),
                encode_varint(delta),
                encode_varint(len(key)),
                key,
                encode_varint(len(content)),
                content,
                b"\0",
            )
        )
        records += encode_varint(len(body)) + body
    return bytes(records)


def sealed(shape: SegmentShape, records: bytes) -> bytearray:
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


def encode_varint(value: int) -> bytes:
    """Encode a number that is not negative (``ByteUtils.writeVarint``)."""
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


def _tiny_text(rng: random.Random) -> bytes:
    return _text(rng, 20)


def _random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(100)


_VALUES: Final[dict[str, Callable[[random.Random], bytes]]] = {
    "text": _text,
    "short": _short_text,
    "tiny": _tiny_text,
    "random": _random_bytes,
}


def write_indexes(log: Path, shape: SegmentShape) -> None:
    """Write the indexes of an inactive segment."""
    offset_index, _ = offset_index_of(log)
    log.with_suffix(".index").write_bytes(offset_index)
    # All batches have the same timestamps; the time index has the first batch.
    last = shape.records_per_batch - 1
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", EPOCH_MS + last, last))


def link_logs(source: str, target: str) -> None:
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
            f"{5:020d}.snapshot": EMPTY_SNAPSHOT,
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
    offset_index, end_offset = offset_index_of(log)
    last = shape.records_per_batch - 1
    time_index = struct.pack(">qi", EPOCH_MS + last, last)
    padding = 0 if is_clean else INDEX_BYTES
    files = {
        f"{0:020d}.index": offset_index + bytes(max(0, padding - len(offset_index))),
        f"{0:020d}.timeindex": time_index + bytes(max(0, padding - padding % 12 - len(time_index))),
        "leader-epoch-checkpoint": b"0\n1\n0 0\n",
        "partition.metadata": b"version: 0\ntopic_id: a2R1bXBCZW5jaFRvcGljMQ",
    }
    if is_clean:
        files[f"{end_offset:020d}.snapshot"] = EMPTY_SNAPSHOT
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


def copy_partitions(name: str, copy: str, folder: Path) -> Path:
    """Write or replace ``FOLDER/COPY``, with the segments of ``FOLDER/NAME``; return its path.

    The logs are links: loading or compacting the copy does not write to a valid log.
    """
    directory = folder / copy
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(folder / name, directory, copy_function=link_logs)
    return directory


def remove(name: str, folder: Path) -> None:
    """Remove ``FOLDER/NAME`` if it exists: what is complete would not be written again."""
    shutil.rmtree(folder / name, ignore_errors=True)


def offset_index_of(log: Path) -> tuple[bytes, int]:
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
            if since_entry > INDEX_INTERVAL_BYTES:
                entries += struct.pack(">ii", end_offset - 1 - base_offset, position)
                since_entry = 0
            since_entry += size
            file.seek(position + size)
    return bytes(entries), end_offset


def write_root(
    directory: Path,
    recovery_points: list[str],
    high_watermarks: list[str],
    *,
    is_clean: bool,
    directory_id: str = "a2R1bXBCZW5jaERpcmVjdA",
) -> None:
    """Write the files in the root of a log directory."""
    for name, lines in (
        ("recovery-point-offset-checkpoint", recovery_points),
        ("replication-offset-checkpoint", high_watermarks),
    ):
        (directory / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    (directory / "log-start-offset-checkpoint").write_text("0\n0\n")
    (directory / "meta.properties").write_text(
        "#\n#Sat Nov 21 00:00:00 UTC 2026\ncluster.id=kdumpBenchAAAAAAAAAAAA\nversion=1\n"
        f"node.id=1\ndirectory.id={directory_id}\n"
    )
    if is_clean:
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
