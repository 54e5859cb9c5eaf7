"""Verify has the same results on both engines, and predicts what a broker does after a crash."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.archives import CRASHES
from builders.batches import batches
from builders.verified import END_OFFSET, LogModel, said_of, state_of, write_segment
from kdump.check.collector import MOST_OF_A_CODE
from kdump.check.findings import Finding, Severity
from kdump.check.invariants import FILE_UNREADABLE
from kdump.check.part import Level
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.engine.spark import SparkEngine
from kdump.formats import names
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.loading.load_split import LoadSplit
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.verify import verify as pipeline
from kdump.jobs.verify.verify import VerifyEvent, VerifySummary
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log.directory import read_log_directory
from kdump.storage.local_disk import local

pytestmark = pytest.mark.slow

NOW_MS = 1_800_000_000_000
IN_HERE = EngineOptions(EngineChoice.LOCAL, processes=1)
BY_WORKERS = EngineOptions(EngineChoice.LOCAL, processes=2)
ON_SPARK = EngineOptions(EngineChoice.SPARK)
SPLIT_BYTES = 4096
REAL = ("clean/d1", "clean/d2", "clean-mv39/logs", "crashed/d1", "crashed/d2", "legacy/logs")


def events_by(options: EngineOptions, level: Level, roots: Sequence[Path]) -> list[VerifyEvent]:
    """Return all events of a verification, without its duration."""
    events = said_of(*roots, level=level, now_ms=NOW_MS, options=options, with_statistics=True)
    return [
        replace(each, seconds=0) if isinstance(each, VerifySummary) else each for each in events
    ]


def damage(log_dir: Path, seed: int) -> None:
    """Change, shorten and lengthen files of a log directory."""
    rng = random.Random(seed)
    for path in sorted(log_dir.glob("*-*/*")):
        if path.suffix not in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
            continue
        content = bytearray(path.read_bytes())
        if not content or rng.random() < 0.5:
            continue
        at, size = rng.randrange(len(content)), rng.choice([1, 8, 300])
        content[at : at + size] = rng.choice([b"", bytes(size), rng.randbytes(size)])
        path.write_bytes(content)


@pytest.fixture(scope="module")
def many_directories(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return real directories, damaged copies of them, and a damaged one with a large segment."""
    folder = tmp_path_factory.mktemp("directories")
    roots = [fixtures / "out" / each for each in REAL]
    for seed, root in enumerate(list(roots)):
        copy = folder / root.relative_to(fixtures)
        shutil.copytree(root, copy)
        damage(copy, seed)
        roots.append(copy)
    partition = LogModel(is_clean=False).write(folder / "model")
    write_segment(partition, END_OFFSET, batches(40, base_offset=END_OFFSET))
    damage(folder / "model", 7)
    return [*roots, folder / "model"]


@pytest.mark.parametrize(
    ("level", "split_bytes"),
    [
        pytest.param(Level.DEEP, SPLIT_BYTES, id="deep, in splits"),
        pytest.param(Level.DEFAULT, SPLIT_BYTES, id="default, in splits", marks=pytest.mark.soak),
        pytest.param(Level.QUICK, SPLIT_BYTES, id="quick, in splits", marks=pytest.mark.soak),
        pytest.param(Level.DEEP, 1 << 30, id="deep, whole", marks=pytest.mark.soak),
        pytest.param(Level.DEFAULT, 1 << 30, id="default, whole", marks=pytest.mark.soak),
        pytest.param(Level.QUICK, 1 << 30, id="quick, whole", marks=pytest.mark.soak),
    ],
)
def test_both_engines_give_the_same_events(
    many_directories: list[Path],
    level: Level,
    split_bytes: int,
    spark: SparkEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "split_bytes", lambda *_: split_bytes)
    in_process = events_by(IN_HERE, level, many_directories)
    assert events_by(ON_SPARK, level, many_directories) == in_process
    assert events_by(BY_WORKERS, level, many_directories) == in_process
    worst = {each.severity for each in in_process if isinstance(each, Finding)}
    assert worst == set(Severity)


def test_verify_on_spark_writes_nothing(many_directories: list[Path], spark: SparkEngine) -> None:
    few = many_directories[-3:]
    before = [state_of(root) for root in few]
    events_by(ON_SPARK, Level.DEEP, few)
    assert [state_of(root) for root in few] == before


