"""The two log directories of a broker that was shut down cleanly, with partitions to move."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from builders.log_directories import (
    META_PROPERTIES,
    begin_epochs_at,
    offset_checkpoint,
    write_log_directory,
)
from builders.trees import contents_of
from builders.verified import LogModel
from kdump.formats import names
from kdump.formats.names import PartitionState, parse_partition_directory_name

SECOND_META_PROPERTIES: Final = META_PROPERTIES.replace(
    b"V1dW8O41RR6_pKmks-3sKg", b"3VrJIfeFdYrrH_6uDMIANg"
)
CHECKPOINTS: Final = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.REPLICATION_OFFSET_CHECKPOINT,
    names.CLEANER_OFFSET_CHECKPOINT,
)


def write_two_disks(folder: Path) -> tuple[Path, Path]:
    """Write d1 with orders-0, users-0 and users-1, and d2 with other-0."""
    d1, d2 = folder / "d1", folder / "d2"
    model = LogModel().write(folder / "model")
    for directory, partitions in ((d1, ("orders-0", "users-0", "users-1")), (d2, ("other-0",))):
        write_log_directory(directory)
        for number, name in enumerate(partitions):
            _copy(model, directory / name, padding=100 * number)
        write_lines(directory, {name: 12 + at for at, name in enumerate(partitions)})
    (d2 / names.META_PROPERTIES).write_bytes(SECOND_META_PROPERTIES)
    return d1, d2


def _copy(model: Path, path: Path, *, padding: int) -> None:
    path.mkdir()
    for name, content in contents_of(model).items():
        (path / name).write_bytes(content)
        os.utime(path / name, ns=(10**18, 10**18 + padding))
    (path / "notes").write_bytes(bytes(padding))


def write_lines(directory: Path, offsets: Mapping[str, int]) -> None:
    """Write all four checkpoints; the offsets differ by checkpoint."""
    for at, name in enumerate(CHECKPOINTS):
        lines = {}
        for partition, offset in offsets.items():
            topic, _, number = partition.rpartition("-")
            lines[topic, int(number)] = offset - at
            if name == names.LOG_START_OFFSET_CHECKPOINT and (directory / partition).exists():
                begin_epochs_at(directory / partition, offset - at)
        (directory / name).write_bytes(offset_checkpoint(lines))


def lines_of(directory: Path) -> dict[str, dict[str, int]]:
    """Return the lines of the checkpoints by file and partition."""
    found = {}
    for name in CHECKPOINTS:
        rows = [line.split() for line in (directory / name).read_text().splitlines()[2:]]
        found[name] = {f"{topic}-{number}": int(offset) for topic, number, offset in rows}
    return found


def live_in(directory: Path) -> dict[str, dict[str, bytes]]:
    """Return the content of the partitions that a broker uses."""
    found = {}
    for path in directory.iterdir():
        if path.is_dir():
            # A broker would refuse any other name.
            parsed = parse_partition_directory_name(path.name)
            if parsed.state is PartitionState.LIVE:
                found[path.name] = contents_of(path)
    return found
