"""A part of the data is verified as all of it is, and all parts together are everything once."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.simulated_broker import SimulatedBroker
from builders.verified import NOW_MS, LogModel, file, said_of
from builders.violations import CASES, Case
from kdump.check.findings import Finding, Severity
from kdump.check.part import Level
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.formats.names import FileKind
from kdump.jobs.verify.scrub import Coverage, Scrub
from kdump.jobs.verify.subset import Subset, Unit, units_of
from kdump.jobs.verify.verify import VerifyEvent, VerifyRequest, VerifySummary, VerifyTarget, verify
from kdump.jobs.verify.verify_partition import NEEDS_ALL_DATA, PARTLY_READ, PartitionReport
from kdump.log.directory import read_log_directory
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import LocalDisk, LocalFile, local
from kdump.storage.location import Location

DAY_MS: Final = 24 * 60 * 60 * 1000
BY_WORKERS: Final = EngineOptions(EngineChoice.LOCAL, processes=2)
PREDICTED: Final = {"load-loss", "load-refused", "swap-incomplete", "swap-dropped"}
"""What only the rules of a starting broker find."""


def part(number: int, parts: int) -> Scrub:
    return Scrub(Subset(f"{number}/{parts}", part=(number, parts)))


def parts_of(count: int) -> list[Scrub]:
    return [part(number, count) for number in range(1, count + 1)]


def findings(events: Iterable[VerifyEvent]) -> set[Finding]:
    return {each for each in events if isinstance(each, Finding)}


def reports(events: Iterable[VerifyEvent]) -> list[PartitionReport]:
    return [each for each in events if isinstance(each, PartitionReport)]


def summary(events: Sequence[VerifyEvent]) -> VerifySummary:
    last = events[-1]
    assert isinstance(last, VerifySummary)
    return last


def coverage(events: Sequence[VerifyEvent]) -> Coverage:
    found = summary(events).coverage
    assert found is not None
    return found


def flip(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)


def separating(root: Path) -> int:
    """Into how many parts the segments of the partition fall so that each has one."""
    units = units_of(0, read_log_directory(local(root)).partitions[0])
    counts = itertools.count(2)
    return next(n for n in counts if len({each.number % n for each in units}) == len(units))


# ---- The division ----


UNITS: Final = st.lists(
    st.builds(
        Unit,
        target=st.integers(0, 3),
        base_offset=st.integers(-1, 100),
        size_bytes=st.integers(0, 10**12),
        number=st.integers(0, 2**64 - 1),
    ),
    unique=True,
)


@given(UNITS, st.integers(1, 60))
def test_all_parts_are_everything_once(units: list[Unit], count: int) -> None:
    chosen = [
        each
        for scrub in parts_of(count)
        if scrub.subset is not None
        for each in scrub.subset.chosen(units, NOW_MS)
    ]
    assert sorted(chosen, key=hash) == sorted(units, key=hash)


@given(UNITS, st.integers(1, 100), st.integers(0, 40_000))
def test_a_share_is_everything_once_in_as_many_days(
    units: list[Unit], percent: int, today: int
) -> None:
    subset = Subset("", percent=percent)
    total_bytes = sum(each.size_bytes for each in units)
    days = max(1, -(-total_bytes // max(1, total_bytes * percent // 100)))
    if days > 200:
        return  # a few bytes
    chosen = [each for day in range(days) for each in subset.chosen(units, (today + day) * DAY_MS)]
    assert sorted(chosen, key=hash) == sorted(units, key=hash)


def test_an_amount_takes_as_many_days_as_it_is_contained() -> None:
    units = [Unit(0, base, 100, base) for base in range(10)]
    subset = Subset("250", size_bytes=250)
    assert [[each.base_offset for each in subset.chosen(units, day * DAY_MS)] for day in range(5)]
    by_day = [[each.base_offset for each in subset.chosen(units, n * DAY_MS)] for n in range(4)]
    assert by_day == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_a_segment_stays_in_its_part(tmp_path: Path) -> None:
    """A scrub that goes on with another version, or on another path, leaves nothing out."""
    LogModel().write(tmp_path / "logs")
    shutil.copytree(tmp_path / "logs", tmp_path / "elsewhere" / "moved")
    for root in (tmp_path / "logs", tmp_path / "elsewhere" / "moved"):
        units = units_of(0, read_log_directory(local(root)).partitions[0])
        assert [each.number for each in units] == [NUMBER_0, NUMBER_12]


NUMBER_0: Final = 10079359079819598334
NUMBER_12: Final = 3124374198407587835


# ---- What a part finds ----


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[f"{case.code}: {case.name}" for case in CASES])
def test_all_parts_together_find_what_a_segment_says(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    case.write(root)
    whole = {
        each
        for each in findings(said_of(root))
        if each.code not in NEEDS_ALL_DATA and each.code not in PREDICTED
    }
    runs = [said_of(root, scrub=each) for each in parts_of(separating(root))]
    together = set[Finding]().union(*map(findings, runs))
    assert whole <= together
    assert {each.code for each in together - whole} <= {"time-index-entry"}
    assert sum(coverage(each).read for each in runs) == coverage(runs[0]).segments


@pytest.mark.parametrize("is_living", [False, True])
def test_a_flip_is_found_by_one_part(tmp_path: Path, is_living: bool) -> None:
    broker = SimulatedBroker(tmp_path / "logs", 5)
    broker.steps(500)
    log = sorted(broker.kept.glob("*.log"))[1]
    flip(log)
    runs = [
        said_of(tmp_path / "logs", scrub=each, is_living=is_living, level=Level.DEFAULT)
        for each in parts_of(4)
    ]
    found = [
        [each.place.path for each in findings(run) if each.code == "batch-checksum"] for run in runs
    ]
    assert sorted(found) == [[], [], [], [str(log)]]


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_a_living_directory_have_no_false_finding(tmp_path: Path, seed: int) -> None:
    broker = SimulatedBroker(tmp_path / "logs", seed)
    broker.steps(300)
    for scrub in parts_of(3):
        found = findings(said_of(tmp_path / "logs", scrub=scrub, is_living=True))
        assert not [each for each in found if each.severity > Severity.INFO]


@pytest.mark.parametrize("is_living", [False, True])
def test_a_valid_directory_has_no_findings_in_parts(tmp_path: Path, is_living: bool) -> None:
    LogModel(others=("a", "b", "c")).write(tmp_path / "logs")
    for scrub in parts_of(5):
        said = said_of(tmp_path / "logs", scrub=scrub, is_living=is_living)
        assert {each.code for each in findings(said)} <= {"checkpoint-empty"}


def test_one_of_one_is_everything(tmp_path: Path) -> None:
    LogModel(others=("a", "b")).write(tmp_path / "logs")
    flip(file(tmp_path / "logs" / "orders-0", 0, FileKind.LOG))
    whole, only = said_of(tmp_path / "logs"), said_of(tmp_path / "logs", scrub=part(1, 1))
    assert only[:-1] == whole[:-1]
    assert (coverage(only).read, coverage(only).segments) == (6, 6)


@pytest.mark.slow
def test_workers_find_the_same(tmp_path: Path) -> None:
    LogModel(others=("a", "b", "c")).write(tmp_path / "logs")
    flip(file(tmp_path / "logs" / "orders-0", 12, FileKind.LOG))
    for scrub in parts_of(3):
        here = said_of(tmp_path / "logs", scrub=scrub)
        assert said_of(tmp_path / "logs", scrub=scrub, options=BY_WORKERS)[:-1] == here[:-1]


def test_a_partition_that_was_read_in_part_says_so(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    LogModel().write(root)
    said = [reports(said_of(root, scrub=each)) for each in parts_of(separating(root))]
    read = [report for each in said for report in each]
    assert {each.verdict_kind for each in read} == {PARTLY_READ}
    assert sorted(each.read_bases for each in read) == [(0,), (12,)]
    assert [each.has_end for each in read if each.read_bases == (0,)] == [False]
    assert read[0].verdict.startswith("1 of 2 segments left out: what a starting broker would do")


class NotedDisk(LocalDisk, frozen=True, eq=False):
    """A local disk that notes which files are read."""

    names: list[str]

    def open_file(self, location: Location) -> LocalFile:
        self.names.append(location.name)
        return super().open_file(location)

    def read_listed(self, path: str) -> bytes:
        self.names.append(Path(path).name)
        return super().read_listed(path)


@pytest.mark.parametrize("is_living", [False, True])
def test_nothing_of_another_part_is_read(tmp_path: Path, is_living: bool) -> None:
    root = tmp_path / "logs"
    LogModel().write(root)
    for scrub in parts_of(separating(root)):
        names: list[str] = []
        directory = read_log_directory(Location(NotedDisk(names), str(root)))
        targets = [VerifyTarget(each, directory, is_living) for each in directory.partitions]
        settings = read_settings([directory], {})
        names.clear()
        said = list(verify(VerifyRequest(targets, [], Level.DEEP, NOW_MS, settings, scrub=scrub)))
        of_segments = {
            name.partition(".")[0] for name in names if "index" in name or ".log" in name
        }
        assert len(of_segments) == coverage(said).read
