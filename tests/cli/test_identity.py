"""``kdump identity``: why a node does not start, and the meta.properties with which it does."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.lock_holder import held_elsewhere
from builders.log_directories import META_PROPERTIES, write_log_directory
from builders.metadata_log import partition_record, topic_record, write_metadata_log
from builders.trees import contents_of
from builders.two_disks import write_two_disks
from kdump.formats import names
from kdump.formats.meta_properties import MetaProperties, decode_meta_properties
from kdump.formats.uuids import format_uuid

OWN_ID: Final = "V1dW8O41RR6_pKmks-3sKg"
OTHER_ID: Final = "3VrJIfeFdYrrH_6uDMIANg"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return the directory around the two log directories of a node, the first with metadata."""
    write_log_directory(tmp_path / "d1")
    write_metadata_log(tmp_path / "d1", [topic_record("orders", 1)])
    write_log_directory(tmp_path / "d2")
    replace(tmp_path / "d2", OWN_ID, OTHER_ID)
    return tmp_path


@pytest.fixture
def controller(fixtures: Path, tmp_path: Path) -> Path:
    """Return the directory of a real node that is one of the dynamic voters."""
    shutil.copytree(fixtures / "out/clean/d1", tmp_path / "c1")
    return tmp_path / "c1"


def replace(log_dir: Path, old: str, new: str) -> None:
    path = log_dir / names.META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))


def properties(log_dir: Path) -> MetaProperties:
    return decode_meta_properties((log_dir / names.META_PROPERTIES).read_bytes())


def identity(node: Path, *args: str) -> Outcome:
    return run_kdump(["identity", *args], node)


def rows(node: Path, *args: str) -> list[dict[str, Any]]:
    return objects(identity(node, *args, "--output", "jsonl").stdout)


def codes(found: list[dict[str, Any]]) -> list[str]:
    return [each["code"] for each in found if each["type"] == "finding"]


def server_properties(node: Path, **given: str) -> str:
    """Write a properties file; the names have ``_`` for the dot."""
    lines = {
        "process.roles": "broker",
        "node.id": "7",
        "log.dirs": f"{node}/d1,{node}/d2",
        **{key.replace("_", "."): value for key, value in given.items()},
    }
    path = node / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return f"--server-properties={path}"


def test_a_node_with_consistent_directories_starts(node: Path) -> None:
    outcome = identity(node, "d1", "d2", server_properties(node))

    assert outcome.exit_status == 0
    assert outcome.stdout.decode().endswith(
        "node 7 of cluster a-cluster starts on these 2 directories if it can load the logs, which"
        " kdump recover --dry-run says\n"
    )


def test_a_new_empty_disk_has_no_identity_and_gets_one(node: Path) -> None:
    (node / "d3" / "lost+found").mkdir(parents=True)

    found = rows(node, "d1", "d2", "d3")
    assert codes(found) == ["meta-properties-missing"]
    assert found[-1]["refusal_path"] == "d3/meta.properties"

    assert identity(node, "--repair", "d1", "d2", "d3").exit_status == 1
    assert identity(node, "d1", "d2", "d3").exit_status == 0
    new = properties(node / "d3")
    assert (new.cluster_id, new.node_id) == ("a-cluster", 7)
    assert new.directory_id is not None


def test_the_advice_is_a_command_that_repairs(node: Path) -> None:
    (node / "d2" / names.META_PROPERTIES).write_bytes(b"version=2\n")

    said = identity(node, "d1", "d2").stdout.decode()
    (advised,) = re.findall(r"to write meta.properties: kdump (.*)", said)

    assert run_kdump(advised.split(), node).exit_status == 1
    assert identity(node, "d1", "d2").exit_status == 0


def test_a_preview_and_a_check_write_nothing(node: Path) -> None:
    (node / "d2" / names.META_PROPERTIES).unlink()
    before = contents_of(node)

    assert identity(node, "d1", "d2").exit_status == 4
    assert identity(node, "--repair", "--dry-run", "d1", "d2").exit_status == 1
    assert contents_of(node) == before


def test_a_repair_is_undone(node: Path) -> None:
    (node / "d2" / names.META_PROPERTIES).write_bytes(b"garbage")
    before = contents_of(node)

    identity(node, "--repair", "d1", "d2")
    assert contents_of(node) != before
    assert run_kdump(["undo", "d2"], node).exit_status == 0
    assert contents_of(node) == before


