"""Where a log begins and ends comes from checkpoints, index entries and batch headers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.log_directories import file_name, offset_index, time_index, write_partition
from builders.malformed_batches import with_field
from builders.message_sets import message
from kdump.formats.names import FileKind, PartitionState, TopicPartition
from kdump.log import bounds
from kdump.log.bounds import LogBounds, read_bounds
from kdump.log.directory import Checkpoints, directory_kind, read_log_directory
from kdump.log.partition import Partition, read_partition
from kdump.storage.local_disk import local

ORDERS = TopicPartition("orders", 0)
CLEAN = ("clean", "clean-mv39", "recovered", "leftover-4-swap-complete-recovered")


@pytest.fixture(autouse=True, params=[True, False], ids=["all headers", "by indexes"])
def _small_logs_are_read_at_once(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small logs of these tests are also read as large ones are."""
    if not request.param:
        monkeypatch.setattr(bounds, "_LARGEST_SMALL_LOG_BYTES", 0)


def listed(path: Path, state: PartitionState = PartitionState.LIVE) -> Partition:
    return read_partition(local(path), ORDERS, state)


def checkpoints(start: int | None = None, recovery: int | None = None) -> Checkpoints:
    return Checkpoints(
        recovery_points={} if recovery is None else {ORDERS: recovery},
        log_start_offsets={} if start is None else {ORDERS: start},
        high_watermarks={},
    )


class TestEnd:
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_the_log_end_comes_from_the_batches(self, tmp_path: Path, is_clean: bool) -> None:
        partition = listed(write_partition(tmp_path / "p", {0: b"".join(batches(2))}))
        for recovery in (2, 99):
            bounds = read_bounds(partition, checkpoints(recovery=recovery), is_clean=is_clean)
            assert (bounds.recovery_point, bounds.log_end_offset) == (recovery, 6)

    @pytest.mark.parametrize(
        ("start", "value", "size"), [(0, 266, 8), (0, 2**63 - 3, 8), (16, 3, 1), (23, -1, 4)]
    )
    def test_the_last_batch_decides_whatever_is_before_it(
        self, tmp_path: Path, start: int, value: int, size: int
    ) -> None:
        """A broker follows the lengths only."""
        rows = batches(4)
        rows[1] = with_field(rows[1], start, value, size)
        partition = listed(write_partition(tmp_path / "p", {0: b"".join(rows)}))
        assert read_bounds(partition).log_end_offset == 12

    def test_the_end_after_the_greatest_offset_wraps_as_in_a_broker(self, tmp_path: Path) -> None:
        rows = batches(2)
        rows[1] = with_field(rows[1], 0, 2**63 - 3, 8)
        partition = listed(write_partition(tmp_path / "p", {0: b"".join(rows)}))
        assert read_bounds(partition).log_end_offset == -(2**63)

    def test_after_a_clean_shutdown_a_log_without_segments_ends_at_its_recovery_point(
        self, tmp_path: Path
    ) -> None:
        partition = listed(write_partition(tmp_path / "p"))
        bounds = read_bounds(partition, checkpoints(recovery=9), is_clean=True)
        assert bounds.log_end_offset == 9

    def test_a_checkpoint_below_the_active_segment_is_not_trusted(self, tmp_path: Path) -> None:
        logs = {0: b"".join(batches(2)), 6: batch([record(6)])}
        partition = listed(write_partition(tmp_path / "p", logs))
        bounds = read_bounds(partition, checkpoints(recovery=5), is_clean=True)
        assert bounds.log_end_offset == 7

    def test_a_torn_batch_or_preallocated_space_is_not_counted(self, tmp_path: Path) -> None:
        whole, torn = batches(2)
        for name, tail in (("torn", torn[:-1]), ("padded", bytes(4096))):
            partition = listed(write_partition(tmp_path / name, {0: whole + tail}))
            assert read_bounds(partition).log_end_offset == 3

    def test_an_empty_active_segment_ends_where_it_begins(self, tmp_path: Path) -> None:
        partition = listed(write_partition(tmp_path / "p", {0: b"".join(batches(1)), 3: b""}))
        bounds = read_bounds(partition)
        assert bounds.log_end_offset == 3
        assert bounds.latest_timestamp_ms == BASE_TIMESTAMP_MS + 2

    def test_only_headers_after_the_last_index_entry_are_followed(self, tmp_path: Path) -> None:
        first, second, third = batches(3)
        log = bytes(len(first)) + second + third
        index = offset_index((5, len(first)), padding=10)
        path = write_partition(tmp_path / "p", {0: log}, offset_indexes={0: index})
        assert read_bounds(listed(path)).log_end_offset == 9

    def test_an_index_entry_may_stand_for_several_batches(self, tmp_path: Path) -> None:
        first, second, third = batches(3)
        log = bytes(len(first)) + second + third
        index = offset_index((8, len(first)))
        path = write_partition(tmp_path / "p", {0: log}, offset_indexes={0: index})
        assert read_bounds(listed(path)).log_end_offset == 9

    @pytest.mark.parametrize("entry", [(5, 3), (5, 2**31 - 1), (5, -1), (4000, 0)])
    def test_an_invalid_index_entry_is_not_followed(
        self, tmp_path: Path, entry: tuple[int, int]
    ) -> None:
        index = offset_index(entry)
        log = b"".join(batches(3))
        path = write_partition(tmp_path / "p", {0: log}, offset_indexes={0: index})
        assert read_bounds(listed(path)).log_end_offset == 9

    def test_without_segments_it_is_unknown(self, tmp_path: Path) -> None:
        partition = listed(write_partition(tmp_path / "p"))
        assert read_bounds(partition, checkpoints()) == LogBounds(
            log_start_offset=None,
            log_end_offset=None,
            is_end_certain=False,
            gaps=0,
            recovery_point=None,
            high_watermark=None,
            earliest_timestamp_ms=None,
            latest_timestamp_ms=None,
        )

    @pytest.mark.parametrize(
        ("bases", "gaps"), [((0, 9), 0), ((0, 9, 18), 0), ((0, 18), 1), ((0, 18, 30, 39), 2)]
    )
    def test_segments_that_begin_late_are_counted(
        self, tmp_path: Path, bases: tuple[int, ...], gaps: int
    ) -> None:
        logs = {base: b"".join(batches(3, base_offset=base)) for base in bases}
        partition = listed(write_partition(tmp_path / "p", logs))
        assert read_bounds(partition).gaps == gaps

    def test_magics_may_be_mixed(self, tmp_path: Path) -> None:
        log = message(0, magic=0) + message(1) + batch([record(2), record(3)])
        assert read_bounds(listed(write_partition(tmp_path / "p", {0: log}))).log_end_offset == 4

    def test_in_0_7_it_is_the_position_after_the_last_byte(self, tmp_path: Path) -> None:
        files = {"00000000000.kafka": bytes(512), "00000000512.kafka": bytes(100)}
        bounds = read_bounds(listed(write_partition(tmp_path / "p", others=files)))
        assert (bounds.log_start_offset, bounds.log_end_offset) == (0, 612)
        assert bounds.latest_timestamp_ms is None


