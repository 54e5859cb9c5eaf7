"""A rewind of some log directories, and then of all: they reach the same end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.group_records import offset_key, offset_value
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import seen_by_broker
from builders.log_directories import META_PROPERTIES, write_log_directory, write_partition
from builders.metadata_log import partition_record, topic_record, write_metadata_log
from builders.recovery import of_producer
from builders.rewindable_clusters import OFFSETS
from builders.transaction_states import key_of, value_of
from kdump.formats import names
from kdump.formats.names import TopicPartition

ORDERS: Final = TopicPartition("orders", 0)
STATES: Final = TopicPartition("__transaction_state", 0)


def rewind(*words: str | Path, status: int = 1) -> list[dict[str, Any]]:
    outcome = run_kdump(["rewind", *map(str, words), "--output=jsonl"], Path.cwd())
    assert outcome.exit_status == status, (outcome.stderr, outcome.stdout[-2000:])
    return objects(outcome.stdout)


def offsets_file(path: Path, *lines: tuple[str, int, int]) -> Path:
    partitions = [{"topic": a, "partition": b, "offset": c} for a, b, c in lines]
    path.write_text(json.dumps({"partitions": partitions, "version": 1}))
    return path


def broker(
    root: Path,
    node: int,
    logs: dict[TopicPartition, bytes],
    *,
    commits: int = 3,
    clean: bool = True,
) -> Path:
    """A broker's log directory, with groups that have read three records."""
    groups = [b"a", b"b", b"c"][:commits]
    data = [
        batch([record(at, offset_key(group), offset_value(3), timestamp=BASE_TIMESTAMP_MS + at)])
        for at, group in enumerate(groups)
    ]
    every = {OFFSETS: b"".join(data), **logs}
    path = write_log_directory(root / f"b{node}", clean=clean)
    properties = META_PROPERTIES.replace(b"node.id=7", b"node.id=%d" % node)
    properties = properties.replace(b"V1dW8O41RR6", b"V1dW8O41RR%d" % node)
    (path / names.META_PROPERTIES).write_bytes(properties)
    for key, log in every.items():
        write_partition(path / str(key), {0: log})
    return path


def three_records() -> bytes:
    return b"".join(batch([record(at, timestamp=BASE_TIMESTAMP_MS + 10 + at)]) for at in range(3))


def decided_transaction() -> dict[TopicPartition, bytes]:
    """A transaction that its coordinator decided to commit, without its marker."""
    state = value_of(producer_id=7, state=2, partitions=[(ORDERS.topic, [1])])
    return {
        TopicPartition("orders", 1): of_producer(0, transactional=True),
        STATES: batch([record(0, key_of("t"), state)]),
    }


def with_metadata(log_dir: Path) -> None:
    values = [
        topic_record("orders", 1),
        *(partition_record(1, number, [1, 2], [1, 2]) for number in range(2)),
        topic_record(OFFSETS.topic, 2),
        partition_record(2, 0, [1, 2], [1, 2]),
        topic_record(STATES.topic, 3),
        partition_record(3, 0, [1, 2], [1, 2]),
    ]
    write_metadata_log(log_dir, values)


def end_of_all(log_dirs: list[Path]) -> list[Any]:
    return [seen_by_broker(each) for each in log_dirs]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    return offsets_file(tmp_path / "offsets.json", ("orders", 0, 1))


def copies(log_dirs: list[Path], to: Path) -> list[Path]:
    return [shutil.copytree(each, to / each.name) for each in log_dirs]


def test_offsets_that_one_broker_lowered_before_are_lowered_on_all(
    tmp_path: Path, given: Path
) -> None:
    log_dirs = [broker(tmp_path / "a", node, {ORDERS: three_records()}) for node in (1, 2, 3)]
    at_once = copies(log_dirs, tmp_path / "at-once")
    rewind("--offsets", given, *at_once)
    rewind("--offsets", given, log_dirs[0])
    found = rewind("--offsets", given, *log_dirs)
    assert end_of_all(log_dirs) == end_of_all(at_once)
    assert {each["group"] for each in found if each["type"] == "offset"} == {"a", "b", "c"}
    (summary,) = (each for each in found if each["type"] == "summary")
    assert (summary["cut_partitions"], summary["removed_records"]) == (1, 2)
    rewind("--offsets", given, *log_dirs, status=0)


