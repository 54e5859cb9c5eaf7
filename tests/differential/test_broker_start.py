"""kdump's predictions of a broker's start match a real broker.

Each case changes a copy of a broker's two directories after a clean shutdown. kdump predicts the
result of a start, and a broker is started on the same files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.broker import PATIENT_FOR_10_S, BrokerHost, RequestFailed
from builders.freeing import of_type, rows_of
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.loading import Clock, LoaderServer
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names

pytestmark = [pytest.mark.differential, pytest.mark.slow]

Change = Callable[[Path, Path], None]

VICTIM: Final = "compact.basic"
"""A topic with one partition, in the second directory."""
OTHER: Final = "grown"
"""A topic with two partitions in the second directory, and one in the first."""
NO_TOPIC: Final = "AAAAAAAAAAAAAAAAAAEAAA"


@dataclass(frozen=True, slots=True)
class Start:
    """The result of a start.

    Attributes:
        starts: whether the broker starts.
        offline: names of the log directories that are offline.
        stray: names of the partition directories that the broker renames to ``-stray``.
        unserved: names of partitions that it loads but does not serve.
    """

    starts: bool
    offline: frozenset[str] = frozenset()
    stray: frozenset[str] = frozenset()
    unserved: frozenset[str] = frozenset()


REFUSED: Final = Start(starts=False)


def write(directory: Path, content: str, name: str = names.META_PROPERTIES) -> None:
    path = directory / name
    path.unlink(missing_ok=True)  # some are read-only
    path.write_text(content)


def with_property(directory: Path, key: str, value: str) -> None:
    """Set another value for ``key`` in ``meta.properties``."""
    content = (directory / names.META_PROPERTIES).read_text()
    write(directory, re.sub(rf"(?m)^{key}=.*$", f"{key}={value}", content))


def with_topic_id(partition: Path, topic_id: str) -> None:
    write(partition, f"version: 0\ntopic_id: {topic_id}", names.PARTITION_METADATA)


def empty_meta_properties(d1: Path, d2: Path) -> None:
    write(d2, "")


def no_meta_properties(d1: Path, d2: Path) -> None:
    (d2 / names.META_PROPERTIES).unlink()


def no_meta_properties_anywhere(d1: Path, d2: Path) -> None:
    for each in (d1, d2):
        (each / names.META_PROPERTIES).unlink()


def malformed_meta_properties_beside_the_metadata(d1: Path, d2: Path) -> None:
    with_property(d1, "version", "9")


def malformed_meta_properties(d1: Path, d2: Path) -> None:
    with_property(d2, "version", "9")


def a_directory_in_the_place_of_meta_properties(d1: Path, d2: Path) -> None:
    (d2 / names.META_PROPERTIES).unlink()
    (d2 / names.META_PROPERTIES).mkdir()


def another_cluster(d1: Path, d2: Path) -> None:
    with_property(d2, "cluster.id", "another")


def another_node(d1: Path, d2: Path) -> None:
    with_property(d2, "node.id", "2")


def no_cluster_id(d1: Path, d2: Path) -> None:
    write(d2, "version=0\nbroker.id=1\n")


def no_directory_id(d1: Path, d2: Path) -> None:
    content = (d2 / names.META_PROPERTIES).read_text()
    write(d2, re.sub(r"(?m)^directory\.id=.*\n", "", content))


def a_copied_directory_id(d1: Path, d2: Path) -> None:
    shutil.copy(d1 / names.META_PROPERTIES, d2 / names.META_PROPERTIES)


def a_reserved_directory_id(d1: Path, d2: Path) -> None:
    with_property(d2, "directory.id", "AAAAAAAAAAAAAAAAAAAAAQ")


def a_negative_directory_id(d1: Path, d2: Path) -> None:
    with_property(d2, "directory.id", "AAAAAAAAAAD__________w")


def no_directory_id_of_the_only_voter(d1: Path, d2: Path) -> None:
    lines = (d1 / names.META_PROPERTIES).read_text().splitlines(keepends=True)
    write(d1, "".join(line for line in lines if not line.startswith("directory.id=")))


def metadata_in_two_directories(d1: Path, d2: Path) -> None:
    name = f"{names.CLUSTER_METADATA_TOPIC}-0"
    shutil.copytree(d1 / name, d2 / name)


def an_empty_bootstrap_checkpoint(d1: Path, d2: Path) -> None:
    write(d1, "", names.BOOTSTRAP_CHECKPOINT)


def an_empty_bootstrap_checkpoint_elsewhere(d1: Path, d2: Path) -> None:
    write(d2, "", names.BOOTSTRAP_CHECKPOINT)


def no_bootstrap_checkpoint(d1: Path, d2: Path) -> None:
    (d1 / names.BOOTSTRAP_CHECKPOINT).unlink()


def a_cut_metadata_snapshot(d1: Path, d2: Path) -> None:
    *_, newest = sorted(d1.glob(f"{names.CLUSTER_METADATA_TOPIC}-0/*.checkpoint"))
    os.truncate(newest, newest.stat().st_size // 2)


def a_directory_in_the_place_of_a_metadata_snapshot(d1: Path, d2: Path) -> None:
    *_, newest = sorted(d1.glob(f"{names.CLUSTER_METADATA_TOPIC}-0/*.checkpoint"))
    newest.unlink()
    newest.mkdir()


def a_directory_in_the_place_of_an_older_metadata_snapshot(d1: Path, d2: Path) -> None:
    oldest, *_ = sorted(d1.glob(f"{names.CLUSTER_METADATA_TOPIC}-0/*.checkpoint"))
    oldest.unlink()
    oldest.mkdir()


def a_directory_that_cannot_be_deleted_as_a_snapshot(d1: Path, d2: Path) -> None:
    name = f"{names.CLUSTER_METADATA_TOPIC}-0/{3:020}-{1:010}.checkpoint.deleted"
    (d1 / name / "something").mkdir(parents=True)


def damaged_metadata_that_was_moved_aside(d1: Path, d2: Path) -> None:
    for state in ("delete", "stray"):
        name = f"{names.CLUSTER_METADATA_TOPIC}-0.184f5a4c945d4277a4671794019b3c74-{state}"
        aside = shutil.copytree(d1 / f"{names.CLUSTER_METADATA_TOPIC}-0", d2 / name)
        *_, newest = sorted(aside.glob("*.checkpoint"))
        newest.chmod(0o600)
        os.truncate(newest, newest.stat().st_size // 2)
        write(aside, "rubbish\n", names.LEADER_EPOCH_CHECKPOINT)
        (aside / "x.swap").touch()


def a_malformed_quorum_state(d1: Path, d2: Path) -> None:
    write(d1 / f"{names.CLUSTER_METADATA_TOPIC}-0", "{", names.QUORUM_STATE)


def a_directory_in_the_place_of_quorum_state(d1: Path, d2: Path) -> None:
    path = d1 / f"{names.CLUSTER_METADATA_TOPIC}-0" / names.QUORUM_STATE
    path.unlink()
    path.mkdir()


def a_directory_without_a_dash(d1: Path, d2: Path) -> None:
    (d2 / "backup").mkdir()


def a_partition_on_both_disks(d1: Path, d2: Path) -> None:
    shutil.copytree(d2 / f"{VICTIM}-0", d1 / f"{VICTIM}-0")


def a_partition_by_two_names(d1: Path, d2: Path) -> None:
    shutil.copytree(d2 / f"{VICTIM}-0", d2 / f"{VICTIM}-00")


def a_copy_beside_its_log(d1: Path, d2: Path) -> None:
    (future,) = d1.glob("*-future")
    shutil.move(future, d2)


def malformed_partition_metadata(d1: Path, d2: Path) -> None:
    write(d2 / f"{VICTIM}-0", "version: 0\nrubbish", names.PARTITION_METADATA)


def empty_partition_metadata(d1: Path, d2: Path) -> None:
    write(d2 / f"{VICTIM}-0", "", names.PARTITION_METADATA)


def malformed_partition_metadata_of_a_deleted_topic(d1: Path, d2: Path) -> None:
    (deleted,) = d1.glob("*-delete")
    write(deleted, "", names.PARTITION_METADATA)


def malformed_leader_epochs(d1: Path, d2: Path) -> None:
    write(d2 / f"{VICTIM}-0", "rubbish\n", names.LEADER_EPOCH_CHECKPOINT)


def malformed_recovery_points(d1: Path, d2: Path) -> None:
    write(d2, "rubbish\n", names.RECOVERY_POINT_CHECKPOINT)


def malformed_log_starts(d1: Path, d2: Path) -> None:
    write(d2, "rubbish\n", names.LOG_START_OFFSET_CHECKPOINT)


def malformed_high_watermarks(d1: Path, d2: Path) -> None:
    write(d2, "rubbish\n", names.REPLICATION_OFFSET_CHECKPOINT)


def malformed_cleaner_offsets(d1: Path, d2: Path) -> None:
    write(d2, "rubbish\n", names.CLEANER_OFFSET_CHECKPOINT)


def _link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def a_link_to_nothing_as_recovery_points(d1: Path, d2: Path) -> None:
    _link_to_nothing(d2 / names.RECOVERY_POINT_CHECKPOINT)


def a_link_to_itself_as_recovery_points(d1: Path, d2: Path) -> None:
    _link_to_itself(d2 / names.RECOVERY_POINT_CHECKPOINT)


def a_link_to_nothing_as_log_starts(d1: Path, d2: Path) -> None:
    _link_to_nothing(d2 / names.LOG_START_OFFSET_CHECKPOINT)


def a_link_to_nothing_as_high_watermarks(d1: Path, d2: Path) -> None:
    _link_to_nothing(d2 / names.REPLICATION_OFFSET_CHECKPOINT)


def a_link_to_itself_as_high_watermarks(d1: Path, d2: Path) -> None:
    _link_to_itself(d2 / names.REPLICATION_OFFSET_CHECKPOINT)


def a_link_to_nothing_as_cleaner_offsets(d1: Path, d2: Path) -> None:
    _link_to_nothing(d2 / names.CLEANER_OFFSET_CHECKPOINT)


def a_link_to_nothing_as_meta_properties(d1: Path, d2: Path) -> None:
    _link_to_nothing(d2 / names.META_PROPERTIES)


def a_link_to_itself_as_meta_properties(d1: Path, d2: Path) -> None:
    _link_to_itself(d2 / names.META_PROPERTIES)


def a_link_to_itself_as_meta_properties_beside_the_metadata(d1: Path, d2: Path) -> None:
    _link_to_itself(d1 / names.META_PROPERTIES)


def a_link_to_nothing_as_clean_shutdown_marker(d1: Path, d2: Path) -> None:
    _link_to_nothing(d2 / names.CLEAN_SHUTDOWN_MARKER)


def a_link_to_itself_as_clean_shutdown_marker(d1: Path, d2: Path) -> None:
    _link_to_itself(d2 / names.CLEAN_SHUTDOWN_MARKER)


def _directory(path: Path) -> Path:
    path.unlink()
    path.mkdir()
    return path


def an_empty_directory_as_clean_shutdown_marker(d1: Path, d2: Path) -> None:
    _directory(d2 / names.CLEAN_SHUTDOWN_MARKER)


def a_link_to_a_directory_as_clean_shutdown_marker(d1: Path, d2: Path) -> None:
    (d2 / names.CLEAN_SHUTDOWN_MARKER).unlink()
    (d2 / names.CLEAN_SHUTDOWN_MARKER).symlink_to(d1)


def a_full_directory_as_clean_shutdown_marker(d1: Path, d2: Path) -> None:
    (_directory(d2 / names.CLEAN_SHUTDOWN_MARKER) / "something").touch()


def partitions_that_are_not_the_brokers(d1: Path, d2: Path) -> None:
    """Apply all changes that do not prevent a start."""
    shutil.copytree(d2 / "codec.mixed-0", d1 / "codec.mixed-0")
    (d1 / "codec.mixed-0" / names.PARTITION_METADATA).unlink()
    shutil.copytree(d2 / "1-2-3-0", d2 / "1-2-3-7")
    with_topic_id(d2 / "retention-bytes-0", NO_TOPIC)
    (future,) = d1.glob("*-future")
    (future / names.PARTITION_METADATA).unlink()
    shutil.copy(d2 / f"{VICTIM}-0" / names.PARTITION_METADATA, d2 / f"{OTHER}-1")
    shutil.copy(d2 / "compact-zstd-0" / names.PARTITION_METADATA, d2 / f"{VICTIM}-0")


CASES: Final[tuple[tuple[Change, Start], ...]] = (
    (empty_meta_properties, REFUSED),
    (no_meta_properties, REFUSED),
    (no_meta_properties_anywhere, REFUSED),
    (malformed_meta_properties_beside_the_metadata, REFUSED),
    (malformed_meta_properties, Start(starts=True, offline=frozenset({"d2"}))),
    (
        a_directory_in_the_place_of_meta_properties,
        Start(starts=True, offline=frozenset({"d2"})),
    ),
    (another_cluster, REFUSED),
    (another_node, REFUSED),
    (no_cluster_id, REFUSED),
    (a_copied_directory_id, REFUSED),
    (a_reserved_directory_id, REFUSED),
    (a_negative_directory_id, REFUSED),
    (no_directory_id_of_the_only_voter, REFUSED),
    (metadata_in_two_directories, REFUSED),
    (an_empty_bootstrap_checkpoint, REFUSED),
    (a_cut_metadata_snapshot, REFUSED),
    (a_directory_in_the_place_of_a_metadata_snapshot, REFUSED),
    (a_directory_in_the_place_of_an_older_metadata_snapshot, Start(starts=True)),
    (a_directory_that_cannot_be_deleted_as_a_snapshot, REFUSED),
    (a_malformed_quorum_state, REFUSED),
    (a_directory_in_the_place_of_quorum_state, REFUSED),
    (damaged_metadata_that_was_moved_aside, Start(starts=True)),
    (a_directory_without_a_dash, REFUSED),
    (a_partition_on_both_disks, REFUSED),
    (a_partition_by_two_names, REFUSED),
    (a_copy_beside_its_log, REFUSED),
    (malformed_partition_metadata, REFUSED),
    (empty_partition_metadata, REFUSED),
    (malformed_partition_metadata_of_a_deleted_topic, REFUSED),
    (malformed_leader_epochs, REFUSED),
    (malformed_recovery_points, REFUSED),
    (malformed_log_starts, REFUSED),
    (malformed_high_watermarks, Start(starts=True, offline=frozenset({"d2"}))),
    (malformed_cleaner_offsets, Start(starts=True, offline=frozenset({"d2"}))),
    (a_link_to_nothing_as_recovery_points, REFUSED),
    (a_link_to_itself_as_recovery_points, REFUSED),
    (a_link_to_nothing_as_log_starts, REFUSED),
    (a_link_to_nothing_as_high_watermarks, Start(starts=True, offline=frozenset({"d2"}))),
    (a_link_to_itself_as_high_watermarks, Start(starts=True, offline=frozenset({"d2"}))),
    (a_link_to_nothing_as_cleaner_offsets, Start(starts=True, offline=frozenset({"d2"}))),
    (a_link_to_nothing_as_meta_properties, REFUSED),
    (a_link_to_itself_as_meta_properties, Start(starts=True, offline=frozenset({"d2"}))),
    (a_link_to_itself_as_meta_properties_beside_the_metadata, REFUSED),
    (a_link_to_nothing_as_clean_shutdown_marker, Start(starts=True)),
    (a_link_to_itself_as_clean_shutdown_marker, Start(starts=True)),
    (an_empty_directory_as_clean_shutdown_marker, Start(starts=True)),
    (a_link_to_a_directory_as_clean_shutdown_marker, Start(starts=True)),
    (
        a_full_directory_as_clean_shutdown_marker,
        Start(starts=True, offline=frozenset({"d2"})),
    ),
    (an_empty_bootstrap_checkpoint_elsewhere, Start(starts=True)),
    (no_bootstrap_checkpoint, Start(starts=True)),
    (
        partitions_that_are_not_the_brokers,
        Start(
            starts=True,
            stray=frozenset({"codec.mixed-0", "1-2-3-7", "retention-bytes-0", f"{OTHER}-1"})
            | {"jbod-move-0"},
            unserved=frozenset({f"{VICTIM}-0"}),
        ),
    ),
)


@pytest.fixture(scope="module")
def host(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerHost]:
    log = tmp_path_factory.mktemp("brokers") / "log"
    with BrokerHost(java_classpath, log, patience_s=20) as host:
        yield host


@pytest.fixture
def log_dirs(fixtures: Path, tmp_path: Path) -> list[Path]:
    """Return a copy of the two directories of a broker."""
    shutil.copytree(fixtures / "out" / "clean", tmp_path / "clean")
    # A broker that cannot read a small file of a log goes on without the directory, but does not
    # start if it loads a log with an open transaction afterwards, as are in d2. A file system in
    # memory lists what is newest first.
    victim = tmp_path / "clean" / "d2" / f"{VICTIM}-0"
    victim.rename(tmp_path / victim.name).rename(victim)
    return [tmp_path / "clean" / name for name in ("d1", "d2")]


def predicted(said: list[dict[str, Any]]) -> Start:
    """Return the sentence that kdump prints."""
    findings = [row for row in of_type(said, "finding") if row["severity"] == "severe"]
    partitions = of_type(said, "partition")
    offline = [
        row
        for row in findings
        if re.search("without this directory|directory offline", row["what"])
    ]
    refused = [row for row in findings if "does not start" in row["what"]]
    if refused or "refused" in [row["verdict_kind"] for row in partitions]:
        return REFUSED
    return Start(
        starts=True,
        offline=frozenset(Path(row["path"]).parent.name for row in offline),
        stray=frozenset(
            re.sub(r"\.[0-9a-f]{32}-future$", "", row["directory"])
            for row in partitions
            if row["verdict_kind"] == "stray" and not row["directory"].endswith("-stray")
        ),
        unserved=frozenset(
            row["directory"] for row in partitions if row["verdict_kind"] == "offline"
        ),
    )


def happened(host: BrokerHost, log_dirs: list[Path], expected: Start) -> Start:
    """Start a broker, and return its behaviour."""
    before = {path for each in log_dirs for path in each.glob("*-stray")}
    try:
        with host.broker(log_dirs, *([] if expected.starts else [PATIENT_FOR_10_S])):
            if not expected.starts:
                host.wait_until_ended()
            for name in expected.offline:
                host.wait_until_offline(log_dirs[0].parent / name)
            served = host.served_directories()
            offline = frozenset(Path(path).name for path, found in served.items() if not found)
            unserved = frozenset(
                f"{name}-0" for name in (VICTIM, "codec.mixed") if _is_refused(host, name)
            )
    except RequestFailed:
        return REFUSED
    stray = frozenset(
        path.name.rpartition(".")[0]
        for each in log_dirs
        for path in {*each.glob("*-stray")} - before
    )
    return Start(True, offline, stray, unserved if not offline else frozenset())


def _is_refused(host: BrokerHost, topic: str) -> bool:
    said = f"log for topic partition {topic}-0,but log already contained topic ID"
    return any(said in line for line in host.logged())


@pytest.mark.parametrize(
    ("change", "expected"), [pytest.param(*case, id=case[0].__name__) for case in CASES]
)
def test_a_broker_starts_as_predicted(
    change: Change, expected: Start, host: BrokerHost, log_dirs: list[Path]
) -> None:
    change(*log_dirs)

    # Where a run would be refused, as with some links, standard error says so.
    outcome = run_kdump(
        ["recover", "--dry-run", "--output", "jsonl", *map(str, log_dirs)], Path.cwd()
    )
    assert predicted(objects(outcome.stdout)) == expected
    assert happened(host, log_dirs, expected) == expected


@pytest.mark.parametrize(
    ("name", "is_refused"), [("codec.mixed-0", False), ("txn-hanging-0", True)]
)
def test_an_open_transaction_in_a_directory_that_is_offline_prevents_a_start(
    name: str, is_refused: bool, loader_server: LoaderServer, fixtures: Path, tmp_path: Path
) -> None:
    root = tmp_path / "d2"
    shutil.copytree(fixtures / "out" / "clean" / "d2" / name, root / name)
    write(root, "", names.CLEAN_SHUTDOWN_MARKER)
    write(root, "rubbish\n", names.RECOVERY_POINT_CHECKPOINT)
    refused = loader_server.load(root, IndexSettings(), Clock(), whole=True)
    assert ("already offline" in refused.get("d2", "")) == is_refused


@pytest.mark.parametrize("state", ["delete", "stray"])
@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_partition_that_is_no_longer_the_brokers_can_take_its_directory_offline(
    is_damaged: bool, state: str, loader_server: LoaderServer, fixtures: Path, tmp_path: Path
) -> None:
    root = tmp_path / "d2"
    partition = root / f"codec.mixed-0.184f5a4c945d4277a4671794019b3c74-{state}"
    shutil.copytree(fixtures / "out" / "clean" / "d2" / "codec.mixed-0", partition)
    write(root, "", names.CLEAN_SHUTDOWN_MARKER)
    if is_damaged:
        write(partition, "rubbish\n", names.LEADER_EPOCH_CHECKPOINT)

    for command in (["recover", "--dry-run"], ["verify"]):
        outcome = run_kdump([*command, "--output", "jsonl", str(root)], tmp_path)
        refused = [row for row in objects(outcome.stdout) if row.get("code") == "load-refused"]
        assert [row["path"] for row in refused] == ([str(partition)] if is_damaged else [])
        assert bool(outcome.exit_status & 4) == is_damaged

    found = loader_server.load(root, IndexSettings(), Clock(), whole=True)
    assert found == ({"d2": "offline"} if is_damaged else {})


def test_a_stray_log_is_truncated_as_predicted(
    loader_server: LoaderServer, fixtures: Path, tmp_path: Path
) -> None:
    root = tmp_path / "d2"
    partition = root / "codec.mixed-0.184f5a4c945d4277a4671794019b3c74-stray"
    shutil.copytree(fixtures / "out" / "clean" / "d2" / "codec.mixed-0", partition)
    log = partition / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)

    outcome = run_kdump(["recover", "--dry-run", "--output", "jsonl", str(root)], tmp_path)

    (row,) = of_type(objects(outcome.stdout), "partition")
    (cut,) = row["cuts"]
    assert row["verdict_kind"] == "loss"
    assert outcome.exit_status & 4
    assert loader_server.load(root, IndexSettings(), Clock(), whole=True) == {}
    assert log.stat().st_size == cut["position"] > 0


def test_a_broker_serves_repaired_directories(host: BrokerHost, log_dirs: list[Path]) -> None:
    d1, d2 = log_dirs
    before = (d2 / names.META_PROPERTIES).read_text()
    empty_meta_properties(d1, d2)
    malformed_high_watermarks(d1, d2)
    malformed_cleaner_offsets(d1, d2)
    empty_partition_metadata(d1, d2)
    shutil.copy(d2 / "compact-zstd-0" / names.PARTITION_METADATA, d2 / f"{OTHER}-0")

    said = rows_of("verify", "--repair", *log_dirs)

    last = max(at for at, row in enumerate(said) if row["type"] == "repair")
    assert "severe" not in [row["severity"] for row in of_type(said[last:], "finding")]
    with host.broker(log_dirs):
        assert host.read(VICTIM).end_offset == 909
        assert host.read(OTHER).end_offset == 5
    (own_id,) = re.findall(r"(?m)^directory\.id=.*$", before)
    assert own_id in (d2 / names.META_PROPERTIES).read_text().splitlines()
