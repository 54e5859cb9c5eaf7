"""kdump's memory stays small for any content of a file."""

from __future__ import annotations

import gzip
import io
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import crc32c
import lz4.frame
import pytest
import zstandard

from builders.batches import batch, batches, record
from builders.message_sets import encode_message
from kdump.formats.compression import Codec

MIB = 1 << 20
PEAK_BYTES = 150 * MIB
BOMB_BYTES = 224 * MIB
"""What comes out of a bomb: far more than the peak, and no more, because it takes time."""
NAME = f"{0:020d}.log"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(), reason="the peak is read from /proc"
    ),
]

PROGRAM = """
import sys
from pathlib import Path
from kdump.cli.main import run
status = run(sys.argv[2:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
Path(sys.argv[1]).write_text(peak.split()[1])
sys.exit(status)
"""


@dataclass(frozen=True, slots=True)
class Run:
    exit_status: int
    stdout_bytes: int
    stderr: str
    peak_bytes: int


def dump(
    tmp_path: Path,
    content: bytes,
    *options: str,
    name: str = NAME,
    command: str = "dump-segment",
) -> Run:
    """Run kdump in a separate process over a file with this content."""
    (tmp_path / name).write_bytes(content)
    output = tmp_path / "output"
    with output.open("wb") as stdout:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                PROGRAM,
                tmp_path / "peak",
                command,
                *options,
                tmp_path / name,
            ],
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
        )
    peak_bytes = int((tmp_path / "peak").read_text()) * 1024
    size = output.stat().st_size
    output.unlink()
    return Run(done.returncode, size, done.stderr.decode(), peak_bytes)


