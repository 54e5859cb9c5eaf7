"""The log directory of a killed broker with many small partitions."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from builders.log_directories import write_log_directory
from builders.verified import END_OFFSET, LogModel, file
from kdump.formats.names import FileKind


def write_partitions(
    root: Path, count: int, *, damaged: Collection[int] = (), left_over: Collection[int] = ()
) -> Path:
    """Write ``count`` partitions of the topic ``events``, each with an index to trim.

    Args:
        root: the log directory.
        count: number of partitions.
        damaged: numbers of partitions whose last batch has a wrong checksum.
        left_over: numbers of partitions with a file that a broker deletes.
    """
    model = LogModel()
    model.is_clean = False
    first = model.write(root / "model").rename(root / "events-0")
    shutil.rmtree(root / "model")
    file(first, END_OFFSET, FileKind.PRODUCER_SNAPSHOT).unlink()
    with file(first, 12, FileKind.OFFSET_INDEX).open("ab") as index:
        index.write(bytes(800))
    for number in range(1, count):
        shutil.copytree(first, root / f"events-{number}")
    for number in damaged:
        log = file(root / f"events-{number}", 12, FileKind.LOG)
        content = bytearray(log.read_bytes())
        content[-3] ^= 1
        log.write_bytes(content)
    for number in left_over:
        (root / f"events-{number}" / "00000000000000000012.log.deleted").write_bytes(b"old")
    points = {("events", number): 12 for number in range(count)}
    return write_log_directory(root, clean=False, recovery_points=points)