@pytest.mark.parametrize(
    ("old", "new", "option", "value"),
    [
        ("cluster.id=a-cluster", "cluster.id=another", "--cluster-id", "a-cluster"),
        ("node.id=7", "node.id=8", "--node-id", "7"),
    ],
)
def test_ids_that_disagree_are_asked_for_and_not_chosen(
    node: Path, old: str, new: str, option: str, value: str
) -> None:
    write_log_directory(node / "d3")
    replace(node / "d3", OWN_ID, "AAAAAAAAAAEAAAAAAAAAAA")
    replace(node / "d2", old, new)
    paths = ("d1", "d2", "d3")
    before = contents_of(node)

    refused = identity(node, "--repair", *paths)
    assert refused.exit_status == 16
    assert "2 directories" in refused.stderr.decode()
    assert option in refused.stderr.decode()
    assert contents_of(node) == before

    assert identity(node, "--repair", option, value, *paths).exit_status == 1
    assert identity(node, *paths).exit_status == 0


def test_disks_of_several_nodes_are_to_be_named_one_node_at_a_time(node: Path) -> None:
    replace(node / "d2", "node.id=7", "node.id=8")
    assert "name those of one node at a time" in identity(node, "d1", "d2").stdout.decode()


def test_a_cluster_that_no_directory_names_is_a_warning(node: Path) -> None:
    said = identity(node, "--repair", "--cluster-id", "typo", "d1", "d2").stdout.decode()
    assert "no directory had the cluster id typo" in said


def test_of_two_directories_with_one_id_the_copy_has_to_be_named(node: Path) -> None:
    (node / "d2" / names.META_PROPERTIES).write_bytes(META_PROPERTIES)

    assert codes(rows(node, "d1", "d2")) == ["directory-id-twice"]
    assert identity(node, "--repair", "d1", "d2").exit_status == 16
    assert identity(node, "--repair", "--directory-id", "d2=new", "d1", "d2").exit_status == 1
    assert identity(node, "d1", "d2").exit_status == 0
    assert properties(node / "d1").directory_id != properties(node / "d2").directory_id


@pytest.mark.parametrize(
    "directory_id", ["AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAg", OWN_ID]
)
def test_reserved_and_taken_directory_ids_are_refused(node: Path, directory_id: str) -> None:
    given = f"d2={directory_id}"
    assert identity(node, "--repair", "--directory-id", given, "d1", "d2").exit_status == 16


def test_a_reserved_directory_id_is_replaced(node: Path) -> None:
    replace(node / "d2", OTHER_ID, "AAAAAAAAAAAAAAAAAAAAAQ")

    assert codes(rows(node, "d1", "d2")) == ["directory-id-reserved"]
    said = identity(node, "--repair", "d1", "d2").stdout.decode()
    assert "the controllers do not know a new directory id" in said
    assert identity(node, "d1", "d2").exit_status == 0


def misplace(node: Path) -> str:
    return server_properties(node, metadata_log_dir=f"{node}/d2")


def leave_out(node: Path) -> str:
    return server_properties(node, log_dirs=f"{node}/d1")


def name_a_third(node: Path) -> str:
    return server_properties(node, log_dirs=f"{node}/d1,{node}/d2,{node}/d3")


def name_one_twice(node: Path) -> str:
    (node / "link").symlink_to("d1")
    return server_properties(
        node, log_dirs=f"{node}/d2,{node}/d1,{node}/link", metadata_log_dir=f"{node}/d1"
    )


def be_a_static_voter(node: Path) -> str:
    return server_properties(node, controller_quorum_voters="7@a:1,8@b:1")


def be_a_controller_without_a_vote(node: Path) -> str:
    return server_properties(
        node, process_roles="controller", controller_quorum_voters="8@a:1,9@b:1"
    )


def be_another_node(node: Path) -> str:
    return server_properties(node, node_id="9")


@pytest.mark.parametrize(
    ("write", "code"),
    [
        (misplace, "metadata-misplaced"),
        (leave_out, "log-dirs-mismatch"),
        (name_a_third, "log-dirs-mismatch"),
        (name_one_twice, "log-dirs-mismatch"),
        (be_a_static_voter, "voters-mismatch"),
        (be_a_controller_without_a_vote, "voters-mismatch"),
        (be_another_node, "meta-properties-mismatch"),
    ],
)
def test_a_properties_file_that_does_not_fit(
    node: Path, write: Callable[[Path], str], code: str
) -> None:
    outcome = rows(node, "d1", "d2", write(node))
    assert code in codes(outcome)


