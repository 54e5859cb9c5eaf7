"""The archive of Spark's classes: where it is, and whether it is safe to use.

A JVM maps the archive and runs the code in it almost unchecked: whoever can change or replace the
archive can run code as the user of kdump, and a damaged archive makes the JVM crash. So an archive
is used only if nobody else can write to it or to a directory on its path, and only if its checksum
is still the one that was written with it.

It has 70 to 150 MB. Those of removed installations, and those that were not used for
:data:`UNUSED_DAYS`, are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from kdump.engine.spark_installation import Java, Spark
from kdump.formats.checksum import crc32c
from kdump.storage.private_folder import cache_folder, is_private

_CONTENT: Final = "3"
"""Changes if the classes of an archive do."""
_CHUNK_BYTES: Final = 1 << 20
_SUFFIX: Final = ".jsa"
UNUSED_DAYS: Final = 30
_DAY_SECONDS: Final = 86_400


class ClassArchive(Struct, frozen=True):
    """The archive of one JVM and one Spark; it may not exist.

    Attributes:
        made_for: the program ``java`` and Spark's home.
    """

    path: Path
    made_for: tuple[Path, ...] = ()

    @property
    def checksum_path(self) -> Path:
        return self.path.with_suffix(".crc32c")

    @property
    def made_for_path(self) -> Path:
        """Has the paths of what it was made for, with a null byte after each."""
        return self.path.with_suffix(".made-for")

    def is_usable(self) -> bool:
        """Whether the archive exists, and only this user and root can have written it."""
        return all(map(is_private, (self.path.parent, self.path, self.checksum_path)))

    def is_intact(self) -> bool:
        """Whether the archive still has its checksum; reads all of it."""
        try:
            return self.checksum_path.read_text(encoding="ascii") == _checksum(self.path)
        except (OSError, ValueError):
            return False

    def keep(self, part: Path) -> None:
        """Move a finished archive into place; ``part`` is in the same directory.

        If the process is stopped here, it leaves a checksum without an archive, which is not used.

        Raises:
            OSError: the disk fails.
        """
        self.discard()
        paths = b"".join(b"%s\0" % os.fsencode(each) for each in self.made_for)
        self.made_for_path.write_bytes(paths)
        self.checksum_path.write_text(_checksum(part), encoding="ascii")
        self.checksum_path.chmod(0o400)
        part.chmod(0o400)
        part.replace(self.path)

    def discard(self) -> None:
        """Remove the archive if possible; the next run makes another."""
        for path in (self.path, self.checksum_path, self.made_for_path):
            with contextlib.suppress(OSError):
                path.unlink()

    def note_use(self) -> None:
        """Remember that the archive is used now, by its time."""
        with contextlib.suppress(OSError):
            os.utime(self.path)

    def is_worth_keeping(self, now_s: float) -> bool:
        """Whether it was used lately, and what it was made for still exists."""
        try:
            if now_s - self.path.stat().st_mtime > UNUSED_DAYS * _DAY_SECONDS:
                return False
        except OSError:
            return False
        try:
            paths = self.made_for_path.read_bytes().split(b"\0")[:-1]
        except OSError:
            return True  # made by a version that did not write them
        return all(os.path.exists(each) for each in paths)  # noqa: PTH110 - these are bytes


def remove_unused(folder: Path, now_s: float) -> None:
    """Remove the archives in a directory that are not worth keeping. Never fails.

    Args:
        folder: the cache.
        now_s: the time, in seconds since the epoch.
    """
    if not is_private(folder):
        return
    with contextlib.suppress(OSError):
        for path in list(folder.glob(f"spark-*{_SUFFIX}")):
            archive = ClassArchive(path)
            if not archive.is_worth_keeping(now_s):
                archive.discard()


def find_archive(
    java: Java, spark: Spark, options: tuple[str, ...], environment: Mapping[str, str]
) -> ClassArchive | None:
    """The archive for a JVM with these ``options``; None if there is nowhere to keep one.

    A JVM refuses the archive of other jars or of another JVM. With the name made from all of these
    it is not offered one that it would refuse.
    """
    folder = cache_folder(environment)
    if folder is None:
        return None
    try:
        installed = str((spark.home / "jars").stat().st_mtime_ns)
    except OSError:
        installed = ""
    described = "\n".join(
        [_CONTENT, java.identity, str(java.path), spark.class_path, installed, *options]
    )
    key = hashlib.sha256(described.encode(errors="surrogateescape")).hexdigest()[:16]
    return ClassArchive(
        folder / f"spark-{spark.version}-{key}{_SUFFIX}", made_for=(java.path, spark.home)
    )


def _checksum(path: Path) -> str:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum = crc32c(chunk, checksum)
    return f"{checksum:08x}"
