"""``kdump diff`` finds no difference in what brokers do while their directories are compared."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batch, record
from builders.in_process import Outcome, run_kdump
from builders.lock_holder import complaints, held_elsewhere
from builders.log_directories import write_log_directory, write_partition
from builders.samples import seeds
from builders.simulated_broker import SimulatedBroker, SteppedDisk
from kdump.errors import ExitStatus
from kdump.jobs.diff import diff, living_replica, missing_replicas
from kdump.log import living_windows, settled_listing
from kdump.log.lock_holders import forget_holders
from kdump.storage import places
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location

LASTING: Final = ("--topic=kept", "--topic=retained", "--topic=cleaned", "--topic=moved")
"""All topics but the one that comes and goes."""


@pytest.fixture
def sides(quick_path: Path) -> Iterator[list[Path]]:
    """Return two empty directories that other processes have locked."""
    paths = [quick_path / "left", quick_path / "right"]
    with contextlib.ExitStack() as stack:
        for path in paths:
            path.mkdir()
            stack.enter_context(held_elsewhere(path))
        forget_holders()
        yield paths
    forget_holders()


def read_beside(brokers: Mapping[Path, SimulatedBroker], patch: pytest.MonkeyPatch) -> None:
    """Let brokers go on before and during everything that kdump reads of their directories."""

    def step() -> None:
        for each in brokers.values():
            each.steps(2)

    def parse(text: str) -> Location:
        location = places.parse_location(text)
        is_theirs = Path(location.path) in brokers
        return Location(SteppedDisk(step), location.path) if is_theirs else location

    def go_on(_: int) -> None:
        for each in brokers.values():
            each.steps(60)

    assert places.parse_location("/").storage == LOCAL_DISK
    patch.setattr("kdump.cli.options.parameters.parse_location", parse)
    for module in (living_windows, settled_listing, diff, missing_replicas):
        patch.setattr(module, "wait", go_on)
    # A worker would have brokers of its own.
    patch.setattr("kdump.engine.local.usable_cpus", lambda: 1)


def compared(folder: Path, *args: str) -> tuple[Outcome, dict[str, Any]]:
    """Compare; return the rows of partitions by topic, too."""
    outcome = run_kdump(["diff", "--output", "jsonl", *args], folder)
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    return outcome, {row["topic"]: row for row in rows if row["type"] == "partition"}


@pytest.mark.parametrize("seed", seeds(0, count=60, in_main=6))
def test_replicas_of_two_running_brokers_are_the_same(
    seed: int, sides: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = {path: SimulatedBroker(path, 2 * seed + n) for n, path in enumerate(sides)}
    for number, each in enumerate(brokers.values()):
        each.steps(200 + 300 * (number ^ seed % 2))
    read_beside(brokers, monkeypatch)

    outcome, rows = compared(tmp_path, *LASTING, *map(str, sides))

    assert complaints(outcome) == []
    assert {row["verdict"] for row in rows.values()} == {"same"}, rows
    assert outcome.exit_status == 0


@pytest.mark.parametrize("seed", seeds(0, count=60, in_main=6))
def test_a_copy_is_what_a_running_broker_had_before(
    seed: int, sides: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living, copy = sides[0], tmp_path / "copy"
    broker = SimulatedBroker(living, seed)
    broker.steps(400)
    shutil.copytree(living, copy, ignore=shutil.ignore_patterns("passing*", "moved*"))
    # The last batch may be half of one.
    run_kdump(["recover", "--no-undo", str(copy)], tmp_path)
    broker.steps(150)
    read_beside({living: broker}, monkeypatch)

    for records in ((), ("--records",)):
        outcome, rows = compared(tmp_path, *records, *LASTING[:3], str(living), str(copy))
        assert complaints(outcome) == []
        assert {row["verdict"] for row in rows.values()} <= {"same", "prefix"}, rows
        assert all(row["right_only_records"] == 0 for row in rows.values())


def write_replica(folder: Path, count: int, value: bytes = b"v") -> None:
    log = b"".join(batch([record(at, value=value)]) for at in range(count))
    write_partition(folder / "orders-0", {0: log})


def test_what_a_log_in_use_does_not_have_yet_is_not_judged(
    sides: list[Path], tmp_path: Path
) -> None:
    for path, count in zip(sides, (5, 8), strict=True):
        write_log_directory(path, clean=False)
        write_replica(path, count)
    outcome, rows = compared(tmp_path, *map(str, sides))
    assert outcome.exit_status == 0
    row = rows["orders"]
    assert (row["verdict"], row["common_end_offset"], row["judged_end_offset"]) == ("same", 5, 5)
    assert row["left_truncates_to"] is row["suggested_leader"] is None
    assert [line.count("not judged") for line in outcome.stderr.decode().splitlines()] == [1, 1]


def test_a_record_that_differs_is_found_beside_running_brokers(
    sides: list[Path], tmp_path: Path
) -> None:
    for path, value in zip(sides, (b"v", b"w"), strict=True):
        write_log_directory(path, clean=False)
        write_replica(path, 5, value)
    outcome, rows = compared(tmp_path, *map(str, sides))
    assert outcome.exit_status == 1
    assert (rows["orders"]["verdict"], rows["orders"]["corrupt_records"]) == ("diverged", 5)


@pytest.mark.parametrize("call", range(4))
def test_records_that_are_read_again_are_listed_once(
    call: int, sides: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, value in zip(sides, (b"v", b"w"), strict=True):
        write_log_directory(path, clean=False)
        write_replica(path, 5, value)
    require, calls = living_replica.LivingReplicaLog.require_unchanged, itertools.count()

    def require_or_fail(log: living_replica.LivingReplicaLog) -> None:
        if next(calls) == 2 * call:
            raise living_replica.ReplicaChangedError("it changes")
        require(log)

    monkeypatch.setattr(living_replica.LivingReplicaLog, "require_unchanged", require_or_fail)
    monkeypatch.setattr(diff, "wait", lambda _: None)
    outcome, _ = compared(tmp_path, "--records", *map(str, sides))
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    listed = [(row["side"], row["offset"]) for row in rows if row["type"] == "record"]
    assert sorted(listed) == [(on, at) for on in ("left", "right") for at in range(5)]


def test_a_list_of_records_that_cannot_be_finished_is_reported(
    sides: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, value in zip(sides, (b"v", b"w"), strict=True):
        write_log_directory(path, clean=False)
        write_replica(path, 5, value)
    calls = itertools.count()

    def fail_in_the_list(_log: living_replica.LivingReplicaLog) -> None:
        if next(calls) >= 2 * len(sides):
            raise living_replica.ReplicaChangedError("it changes")

    monkeypatch.setattr(living_replica.LivingReplicaLog, "require_unchanged", fail_in_the_list)
    monkeypatch.setattr(diff, "wait", lambda _: None)
    outcome, _ = compared(tmp_path, "--records", *map(str, sides))
    assert outcome.exit_status == ExitStatus.DIFFERENT | ExitStatus.OPERATIONAL_ERROR
    assert b"orders-0: it keeps changing" in outcome.stderr


def test_a_partition_that_one_running_broker_lacks_is_missing(
    sides: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in sides:
        write_log_directory(path, clean=False)
        write_partition(path / "both-0", {0: b""})
    write_replica(sides[0], 5)
    waits: list[int] = []
    monkeypatch.setattr(missing_replicas, "wait", waits.append)
    outcome, rows = compared(tmp_path, *map(str, sides))
    assert (outcome.exit_status, rows["orders"]["missing_on"]) == (1, "right")
    assert waits
    # Its broker creates it meanwhile.
    monkeypatch.setattr(missing_replicas, "wait", lambda _: (sides[1] / "orders-0").mkdir())
    outcome, rows = compared(tmp_path, *map(str, sides))
    assert (outcome.exit_status, set(rows)) == (0, {"both"})


class Follower:
    """A follower whose last records its leader does not have: it truncates them while it is read.

    Args:
        truncates_at: when so many things were read of it.
        grows: whether it has fetched what its leader has by then.

    Attributes:
        is_done: whether it has truncated them.
    """

    def __init__(self, log: Path, truncates_at: int, *, grows: bool) -> None:
        own = [batch([record(at, value=b"own" if at > 4 else b"value")]) for at in range(10)]
        write_partition(log.parent, {0: b"".join(own)})
        self._log, self._left, self._grows = log, truncates_at, grows
        self.is_done = False

    def step(self) -> None:
        self._left -= 1
        if not self._left:
            self.truncate()

    def truncate(self) -> None:
        if not self.is_done:
            self._log.write_bytes(written(12 if self._grows else 5))
        self.is_done = True


def written(count: int) -> bytes:
    return b"".join(batch([record(at)]) for at in range(count))


@pytest.mark.parametrize("grows", [False, True])
def test_a_follower_that_truncates_its_log_meanwhile_has_not_diverged(
    grows: bool, sides: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in sides:
        write_log_directory(path, clean=False)
    write_partition(sides[0] / "orders-0", {0: written(12)})
    log = sides[1] / "orders-0/00000000000000000000.log"
    for moment in range(1, 60, 3):
        shutil.rmtree(log.parent, ignore_errors=True)
        follower = Follower(log, moment, grows=grows)
        with monkeypatch.context() as patch:

            def parse(text: str, follower: Follower = follower) -> Location:
                location = places.parse_location(text)
                is_its = Path(location.path) == sides[1]
                return Location(SteppedDisk(follower.step), location.path) if is_its else location

            patch.setattr("kdump.cli.options.parameters.parse_location", parse)
            patch.setattr(diff, "wait", lambda _, follower=follower: follower.truncate())
            patch.setattr("kdump.engine.local.usable_cpus", lambda: 1)
            outcome, rows = compared(tmp_path, *map(str, sides))
        assert complaints(outcome) == []
        assert rows["orders"]["verdict"] == "same", (moment, rows)
