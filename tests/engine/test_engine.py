from __future__ import annotations

import itertools
import pickle
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

import pytest

from builders.jobs import Count, CountBatches, ShuffleBatches, TellProcess
from kdump.engine import engine_choice, engine_rates
from kdump.engine.engine import Engine, run_in_order
from kdump.engine.engine_choice import (
    Because,
    EngineChoice,
    EngineOptions,
    decide,
    open_engine,
)
from kdump.engine.engine_rates import EngineRate, JobKind
from kdump.engine.job import Job, JobFailedError, ResultT, Split, SplitT
from kdump.engine.local import LocalEngine
from kdump.engine.progress import Silent
from kdump.engine.spark import SparkEngine
from kdump.storage.local_disk import local

CHOICES: Final = [each for each in EngineChoice if each is not EngineChoice.AUTO]


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a Java installation that is not executed."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def chosen(options: EngineOptions, kind: JobKind, total_bytes: int) -> EngineChoice:
    return decide(options, kind, total_bytes).engine


@pytest.mark.parametrize("kind", JobKind)
@pytest.mark.parametrize(
    ("options", "total_bytes", "expected"),
    [
        (EngineOptions(), 0, EngineChoice.LOCAL),
        (EngineOptions(EngineChoice.LOCAL), 1 << 50, EngineChoice.LOCAL),
        (EngineOptions(EngineChoice.SPARK), 0, EngineChoice.SPARK),
        (EngineOptions(master="spark://host:7077"), 0, EngineChoice.SPARK),
        (EngineOptions(EngineChoice.LOCAL, master="local[2]"), 0, EngineChoice.LOCAL),
    ],
)
def test_the_engine_is_chosen_by_option_and_spark_not_for_little_work(
    options: EngineOptions, total_bytes: int, kind: JobKind, expected: EngineChoice
) -> None:
    assert chosen(options, kind, total_bytes) is expected


