"""kdump undelete restores directories, and says what the next start does with them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.dead_clusters import broker
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.loading import Clock, LoaderServer
from builders.log_dir_trees import original_of
from builders.log_directories import META_PROPERTIES, offset_checkpoint, write_log_directory
from builders.metadata_log import (
    TOPIC_RESOURCE,
    config_record,
    partition_record,
    remove_topic_record,
    topic_record,
    write_metadata_log,
)
from builders.stray_directories import (
    ID,
    NODE,
    OTHER_ID,
    RECORDS,
    know,
    stray,
    stray_log_directory,
    write_directory,
)
from builders.two_disks import SECOND_META_PROPERTIES
from kdump.apply.apply import apply_plan
from kdump.apply.directory_changes import RemovedDirectory
from kdump.apply.plan import TargetDirectory, make_plan
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.names import TopicPartition
from kdump.formats.uuids import format_uuid
from kdump.state.metadata.cluster_plan import (
    ClusterPlan,
    PlannedController,
    PlannedTopic,
    PlannedTopicPartition,
    Source,
    SourceKind,
)
from kdump.state.metadata.cluster_plan_json import encode_plan
from kdump.state.metadata.image_records import record_from_json

ORDERS = TopicPartition("orders", 0)
LONG = "t" * 249


def undelete(*args: str | Path) -> Outcome:
    return run_kdump(["undelete", *map(str, args)], Path.cwd())


def rows(outcome: Outcome, kind: str = "partition") -> list[dict[str, Any]]:
    return [row for row in objects(outcome.stdout) if row["type"] == kind]


def only_row(*args: str | Path) -> dict[str, Any]:
    (row,) = rows(undelete("--dry-run", "--output", "jsonl", *args))
    return row


def lines_of(log_dir: Path, name: str) -> dict[TopicPartition, int]:
    return dict(decode_offset_checkpoint((log_dir / name).read_bytes()))


def test_a_directory_whose_files_are_undo_data_is_left(tmp_path: Path) -> None:
    log_dir = stray_log_directory(tmp_path / "logs", {f"orders-0.{ID}-delete": 1})
    run_kdump(["resolve", "--drop-deleted", str(log_dir)], tmp_path)

    outcome = undelete("--output", "jsonl", log_dir)

    (row,) = rows(outcome)
    assert (row["obstacle"], row["restored_as"]) == ("incomplete", None)
    assert "it has no files; if kdump resolve deleted them, 'kdump undo --list" in row["why"]
    assert not (log_dir / "orders-0").exists()


@pytest.mark.parametrize("suffix", ["stray", "delete"])
def test_a_directory_becomes_a_partition_and_an_undo_gives_the_former_state(
    tmp_path: Path, suffix: str
) -> None:
    root = stray_log_directory(tmp_path / "logs", {f"orders-0.{ID}-{suffix}": 1})
    before = original_of(root)

    outcome = undelete(root)

    assert outcome.exit_status == 1, outcome.stderr
    assert [path.name for path in root.iterdir() if path.is_dir()] == ["orders-0"]
    assert b"1 partition restored" in outcome.stdout
    assert run_kdump(["undo", str(root)], tmp_path).exit_status == 0
    assert original_of(root) == before


def test_a_dry_run_shows_the_changes_and_makes_none(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    before = original_of(root)
    outcome = undelete("--dry-run", root)
    assert outcome.exit_status == 1
    assert f"rename {stray('orders-0')}/ to orders-0/" in outcome.stdout.decode()
    assert b"1 partition would be restored" in outcome.stdout
    assert original_of(root) == before


def test_without_such_directories_there_is_nothing_to_do(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {"orders-0": 1})
    outcome = undelete(root)
    assert outcome.exit_status == 0
    assert b"no -stray or -delete directory" in outcome.stdout


def test_only_selected_directories_are_restored(tmp_path: Path) -> None:
    root = stray_log_directory(
        tmp_path / "logs", {stray("orders-0"): 1, stray("users-0"): 2, f"gone-0.{ID}-delete": 3}
    )
    undelete("--partition", "*-stray", "--topic", "orders", root)
    assert (root / "orders-0").is_dir()
    assert (root / stray("users-0")).is_dir()
    assert (root / f"gone-0.{ID}-delete").is_dir()


# ---- Checkpoints ----


def test_after_a_clean_shutdown_the_recovery_point_is_the_end_and_the_marker_goes(
    tmp_path: Path,
) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1}, points=["users-0"])
    undelete(root)
    points = lines_of(root, names.RECOVERY_POINT_CHECKPOINT)
    assert points == {ORDERS: RECORDS, TopicPartition("users", 0): 2}
    assert not (root / names.CLEAN_SHUTDOWN_MARKER).exists()


@pytest.mark.parametrize(("points", "expected"), [([], {}), (["orders-0"], {ORDERS: 2})])
def test_after_a_crash_only_a_line_that_is_left_counts(
    tmp_path: Path, points: list[str], expected: dict[TopicPartition, int]
) -> None:
    root = stray_log_directory(
        tmp_path / "logs", {stray("orders-0"): 1}, clean=False, points=points
    )
    undelete(root)
    assert lines_of(root, names.RECOVERY_POINT_CHECKPOINT) == expected


@pytest.mark.parametrize(("start", "expected"), [(3, {ORDERS: 3}), (RECORDS + 1, {})])
def test_a_log_start_offset_past_the_end_is_removed(
    tmp_path: Path, start: int, expected: dict[TopicPartition, int]
) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    path = root / names.LOG_START_OFFSET_CHECKPOINT
    path.write_bytes(offset_checkpoint({("orders", 0): start}))
    undelete(root)
    assert lines_of(root, names.LOG_START_OFFSET_CHECKPOINT) == expected


def test_a_malformed_checkpoint_is_left_to_the_broker(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    (root / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"malformed")
    undelete(root)
    assert (root / names.RECOVERY_POINT_CHECKPOINT).read_bytes() == b"malformed"
    assert (root / "orders-0").is_dir()


# ---- Directories that are left unchanged ----


def test_of_several_candidates_the_user_has_to_choose_one(tmp_path: Path) -> None:
    one, other = stray("orders-0"), stray("orders-0", OTHER_ID)
    root = stray_log_directory(tmp_path / "logs", {one: 1, other: 2})
    before = original_of(root)

    outcome = undelete(root)

    assert outcome.exit_status == 4
    said = outcome.stdout.decode()
    assert "2 directories can become orders-0" in said
    assert str(root / one) in said
    assert str(root / other) in said
    assert original_of(root) == before
    undelete("--partition", other, root)
    assert (root / one).is_dir()
    assert (root / "orders-0" / names.PARTITION_METADATA).exists()


def test_candidates_in_several_directories_of_a_broker_are_rivals(tmp_path: Path) -> None:
    roots = [
        stray_log_directory(tmp_path / name, {stray("orders-0", unique_id): 1})
        for name, unique_id in (("d1", ID), ("d2", OTHER_ID))
    ]
    found = rows(undelete("--dry-run", "--output", "jsonl", *roots))
    assert [row["obstacle"] for row in found] == ["several-candidates"] * 2


def test_replicas_of_several_brokers_are_no_rivals(tmp_path: Path) -> None:
    roots = [stray_log_directory(tmp_path / name, {stray("orders-0"): 1}) for name in ("b1", "b2")]
    (roots[1] / names.META_PROPERTIES).write_bytes(META_PROPERTIES.replace(b"id=7", b"id=8"))
    found = rows(undelete("--dry-run", "--output", "jsonl", *roots))
    assert [row["restored_as"] for row in found] == ["orders-0"] * 2


def test_a_partition_in_use_is_never_replaced(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "d1", {stray("orders-0"): 1})
    other = stray_log_directory(tmp_path / "d2", {"orders-0": 2})
    before = original_of(root)
    outcome = undelete(root, other)
    assert outcome.exit_status == 4
    assert f"{other} has a directory orders-0 that the broker uses" in outcome.stdout.decode()
    assert original_of(root) == before


def cut_name() -> str:
    rest = f"-0.{ID}-stray"
    return LONG[: 255 - len(rest)] + rest


def test_a_name_that_was_cut_short_is_found_by_the_topic_id(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {cut_name(): 1})
    know(root, {LONG: 1})
    assert undelete(root).exit_status == 1
    assert (root / f"{LONG}-0").is_dir()


def test_the_name_of_a_deleted_topic_is_found_in_the_history(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {cut_name(): 1})
    write_metadata_log(root, [topic_record(LONG, 1), remove_topic_record(1)])
    row = only_row(root)
    assert row["restored_as"] == f"{LONG}-0"
    assert row["next_start"] == "stray"


@pytest.mark.parametrize("inside", ["", "__cluster_metadata-0"])
def test_the_name_of_a_deleted_topic_is_found_in_metadata_elsewhere(
    tmp_path: Path, inside: str
) -> None:
    root = stray_log_directory(tmp_path / "logs", {cut_name(): 1})
    controller = stray_log_directory(tmp_path / "controller", {})
    write_metadata_log(controller, [topic_record(LONG, 1), remove_topic_record(1)])
    row = only_row("--metadata", controller / inside, root)
    assert row["restored_as"] == f"{LONG}-0"


def test_a_name_that_was_cut_short_and_is_not_known_has_to_be_given(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {cut_name(): 1})
    row = only_row(root)
    assert (row["topic"], row["obstacle"]) == (None, "name-cut")
    assert f"--name {cut_name()}=TOPIC" in row["why"]

    assert only_row("--name", f"{cut_name()}=users", root)["obstacle"] == "name-differs"
    assert only_row("--name", f"{cut_name()}={LONG}", root)["restored_as"] == f"{LONG}-0"


def test_a_name_of_255_characters_that_was_not_cut_short_is_found_by_the_id(
    tmp_path: Path,
) -> None:
    name = "t" * (255 - len(f"-0.{ID}-stray"))
    root = stray_log_directory(tmp_path / "logs", {stray(f"{name}-0"): 1})
    know(root, {name: 1})
    assert only_row(root)["restored_as"] == f"{name}-0"


def test_a_name_for_a_missing_directory_is_a_usage_error(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    assert undelete("--name", "nothing-0=orders", root).exit_status == 16
    assert undelete("--name", "nothing", root).exit_status == 16


def test_a_topic_with_the_id_of_another_is_left_unchanged(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    know(root, {"users": 1})
    assert only_row(root)["obstacle"] == "name-differs"


def test_metadata_that_was_moved_aside_is_not_restored(tmp_path: Path) -> None:
    name = stray("__cluster_metadata-0")
    root = stray_log_directory(tmp_path / "logs", {name: 1})
    outcome = undelete("--output", "jsonl", root)
    assert outcome.exit_status == 0
    assert rows(outcome)[0]["obstacle"] == "metadata-log"
    assert (root / name).is_dir()


@pytest.mark.parametrize("name", ["new-0-delete", "old-0-delete"])
def test_what_kdump_was_filling_or_deleting_is_never_restored(tmp_path: Path, name: str) -> None:
    root = stray_log_directory(tmp_path / "logs", {f"orders-0.kdump-3-{name}": 1})
    outcome = undelete("--output", "jsonl", root)
    assert outcome.exit_status == 4
    assert rows(outcome)[0]["obstacle"] == "incomplete"
    assert not (root / "orders-0").exists()


@pytest.mark.parametrize(("is_kept", "status"), [(True, 0), (False, 1)])
def test_undo_data_is_left_to_the_undo_while_there_is_one(
    tmp_path: Path, is_kept: bool, status: int
) -> None:
    root = stray_log_directory(tmp_path / "logs", {"orders-0": 1})
    change = {"orders-0": RemovedDirectory()}
    plan = make_plan(TargetDirectory(root, (), {}, directories=change))
    apply_plan(plan, keep_undo=True, command="kdump move")
    if not is_kept:
        (root / ".kdump-1.applied").unlink()
    outcome = undelete("--output", "jsonl", root)
    assert outcome.exit_status == status
    assert rows(outcome)[0]["obstacle"] == ("undo-data" if is_kept else None)
    assert (root / "orders-0").exists() is not is_kept


# ---- The next start ----


def test_the_next_start_keeps_what_the_metadata_has_on_the_broker(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    know(root, {"orders": 1})
    outcome = undelete("--dry-run", root)
    assert outcome.exit_status == 1
    assert b"the next start of the broker keeps them" in outcome.stdout


def test_what_a_directory_that_was_not_named_has_is_left_unchanged(
    fixtures: Path, tmp_path: Path
) -> None:
    """The broker had moved it, and does not start with both."""
    d1, d2 = (
        shutil.copytree(fixtures / "states" / "clean" / name, tmp_path / name)
        for name in ("b2-d1", "b2-d2")
    )
    moved = ("--partition", "jbod-pair-0*")
    assert only_row(*moved, d1)["obstacle"] == "other-directory"
    assert only_row(*moved, d1, d2)["obstacle"] == "exists"


@pytest.mark.parametrize("where", ["logs", "other"])
def test_a_partition_whose_copy_becomes_the_log_is_left_unchanged(
    tmp_path: Path, where: str
) -> None:
    """With an older log in use, the broker would truncate the copy to it."""
    logs = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    other = write_log_directory(tmp_path / "other")
    (other / names.META_PROPERTIES).write_bytes(SECOND_META_PROPERTIES)
    write_directory(tmp_path / where, f"orders-0.{OTHER_ID}-future", 1)
    row = only_row(logs, other)
    assert row["obstacle"] == "exists"
    assert "has a -future copy of orders-0" in row["why"]


def test_a_directory_that_the_broker_does_not_have_any_more_is_no_obstacle(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    registered = broker(NODE)
    node = {"type": registered.type, "version": registered.version, "data": registered.data}
    assigned = [topic_record("orders", 1), partition_record(1, 0, [NODE], [1 << 90])]
    write_metadata_log(root, [record_from_json(node).encode(), *assigned])
    assert only_row("--dry-run", root)["next_start"] == "kept"


@pytest.mark.parametrize(
    ("topics", "replicas", "why", "advice"),
    [
        ({"users": 2}, (NODE,), "the metadata has no topic with its id", "do not start the broker"),
        ({"orders": 2}, (NODE,), "it was created again", "kdump transplant"),
        ({"orders": 1}, (3, 4), f"its replicas on 3, 4, not on {NODE}", "leave these unchanged"),
    ],
)
def test_the_next_start_throws_out_what_the_metadata_does_not_have(
    tmp_path: Path, topics: dict[str, int], replicas: tuple[int, ...], why: str, advice: str
) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    know(root, topics, replicas)
    outcome = undelete(root)
    assert outcome.exit_status == 5
    said = " ".join(outcome.stdout.decode().split())
    assert re.search(f"the next start renames 1 of them to -stray: .*{re.escape(why)}", said)
    assert advice in said
    assert (root / "orders-0").is_dir()


def test_a_partition_number_that_the_topic_does_not_have_is_thrown_out(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-5"): 1})
    know(root, {"orders": 1})
    row = only_row(root)
    assert row["next_start_why"] == "the metadata has the topic without this partition"


def test_a_directory_without_its_topic_id_is_thrown_out(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    (root / stray("orders-0") / names.PARTITION_METADATA).unlink()
    row = only_row(root)
    assert (row["topic_id"], row["next_start"]) == (None, "stray")


@pytest.mark.parametrize(
    ("at", "bit", "why"),
    [(3, 2, "a broker does not start with it: "), (30, 1, "truncates it to offset 1, from 5")],
)
def test_damage_that_the_next_start_finds_is_said(
    tmp_path: Path, at: int, bit: int, why: str
) -> None:
    """After a clean shutdown no broker has looked for it."""
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    know(root, {"orders": 1})
    log = root / stray("orders-0") / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[len(content) // RECORDS + at] ^= bit
    log.write_bytes(content)
    row = only_row(root)
    assert row["next_start"] == "damaged"
    assert why in row["next_start_why"]
    outcome = undelete(root)
    assert outcome.exit_status == 5
    assert b"kdump recover --policy salvage" in b" ".join(outcome.stdout.split())


@pytest.fixture
def with_damage_in_use(tmp_path: Path) -> Path:
    """A clean log directory with a stray directory, and damage in the second record of a log."""
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1, "users-0": 2})
    know(root, {"orders": 1, "users": 2})
    lines = {("users", 0): RECORDS}
    (root / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(lines))
    log = root / "users-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[len(content) // RECORDS + 30] ^= 1
    log.write_bytes(content)
    return root


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_log_in_use_that_loses_records_without_the_marker_is_named(
    with_damage_in_use: Path, dry_run: bool
) -> None:
    root = with_damage_in_use
    outcome = undelete(root, "--output=jsonl", *(["--dry-run"] if dry_run else []))

    (other,) = rows(outcome, "other_log")
    assert (other["directory"], other["log_end_offset"]) == ("users-0", RECORDS)
    assert other["next_start_end_offset"] == 1
    assert rows(outcome, "summary")[0]["damaged_others"] == 1
    assert outcome.exit_status & 4


def test_a_person_is_told_what_to_do_before_the_start(with_damage_in_use: Path) -> None:
    root = with_damage_in_use
    outcome = undelete(root, "--dry-run")
    said = b" ".join(outcome.stdout.split()).decode()
    assert f"{root}/users-0: damaged, too: a broker truncates it to offset 1, from 5" in said
    assert f"kdump verify {root}" in said
    assert f"kdump recover --policy salvage {root}" in said


def test_what_the_start_would_truncate_anyway_is_not_named(with_damage_in_use: Path) -> None:
    (with_damage_in_use / names.CLEAN_SHUTDOWN_MARKER).unlink()
    outcome = undelete(with_damage_in_use, "--dry-run", "--output=jsonl")
    assert rows(outcome, "other_log") == []


def test_the_loader_truncates_what_is_named(
    with_damage_in_use: Path, loader_server: LoaderServer, tmp_path: Path
) -> None:
    """Kafka's loader keeps the log with the marker, and truncates it without."""
    ends = {}
    for is_clean in (True, False):
        copy = shutil.copytree(with_damage_in_use, tmp_path / f"marker-{is_clean}")
        if not is_clean:
            (copy / names.CLEAN_SHUTDOWN_MARKER).unlink()
        assert loader_server.load(copy, IndexSettings(), Clock(), whole=True) == {}
        ends[is_clean] = lines_of(copy, names.RECOVERY_POINT_CHECKPOINT)[TopicPartition("users", 0)]
    assert ends == {True: RECORDS, False: 1}


