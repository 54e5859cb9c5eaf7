"""Random disks of a real cluster are moved, restored and transplanted: no record is lost unsaid.

A model says what a starting broker has to make of each log afterwards: what it made of it before.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from builders.arranged_disks import (
    Loaded,
    directories_in,
    forget_lines,
    loaded,
    logs_in,
    offsets_of,
    random_name,
    some_disks,
    spoil,
)
from builders.damaged_replicas import DISKS, batches_of
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import original_of
from builders.samples import seeds
from builders.trees import Seen
from kdump.broker.loader.load_context import LoadContext
from kdump.formats import names
from kdump.formats.names import PartitionState, parse_partition_directory_name
from kdump.repair.restored_directories import GONE_STATES


@pytest.fixture
def disks(fixtures: Path, quick_path: Path) -> Path:
    return some_disks(fixtures / "states" / "clean", quick_path / "disks")


@pytest.fixture
def broker(disks: Path) -> tuple[Path, Path]:
    """Return the two disks of a broker."""
    return disks / "b2-d1", disks / "b2-d2"


def kdump(*args: str | Path) -> Outcome:
    return run_kdump([*map(str, args)], Path.cwd())


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [each for each in objects(outcome.stdout) if each["type"] == "partition"]


def trees(log_dirs: Sequence[Path]) -> list[dict[str, Seen]]:
    return [original_of(each) for each in log_dirs]


def undo_all(log_dirs: Sequence[Path]) -> None:
    """Undo all runs, in an order in which no partition is without a log."""
    undone = [True]
    while any(undone):
        undone = [kdump("undo", each).exit_status == 0 for each in log_dirs]


# --- move


def disarrange(broker: tuple[Path, Path], rng: random.Random) -> None:
    """Let a broker have damaged logs, copies on the other disk, and checkpoints without lines."""
    for path in logs_in(*broker):
        other = broker[path.parent == broker[0]] / path.name
        match rng.randrange(8):
            case 0 | 1:
                spoil(path, rng)
            case 2:
                shutil.copytree(path, random_name(other, "future", rng))
            case 3:
                shutil.copytree(path, random_name(other, rng.choice(("delete", "stray")), rng))
            case 4:
                forget_lines(path, rng)


def logs_with_lines(broker: tuple[Path, Path]) -> list[tuple[str, Loaded | None, list[int | None]]]:
    """What a start makes of the logs that a broker uses, and what the checkpoints say of them."""
    return [
        (path.name, loaded(path), offsets_of(path.parent, path.name))
        for path in sorted(logs_in(*broker), key=lambda each: each.name)
    ]


@pytest.mark.parametrize("seed", seeds(0, count=10, in_main=2))
def test_a_start_makes_the_same_of_moved_logs(seed: int, broker: tuple[Path, Path]) -> None:
    rng = random.Random(seed)
    disarrange(broker, rng)
    tree = trees(broker)
    before = logs_with_lines(broker)
    source, target = rng.sample(broker, 2)
    ways = (("--drain", source, "--to", target), ("--balance", source, target))

    assert kdump("move", "--undo", *rng.choice(ways)).exit_status == 0

    assert logs_with_lines(broker) == before
    for path in logs_in(*broker):
        other = broker[path.parent == broker[0]]
        assert offsets_of(other, path.name) == [None] * 4
    undo_all(broker)
    assert trees(broker) == tree


# --- undelete


def throw_away(broker: tuple[Path, Path], rng: random.Random) -> None:
    """Let a broker have called logs stray or deleted them, also those that it has elsewhere."""
    for path in logs_in(*broker):
        other = broker[path.parent == broker[0]] / path.name
        state = rng.choice(("delete", "stray"))
        match rng.randrange(6):
            case 0 | 1:
                if rng.random() < 0.4:
                    spoil(path, rng)
                forget_lines(path, rng)
                if path.exists():
                    path.rename(random_name(path, state, rng))
            case 2:
                state = rng.choice((state, "future"))
                shutil.copytree(path, random_name(other, state, rng))
    if rng.random() < 0.4:
        for log_dir in broker:
            (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()


def gone(broker: tuple[Path, Path]) -> Iterator[tuple[Path, Loaded | None]]:
    """What a start makes of each log that is gone, if nothing but its files is known."""
    for path, name in directories_in(*broker):
        if name.state in GONE_STATES:
            yield path, loaded(path, LoadContext())


@pytest.mark.parametrize("seed", seeds(0, count=10, in_main=2))
def test_restored_logs_have_all_that_their_directories_had(
    seed: int, broker: tuple[Path, Path]
) -> None:
    rng = random.Random(seed)
    throw_away(broker, rng)
    tree = trees(broker)
    before = {(str(path.parent), path.name): found for path, found in gone(broker)}
    used = {path: loaded(path) for path in logs_in(*broker)}
    was_clean = (broker[0] / names.CLEAN_SHUTDOWN_MARKER).exists()
    named = rng.choice((broker, broker, broker[:1]))

    outcome = kdump("undelete", "--output", "jsonl", *named)

    assert outcome.exit_status in (0, 1, 4, 5)
    assert {path: loaded(path) for path in used} == used
    for row in rows_of(outcome):
        found = before[row["log_dir"], row["directory"]]
        if row["restored_as"] is None or found is None:
            continue
        log_dir, name = Path(row["log_dir"]), row["restored_as"]
        now = loaded(log_dir / name)
        start = offsets_of(log_dir, name)[1] or 0
        assert now is not None
        assert (now.start, now.end) == (max(found.start, start), max(found.end, start))
        is_damaged = now.end < (row["log_end_offset"] or 0)
        assert not is_damaged or row["next_start"] in ("damaged", "stray") or not was_clean
        if row["next_start"] == "kept":
            assert [path.parent for path in logs_in(*broker) if path.name == name] == [log_dir]
    undo_all(broker)
    assert trees(broker) == tree


# --- transplant


def empty(path: Path, start: int) -> None:
    """Leave a log without records."""
    for each in path.iterdir():
        if each.name[0].isdigit():
            each.unlink()
    (path / f"{start:020d}.log").write_bytes(b"")


def records_of(path: Path, bounds: Loaded) -> set[tuple[int, bytes]]:
    """The batches between the bounds of a log, without the leader epochs."""
    every = [
        (int.from_bytes(data[:8]), data)
        for log in path.glob("*.log")
        for _, data in batches_of(log.read_bytes())
    ]
    return {
        (offset, data[16:])
        for offset, data in every
        if offset + int.from_bytes(data[23:27]) >= bounds.start and offset < bounds.end
    }


@pytest.mark.parametrize("seed", seeds(0, count=24, in_main=6))
def test_a_transplanted_log_has_all_records_and_gives_out_no_offset_again(
    seed: int, disks: Path
) -> None:
    rng = random.Random(seed)
    source = rng.choice([path for path, _ in directories_in(*(disks / each for each in DISKS))])
    for _ in range(rng.choice((0, 0, 1))):
        spoil(source, rng)
    into = disks / rng.choice([each for each in DISKS if each != source.parent.name])
    target = into / f"{rng.choice(('empty', 'orders', 'users'))}-0"
    if target.exists() and rng.random() < 0.7:
        empty(target, rng.choice((0, 5, 1000)))
    before = loaded(target) if target.exists() else None
    is_used = parse_partition_directory_name(source.name).state is PartitionState.LIVE
    origin = loaded(source, None if is_used else LoadContext()) if source.exists() else None
    tree = trees([into, source.parent])
    topic, _, number = target.name.rpartition("-")
    epoch = rng.choice(((), ("--leader-epoch", "1")))
    ending = ("--open-transactions", "abort", *epoch)

    outcome = kdump(
        "transplant", source, "--into", into, "--topic", topic, "--partition", number, *ending
    )

    if outcome.exit_status == 1:
        copy, after_crash = loaded(target), loaded(target, LoadContext())
        assert origin is not None
        assert copy is not None
        assert after_crash is not None
        assert (copy.start, after_crash.end) == (origin.start, copy.end)
        assert copy.end >= max(origin.end, 0 if before is None else before.end)
        assert records_of(source, origin) <= records_of(target, copy)
        assert not epoch or all(each.epoch <= 1 for each in copy.epochs)
    undo_all([into])
    assert trees([into, source.parent]) == tree
