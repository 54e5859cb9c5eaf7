"""The archive of Spark's classes: where it is, and whether it is safe to use.

A JVM maps the archive and runs the code in it almost unchecked: whoever can change or replace the
archive can run code as the user of kdump, and a damaged archive makes the JVM crash. So an archive
is used only if nobody else can write to it or to a directory on its path, and only if its checksum
is still the one that was written with it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kdump.engine.spark_installation import Java, Spark
from kdump.formats.checksum import crc32c
from kdump.storage.private_folder import is_private

_CONTENT: Final = "3"
"""Changes if the classes of an archive do."""
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one JVM and one Spark; it may not exist.

    Attributes:
        path: its path.
    """

    path: Path

    @property
    def checksum_path(self) -> Path:
        return self.path.with_suffix(".crc32c")

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
        self.checksum_path.write_text(_checksum(part), encoding="ascii")
        self.checksum_path.chmod(0o400)
        part.chmod(0o400)
        part.replace(self.path)

    def discard(self) -> None:
        """Remove the archive if possible; the next run makes another."""
        for path in (self.path, self.checksum_path):
            with contextlib.suppress(OSError):
                path.unlink()


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
    return ClassArchive(folder / f"spark-{spark.version}-{key}.jsa")


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """The directory of kdump in the user's cache; None if the user has no home directory."""
    configured = environment.get("XDG_CACHE_HOME", "")
    # The XDG Base Directory Specification says to ignore relative paths.
    if configured.startswith("/"):
        return Path(configured) / "kdump"
    home = environment.get("HOME", "")
    return Path(home) / ".cache" / "kdump" if home.startswith("/") else None


def _checksum(path: Path) -> str:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum = crc32c(chunk, checksum)
    return f"{checksum:08x}"