def test_copies_of_directories_are_found_by_the_ends_of_their_names(node: Path) -> None:
    option = server_properties(node, log_dirs="/data/1/d1,/data/2/d2")

    outcome = identity(node, "d1", "d2", option)

    assert outcome.exit_status == 0
    assert "taken for /data/2/d2" in outcome.stdout.decode()


def test_a_voter_with_another_directory_id_never_votes(controller: Path) -> None:
    was = properties(controller).directory_id
    assert was is not None
    replace(controller, format_uuid(was), OTHER_ID)

    outcome = identity(controller, ".")
    said = outcome.stdout.decode()
    assert outcome.exit_status == 4
    assert "voters-mismatch" in said
    assert "starts on this directory" not in said
    assert f"--controller-directory-id {format_uuid(was)}" in said
    (advised,) = re.findall(r"formatted since: kdump (.*)", said)

    assert run_kdump(advised.split(), controller).exit_status == 1
    assert identity(controller, ".").exit_status == 0
    assert properties(controller).directory_id == was


@pytest.mark.parametrize("command", [("verify",), ("recover", "--dry-run")])
def test_verify_and_recover_find_it_too(controller: Path, command: tuple[str, ...]) -> None:
    was = properties(controller).directory_id
    assert was is not None
    words = (*command, "--output", "jsonl", ".")
    assert "voters-mismatch" not in codes(objects(run_kdump(words, controller).stdout))
    replace(controller, format_uuid(was), OTHER_ID)
    assert "voters-mismatch" in codes(objects(run_kdump(words, controller).stdout))


def test_the_only_voter_with_another_directory_id_keeps_a_broker_from_starting(
    controller: Path,
) -> None:
    own = properties(controller)
    assert own.directory_id is not None
    options = {"log_dirs": str(controller), "node_id": str(own.node_id)}
    option = server_properties(controller, process_roles="broker,controller", **options)
    replace(controller, format_uuid(own.directory_id), OTHER_ID)
    found = rows(controller, ".", option)
    assert "voters-mismatch" in codes(found)
    assert found[-1]["is_startable"] is False


def test_a_controller_that_lost_its_properties_gets_the_id_of_its_voter(controller: Path) -> None:
    before = properties(controller)
    (controller / names.META_PROPERTIES).unlink()
    assert before.cluster_id is not None

    given = ("--cluster-id", before.cluster_id, "--node-id", str(before.node_id))
    assert identity(controller, "--repair", *given, ".").exit_status == 1

    assert properties(controller) == before


@pytest.mark.parametrize("dry_run", [["--dry-run"], []])
def test_a_controller_does_not_become_a_node_that_its_metadata_does_not_have(
    controller: Path, dry_run: list[str]
) -> None:
    cluster_id = properties(controller).cluster_id
    assert cluster_id is not None
    (controller / names.META_PROPERTIES).unlink()
    before = contents_of(controller)
    args = ("--repair", *dry_run, "--cluster-id", cluster_id, "--node-id", "99")

    refused = identity(controller, *args, ".")

    assert refused.exit_status == 16
    said = b" ".join(refused.stderr.split())
    assert b"has no node 99: its voters are 1, its brokers 1; give --node-id" in said
    assert contents_of(controller) == before
    assert identity(controller, *args, "--directory-id", ".=new", ".").exit_status & 1


def test_a_former_combined_node_as_a_broker_is_still_a_voter(controller: Path) -> None:
    own = properties(controller)
    option = server_properties(controller, log_dirs=str(controller), node_id=str(own.node_id))
    assert "voters-mismatch" in codes(rows(controller, ".", option))


def test_a_malformed_quorum_state_keeps_a_controller_from_starting(controller: Path) -> None:
    (controller / "__cluster_metadata-0" / names.QUORUM_STATE).write_bytes(b'{"data_version":2}')
    found = rows(controller, ".")
    assert codes(found) == ["quorum-state-malformed"]
    assert found[-1]["is_startable"] is False


def test_a_directory_of_another_program_is_refused(node: Path) -> None:
    (node / "etc").mkdir()
    (node / "etc" / "passwd").touch()
    outcome = identity(node, "--repair", "--cluster-id", "a", "--node-id", "1", "etc")
    assert outcome.exit_status == 8
    assert sorted(path.name for path in (node / "etc").iterdir()) == ["passwd"]


