"""Fixtures and hooks for all tests: the repository, real directories, Kafka's own jars."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from builders import archives, kafka_jars, suite_parts
from builders.class_archives import archived
from builders.loading import LoaderServer
from builders.lock_holder import held_elsewhere
from builders.memory import in_memory, temporary_files_in_memory
from builders.releases import THIS, make_release
from kdump.engine.spark import SparkEngine
from kdump.log.lock_holders import forget_holders
from kdump.storage.local_disk import local
from kdump.target.virtual_directory import VirtualDirectory

hypothesis.settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    max_examples=25,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "full", hypothesis.settings.get_profile("quick"), max_examples=100
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=5_000)
PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "quick")
hypothesis.settings.load_profile(PROFILE)


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Scheduler that gives each process whole files, and all files that share a fixture."""

    def _split_scope(self, nodeid: str) -> str:
        return suite_parts.group_of(nodeid.partition("::")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory, unless ``--basetemp`` names a directory for them."""
    is_worker = hasattr(config, "workerinput")
    if not is_worker and config.getoption("basetemp") is None:
        stack = contextlib.ExitStack()
        stack.enter_context(temporary_files_in_memory())
        config.add_cleanup(stack.close)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Producer | None
) -> LoadScopeScheduling | None:
    """Use this scheduler if ``./dev test`` asks for whole files."""
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark tests by their fixtures, and start the longest tests first.

    Otherwise one process would run them after all others have finished. Pytest brings tests with
    the same parameters of shared fixtures together before.
    """
    for item in items:
        for marker in suite_parts.implied_markers(getattr(item, "fixturenames", ())):
            item.add_marker(marker)
    yield
    groups = {item: suite_parts.group_of(item.nodeid.partition("::")[0]) for item in items}
    slow = {groups[item] for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: suite_parts.rank(groups[item], is_slow=groups[item] in slow))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test of the fast part that is slow."""
    before = suite_parts.cpu_seconds()
    result = yield
    used = suite_parts.cpu_seconds() - before
    markers = {marker.name for marker in item.iter_markers()}
    is_fast = suite_parts.part_of(markers) is suite_parts.Part.FAST
    if is_fast and used > suite_parts.MOST_CPU_SECONDS and PROFILE == "quick":
        pytest.fail(f"used {used:.1f} s of processor time: mark it as slow", pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of tests run of each part of the suite, and why others were skipped."""
    results = [
        (report.keywords, _reason(report) if outcome == "skipped" else None)
        for outcome in ("passed", "failed", "skipped", "error")
        for report in terminalreporter.stats.get(outcome, [])
        if isinstance(report, pytest.TestReport)
    ]
    if not results:
        return
    terminalreporter.section("parts of the suite")
    for line in suite_parts.summary_lines(results):
        terminalreporter.write_line(line)


def _reason(report: pytest.TestReport) -> str:
    """Return the reason why a test was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


@pytest.fixture(scope="session")
def repository_root() -> Path:
    """Return the directory that holds ``pyproject.toml``."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def fixtures(repository_root: Path) -> Path:
    """Return the directory where all archives of ``fixtures/`` are unpacked: ``out/``, ``golden/``.

    All tests share it, and it is kept between runs: copy it before you change anything.
    """
    return archives.unpack_all(repository_root / "fixtures", repository_root / "build/fixtures")


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """Return a directory in memory if space allows: disks are slow to sync and to delete."""
    with in_memory(tmp_path) as path:
        yield path


@pytest.fixture
def locked_dir(quick_path: Path) -> Iterator[Path]:
    """Return an empty directory that another process has locked, as a broker does."""
    root = quick_path / "log"
    root.mkdir()
    with held_elsewhere(root):
        forget_holders()
        yield root
    forget_holders()


@pytest.fixture(scope="session")
def kafka_classpath(repository_root: Path, testrun_uid: str) -> str:
    """Return the Java classpath of Kafka 4.3.1 and its tools; skip if it is not available."""
    return _or_skip(kafka_jars.jars_classpath, repository_root, testrun_uid)


@pytest.fixture(scope="session")
def java_classpath(kafka_classpath: str, repository_root: Path, testrun_uid: str) -> str:
    """Return the classpath of ``tests/java/src/*.java``, compiled, followed by Kafka's."""
    return archived(_or_skip(kafka_jars.programs_classpath, repository_root, testrun_uid))


@pytest.fixture(scope="session")
def newest_kafka_jars(repository_root: Path, testrun_uid: str) -> Path:
    """Return the folder with the jars of the newest Kafka that kdump knows."""
    return Path(_or_skip(kafka_jars.newest_classpath, repository_root, testrun_uid)).parent


@pytest.fixture(scope="session")
def newest_classpath(repository_root: Path, testrun_uid: str) -> str:
    """Return the classpath of the programs that run brokers and clusters, of the newest Kafka."""
    return archived(_or_skip(kafka_jars.newest_cluster_classpath, repository_root, testrun_uid))


@pytest.fixture(scope="session")
def newest_consumer_classpath(repository_root: Path, testrun_uid: str) -> str:
    """Return the classpath of the program that consumes, and of the newest Kafka."""
    return _or_skip(kafka_jars.newest_consumer_classpath, repository_root, testrun_uid)


@pytest.fixture(scope="session")
def oldest_clients_classpath(repository_root: Path, testrun_uid: str) -> str:
    """Return the classpath of the program that consumes with the oldest clients."""
    return _or_skip(kafka_jars.oldest_clients_classpath, repository_root, testrun_uid)


@pytest.fixture(scope="session")
def mirror_maker_classpath(repository_root: Path, testrun_uid: str) -> str:
    """Return the classpath of MirrorMaker 2."""
    return _or_skip(kafka_jars.mirror_maker_classpath, repository_root, testrun_uid)


@pytest.fixture(scope="session")
def spark_kafka_jars(repository_root: Path, testrun_uid: str) -> Path:
    """Return the folder with the jars of Spark's own source for Kafka."""
    return Path(_or_skip(kafka_jars.spark_kafka_classpath, repository_root, testrun_uid)).parent


@pytest.fixture(scope="session")
def loader_server(java_classpath: str) -> Iterator[LoaderServer]:
    """Return Kafka's loader as a server: a JVM takes long to start."""
    with LoaderServer(java_classpath) as running:
        yield running


@pytest.fixture(scope="session")
def newest_loader_server(repository_root: Path, testrun_uid: str) -> Iterator[LoaderServer]:
    """Return the loader of the newest Kafka that kdump knows as a server."""
    classpath = _or_skip(kafka_jars.newest_loader_classpath, repository_root, testrun_uid)
    with LoaderServer(classpath) as running:
        yield running


@pytest.fixture(scope="session")
def cache(repository_root: Path) -> Iterator[Path]:
    """Use a cache in the repository, which keeps the archive of Spark's classes."""
    with pytest.MonkeyPatch.context() as patch:
        folder = repository_root / "build" / "cache"
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def quick_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the compiler of JVMs that kdump does not start: they run for a few seconds only."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def quick_sessions(quick_jvms: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep sessions that programs start by PySpark alone from compiling plans for few rows."""
    properties = {
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in properties.items())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{options} pyspark-shell")


@pytest.fixture(scope="session")
def spark(cache: Path) -> Iterator[SparkEngine]:
    """Return Spark on two cores, started once for all tests of a process."""
    with SparkEngine("local[2]") as engine:
        yield engine


@pytest.fixture(scope="session")
def running_spark(spark: SparkEngine) -> SparkEngine:
    """Return Spark after it has started: commands in this process use it."""
    assert spark._session.context is not None
    return spark


@pytest.fixture
def no_starting_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a verification that misses a file not wait for a broker that may be starting."""
    monkeypatch.setattr("kdump.jobs.verify.verify._START_S", 0.0)


@pytest.fixture(scope="session")
def machine_release(repository_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a release for this machine only, with the image with Spark."""
    target = tmp_path_factory.mktemp("machine") / "made"
    return make_release(repository_root, target, "--machine", THIS)


@pytest.fixture(scope="session")
def empty_workspace(tmp_path_factory: pytest.TempPathFactory) -> VirtualDirectory:
    """Return an empty virtual directory."""
    return VirtualDirectory(local(tmp_path_factory.mktemp("empty")))


def _or_skip(provide: Callable[[], str], repository_root: Path, testrun_uid: str) -> str:
    """Call ``provide``; skip if the reference is unavailable, and tell the other processes.

    Without a network, Maven takes long to fail: one process tries, the others use its result.
    """
    verdict = repository_root / "build" / f"{provide.__name__}.unavailable"
    verdict.parent.mkdir(exist_ok=True)
    with verdict.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        run, _, reason = file.read().partition(" ")
        if run != testrun_uid:
            try:
                return provide()
            except kafka_jars.ReferenceUnavailable as failure:
                reason = f"Kafka's jars are not available: {failure}"
                verdict.write_text(f"{testrun_uid} {reason}")
    pytest.skip(reason)
