"""A broker serves exactly the records that were not erased, and its producers go on."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from builders.broker import BrokerHost, Consumed, ProducerSeen
from builders.in_process import run_kdump
from builders.loading import Clock, LoaderServer
from builders.memory import in_memory
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names

pytestmark = [pytest.mark.differential, pytest.mark.slow]

ALICE: Final = b"alice"
OLD_KEY: Final = b"key-0"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
NEW: Final = (*CODECS, "ended", "open")
OLD: Final = ("mixed-upgrade", "v0-lz4", "v1-logappend-gzip", "v1-logappend-none", "v1-snappy")
"""Topics with messages of old formats, which an earlier broker wrote."""
MASKED: Final = "masked"
KAFKAS: Final = {
    "4.3.1": ("java_classpath", "loader_server"),
    "4.4.0": ("newest_classpath", "newest_loader_server"),
}
TOPICS: Final = (*NEW, *OLD, MASKED)


def pairs(start: int, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Make records, every third of Alice, and the last one, too."""
    keys = [ALICE if at % 3 == 0 or at == count - 1 else b"key-%d" % at for at in range(count)]
    return [(key, b"%d of " % (start + at) + ALICE) for at, key in enumerate(keys)]


def write(host: BrokerHost, now_ms: int) -> None:
    for codec in CODECS:
        host.create_topic(codec, segment_bytes="1048576")
        host.open_producer(codec, f"compression.type={codec}", "linger.ms=5")
        for start in range(0, 40, 8):
            host.send(codec, codec, now_ms + start, pairs(start, 8))
    host.create_topic(MASKED)
    host.open_producer(MASKED, "compression.type=zstd", "linger.ms=5")
    for start in range(0, 40, 8):
        host.send(MASKED, MASKED, now_ms + start, pairs(start, 8))
    for name in ("ended", "open"):
        host.create_topic(name)
        host.open_producer(name, f"transactional.id={name}", "transaction.timeout.ms=800000")
    for commits in (True, False):
        with host.transaction("ended", commits=commits):
            host.send("ended", "ended", now_ms, pairs(0, 5))
        with host.transaction("ended", commits=commits):
            host.send("ended", "ended", now_ms, [(ALICE, b"alone")])
    host.begin("open")
    host.send("open", "open", now_ms, [(ALICE, b"first")])
    host.send("open", "open", now_ms, pairs(1, 5))