@pytest.mark.parametrize(
    "args",
    [("--cluster-id", "a"), ("--node-id", "1"), ("--directory-id", "d1=new"), ("--dry-run",)],
)
def test_options_of_a_repair_require_it(node: Path, args: tuple[str, ...]) -> None:
    assert identity(node, *args, "d1").exit_status == 16


def test_a_running_broker_is_named(node: Path) -> None:
    with held_elsewhere(node / "d2") as process_id:
        found = rows(node, "d1", "d2")
        assert identity(node, "--repair", "--cluster-id", "x", "d1", "d2").exit_status == 8
    assert found[0]["in_use_by"] is None
    assert str(process_id) in found[1]["in_use_by"]


def test_a_preview_says_what_would_be(node: Path) -> None:
    (node / "d2" / names.META_PROPERTIES).unlink()
    said = identity(node, "--repair", "--dry-run", "d1", "d2").stdout.decode()
    assert said.endswith(
        "would start on these 2 directories if it can load the logs, which"
        " kdump recover --dry-run says\n"
    )


def test_a_file_that_cannot_be_read_keeps_the_node_from_starting(node: Path) -> None:
    path = node / "d1" / names.META_PROPERTIES
    path.unlink()
    os.mkfifo(path)

    outcome = identity(node, "d1", "d2")

    assert outcome.exit_status == 12
    assert "does not start: d1/meta.properties" in outcome.stdout.decode()


@pytest.mark.parametrize(("exists", "is_startable"), [(True, True), (False, False)])
def test_a_log_directory_that_does_not_exist_keeps_the_node_from_starting(
    node: Path, exists: bool, is_startable: bool
) -> None:
    if exists:
        (node / "d3").mkdir()
    found = rows(node, "d1", "d2", name_a_third(node))
    assert codes(found) == ["log-dirs-mismatch"]
    assert found[-1]["is_startable"] is is_startable


# --- a disk that is empty, or missing


def with_one_in_sync(node: Path) -> None:
    """Let node 7 have two partitions, and alone be in sync for the first."""
    values = [topic_record("orders", 1)]
    values += [partition_record(1, 0, [7], [5]), partition_record(1, 1, [7, 8], [5, 6])]
    shutil.rmtree(node / "d1" / f"{names.CLUSTER_METADATA_TOPIC}-0")
    write_metadata_log(node / "d1", values)


@pytest.mark.parametrize(
    "options", [(), ("--repair", "--dry-run"), ("--repair", "--directory-id", "d2=new")]
)
@pytest.mark.parametrize("disks", [("d1", "d2"), ("d1",)], ids=["empty", "left out"])
def test_partitions_without_another_replica_in_sync_are_said(
    disks: tuple[str, ...], options: tuple[str, ...], node: Path
) -> None:
    with_one_in_sync(node)
    if len(disks) == 1 and "d2=new" in options:
        return
    text = " ".join(identity(node, *options, *disks).stdout.decode().split())
    assert "1 partition without another replica in sync, and in none of these" in text
    assert "directories: orders-0" in text
    assert "do not start the broker yet" in text
    assert rows(node, *disks)[-1]["alone_in_sync"] == ["orders-0"]


def test_a_partition_that_is_here_is_not_said(node: Path) -> None:
    with_one_in_sync(node)
    (node / "d2" / "orders-0").mkdir()
    assert "do not start" not in identity(node, "d1", "d2").stdout.decode()
    assert rows(node, "d1", "d2")[-1]["alone_in_sync"] == []


def test_without_a_copy_it_is_not_known(node: Path) -> None:
    shutil.rmtree(node / "d1" / f"{names.CLUSTER_METADATA_TOPIC}-0")
    found = identity(node, "d1", "d2")
    assert "no copy of the metadata is here: it is not known" in found.stdout.decode()
    assert rows(node, "d1", "d2")[-1]["alone_in_sync"] is None


THEIR_ID: Final = "5T29MhdG8UOI8Y5PDbj76Q"


@pytest.fixture(scope="module")
def cluster(fixtures: Path) -> Path:
    """Return the directory of the disks of a real cluster."""
    return fixtures / "states/clean"


def test_the_disks_of_a_real_cluster_are_those_of_their_nodes(cluster: Path) -> None:
    for disks in (("b1-d1",), ("b2-d1", "b2-d2"), ("b3-d1",), ("c1001",)):
        assert codes(rows(cluster, *disks)) == [], disks


