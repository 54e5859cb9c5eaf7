"""A log that is cut is as Kafka's ``UnifiedLog.truncateTo`` and a clean shutdown leave it."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from builders.apply_target import apply_target
from builders.loading import Arena, Clock, LoaderServer, files_of
from builders.samples import seeds
from kdump.broker.loader.load_context import IndexSettings, load_context
from kdump.formats import names, producer_snapshot
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.repair.rewind.log_facts import NotRewindableError
from kdump.repair.rewind.rewound_log import RewoundLog, rewound
from kdump.scan.batches import read_windows
from kdump.storage.local_disk import local
from kdump.target.virtual_directory import BytesSource

pytestmark = [pytest.mark.differential, pytest.mark.slow]

SETTINGS = IndexSettings(interval_bytes=1, max_bytes=1000)
COMPARED = (".log", ".txnindex", names.LEADER_EPOCH_CHECKPOINT)
"""Indexes may have other entries, but lead to the same batches; loading checks them."""


@pytest.mark.parametrize("seed", seeds(0, count=30, in_main=6))
def test_a_cut_log_is_as_kafka_truncates_it(
    loader_server: LoaderServer, quick_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    arena = Arena(loader_server, quick_path, SETTINGS)
    arena.generate(rng, 20, clean=seed % 2 == 0, damage=False)
    candidates = sorted(starts_of_batches(arena.base))
    rng.shuffle(candidates)
    cut, ours = next((cut, found) for cut in candidates if (found := cut_logs(arena.base, cut)))
    shutil.copytree(arena.base, arena.theirs)
    shutil.copytree(arena.base, arena.ours)
    properties = {"index.interval.bytes": 1, "segment.index.bytes": 1000}
    refused = loader_server.ask(f"truncate={cut}", arena.theirs, Clock(), properties)
    theirs = read_log_directory(local(arena.theirs), DirectoryKind.LOG_DIRECTORY)
    for name, log in ours.items():
        assert name not in refused
        apply_target(arena.ours / name, log.after.files)
        key = names.parse_partition_directory_name(name).topic_partition
        assert log.after.log_end_offset == (theirs.checkpoints.recovery_points or {})[key], name
        expected, got = files_of(arena.theirs / name), files_of(arena.ours / name)
        for suffix in COMPARED:
            assert ending_in(suffix, got) == ending_in(suffix, expected), name
        snapshot = f"{log.end_offset:020d}.snapshot"
        assert (snapshot in got) == (snapshot in expected), name
        if snapshot in expected:
            assert producers(got[snapshot]) == producers(expected[snapshot]), name


def cut_logs(log_dir: Path, cut: int) -> dict[str, RewoundLog]:
    """The logs that a cut ends where a batch begins.

    Within a batch, the end of Kafka's is the offset itself until the next start.
    """
    listed = read_log_directory(local(log_dir), DirectoryKind.LOG_DIRECTORY)
    found = {}
    for partition in listed.partitions:
        key = partition.topic_partition
        assert key is not None
        context = load_context(listed, key, SETTINGS, now_ms=Clock().now_ms)
        with contextlib.suppress(NotRewindableError):
            _, log = rewound(partition.path, context, cut, None, 0, ())
            if log.is_cut and log.end_offset == cut > log.before.log_start_offset:
                found[partition.path.name] = log
    return found


def ending_in(suffix: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name.endswith(suffix)}


def producers(snapshot: bytes) -> list[ProducerEntry]:
    """The producers in a snapshot; Kafka's hash table gives them an order."""
    return sorted(producer_snapshot.decode(snapshot).entries, key=lambda each: each.producer_id)


def starts_of_batches(log_dir: Path) -> Iterator[int]:
    """Where batches begin in any log, but the first of each."""
    for log in sorted(log_dir.glob("*/*.log")):
        for window in read_windows(BytesSource(log.read_bytes()), checksums=False):
            yield from window.batches.base_offset[1:].tolist()