def packed_zeroes(codec: Codec, head: bytes, zeroes: int) -> bytes:
    """Compress ``head`` and many zeroes, without holding them in memory."""
    target = io.BytesIO()
    block = bytes(MIB)
    match codec:
        case Codec.GZIP:
            with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1, mtime=0) as packed:
                packed.write(head)
                for _ in range(zeroes // MIB):
                    packed.write(block)
        case Codec.ZSTD:
            with zstandard.ZstdCompressor().stream_writer(target, closefd=False) as writer:
                writer.write(head)
                for _ in range(zeroes // MIB):
                    writer.write(block)
        case Codec.LZ4:
            compressor = lz4.frame.LZ4FrameCompressor(
                block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False
            )
            target.write(compressor.begin())
            target.write(compressor.compress(head))
            for _ in range(zeroes // MIB):
                target.write(compressor.compress(block))
            target.write(compressor.flush())
        case _:
            raise ValueError(codec)
    return target.getvalue()


def batch_of(codec: Codec, body: bytes, count: int) -> bytes:
    """Make a batch with a valid checksum around a compressed ``body``."""
    tail = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, len(tail) + 9, 0, 2, crc32c.crc32c(tail)) + tail


def varint(value: int) -> bytes:
    encoded = bytearray()
    value <<= 1
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


BOMB_CODECS = [Codec.GZIP, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", BOMB_CODECS)
def test_a_bomb_after_the_last_record_is_damage(tmp_path: Path, codec: Codec) -> None:
    """Zeroes are empty records without an end: the batch says that it has one record."""
    body = packed_zeroes(codec, varint(6) + b"\0\0\0\1\1\0", BOMB_BYTES)
    run = dump(tmp_path, batch_of(codec, body, 1), "--print-data-log")
    assert run.exit_status == 4
    assert run.peak_bytes < PEAK_BYTES


@pytest.mark.parametrize("codec", BOMB_CODECS)
def test_a_record_of_hundreds_of_mebibytes_is_not_decoded(tmp_path: Path, codec: Codec) -> None:
    zeroes = BOMB_BYTES
    value_size = zeroes - 1
    fields = b"\0\0\0\1" + varint(value_size)
    head = varint(len(fields) + value_size + 1) + fields
    run = dump(tmp_path, batch_of(codec, packed_zeroes(codec, head, zeroes), 1), "--print-data-log")
    assert run.exit_status == 8  # it was not decoded
    assert "--max-record-bytes" in run.stderr
    assert run.peak_bytes < PEAK_BYTES


@pytest.mark.parametrize("codec", BOMB_CODECS)
def test_a_bomb_is_not_unpacked_if_records_are_not_printed(tmp_path: Path, codec: Codec) -> None:
    body = packed_zeroes(codec, b"", BOMB_BYTES)
    run = dump(tmp_path, batch_of(codec, body, 1))
    assert run.exit_status == 0
    assert run.peak_bytes < PEAK_BYTES


@pytest.mark.parametrize("magic", [0, 1])
def test_a_bomb_inside_a_message_set_is_damage(tmp_path: Path, magic: int) -> None:
    body = packed_zeroes(Codec.GZIP, encode_message(0, None, b"v", magic=magic), BOMB_BYTES)
    wrapper = encode_message(0, None, body, magic=magic, attributes=Codec.GZIP)
    run = dump(tmp_path, wrapper, "--print-data-log")
    assert run.exit_status == 4
    assert run.peak_bytes < PEAK_BYTES


@pytest.mark.soak
def test_millions_of_records_in_one_small_batch_are_printed_one_part_at_a_time(
    tmp_path: Path,
) -> None:
    count = 1_000_000
    rows = bytearray()
    for delta in range(count):
        fields = b"\0\0" + varint(delta) + b"\1\1\0"
        rows += varint(len(fields)) + fields
    body = zstandard.ZstdCompressor().compress(bytes(rows))
    run = dump(tmp_path, batch_of(Codec.ZSTD, body, count), "--deep-iteration")
    assert run.exit_status == 0
    assert run.stdout_bytes > 50 * count
    assert run.peak_bytes < PEAK_BYTES


@pytest.mark.parametrize("length", [2**31 - 1, 2**30, 2**31 - 13])
def test_a_batch_that_claims_two_gibibytes_in_a_small_file_ends_the_dump(
    tmp_path: Path, length: int
) -> None:
    content = bytearray(b"".join(batches(3)))
    size = len(content) // 3
    struct.pack_into(">i", content, size + 8, length)
    run = dump(tmp_path, bytes(content), "--print-data-log")
    assert run.exit_status == 4
    assert run.peak_bytes < PEAK_BYTES


@pytest.mark.parametrize("claim", [2**31 - 1, 2**30])
def test_a_record_that_claims_two_gibibytes_is_damage(tmp_path: Path, claim: int) -> None:
    for codec in (Codec.NONE, Codec.ZSTD):
        body = varint(claim) + b"\0\0\0\1" + varint(claim - 10) + b"short"
        packed = zstandard.ZstdCompressor().compress(body) if codec is Codec.ZSTD else body
        run = dump(tmp_path, batch_of(codec, packed, 1), "--print-data-log")
        assert run.exit_status == 4
        assert run.peak_bytes < PEAK_BYTES


def test_a_batch_that_claims_two_thousand_million_records_is_damage(tmp_path: Path) -> None:
    content = bytearray(batch([record(0)]))
    struct.pack_into(">i", content, 57, 2**31 - 1)
    struct.pack_into(">I", content, 17, crc32c.crc32c(bytes(content[21:])))
    run = dump(tmp_path, bytes(content), "--print-data-log")
    assert run.exit_status == 4
    assert run.peak_bytes < PEAK_BYTES


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{7:020d}.snapshot", struct.pack(">hIi", 1, 0, 2**31 - 1)),
        ("leader-epoch-checkpoint", b"0\n2147483647\n0 0\n"),
        ("recovery-point-offset-checkpoint", b"0\n2147483647\ntopic 0 0\n"),
    ],
)
def test_a_small_file_that_claims_two_thousand_million_entries_is_damage(
    tmp_path: Path, name: str, content: bytes
) -> None:
    run = dump(tmp_path, content, name=name)
    assert run.exit_status == 4
    assert run.peak_bytes < PEAK_BYTES


@pytest.mark.parametrize(
    "options",
    [(), ("--print-data-log",), pytest.param(("--output", "jsonl"), marks=pytest.mark.soak)],
)
def test_memory_does_not_grow_with_the_file(tmp_path: Path, options: tuple[str, ...]) -> None:
    rows = [record(offset, b"key-%08d" % offset, b"v" * 100) for offset in range(100)]
    one = batch(rows)
    small, large = (
        dump(tmp_path, one * (size_bytes // len(one)), *options).peak_bytes
        for size_bytes in (6 * MIB, 24 * MIB)
    )
    assert large < PEAK_BYTES
    assert large - small < 6 * MIB


@pytest.mark.parametrize(
    ("command", "option"), [("dump-segment", "--deep-iteration"), ("verify", "--deep")]
)
def test_many_malformed_batches_take_no_more_memory_than_one(
    tmp_path: Path, command: str, option: str
) -> None:
    """Each batch unpacks to some megabytes of zeroes, which are no records."""
    fields = b"\0\0\0\1" + varint(3 * MIB)
    head = varint(6) + b"\0\0\0\1\1\0" + varint(len(fields) + 3 * MIB + 1) + fields
    one = batch_of(Codec.LZ4, packed_zeroes(Codec.LZ4, head, 4 * MIB), 1000)
    content = b"".join(struct.pack(">q", 1000 * at) + one[8:] for at in range(60))
    run = dump(tmp_path, content, option, command=command)
    assert run.exit_status == 4
    assert run.peak_bytes < PEAK_BYTES
