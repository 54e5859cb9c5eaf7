"""``kdump quorum``: controllers' disks by rank, and new voters for what is left of a quorum."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from builders.damaged_replicas import batches_of
from builders.freeing import of_type, run
from builders.in_process import Outcome, run_on_terminal
from builders.json_answers import all_objects, objects
from builders.json_schemas import problems_of_objects
from builders.lock_holder import held_elsewhere
from builders.metadata_log import feature_record, partition_record, topic_record, write_metadata_log
from builders.trees import contents_of
from kdump.apply import disk_space
from kdump.formats.names import CLUSTER_METADATA_TOPIC

METADATA: Final = f"{CLUSTER_METADATA_TOPIC}-0"
NOW: Final = "--now=2026-11-22T10:00:00Z"
OTHER: Final = "3uBS1g4vRcqYYZx6dtYV6Q"
SNAPSHOT: Final = "00000000000001001883-0000001002.checkpoint"


@pytest.fixture
def controllers(fixtures: Path, tmp_path: Path) -> Path:
    """Copy the disks of three real controllers; the first lacks the last record of the others."""
    for node in ("c1001", "c1002", "c1003"):
        shutil.copytree(fixtures / "states" / "clean" / node, tmp_path / node)
    return tmp_path


def rows(*args: str | Path) -> list[dict[str, Any]]:
    outcome = run("quorum", *args, "--output", "jsonl")
    assert outcome.exit_status == 0, outcome.stderr
    assert not list(problems_of_objects("quorum", all_objects(outcome.stdout)))
    return objects(outcome.stdout)


def reset(path: Path, *voters: str, options: Sequence[str | Path] = ()) -> Outcome:
    named = [f"--voter={each}" for each in voters]
    return run("quorum", "reset", NOW, *named, *options, path)


def image_of(path: Path) -> dict[str, Any]:
    (metadata,) = objects(run("metadata", "show", "--output", "jsonl", path).stdout)
    return metadata


def flip_a_bit_of_the_log(home: Path, at: int = 50_000) -> None:
    log = home / METADATA / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[at] ^= 1
    log.write_bytes(content)


# --- show


def test_disks_are_ranked_by_epoch_and_then_by_end(controllers: Path) -> None:
    found = rows("show", *sorted(controllers.iterdir()))
    assert [
        [each["rank"], each["node_id"], each["epoch"], each["end_offset"], each["verdict"]]
        for each in of_type(found, "copy")
    ] == [[1, 1002, 2, 1883, "best"], [2, 1003, 2, 1883, "same"], [3, 1001, 1, 1882, "prefix"]]
    assert [each["quorum_voted_id"] for each in of_type(found, "copy")] == [None, 1002, 1002]
    (summary,) = of_type(found, "summary")
    assert summary["has_majority"]
    assert summary["committed_end_offset"] == 1883


@pytest.mark.parametrize("command", [("quorum", "show"), ("metadata", "show")])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("00000000000000001883-0000000002", "no node starts with it"),
        ("00000000000000000010-0000000003", "a starting node deletes the log for it"),
        ("00000000000000009999-0000000000", None),
    ],
)
def test_a_directory_that_a_node_takes_for_the_newest_snapshot_is_named(
    controllers: Path, command: tuple[str, str], name: str, what: str | None
) -> None:
    """Kafka asks for the epoch first, then for the offset, and not for the kind of the entry."""
    directory = controllers / "c1002" / METADATA / f"{name}.checkpoint"
    directory.mkdir()
    outcome = run(*command, controllers / "c1002")
    if what is None:
        assert (outcome.exit_status, outcome.stderr) == (0, b"")
    else:
        assert outcome.exit_status == 4
        assert f"{directory}: a directory has the name of the newest snapshot: {what}" in (
            outcome.stderr.decode()
        )


def test_a_reset_beside_a_directory_that_a_node_takes_for_a_snapshot_is_refused(
    controllers: Path,
) -> None:
    directory = controllers / "c1002" / METADATA / "00000000000000000010-0000000009.checkpoint"
    directory.mkdir()
    before = contents_of(controllers / "c1002")
    outcome = reset(controllers / "c1002", "1002@host:9093")
    assert outcome.exit_status & 8
    assert f"{directory}: a directory has the name of" in outcome.stderr.decode()
    assert contents_of(controllers / "c1002") == before


def test_a_lost_majority_is_said_with_the_command_to_run(controllers: Path) -> None:
    found = rows("show", controllers / "c1003")
    assert [each["log_dir"] for each in of_type(found, "voter")] == [
        None,
        None,
        str(controllers / "c1003"),
    ]
    (summary,) = of_type(found, "summary")
    assert [summary["shown_voters"], summary["has_majority"]] == [1, False]
    assert [summary["committed_end_offset"], summary["uncommitted_records"]] == [1532, 351]
    said = run("quorum", "show", controllers / "c1003").stdout.decode()
    assert f"quorum reset --dry-run {controllers / 'c1003'} --voter 1003@HOST:PORT" in said
    assert "no disk has the high watermark" in said


def test_on_a_narrow_terminal_every_line_fits(controllers: Path) -> None:
    words = run_on_terminal(["quorum", "show", "c1001", "c1002"], controllers, 60)
    assert max(map(len, words)) <= 60


# --- reset


def test_the_metadata_is_kept_under_new_voters(controllers: Path) -> None:
    home = controllers / "c1002"
    before = image_of(home)
    done = reset(
        home, "1002@[::1]:9", f"5@h:1:{OTHER}", options=["--show-also", controllers / "c1001"]
    )
    assert done.exit_status == 0, done.stderr

    assert sorted(path.name for path in (home / METADATA).iterdir()) == [
        SNAPSHOT,
        "partition.metadata",
    ]
    after = image_of(home)
    assert [after["next_offset"], after["epoch"]] == [1_001_883, 1002]
    assert [[each["id"], each["endpoints"]] for each in after["voters"]] == [
        [5, ["CONTROLLER://h:1"]],
        [1002, ["CONTROLLER://::1:9"]],
    ]
    assert [each["id"] for each in after["controllers"]] == [1002]
    # Records may be lost that had higher numbers.
    assert after["next_producer_id"] == before["next_producer_id"] + 1_000_000
    for topic in before["topics"]:
        for partition in topic["partitions"]:
            partition["leader_epoch"] += 1_000
            partition["partition_epoch"] += 1_000
    for name in ("topics", "configs", "features", "acls", "scram", "quotas", "brokers"):
        assert without_marks(after[name]) == without_marks(before[name])
    assert (home / METADATA / SNAPSHOT).stat().st_mode & 0o777 == 0o400


def without_marks(value: Any) -> Any:
    """Drop whether each thing is known to be committed."""
    if isinstance(value, dict):
        return {key: without_marks(each) for key, each in value.items() if key != "is_committed"}
    if isinstance(value, list):
        return [without_marks(each) for each in value]
    return value


def test_a_reset_is_undone_byte_for_byte(controllers: Path) -> None:
    home = controllers / "c1002"
    before = contents_of(home)
    reset(home, "1002@h:1")
    assert contents_of(home) != before
    assert run("undo", home).exit_status == 0
    assert contents_of(home) == before


def test_on_a_full_disk_nobody_is_advised_to_delete_the_only_log(
    controllers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = controllers / "c1002"
    (home / METADATA / f"{0:020d}.log.deleted").write_bytes(b"left over")
    before = contents_of(home)
    monkeypatch.setattr(disk_space, "free_bytes_at", lambda _: 100)
    outcome = reset(home, "1002@h:1")
    assert outcome.exit_status == 8
    said = " ".join(outcome.stderr.decode().split())
    assert "has 100; nothing has been changed; free some space" in said
    assert "--no-undo" not in said
    assert contents_of(home) == before


def test_a_preview_changes_nothing_and_says_the_same(controllers: Path) -> None:
    home = controllers / "c1002"
    before = contents_of(home)
    (previewed,) = rows("reset", "--dry-run", NOW, "--voter=1002@h:1", home)
    assert contents_of(home) == before
    (done,) = rows("reset", NOW, "--voter=1002@h:1", home)
    differing = {name for name in done if done[name] != previewed[name]}
    assert differing == {"is_dry_run", "is_applied", "undos"}
    assert done["operations"][0]["file"] == SNAPSHOT


def test_a_second_reset_has_nothing_to_do(controllers: Path) -> None:
    home = controllers / "c1002"
    reset(home, "1002@h:1")
    before = contents_of(home)
    done = reset(home, "1002@h:1", options=["--show-also", controllers / "c1003"])
    assert b"nothing to do" in done.stdout
    assert contents_of(home) == before
    assert b"1 voter in the snapshot: 1002" in reset(home, "1002@h:2").stdout
    assert contents_of(home) != before


@pytest.mark.parametrize("epoch", [2**31 - 1500, 2**31 - 1])
def test_an_epoch_with_little_room_above_it_is_no_hindrance(epoch: int, tmp_path: Path) -> None:
    home = tmp_path
    partition = partition_record(1, 0, [7], [9], leader_epoch=epoch)
    records = [feature_record("metadata.version", 30), topic_record("orders", 1), partition]
    write_metadata_log(home, records)
    (home / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=7\n")
    done = reset(home, "7@h:1")
    assert done.exit_status == 0, done.stderr
    before = contents_of(home)
    done = reset(home, "7@h:1")
    assert b"nothing to do" in done.stdout, done.stderr
    assert contents_of(home) == before


def test_a_directory_that_is_behind_another_is_refused(controllers: Path) -> None:
    before = contents_of(controllers)
    done = reset(controllers / "c1001", "1001@h:1", options=["--show-also", controllers / "c1003"])
    assert done.exit_status == 8
    assert b"offset 1883 of epoch 2; reset that one instead" in done.stderr
    assert contents_of(controllers) == before


def test_a_brokers_copy_that_is_ahead_is_to_be_planned_from(controllers: Path) -> None:
    home, broker = controllers / "c1001", controllers / "b1"
    shutil.copytree(controllers / "c1003", broker)
    properties = (broker / "meta.properties").read_text()
    (broker / "meta.properties").write_text(properties.replace("node.id=1003", "node.id=1"))
    done = reset(home, "1001@h:1", options=["--show-also", broker])
    assert done.exit_status == 8
    assert b"kdump metadata collect, plan and apply" in done.stderr


@pytest.mark.parametrize(
    ("voters", "options", "message"),
    [
        (["1001@h:1"], [], "is of node 1002, which is not among the voters"),
        (["1002@h:1", "1002@h:2"], [], "2 voters have the node id 1002"),
        (["1002@h:1", "5@h:1"], [], "add :DIRECTORY_ID"),
        (["1002@h:1", f"5@h:1:{OTHER}", f"6@h:1:{OTHER}"], [], "2 voters have the directory id"),
        ([f"1002@h:1:{OTHER}"], [], "has the directory id Y2dW8O41RR6_pKmks-3sKg"),
        (["1002@h:1:AAAAAAAAAAAAAAAAAAAAAQ"], [], "Kafka reserves the directory id"),
        (["1002@h"], [], "is not ID@HOST:PORT"),
        ([f"5@h:1:{OTHER}"], ["--without-this-node", "--listener-name=X"], None),
    ],
)
def test_voters_that_cannot_be_are_refused(
    voters: list[str], options: list[str], message: str | None, controllers: Path
) -> None:
    home = controllers / "c1002"
    before = contents_of(home)
    done = reset(home, *voters, options=options)
    if message is None:
        assert done.exit_status == 0
        assert [each["endpoints"] for each in image_of(home)["voters"]] == [["X://h:1"]]
        return
    assert done.exit_status == 16
    assert message in done.stderr.decode()
    assert contents_of(home) == before


def test_a_log_that_is_damaged_before_its_end_is_refused(controllers: Path) -> None:
    home = controllers / "c1002"
    flip_a_bit_of_the_log(home, 70_000)
    for snapshot in sorted((home / METADATA).glob("*.checkpoint"))[1:]:
        snapshot.unlink()
    before = contents_of(home)
    done = reset(home, "1002@h:1")
    assert done.exit_status == 4
    assert b"the records after it would be lost" in done.stderr
    assert contents_of(home) == before


def test_a_batch_that_cannot_be_checked_is_refused(controllers: Path) -> None:
    """Its magic, which no checksum covers, is damaged: a broker reads it all the same."""
    home = controllers / "c1002"
    *_, (at, _), _ = batches_of((home / METADATA / f"{0:020d}.log").read_bytes())
    flip_a_bit_of_the_log(home, at + 16)
    done = reset(home, "1002@h:1")
    assert done.exit_status == 4
    assert b"its magic, 3, is unknown; the records after it would be lost" in done.stderr


def test_another_disk_whose_last_epoch_is_damaged_is_not_behind(controllers: Path) -> None:
    """No checksum covers the epoch of a batch either."""
    log = controllers / "c1002" / METADATA / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    *_, (last, _) = batches_of(bytes(content))
    content[last + 12 : last + 16] = bytes(4)
    log.write_bytes(content)
    done = reset(controllers / "c1001", "1001@h:1", options=["--show-also", log.parents[1]])
    assert done.exit_status == 4
    assert b"they have epoch 0 after epoch 1, which is damage" in done.stderr


def test_another_disk_with_later_records_after_damage_is_refused(controllers: Path) -> None:
    other = controllers / "c1003"
    for snapshot in (other / METADATA).glob("*.checkpoint"):
        snapshot.unlink()
    flip_a_bit_of_the_log(other)
    done = reset(controllers / "c1001", "1001@h:1", options=["--show-also", other])
    assert done.exit_status == 4
    assert b"its records up to offset" in done.stderr


def test_another_disk_that_is_damaged_before_earlier_records_is_no_hindrance(
    controllers: Path,
) -> None:
    flip_a_bit_of_the_log(controllers / "c1001")
    done = reset(controllers / "c1002", "1002@h:1", options=["--show-also", controllers / "c1001"])
    assert done.exit_status == 0


def test_a_damaged_snapshot_that_nothing_replaces_is_refused(controllers: Path) -> None:
    home = controllers / "c1002" / METADATA
    *_, newest = sorted(home.glob("*.checkpoint"))
    content = newest.read_bytes()
    newest.write_bytes(content[:-20] + bytes(20))
    (home / f"{0:020d}.log").unlink()
    done = reset(controllers / "c1002", "1002@h:1")
    assert done.exit_status == 4
    assert b".checkpoint: " in done.stderr


def test_an_incomplete_last_batch_is_no_damage(controllers: Path) -> None:
    home = controllers / "c1002"
    log = home / METADATA / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-5])
    done = reset(home, "1002@h:1")
    assert done.exit_status == 0
    assert (home / METADATA / SNAPSHOT.replace("1883", "1882")).exists()
    assert b"may not be" in done.stdout


def test_a_directory_in_use_is_refused(controllers: Path) -> None:
    home = controllers / "c1002"
    with held_elsewhere(home):
        done = reset(home, "1002@h:1")
    assert done.exit_status == 8
    assert b"locked by process" in done.stderr


def test_directories_of_several_clusters_are_refused(controllers: Path) -> None:
    properties = controllers / "c1003" / "meta.properties"
    text = properties.read_text().replace("kdumpQuorumHeldOutAAAA", "anotherClusterAAAAAAAA")
    properties.write_text(text)
    done = reset(controllers / "c1002", "1002@h:1", options=["--show-also", controllers / "c1003"])
    assert done.exit_status == 16
    assert b"several clusters" in done.stderr


def test_static_voters_are_left_to_the_configuration(tmp_path: Path) -> None:
    write_metadata_log(
        tmp_path, [feature_record("metadata.version", 30), topic_record("orders", 1)]
    )
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=7\n")
    done = reset(tmp_path, "7@h:1", "8@h:2")
    said = " ".join(done.stdout.decode().split())
    assert "set controller.quorum.voters=7@h:1,8@h:2 on every controller and broker" in said
    assert image_of(tmp_path)["kraft_version"] == 0
    assert [topic["name"] for topic in image_of(tmp_path)["topics"]] == ["orders"]


@pytest.mark.parametrize(
    ("voters", "most"), [(("7@h:1", "8@h:2"), None), (("7@h:1", "8@h:2", "9@h:3"), 1)]
)
def test_empty_static_voters_that_would_be_a_majority_are_not_to_be_started(
    tmp_path: Path, voters: tuple[str, ...], most: int | None
) -> None:
    write_metadata_log(tmp_path, [feature_record("metadata.version", 30)])
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=7\n")
    said = reset(tmp_path, *voters).stdout.decode()
    warning = f"start at most {most} of the controllers with empty disks before there is a leader"
    assert (warning in said) is (most is not None)


def test_metadata_without_a_version_is_refused(tmp_path: Path) -> None:
    write_metadata_log(tmp_path, [topic_record("orders", 1)])
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=7\n")
    done = reset(tmp_path, "7@h:1")
    assert done.exit_status == 8
    assert b"no level of metadata.version" in done.stderr


def test_a_partition_or_a_directory_without_metadata_is_refused(
    controllers: Path, tmp_path: Path
) -> None:
    done = reset(controllers / "c1002" / METADATA, "1002@h:1")
    assert done.exit_status & 24, done
    assert b"Traceback" not in done.stderr
    (tmp_path / "empty").mkdir()
    assert reset(tmp_path / "empty", "1002@h:1").exit_status & 24


# --- hostile


def test_a_disk_that_cannot_be_read_may_have_more_and_is_refused(controllers: Path) -> None:
    before = contents_of(controllers)
    for other in (controllers / "missing", controllers / "c1003" / METADATA / "quorum-state"):
        also: list[str | Path] = ["--show-also", other]
        done = reset(controllers / "c1002", "1002@h:1", options=also)
        assert done.exit_status == 8
        assert done.stdout == b""
    assert contents_of(controllers) == before


def test_an_epoch_that_nothing_can_be_above_is_refused(controllers: Path) -> None:
    state = controllers / "c1003" / METADATA / "quorum-state"
    state.write_text(state.read_text().replace('"leaderEpoch":2', '"leaderEpoch":2147483647'))
    also: list[str | Path] = ["--show-also", controllers / "c1003"]
    done = reset(controllers / "c1002", "1002@h:1", options=also)
    assert done.exit_status == 8
    assert b"no snapshot can be above epoch 2147483647" in done.stderr


def test_a_linked_metadata_directory_is_refused(controllers: Path) -> None:
    home = controllers / "c1002"
    (home / METADATA).rename(controllers / "elsewhere")
    (home / METADATA).symlink_to(controllers / "elsewhere")
    before = contents_of(controllers / "elsewhere")
    done = reset(home, "1002@h:1")
    assert done.exit_status == 8
    assert b"is a symbolic link" in done.stderr
    assert contents_of(controllers / "elsewhere") == before


def test_foreign_files_stay(controllers: Path) -> None:
    home = controllers / "c1002"
    (home / METADATA / "notes.txt").write_text("mine")
    for name in (
        "quorum-state.tmp",
        f"{0:020d}.log.deleted",
        f"{9:020d}-{1:010d}x.checkpoint.part",
    ):
        (home / METADATA / name).write_text("left over")
    done = reset(home, "1002@h:1")
    assert done.exit_status == 0, done.stderr
    assert {path.name for path in (home / METADATA).iterdir()} == {
        SNAPSHOT,
        "partition.metadata",
        "notes.txt",
    }
    fifo = home / METADATA / f"{5:020d}-{1:010d}.checkpoint.deleted"
    os.mkfifo(fifo)
    refused = reset(home, "1002@h:2")
    assert refused.exit_status == 8
    assert f"{fifo}: a FIFO" in refused.stderr.decode()


def test_a_broker_that_has_the_most_is_to_be_collected(fixtures: Path) -> None:
    said = run("quorum", "show", fixtures / "states" / "clean" / "b2-d1").stdout.decode()
    assert "is of no voter" in said
    assert "kdump metadata collect" in said


def test_a_log_that_ends_in_an_older_epoch_than_the_controller_knew_is_said(
    controllers: Path,
) -> None:
    """The first controller voted in epoch 2, and its log ends in epoch 1."""
    log_dir = controllers / "c1001"
    outcome = reset(log_dir, "1001@localhost:9093", options=["--dry-run"])
    assert outcome.exit_status == 0
    assert "the controller knew epoch 2: what was written in it, from offset 1882 on" in " ".join(
        outcome.stdout.decode().split()
    )
    words = ["--dry-run", "--output", "jsonl"]
    outcome = reset(log_dir, "1001@localhost:9093", options=words)
    assert [each["later_epoch"] for each in of_type(objects(outcome.stdout), "reset")] == [2]
    other = reset(controllers / "c1002", "1002@localhost:9093", options=words)
    assert [each["later_epoch"] for each in of_type(objects(other.stdout), "reset")] == [None]