def test_without_metadata_the_next_start_is_unknown(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    outcome = undelete("--dry-run", root)
    assert outcome.exit_status == 1
    assert b"name some with --metadata or --plan" in b" ".join(outcome.stdout.split())


def test_metadata_of_a_controller_counts_instead_of_the_own_copy(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    know(root, {"users": 2})
    controller = tmp_path / "controller"
    stray_log_directory(controller, {})
    know(controller, {"orders": 1})
    assert only_row("--metadata", controller, root)["next_start"] == "kept"


@pytest.mark.parametrize("value", ["true", "false"])
def test_of_a_topic_with_remote_storage_only_a_part_is_restored(tmp_path: Path, value: str) -> None:
    root = stray_log_directory(tmp_path / "logs", {f"orders-0.{ID}-delete": 1})
    values = [
        topic_record("orders", 1),
        partition_record(1, 0, (NODE,), (NODE,)),
        config_record(TOPIC_RESOURCE, "orders", "remote.storage.enable", value),
    ]
    write_metadata_log(root, values)
    assert only_row(root)["is_remote"] is (value == "true")
    said = " ".join(undelete(root).stdout.decode().split())
    assert ("only what is on this disk is restored" in said) is (value == "true")


def plan_file(path: Path, topic_id: int, cluster_id: str = "a-cluster") -> Path:
    """Write a plan of a cluster with one partition of orders, on the broker."""
    source = Source(SourceKind.DISK, "d1")
    partition = PlannedTopicPartition(
        partition=0,
        replicas=(NODE,),
        directories=(format_uuid(UUID(int=200)),),
        isr=(NODE,),
        elr=(),
        last_known_elr=(),
        removing_replicas=(),
        adding_replicas=(),
        leader=NODE,
        leader_recovery_state="RECOVERED",
        leader_epoch=5,
        partition_epoch=0,
        sources={},
    )
    topic = PlannedTopic("orders", format_uuid(UUID(int=topic_id)), source, (), (partition,))
    plan = ClusterPlan(
        kdump="1",
        created_ms=1,
        cluster_id=cluster_id,
        snapshot_offset=100,
        snapshot_epoch=9,
        kraft_version=0,
        controller_listener="CONTROLLER",
        controllers=(PlannedController(101, "c1", 9093, None),),
        next_producer_id=0,
        sources={},
        features=(),
        topics=(topic,),
    )
    path.write_bytes(b"".join(encode_plan(plan)))
    return path


@pytest.mark.parametrize(("topic_id", "expected"), [(1, "kept"), (2, "stray")])
def test_a_plan_says_what_the_next_start_does(tmp_path: Path, topic_id: int, expected: str) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    know(root, {"users": 2})
    plan = plan_file(tmp_path / "plan.json", topic_id)
    assert only_row("--plan", plan, root)["next_start"] == expected


def test_a_plan_of_another_cluster_is_a_usage_error(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    outcome = undelete("--plan", plan_file(tmp_path / "plan.json", 1, "another"), root)
    assert outcome.exit_status == 16
    assert b"belongs to a-cluster" in outcome.stderr


def test_a_broken_plan_is_refused_before_anything_changes(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1})
    before = original_of(root)
    plan = tmp_path / "plan.json"
    plan.write_text('{"format": "something"}')
    outcome = undelete("--plan", plan, root)
    assert outcome.exit_status == 8
    assert b"--plan" in outcome.stderr
    assert undelete("--plan", plan, "--metadata", root, root).exit_status == 16
    assert undelete("--plan", tmp_path / "none", root).exit_status == 8
    assert original_of(root) == before


# ---- Many, and odd ----


def test_many_directories_are_restored_with_a_short_report(tmp_path: Path) -> None:
    root = stray_log_directory(
        tmp_path / "logs", {stray(f"topic{number}-0"): number + 1 for number in range(60)}
    )
    outcome = undelete(root)
    assert outcome.exit_status == 1
    assert len(outcome.stdout.splitlines()) < 10
    assert len([path for path in root.iterdir() if path.is_dir()]) == 60
    assert b"60 partitions restored" in outcome.stdout


def test_a_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {})
    elsewhere = write_directory(tmp_path, "elsewhere-0", 1)
    (root / stray("orders-0")).symlink_to(elsewhere)
    outcome = undelete(root)
    assert outcome.exit_status == 8
    assert b"is a symbolic link" in outcome.stderr
    assert (root / stray("orders-0")).is_symlink()


def test_a_log_that_cannot_be_read_is_restored_all_the_same(tmp_path: Path) -> None:
    root = stray_log_directory(tmp_path / "logs", {stray("orders-0"): 1}, clean=False)
    (log,) = (root / stray("orders-0")).glob("*.log")
    log.write_bytes(b"garbage" * 100)
    assert undelete(root).exit_status == 1
    assert (root / "orders-0").is_dir()


def test_a_copy_without_the_metadata_directory_reads_it_from_another(tmp_path: Path) -> None:
    d1 = stray_log_directory(tmp_path / "d1", {stray("orders-0"): 1})
    d2 = stray_log_directory(tmp_path / "d2", {})
    know(d2, {"orders": 1})
    values = [topic_record("orders", 1), partition_record(1, 0, (NODE,), (NODE,))]
    shutil.rmtree(d2 / "__cluster_metadata-0")
    write_metadata_log(d2, values)
    (row,) = rows(undelete("--dry-run", "--output", "jsonl", d1, d2))
    assert row["next_start"] == "kept"
