"""Checks across the directories of a broker, and of the permissions of its user."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.lock_holder import held_elsewhere
from builders.log_directories import (
    META_PROPERTIES,
    TOPIC_ID,
    TOPIC_ID_TEXT,
    offset_checkpoint,
    write_log_directory,
    write_partition,
)
from builders.metadata_log import (
    TOPIC_RESOURCE,
    config_record,
    partition_change_record,
    partition_record,
    topic_record,
    write_metadata_log,
)
from builders.verified import LogModel, findings_in
from kdump.check import directory as directory_checks
from kdump.check.findings import Finding, Severity
from kdump.check.part import Level
from kdump.check.partition import PartitionCheck
from kdump.check.scope import ClusterView, PartitionScope
from kdump.formats import names
from kdump.formats.names import TopicPartition
from kdump.formats.uuids import format_uuid
from kdump.jobs.verify.verify import VerifyRequest, verify
from kdump.log.directory import read_log_directory
from kdump.log.partition import read_partition
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import local
from kdump.storage.ownership import Ownership


def codes(findings: Iterable[Finding]) -> set[str]:
    return {each.code for each in findings}


@pytest.fixture
def two_disks(tmp_path: Path) -> tuple[Path, Path]:
    """Return two log directories of one broker; the first has a partition."""
    LogModel().write(tmp_path / "d1")
    write_log_directory(tmp_path / "d2")
    properties = META_PROPERTIES.replace(
        b"V1dW8O41RR6_pKmks-3sKg", format_uuid(uuid.UUID(int=7777)).encode()
    )
    (tmp_path / "d2" / names.META_PROPERTIES).write_bytes(properties)
    return tmp_path / "d1", tmp_path / "d2"


def test_two_directories_of_one_broker_are_valid(two_disks: tuple[Path, Path]) -> None:
    assert not findings_in(*two_disks, at_least=Severity.WARNING)


def test_directories_of_two_nodes_are_a_mismatch(two_disks: tuple[Path, Path]) -> None:
    path = two_disks[1] / names.META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(b"node.id=7", b"node.id=8"))
    assert codes(findings_in(*two_disks, at_least=Severity.WARNING)) == {"meta-properties-mismatch"}


def test_directories_of_two_clusters_are_a_mismatch(two_disks: tuple[Path, Path]) -> None:
    path = two_disks[1] / names.META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(b"a-cluster", b"another"))
    assert codes(findings_in(*two_disks, at_least=Severity.WARNING)) == {"meta-properties-mismatch"}


@pytest.mark.parametrize("has_own_line", [True, False])
def test_a_cleaner_line_for_a_log_in_another_directory_is_found_and_removed(
    has_own_line: bool, two_disks: tuple[Path, Path]
) -> None:
    for disk, is_there in zip(two_disks, (has_own_line, True), strict=True):
        line = offset_checkpoint({("orders", 0): 3} if is_there else {})
        (disk / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(line)
    (found,) = (
        each
        for each in findings_in(*two_disks, at_least=Severity.WARNING)
        if each.code == "cleaner-line-misplaced"
    )
    assert found.place.path == str(two_disks[1] / names.CLEANER_OFFSET_CHECKPOINT)
    assert ("after its next round" in found.what) is not has_own_line
    words = ["verify", "--repair", *map(str, two_disks)]
    assert run_kdump(words, two_disks[0].parent).exit_status == 1
    assert (two_disks[1] / names.CLEANER_OFFSET_CHECKPOINT).read_bytes() == b"0\n0\n"
    assert codes(findings_in(*two_disks)).isdisjoint({"cleaner-line-misplaced"})


def test_cleaner_lines_of_two_brokers_do_not_concern_each_other(
    two_disks: tuple[Path, Path],
) -> None:
    path = two_disks[1] / names.META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(b"node.id=7", b"node.id=8"))
    for disk in two_disks:
        line = offset_checkpoint({("orders", 0): 3})
        (disk / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(line)
    assert "cleaner-line-misplaced" not in codes(findings_in(*two_disks))


def test_a_copied_directory_has_the_id_of_the_other(two_disks: tuple[Path, Path]) -> None:
    (two_disks[1] / names.META_PROPERTIES).write_bytes(META_PROPERTIES)
    assert codes(findings_in(*two_disks, at_least=Severity.WARNING)) == {"directory-id-twice"}


def test_missing_meta_properties_are_reported(two_disks: tuple[Path, Path]) -> None:
    (two_disks[1] / names.META_PROPERTIES).unlink()
    assert "meta-properties-missing" in codes(findings_in(*two_disks))


def test_a_partition_in_two_directories_is_severe(two_disks: tuple[Path, Path]) -> None:
    shutil.copytree(two_disks[0] / "orders-0", two_disks[1] / "orders-0")
    found = findings_in(*two_disks, at_least=Severity.SEVERE)
    assert [each.code for each in found] == ["partition-twice"] * 2


def test_a_partition_being_moved_is_not_a_second_one(two_disks: tuple[Path, Path]) -> None:
    (two_disks[1] / "orders-0.184f5a4c945d4277a4671794019b3c74-future").mkdir()
    assert "partition-twice" not in codes(findings_in(*two_disks))


def test_a_partition_being_moved_within_its_directory_is_a_second_one(
    two_disks: tuple[Path, Path],
) -> None:
    log = two_disks[0] / "orders-0"
    copy = log.with_name("orders-0.184f5a4c945d4277a4671794019b3c74-future")
    shutil.copytree(log, copy)
    found = [each for each in findings_in(*two_disks) if each.code == "partition-twice"]
    assert {each.place.path for each in found} == {str(log), str(copy)}


@pytest.mark.parametrize(
    "name", [names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT]
)
def test_lines_of_a_log_are_not_held_against_a_copy_beside_it(
    two_disks: tuple[Path, Path], name: str
) -> None:
    log = two_disks[0] / "orders-0"
    write_partition(log.with_name("orders-0.184f5a4c945d4277a4671794019b3c74-future"))
    beyond = {"recovery-point-beyond-end", "log-start-beyond-end"}
    (log.parent / name).write_bytes(offset_checkpoint({("orders", 0): 18}))
    assert beyond.isdisjoint(codes(findings_in(*two_disks)))
    (log.parent / name).write_bytes(offset_checkpoint({("orders", 0): 19}))
    assert len([each for each in findings_in(*two_disks) if each.code in beyond]) == 1


def test_a_partition_being_moved_whose_log_is_lost_will_be_emptied(
    two_disks: tuple[Path, Path],
) -> None:
    moving = two_disks[1] / "orders-0.184f5a4c945d4277a4671794019b3c74-future"
    shutil.copytree(two_disks[0] / "orders-0", moving)
    assert "directory-future-alone" not in codes(findings_in(*two_disks))
    shutil.rmtree(two_disks[0] / "orders-0")
    (found,) = findings_in(*two_disks, at_least=Severity.WARNING)
    assert (found.code, found.place.path) == ("directory-future-alone", str(moving))


@pytest.mark.parametrize(
    ("node_id", "has_log", "is_found"), [(7, False, True), (8, False, False), (7, True, False)]
)
def test_a_stray_partition_that_is_assigned_here_is_found(
    node_id: int, has_log: bool, is_found: bool, two_disks: tuple[Path, Path]
) -> None:
    records = [
        topic_record("orders", TOPIC_ID.int),
        partition_record(TOPIC_ID.int, 0, [node_id], [7777]),
    ]
    write_metadata_log(two_disks[1], records)
    log = two_disks[0] / "orders-0"
    stray = two_disks[0] / "orders-0.184f5a4c945d4277a4671794019b3c74-stray"
    shutil.copytree(log, stray)
    if not has_log:
        shutil.rmtree(log)
    found = [each for each in findings_in(*two_disks) if each.code == "stray-assigned"]
    assert [each.place.path for each in found] == ([str(stray)] if is_found else [])


OF_DISKS = (uuid.UUID(bytes=base64.urlsafe_b64decode("V1dW8O41RR6_pKmks-3sKg==")).int, 7777)
"""The ids of the two disks."""
UNASSIGNED = 1


def write_assignment(
    disks: tuple[Path, Path],
    *,
    directory: int = OF_DISKS[0],
    replicas: tuple[int, ...] = (7, 8),
    isr: tuple[int, ...] = (7, 8),
) -> None:
    """Let the metadata on the second disk assign the partition of the first one."""
    directories = [directory if node == 7 else 5 for node in replicas]
    records = [
        topic_record("orders", TOPIC_ID.int),
        partition_record(TOPIC_ID.int, 0, replicas, directories),
        partition_change_record(TOPIC_ID.int, 0, isr=isr),
    ]
    write_metadata_log(disks[1], records)


def write_lines(disk: Path, *partitions: tuple[str, int]) -> None:
    lines = offset_checkpoint(dict.fromkeys(partitions, 18))
    (disk / names.REPLICATION_OFFSET_CHECKPOINT).write_bytes(lines)


def missing_in(*disks: Path, code: str = "partition-missing") -> list[Finding]:
    return [each for each in findings_in(*disks) if each.code == code]


@pytest.mark.parametrize("is_stray", [False, True])
@pytest.mark.parametrize(
    ("isr", "severity", "what"),
    [
        ((7,), Severity.SEVERE, "no other replica is in sync"),
        ((7, 8), Severity.SEVERE, "may lead with it"),
        ((8,), Severity.WARNING, "copies all records from the leader"),
    ],
)
def test_a_partition_without_a_log_is_as_bad_as_its_replica_was_in_sync(
    isr: tuple[int, ...],
    severity: Severity,
    what: str,
    is_stray: bool,
    two_disks: tuple[Path, Path],
) -> None:
    write_assignment(two_disks, isr=isr)
    write_lines(two_disks[0], ("orders", 0))
    assert not missing_in(*two_disks)
    log = two_disks[0] / "orders-0"
    stray = log.with_name(f"{log.name}.184f5a4c945d4277a4671794019b3c74-stray")
    if is_stray:
        log.rename(stray)
    else:
        shutil.rmtree(log)
    (found,) = missing_in(*two_disks, code="stray-assigned" if is_stray else "partition-missing")
    assert (found.severity, found.place.path) == (severity, str(stray if is_stray else log))
    assert what in found.what
    assert (found.loss is None) == (severity is Severity.WARNING)


@pytest.mark.parametrize(
    ("lost", "disks", "severity"),
    [
        ("b3-d1", ["b3-d1"], Severity.SEVERE),
        ("b2-d2", ["b2-d1", "b2-d2"], Severity.WARNING),
        ("b2-d2", ["b2-d2"], Severity.WARNING),
        ("b2-d2", ["b2-d1"], None),
    ],
)
def test_a_real_cluster_misses_a_replica_that_was_deleted(
    lost: str, disks: list[str], severity: Severity | None, fixtures: Path, tmp_path: Path
) -> None:
    for disk in {"b2-d1", *disks}:
        shutil.copytree(fixtures / "states" / "clean" / disk, tmp_path / disk)
    paths = [tmp_path / each for each in disks]
    metadata = str(tmp_path / ("b2-d1" if lost == "b2-d2" else lost))
    words = ["verify", "--quick", "--metadata", metadata, "--output", "jsonl", *map(str, paths)]

    def said() -> list[tuple[str, str]]:
        rows = objects(run_kdump(words, tmp_path).stdout)
        return [
            (row["severity"], row["path"]) for row in rows if row.get("code") == "partition-missing"
        ]

    assert said() == []
    if lost in disks:
        shutil.rmtree(tmp_path / lost / "orders-0")
    path = str(tmp_path / lost / "orders-0")
    assert said() == ([] if severity is None else [(severity.label, path)])


def test_an_empty_disk_has_lost_what_is_assigned_to_it(two_disks: tuple[Path, Path]) -> None:
    write_assignment(two_disks)
    for path in two_disks[0].iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != names.META_PROPERTIES:
            path.unlink()
    assert len(missing_in(*two_disks)) == 1


@pytest.mark.parametrize(
    "assignment",
    [
        {"replicas": (8, 9)},
        {"directory": OF_DISKS[1]},
        {"directory": 4711},
    ],
    ids=["another node", "another disk", "a disk that is not given"],
)
def test_what_may_be_elsewhere_is_not_missing(
    assignment: dict[str, Any], two_disks: tuple[Path, Path]
) -> None:
    write_assignment(two_disks, **assignment)
    write_lines(two_disks[0], ("orders", 0))
    shutil.rmtree(two_disks[0] / "orders-0")
    assert not missing_in(*two_disks)


@pytest.mark.parametrize(("others", "count"), [((), 1), ((4711,), 0)])
def test_a_line_tells_where_a_partition_was_if_all_disks_of_the_broker_are_given(
    others: tuple[int, ...], count: int, two_disks: tuple[Path, Path]
) -> None:
    write_assignment(two_disks, directory=UNASSIGNED)
    write_lines(two_disks[0], ("orders", 0))
    shutil.rmtree(two_disks[0] / "orders-0")
    directories = [read_log_directory(local(each)) for each in two_disks]
    image = read_settings(directories)[directories[0].path].cluster
    assert image is not None
    registered = tuple(format_uuid(uuid.UUID(int=each)) for each in (*OF_DISKS, *others))
    image = replace(image, log_dirs={7: registered})
    clusters = {each.path: image for each in directories}
    assert len(list(directory_checks.check_emptied(directories, clusters))) == count


def test_a_partition_without_a_line_was_not_there_before(two_disks: tuple[Path, Path]) -> None:
    write_assignment(two_disks)
    (two_disks[0] / "orders-0").rename(two_disks[0] / "users-0")
    write_lines(two_disks[0], ("users", 0))
    (two_disks[0] / names.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
    assert not missing_in(*two_disks)


@pytest.mark.parametrize("state", ["future", "delete", "stray"])
def test_a_partition_that_is_there_by_another_name_is_not_missing(
    state: str, two_disks: tuple[Path, Path]
) -> None:
    write_assignment(two_disks)
    write_lines(two_disks[0], ("orders", 0))
    log = two_disks[0] / "orders-0"
    log.rename(two_disks[1] / f"orders-0.184f5a4c945d4277a4671794019b3c74-{state}")
    assert not missing_in(*two_disks)


def test_a_link_to_a_disk_that_is_not_mounted_is_not_missing(two_disks: tuple[Path, Path]) -> None:
    write_assignment(two_disks)
    write_lines(two_disks[0], ("orders", 0))
    shutil.rmtree(two_disks[0] / "orders-0")
    (two_disks[0] / "orders-0").symlink_to("nowhere")
    assert not missing_in(*two_disks)
    assert "file-unreadable" in codes(findings_in(*two_disks))


@pytest.mark.parametrize("is_circle", [True, False])
@pytest.mark.parametrize("name", sorted(names.OFFSET_CHECKPOINTS))
def test_a_checkpoint_that_is_a_link_to_nothing_is_one_finding(
    name: str, is_circle: bool, two_disks: tuple[Path, Path]
) -> None:
    path = two_disks[0] / name
    path.unlink(missing_ok=True)
    path.symlink_to(name if is_circle else "nowhere")
    (found,) = (each for each in findings_in(*two_disks) if each.severity.is_damage)
    assert (found.code, found.place.path) == ("checkpoint-malformed", str(path))
    assert "directory offline" in found.what
    assert f"a symbolic link to {'itself' if is_circle else 'nothing'}" in found.what


@pytest.mark.parametrize("is_circle", [True, False])
def test_meta_properties_that_is_a_link_to_nothing_is_one_finding(
    is_circle: bool, two_disks: tuple[Path, Path]
) -> None:
    path = two_disks[1] / names.META_PROPERTIES
    path.unlink()
    path.symlink_to(path.name if is_circle else "nowhere")
    (found,) = (each for each in findings_in(*two_disks) if each.severity.is_damage)
    code = "meta-properties-malformed" if is_circle else "meta-properties-missing"
    assert (found.code, found.place.path) == (code, str(path))
    assert ("starts without this directory" in found.what) is is_circle


@pytest.mark.parametrize("target", ["nowhere", names.CLEAN_SHUTDOWN_MARKER])
def test_a_link_to_nothing_is_no_clean_shutdown_marker(
    target: str, two_disks: tuple[Path, Path]
) -> None:
    path = two_disks[0] / names.CLEAN_SHUTDOWN_MARKER
    path.unlink()
    path.symlink_to(target)
    assert not read_log_directory(local(two_disks[0])).is_clean
    (found,) = (each for each in findings_in(*two_disks) if each.severity > Severity.INFO)
    assert found.code == "clean-shutdown-malformed"
    assert "recovers all logs as after a crash" in found.what


@pytest.mark.parametrize(
    ("kind", "is_clean"), [("empty", True), ("full", False), ("link to a full one", True)]
)
def test_a_directory_is_a_clean_shutdown_marker_if_a_broker_can_delete_it(
    kind: str, is_clean: bool, two_disks: tuple[Path, Path]
) -> None:
    path = two_disks[0] / names.CLEAN_SHUTDOWN_MARKER
    path.unlink()
    if kind == "link to a full one":
        path.symlink_to("orders-0")
    else:
        path.mkdir()
    if kind == "full":
        (path / "x").touch()
    read = read_log_directory(local(two_disks[0]))
    assert (read.is_clean, read.refused) == (is_clean, ())
    (found,) = (each for each in findings_in(*two_disks) if each.severity > Severity.INFO)
    assert found.code == "clean-shutdown-malformed"
    assert found.severity is (Severity.WARNING if is_clean else Severity.SEVERE)
    assert ("takes the whole log directory offline" in found.what) is not is_clean


@pytest.mark.parametrize("is_started", [True, False])
def test_a_broker_that_was_started_meanwhile_may_have_made_the_partition(
    is_started: bool, two_disks: tuple[Path, Path]
) -> None:
    write_assignment(two_disks)
    write_lines(two_disks[0], ("orders", 0))
    shutil.rmtree(two_disks[0] / "orders-0")
    directories = [read_log_directory(local(each)) for each in two_disks]
    request = VerifyRequest([], directories, Level.QUICK, 0, read_settings(directories))
    with held_elsewhere(two_disks[0]) if is_started else contextlib.nullcontext():
        found = {each.code for each in verify(request) if isinstance(each, Finding)}
    assert ("partition-missing" in found) is not is_started


@pytest.mark.parametrize("code", ["partition-missing", "stray-assigned"])
def test_a_preview_of_the_recovery_says_what_is_missing(
    code: str, two_disks: tuple[Path, Path]
) -> None:
    write_assignment(two_disks)
    write_lines(two_disks[0], ("orders", 0))
    log = two_disks[0] / "orders-0"
    if code == "stray-assigned":
        log.rename(log.with_name(f"{log.name}.184f5a4c945d4277a4671794019b3c74-stray"))
    else:
        shutil.rmtree(log)
    words = ["recover", "--dry-run", *map(str, two_disks)]
    outcome = run_kdump(words, two_disks[0].parent)
    assert f"[{code}]".encode() in outcome.stdout
    assert outcome.exit_status & 4


def owned(mode: int, user: int, group: int, *, is_directory: bool = False) -> Ownership:
    return Ownership(user, group, mode, is_directory)


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (owned(0o600, 7, 7), ""),
        (owned(0o600, 0, 0), "read or write"),
        (owned(0o644, 0, 0), "write"),
        (owned(0o664, 0, 7), ""),
        (owned(0o400, 7, 7), "write"),
        (owned(0o600, 7, 7, is_directory=True), "enter"),
    ],
)
def test_a_broker_must_be_able_to_read_and_write_its_files(found: Ownership, missing: str) -> None:
    assert directory_checks.missing_access(found, 7, 7, "00000000000000000000.log") == missing


def test_snapshots_of_the_clusters_metadata_are_read_only() -> None:
    name = "00000000000000000010-0000000001.checkpoint"
    assert directory_checks.missing_access(owned(0o400, 7, 7), 7, 7, name) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_one_warning_with_a_count(tmp_path: Path) -> None:
    partition = LogModel().write(tmp_path / "logs")
    log = partition / "00000000000000000000.log"
    for path in (tmp_path / "logs", *(tmp_path / "logs").rglob("*")):
        os.chown(path, 4711, 4711)
    assert not findings_in(tmp_path / "logs", at_least=Severity.WARNING)
    os.chown(log, 0, 0)
    os.chown(log.with_suffix(".index"), 0, 0)
    os.chown(log.with_suffix(".timeindex"), 0, 0)
    found = findings_in(tmp_path / "logs", at_least=Severity.WARNING)
    (only,) = [each for each in found if each.code == "file-permissions"]
    assert only.severity is Severity.WARNING
    assert "2 more" in only.what


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("is_linked", [True, False])
def test_files_that_all_are_of_another_user_are_found(is_linked: bool, tmp_path: Path) -> None:
    partition = LogModel().write(tmp_path / "logs")
    os.chown(tmp_path / "logs", 4711, 4711)
    if is_linked:
        for path in (tmp_path / "logs").rglob("*"):
            os.chown(path, 4711, 4711)
        log = partition / "00000000000000000000.log"
        log.rename(tmp_path / log.name)
        log.symlink_to(tmp_path / log.name)
        os.chown(tmp_path / log.name, 0, 0)
    found = {each.code: each for each in findings_in(tmp_path / "logs")}
    assert ("more" in found["file-permissions"].what) is not is_linked
    assert ("symbolic-link" in found) is is_linked


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_that_no_broker_opens_may_be_another_users(tmp_path: Path) -> None:
    LogModel().write(tmp_path / "logs")
    for path in (tmp_path / "logs", *(tmp_path / "logs").rglob("*")):
        os.chown(path, 4711, 4711)
    (tmp_path / "logs" / "00000000000000000000.log").touch()
    assert not findings_in(tmp_path / "logs", at_least=Severity.WARNING)


@pytest.mark.parametrize("cluster_id", [b"a-cluster", b"another"])
def test_topic_ids_are_those_of_the_directorys_own_cluster(
    two_disks: tuple[Path, Path], cluster_id: bytes
) -> None:
    write_metadata_log(two_disks[1], [topic_record("orders", 4711)])
    path = two_disks[1] / names.META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(b"a-cluster", cluster_id))
    found = codes(findings_in(*two_disks, at_least=Severity.SEVERE))
    assert ("partition-metadata-mismatch" in found) == (cluster_id == b"a-cluster")


@pytest.mark.parametrize(
    ("cluster", "code"),
    [
        (ClusterView(None), "partition-metadata-mismatch"),
        (ClusterView("AAAAAAAAAAAAAAAAAAAAAQ"), "partition-metadata-mismatch"),
        (ClusterView(TOPIC_ID_TEXT, "orders", (), 7), "partition-not-assigned"),
        (ClusterView(TOPIC_ID_TEXT, "orders", (8, 9), 7), "partition-not-assigned"),
        (ClusterView(None, "bills", (7,), 7), "partition-metadata-other-topic"),
        (ClusterView(TOPIC_ID_TEXT, "orders", (8, 7), 7), None),
        (ClusterView(TOPIC_ID_TEXT, "orders", (8,), None), None),
        (ClusterView(TOPIC_ID_TEXT, "orders", None, 7), None),
    ],
)
def test_a_partition_that_is_not_the_brokers_is_severe(
    cluster: ClusterView, code: str | None, tmp_path: Path
) -> None:
    path = LogModel().write(tmp_path / "logs")
    partition = read_partition(local(path), TopicPartition("orders", 0))
    check = PartitionCheck(PartitionScope(partition, cluster=cluster), Level.QUICK)
    found = [each.code for each in check.finish() if each.severity is Severity.SEVERE]
    assert found == ([] if code is None else [code])


@pytest.mark.parametrize(
    "cluster", [ClusterView(None), ClusterView(TOPIC_ID_TEXT, "orders", (8,), 7)]
)
def test_only_what_the_controllers_know_decides_what_becomes_stray(
    cluster: ClusterView, tmp_path: Path
) -> None:
    path = LogModel().write(tmp_path / "logs")
    partition = read_partition(local(path), TopicPartition("orders", 0))
    check = PartitionCheck(PartitionScope(partition, cluster=cluster), Level.QUICK)
    (found,) = [each for each in check.finish() if each.severity is Severity.SEVERE]
    assert "-stray, unless the controllers have newer metadata" in found.what


def test_a_refused_configuration_is_severe(
    two_disks: tuple[Path, Path],
) -> None:
    too_small = config_record(TOPIC_RESOURCE, "orders", "segment.bytes", "16384")
    ignored = config_record(TOPIC_RESOURCE, "orders", "message.format.version", "0.10.2")
    write_metadata_log(two_disks[1], [topic_record("orders", 4711), too_small, ignored])
    found = [each for each in findings_in(*two_disks) if each.code == "topic-config-refused"]
    assert [(each.severity, each.found) for each in found] == [(Severity.SEVERE, "16384")]
    preview = run_kdump(["recover", "--dry-run", *map(str, two_disks)], Path.cwd())
    assert b"segment.bytes of topic orders" in preview.stdout
