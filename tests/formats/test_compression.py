from __future__ import annotations

import struct
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from builders.message_sets import damaged
from kdump.formats.compression import Codec, compress, decompress, decompress_chunks
from kdump.formats.errors import FormatError

MIB = 1 << 20
TEXT = b"to be or not to be, that is the question"
WRITTEN_BY_KAFKA = {
    (
        Codec.GZIP,
        2,
    ): "1f8b08000000000000ff2bc957484a55c82f52c8cb2f5128017174144a32124b14328b8174aa42"
    "61696a7149667e1e00454ae21c28000000",
    (Codec.SNAPPY, 2): "82534e41505059000000000100000001000000292834746f206265206f72206e6f742074"
    "010d542c207468617420697320746865207175657374696f6e",
    (Codec.LZ4, 0): "04224d1860401a28000080746f206265206f72206e6f7420746f2062652c2074686174206973"
    "20746865207175657374696f6e00000000",
    (Codec.LZ4, 2): "04224d1860408228000080746f206265206f72206e6f7420746f2062652c2074686174206973"
    "20746865207175657374696f6e00000000",
    (Codec.ZSTD, 2): "28b52ffd0058400100746f206265206f72206e6f7420746f2062652c207468617420697320"
    "746865207175657374696f6e010000",
}

codecs = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.label)
real_codecs = pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.label)
magics = pytest.mark.parametrize("magic", [0, 1, 2])
kafkas_bytes = pytest.mark.parametrize(
    ("codec", "magic", "compressed"),
    [(codec, magic, bytes.fromhex(text)) for (codec, magic), text in WRITTEN_BY_KAFKA.items()],
)


def whole(codec: Codec, data: bytes, *, limit_bytes: int = MIB, magic: int = 2) -> bytes:
    return decompress(codec, data, limit_bytes=limit_bytes, magic=magic)


def in_chunks(codec: Codec, data: bytes, *, chunk_bytes: int = 100, magic: int = 2) -> bytes:
    return b"".join(decompress_chunks(codec, data, chunk_bytes=chunk_bytes, magic=magic))


def outcome(read: Callable[[], bytes]) -> bytes | None:
    """Return the result, or None for damage; any other error propagates."""
    try:
        return read()
    except FormatError:
        return None


