"""What ``kdump rewind`` does to what share groups have delivered."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import seen_by_broker
from builders.log_directories import (
    META_PROPERTIES,
    begin_epochs_at,
    write_log_directory,
    write_partition,
)
from builders.rewindable_clusters import OFFSETS
from builders.samples import seeds
from builders.share_records import initialized, snapshot, update
from kdump.formats import names
from kdump.formats.names import TopicPartition
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.repair.rewind.share_offsets import read_share_states
from kdump.storage.local_disk import local
from kdump.target.virtual_directory import VirtualDirectory

ORDERS: Final = TopicPartition("orders", 0)
STATES: Final = TopicPartition("__share_group_state", 0)
IDS: Final = {"orders": 1, STATES.topic: 2, OFFSETS.topic: 3}
ORDERS_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
TO: Final = f"--to={BASE_TIMESTAMP_MS + 100}"
LATER: Final = 200
Row = tuple[int, tuple[bytes, bytes]]
"""How long after the base a record is written; its key and value."""


def rewind(*words: str | Path, status: int = 1) -> list[dict[str, Any]]:
    outcome = run_kdump(["rewind", *map(str, words), "--output=jsonl"], Path.cwd())
    assert outcome.exit_status == status, (outcome.stderr, outcome.stdout[-2000:])
    return objects(outcome.stdout)


def written(found: list[dict[str, Any]]) -> list[tuple[str, str, int | None, int | None]]:
    return [
        (each["group"], each["outcome"], each["start_offset"], each["new_start_offset"])
        for each in found
        if each["type"] == "share_offset"
    ]


def shares(*log_dirs: Path) -> dict[str, tuple[int, int]]:
    """Start offset and count by group, as ``kdump groups`` has them."""
    outcome = run_kdump(["groups", *map(str, log_dirs), "--output=jsonl"], Path.cwd())
    return {
        each["group"]: (each["start_offset"], each["delivery_complete_count"])
        for each in objects(outcome.stdout)
        if each["type"] == "share_offset"
    }


def log_of(rows: list[Row]) -> bytes:
    return b"".join(
        batch([record(at, *pair, timestamp=BASE_TIMESTAMP_MS + after)])
        for at, (after, pair) in enumerate(rows)
    )


def broker(
    root: Path,
    node: int,
    states: list[Row],
    *,
    groups: list[Row] | None = None,
    start: int = 0,
    orders: tuple[int, ...] = (0, 1, 2, 3, 4, 5),
) -> Path:
    """A broker with records of ``orders`` at some times after the base, and of share groups."""
    path = write_log_directory(root / f"b{node}", log_start_offsets={STATES: start})
    properties = META_PROPERTIES.replace(b"node.id=7", b"node.id=%d" % node)
    properties = properties.replace(b"V1dW8O41RR6", b"V1dW8O41RR%d" % node)
    (path / names.META_PROPERTIES).write_bytes(properties)
    logs = {
        ORDERS: log_of([(after, (b"key", b"value")) for after in orders]),
        STATES: log_of(states),
        OFFSETS: log_of(groups or []),
    }
    for key, log in logs.items():
        topic_id = UUID(int=IDS[key.topic])
        metadata = encode_partition_metadata(PartitionMetadata(0, topic_id))
        write_partition(path / str(key), {0: log}, others={names.PARTITION_METADATA: metadata})
    begin_epochs_at(path / str(STATES), start)
    return path


def beyond() -> list[Row]:
    """Two groups that have read five records, and one that has read two, at the moment."""
    return [
        (10, snapshot("all", ORDERS_ID, 5)),
        (11, snapshot("gaps", ORDERS_ID, 1, batches=[(2, 3, 2, 1), (5, 5, 2, 1)], done=3)),
        (12, snapshot("few", ORDERS_ID, 0)),
        (13, update("few", ORDERS_ID, 2)),
    ]


CUT: Final = (0, 1, 2, LATER, LATER, LATER)
"""Three records of ``orders`` are later."""


def pruned() -> list[Row]:
    """A group that had read two records at the moment, and reads on until that is deleted."""
    return [
        (10, snapshot("moved", ORDERS_ID, 0)),
        (20, update("moved", ORDERS_ID, 1, batches=[(2, 2, 2, 1)], done=1)),
        (LATER, update("moved", ORDERS_ID, 4)),
        (LATER, snapshot("moved", ORDERS_ID, 5, epoch=1)),
        (LATER, update("moved", ORDERS_ID, 6, epoch=1)),
    ]


def copies(log_dirs: list[Path], to: Path) -> list[Path]:
    return [shutil.copytree(each, to / each.name) for each in log_dirs]


def end_of_all(log_dirs: list[Path]) -> list[Any]:
    return [seen_by_broker(each) for each in log_dirs]


def test_what_is_delivered_beyond_a_cut_log_is_to_be_delivered_again(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, 1, beyond(), orders=CUT)
    found = rewind(TO, log_dir)
    assert written(found) == [("all", "lowered", 5, 3), ("gaps", "lowered", 1, 1)]
    assert shares(log_dir) == {"all": (3, 0), "gaps": (1, 1), "few": (2, 0)}
    rewind(TO, log_dir, status=0)


def test_a_group_that_is_not_beyond_its_log_stays_as_it_is(tmp_path: Path) -> None:
    states = [
        (10, snapshot("few", ORDERS_ID, 3)),
        (11, snapshot("other", "BBBBBBBBBBBBBBBBBBBBBQ", 9)),
    ]
    log_dir = broker(tmp_path, 1, states, orders=CUT)
    assert written(rewind(TO, log_dir)) == []
    assert shares(log_dir) == {"few": (3, 0), "other": (9, 0)}


@pytest.mark.parametrize("states", [beyond(), pruned()], ids=["beyond", "pruned"])
@pytest.mark.parametrize("done", [[0], [1], [0, 1]])
def test_a_run_that_was_stopped_reaches_the_same_end(
    tmp_path: Path, states: list[Row], done: list[int]
) -> None:
    start = 3 if len(states) == 5 else 0
    log_dirs = [broker(tmp_path / "a", node, states, orders=CUT, start=start) for node in (1, 2, 3)]
    at_once = copies(log_dirs, tmp_path / "at-once")
    rewind(TO, *at_once)
    for number in done:
        shutil.rmtree(log_dirs[number])
        shutil.copytree(at_once[number], log_dirs[number])
    rewind(TO, *log_dirs)
    assert end_of_all(log_dirs) == end_of_all(at_once)


def test_what_one_group_has_delivered_says_little_of_where_a_log_ended(tmp_path: Path) -> None:
    states = [
        (10, snapshot("gaps", ORDERS_ID, 0, batches=[(0, 0, 2, 1), (4, 5, 2, 1)], done=3)),
        (11, snapshot("within", ORDERS_ID, 0, batches=[(0, 2, 2, 1)], done=3)),
    ]
    log_dirs = [broker(tmp_path / "a", node, states, orders=CUT) for node in (1, 2, 3)]
    shutil.rmtree(log_dirs[2] / "orders-0")
    at_once = copies(log_dirs, tmp_path / "at-once")
    rewind(TO, *at_once)
    for number in (0, 1):
        shutil.rmtree(log_dirs[number])
        shutil.copytree(at_once[number], log_dirs[number])
    rewind(TO, *log_dirs)
    assert shares(*log_dirs) == shares(*at_once)
    assert end_of_all(log_dirs) == end_of_all(at_once)


def test_records_that_were_deleted_since_count_at_the_moment(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, 1, pruned(), start=3)
    found = rewind(TO, log_dir)
    assert written(found) == [("moved", "restored", 1, 1)]
    assert shares(log_dir) == {"moved": (1, 1)}
    rewind(TO, log_dir, status=0)


def test_a_state_that_is_not_on_disk_any_more_is_named(tmp_path: Path) -> None:
    rows = [(LATER, snapshot("moved", ORDERS_ID, 5, epoch=7))]
    groups = [(10, initialized("moved", ORDERS_ID, "orders", 0))]
    log_dir = broker(tmp_path, 1, rows, groups=groups)
    found = rewind(TO, log_dir, status=5)
    assert written(found) == [("moved", "lost", None, None)]


def test_a_state_that_is_there_is_not_named(tmp_path: Path) -> None:
    groups = [(10, initialized("all", ORDERS_ID, "orders", 0))]
    log_dir = broker(tmp_path, 1, beyond(), groups=groups, orders=CUT)
    rewind(TO, log_dir)


def test_one_broker_writes_only_what_all_others_write(tmp_path: Path) -> None:
    """Others may have deleted other segments: nothing is taken from deleted records."""
    groups = [(10, initialized("moved", ORDERS_ID, "orders", 0))]
    log_dir = broker(tmp_path, 1, pruned(), start=3, groups=groups)
    given = tmp_path / "offsets.json"
    lines = [{"topic": STATES.topic, "partition": 0, "offset": 2}]
    given.write_text(json.dumps({"partitions": lines, "version": 1}))
    assert written(rewind("--offsets", given, log_dir)) == []
    assert shares(log_dir) == {}


def test_offsets_of_a_preview_cut_where_the_moment_did(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, 1, pruned(), start=3)
    given = tmp_path / "offsets.json"
    rewind(TO, log_dir, "--dry-run", "--out", given)
    lines = {each["topic"]: each["offset"] for each in json.loads(given.read_text())["partitions"]}
    assert lines[STATES.topic] == 2


class RandomShares:
    """Share groups that read ``orders`` for a while, and the moment of a cut.

    Attributes:
        rows: the log of their states; each is ten milliseconds after the one before.
        start: of the log: what later snapshots replace may be deleted.
        moment: after the base.
        orders: when the records that they read were written.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._epochs: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        latest: dict[str, int] = {}
        self.rows: list[Row] = []
        for at in range(rng.randint(3, 25)):
            group = f"g{rng.randrange(3)}"
            is_snapshot = group not in latest or rng.random() < 0.35
            if is_snapshot:
                latest[group] = at
            self.rows.append((at * 10, self._change(group, is_snapshot=is_snapshot)))
        self.start = rng.choice([0, min(latest.values())])
        self.moment = rng.randint(0, len(self.rows) * 10)
        times = [rng.randint(0, 2 * self.moment + 1) for _ in range(6)]
        self.orders = tuple(sorted(times))

    def _change(self, group: str, *, is_snapshot: bool) -> tuple[bytes, bytes]:
        rng = self._rng
        start = min(6, self._starts.get(group, 0) + rng.randint(0, 2))
        self._starts[group] = start
        batches = []
        if start < 5:
            first = rng.randint(start, 5)
            state, count = rng.choice([0, 2, 4]), rng.randint(1, 3)
            batches.append((first, rng.randint(first, 5), state, count))
        done = sum(last - first + 1 for first, last, state, _ in batches if state)
        epoch = self._epochs.get(group, -1) + is_snapshot
        self._epochs[group] = epoch
        write = snapshot if is_snapshot else update
        return write(group, ORDERS_ID, start, batches=batches, epoch=epoch, done=done)