class TestStart:
    @pytest.mark.parametrize(("checkpointed", "start"), [(None, 3), (0, 3), (5, 5)])
    def test_it_is_the_larger_of_checkpoint_and_first_segment(
        self, tmp_path: Path, checkpointed: int | None, start: int
    ) -> None:
        log = b"".join(batches(2, base_offset=3))
        partition = listed(write_partition(tmp_path / "p", {3: log}))
        assert read_bounds(partition, checkpoints(start=checkpointed)).log_start_offset == start

    def test_the_earliest_time_is_that_of_the_batch_that_reaches_it(self, tmp_path: Path) -> None:
        logs = {0: b"".join(batches(3)), 9: b"".join(batches(1, base_offset=9))}
        partition = listed(write_partition(tmp_path / "p", logs))
        for start, first_record in ((0, 0), (2, 0), (3, 3), (8, 6), (9, 9)):
            bounds = read_bounds(partition, checkpoints(start=start))
            assert bounds.earliest_timestamp_ms == BASE_TIMESTAMP_MS + first_record

    def test_no_batch_reaches_the_end(self, tmp_path: Path) -> None:
        partition = listed(write_partition(tmp_path / "p", {0: b"".join(batches(3))}))
        assert read_bounds(partition, checkpoints(start=9)).earliest_timestamp_ms is None

    def test_the_index_leads_to_the_batch(self, tmp_path: Path) -> None:
        first, second, third = batches(3)
        log = bytes(len(first)) + second + third
        index = offset_index((5, len(first)), (8, len(first) + len(second)))
        path = write_partition(tmp_path / "p", {0: log}, offset_indexes={0: index})
        bounds = read_bounds(listed(path), checkpoints(start=7, recovery=9), is_clean=True)
        assert bounds.earliest_timestamp_ms == BASE_TIMESTAMP_MS + 6


