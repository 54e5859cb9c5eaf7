"""Partitions without a local directory: the place of remote segments as a directory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.tiered_fixture import Record, TieredFixture, records_by_partition

LEVELS = ("read_uncommitted", "read_committed")
TIERED = ("cut", "kept", "moved", "orders", "tx")


def kdump(*words: str | Path) -> Outcome:
    return run_kdump([str(each) for each in words], Path.cwd())


def rows(*words: str | Path) -> list[dict[str, Any]]:
    outcome = kdump(words[0], "--output", "jsonl", *words[1:])
    assert (outcome.stderr, outcome.exit_status) == (b"", 0)
    return list(objects(outcome.stdout))


def tiered_records(tiered: TieredFixture, level: str) -> dict[str, list[Record]]:
    """What the consumer read of what had been copied; ``cut`` is from its first remote byte on."""
    found = {}
    for name, records in tiered.consumed(level).items():
        if name != "plain-0":
            end = tiered.offsets[name]["latest-tiered"]
            found[name] = [each for each in records if each[0] <= end]
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_records_are_those_of_the_consumer_as_far_as_they_were_copied(
    tiered: TieredFixture, level: str
) -> None:
    options = {"remote": str(tiered.remote), "kafka.isolation.level": level}
    found = records_by_partition(TIERED, tiered.remote, **options)
    wanted = tiered_records(tiered, level)
    start = wanted["cut-0"][0][0]
    found["cut-0"] = [each for each in found["cut-0"] if each[0] >= start]
    assert found == wanted


def test_ls_lists_partitions_with_their_topic_ids(tiered: TieredFixture) -> None:
    ids = {row["directory"]: row["topic_id"] for row in rows("ls", tiered.leader)}
    listed = {row["directory"]: row for row in rows("ls", "--remote", tiered.remote, tiered.remote)}
    assert set(listed) == set(tiered.offsets) - {"plain-0"}
    for name, row in listed.items():
        assert row["topic_id"] == ids[name]
        assert row["log_dir"] == str(tiered.remote)
        assert row["local_log_start_offset"] is None
        assert row["log_end_offset"] == tiered.offsets[name]["latest-tiered"] + 1


def test_partitions_with_a_local_directory_are_not_listed_twice(
    tiered_copy: TieredFixture,
) -> None:
    words = ("--remote", tiered_copy.remote, tiered_copy.leader)
    before = rows("ls", *words)
    assert rows("ls", *words, tiered_copy.remote) == before
    shutil.rmtree(tiered_copy.leader / "tx-0")
    after = {row["directory"]: row for row in rows("ls", *words, tiered_copy.remote)}
    assert set(after) == {row["directory"] for row in before}
    assert after["tx-0"]["log_dir"] == str(tiered_copy.remote)
    assert after["orders-0"]["log_dir"] == str(tiered_copy.leader)


def test_metadata_of_other_directories_decides_which_segments_are_complete(
    tiered_copy: TieredFixture,
) -> None:
    """By the files alone, a copy that was not finished counts as a segment."""
    shutil.rmtree(tiered_copy.leader / "tx-0")
    (folder,) = tiered_copy.remote.glob("kafka-tiered-storage/tx-0-*")
    last = max(folder.glob("*.log"))
    for file in folder.glob(f"{last.stem}.*"):
        # The same segment was copied twice; only one was finished, and it has more.
        unfinished = file.name.replace(last.stem[21:], "A" * 22)
        data = file.read_bytes()
        (folder / unfinished).write_bytes(data[: len(data) // 2])
    options = {"remote": str(tiered_copy.remote), "paths": json.dumps([str(tiered_copy.leader)])}
    found = records_by_partition(("tx",), tiered_copy.remote, **options)
    assert found["tx-0"] == tiered_records(tiered_copy, LEVELS[0])["tx-0"]


@pytest.mark.parametrize("words", [["info"], ["info", "--deep"]])
def test_info_adds_up_what_is_remote(tiered: TieredFixture, words: list[str]) -> None:
    remote = ("--remote", tiered.remote)
    (found,) = rows(*words, *remote, tiered.remote)
    listed = rows("ls", *remote, tiered.remote)
    assert found["partitions"] == len(listed)
    assert found["remote_segments"] == found["segments"] == sum(r["segments"] for r in listed)
    assert found["remote_log_bytes"] == sum(r["remote_log_bytes"] for r in listed)
    (one,) = rows(*words, *remote, tiered.leader / "orders-0")
    assert one["local_log_start_offset"] == tiered.offsets["orders-0"]["earliest-local"]
    assert 0 < one["remote_segments"] < one["segments"]
    assert "remote_segments" not in rows("info", tiered.leader)[0]


def test_one_partition_is_named_below_the_place(tiered: TieredFixture) -> None:
    remote = ("--remote", tiered.remote)
    (row,) = rows("ls", *remote, tiered.remote / "orders-1")
    assert (row["directory"], row["log_dir"]) == ("orders-1", str(tiered.remote))
    log = tiered.remote / "orders-1" / f"{0:020d}.log"
    assert objects(kdump("dump-segment", "--output", "jsonl", *remote, log).stdout)
    outcome = kdump("ls", *remote, tiered.remote / "nothing-0")
    assert outcome.exit_status == 8
    assert outcome.stderr.count(b"\n") == 1


def test_export_grep_and_lookup_read_them(tiered: TieredFixture, tmp_path: Path) -> None:
    remote = ("--remote", tiered.remote)
    wanted = tiered_records(tiered, LEVELS[0])["tx-0"]
    found = rows("grep", *remote, "--topic", "tx", ".", tiered.remote)
    assert [row["offset"] for row in found if row["type"] == "record"] == [
        offset for offset, *_ in wanted
    ]
    words = ("--format", "jsonl", "--columns", "offset", "--topic", "tx", "--out", tmp_path / "x")
    assert kdump("export", *remote, *words, tiered.remote).exit_status == 0
    lines = [each.read_text() for each in sorted((tmp_path / "x").rglob("*.jsonl"))]
    assert len("".join(lines).splitlines()) == len(wanted)
    offset, timestamp_ms, *_ = wanted[3]
    partition = ("--partition", "tx-0", "--offset", str(offset))
    (seen,) = rows("lookup", *remote, *partition, tiered.remote)
    assert seen["timestamp_ms"] == timestamp_ms


def test_grep_finds_remote_and_local_records_once(tiered: TieredFixture) -> None:
    words = ("--remote", tiered.remote, "--topic", "orders", ".", tiered.leader)
    found = [row for row in rows("grep", *words) if row["type"] == "record"]
    wanted = {name: tiered.consumed(LEVELS[0])[name] for name in ("orders-0", "orders-1")}
    for name, records in wanted.items():
        number = int(name[-1])
        assert [r["offset"] for r in found if r["partition"] == number] == [r[0] for r in records]


def verified(*words: str | Path) -> tuple[int, list[dict[str, Any]]]:
    outcome = kdump("verify", "--output", "jsonl", *words)
    return outcome.exit_status, list(objects(outcome.stdout))


def test_verify_checks_remote_segments_alone(tiered: TieredFixture) -> None:
    status, found = verified("--remote", tiered.remote, tiered.remote)
    assert status == 0
    verdicts = [row for row in found if row["type"] == "partition"]
    assert len(verdicts) == len(tiered.offsets) - 1
    assert {row["verdict_kind"] for row in verdicts} == {"remote"}
    assert verified("--remote", tiered.remote, "--topic", "tx", tiered.remote)[0] == 0
    assert verified("--remote", tiered.remote, "--topic", "nothing", tiered.remote)[0] == 16


def test_verify_finds_offsets_between_remote_segments_that_none_has(
    tiered_copy: TieredFixture,
) -> None:
    (folder,) = tiered_copy.remote.glob("kafka-tiered-storage/tx-0-*")
    gone = sorted(folder.glob("*.log"))[2]
    for file in folder.glob(f"{gone.stem}.*"):
        file.unlink()
    status, found = verified("--remote", tiered_copy.remote, tiered_copy.remote)
    assert status == 4
    assert "remote-offsets-missing" in {row.get("code") for row in found}


def test_of_topics_of_one_name_the_last_is_read(tiered_copy: TieredFixture) -> None:
    (folder,) = tiered_copy.remote.glob("kafka-tiered-storage/tx-0-*")
    older = folder.with_name(f"tx-0-{'A' * 21}w")
    older.mkdir()
    for file in list(folder.glob(f"{0:020d}-*")):
        shutil.copy(file, older)
    for file in older.iterdir():
        os.utime(file, (1, 1))
    found = records_by_partition(("tx",), tiered_copy.remote, remote=str(tiered_copy.remote))
    assert found["tx-0"] == tiered_records(tiered_copy, LEVELS[0])["tx-0"]


@pytest.mark.slow
@pytest.mark.parametrize("directory", ["b2", "remote"])
def test_a_query_reads_remote_segments(tiered: TieredFixture, directory: str) -> None:
    statement = (
        "SELECT topic, partition, count(*) AS records, min(offset) AS first,"
        " count(DISTINCT segment) AS segments FROM records WHERE topic = 'tx' GROUP BY ALL"
    )
    given = ("--remote", tiered.remote, statement, tiered.folder / directory)
    (found,) = (row["row"] for row in rows("query", *given) if row["type"] == "row")
    wanted = tiered.consumed(LEVELS[0])["tx-0"]
    if directory == "remote":
        wanted = tiered_records(tiered, LEVELS[0])["tx-0"]
    assert len(wanted) > 50
    assert (found["records"], found["first"]) == (len(wanted), wanted[0][0])
    assert found["segments"] > 1


def test_a_partition_that_came_later_is_listed_by_the_same_process(
    tiered_copy: TieredFixture, tmp_path: Path
) -> None:
    words = ["ls", "--output", "jsonl", "--remote", str(tiered_copy.remote)]
    words.append(str(tiered_copy.remote))
    before = len(run_kdump(words, tmp_path).stdout.splitlines())
    (folder,) = tiered_copy.remote.glob("kafka-tiered-storage/cut-0-*")
    shutil.copytree(folder, folder.with_name(folder.name.replace("cut-0", "cut-1")))
    assert len(run_kdump(words, tmp_path).stdout.splitlines()) == before + 1