def test_a_disk_with_the_properties_of_another_broker_is_that_of_its_partitions(
    cluster: Path, tmp_path: Path
) -> None:
    shutil.copytree(cluster / "b3-d1", tmp_path / "b3-d1")
    shutil.copy(cluster / "b1-d1" / names.META_PROPERTIES, tmp_path / "b3-d1")

    found = rows(tmp_path, "b3-d1")

    assert codes(found) == ["directory-of-other-node"]
    (other,) = (each for each in found if each["type"] == "finding")
    assert other["severity"] == "severe"
    assert other["expected"] == f"node 3, directory {THEIR_ID}"
    assert found[-1]["is_startable"]
    outcome = identity(tmp_path, "b3-d1")
    assert outcome.exit_status == 4
    text = outcome.stdout.decode()
    assert "starts on this directory, but see above" in text
    (command,) = re.findall(r"kdump identity (--repair .*)", text)
    identity(tmp_path, *command.split())
    after = properties(tmp_path / "b3-d1")
    assert (after.node_id, after.directory_id and format_uuid(after.directory_id)) == (3, THEIR_ID)
    assert codes(rows(tmp_path, "b3-d1")) == []
    assert identity(tmp_path, "b3-d1").exit_status == 0


def test_a_broker_that_lost_all_properties_gets_the_ids_of_its_partitions(
    cluster: Path, tmp_path: Path
) -> None:
    """Also in the directory with the metadata: with a new id, some had no leader at first."""
    disks = ("b2-d1", "b2-d2")
    for disk in disks:
        shutil.copytree(cluster / disk, tmp_path / disk)
        (tmp_path / disk / names.META_PROPERTIES).unlink()
    cluster_id = properties(cluster / "b2-d1").cluster_id or ""

    given = ("--cluster-id", cluster_id, "--node-id", "2")
    assert identity(tmp_path, "--repair", *given, *disks).exit_status == 1

    assert [properties(tmp_path / disk) for disk in disks] == [
        properties(cluster / disk) for disk in disks
    ]


def test_verify_says_whose_disk_it_is(cluster: Path, tmp_path: Path) -> None:
    shutil.copytree(cluster / "b3-d1", tmp_path / "b3-d1")
    shutil.copy(cluster / "b1-d1" / names.META_PROPERTIES, tmp_path / "b3-d1")
    args = ["verify", "b3-d1", "--quick", "--engine", "local", "--output", "jsonl"]
    found = objects(run_kdump(args, tmp_path).stdout)
    assert "directory-of-other-node" in codes(found)


def test_an_unknown_directory_id_is_a_warning(cluster: Path, tmp_path: Path) -> None:
    shutil.copytree(cluster / "b3-d1", tmp_path / "b3-d1")
    replace(tmp_path / "b3-d1", THEIR_ID, OWN_ID)

    found = rows(tmp_path, "b3-d1")

    (other,) = (each for each in found if each["type"] == "finding")
    assert (other["code"], other["severity"]) == ("directory-id-unknown", "warning")
    assert other["expected"] == f"node 3, directory {THEIR_ID}"
    assert f"--directory-id b3-d1={THEIR_ID}" in identity(tmp_path, "b3-d1").stdout.decode()


def test_partitions_that_were_reassigned_do_not_make_it_another_disk(node: Path) -> None:
    values = [topic_record("orders", 1)]
    values += [partition_record(1, number, [8], [5]) for number in range(8)]
    shutil.rmtree(node / "d1" / f"{names.CLUSTER_METADATA_TOPIC}-0")
    write_metadata_log(node / "d1", values)
    for number in range(8):
        (node / "d2" / f"orders-{number}").mkdir()
    assert "directory-of-other-node" not in codes(rows(node, "d1", "d2"))


@pytest.mark.parametrize("command", ["identity", "recover"])
def test_the_log_directory_of_a_partition_is_named_as_it_was_given(
    quick_path: Path, command: str
) -> None:
    write_two_disks(quick_path)
    outcome = run_kdump([command, "d1/users-0"], quick_path)
    expected = "kdump: d1/users-0 is a partition: name its log directory, d1\n"
    assert (outcome.stderr.decode(), outcome.exit_status) == (expected, 16)


def test_the_directory_around_log_directories_names_them(quick_path: Path) -> None:
    write_two_disks(quick_path)
    outcome = run_kdump(["identity", "."], quick_path)
    expected = (
        "kdump: .: not a Kafka log directory, and not empty; it contains log directories: d1 d2"
    )
    assert expected in outcome.stderr.decode()
