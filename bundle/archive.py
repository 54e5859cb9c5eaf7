"""Write a folder as an archive whose bytes depend on nothing but the content of the folder."""

from __future__ import annotations

import gzip
import hashlib
import stat
import tarfile
from pathlib import Path
from typing import Final

_LEVEL: Final = 6
"""The highest level is half a megabyte smaller, and takes three times as long."""
_READ_BYTES: Final = 1 << 20


def write_archive(folder: Path, target: Path, time_s: int) -> Path:
    """Write a folder as ``target``, a .tar.gz, and its checksum beside it; return that file.

    Members are sorted, belong to root, and all have the same time.

    Args:
        folder: the folder; its name is that of all members' first folder.
        target: the archive.
        time_s: the time of all members.
    """
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        add_folder(archive, folder, f"{folder.name}/", time_s)
    checksum = target.with_name(f"{target.name}.sha256")
    checksum.write_text(checksum_line(target), encoding="utf-8")
    return checksum


def add_folder(archive: tarfile.TarFile, folder: Path, prefix: str, time_s: int) -> None:
    """Add what is in a folder, sorted, as of root and with the same time for all.

    Args:
        archive: open for writing.
        folder: the folder.
        prefix: what the names of members begin with; if it is not empty, the folder is added too.
        time_s: the time of all members.
    """
    for path in [*([folder] if prefix else []), *sorted(folder.rglob("*"))]:
        member = archive.gettarinfo(path, f"{prefix}{path.relative_to(folder)}")
        _anonymize(member, time_s)
        if member.isreg():
            with path.open("rb") as content:
                archive.addfile(member, content)
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
    # Files with the same content are not links: links do not survive every way of copying.
    if member.islnk():
        member.type, member.linkname = tarfile.REGTYPE, ""


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while content := file.read(_READ_BYTES):
            digest.update(content)
    return digest.hexdigest()