class TestLatestTime:
    def test_it_is_the_time_of_the_batch_that_the_time_index_names(self, tmp_path: Path) -> None:
        early = batch([record(at, timestamp=9_000 - at) for at in range(2)])
        late = batch([record(2, timestamp=5)])
        path = write_partition(
            tmp_path / "p",
            {0: early + late},
            offset_indexes={0: offset_index((2, len(early)))},
            time_indexes={0: time_index((9_000, 1), padding=9)},
        )
        assert read_bounds(listed(path)).latest_timestamp_ms == 9_000

    @pytest.mark.parametrize("entry", [(5_000, 1), (9_000, 2), (9_000, 99), (9_000, -1)])
    def test_a_time_index_that_names_another_batch_is_not_trusted(
        self, tmp_path: Path, entry: tuple[int, int]
    ) -> None:
        early = batch([record(at, timestamp=8_000 - at) for at in range(2)])
        late = batch([record(2, timestamp=5)])
        path = write_partition(
            tmp_path / "p",
            {0: early + late},
            offset_indexes={0: offset_index((2, len(early)))},
            time_indexes={0: time_index(entry)},
        )
        assert read_bounds(listed(path)).latest_timestamp_ms == 8_000

    def test_after_a_crash_it_may_be_after_the_last_entry(self, tmp_path: Path) -> None:
        path = write_partition(
            tmp_path / "p", {0: b"".join(batches(2))}, time_indexes={0: time_index((5_000, 0))}
        )
        assert read_bounds(listed(path)).latest_timestamp_ms == BASE_TIMESTAMP_MS + 5


class TestCheckpointLines:
    def test_a_deleted_partition_has_none(self, tmp_path: Path) -> None:
        path = write_partition(tmp_path / "p", {0: b"".join(batches(1))})
        known = checkpoints(start=1, recovery=2)
        bounds = read_bounds(listed(path, PartitionState.DELETE), known, is_clean=True)
        assert (bounds.log_start_offset, bounds.log_end_offset) == (0, 3)
        assert bounds.recovery_point is None

    def test_a_future_partition_has_the_plain_names(self, tmp_path: Path) -> None:
        path = write_partition(tmp_path / "p", {0: b"".join(batches(1))})
        bounds = read_bounds(listed(path, PartitionState.FUTURE), checkpoints(recovery=2))
        assert bounds.recovery_point == 2


def test_a_file_that_cannot_be_read_is_an_os_error(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "p", {0: b"".join(batches(1))})
    partition = listed(path)
    (path / file_name(0, FileKind.LOG)).unlink()
    with pytest.raises(OSError, match="No such file"):
        read_bounds(partition)


@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize("trusting", [True, False], ids=["by checkpoint", "by headers"])
def test_a_brokers_own_answers_are_found_on_its_disk(
    fixtures: Path, name: str, trusting: bool
) -> None:
    manifest = json.loads((fixtures / "out" / f"manifest.{name}.json").read_text())
    compared = 0
    for path in sorted((fixtures / "out" / name).iterdir()):
        kind = directory_kind(local(path))
        found = read_log_directory(local(path), kind)
        for partition in found.partitions:
            if partition.state is not PartitionState.LIVE or partition.is_cluster_metadata:
                continue
            assert partition.topic_partition is not None
            topic, number = partition.topic_partition
            answers = manifest["topics"][topic]["partitions"][str(number)]
            bounds = read_bounds(partition, found.checkpoints, is_clean=trusting)
            latest = answers["listOffsets.maxTimestamp"]["timestamp"]
            assert (
                bounds.log_start_offset,
                bounds.log_end_offset,
                bounds.latest_timestamp_ms,
            ) == (
                answers["listOffsets.earliest"]["offset"],
                answers["listOffsets.latest"]["offset"],
                None if latest == -1 else latest,
            ), partition.path
            compared += 1
    assert compared
