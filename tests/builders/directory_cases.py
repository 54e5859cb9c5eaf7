"""A log directory in which directories are created, renamed and removed, and its target state."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from builders.log_directories import offset_checkpoint
from builders.trees import contents_of
from kdump.apply.directory_changes import (
    CreatedDirectory,
    FileStream,
    NewFile,
    RemovedDirectory,
    RenamedDirectory,
    StreamedFrom,
)
from kdump.apply.files import Metadata
from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.formats import names
from kdump.target.target_file import Gone, NewBytes

LOG: Final = "00000000000000000000.log"
STRAY: Final = "users-0.0123456789abcdef0123456789abcdef-stray"
OLD: Final = "orders-0"
CREATED: Final = "events-0"
CHANGED: Final = "other-0"
POINTS: Final = {("orders", 0): 1, ("other", 0): 2}
POINTS_AFTER: Final = {("other", 0): 2, ("users", 0): 3, ("events", 0): 4}
STARTS_AFTER: Final = {("events", 0): 1}


def write_log_directory(path: Path) -> Path:
    """Write the log directory, and a partition on another disk beside it; return the directory."""
    for directory, content in (
        (path / OLD, b"orders"),
        (path / STRAY, b"users"),
        (path / CHANGED, b"other"),
        (path.parent / "disk-b" / CREATED, b"events"),
    ):
        if directory.exists():
            continue
        directory.mkdir(parents=True)
        (directory / LOG).write_bytes(content * 1000)
        (directory / names.PARTITION_METADATA).write_bytes(content)
        (directory / LOG.replace(".log", ".index")).write_bytes(b"")
    (path / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(POINTS))
    (path / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({}))
    (path / names.CLEAN_SHUTDOWN_MARKER).write_bytes(b"{}")
    return path


def target_of(path: Path) -> TargetDirectory:
    """Return the target state: all kinds of changes at once."""
    source = path.parent / "disk-b" / CREATED
    log = source / LOG
    new = {
        LOG: NewFile(StreamedFrom(FileStream.of(log)), Metadata.of(log.stat())),
        LOG.replace(".log", ".index"): NewFile(NewBytes(b"")),
        names.PARTITION_METADATA: NewFile(NewBytes(b"events")),
    }
    starts = NewBytes(offset_checkpoint(STARTS_AFTER))
    return TargetDirectory(
        path,
        (TargetPartition(path / CHANGED, {names.PARTITION_METADATA: Gone()}),),
        {
            names.RECOVERY_POINT_CHECKPOINT: NewBytes(offset_checkpoint(POINTS_AFTER)),
            names.LOG_START_OFFSET_CHECKPOINT: starts,
            names.CLEAN_SHUTDOWN_MARKER: NewBytes(b"{}"),
        },
        interim={names.LOG_START_OFFSET_CHECKPOINT: starts},
        directories={
            CREATED: CreatedDirectory(new),
            "users-0": RenamedDirectory(STRAY),
            OLD: RemovedDirectory(),
        },
    )


def content_after(path: Path, *, keep_undo: bool) -> dict[str, bytes]:
    """Return what the directory holds after the plan, by the state before it."""
    before = contents_of(path)
    source = contents_of(path.parent / "disk-b" / CREATED)
    kept = "orders-0.kdump-1-old-0-stray"
    after = {f"{CREATED}/{name}": data for name, data in source.items()}
    for name, data in before.items():
        directory, slash, file = name.partition("/")
        if directory == OLD and not keep_undo:
            continue
        moved = {STRAY: "users-0", OLD: kept}.get(directory, directory)
        after[moved + slash + file] = data
    del after[f"{CHANGED}/{names.PARTITION_METADATA}"]
    after[names.RECOVERY_POINT_CHECKPOINT] = offset_checkpoint(POINTS_AFTER)
    after[names.LOG_START_OFFSET_CHECKPOINT] = offset_checkpoint(STARTS_AFTER)
    return after
