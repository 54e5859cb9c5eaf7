"""Commands with ``--remote``: partitions together with their remote segments."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batches
from builders.in_process import Outcome, run_kdump
from builders.json_answers import all_objects, objects
from builders.json_schemas import problem_of_answer
from builders.log_directories import write_log_directory, write_partition
from builders.tiered_fixture import TieredFixture, records_by_partition
from kdump.errors import KdumpError


@pytest.fixture(scope="session")
def tiered(fixtures: Path) -> TieredFixture:
    """Return the disks of a real cluster with tiered storage."""
    return TieredFixture(fixtures / "tiered")


def kdump(*words: str | Path) -> Outcome:
    return run_kdump([str(each) for each in words], Path.cwd())


def listed(*words: str | Path) -> dict[str, dict[str, Any]]:
    outcome = kdump("ls", "--output", "jsonl", *words)
    assert (outcome.stderr, outcome.exit_status) == (b"", 0)
    return {row["directory"]: row for row in objects(outcome.stdout)}


def test_ls_gives_the_offsets_that_the_broker_gave(tiered: TieredFixture) -> None:
    rows = listed("--remote", tiered.remote, tiered.leader)
    for name, said in tiered.offsets.items():
        row = rows[name]
        assert row["log_start_offset"] == said["earliest"]
        assert row["log_end_offset"] == said["latest"]
        assert row["gaps"] == 0
        if name != "plain-0":
            assert row["local_log_start_offset"] == said["earliest-local"]


def test_ls_has_no_remote_columns_for_topics_that_are_not_tiered(tiered: TieredFixture) -> None:
    row = listed("--remote", tiered.remote, tiered.leader)["plain-0"]
    assert (row["local_log_start_offset"], row["remote_segments"]) == (None, None)


def test_ls_counts_remote_segments_that_are_not_local(tiered: TieredFixture) -> None:
    local = listed(tiered.leader)
    with_remote = listed("--remote", tiered.remote, tiered.leader)
    for name in tiered.offsets:
        remote = with_remote[name]["remote_segments"] or 0
        assert with_remote[name]["segments"] == local[name]["segments"] + remote
        size = with_remote[name]["remote_log_bytes"] or 0
        assert with_remote[name]["log_bytes"] == local[name]["log_bytes"] + size
    assert with_remote["kept-0"]["remote_segments"] == 0
    assert with_remote["moved-0"]["remote_segments"] > 0


def test_the_json_of_ls_follows_its_schema(tiered: TieredFixture) -> None:
    outcome = kdump("ls", "--output", "json", "--remote", tiered.remote, tiered.leader)
    assert problem_of_answer("ls", all_objects(outcome.stdout)) is None


def test_a_single_partition_can_be_listed(tiered: TieredFixture) -> None:
    path = tiered.leader / "orders-0"
    assert listed("--remote", tiered.remote, path)["orders-0"]["log_start_offset"] == 0


def test_a_directory_without_remote_segments_is_refused(
    tiered: TieredFixture, tmp_path: Path
) -> None:
    outcome = kdump("ls", "--remote", tmp_path, tiered.leader)
    assert outcome.exit_status == 16
    assert b"no remote segments" in outcome.stderr
    missing = kdump("ls", "--remote", tmp_path / "missing", tiered.leader)
    assert missing.exit_status == 8
    assert missing.stderr.count(b"\n") == 1


@pytest.mark.parametrize("word", ["earliest", "earliest-local", "latest-tiered", "latest"])
def test_lookup_answers_list_offsets_as_the_broker_did(tiered: TieredFixture, word: str) -> None:
    words = ("--timestamp", word, "--remote", tiered.remote, "--output", "jsonl", tiered.leader)
    outcome = kdump("lookup", *words)
    rows = {f"{row['topic']}-{row['partition']}": row for row in objects(outcome.stdout)}
    said = {name: each[word] for name, each in tiered.offsets.items() if name != "plain-0"}
    assert {name: rows[name]["offset"] for name in said} == said


def test_lookup_finds_a_record_in_a_remote_segment(tiered: TieredFixture) -> None:
    consumed = tiered.consumed("read_uncommitted")["moved-0"]
    offset, timestamp_ms, _, _ = consumed[70]
    assert offset < tiered.offsets["moved-0"]["earliest-local"]
    words = ("--partition", "moved-0", "--remote", tiered.remote, "--output", "jsonl")
    (found,) = objects(kdump("lookup", "--offset", str(offset), *words, tiered.leader).stdout)
    assert (found["offset"], found["timestamp_ms"]) == (offset, timestamp_ms)
    assert Path(found["file"]).parent.parent == tiered.remote / "kafka-tiered-storage"


def test_lookup_has_no_tiered_offset_without_remote(tiered: TieredFixture) -> None:
    words = ("--partition", "tx-0", "--output", "jsonl", "--timestamp", "latest-tiered")
    (found,) = objects(kdump("lookup", *words, tiered.leader).stdout)
    assert found["offset"] is None


def test_dump_segment_prints_a_remote_log_by_its_name_in_the_partition(
    tiered: TieredFixture,
) -> None:
    log = tiered.leader / "orders-0" / f"{0:020d}.log"
    assert not log.exists()
    options = ("--print-data-log", "--output", "jsonl", "--remote", tiered.remote)
    rows = objects(kdump("dump-segment", *options, log).stdout)
    values = [row["value"] for row in rows if row["type"] == "record"]
    consumed = tiered.consumed("read_uncommitted")["orders-0"]
    assert values == [value for _, _, _, value in consumed][: len(values)]
    assert values


def test_export_writes_remote_and_local_records_once(tiered: TieredFixture, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--format", "jsonl", "--columns", "offset", "--topic", "tx", "--out", out)
    outcome = kdump("export", *words, "--remote", tiered.remote, tiered.leader)
    assert outcome.exit_status == 0, outcome.stderr
    lines = "".join(each.read_text() for each in sorted(out.rglob("*.jsonl"))).splitlines()
    consumed = tiered.consumed("read_uncommitted")["tx-0"]
    assert [json.loads(line)["offset"] for line in lines] == [each[0] for each in consumed]


def test_an_export_does_not_go_on_from_another_remote_place(
    tiered: TieredFixture, tmp_path: Path
) -> None:
    words = ("export", "--topic", "tx", "--out", tmp_path / "out", tiered.leader)
    assert kdump(*words, "--remote", tiered.remote).exit_status == 0
    outcome = kdump(*words)
    assert outcome.exit_status == 16
    assert b"other directories" in outcome.stderr


@pytest.mark.parametrize("gone", [-2, -1])
def test_offsets_that_no_remote_segment_has_are_reported(
    tiered: TieredFixture, tmp_path: Path, gone: int
) -> None:
    remote = tmp_path / "remote"
    shutil.copytree(tiered.remote, remote)
    leader = tmp_path / "b2"
    shutil.copytree(tiered.leader, leader)
    for folder in leader.glob("__remote_log_metadata-*"):
        shutil.rmtree(folder)
    (folder,) = remote.glob("kafka-tiered-storage/cut-0-*")
    log = sorted(folder.glob("*.log"))[gone]
    for file in folder.glob(f"{log.stem}.*"):
        file.unlink()
    words = ("--topic", "cut", "--out", tmp_path / "out", "--remote", remote, leader)
    outcome = kdump("export", *words)
    assert outcome.exit_status == 4
    assert b"no remote segment has the offsets" in outcome.stderr
    with pytest.raises(KdumpError, match="no remote segment has the offsets"):
        records_by_partition(["cut"], leader, remote=str(remote))


def without_objects(remote: Path) -> None:
    """Lose all objects of a partition, as by a wrong prefix or a life-cycle rule."""
    (folder,) = remote.glob("kafka-tiered-storage/cut-0-*")
    shutil.rmtree(folder)


def of_another_topic(remote: Path) -> None:
    """Have the objects under another topic id."""
    (folder,) = remote.glob("kafka-tiered-storage/cut-0-*")
    folder.rename(folder.with_name("cut-0-AAAAAAAAAAAAAAAAAAAAAQ"))


@pytest.mark.parametrize(
    ("lose", "has_metadata"),
    [(without_objects, True), (of_another_topic, True), (of_another_topic, False)],
)
def test_a_partition_whose_remote_objects_are_all_missing_is_not_skipped(
    tiered: TieredFixture, tmp_path: Path, lose: Callable[[Path], None], has_metadata: bool
) -> None:
    remote, leader = tmp_path / "remote", tmp_path / "b2"
    shutil.copytree(tiered.remote, remote)
    shutil.copytree(tiered.leader, leader)
    lose(remote)
    if not has_metadata:
        for folder in leader.glob("__remote_log_metadata-*"):
            shutil.rmtree(folder)
    words = ("--topic", "cut", "--out", tmp_path / "out", "--remote", remote, leader)
    outcome = kdump("export", *words)
    assert outcome.exit_status != 0
    assert b"cut-0" in outcome.stderr
    with pytest.raises((KdumpError, OSError)):
        records_by_partition(["cut"], leader, remote=str(remote))
    outcome = kdump("copy", "--topic", "cut", "--remote", remote, leader, tmp_path / "copy")
    assert outcome.exit_status != 0
    assert b"no damage found" not in outcome.stdout
    outcome = kdump("verify", "--topic", "cut", "--remote", remote, leader)
    assert outcome.exit_status & 4


@pytest.mark.parametrize("command", ["export", "grep", "lookup", "copy"])
def test_a_tiered_topic_that_is_read_without_remote_is_said(
    tiered: TieredFixture, tmp_path: Path, command: str
) -> None:
    every: dict[str, list[str | Path]] = {
        "export": ["--out", tmp_path / "out", tiered.leader],
        "grep": ["-e", "nothing-like-it", tiered.leader],
        "lookup": ["--timestamp", "max", tiered.leader],
        "copy": [tiered.leader, tmp_path / "copy"],
    }
    words = every[command]
    said = b"with remote.storage.enable read without tiered storage (first: cut-0, offsets 33 to 74"
    without = kdump(command, "--topic", "cut", *words)
    assert said in without.stderr
    assert said not in kdump(command, "--topic", "plain", *words).stderr


def test_what_is_not_known_to_be_tiered_is_not_said_to_be(tmp_path: Path) -> None:
    """A broker writes the checkpoint of starts once a minute: after a crash it is old."""
    points = {("orders", 0): 1}
    log_dir = write_log_directory(tmp_path / "d1", clean=False, log_start_offsets=points)
    write_partition(log_dir / "orders-0", {3: batches(1, base_offset=3)[0]})
    said = kdump("grep", "value", log_dir).stderr
    assert b"1 partition that may have remote.storage.enable read without tiered storage" in said


def test_a_tiered_topic_that_is_queried_without_remote_is_said(
    tiered: TieredFixture, caplog: pytest.LogCaptureFixture
) -> None:
    records_by_partition(["cut"], tiered.leader)
    assert "--remote URI reads them, too" in caplog.text
    caplog.clear()
    records_by_partition(["cut"], tiered.leader, remote=str(tiered.remote))
    records_by_partition(["plain"], tiered.leader)
    assert not caplog.text
