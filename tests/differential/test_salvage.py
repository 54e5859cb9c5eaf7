"""After salvage Kafka loads every log, as after a crash, without truncating any.

Random damaged partitions are salvaged. Every valid batch in them, found without kdump's own
decoders, is in the logs afterwards or is reported as quarantined.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from builders.apply_target import apply_target
from builders.loading import Arena, Clock, LoaderServer, files_of
from builders.valid_batches import offsets_of, valid_batches_of
from kdump.broker.loader.load_context import IndexSettings, load_context
from kdump.broker.loader.load_report import Cause
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import names
from kdump.formats.checkpoints import OffsetEntry, encode_offset_checkpoint
from kdump.formats.kafka_versions import KAFKA_4_3_1
from kdump.formats.names import TopicPartition
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.storage.local_disk import local

pytestmark = pytest.mark.differential

SETTINGS = IndexSettings(kafka_version=KAFKA_4_3_1)
MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3)]


def salvage(directory: Path) -> dict[TopicPartition, Recovered]:
    """Salvage every partition in place; those whose metadata Kafka cannot read are removed."""
    listed = read_log_directory(local(directory), DirectoryKind.LOG_DIRECTORY)
    outcomes = {}
    for partition in listed.partitions:
        assert partition.topic_partition is not None
        context = load_context(listed, partition.topic_partition, SETTINGS)
        before = files_of(partition.path.local_path)
        outcome = repair_partition(partition, context, Policy.SALVAGE)
        if not isinstance(outcome, Recovered):
            assert outcome.file == names.PARTITION_METADATA, (partition.path.name, outcome)
            shutil.rmtree(partition.path.local_path)
            continue
        apply_target(partition.path.local_path, outcome.files)
        outcomes[partition.topic_partition] = outcome
        _account_for_batches(before, files_of(partition.path.local_path), outcome)
    return outcomes


def _account_for_batches(
    before: dict[str, bytes], after: dict[str, bytes], outcome: Recovered
) -> None:
    kept = set(valid_batches_of(after))
    batches = valid_batches_of(before)
    for at, batch in enumerate(batches):
        if batch in kept:
            continue
        why = [
            each.cause
            for each in outcome.report.quarantined
            if batch in before[each.name][each.start : each.end]
        ]
        assert why, "a batch went without being set aside"
        if why[0] in (Cause.DUPLICATE, Cause.OUT_OF_ORDER):
            first, last = offsets_of(batch)
            behind = [offsets_of(other)[1] >= first for other in batches[:at] if other in kept]
            ahead = [offsets_of(other)[0] <= last for other in batches[at + 1 :] if other in kept]
            assert any(behind) or any(ahead), "a batch went although its offsets are free"


@pytest.mark.parametrize("clean", [False, True], ids=["unclean", "clean"])
@pytest.mark.parametrize("seed", [1, *MORE_SEEDS])
def test_kafka_loads_salvaged_partitions_without_truncation(
    loader_server: LoaderServer, quick_path: Path, seed: int, clean: bool
) -> None:
    arena = Arena(loader_server, quick_path, SETTINGS)
    arena.generate(random.Random(seed), 120, clean=clean)
    shutil.copytree(arena.base, arena.ours)

    outcomes = salvage(arena.ours)

    # Load as after a crash without recovery points.
    (arena.ours / names.RECOVERY_POINT_CHECKPOINT).unlink()
    (arena.ours / names.CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)
    starts = (OffsetEntry(name, outcome.log_start_offset) for name, outcome in outcomes.items())
    (arena.ours / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(starts))
    shutil.copytree(arena.ours, arena.theirs)
    refused = loader_server.load(arena.theirs, SETTINGS, Clock())

    assert not refused
    for name in outcomes:
        ours, theirs = files_of(arena.ours / str(name)), files_of(arena.theirs / str(name))
        changed = [file for file in ours | theirs if ours.get(file) != theirs.get(file)]
        assert not [file for file in changed if file.endswith(".log")], arena.happened[str(name)]
