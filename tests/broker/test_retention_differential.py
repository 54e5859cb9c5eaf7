"""Retention leaves what Kafka's own ``deleteOldSegments`` leaves, byte for byte."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from builders.apply_target import apply_target
from builders.batches import BASE_TIMESTAMP_MS
from builders.loading import MINUTE_MS, TOPIC, Arena, Clock, LoaderServer, files_of
from builders.retain_for_differ import retain
from kdump.broker.loader.load_context import IndexSettings, load_context
from kdump.broker.retention.record_deletion import RecordsNotDeletableError, without_records_before
from kdump.broker.retention.retention_outcome import LoadedLog, Retained, load_log, retained_root
from kdump.formats.names import TopicPartition
from kdump.log.directory import Checkpoints, DirectoryKind, read_log_directory
from kdump.state.metadata.settings import Settings, TopicSettings
from kdump.storage.local_disk import local

pytestmark = pytest.mark.differential

NOW = Clock(BASE_TIMESTAMP_MS + 30 * MINUTE_MS)


def arena_of(
    loader_server: LoaderServer, path: Path, seed: int, count: int, *, damage: bool
) -> Arena:
    arena = Arena(loader_server, path, IndexSettings())
    arena.generate(random.Random(seed), count, clean=True, damage=damage)
    for copy in (arena.theirs, arena.ours):
        shutil.copytree(arena.base, copy)
    return arena


def differences(arena: Arena, refused: Mapping[str, str]) -> list[str]:
    """List the files and checkpoint lines that differ, for the partitions that Kafka loads."""
    kafka, kdump = checkpoints(arena.theirs), checkpoints(arena.ours)
    found = []
    for path in sorted(arena.theirs.glob(f"{TOPIC}-*")):
        if path.name in refused:
            continue
        theirs, ours = files_of(path), files_of(arena.ours / path.name)
        wrong = [n for n in theirs.keys() | ours.keys() if theirs.get(n) != ours.get(n)]
        key = TopicPartition(TOPIC, int(path.name.rpartition("-")[2]))
        wrong += [
            name
            for name in ("log_start_offsets", "recovery_points")
            if (getattr(kafka, name) or {}).get(key) != (getattr(kdump, name) or {}).get(key)
        ]
        if wrong:
            found.append(f"{path.name}: {', '.join(sorted(wrong))}")
    return found


def checkpoints(path: Path) -> Checkpoints:
    return read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY).checkpoints


def deleted_segments(outcomes: Mapping[TopicPartition, object]) -> int:
    return sum(len(each.deleted) for each in outcomes.values() if isinstance(each, Retained))


def settings_of(properties: Mapping[str, object]) -> TopicSettings:
    given = {name: str(value) for name, value in properties.items()}
    return Settings(given=given).topic(TOPIC)


@pytest.mark.parametrize(
    "damage", [pytest.param(False, marks=pytest.mark.soak), True], ids=["valid", "damaged"]
)
@pytest.mark.parametrize(
    "properties",
    [
        {"retention.ms": 29 * MINUTE_MS},
        {"retention.ms": 10 * MINUTE_MS, "retention.bytes": 3000},
        {"retention.ms": -1, "retention.bytes": 2000},
        {"retention.ms": 0},
        {"retention.ms": 0, "cleanup.policy": "compact"},
        {"retention.ms": 20 * MINUTE_MS, "cleanup.policy": "compact,delete"},
    ],
    ids=["time", "time and size", "size", "everything", "policy", "both policies"],
)
def test_retention_leaves_the_same_files_as_kafka(
    loader_server: LoaderServer, quick_path: Path, properties: dict[str, object], damage: bool
) -> None:
    seed = len(properties) * 2 + damage
    arena = arena_of(loader_server, quick_path, seed, 25, damage=damage)
    refused = loader_server.ask("retain", arena.theirs, NOW, properties)
    outcomes = retain(arena.ours, settings_of(properties), NOW.now_ms)
    assert differences(arena, refused) == []
    assert deleted_segments(outcomes) > 0 or properties.get("cleanup.policy") == "compact"


@pytest.mark.parametrize("offset", [1, 15, 60])
def test_deleting_records_leaves_the_same_files_as_kafka(
    loader_server: LoaderServer, quick_path: Path, offset: int
) -> None:
    arena = arena_of(loader_server, quick_path, offset, 25, damage=False)
    properties = {"retention.ms": -1}
    refused = loader_server.ask(f"delete-records={offset}", arena.theirs, NOW, properties)
    refusing = delete_before(arena.ours, settings_of(properties), offset)
    # Both refuse logs that start after the offset or have a high watermark below it.
    assert refusing == refused.keys()
    assert len(refused) < 25
    assert differences(arena, refused) == []


def delete_before(path: Path, settings: TopicSettings, offset: int) -> set[str]:
    """Delete records in all partitions; return the names of those that refuse."""
    directory = read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY)
    outcomes, refusing = {}, set()
    for partition in directory.partitions:
        key = partition.topic_partition
        assert key is not None
        context = load_context(directory, key, now_ms=NOW.now_ms)
        marks = directory.checkpoints.high_watermarks or {}
        loaded = load_log(partition.path, context, marks.get(key))
        assert isinstance(loaded, LoadedLog)
        try:
            outcomes[key] = without_records_before(loaded, settings, offset)
        except RecordsNotDeletableError:
            refusing.add(str(key))
            continue
        apply_target(partition.path.local_path, outcomes[key].files)
    apply_target(path, retained_root(directory, outcomes))
    return refusing
