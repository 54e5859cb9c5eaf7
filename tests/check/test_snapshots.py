"""Snapshots that a broker does not write, and producers that it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.loading import Clock, LoaderServer
from builders.log_directories import file_name, write_log_directory, write_partition
from builders.verified import said_of
from kdump.broker.loader.load_context import IndexSettings
from kdump.check.findings import Finding
from kdump.formats import producer_snapshot
from kdump.formats.names import FileKind, OffsetFileName
from kdump.formats.producer_snapshot import ProducerEntry

OLD, YOUNG = 1_000, 2_000
MISSING, KEPT = 7, 8
"""Producer ids: the snapshot has only one of two."""


def codes(path: Path, timestamps: dict[int, int]) -> set[str]:
    """Verify a log of one batch of each producer, by id with its timestamp in their order."""
    log = b"".join(
        batch(
            [record(offset, timestamp=timestamp)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        for offset, (producer_id, timestamp) in enumerate(timestamps.items())
    )
    offset = list(timestamps).index(KEPT)
    entry = ProducerEntry(KEPT, 0, 0, offset, 0, timestamps[KEPT], -1, -1)
    snapshot = str(OffsetFileName(len(timestamps), FileKind.PRODUCER_SNAPSHOT))
    write_partition(
        path / "orders-0", {0: log}, others={snapshot: producer_snapshot.encode([entry])}
    )
    return {each.code for each in said_of(path) if isinstance(each, Finding)}


def test_the_older_producer_has_expired(tmp_path: Path) -> None:
    assert "snapshot-state" not in codes(tmp_path, {MISSING: OLD, KEPT: YOUNG})


def test_a_producer_does_not_expire_before_an_older_one_that_wrote_before_it(
    tmp_path: Path,
) -> None:
    assert "snapshot-state" in codes(tmp_path, {KEPT: OLD, MISSING: YOUNG})


@pytest.mark.parametrize("writer", [KEPT, MISSING])
def test_an_offset_has_one_producer_even_in_a_log_that_is_not_whole(
    tmp_path: Path, writer: int
) -> None:
    rows = [record(offset) for offset in (10, 11)]
    log = batch(rows, producer_id=writer, producer_epoch=0, base_sequence=4)
    entry = ProducerEntry(KEPT, 0, 5, 11, 1, rows[-1].timestamp, -1, -1)
    snapshot = str(OffsetFileName(12, FileKind.PRODUCER_SNAPSHOT))
    write_partition(
        tmp_path / "orders-0", {10: log}, others={snapshot: producer_snapshot.encode([entry])}
    )

    found = {each.code for each in said_of(tmp_path) if isinstance(each, Finding)}

    assert ("snapshot-state" in found) == (writer != KEPT)


def test_a_producer_with_an_old_timestamp_may_come_after_another_has_expired(
    tmp_path: Path,
) -> None:
    assert "snapshot-state" not in codes(tmp_path, {MISSING: YOUNG, KEPT: OLD})


@pytest.mark.differential
def test_no_snapshot_is_missing_where_a_log_starts(
    loader_server: LoaderServer, tmp_path: Path
) -> None:
    log = batch([record(0)], producer_id=KEPT, producer_epoch=0, base_sequence=0)
    end = {("orders", 0): 1}
    log_dir = write_log_directory(
        tmp_path / "logs", recovery_points=end, log_start_offsets=end, high_watermarks=end
    )
    snapshot = file_name(1, FileKind.PRODUCER_SNAPSHOT)
    content = producer_snapshot.encode([ProducerEntry(KEPT, 0, 0, 0, 0, OLD, -1, -1)])
    partition = write_partition(log_dir / "orders-0", {0: log}, others={snapshot: content})

    assert loader_server.load(log_dir, IndexSettings(), Clock(), whole=True) == {}

    assert not (partition / snapshot).exists()
    found = {each.code for each in said_of(log_dir) if isinstance(each, Finding)}
    assert "snapshot-missing" not in found