def test_the_run_of_one_broker_can_be_undone_and_done_with_all(tmp_path: Path, given: Path) -> None:
    log_dirs = [broker(tmp_path / "a", node, {ORDERS: three_records()}) for node in (1, 2)]
    at_once = copies(log_dirs, tmp_path / "at-once")
    rewind("--offsets", given, *at_once)
    rewind("--offsets", given, log_dirs[0])
    assert run_kdump(["undo", str(log_dirs[0])], Path.cwd()).exit_status == 0
    run_kdump(["undo", "--discard", str(log_dirs[0])], Path.cwd())
    rewind("--offsets", given, *log_dirs)
    assert end_of_all(log_dirs) == end_of_all(at_once)


@pytest.mark.parametrize("done", [[0], [1], [0, 1]])
def test_transactions_that_were_ended_on_some_brokers_are_ended_on_all(
    tmp_path: Path, given: Path, done: list[int]
) -> None:
    logs = {ORDERS: three_records(), **decided_transaction()}
    log_dirs = [broker(tmp_path / "a", node, logs, clean=False) for node in (1, 2, 3)]
    with_metadata(log_dirs[2])
    at_once = copies(log_dirs, tmp_path / "at-once")
    rewind("--offsets", given, *at_once)
    for number in done:  # as a run that was stopped leaves it
        shutil.rmtree(log_dirs[number])
        shutil.copytree(at_once[number], log_dirs[number])
    rewind("--offsets", given, *log_dirs)
    assert end_of_all(log_dirs) == end_of_all(at_once)


def test_a_replica_that_was_behind_before_any_run_stays_so(tmp_path: Path, given: Path) -> None:
    logs = {ORDERS: three_records()}
    log_dirs = [broker(tmp_path / "a", 1, logs), broker(tmp_path / "a", 2, logs)]
    behind = broker(tmp_path / "a", 3, logs, commits=2)
    rewind("--offsets", given, log_dirs[0])
    before = (behind / str(OFFSETS) / "00000000000000000000.log").read_bytes()
    rewind("--offsets", given, *log_dirs, behind)
    logs_of = [sorted((each / str(OFFSETS)).glob("*.log")) for each in (*log_dirs, behind)]
    assert [len(each) for each in logs_of] == [2, 2, 1]
    assert logs_of[2][0].read_bytes() == before


def test_offsets_are_lowered_on_all_where_the_log_is_cut_already(tmp_path: Path) -> None:
    """No log is later than the time any more."""
    one = broker(tmp_path / "a", 1, {ORDERS: three_records()})
    other = broker(tmp_path / "a", 2, {})
    at_once = copies([one, other], tmp_path / "at-once")
    to = f"--to={BASE_TIMESTAMP_MS + 10}"
    rewind(to, *at_once)
    rewind(to, one)
    rewind(to, one, other)
    assert end_of_all([one, other]) == end_of_all(at_once)


def test_offsets_that_this_run_would_not_lower_again_are_not_lost(
    tmp_path: Path, given: Path
) -> None:
    log_dirs = [broker(tmp_path / "a", node, {}) for node in (1, 2)]
    rewind("--offsets", given, log_dirs[0])
    before = end_of_all(log_dirs)
    other = offsets_file(tmp_path / "other.json", ("orders", 0, 2))
    outcome = run_kdump(["rewind", "--offsets", str(other), *map(str, log_dirs)], Path.cwd())
    assert outcome.exit_status == 4
    assert f"{log_dirs[0] / str(OFFSETS)}: an earlier kdump rewind appended" in (
        outcome.stderr.decode()
    )
    assert end_of_all(log_dirs) == before


@pytest.mark.parametrize(("in_sync", "status"), [([1, 2], 5), ([1], 1)])
def test_a_replica_that_may_lead_without_what_is_appended_is_named(
    tmp_path: Path, given: Path, in_sync: list[int], status: int
) -> None:
    logs = {ORDERS: three_records()}
    log_dir = broker(tmp_path / "a", 1, logs)
    behind = broker(tmp_path / "a", 2, logs, commits=2)
    values = [
        topic_record("orders", 1),
        partition_record(1, 0, [1, 2], [1, 2]),
        topic_record(OFFSETS.topic, 2),
        partition_record(2, 0, [1, 2], in_sync),
    ]
    write_metadata_log(log_dir, values)
    found = rewind("--offsets", given, log_dir, behind, status=status)
    named = [
        (each["log_dir"], each["topic"])
        for each in found
        if each["type"] == "partition" and each["is_behind"]
    ]
    assert named == ([(str(behind), OFFSETS.topic)] if status == 5 else [])
