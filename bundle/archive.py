"""Write a folder as an archive whose bytes depend on nothing but the content of the folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

LEVEL: Final = 6
"""The highest level is half a megabyte smaller, and takes three times as long."""
_READ_BYTES: Final = 1 << 20
_LARGE_BYTES: Final = 1 << 18
"""The size from which a file is compressed by itself, which then costs next to no space."""


class CompressedFiles:
    """Large files, compressed once for all archives that they are in. They must not change."""

    def __init__(self) -> None:
        self._found: dict[tuple[Path, int], bytes] = {}

    def of(self, path: Path, content: bytes, level: int) -> bytes:
        """Return the content of a file as a stream of gzip."""
        key = path, level
        if key not in self._found:
            self._found[key] = gzip.compress(content, level, mtime=0)
        return self._found[key]


class PackedTar(io.RawIOBase):
    """A tar, compressed as one stream of gzip after the other: decompressors join them.

    Its bytes depend on nothing but what is written, the level, and the version of zlib.

    Attributes:
        digest: the SHA-256 of what was written, before it was compressed.
    """

    def __init__(self, target: BinaryIO, level: int = LEVEL) -> None:
        self.digest = hashlib.sha256()
        self._target = target
        self._level = level
        self._size = 0
        self._stream: gzip.GzipFile | None = None

    def write(self, data: Any) -> int:
        """Compress data together with what was written before."""
        if self._stream is None:
            self._stream = gzip.GzipFile("", "wb", self._level, self._target, mtime=0)
        self._count(data)
        return self._stream.write(data)

    def tell(self) -> int:
        """The number of bytes that were written, before they were compressed."""
        return self._size

    def writable(self) -> bool:
        """Return true."""
        return True

    def add_file(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, files: CompressedFiles
    ) -> None:
        """Add a regular file to an archive that writes to this one."""
        if member.size < _LARGE_BYTES:
            with path.open("rb") as small:
                archive.addfile(member, small)
            return
        # Python 3.13 and later add no such member without its content.
        header = member.tobuf(archive.format, archive.encoding, archive.errors)
        self.write(header)
        archive.offset += len(header)
        content = path.read_bytes()
        self.end_stream()
        self._target.write(files.of(path, content, self._level))
        self._count(content)
        padding = -len(content) % tarfile.BLOCKSIZE
        self.write(bytes(padding))
        archive.offset += len(content) + padding

    def end_stream(self) -> None:
        """End the stream that is being written."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _count(self, data: bytes) -> None:
        self.digest.update(data)
        self._size += len(data)


def write_tar(
    target: Path, add: Callable[[tarfile.TarFile, PackedTar], None], level: int = LEVEL
) -> str:
    """Write a compressed tar; return the SHA-256 of it before it was compressed, in hexadecimal.

    Args:
        add: adds the members.
        level: how much to compress; 1 for what is compressed already.
    """
    with target.open("wb") as file:
        packed = PackedTar(file, level)
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            add(archive, packed)
        packed.end_stream()
    return packed.digest.hexdigest()


def write_archive(folder: Path, target: Path, time_s: int, files: CompressedFiles) -> Path:
    """Write a folder as ``target``, a .tar.gz, and its checksum beside it; return that file.

    Members are sorted, belong to root, and all have the same time.

    Args:
        folder: the folder; its name is that of all members' first folder.
        target: the archive.
        time_s: the time of all members.
        files: what other archives of the folder have compressed.
    """
    write_tar(
        target,
        lambda archive, packed: add_folder(
            archive, packed, folder, f"{folder.name}/", time_s, files
        ),
    )
    checksum = target.with_name(f"{target.name}.sha256")
    checksum.write_text(checksum_line(target), encoding="utf-8")
    return checksum


def add_folder(
    archive: tarfile.TarFile,
    packed: PackedTar,
    folder: Path,
    prefix: str,
    time_s: int,
    files: CompressedFiles,
) -> None:
    """Add what is in a folder, sorted, as of root and with the same time for all.

    Args:
        archive: open for writing.
        packed: what it writes to.
        folder: the folder.
        prefix: what the names of members begin with; if it is not empty, the folder is added too.
        time_s: the time of all members.
        files: what other archives of the folder have compressed.
    """
    for path in [*([folder] if prefix else []), *sorted(folder.rglob("*"))]:
        member = archive.gettarinfo(path, f"{prefix}{path.relative_to(folder)}")
        _anonymize(member, time_s)
        # Files with the same content are not links: links do not survive every way of copying.
        if member.islnk():
            member.type, member.linkname, member.size = tarfile.REGTYPE, "", path.stat().st_size
        if member.isreg():
            packed.add_file(archive, member, path, files)
        else:
            archive.addfile(member)


def checksum_line(path: Path) -> str:
    """Return the line of a file as ``sha256sum`` writes it."""
    return f"{_sha256(path)}  {path.name}\n"


def _anonymize(member: tarfile.TarInfo, time_s: int) -> None:
    member.mtime = time_s
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    is_executed = member.isdir() or member.mode & stat.S_IXUSR
    member.mode = 0o755 if is_executed else 0o644


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while content := file.read(_READ_BYTES):
            digest.update(content)
    return digest.hexdigest()
