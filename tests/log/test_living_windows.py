"""Records are read once, and no damage is found, while a broker changes the log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.log_directories import write_log_directory, write_partition
from builders.samples import seeds
from builders.simulated_broker import SimulatedBroker, SteppedDisk
from kdump.errors import KdumpError
from kdump.formats.names import FileKind
from kdump.log.directory import read_log_directory
from kdump.log.living_windows import log_windows, partition_windows
from kdump.log.log_search import Trust, log_end
from kdump.log.partition import Partition, read_partition
from kdump.log.record_search import RecordSearch
from kdump.log.settled_listing import read_settled_partition
from kdump.log.valid_windows import Damage, segment_part
from kdump.scan.batches import Window
from kdump.storage.gentle_disk import GentleDisk
from kdump.storage.local_disk import LocalFile, local
from kdump.storage.location import Location


def live_partitions(locked_dir: Path) -> list[Partition]:
    """Those that stay: others come again with other records at the same offsets."""
    found = read_log_directory(local(locked_dir)).partitions
    names = ("kept-0", "retained-0", "cleaned-0")
    return [each for each in found if each.path.name in names and each.segments]


def listed_meanwhile(
    locked_dir: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Partition, Partition]]:
    """Partitions, each also as listed on a disk where the broker goes on during each reading."""
    broker = SimulatedBroker(locked_dir, seed)
    broker.steps(150 + 40 * (seed % 7))
    for module in ("living_windows", "settled_listing"):
        monkeypatch.setattr(f"kdump.log.{module}.wait", lambda _: broker.steps(60))
    disk = SteppedDisk(lambda: broker.steps(1 + seed % 6))
    for each in live_partitions(locked_dir):
        path = Location(disk, each.path.path)
        yield each, read_settled_partition(path, each.topic_partition, each.state)


def offsets_of(steps: Iterator[Window | Damage]) -> list[int]:
    found: list[int] = []
    for step in steps:
        assert isinstance(step, Window), step
        found += step.batches.base_offset.tolist()
    return found


def offsets_in(partition: Partition) -> set[int]:
    """The offsets of a log that nobody changes while it is read."""
    try:
        listed = read_partition(partition.path, partition.topic_partition, partition.state)
        return set(offsets_of(partition_windows(listed)))
    except FileNotFoundError:
        return set()


@pytest.mark.parametrize("seed", seeds(0, count=120, in_main=20))
def test_segments_that_were_listed_are_read_wherever_they_are(
    locked_dir: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition, listed in listed_meanwhile(locked_dir, seed, monkeypatch):
        before = offsets_in(partition)
        found: list[int] = []
        for segment, following in listed.with_following():
            log = listed.segment_path(segment, FileKind.LOG)
            found += offsets_of(log_windows(log, segment_part(segment, following)))
        assert found == sorted(set(found))
        assert before & offsets_in(partition) <= set(found)


@pytest.mark.parametrize("seed", seeds(500, count=120, in_main=20))
def test_a_log_is_read_to_its_end(
    locked_dir: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition, listed in listed_meanwhile(locked_dir, seed, monkeypatch):
        before = offsets_in(partition)
        found = offsets_of(partition_windows(listed))
        assert found == sorted(set(found))
        assert before & offsets_in(partition) <= set(found)


def test_half_a_batch_at_the_end_is_damage_only_where_nobody_is_writing(locked_dir: Path) -> None:
    first, second = (batch([record(offset)]) for offset in (0, 1))
    log = write_partition(locked_dir / "orders-0", {0: first + second[:-5]}) / f"{0:020d}.log"
    write_log_directory(locked_dir)
    partition = read_partition(local(log.parent), None)

    def found() -> int:
        return len(log_end(partition, Trust.CHECKSUMS).damage) + len(damages_of(partition))

    assert found() == 0
    log.write_bytes(first[:-5] + second)
    assert found() > 0
    log.write_bytes(first + second[:-5])
    shutil.copytree(locked_dir, locked_dir.parent / "copy")
    partition = read_partition(local(locked_dir.parent / "copy" / "orders-0"), None)
    assert found() > 0


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_a_log_whose_disk_is_unmounted_has_no_early_end(
    locked_dir: Path, is_mount_point: bool
) -> None:
    segments = {at: batch([record(at)]) for at in range(3)}
    path = write_partition(write_log_directory(locked_dir) / "orders-0", segments)
    steps = partition_windows(read_partition(local(path), None))
    next(steps)
    shutil.rmtree(locked_dir)
    if is_mount_point:
        locked_dir.mkdir()
    with pytest.raises(KdumpError, match="may have been unmounted"):
        list(steps)


def damages_of(partition: Partition) -> list[Damage]:
    search = RecordSearch(partition)
    search.log_end_offset()
    return [*search.damages.values()]


def test_what_a_broker_has_in_memory_is_not_pushed_out(
    locked_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    openly = GentleDisk.open_file

    def note(disk: GentleDisk, location: Location) -> LocalFile:
        opened.append(location.name)
        return openly(disk, location)

    monkeypatch.setattr(GentleDisk, "open_file", note)
    path = write_partition(locked_dir / "orders-0", {0: batch([record(0)]), 1: batch([record(1)])})
    write_log_directory(locked_dir, clean=False)
    assert offsets_of(partition_windows(read_partition(local(path), None))) == [0, 1]
    assert opened == [f"{0:020d}.log", f"{1:020d}.log"]