def offsets_seen(partition: Path, start: int, end: int | None) -> dict[str, list[tuple[int, int]]]:
    """By group, which offsets up to an end are not available any more, or were delivered before."""
    states = read_share_states(VirtualDirectory(local(str(partition))), start, None).kept
    found = {}
    for (group, _, _), state in states.items():
        last = 100 if end is None else end
        passed = [(offset, -1) for offset in range(min(state.start_offset, last))]
        in_batches = [
            (offset, each.state * 10 + each.count)
            for each in state.batches
            for offset in range(each.first, min(each.last + 1, last))
        ]
        found[group] = passed + in_batches
    return found


@pytest.mark.parametrize("seed", seeds(0, count=60, in_main=5))
def test_share_groups_are_as_at_any_moment(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made = RandomShares(rng)
    log_dirs = [
        broker(tmp_path / "a", node, made.rows, start=made.start, orders=made.orders)
        for node in range(1, rng.randint(2, 4))
    ]
    before = copies(log_dirs, tmp_path / "before")
    at_moment = [each for each in made.rows if each[0] <= made.moment]
    then = write_partition(tmp_path / "then" / str(STATES), {0: log_of(at_moment)})
    end = next((at for at, after in enumerate(made.orders) if after > made.moment), None)
    to = f"--to={BASE_TIMESTAMP_MS + made.moment}"
    outcome = run_kdump(["rewind", to, *map(str, log_dirs)], tmp_path)
    assert outcome.exit_status in (0, 1), outcome.stderr
    for each in log_dirs:
        assert offsets_seen(each / str(STATES), made.start, None) == offsets_seen(then, 0, end)
    rewind(to, *log_dirs, status=0)
    for old, new in zip(before, log_dirs, strict=True):
        if rng.random() < 0.5:  # as a run that was stopped leaves it
            shutil.rmtree(old)
            shutil.copytree(new, old)
    assert run_kdump(["rewind", to, *map(str, before)], tmp_path).exit_status in (0, 1)
    assert end_of_all(before) == end_of_all(log_dirs)