def give_old_logs(log_dirs: list[Path], source: Path) -> None:
    """Give empty topics the logs of an earlier broker; the next start recovers them."""
    for log_dir in log_dirs:
        for folder in (log_dir / f"{topic}-0" for topic in OLD):
            if folder.is_dir():
                for path in folder.glob("0*"):
                    path.unlink()
                for path in (source / folder.name).glob("*.log"):
                    shutil.copyfile(path, folder / path.name)
        (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()


@dataclass(slots=True)
class Erased:
    """The logs and indexes after an erase, and after Kafka has recovered them from nothing."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    recovered: dict[str, dict[str, bytes]] = field(default_factory=dict)


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("4.4.0", marks=pytest.mark.soak)])
def kafka(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture(scope="module")
def erased(kafka: str) -> Erased:
    del kafka  # each has its own
    return Erased()


@pytest.fixture(scope="module")
def host(
    kafka: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerHost]:
    classpath = request.getfixturevalue(KAFKAS[kafka][0])
    with BrokerHost(classpath, tmp_path_factory.mktemp("brokers") / "log") as running:
        yield running


def files_of(log_dirs: list[Path]) -> dict[str, dict[str, bytes]]:
    """Read the logs and indexes of each topic; recovery writes empty transaction indexes."""
    return {
        topic: {
            path.name: path.read_bytes()
            for log_dir in log_dirs
            for path in (log_dir / f"{topic}-0").glob("0*")
            if path.suffix in {".log", ".index", ".timeindex", ".txnindex"} and path.stat().st_size
        }
        for topic in TOPICS
    }


def note(erased: Erased, log_dirs: list[Path], loader: LoaderServer, folder: Path) -> None:
    """Let Kafka's classes recover a copy without its checkpoints, and note what it has then."""
    copies = [shutil.copytree(each, folder / each.name) for each in log_dirs]
    erased.files = files_of(copies)
    for each in copies:
        (each / names.CLEAN_SHUTDOWN_MARKER).unlink()
        (each / names.RECOVERY_POINT_CHECKPOINT).unlink()
        loader.load(each, IndexSettings(), Clock(), whole=True)
    erased.recovered = files_of(copies)
    for each in copies:
        shutil.rmtree(each)


@pytest.fixture(scope="module")
def story(
    kafka: str,
    host: BrokerHost,
    fixtures: Path,
    erased: Erased,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[dict[str, Consumed], dict[str, Consumed]]]:
    """Write, erase Alice's records, and read; the producers go on in between."""
    loader: LoaderServer = request.getfixturevalue(KAFKAS[kafka][1])
    with in_memory(tmp_path_factory.mktemp("broker")) as folder:
        shutil.copytree(fixtures / "out" / "clean", folder / "clean")
        log_dirs = [folder / "clean" / name for name in ("d1", "d2")]
        yield _told(kafka, host, log_dirs, fixtures, erased, loader, folder / "recovered")


def _told(
    kafka: str,
    host: BrokerHost,
    log_dirs: list[Path],
    fixtures: Path,
    erased: Erased,
    loader: LoaderServer,
    scratch: Path,
) -> tuple[dict[str, Consumed], dict[str, Consumed]]:
    now_ms = round(time.time() * 1000)  # producers that were last seen long ago expire
    seen: dict[str, dict[int, ProducerSeen]] = {}
    with host.broker(log_dirs):
        write(host, now_ms)
        for topic in OLD:
            host.create_topic(topic)
    give_old_logs(log_dirs, fixtures / "out" / "legacy" / "logs")
    with host.broker(log_dirs):
        before = {topic: host.read(topic) for topic in TOPICS}
        seen = {topic: host.producers_of(topic) for topic in TOPICS}
    dirs = [str(each) for each in log_dirs]
    for topics, key, options in (
        (NEW, ALICE, ()),
        (OLD, OLD_KEY, ()),
        ([MASKED], ALICE, ["--mask"]),
    ):
        words = [*(f"--topic={topic}" for topic in topics), f"--key={key.decode()}", "--yes"]
        words += [*options, f"--kafka-version={kafka}"]
        outcome = run_kdump(["erase", *words, *dirs], Path.cwd())
        assert outcome.exit_status == 1, outcome
    assert run_kdump(["verify", "--deep", *dirs], Path.cwd()).exit_status == 0
    note(erased, log_dirs, loader, scratch)
    with host.broker(log_dirs):
        after = {topic: host.read(topic) for topic in TOPICS}
        assert {topic: host.producers_of(topic) for topic in TOPICS} == seen
        for codec in (*CODECS, MASKED):
            host.send(codec, codec, now_ms, [(b"new", b"new")])
            going_on = host.read(codec)
            assert going_on.end_offset == before[codec].end_offset + 1
            new = {before[codec].end_offset: (b"new", b"new")}
            assert going_on.records == {**after[codec].records, **new}
        host.send("open", "open", now_ms, [(b"new", b"new")])
    return before, after


def masked(key: bytes | None, value: bytes | None) -> tuple[bytes, bytes]:
    assert key is not None
    assert value is not None
    return hashlib.sha256(key).hexdigest().encode(), b"*" * len(value)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_consumer_gets_every_record_but_those_that_were_named(
    story: tuple[dict[str, Consumed], dict[str, Consumed]], topic: str
) -> None:
    before, after = (each[topic] for each in story)
    named = OLD_KEY if topic in OLD else ALICE
    assert after.end_offset == before.end_offset
    if topic == MASKED:
        assert after.records == {
            offset: masked(*record) if record[0] == ALICE else record
            for offset, record in before.records.items()
        }
        return
    assert after.records == {
        offset: record for offset, record in before.records.items() if record[0] != named
    }
    if topic != "open":
        assert len(after.records) < len(before.records)


@pytest.mark.usefixtures("story")
@pytest.mark.parametrize("topic", TOPICS)
def test_kafkas_recovery_finds_every_file_as_it_is(erased: Erased, topic: str) -> None:
    assert erased.files[topic].keys() >= {f"{0:020d}.log"}
    assert erased.recovered[topic] == erased.files[topic]
