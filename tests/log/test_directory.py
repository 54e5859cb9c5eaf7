"""A directory is recognized by its entries; a log directory is listed without reading logs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from builders.log_directories import write_log_directory, write_partition
from kdump.formats import names
from kdump.formats.clean_shutdown import CleanShutdown
from kdump.formats.errors import FormatError
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.directory import (
    DirectoryKind,
    directory_kind,
    log_directories_below,
    read_log_directory,
    read_lone_partition,
)
from kdump.log.partition import Partition, read_partition
from kdump.storage.local_disk import local
from kdump.storage.location import Location

ROOT = Path("/data")
LOG_0_7 = {"00000000000.kafka": b""}


@pytest.fixture(autouse=True)
def pretended_disk(fs: FakeFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing here touch a real disk; locks are asked about by numbers of real files."""
    monkeypatch.setattr("kdump.log.lock_holders.lock_holder", lambda _: None)
    fs.create_dir(ROOT)


class TestKind:
    def test_checkpoints_make_a_log_directory(self) -> None:
        write_log_directory(ROOT)
        assert directory_kind(local(ROOT)) is DirectoryKind.LOG_DIRECTORY

    def test_a_formatted_one_needs_no_partition(self) -> None:
        (ROOT / names.META_PROPERTIES).write_bytes(b"")
        assert directory_kind(local(ROOT)) is DirectoryKind.LOG_DIRECTORY

    def test_one_partition_is_enough(self) -> None:
        write_partition(ROOT / "orders-0", {0: b""})
        assert directory_kind(local(ROOT)) is DirectoryKind.LOG_DIRECTORY

    def test_the_clusters_metadata_alone_make_a_metadata_directory(self) -> None:
        write_partition(ROOT / "__cluster_metadata-0", {0: b""})
        (ROOT / names.META_PROPERTIES).write_bytes(b"")
        assert directory_kind(local(ROOT)) is DirectoryKind.METADATA_DIRECTORY

    def test_a_broker_that_also_has_the_metadata_has_a_log_directory(self) -> None:
        write_partition(ROOT / "__cluster_metadata-0", {0: b""})
        write_log_directory(ROOT)
        assert directory_kind(local(ROOT)) is DirectoryKind.LOG_DIRECTORY

    @pytest.mark.parametrize("name", ["orders-0", "orders_0"])
    def test_files_of_0_7_make_one_of_0_7(self, name: str) -> None:
        write_partition(ROOT / name, others=LOG_0_7)
        assert directory_kind(local(ROOT)) is DirectoryKind.LOG_DIRECTORY_0_7
        assert directory_kind(local(ROOT / name)) is DirectoryKind.PARTITION_0_7

    @pytest.mark.parametrize(
        "name",
        [
            "00000000000000000000.log",
            "00000000000000000000.index.deleted",
            "00000000000000000298-0000000001.checkpoint",
            "partition.metadata",
            "leader-epoch-checkpoint",
        ],
    )
    def test_any_file_of_a_partition_makes_a_partition(self, name: str) -> None:
        (ROOT / name).write_bytes(b"")
        assert directory_kind(local(ROOT)) is DirectoryKind.PARTITION

    @pytest.mark.parametrize("topic", ["orders", "__cluster_metadata"])
    def test_a_segment_copied_beside_the_partitions_does_not_hide_them(self, topic: str) -> None:
        write_partition(ROOT / f"{topic}-0", {0: b""})
        (ROOT / "00000000000000000000.log").write_bytes(b"")
        assert directory_kind(local(ROOT)).is_log_directory

    def test_names_alone_do_not_make_a_log_directory(self) -> None:
        (ROOT / "some-1").mkdir()
        (ROOT / ".lock").write_bytes(b"")
        (ROOT / "notes.txt").write_bytes(b"")
        assert directory_kind(local(ROOT)) is DirectoryKind.NOT_KAFKA

    def test_copies_with_names_of_0_7_do_not_make_a_log_directory(self) -> None:
        write_partition(ROOT / "copy_1", {0: b""})
        assert directory_kind(local(ROOT)) is DirectoryKind.NOT_KAFKA

    def test_log_directories_are_found_one_level_below(self) -> None:
        for name in ("d2", "d1"):
            write_log_directory(ROOT / name)
        (ROOT / "other").mkdir()
        assert directory_kind(local(ROOT)) is DirectoryKind.NOT_KAFKA
        assert log_directories_below(local(ROOT)) == [local(ROOT / "d1"), local(ROOT / "d2")]

    def test_a_missing_directory_is_an_os_error(self) -> None:
        with pytest.raises(FileNotFoundError):
            directory_kind(local(ROOT / "gone"))


