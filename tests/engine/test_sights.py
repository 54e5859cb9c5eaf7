"""A worker refuses what is not what the driver sees under the same path."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from builders.batches import batch, record
from builders.jobs import CountBatches
from builders.lock_holder import held_elsewhere
from builders.log_directories import write_log_directory, write_partition
from builders.packed import pack
from kdump.apply.lock import hold_locks
from kdump.engine import spark
from kdump.engine.sights import AnotherPlaceError, DriverSights, Sight, require_same
from kdump.engine.splits import partition_splits
from kdump.jobs.table_rows.all_tables import TABLES
from kdump.jobs.table_rows.table_reader import open_table, places_of
from kdump.log.partition import read_partition
from kdump.pipeline.sql.table_views import ReadTask
from kdump.storage.local_disk import local
from kdump.storage.places import forget_places, parse_location
from kdump.tables.kafka_log.pushed_filters import PushedFilters

LOG = "topic-0/00000000000000000000.log"


class Answers(list[Any]):
    """An accumulator without Spark."""

    def add(self, more: Sequence[Any]) -> None:
        self.extend(more)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The log directory that the driver sees."""
    return made(tmp_path / "data", b"of the driver")


def made(path: Path, value: bytes) -> Path:
    write_log_directory(path)
    write_partition(path / "topic-0", {0: batch([record(0, b"key", value)])})
    return path


def replaced(data: Path, value: bytes) -> None:
    """Put another directory where the driver saw one, as another host has it."""
    shutil.rmtree(data)
    made(data, value)


def seen(*places: Path) -> tuple[Sight, ...]:
    found = DriverSights().of(map(local, places))
    assert pickle.loads(pickle.dumps(found)) == found
    return found


def refusal(sights: Sequence[Sight]) -> str:
    with pytest.raises(AnotherPlaceError) as caught:
        require_same(sights)
    assert caught.value.exit_status == 8
    return str(caught.value)


def test_what_the_driver_sees_is_accepted_with_files_that_were_added(data: Path) -> None:
    sights = seen(data / "topic-0", data / LOG)
    (data / "topic-0" / "00000000000000000000.log.cleaned").touch()
    require_same(sights)


@pytest.mark.parametrize("place", ["", "topic-0", LOG])
@pytest.mark.parametrize("value", [b"of another", b"of the driver"], ids=["size", "time"])
def test_another_directory_is_refused(data: Path, place: str, value: bytes) -> None:
    sights = seen(data / place)
    replaced(data, value)
    assert "has another" in refusal(sights)


def test_a_copy_with_its_times_is_refused_if_a_file_of_it_differs(data: Path) -> None:
    log = data / LOG
    sights = seen(log)
    status = log.stat()
    log.write_bytes(log.read_bytes() + bytes(7))
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    size = status.st_size
    assert f"({size + 7} bytes there, {size} here)" in refusal(sights)


def test_the_lock_of_the_driver_is_missing_in_a_copy(data: Path, tmp_path: Path) -> None:
    with hold_locks([data]):
        sights = seen(data / "topic-0")
        clone = tmp_path / "clone"
        shutil.copytree(data, clone, copy_function=shutil.copy2)
    # Released, the lock file is gone, as it never was on another host.
    clone.rename(tmp_path / "elsewhere")
    assert f"cannot read {data}/.lock: No such file or directory; the driver could" in refusal(
        sights
    )


def test_a_missing_directory_is_said_to_be_readable_by_the_driver(data: Path) -> None:
    sights = seen(data / "topic-0")
    shutil.rmtree(data)
    said = refusal(sights)
    assert "No such file or directory; the driver could" in said
    assert said.endswith(
        "give all executors the same directories and credentials, or omit --master"
    )


def test_a_broker_may_write_while_the_directory_is_read(data: Path) -> None:
    (data / ".lock").touch()
    os.utime(data / LOG, ns=(0, 0))
    sights = seen(data / "topic-0", data / LOG)
    with (data / LOG).open("ab") as log:
        log.write(bytes(100))
    require_same(sights)
    os.utime(data / ".lock", ns=(0, 0))
    assert "another" in refusal(sights)


def test_a_running_broker_may_delete_what_is_about_to_be_read(data: Path) -> None:
    with held_elsewhere(data):
        sights = seen(data / "topic-0", data / LOG)
        (data / LOG).unlink()
        require_same(sights)
        os.utime(data / ".lock", ns=(0, 0))
        assert "another" in refusal(sights)


def test_what_the_driver_cannot_read_is_no_reason_to_refuse(tmp_path: Path) -> None:
    require_same(seen(tmp_path / "gone"))


def test_an_archive_that_only_the_driver_has(data: Path, tmp_path: Path) -> None:
    place = parse_location(pack(data, tmp_path / "backup.tar") + "/topic-0")
    sights = DriverSights().of([place, place / "other"])
    assert len(sights) == 1
    (tmp_path / "backup.tar").unlink()
    assert "No such file or directory; the driver could" in refusal(sights)
    forget_places()


def test_a_job_has_no_result_where_another_directory_is(data: Path) -> None:
    [split] = partition_splits(read_partition(local(data / "topic-0"), None))
    task = [(0, split, DriverSights().of(split.read_places()))]
    answers = Answers()
    spark._run_task(CountBatches(), answers, None, 1, [task])
    assert answers[0].result.records == 1
    replaced(data, b"of another")
    answers.clear()
    spark._run_task(CountBatches(), answers, None, 1, [task])
    assert [type(each) for each in answers] == [spark._Failed]
    assert "than the driver" in answers[0].what
    assert answers[0].trace == ""


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_no_rows_where_another_directory_is(data: Path, table: str) -> None:
    reader = open_table({"table": table, "path": str(data)})
    everything = PushedFilters()
    splits = [(each, DriverSights().of(places_of(each))) for each in reader.splits(everything)]
    task = [pa.record_batch({"id": list(range(len(splits)))})]
    reports = Answers()
    list(ReadTask(reader, everything, splits, reports)(task))
    assert AnotherPlaceError not in map(type, reports)
    replaced(data, b"of another")
    reports.clear()
    rows = list(ReadTask(reader, everything, splits, reports)(task))
    assert AnotherPlaceError in map(type, reports)
    if table == "findings":  # what the driver itself found in the root
        assert {each for batch in rows for each in batch["directory"].to_pylist()} == {None}
    else:
        assert rows == []
