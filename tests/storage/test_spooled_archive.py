"""Compressed archives are unpacked for a run, and nothing of them is left."""

from __future__ import annotations

import gzip
import io
import lzma
import random
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard

from builders.in_process import run_kdump
from builders.packed import pack
from builders.sources import BytesSource
from builders.verified import LogModel
from kdump.errors import ExitStatus
from kdump.storage import spooled_archive
from kdump.storage.decompression import CompressedDataError, decompressed_pieces
from kdump.storage.places import forget_places, parse_location, spool_into, unpacked_archives
from kdump.storage.spooled_archive import SpoolError

ZSTD_CHECKED: Final = zstandard.ZstdCompressor(write_checksum=True)
COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "tar.gz": gzip.compress,
    "tgz": lambda data: gzip.compress(data[:5000]) + gzip.compress(data[5000:]),
    "tar.xz": lzma.compress,
    "tar.zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A plain archive of a log directory with one partition."""
    directory = tmp_path / "logs"
    LogModel().write(directory)
    return Path(pack(directory, tmp_path / "plain.tar").rstrip("!"))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "spool"
    folder.mkdir()
    yield folder
    forget_places()


def compressed(plain: Path, suffix: str, left: float = 1) -> Path:
    data = COMPRESS[suffix](plain.read_bytes())
    path = plain.with_name(f"a.{suffix}")
    path.write_bytes(data[: int(len(data) * left)])
    return path


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_archive_gives_what_the_plain_one_gives(
    plain: Path, spool: Path, suffix: str
) -> None:
    archive = compressed(plain, suffix)
    outcomes = [
        run_kdump(["--spool", "spool", "verify", f"{each.name}!/"], plain.parent)
        for each in (plain, archive)
    ]
    said = [each.stdout.decode().partition("damaged")[0] for each in outcomes]
    assert said[1].replace(archive.name, plain.name) == said[0]
    assert outcomes[0].exit_status == outcomes[1].exit_status
    assert f"kdump: {archive.name}: was unpacked (".encode() in outcomes[1].stderr
    assert not list(spool.iterdir())


@pytest.mark.parametrize("has_names", [True, False])
def test_an_unpacked_archive_lasts_for_a_run(
    plain: Path, spool: Path, has_names: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_names:  # as where there is no /proc
        monkeypatch.setattr(Path, "exists", lambda _: False)
    spool_into(spool)
    archive = compressed(plain, "tar.gz")
    first = parse_location(f"{archive}!/")
    archive.unlink()
    again = parse_location(f"{archive}!/")
    assert first.entries() == again.entries() != []
    assert len(list(spool.iterdir())) == has_names
    forget_places()
    assert not list(spool.iterdir())


def random_members(path: Path) -> None:
    """Write an archive that compression hardly makes smaller."""
    with tarfile.open(path, "w") as archive:
        for number in range(8):
            info = tarfile.TarInfo(f"logs/file-{number}")
            info.size = 100_000
            archive.addfile(info, io.BytesIO(random.Random(number).randbytes(info.size)))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damaged_compression_is_read_up_to_there(tmp_path: Path, spool: Path, suffix: str) -> None:
    random_members(tmp_path / "plain.tar")
    spool_into(spool)
    root = parse_location(f"{compressed(tmp_path / 'plain.tar', suffix, left=0.7)}!/logs")
    assert len(root.entries()) >= 4
    for number in range(4):
        expected = random.Random(number).randbytes(100_000)
        assert (root / f"file-{number}").read() == expected


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damaged_compression_is_said_and_in_the_status(
    plain: Path, spool: Path, suffix: str
) -> None:
    archive = compressed(plain, suffix, left=0.7)
    outcome = run_kdump(["--spool", "spool", "ls", f"{archive.name}!/"], plain.parent)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert f"kdump: {archive.name}: its compression is damaged".encode() in outcome.stderr
    assert not list(spool.iterdir())


def without_checksum(data: bytes) -> bytes:
    """The data without its last bytes: all of the archive can be decompressed."""
    return data[:-3]


def with_other_data_after_it(data: bytes) -> bytes:
    return data + b"something else"


def with_a_wrong_checksum(data: bytes) -> bytes:
    """The data with changed bytes in the archive, which are stored as they are."""
    assert data.count(b"cluster.id=") == 1
    return data.replace(b"cluster.id=", b"cluster.iD=")


CHANGED: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gz-cut": lambda data: without_checksum(gzip.compress(data)),
    "gz-more": lambda data: with_other_data_after_it(gzip.compress(data)),
    "gz-changed": lambda data: with_a_wrong_checksum(gzip.compress(data, 0)),
    "xz-cut": lambda data: without_checksum(lzma.compress(data)),
    "xz-more": lambda data: with_other_data_after_it(lzma.compress(data)),
    "zst-cut": lambda data: without_checksum(ZSTD_CHECKED.compress(data)),
    "zst-more": lambda data: with_other_data_after_it(ZSTD_CHECKED.compress(data)),
}