@pytest.fixture
def spark_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark scan twice as fast as the local engine, and start in ten seconds."""
    local_rate = EngineRate(0, 2)
    monkeypatch.setitem(engine_rates.LOCAL_RATES, JobKind.SCAN, local_rate)
    monkeypatch.setitem(engine_rates.SPARK_RATES, JobKind.SCAN, EngineRate(10, 1))
    monkeypatch.setattr(engine_choice, "usable_cpus", lambda: 1)


@pytest.mark.usefixtures("java_home", "spark_rates")
@pytest.mark.parametrize(("gib", "expected"), [(9, EngineChoice.LOCAL), (11, EngineChoice.SPARK)])
def test_the_engine_that_is_expected_to_finish_first_runs(gib: int, expected: EngineChoice) -> None:
    decision = decide(EngineOptions(), JobKind.SCAN, gib << 30)
    assert decision.engine is expected
    assert decision.local_seconds == 2 * gib
    assert decision.spark_seconds == 10 + gib


@pytest.fixture
def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.usefixtures("without_java", "spark_rates")
def test_without_java_only_who_asks_gets_spark() -> None:
    much = 1 << 40
    assert decide(EngineOptions(), JobKind.SCAN, much).because is Because.ONLY
    assert chosen(EngineOptions(), JobKind.SCAN, much) is EngineChoice.LOCAL
    assert chosen(EngineOptions(master="local[2]"), JobKind.SCAN, much) is EngineChoice.SPARK
    assert chosen(EngineOptions(EngineChoice.SPARK), JobKind.SCAN, 0) is EngineChoice.SPARK


@pytest.mark.usefixtures("spark_rates")
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.8.0_412", EngineChoice.LOCAL),
        ("11.0.25", EngineChoice.LOCAL),
        ("17.0.13", EngineChoice.SPARK),
        ("21", EngineChoice.SPARK),
    ],
)
def test_a_java_that_is_too_old_for_spark_counts_as_none(
    version: str, expected: EngineChoice, java_home: Path
) -> None:
    (java_home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    assert chosen(EngineOptions(), JobKind.SCAN, 1 << 40) is expected


@pytest.fixture
def engines(spark: SparkEngine) -> Iterator[list[Engine]]:
    """Return every engine; this process without workers is the first."""
    with LocalEngine(processes=1) as here, LocalEngine(processes=2) as pool:
        yield [here, pool, spark]


@pytest.mark.slow
def test_a_job_has_the_same_results_on_every_engine(
    work: list[Split], engines: list[Engine]
) -> None:
    expected, *others = [dict(each.run(CountBatches(), work)) for each in engines]
    assert others == [expected] * len(others)


def test_every_engine_that_can_be_chosen_is_tested(engines: list[Engine]) -> None:
    assert {each.name for each in engines} == {each.value for each in CHOICES}


@pytest.mark.slow
def test_a_shuffle_has_the_same_results_on_every_engine(
    work: list[Split], engines: list[Engine]
) -> None:
    job = ShuffleBatches()
    _, (shuffled,) = engines[0].shuffle(job, work, 1)
    order = {each: at for at, each in enumerate(shuffled)}
    for engine in engines:
        counts, buckets = engine.shuffle(job, work, 7)
        assert counts == [job.counting.run(split) for split in work]
        # A bucket has the order of the splits, and no element is in two buckets.
        for bucket in buckets:
            assert bucket == sorted(bucket, key=order.__getitem__)
        assert sorted(itertools.chain(*buckets), key=order.__getitem__) == shuffled


@pytest.mark.slow
def test_a_shuffle_has_several_buckets_on_every_engine(
    work: list[Split], engines: list[Engine]
) -> None:
    for engine in engines:
        _, buckets = engine.shuffle(ShuffleBatches(), work, 7)
        assert len(buckets) > 1


def test_an_error_names_the_split_that_failed(work: list[Split], engines: list[Engine]) -> None:
    gone = Split(local("gone/00000000000000000000.log"), 4096, None, 1)
    for each in engines:
        with pytest.raises(JobFailedError, match="from byte 4096: No such file or directory"):
            each.shuffle(ShuffleBatches(), [*work, gone], 7)


def test_the_parts_of_a_file_add_up_to_the_file(work: list[Split]) -> None:
    path = work[0].path
    parts = [split for split in work if split.path == path]
    assert len(parts) > 5
    job = CountBatches()
    with LocalEngine() as here:
        counted = [count for _, count in here.run(job, parts)]
    whole = job.run(Split(path))
    assert whole == Count(
        sum(count.batches for count in counted),
        sum(count.records for count in counted),
        sum(count.size_bytes for count in counted),
    )
    assert whole.size_bytes == path.status().size_bytes


class Backwards:
    """Engine that finishes the last split first."""

    name = "backwards"

    def run(
        self, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
    ) -> Generator[tuple[SplitT, ResultT], None, None]:
        for split in reversed(splits):
            yield split, job.run(split)

    def shuffle(self, job: object, splits: object, buckets: int) -> NoReturn:
        raise AssertionError


def test_results_can_be_returned_in_the_order_of_the_splits(work: list[Split]) -> None:
    ordered = [split for split, _ in run_in_order(Backwards(), CountBatches(), work)]
    assert ordered == work


@pytest.mark.parametrize("choice", CHOICES)
def test_without_work_no_engine_starts(choice: EngineChoice, cache: Path) -> None:
    with open_engine(EngineOptions(choice), total_bytes=0) as opened:
        assert opened.name == choice.value
        assert not list(opened.run(TellProcess(), []))


class Recorder(Silent):
    """Progress that records its calls."""

    is_shown = True

    def __init__(self) -> None:
        self.total_bytes = self.done_bytes = self.ended = 0
        self.labels: set[str] = set()

    def begin(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes

    def working_on(self, label: str) -> None:
        self.labels.add(label)

    def advance(self, size_bytes: int) -> None:
        self.done_bytes += size_bytes

    def end(self) -> None:
        self.ended += 1


@pytest.mark.slow
def test_progress_counts_every_byte(
    work: list[Split], engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    for engine in engines:
        told = Recorder()
        monkeypatch.setattr(engine, "_progress", told)
        done = list(engine.run(CountBatches(), work))
        assert len(done) == len(work)
        assert told.done_bytes == told.total_bytes == sum(split.size_bytes for split in work)
        assert told.ended == 1
        assert "large-0" in told.labels


def test_the_failure_of_a_job_can_be_pickled() -> None:
    failure = JobFailedError(Split(local("log"), 12), "No such file or directory", "trace")
    copy = pickle.loads(pickle.dumps(failure))
    assert isinstance(copy, JobFailedError)
    assert (str(copy), copy.split, copy.trace) == (str(failure), failure.split, "trace")
