"""Commands that answer questions about disks, over damaged copies of real ones.

They neither crash nor wait, end with a documented status, and never show what no undamaged disk
has.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import all_objects, objects
from builders.samples import seeds
from builders.wrecked_disks import copy_disks, wreck

BROKERS: Final = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")
DISKS: Final = (*BROKERS, "c1001")
TOPICS: Final = ("__", "txn-", "div-", "lag-prefix", "users", "groups-in", "recreated", "share-in")
NOW: Final = ("--now", "2026-11-22")
STATUSES: Final = frozenset({0, 1, 4, 5, 8, 9, 12, 13, 16})

QUESTIONS: Final[dict[str, tuple[str, ...]]] = {
    "groups": ("groups", "--members", *NOW, *BROKERS),
    "txns": ("txns", *NOW, *BROKERS),
    "lookup": ("lookup", "--offset", "3", *BROKERS),
    "times": ("lookup", "--timestamp", "2026-11-21T20:00:00Z", *BROKERS),
    "grep": ("grep", "--in", "key,value", "-e", "clean", "-e", "1", *BROKERS),
    "diff": ("diff", "--records", *BROKERS),
    "show": ("metadata", "show", *DISKS),
    "history": ("metadata", "history", *DISKS),
    "copies": ("metadata", "diff", "b1-d1", "c1001"),
    "compact": ("compact", "--dry-run", "--explain", *NOW, *BROKERS),
}
ONLY_TEXT: Final[dict[str, tuple[str, ...]]] = {
    "reset": ("groups", "--output", "reset-csv", *BROKERS),
}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def disks(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("disks")
    return copy_disks(fixtures / "states" / "clean", DISKS, TOPICS, target)


@pytest.fixture(scope="module")
def truth(disks: Path) -> dict[str, Rows]:
    """What the undamaged disks say; of records all, because damage makes another replica answer."""
    questions = {**QUESTIONS, "grep": (*QUESTIONS["grep"], "--all-replicas")}
    return {
        name: objects(run_kdump([*words, "--output", "jsonl"], disks).stdout)
        for name, words in questions.items()
    }


@pytest.fixture(scope="module")
def commits(disks: Path) -> set[tuple[str, str, int, int]]:
    """Each offset that a group ever committed: group, topic, partition, offset."""
    found = set()
    words = ("dump-segment", "--print-data-log", "--offsets-decoder", "--output", "jsonl")
    for log in sorted(disks.glob("*/__consumer_offsets-*/*.log")):
        for row in objects(run_kdump([*words, str(log)], disks).stdout):
            if row.get("record_type") == "OffsetCommit" and row["decoded_value"] is not None:
                key = row["decoded_key"]
                where = key["group"], key["topic"], key["partition"]
                found.add((*where, row["decoded_value"]["offset"]))
    assert found
    return found


def answers(
    root: Path, questions: Iterable[tuple[str, Sequence[str]]]
) -> dict[str, tuple[Outcome, Rows]]:
    """What the disks say; each command also as text."""
    found = {}
    for name, words in questions:
        outcome = run_kdump([*words, "--output", "jsonl"], root)
        text = run_kdump(words, root)
        for each in (outcome, text):
            assert each.exit_status in STATUSES, (words, each)
            assert b"Traceback" not in each.stdout + each.stderr
        assert outcome.exit_status == text.exit_status, words
        if outcome.exit_status & 16:
            continue
        rows = objects(outcome.stdout)
        assert all_objects(outcome.stdout)[-1]["exit_status"] == outcome.exit_status
        if outcome.exit_status & 12:
            assert outcome.stderr, words
        found[name] = outcome, rows
    return found


def check_groups(rows: Rows, commits: set[tuple[str, str, int, int]]) -> None:
    for row in rows:
        if row["type"] == "offset" and row["committed_offset"] is not None:
            where = (row["group"], row["topic"], row["partition"])
            assert (*where, row["committed_offset"]) in commits, row


def check_untouched(rows: Rows, true_rows: Rows, touched: set[Path]) -> None:
    """A replica to which nothing was done is answered for as before."""

    def place(row: dict[str, Any]) -> Path:
        return Path(row["log_dir"]) / f"{row['topic']}-{row['partition']}"

    before = {place(row): row for row in true_rows}
    for row in rows:
        where = place(row)
        if where in before and touched.isdisjoint((where, where.parent)):
            # Others may have been more advanced.
            unchanged = {**row, "is_most_advanced": before[where]["is_most_advanced"]}
            assert unchanged == before[where]


def check_untouched_groups(rows: Rows, true_rows: Rows, touched: set[Path]) -> None:
    """Groups of a partition to which nothing was done anywhere have the offsets that they had."""
    if any(len(place.parts) == 1 for place in touched):
        return
    spoilt = {place.name for place in touched}
    partition_of = {
        row["group"]: row["coordinator_partition"] for row in true_rows if row["type"] == "group"
    }
    for group, number in partition_of.items():
        if f"__consumer_offsets-{number}" not in spoilt:
            assert committed(rows, group) == committed(true_rows, group), group


def committed(rows: Rows, group: str) -> set[tuple[str, int, int | None, str | None]]:
    return {
        (row["topic"], row["partition"], row["committed_offset"], row["metadata"])
        for row in rows
        if row["type"] == "offset" and row["group"] == group
    }


OF_BOTH: Final = (
    *("verdict", "common_end_offset", "common_epoch", "same_records", "corrupt_records"),
    *("left_end_offset", "right_end_offset", "left_truncates_to", "right_truncates_to"),
    *("left_only_records", "right_only_records", "left_lost_records", "right_lost_records"),
)


def check_untouched_pairs(rows: Rows, true_rows: Rows, touched: set[Path]) -> None:
    """Two replicas to which nothing was done compare as before."""

    def places(row: dict[str, Any]) -> tuple[Path, Path]:
        return Path(row["left_directory"] or "x/x"), Path(row["right_directory"] or "x/x")

    if any(place.name == "__cluster_metadata-0" for place in touched):
        return
    before = {places(row): row for row in true_rows if row["type"] == "partition"}
    for row in rows:
        if row["type"] != "partition" or places(row) not in before:
            continue
        around = {each for place in places(row) for each in (place, place.parent)}
        if touched.isdisjoint(around):
            old = before[places(row)]
            assert {name: row[name] for name in OF_BOTH} == {name: old[name] for name in OF_BOTH}


def check_grep(rows: Rows, true_rows: Rows) -> None:
    """Records that match are records that were there, wherever they lie now."""
    known = {(row["key"], row["value"]) for row in true_rows if row["type"] == "record"}
    for row in rows:
        if row["type"] == "record":
            assert (row["key"], row["value"]) in known


def check_metadata(rows: Rows, history: Rows) -> None:
    """No topic is made up."""
    known = {event["name"] for event in history if event.get("entity") == "topic"}
    for row in rows:
        for topic in row["topics"]:
            assert topic["name"] in known


def place_of(damaged: Path) -> Path:
    """The partition in which a file is damaged, or the log directory."""
    disk, name, *_ = damaged.parts
    is_root_file = len(damaged.parts) == 2 and not name[-1].isdigit()
    return Path(disk) if is_root_file else Path(disk) / name


def attack(
    seed: int,
    disks: Path,
    truth: dict[str, Rows],
    commits: set[tuple[str, str, int, int]],
    folder: Path,
) -> None:
    rng = random.Random(seed)
    root = folder / str(seed)
    shutil.copytree(disks, root)
    done = wreck(root, rng, rng.choice([1, 3, 10, 40]))
    try:
        found = answers(root, QUESTIONS.items())
        for words in ONLY_TEXT.values():
            assert run_kdump(words, root).exit_status in STATUSES
        if "groups" in found:
            check_groups(found["groups"][1], commits)
        if "grep" in found:
            check_grep(found["grep"][1], truth["grep"])
        if "show" in found:
            check_metadata(found["show"][1], truth["history"])
        touched = {place_of(path.relative_to(root)) for path in done}
        for name in ("lookup", "times"):
            if name in found:
                check_untouched(found[name][1], truth[name], touched)
        if "groups" in found:
            check_untouched_groups(found["groups"][1], truth["groups"], touched)
        if "diff" in found:
            check_untouched_pairs(found["diff"][1], truth["diff"], touched)
    except AssertionError as failure:
        what = "\n".join(f"{act} {path.relative_to(root)}" for path, act in done.items())
        raise AssertionError(f"seed {seed}:\n{what}\n{failure}") from failure
    shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(0, count=2, in_main=1))
def test_damaged_disks_are_read_without_a_crash_or_a_lie(
    seed: int,
    disks: Path,
    truth: dict[str, Rows],
    commits: set[tuple[str, str, int, int]],
    tmp_path: Path,
) -> None:
    attack(seed, disks, truth, commits, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 130, 10))
def test_many_damaged_disks_are_read_without_a_crash_or_a_lie(
    first: int,
    disks: Path,
    truth: dict[str, Rows],
    commits: set[tuple[str, str, int, int]],
    tmp_path: Path,
) -> None:
    for seed in range(first, first + 10):
        attack(seed, disks, truth, commits, tmp_path)