class TestLogDirectory:
    def test_its_own_files_are_read(self) -> None:
        orders = TopicPartition("orders", 0)
        write_log_directory(
            ROOT,
            recovery_points={orders: 9},
            log_start_offsets={orders: 3},
            high_watermarks={orders: 8},
        )
        found = read_log_directory(local(ROOT))
        assert found.meta_properties is not None
        assert found.meta_properties.node_id == 7
        assert found.checkpoints.recovery_points == {orders: 9}
        assert found.checkpoints.log_start_offsets == {orders: 3}
        assert found.checkpoints.high_watermarks == {orders: 8}
        assert found.checkpoints.cleaner_offsets == {}
        assert found.problems == ()

    def test_a_directory_with_the_marker_is_clean(self) -> None:
        write_log_directory(ROOT)
        found = read_log_directory(local(ROOT))
        assert (found.is_clean, found.has_lock_file) == (True, False)
        assert found.clean_shutdown == CleanShutdown(0, 301)

    def test_a_directory_without_the_marker_is_not_clean(self) -> None:
        write_log_directory(ROOT, clean=False)
        found = read_log_directory(local(ROOT))
        assert (found.is_clean, found.has_lock_file) == (False, True)
        assert found.clean_shutdown is None

    def test_an_unreadable_marker_still_counts(self) -> None:
        write_log_directory(ROOT)
        (ROOT / names.CLEAN_SHUTDOWN_MARKER).write_bytes(b"garbage")
        found = read_log_directory(local(ROOT))
        assert found.is_clean
        assert [problem.path for problem in found.problems] == [
            local(ROOT / names.CLEAN_SHUTDOWN_MARKER)
        ]

    def test_a_missing_checkpoint_is_none_and_no_problem(self) -> None:
        write_log_directory(ROOT)
        (ROOT / names.REPLICATION_OFFSET_CHECKPOINT).unlink()
        found = read_log_directory(local(ROOT))
        assert found.checkpoints.high_watermarks is None
        assert found.problems == ()

    def test_a_malformed_checkpoint_is_none_and_a_problem(self) -> None:
        write_log_directory(ROOT)
        (ROOT / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"0\n1\norders 0\n")
        found = read_log_directory(local(ROOT))
        assert found.checkpoints.recovery_points is None
        (problem,) = found.problems
        assert isinstance(problem.error, FormatError)
        assert problem.is_damage
        assert str(problem).startswith(
            "/data/recovery-point-offset-checkpoint: checkpoint is malformed in line 3 at byte 4"
        )

    def test_partitions_are_in_order_with_their_states(self) -> None:
        write_log_directory(ROOT)
        for name in ("b-0", "a-10", "a-2", "a-2.ab-future", "a-2.cd-delete", "c-0.ef-stray"):
            write_partition(ROOT / name)
        assert [(p.path.name, p.state) for p in read_log_directory(local(ROOT)).partitions] == [
            ("a-2", PartitionState.LIVE),
            ("a-2.ab-future", PartitionState.FUTURE),
            ("a-2.cd-delete", PartitionState.DELETE),
            ("a-10", PartitionState.LIVE),
            ("b-0", PartitionState.LIVE),
            ("c-0.ef-stray", PartitionState.STRAY),
        ]

    def test_names_that_a_broker_refuses_are_kept_apart(self) -> None:
        write_log_directory(ROOT)
        (ROOT / "lost+found").mkdir()
        (ROOT / names.REMOTE_INDEX_CACHE).mkdir()
        (ROOT / "notes.txt").write_bytes(b"")
        (ROOT / "recovery-point-offset-checkpoint.tmp").write_bytes(b"")
        found = read_log_directory(local(ROOT))
        assert found.partitions == ()
        assert found.refused == ("lost+found",)
        assert found.foreign == ("notes.txt",)

    def test_only_selected_partitions_are_listed(self) -> None:
        write_log_directory(ROOT)
        for name in ("a-0", "b-0"):
            write_partition(ROOT / name)
        found = read_log_directory(local(ROOT), select=lambda _, partition: partition.topic == "b")
        assert [partition.path.name for partition in found.partitions] == ["b-0"]

    def test_a_partition_that_cannot_be_listed_is_a_problem(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_log_directory(ROOT)
        for name in ("a-0", "b-0"):
            write_partition(ROOT / name)

        def refuse_a(
            path: Location,
            topic_partition: TopicPartition,
            state: PartitionState,
            *,
            keep_entries: bool,
        ) -> Partition:
            if path.name == "a-0":
                raise PermissionError(13, "Permission denied", str(path))
            return read_partition(path, topic_partition, state, keep_entries=keep_entries)

        monkeypatch.setattr("kdump.log.directory.read_partition", refuse_a)
        found = read_log_directory(local(ROOT))
        assert [partition.path.name for partition in found.partitions] == ["b-0"]
        assert found.unreadable == ("a-0",)
        (problem,) = found.problems
        assert not problem.is_damage
        assert str(problem) == "/data/a-0: Permission denied"

    def test_a_link_to_a_directory_is_a_partition(self) -> None:
        write_log_directory(ROOT)
        write_partition(Path("/other/disk"), {0: b"1"})
        (ROOT / "orders-0").symlink_to("/other/disk")
        (ROOT / "circle-0").symlink_to("circle-0")
        found = read_log_directory(local(ROOT))
        assert [p.topic_partition for p in found.partitions] == [TopicPartition("orders", 0)]
        assert found.foreign == ("circle-0",)

    def test_partitions_of_0_7_may_be_named_with_an_underscore(self) -> None:
        write_partition(ROOT / "orders_1", others=LOG_0_7)
        found = read_log_directory(local(ROOT))
        assert [p.topic_partition for p in found.partitions] == [TopicPartition("orders", 1)]


def test_names_that_are_not_utf_8_are_kept(fs: FakeFilesystem) -> None:
    fs.pause()
    name = os.fsdecode(b"t\xff-0")
    fs.resume()
    write_log_directory(ROOT)
    write_partition(ROOT / name, {0: b""})
    assert read_log_directory(local(ROOT)).refused == (name,)


def test_metadata_that_was_moved_aside_is_not_the_metadata_of_the_node() -> None:
    write_log_directory(ROOT)
    aside = f"__cluster_metadata-0.{'a' * 32}-stray"
    for name in ("__cluster_metadata-0", aside):
        write_partition(ROOT / name, {0: b""})
    found = read_log_directory(local(ROOT))
    assert [each.is_cluster_metadata for each in found.partitions] == [True, False]
    assert read_lone_partition(local(ROOT / aside), aside).is_cluster_metadata
