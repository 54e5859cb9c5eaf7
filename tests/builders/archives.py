"""Directories that a real broker wrote, unpacked from their archives with modes and times.

As a script: ``PYTHONPATH=tests python -m builders.archives FOLDER_OF_ARCHIVES TARGET``.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from typing import Final

from builders.once import made_once

CRASHES: Final = [
    ("crashed/d1", "recovered/d1"),
    ("crashed/d2", "recovered/d2"),
    *(
        (f"leftover-{kind}/logs", f"leftover-{kind}-recovered/logs")
        for kind in (
            "1-cleaned-partial",
            "2-cleaned-complete",
            "3-swap-log-only",
            "4-swap-complete",
        )
    ),
]
"""Log directories of killed brokers, before and after their next start."""


def unpack_all(archives: Path, target: Path) -> Path:
    """Unpack every ``*.tar.xz`` of ``archives`` into ``target``, once; return ``target``.

    Modes are kept exactly (a KRaft checkpoint is 0400). The safer filters of :mod:`tarfile` would
    change them; the archives are the project's own.
    """
    found = sorted(archives.glob("*.tar.xz"))
    fingerprint = "".join(
        f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}\n" for path in found
    )

    def unpack(folder: Path) -> None:
        for path in found:
            with tarfile.open(path) as archive:
                if hasattr(tarfile, "fully_trusted_filter"):
                    archive.extractall(folder, filter="fully_trusted")
                else:
                    archive.extractall(folder)

    return made_once(target, fingerprint, unpack)


if __name__ == "__main__":
    print(unpack_all(Path(sys.argv[1]), Path(sys.argv[2])))
