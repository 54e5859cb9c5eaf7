"""The producers of a log in use are those of its broker, whatever it does while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.log_directories import write_log_directory, write_partition
from builders.read_tables import table_rows
from builders.samples import seeds
from builders.simulated_broker import SimulatedBroker, SteppedDisk
from kdump.formats import names, producer_snapshot
from kdump.formats.names import FileKind
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.storage.location import Location
from kdump.tables.table_options import TableOptions


@pytest.mark.parametrize("seed", seeds(0, count=60, in_main=6))
def test_each_log_has_the_producer_that_writes_to_it(
    seed: int,
    locked_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = SimulatedBroker(locked_dir, seed)
    broker.steps(500)
    disk = SteppedDisk(lambda: broker.steps(1 + seed % 4))
    monkeypatch.setattr(TableOptions, "locations", lambda _: [Location(disk, str(locked_dir))])
    for module in ("living_windows", "settled_listing"):
        monkeypatch.setattr(f"kdump.log.{module}.wait", lambda _: broker.steps(60))

    rows = table_rows("producers", locked_dir)

    assert caplog.messages == []
    found = {row["topic"]: row for row in rows if row["topic"] in ("kept", "retained", "cleaned")}
    assert len(found) == 3
    for row in found.values():
        assert (row["producer_id"], row["producer_epoch"]) == (7, 0)
        assert row["last_sequence"] == row["last_offset"]
        assert row["current_txn_first_offset"] is None


def written(folder: Path, snapshot: bytes) -> Path:
    """Write a log of three batches by a producer, and the snapshot before the last segment."""
    logs = [
        batch([record(at)], producer_id=7, producer_epoch=0, base_sequence=at) for at in range(3)
    ]
    write_log_directory(folder, clean=False)
    name = str(names.OffsetFileName(2, FileKind.PRODUCER_SNAPSHOT))
    write_partition(
        folder / "orders-0", {0: logs[0] + logs[1], 2: logs[2]}, others={name: snapshot}
    )
    return folder


def test_producers_that_only_a_snapshot_knows_are_found(locked_dir: Path) -> None:
    entries = [ProducerEntry(6, 0, 4, 0, 0, 1, -1, -1), ProducerEntry(7, 0, 1, 1, 0, 1, -1, -1)]
    rows = table_rows("producers", written(locked_dir, producer_snapshot.encode(entries)))
    assert [(row["producer_id"], row["last_sequence"]) for row in rows] == [(6, 4), (7, 2)]


@pytest.mark.parametrize("size_bytes", [0, 20])
def test_a_snapshot_that_is_being_written_is_none(locked_dir: Path, size_bytes: int) -> None:
    half = producer_snapshot.encode([ProducerEntry(6, 0, 4, 0, 0, 1, -1, -1)])[:size_bytes]
    rows = table_rows("producers", written(locked_dir, half))
    assert [(row["producer_id"], row["last_sequence"]) for row in rows] == [(7, 2)]
