"""Leftover files are resolved as by the loader, and nothing else changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builders import random_partitions
from builders.apply_target import apply_target
from builders.batches import batches
from builders.log_directories import write_partition
from builders.recovery import joined, log_name, recovered
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.load_report import HandledLeftover, LeftoverOutcome
from kdump.broker.loader.loader import recover_partition
from kdump.broker.loader.recovered_partition import Recovered
from kdump.log.directory import read_lone_partition
from kdump.repair.rebuild.leftovers import resolve_leftovers
from kdump.repair.rebuild.repaired import Repaired
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, RenamedFrom

FIRST, SECOND = log_name(0), log_name(12)
DAMAGES = (
    random_partitions.swap_interrupted,
    random_partitions.cleaning_interrupted,
    random_partitions.deletion_interrupted,
    random_partitions.orphan_index,
)


def resolved(path: Path) -> Repaired:
    return resolve_leftovers(read_lone_partition(local(path), path.name), LoadContext())


def partition(path: Path) -> Path:
    logs = {0: joined(batches(4)), 12: joined(batches(4, base_offset=12))}
    return write_partition(path / "orders-0", logs)


def test_unfinished_files_are_deleted_and_complete_ones_renamed(tmp_path: Path) -> None:
    path = partition(tmp_path)
    (path / f"{FIRST}.swap").write_bytes((path / FIRST).read_bytes())
    (path / f"{SECOND}.cleaned").write_bytes(b"")
    (path / "00000000000000000900.log.deleted").write_bytes(b"")
    (path / "00000000000000000005.index").write_bytes(b"")

    repaired = resolved(path)

    assert repaired.files[FIRST] == RenamedFrom(f"{FIRST}.swap", (path / FIRST).stat().st_size)
    assert {name for name, target in repaired.files.items() if target == Gone()} >= {
        f"{FIRST}.swap",
        f"{SECOND}.cleaned",
        "00000000000000000900.log.deleted",
        "00000000000000000005.index",
    }
    assert HandledLeftover(f"{FIRST}.swap", LeftoverOutcome.PUT_IN_PLACE) in repaired.leftovers


def test_a_temporary_file_is_deleted_if_its_small_file_exists(tmp_path: Path) -> None:
    path = partition(tmp_path)
    for name in ("leader-epoch-checkpoint.tmp", "quorum-state.tmp"):
        (path / name).write_bytes(b"")

    assert dict(resolved(path).files) == {"leader-epoch-checkpoint.tmp": Gone()}


def test_a_name_without_an_offset_is_refused_as_kafka_refuses_it(tmp_path: Path) -> None:
    path = partition(tmp_path)
    (path / "abc.swap").write_bytes(b"")

    repaired = resolved(path)

    assert not repaired.files
    assert [refusal.file for refusal in repaired.refusals] == ["abc.swap"]


@pytest.mark.parametrize("seed", range(40))
def test_a_recovery_is_the_same_with_leftovers_resolved_before(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "orders-0"
    path.mkdir()
    for name, content in random_partitions.random_logs(rng).items():
        (path / name).write_bytes(content)
    apply_target(path, recovered(path).files)
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    for file in path.iterdir():
        file.unlink()
    for _ in range(rng.randrange(1, 3)):
        if any(name.endswith(".log") for name in files):
            rng.choice(DAMAGES)(rng, files)
    for name, content in files.items():
        (path / name).write_bytes(content)

    before = _left_by_recovery(path)
    apply_target(path, resolved(path).files)

    assert _left_by_recovery(path) == before
    assert not resolved(path).files


def _left_by_recovery(path: Path) -> dict[str, bytes] | Refusal:
    copy = path.with_name("copy-0")
    copy.mkdir()
    for file in path.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    outcome = recover_partition(read_lone_partition(local(copy), copy.name), LoadContext())
    if isinstance(outcome, Recovered):
        apply_target(copy, outcome.files)
    left = {file.name: file.read_bytes() for file in copy.iterdir()}
    for file in copy.iterdir():
        file.unlink()
    copy.rmdir()
    return left if isinstance(outcome, Recovered) else outcome
