"""``kdump metadata apply``: a plan becomes the snapshot of a controller."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from builders.dead_clusters import an_id, disk, replica
from builders.dead_clusters import plan_of as plan_of_disks
from builders.freeing import run
from builders.image_plans import plan_of
from builders.in_process import Outcome
from builders.json_answers import all_objects, objects
from builders.json_schemas import problems_of_objects
from builders.trees import contents_of
from kdump.formats.meta_properties import decode_meta_properties
from kdump.formats.names import CLUSTER_METADATA_PARTITION, CLUSTER_METADATA_TOPIC, PartitionState
from kdump.formats.uuids import parse_uuid
from kdump.log.partition import read_partition
from kdump.state.metadata.cluster_plan import (
    ClusterPlan,
    MovedAside,
    Notice,
    NoticeKind,
    PlannedConfig,
    PlannedController,
    SeenOnDisks,
)
from kdump.state.metadata.cluster_plan_json import encode_plan
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage
from kdump.state.metadata.metadata_replay import CopyReplay, MetadataPoint
from kdump.storage.local_disk import local

METADATA: Final = f"{CLUSTER_METADATA_TOPIC}-0"
CLUSTER: Final = "kdumpQuorumHeldOutAAAA"
SNAPSHOT: Final = "00000000000005000000-0000005000.checkpoint"
OLD: Final = PlannedController(1002, "127.0.0.1", 31102, "Y2dW8O41RR6_pKmks-3sKg")
NEW: Final = PlannedController(7, "::1", 9, "3uBS1g4vRcqYYZx6dtYV6Q")


@pytest.fixture
def disks(fixtures: Path, tmp_path: Path) -> Path:
    """Copy the disks of two real controllers and of a broker."""
    for node in ("c1002", "c1003", "b1-d1"):
        source = fixtures / "states" / "clean" / node
        shutil.copytree(source, tmp_path / node, ignore=without_other_partitions)
    return tmp_path


def without_other_partitions(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_dir() and name != METADATA]


def read_image(path: Path) -> MetadataImage:
    partition = read_partition(
        local(path / METADATA), CLUSTER_METADATA_PARTITION, PartitionState.LIVE
    )
    return CopyReplay(partition, pytest.fail).image_at(MetadataPoint())


@pytest.fixture(scope="module")
def plan(fixtures: Path) -> ClusterPlan:
    source = fixtures / "states" / "clean" / "c1002"
    return plan_of(read_image(source), [OLD, NEW], cluster_id=CLUSTER)


def apply(plan: ClusterPlan, path: Path, *options: str) -> Outcome:
    file = path.parent / "plan.json"
    file.write_bytes(b"".join(encode_plan(plan)))
    return run("metadata", "apply", *options, file, path)


def row_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.exit_status == 0, outcome.stderr
    (row,) = objects(outcome.stdout)
    return row


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty"
    path.mkdir()
    return path


def test_an_empty_directory_is_formatted(disks: Path, plan: ClusterPlan, empty: Path) -> None:
    row = row_of(apply(plan, empty, "--node-id=7", "--output=jsonl"))
    assert [row["node_id"], row["snapshot"], row["topics"]] == [7, SNAPSHOT, 48]

    properties = decode_meta_properties((empty / "meta.properties").read_bytes())
    assert [properties.version, properties.cluster_id, properties.node_id] == [1, CLUSTER, 7]
    assert properties.directory_id == parse_uuid(str(NEW.directory_id))
    assert [path.name for path in (empty / METADATA).iterdir()] == [SNAPSHOT]
    image, source = read_image(empty), read_image(disks / "c1002")
    assert image.end == (5_000, 5_000_000)
    for kind in (EntityKind.TOPIC, EntityKind.PARTITION, EntityKind.CONFIG, EntityKind.ACL):
        assert image.of(kind) == source.of(kind)
    for kind in (EntityKind.SCRAM, EntityKind.QUOTA, EntityKind.FEATURE):
        assert image.of(kind) == source.of(kind)
    assert all(broker.fenced for broker in image.of(EntityKind.BROKER).values())
    assert not image.of(EntityKind.CONTROLLER)
    assert [str(voter.listeners[0]) for voter in image.of(EntityKind.VOTER).values()] == [
        "CONTROLLER://::1:9",
        "CONTROLLER://127.0.0.1:31102",
    ]


def test_controllers_get_one_and_the_same_snapshot(
    disks: Path, plan: ClusterPlan, empty: Path
) -> None:
    for path, options in ((empty, ["--node-id=7"]), (disks / "c1002", [])):
        assert apply(plan, path, *options).exit_status == 0
    one, other = (contents_of(path / METADATA)[SNAPSHOT] for path in (empty, disks / "c1002"))
    assert one == other


def test_an_old_log_is_replaced_and_kept_for_an_undo(disks: Path, plan: ClusterPlan) -> None:
    home = disks / "c1002"
    before = contents_of(home)
    assert apply(plan, home).exit_status == 0
    assert sorted(contents_of(home / METADATA)) == [SNAPSHOT, "partition.metadata"]
    assert run("undo", home).exit_status == 0
    assert contents_of(home) == before


def test_the_snapshot_of_kafkas_standalone_formatter_goes(disks: Path, plan: ClusterPlan) -> None:
    home = disks / "c1002"
    for path in (home / METADATA).iterdir():
        if path.name != f"{0:020d}-{0:010d}.checkpoint":
            path.unlink()
    assert apply(plan, home).exit_status == 0
    assert [path.name for path in (home / METADATA).iterdir()] == [SNAPSHOT]


def test_a_formatted_directory_without_metadata_gets_it(disks: Path, plan: ClusterPlan) -> None:
    home = disks / "c1002"
    shutil.rmtree(home / METADATA)
    properties = (home / "meta.properties").read_bytes()
    assert apply(plan, home).exit_status == 0
    assert [path.name for path in (home / METADATA).iterdir()] == [SNAPSHOT]
    assert (home / "meta.properties").read_bytes() == properties


def test_the_metadata_of_a_new_controller_is_valid(plan: ClusterPlan, empty: Path) -> None:
    assert apply(plan, empty, "--node-id=7").exit_status == 0
    for command in (["verify"], ["verify", "--quick"], ["recover", "--dry-run"]):
        outcome = run(*command, empty)
        assert outcome.exit_status == 0, outcome
        assert b"-stray" not in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("options", [(), ("--node-id=7",)])
def test_applying_again_changes_nothing(
    options: tuple[str, ...], plan: ClusterPlan, empty: Path
) -> None:
    apply(plan, empty, "--node-id=7")
    before = contents_of(empty)
    done = apply(plan, empty, *options)
    assert done.exit_status == 0
    assert b"nothing to do" in done.stdout
    assert contents_of(empty) == before


def test_a_preview_is_the_very_plan_and_writes_nothing(plan: ClusterPlan, empty: Path) -> None:
    static = replace(plan, kraft_version=0, controllers=(replace(NEW, directory_id=None),))
    answer = apply(static, empty, "--dry-run", "--output=jsonl")
    assert not list(problems_of_objects("metadata", all_objects(answer.stdout)))
    previewed = row_of(answer)
    assert not list(empty.iterdir())
    done = row_of(apply(static, empty, "--output=jsonl"))
    differing = {name for name in done if done[name] != previewed[name]}
    assert differing == {"is_dry_run", "is_applied", "undos"}


def test_static_voters_are_left_to_the_configuration(plan: ClusterPlan, empty: Path) -> None:
    static = replace(plan, kraft_version=0, controllers=(replace(NEW, directory_id=None),))
    said = " ".join(apply(static, empty).stdout.decode().split())
    assert "set controller.quorum.voters=7@[::1]:9 on every controller and broker" in said
    assert not read_image(empty).of(EntityKind.VOTER)
    assert read_image(empty).kraft_version == 0


@pytest.mark.parametrize(
    ("offset", "epoch"), [(1_883, 5_000), (5_000_000, 2), (1_000, 5_000), (5_000_000, 1)]
)
def test_newer_records_are_never_replaced(
    offset: int, epoch: int, disks: Path, plan: ClusterPlan
) -> None:
    before = contents_of(disks / "c1002")
    older = replace(plan, snapshot_offset=offset, snapshot_epoch=epoch)
    done = apply(older, disks / "c1002")
    assert done.exit_status == 8
    assert b"nothing newer is replaced" in done.stderr
    assert contents_of(disks / "c1002") == before


def test_a_candidates_epoch_counts(disks: Path, plan: ClusterPlan) -> None:
    state = disks / "c1002" / METADATA / "quorum-state"
    state.write_text(state.read_text().replace('"leaderEpoch":2', '"leaderEpoch":5000'))
    assert apply(plan, disks / "c1002").exit_status == 8


def test_a_directory_of_another_node_is_refused(disks: Path, plan: ClusterPlan) -> None:
    before = contents_of(disks)
    for name, options, message in (
        ("c1003", (), "is of node 1003, which is no controller of the plan"),
        ("b1-d1", (), "its copy of the metadata can stay"),
        ("c1002", ("--node-id=7",), "is of node 1002, not of node 7"),
    ):
        done = apply(plan, disks / name, *options)
        assert done.exit_status == 16
        assert message in done.stderr.decode()
    (disks / "plan.json").unlink()
    assert contents_of(disks) == before


def test_another_cluster_or_directory_id_is_refused(disks: Path, plan: ClusterPlan) -> None:
    done = apply(replace(plan, cluster_id="other"), disks / "c1002")
    assert done.exit_status == 16
    assert b"is of the cluster kdumpQuorumHeldOutAAAA, the plan of other" in done.stderr
    controllers = (replace(OLD, directory_id=NEW.directory_id),)
    done = apply(replace(plan, controllers=controllers), disks / "c1002")
    assert done.exit_status == 16
    assert b"--controller 1002@127.0.0.1:31102:Y2dW8O41RR6_pKmks-3sKg" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [((), "say which controller it is with --node-id"), (("--node-id=8",), "no controller 8")],
)
def test_an_empty_directory_needs_a_node_of_the_plan(
    options: tuple[str, ...], message: str, plan: ClusterPlan, empty: Path
) -> None:
    done = apply(plan, empty, *options)
    assert done.exit_status == 16
    assert message in done.stderr.decode()
    assert not list(empty.iterdir())


def test_a_directory_with_other_files_is_refused(plan: ClusterPlan, empty: Path) -> None:
    (empty / "notes.txt").write_text("mine")
    done = apply(plan, empty, "--node-id=7")
    assert done.exit_status == 16
    assert b"neither empty nor a directory of Kafka's" in done.stderr
    assert [path.name for path in empty.iterdir()] == ["notes.txt"]


def test_a_loss_that_nobody_accepted_is_refused(plan: ClusterPlan, empty: Path) -> None:
    loss = Notice(NoticeKind.LOSS, "topic-dropped", "orders", None, "orders is lost", True)
    refused = apply(replace(plan, notices=(loss,)), empty, "--node-id=7")
    assert refused.exit_status == 4
    assert b"orders is lost" in refused.stderr
    accepted = replace(plan, notices=(loss,), is_loss_accepted=True)
    assert apply(accepted, empty, "--node-id=7").exit_status == 0


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        ({"snapshot_offset": 5}, "the plan has snapshot_offset 5, and the collected disks have"),
        ({"snapshot_epoch": 1}, "the plan has snapshot_epoch 1, and"),
        ({"next_producer_id": 0}, "the plan has next_producer_id 0, and"),
        ({"cluster_id": "another"}, "the plan is of the cluster another"),
    ],
)
def test_an_edited_plan_below_the_disks_is_refused(
    edit: dict[str, Any], what: str, plan: ClusterPlan, empty: Path
) -> None:
    seen = SeenOnDisks(CLUSTER, 100, 3, 50)
    outcome = apply(replace(plan, seen=seen, **edit), empty, "--node-id=7")
    assert outcome.exit_status == 16
    assert what in outcome.stderr.decode()
    assert not contents_of(empty)


ORDERS: Final = (
    disk(1, replica("orders", end=90, epochs=[(4, 0)])),
    disk(2, replica("orders", end=60, epochs=[(4, 0)])),
)


def edited(plan: ClusterPlan, **edit: Any) -> ClusterPlan:
    """The plan with another only partition of its only topic."""
    (topic,) = plan.topics
    (partition,) = topic.partitions
    return replace(plan, topics=(replace(topic, partitions=(replace(partition, **edit),)),))


@pytest.mark.parametrize(
    ("edit", "status", "what"),
    [
        ({"leader": 2, "isr": (2,)}, 4, "orders-0: by an edit of the plan node 2 may lead, and"),
        ({"isr": (1, 2)}, 4, "node 2 may lead, and node 1, which has more (epoch 4, end 90"),
        ({"leader": -1, "isr": (), "elr": (2,)}, 4, "topic.orders.partition.0.leader=2"),
        (
            {"replicas": (2,), "directories": (an_id("2"),), "leader": 2, "isr": (2,)},
            4,
            "node 2 may lead",
        ),
        ({"leader_epoch": 4}, 16, "orders-0: the plan has leader_epoch 4, and the collected disks"),
    ],
)
def test_an_edited_partition_that_loses_records_is_refused(
    edit: dict[str, Any], status: int, what: str, empty: Path
) -> None:
    outcome = apply(edited(plan_of_disks(*ORDERS), **edit), empty)
    assert outcome.exit_status == status
    assert what in outcome.stderr.decode()
    assert not contents_of(empty)


@pytest.mark.parametrize(
    "edit",
    [
        {"leader_epoch": 900},
        {"replicas": (1,), "directories": (an_id("1"),)},
        {"leader": -1},
    ],
)
def test_an_edited_partition_that_loses_nothing_is_applied(
    edit: dict[str, Any], empty: Path
) -> None:
    assert apply(edited(plan_of_disks(*ORDERS), **edit), empty).exit_status == 0


def test_a_leader_that_was_set_is_no_edit(empty: Path) -> None:
    plan = plan_of_disks(*ORDERS, settings=[("topic.orders.partition.0.leader", "2")])
    accepted = replace(plan, is_loss_accepted=True)
    assert apply(accepted, empty).exit_status == 0


def test_an_edit_that_leaves_directories_behind_is_refused(empty: Path) -> None:
    plan = plan_of_disks(disk(1, replica("orders"), replica("orders", 1)))
    (topic,) = plan.topics
    for changed, what in (
        (replace(topic, topic_id=an_id("another")), f"topic.orders.id={an_id('another')}"),
        (replace(topic, partitions=topic.partitions[:1]), "topic.orders.partitions=1"),
    ):
        outcome = apply(replace(plan, topics=(changed,)), empty)
        assert outcome.exit_status == 4
        assert what in outcome.stderr.decode()
    # Somebody who deletes the topic from the plan wants that.
    assert apply(replace(plan, topics=()), empty).exit_status == 0


def test_an_edited_level_that_cannot_hold_credentials_is_refused(
    plan: ClusterPlan, empty: Path
) -> None:
    """The plan names what its own level cannot hold; an edit is not accepted with it."""
    features = tuple(
        replace(each, level=8) if each.name == "metadata.version" else each
        for each in plan.features
    )
    edited = replace(plan, features=features, is_loss_accepted=True, kraft_version=0)
    outcome = apply(edited, empty, "--node-id=7")
    assert outcome.exit_status == 4
    assert "the plan loses something: SCRAM credentials" in outcome.stderr.decode()
    assert not contents_of(empty)


def test_a_brokers_copy_is_moved_aside_if_the_plan_says_so(disks: Path, plan: ClusterPlan) -> None:
    home = disks / "b1-d1"
    before = contents_of(home)
    text = (home / "meta.properties").read_text()
    directory_id = text.split("directory.id=")[1].split()[0]
    moved = MovedAside(1, "/elsewhere", directory_id, "it names itself")
    answer = apply(replace(plan, move_aside=(moved,)), home, "--output=jsonl")
    assert not list(problems_of_objects("metadata", all_objects(answer.stdout)))
    done = row_of(answer)
    assert [done["node_id"], done["snapshot"]] == [1, None]
    assert not (home / METADATA).exists()
    assert contents_of(home / done["moved_to"]) == {
        name.removeprefix(f"{METADATA}/"): data
        for name, data in before.items()
        if name.startswith(METADATA)
    }
    again = apply(replace(plan, move_aside=(moved,)), home)
    assert b"nothing to do" in again.stdout
    assert run("undo", home).exit_status == 0
    assert contents_of(home) == before


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"format":"kdump metadata plan"}'])
def test_a_file_that_is_no_plan_is_refused(content: bytes, empty: Path) -> None:
    file = empty.parent / "plan.json"
    file.write_bytes(content)
    done = run("metadata", "apply", file, empty)
    assert done.exit_status == 16
    assert str(file) in done.stderr.decode()
    assert not list(empty.iterdir())


def test_secrets_of_the_plan_are_not_printed(plan: ClusterPlan, empty: Path) -> None:
    secrets = [str(each.data[name]) for each in plan.scram for name in ("salt", "storedKey")]
    assert secrets
    for options in (("--output=json",), ("--dry-run", "--verbose"), ("-v",)):
        done = apply(plan, empty, "--node-id=7", *options)
        said = (done.stdout + done.stderr).decode()
        assert not [secret for secret in secrets if secret in said]


def test_a_record_of_the_plan_that_cannot_be_written_is_named(
    plan: ClusterPlan, empty: Path
) -> None:
    topic = replace(
        plan.topics[0], configs=(PlannedConfig("a" * 40_000, "v", plan.topics[0].source),)
    )
    done = apply(replace(plan, topics=(topic, *plan.topics[1:])), empty, "--node-id=7")
    assert done.exit_status == 8
    assert b"name: longer than 32767 bytes" in done.stderr
    assert not list(empty.iterdir())


def test_two_controllers_with_one_directory_id_are_refused(plan: ClusterPlan, empty: Path) -> None:
    controllers = (NEW, replace(OLD, directory_id=NEW.directory_id))
    done = apply(replace(plan, controllers=controllers), empty, "--node-id=7")
    assert done.exit_status == 16
    assert b"2 voters have the directory id" in done.stderr


def test_a_file_or_a_missing_directory_is_refused(plan: ClusterPlan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "missing"):
        done = apply(plan, tmp_path / name, "--node-id=7")
        assert done.exit_status == 8
        assert name in done.stderr.decode()


@pytest.mark.slow
def test_ten_thousand_partitions(plan: ClusterPlan, empty: Path) -> None:
    topic = next(each for each in plan.topics if each.partitions)
    one = topic.partitions[0]
    many = replace(
        topic, partitions=tuple(replace(one, partition=number) for number in range(10_000))
    )
    others = tuple(each for each in plan.topics if each is not topic)
    assert apply(replace(plan, topics=(many, *others)), empty, "--node-id=7").exit_status == 0
    assert len(read_image(empty).of(EntityKind.PARTITION)) > 10_000


@pytest.mark.parametrize(
    ("name", "topic_id"),
    [
        ("../../etc", None),
        ("a/b", None),
        ("..", None),
        ("", None),
        ("a" * 250, None),
        ("a\nb", None),
        (CLUSTER_METADATA_TOPIC, None),
        (None, "AAAAAAAAAAAAAAAAAAAAAQ"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    name: str | None, topic_id: str | None, plan: ClusterPlan, empty: Path
) -> None:
    first, *others = plan.topics
    forged = replace(first, name=first.name if name is None else name)
    forged = replace(forged, topic_id=topic_id or first.topic_id)
    done = apply(replace(plan, topics=(forged, *others)), empty, "--node-id=7")
    assert done.exit_status == 16
    assert not list(empty.iterdir())
