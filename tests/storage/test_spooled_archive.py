"""Compressed archives are unpacked for a run, and nothing of them is left."""

from __future__ import annotations

import gzip
import lzma
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard

from builders.in_process import run_kdump
from builders.packed import pack
from builders.verified import LogModel
from kdump.errors import ExitStatus
from kdump.storage import spooled_archive
from kdump.storage.places import forget_places, parse_location, spool_into
from kdump.storage.spooled_archive import SpoolError

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


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damaged_compression_is_read_up_to_there(plain: Path, spool: Path, suffix: str) -> None:
    archive = compressed(plain, suffix, left=0.7)
    outcome = run_kdump(["--spool", "spool", "ls", f"{archive.name}!/"], plain.parent)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert f"kdump: {archive.name}".encode() in outcome.stderr
    assert not list(spool.iterdir())


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
