"""A broker started after an interrupted run keeps what it would have kept without the run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import crc32c
import pytest

from builders.damage import ATTRIBUTES_POSITION, CRC_POSITION, batch_positions
from builders.loading import Clock, LoaderServer
from builders.log_directories import offset_checkpoint
from builders.recovery import log_name
from builders.repair_bench import Bench
from builders.repair_cases import BASES, CASES, PARTITION, RETENTION_CASES, compaction
from builders.samples import at_some_or_all
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.names import TopicPartition
from kdump.log.directory import read_log_directory
from kdump.storage.local_disk import local

STATES_OF_A_CASE: Final = 24
SAMPLED_STATES: Final = 6


class Gallery:
    """Log directories with several states of the same partition."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._points: dict[Path, dict[tuple[str, int], int]] = {}
        self._starts: dict[Path, dict[tuple[str, int], int]] = {}

    def add(self, log_dir: Path, name: str) -> Path:
        """Put the partition of ``log_dir`` there; return where it is now."""
        directory = read_log_directory(local(log_dir))
        home = self.path / ("clean" if directory.is_clean else "crashed")
        home.mkdir(parents=True, exist_ok=True)
        shutil.copytree(log_dir / PARTITION, home / f"{name}-0")
        for mine, theirs in (
            (self._points, directory.checkpoints.recovery_points),
            (self._starts, directory.checkpoints.log_start_offsets),
        ):
            lines = mine.setdefault(home, {})
            for (topic, _), offset in (theirs or {}).items():
                if topic == "orders":
                    lines[name, 0] = offset
        if directory.is_clean:
            (home / names.CLEAN_SHUTDOWN_MARKER).touch()
        return home / f"{name}-0"

    def load(self, server: LoaderServer) -> dict[str, str]:
        refused: dict[str, str] = {}
        for home, points in self._points.items():
            (home / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(points))
            starts = offset_checkpoint(self._starts[home])
            (home / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(starts)
            whole = (home / names.CLEAN_SHUTDOWN_MARKER).exists()
            refused |= server.load(home, IndexSettings(), Clock(), whole=whole)
        return refused

    def log_start(self, partition: Path) -> int:
        """Return the log start offset that Kafka uses after a clean shutdown."""
        path = partition.parent / names.LOG_START_OFFSET_CHECKPOINT
        starts = dict(decode_offset_checkpoint(path.read_bytes()))
        first = min(int(log.stem) for log in partition.glob("*.log"))
        return starts.get(TopicPartition(partition.name.removesuffix("-0"), 0), first)


def first_log(log_dir: Path) -> Path:
    return log_dir / PARTITION / log_name(BASES[0])


def kept_batches(partition: Path) -> set[bytes]:
    return {batch for log in partition.glob("*.log") for batch in batches_of(log.read_bytes())}


def batches_of(log: bytes) -> Iterator[bytes]:
    """Return the valid batches: salvage removes the others on purpose."""
    for start, end in pairwise([*batch_positions(log), len(log)]):
        checksum = int.from_bytes(log[start + CRC_POSITION : start + ATTRIBUTES_POSITION])
        if checksum == crc32c.crc32c(log[start + ATTRIBUTES_POSITION : end]):
            yield log[start:end]


@pytest.mark.differential
@at_some_or_all
def test_after_an_interruption_kafka_keeps_what_it_would_have_kept(
    quick_path: Path, loader_server: LoaderServer, is_all: bool
) -> None:
    gallery = Gallery(quick_path / "gallery")
    originals: dict[str, Path] = {}
    states: dict[str, list[tuple[str, Path]]] = {}
    left: dict[str, set[bytes]] = {}
    shorter: set[Path] = set()
    for case in CASES:
        name = case.__name__
        bench = Bench(quick_path / name, case)
        originals[name] = gallery.add(bench.path, name)
        if case in (*RETENTION_CASES, compaction):
            left[name] = {
                batch
                for path, log in bench.repaired.items()
                if path.startswith(PARTITION) and path.endswith(".log")
                for batch in batches_of(log)
            }
        count = bench.count(bench.apply)
        step = max(1, count // (STATES_OF_A_CASE if is_all else SAMPLED_STATES))
        for at in range(count % step, count, step):
            bench.restart()
            last = bench.stop(bench.apply, at, unsynced=at % 3 == 0)
            path = gallery.add(bench.path, f"{name}-{at}")
            states.setdefault(name, []).append((f"after {at}: {last}", path))
            if case in RETENTION_CASES and not first_log(bench.path).exists():
                shorter.add(path)

    refused = gallery.load(loader_server)

    assert not refused
    assert shorter
    starts = {case.__name__: start for case, start in RETENTION_CASES.items()}
    for name, original in originals.items():
        kept = kept_batches(original)
        if name in left:
            kept &= left[name]
        for what, path in states[name]:
            assert not kept - kept_batches(path), f"{name} {what}"
            if path.parent.name == "clean" and path in shorter:
                assert gallery.log_start(path) == starts[name], f"{name} {what}"