@pytest.mark.parametrize("change", CHANGED)
def test_an_archive_whose_checksum_nobody_saw_is_not_whole(
    plain: Path, spool: Path, change: str
) -> None:
    archive = plain.with_name(f"a.tar.{change.partition('-')[0]}")
    archive.write_bytes(CHANGED[change](plain.read_bytes()))
    outcome = run_kdump(["--spool", "spool", "ls", f"{archive.name}!/"], plain.parent)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert b"its compression is damaged or incomplete" in outcome.stderr


@pytest.mark.parametrize("suffix", ["tar.gz", "tar.xz", "tar.zst"])
def test_parts_and_zeroes_after_them_are_one_archive(plain: Path, spool: Path, suffix: str) -> None:
    data = plain.read_bytes()
    compress = COMPRESS[suffix]
    archive = plain.with_name(f"a.{suffix}")
    archive.write_bytes(compress(data[:5000]) + compress(b"") + compress(data[5000:]) + bytes(9000))
    spool_into(spool)
    root = parse_location(f"{archive}!/")
    assert [each.name for each in root.entries()] == [
        each.name for each in parse_location(f"{plain}!/").entries()
    ]
    assert [each.damage for each in unpacked_archives()] == [None]


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd"])
def test_a_bomb_takes_little_memory(kind: str) -> None:
    zeroes = bytes(64 << 20)
    suffix = {"gzip": "tar.gz", "xz": "tar.xz", "zstd": "tar.zst"}[kind]
    source = BytesSource(COMPRESS[suffix](zeroes) * 3)
    assert source.size_bytes < 1 << 20
    largest = total = 0
    for piece in decompressed_pieces(source, kind):
        largest, total = max(largest, len(piece)), total + len(piece)
    assert total == 3 * len(zeroes)
    # zstd gives at once what is in 4 KiB.
    assert largest <= (len(zeroes) if kind == "zstd" else 64 << 10)


def test_a_dictionary_of_gigabytes_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(b"data", filters=filters))
    at = data.index(b"\x21\x01", 12) + 2
    data[at] = 38  # 2 GiB, in the header of the block, whose checksum is after it
    end = 12 + (data[12] + 1) * 4
    data[end - 4 : end] = zlib.crc32(data[12 : end - 4]).to_bytes(4, "little")
    with pytest.raises(CompressedDataError, match="Memory usage limit exceeded"):
        list(decompressed_pieces(BytesSource(bytes(data)), "xz"))


def test_without_a_directory_it_is_refused(plain: Path) -> None:
    archive = compressed(plain, "tar.gz")
    outcome = run_kdump(["ls", f"{archive.name}!/"], plain.parent)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"kdump --spool DIR" in outcome.stderr


@pytest.mark.parametrize("free", [[0], [1 << 40, 0]])
def test_a_disk_is_not_filled(
    plain: Path, spool: Path, free: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = compressed(plain, "tar.gz")
    sizes = iter(free)
    usage = shutil.disk_usage(spool)
    monkeypatch.setattr(spooled_archive, "_CHECKED_BYTES", 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=next(sizes)))
    spool_into(spool)
    with pytest.raises(SpoolError, match="too little space to unpack it"):
        parse_location(f"{archive}!/")
    assert not list(spool.iterdir())


def test_a_stopped_run_leaves_nothing(
    plain: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    archive = compressed(plain, "tar.gz")
    monkeypatch.setattr(spooled_archive, "_unpack", stop)
    outcome = run_kdump(["--spool", "spool", "ls", f"{archive.name}!/"], plain.parent)
    assert outcome.exit_status == 130
    assert not list(spool.iterdir())


def test_a_missing_directory_is_said(plain: Path) -> None:
    archive = compressed(plain, "tar.gz")
    outcome = run_kdump(["--spool", "nowhere", "ls", f"{archive.name}!/"], plain.parent)
    assert outcome.stderr == b"kdump: --spool nowhere: not a directory\n"


def test_only_its_owner_can_read_an_unpacked_archive(
    plain: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: False)
    spool_into(spool)
    parse_location(f"{compressed(plain, 'tar.gz')}!/")
    (made,) = spool.iterdir()
    assert made.stat().st_mode & 0o777 == 0o600
