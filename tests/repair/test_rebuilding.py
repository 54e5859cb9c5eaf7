"""Rebuilt indexes, snapshots and epochs are those that a recovery of the whole log leaves."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builders import damage, random_partitions
from builders.apply_target import apply_target
from builders.batches import batch, batches, record
from builders.log_directories import write_partition
from builders.message_sets import message
from builders.recovery import joined, log_name, producers, recovered
from kdump.broker.loader.load_context import LoadContext
from kdump.formats.compression import Codec
from kdump.formats.names import LEADER_EPOCH_CHECKPOINT
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.directory import read_lone_partition
from kdump.log.partition import Partition
from kdump.repair.rebuild.epoch_checkpoint import rebuild_leader_epochs
from kdump.repair.rebuild.rebuild_index import rebuild_indexes
from kdump.repair.rebuild.snapshots import rebuild_snapshots
from kdump.storage.local_disk import local

INDEXES = (".index", ".timeindex", ".txnindex")
SEEDS = range(25)


def settled(path: Path, seed: int) -> Path:
    """A partition without damage, as a recovery has left it."""
    directory = path / "orders-0"
    directory.mkdir()
    for name, content in random_partitions.random_logs(random.Random(seed)).items():
        (directory / name).write_bytes(content)
    apply_target(directory, recovered(directory).files)
    return directory


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def listed(directory: Path) -> Partition:
    return read_lone_partition(local(directory), directory.name)


def snapshots(directory: Path) -> dict[str, set[ProducerEntry]]:
    files = files_of(directory).items()
    return {name: set(producers(data)) for name, data in files if name.endswith(".snapshot")}


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_indexes_are_rebuilt_as_before(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    directory = settled(tmp_path, seed)
    before = files_of(directory)
    for name in sorted(before):
        if name.endswith(INDEXES) and rng.random() < 0.5:
            content = rng.choice(damage.ANY_FILE)(rng, bytearray(before[name]))
            (directory / name).write_bytes(content)
            if rng.random() < 0.2 and not name.endswith(".txnindex"):
                (directory / name).unlink()

    repaired = rebuild_indexes(listed(directory), LoadContext())

    changed = {name for name, content in files_of(directory).items() if content != before[name]}
    gone = before.keys() - files_of(directory).keys()
    assert repaired.files.keys() == changed | gone
    assert not repaired.refusals
    apply_target(directory, repaired.files)
    assert files_of(directory) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_selected_segments_are_read(tmp_path: Path, seed: int) -> None:
    directory = settled(tmp_path, seed)
    before = files_of(directory)
    last = max(name for name in before if name.endswith(".log"))[:20]
    for name in before:
        if name.endswith((".index", ".timeindex")):
            (directory / name).write_bytes(b"")

    apply_target(directory, rebuild_indexes(listed(directory), LoadContext(), {int(last)}).files)

    after = files_of(directory)
    assert all((after[name] == before[name]) or name[:20] != last for name in before)
    others = [name for name in before if name.endswith(".index") and name[:20] != last]
    assert all(not after[name] for name in others)


def test_a_segment_with_a_damaged_log_is_refused_and_the_others_are_not(tmp_path: Path) -> None:
    log = bytearray(joined(batches(4)))
    log[80] ^= 1
    directory = write_partition(
        tmp_path / "orders-0", {0: bytes(log), 12: joined(batches(4, base_offset=12))}
    )
    (directory / f"{12:020d}.index").write_bytes(b"nonsense")

    repaired = rebuild_indexes(listed(directory), LoadContext())

    (refusal,) = repaired.refusals
    assert (refusal.file, refusal.position) == (log_name(0), 0)
    assert all(name.startswith(f"{12:020d}") for name in repaired.files)
    assert f"{12:020d}.index" in repaired.files


def test_a_log_that_stops_the_replay_of_producers_is_refused_once(tmp_path: Path) -> None:
    unreadable = message(0, None, b"rubbish", attributes=Codec.LZ4)
    directory = write_partition(
        tmp_path / "orders-0", {0: unreadable, 1: joined(batches(1, base_offset=1)), 60: b""}
    )
    repaired = rebuild_indexes(listed(directory), LoadContext())
    assert len({*repaired.refusals}) == len(repaired.refusals) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_snapshots_are_rebuilt_from_the_log_alone(tmp_path: Path, seed: int) -> None:
    directory = settled(tmp_path, seed)
    before = snapshots(directory)
    for name in before:
        (directory / name).write_bytes(b"nonsense")
    (directory / f"{2**40:020d}.snapshot").write_bytes(b"nonsense")

    apply_target(directory, rebuild_snapshots(listed(directory), LoadContext()).files)

    after = snapshots(directory)
    assert all(after[name] == before[name] for name in before if name in after)
    bases = sorted(name[:20] for name in files_of(directory) if name.endswith(".log"))
    assert set(after) >= {f"{base}.snapshot" for base in bases[1:]}
    assert max(before, default="") == max(after, default="")


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n99 7\n", b"nonsense"])
@pytest.mark.parametrize("seed", range(8))
def test_leader_epochs_are_those_of_the_batches(
    tmp_path: Path, seed: int, content: bytes | None
) -> None:
    directory = settled(tmp_path, seed)
    path = directory / LEADER_EPOCH_CHECKPOINT
    path.unlink()
    apply_target(directory, recovered(directory).files)
    before = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    apply_target(directory, rebuild_leader_epochs(listed(directory), LoadContext()).files)

    assert path.read_bytes() == before


def test_a_valid_partition_does_not_change(tmp_path: Path) -> None:
    directory = settled(tmp_path, 3)
    partition = listed(directory)

    assert not rebuild_indexes(partition, LoadContext()).files
    assert not rebuild_leader_epochs(partition, LoadContext()).files


def test_epochs_that_do_not_contradict_a_batch_are_kept(tmp_path: Path) -> None:
    directory = write_partition(
        tmp_path / "orders-0",
        {0: joined(batches(4))},
        others={LEADER_EPOCH_CHECKPOINT: b"0\n2\n0 0\n7 12\n"},
    )

    assert not rebuild_leader_epochs(listed(directory), LoadContext()).files
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\n2\n0 0\n4 2\n")
    assert rebuild_leader_epochs(listed(directory), LoadContext()).files


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([0, 77, 0, 2, 2], b"0\n2\n0 0\n2 3\n"),
        ([0, 2, 2, 0, 2], b"0\n2\n0 0\n2 1\n"),
        ([2, 2, 2, 2, 0], b"0\n1\n2 0\n"),
        ([9, 2, 2, 2, 3], b"0\n2\n2 1\n3 4\n"),
        ([2, 77, 2], b"0\n1\n2 0\n"),
    ],
)
def test_an_epoch_that_contradicts_more_others_does_not_count(
    tmp_path: Path, epochs: list[int], expected: bytes
) -> None:
    logs = joined(
        batch([record(at)], partition_leader_epoch=epoch) for at, epoch in enumerate(epochs)
    )
    right = {LEADER_EPOCH_CHECKPOINT: expected}
    directory = write_partition(tmp_path / "orders-0", {0: logs}, others=right)

    assert not rebuild_leader_epochs(listed(directory), LoadContext()).files
    (directory / LEADER_EPOCH_CHECKPOINT).unlink()
    apply_target(directory, rebuild_leader_epochs(listed(directory), LoadContext()).files)
    assert (directory / LEADER_EPOCH_CHECKPOINT).read_bytes() == expected