@contextmanager
def peak_memory_below(size_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size_bytes


# what Kafka writes ------------------------------------------------------------------------


@kafkas_bytes
def test_what_kafka_compressed_is_read(codec: Codec, magic: int, compressed: bytes) -> None:
    assert whole(codec, compressed, magic=magic) == TEXT
    assert in_chunks(codec, compressed, magic=magic) == TEXT


@kafkas_bytes
def test_a_small_payload_is_compressed_to_the_bytes_that_kafka_writes(
    codec: Codec, magic: int, compressed: bytes
) -> None:
    # Snappy-java's library finds other matches: there only the framing is the same.
    same_bytes = 19 if codec is Codec.SNAPPY else len(compressed)
    assert compress(codec, TEXT, magic=magic)[:same_bytes] == compressed[:same_bytes]


def test_snappy_blocks_hold_32_kib_as_snappy_java_cuts_them() -> None:
    compressed = compress(Codec.SNAPPY, bytes(80 * 1024))
    position, sizes = 16, []
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        sizes.append(len(snappy.uncompress(compressed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert sizes == [32768, 32768, 16384]


def test_an_lz4_block_that_does_not_shrink_is_stored_unchanged() -> None:
    noise = bytes(range(256))
    assert compress(Codec.LZ4, noise)[7:] == b"\x00\x01\x00\x80" + noise + bytes(4)


def test_zstd_frames_have_no_content_size() -> None:
    frame = compress(Codec.ZSTD, TEXT * 1000)
    assert zstandard.get_frame_parameters(frame).content_size == zstandard.CONTENTSIZE_UNKNOWN


# round trips ------------------------------------------------------------------------------


@codecs
@magics
@pytest.mark.parametrize("size", [0, 1, 1000, 32768, 65536, 65537, 300_000])
def test_what_is_compressed_decompresses_to_the_same(codec: Codec, magic: int, size: int) -> None:
    data = (b"0123456789 and so on, " * (size // 20 + 1))[:size]
    compressed = compress(codec, data, magic=magic)
    assert whole(codec, compressed, magic=magic) == data
    assert in_chunks(codec, compressed, magic=magic) == data


@given(codec=st.sampled_from(Codec), data=st.binary(max_size=5000), repeats=st.integers(1, 40))
def test_any_bytes_survive_a_round_trip(codec: Codec, data: bytes, repeats: int) -> None:
    compressed = compress(codec, data * repeats)
    assert whole(codec, compressed) == data * repeats
    assert in_chunks(codec, compressed, chunk_bytes=1000) == data * repeats


@codecs
def test_any_kind_of_buffer_is_accepted(codec: Codec) -> None:
    compressed = compress(codec, memoryview(TEXT))
    assert whole(codec, memoryview(compressed)) == TEXT  # type: ignore[arg-type]
    assert whole(codec, bytearray(compressed)) == TEXT  # type: ignore[arg-type]


@codecs
def test_no_chunk_is_empty(codec: Codec) -> None:
    assert list(decompress_chunks(codec, compress(codec, b""), chunk_bytes=100)) == []


@pytest.mark.parametrize(
    ("codec", "largest"),
    [
        (Codec.NONE, 1000),
        (Codec.GZIP, 1000),
        (Codec.SNAPPY, 32 * 1024),
        (Codec.LZ4, 64 * 1024),
        (Codec.ZSTD, 128 * 1024),
    ],
)
def test_chunks_are_no_larger_than_asked_for_or_than_the_format_divides(
    codec: Codec, largest: int
) -> None:
    compressed = compress(codec, bytes(MIB))
    sizes = [len(piece) for piece in decompress_chunks(codec, compressed, chunk_bytes=1000)]
    assert max(sizes) == largest
    assert sum(sizes) == MIB


# names and numbers ------------------------------------------------------------------------


def test_the_codecs_have_kafkas_names() -> None:
    assert [codec.label for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]


def test_the_codec_is_read_from_the_lowest_three_bits_of_the_attributes() -> None:
    assert Codec.of_attributes(0b111_1011) is Codec.LZ4


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_number_without_a_codec_is_a_format_error(number: int) -> None:
    with pytest.raises(FormatError, match="unknown compression codec"):
        Codec.of_attributes(number)


# what follows, and what is joined ---------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_members_and_frames_in_a_row_are_read_as_one(codec: Codec) -> None:
    compressed = compress(codec, b"first ") + compress(codec, b"") + compress(codec, b"second")
    assert whole(codec, compressed) == b"first second"
    assert in_chunks(codec, compressed) == b"first second"


def test_snappy_java_streams_in_a_row_are_read_as_one() -> None:
    compressed = compress(Codec.SNAPPY, b"first ") + compress(Codec.SNAPPY, b"second")
    assert whole(Codec.SNAPPY, compressed) == b"first second"


@pytest.mark.parametrize("tail", [b"x", bytes(8), b"some garbage behind the end"])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_bytes_after_the_end_of_gzip_and_lz4_are_ignored(codec: Codec, tail: bytes) -> None:
    assert whole(codec, compress(codec, TEXT) + tail) == TEXT
    assert in_chunks(codec, compress(codec, TEXT) + tail) == TEXT


@pytest.mark.parametrize("tail", [b"x", bytes(8), b"some garbage behind the end"])
def test_bytes_after_the_end_of_a_zstd_frame_are_an_error(tail: bytes) -> None:
    compressed = compress(Codec.ZSTD, TEXT)
    with pytest.raises(FormatError, match=f"not a zstd frame at byte {len(compressed)}"):
        whole(Codec.ZSTD, compressed + tail)


def test_less_than_a_block_size_after_the_last_snappy_block_is_ignored() -> None:
    assert whole(Codec.SNAPPY, compress(Codec.SNAPPY, TEXT) + b"abc") == TEXT


def test_no_bytes_at_all_are_nothing_to_zstd_and_damage_to_the_others() -> None:
    assert [outcome(lambda c=c: whole(c, b"")) for c in Codec] == [b"", None, None, None, b""]  # type: ignore[misc]


# snappy -----------------------------------------------------------------------------------


def test_a_bare_snappy_block_is_read_too() -> None:
    assert whole(Codec.SNAPPY, snappy.compress(TEXT)) == TEXT
    assert in_chunks(Codec.SNAPPY, snappy.compress(TEXT)) == TEXT


def test_a_snappy_length_that_the_block_cannot_hold_is_refused_before_memory_is_allocated() -> None:
    with pytest.raises(FormatError, match=r"claims more than it can hold .* found 4294967295"):
        whole(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(1000), limit_bytes=1 << 40)


# lz4 --------------------------------------------------------------------------------------


def test_the_descriptors_checksum_is_not_checked_in_magic_0() -> None:
    compressed = bytearray(compress(Codec.LZ4, TEXT))
    compressed[6] ^= 0xFF
    assert whole(Codec.LZ4, bytes(compressed), magic=0) == TEXT


@pytest.mark.parametrize("magic", [1, 2])
def test_a_wrong_descriptors_checksum_is_an_error_from_magic_1_on(magic: int) -> None:
    with pytest.raises(FormatError, match="descriptor has a wrong checksum"):
        whole(Codec.LZ4, compress(Codec.LZ4, TEXT, magic=0), magic=magic)


@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("block_size", [lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB])
def test_frames_of_other_lz4_writers_are_read(
    block_checksum: bool, content_checksum: bool, store_size: bool, block_size: int
) -> None:
    data = TEXT * 5000
    frame = lz4.frame.compress(
        data,
        block_linked=False,
        block_checksum=block_checksum,
        content_checksum=content_checksum,
        store_size=store_size,
        block_size=block_size,
    )
    assert whole(Codec.LZ4, frame) == data


def test_an_lz4_block_with_a_wrong_checksum_is_an_error() -> None:
    frame = bytearray(lz4.frame.compress(TEXT, block_linked=False, block_checksum=True))
    frame[-5] ^= 1  # the last byte of the checksum, in front of the end mark
    with pytest.raises(FormatError, match="lz4 block is damaged"):
        whole(Codec.LZ4, bytes(frame))


def test_lz4_blocks_that_depend_on_each_other_are_refused_as_kafka_refuses_them() -> None:
    with pytest.raises(FormatError, match="unknown flags"):
        whole(Codec.LZ4, lz4.frame.compress(TEXT * 5000, block_linked=True))


# zstd -------------------------------------------------------------------------------------


def test_a_zstd_frame_with_content_size_and_checksum_is_read() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    assert whole(Codec.ZSTD, frame) == TEXT


def test_skippable_zstd_frames_are_skipped() -> None:
    skippable = b"\x53\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    frame = compress(Codec.ZSTD, TEXT)
    assert whole(Codec.ZSTD, skippable + frame + skippable) == TEXT


def test_a_zstd_frame_whose_content_is_not_of_the_size_it_claims_is_an_error() -> None:
    # Single segment, content size 5, one raw block of 3 bytes, one empty last block.
    frame = b"\x28\xb5\x2f\xfd\x20\x05" + b"\x18\x00\x00abc" + b"\x01\x00\x00"
    with pytest.raises(FormatError, match="zstd"):
        whole(Codec.ZSTD, frame)


# damage -----------------------------------------------------------------------------------


@real_codecs
@pytest.mark.parametrize("magic", [0, 2])
def test_every_truncation_and_flipped_bit_gives_a_value_or_a_format_error(
    codec: Codec, magic: int
) -> None:
    for data in damaged(compress(codec, TEXT, magic=magic)):
        at_once = outcome(lambda data=data: whole(codec, data, magic=magic))  # type: ignore[misc]
        piecewise = outcome(lambda data=data: in_chunks(codec, data, magic=magic))  # type: ignore[misc]
        assert at_once == piecewise


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_every_truncation_is_noticed(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    for size in range(1, len(compressed)):
        with pytest.raises(FormatError):
            whole(codec, compressed[:size])


def test_a_snappy_stream_has_no_end_so_only_a_torn_block_is_noticed() -> None:
    compressed = compress(Codec.SNAPPY, TEXT)
    assert [outcome(lambda n=n: whole(Codec.SNAPPY, compressed[:n])) for n in range(16, 20)] == [  # type: ignore[misc]
        b"",
        b"",
        b"",
        b"",
    ]
    for size in range(20, len(compressed)):
        with pytest.raises(FormatError, match="snappy block reaches past its stream"):
            whole(Codec.SNAPPY, compressed[:size])


@given(codec=st.sampled_from(Codec), magic=st.sampled_from([0, 2]), data=st.binary(max_size=300))
def test_arbitrary_bytes_give_a_value_or_a_format_error(
    codec: Codec, magic: int, data: bytes
) -> None:
    starts = {
        Codec.GZIP: b"\x1f\x8b\x08",
        Codec.SNAPPY: b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
        Codec.LZ4: b"\x04\x22\x4d\x18",
        Codec.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for start in (b"", starts.get(codec, b"")):
        outcome(lambda start=start: whole(codec, start + data, magic=magic))  # type: ignore[misc]
        outcome(lambda start=start: in_chunks(codec, start + data, magic=magic))  # type: ignore[misc]


@real_codecs
def test_chunks_before_the_damage_are_yielded(codec: Codec) -> None:
    data = b"".join(b"record number %d|" % number for number in range(30_000))
    compressed = compress(codec, data)
    given_bytes = bytearray()
    with pytest.raises(FormatError):  # noqa: PT012
        for piece in decompress_chunks(codec, compressed[:-100], chunk_bytes=1000):
            given_bytes += piece
    assert len(given_bytes) > len(data) // 3
    assert data.startswith(given_bytes)


# bounds -----------------------------------------------------------------------------------


@codecs
def test_the_limit_is_what_may_come_out_at_most(codec: Codec) -> None:
    compressed = compress(codec, bytes(100_000))
    assert len(whole(codec, compressed, limit_bytes=100_000)) == 100_000
    with pytest.raises(FormatError, match="passes the limit"):
        whole(codec, compressed, limit_bytes=99_999)


def gzip_bomb() -> bytes:
    """A gigabyte of zeroes in a megabyte, by a piece of deflate that can be repeated."""
    deflate = zlib.compressobj(9, wbits=-15)
    deflate.compress(bytes(MIB))
    deflate.flush(zlib.Z_FULL_FLUSH)
    repeatable = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return compress(Codec.GZIP, b"")[:10] + repeatable * 1024


def snappy_bomb() -> bytes:
    """Blocks of 21 times their size, with the copies that snappy packs densest."""
    copies = struct.pack("<BH", 63 << 2 | 2, 1) * 1000
    block = b"\x81\xf4\x03" + b"\x00a" + copies
    return compress(Codec.SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * 300


def lz4_bomb() -> bytes:
    """Four gigabytes, 4 MiB to each block of 16 KiB, in as many blocks as fit 8 MB."""
    header: bytes = lz4.frame.compress(
        bytes(5 * MIB), block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False
    )[:7]
    block: bytes = lz4.block.compress(bytes(4 * MIB), store_size=False)
    return header + (struct.pack("<I", len(block)) + block) * 500


def zstd_bomb() -> bytes:
    """More than a gigabyte in 40 KB: blocks of four bytes that repeat one 128 KiB long."""
    block = struct.pack("<I", 1 << 1 | (128 * 1024) << 3)[:3] + b"a"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * 10_000


def zstd_liar() -> bytes:
    """A frame that claims 2 ** 60 bytes of content."""
    return b"\x28\xb5\x2f\xfd\xc0\x58" + struct.pack("<Q", 1 << 60) + b"\x01\x00\x00"


BOMBS = [
    pytest.param(Codec.GZIP, gzip_bomb, id="gzip"),
    pytest.param(Codec.SNAPPY, snappy_bomb, id="snappy"),
    pytest.param(Codec.LZ4, lz4_bomb, id="lz4"),
    pytest.param(Codec.ZSTD, zstd_bomb, id="zstd"),
    pytest.param(Codec.ZSTD, zstd_liar, id="zstd that lies"),
]


@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_a_bomb_is_refused_within_a_small_multiple_of_the_limit(
    codec: Codec, bomb: Callable[[], bytes]
) -> None:
    data = bomb()
    with peak_memory_below(20 * MIB), pytest.raises(FormatError):
        whole(codec, data, limit_bytes=4 * MIB)


@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_a_bomb_in_chunks_takes_no_more_memory_than_its_chunks(
    codec: Codec, bomb: Callable[[], bytes]
) -> None:
    data = bomb()
    seen_bytes = 0
    with peak_memory_below(20 * MIB):
        try:
            for piece in decompress_chunks(codec, data, chunk_bytes=MIB):
                seen_bytes += len(piece)
                if seen_bytes > 60 * MIB:
                    break
        except FormatError:
            pass


# use --------------------------------------------------------------------------------------


@real_codecs
def test_several_threads_may_work_at_once(codec: Codec) -> None:
    payloads = [b"%d, " % number * 5000 for number in range(8)]
    failures: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            compressed = compress(codec, payloads[number])
            if whole(codec, compressed) != payloads[number]:
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@real_codecs
def test_pieces_of_two_streams_may_be_read_in_turn(codec: Codec) -> None:
    payloads = [bytes([number]) * 400_000 for number in range(2)]
    streams = [
        decompress_chunks(codec, compress(codec, payload), chunk_bytes=1000) for payload in payloads
    ]
    taken = [bytearray(), bytearray()]
    for first, second in zip(*streams, strict=True):
        taken[0] += first
        taken[1] += second
        assert whole(codec, compress(codec, TEXT)) == TEXT
    assert [bytes(piece) for piece in taken] == payloads


def test_no_codecs_library_is_imported_before_it_is_used() -> None:
    program = (
        "import sys, kdump.formats.compression;"
        "print(sorted({'lz4', 'snappy', 'cramjam', 'zstandard'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_a_gzip_payload_of_many_input_slices_is_read_whole() -> None:
    numbers = b"".join(struct.pack(">I", a * 2_654_435_761 & 0xFFFFFFFF) for a in range(60_000))
    compressed = compress(Codec.GZIP, numbers)
    assert len(compressed) > 2 * 65536
    pieces = list(decompress_chunks(Codec.GZIP, compressed, chunk_bytes=5000))
    assert b"".join(pieces) == numbers
    assert all(len(first) <= 5000 for first, _ in pairwise(pieces))
