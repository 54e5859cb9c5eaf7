"""Kafka starts on every state in which a change of directories can stop, and loses nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.loading import Clock, LoaderServer
from builders.stray_directories import stray, stray_log_directory, write_directory
from builders.valid_batches import valid_batches
from builders.volatile_files import VolatileFiles
from kdump.apply.apply import apply_plan
from kdump.apply.directory_changes import (
    CreatedDirectory,
    DirectoryChange,
    FileStream,
    NewFile,
    RemovedDirectory,
    RenamedDirectory,
    StreamedFrom,
)
from kdump.apply.files import Files
from kdump.apply.plan import TargetDirectory, make_plan
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.target.target_file import Gone

REMOVED, STRAY, CREATED = "orders-0", stray("users-0"), "events-0"


def target_of(log_dir: Path, source: Path) -> TargetDirectory:
    files = {each.name: NewFile(StreamedFrom(FileStream.of(each))) for each in source.iterdir()}
    changes: dict[str, DirectoryChange] = {
        CREATED: CreatedDirectory(files),
        REMOVED: RemovedDirectory(),
        "users-0": RenamedDirectory(STRAY),
    }
    return TargetDirectory(log_dir, (), {names.CLEAN_SHUTDOWN_MARKER: Gone()}, directories=changes)


def records_in(directory: Path) -> list[bytes]:
    return [batch for log in directory.glob("*.log") for batch in valid_batches(log.read_bytes())]


@pytest.mark.differential
@pytest.mark.parametrize("keep_undo", [True, False], ids=["undo", "no-undo"])
def test_kafka_loads_every_state_between_two_operations(
    quick_path: Path, loader_server: LoaderServer, keep_undo: bool
) -> None:
    source = write_directory(quick_path / "disk-b", CREATED, 3)
    original = stray_log_directory(quick_path / "original", {REMOVED: 1, STRAY: 2, "other-0": 4})
    log_dir, attic = quick_path / "logs", quick_path / "attic"
    attic.mkdir()
    whole = records_in(source)
    assert whole

    def apply(files: Files) -> None:
        plan = make_plan(target_of(log_dir, source))
        apply_plan(plan, keep_undo=keep_undo, command="kdump move", files=files)

    shutil.copytree(original, log_dir)
    seen = set[str]()
    for at in range(len(VolatileFiles(log_dir, attic).operations_of(apply))):
        shutil.rmtree(log_dir)
        shutil.copytree(original, log_dir)
        VolatileFiles(log_dir, attic).stop_in(apply, at, unsynced=bool(at % 2))
        in_use = {path.name for path in log_dir.iterdir() if path.is_dir() and "." not in path.name}

        assert loader_server.load(log_dir, IndexSettings(), Clock(), whole=True) == {}, at

        for name in in_use:
            assert records_in(log_dir / name) == whole, (at, name)
        seen |= in_use
        kept = {path.name for path in log_dir.iterdir() if path.is_dir()}
        assert STRAY in kept or "users-0" in kept, at
        assert "other-0" in in_use, at
    assert seen == {REMOVED, "users-0", CREATED, "other-0"}