@pytest.fixture(
    params=CRASHES,
    ids=lambda pair: pair[0],
)
def crash(request: pytest.FixtureRequest, fixtures: Path) -> tuple[Path, Path]:
    """Return the directory of a killed broker before and after its next start."""
    before, after = request.param
    return fixtures / "out" / before, fixtures / "out" / after


def reports_on(log_dir: Path, level: Level) -> dict[str, PartitionReport]:
    """Return the report of each partition except the cluster's metadata."""
    return {
        event.partition.path.name: event
        for event in said_of(log_dir, level=level, now_ms=NOW_MS)
        if isinstance(event, PartitionReport) and not event.partition.is_cluster_metadata
    }


def log_sizes(partition: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in partition.glob("*.log")}


def with_ending(partition: Path, ending: str) -> list[str]:
    return [path.name for path in partition.glob(f"*{ending}")]


@pytest.mark.parametrize("level", Level)
def test_the_verdict_predicts_what_the_real_broker_did(
    crash: tuple[Path, Path], level: Level
) -> None:
    before, after = crash
    for name, report in reports_on(before, level).items():
        old, new = log_sizes(before / name), log_sizes(after / name)
        swaps = with_ending(before / name, ".swap")
        leftovers = [*swaps, *(with_ending(before / name, ".cleaned"))]
        truncated = {log: size for log, size in new.items() if size < old.get(log, 0)}
        gone = old.keys() - new.keys()
        if leftovers:
            assert report.verdict_kind == "rebuilt"
            promoted = bool(gone)
            assert (f"move {len(swaps)} leftover files into place" in report.verdict) == promoted
        elif truncated:
            [(log, size)] = truncated.items()
            is_padding = not (before / name / log).read_bytes()[size:].strip(b"\0")
            assert report.verdict_kind == ("unclean" if is_padding else "loss")
            assert f"truncate segment {log} at byte {size}" in report.verdict
        else:
            assert not gone
            assert report.verdict_kind in ("valid", "unclean", "rebuilt")


def test_the_predicted_log_end_is_that_of_the_real_broker(crash: tuple[Path, Path]) -> None:
    before, after = crash
    ends = read_log_directory(local(after)).checkpoints.recovery_points
    assert ends is not None
    for name, report in reports_on(before, Level.DEFAULT).items():
        partition = names.parse_partition_directory_name(name).topic_partition
        assert report.end_offset == ends[partition], name


def test_leftover_files_and_their_outcomes_are_reported(crash: tuple[Path, Path]) -> None:
    before, after = crash
    codes = {f".{kind}": f"leftover-{kind}" for kind in ("swap", "cleaned", "deleted")}
    found = {
        (each.place.path, each.code)
        for each in said_of(before, now_ms=NOW_MS)
        if isinstance(each, Finding) and each.code in codes.values()
    }
    expected = {
        (str(partition / name), code)
        for partition in before.glob("*-*/")
        for ending, code in codes.items()
        for name in with_ending(partition, ending)
        if ".checkpoint" not in name
    }
    # The number of findings with the same code is limited for each partition.
    assert found <= expected
    assert len(found) == len(expected) or len(found) > MOST_OF_A_CODE
    leftover = {n for partition in after.glob("*-*") for n in with_ending(partition, ".swap")}
    assert not leftover


@pytest.mark.usefixtures("no_starting_broker")
def test_what_only_the_loading_cannot_read_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks could read the file, so nothing else says that the verdict is missing."""

    def fails(_job: RecoverJob, split: LoadSplit, /) -> Unreadable:
        return Unreadable(str(split.path / "a.log"), "Input/output error")

    monkeypatch.setattr(RecoverJob, "run", fails)
    partition = LogModel(is_clean=False).write(tmp_path / "model")
    *_, summary = events = said_of(partition.parent, now_ms=NOW_MS, options=IN_HERE)
    findings = [each for each in events if isinstance(each, Finding)]
    found = [str(each.place) for each in findings if each.code == FILE_UNREADABLE.code]
    assert found == [str(partition / "a.log")]
    assert isinstance(summary, VerifySummary)
    assert summary.is_unreadable
