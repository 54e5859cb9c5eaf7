"""Log directories in an object store: a real server of S3 on this machine."""

from __future__ import annotations

import contextlib
import errno
import json
import pickle
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from builders import large_segments, log_directories
from builders.batches import BASE_TIMESTAMP_MS
from builders.in_process import Outcome, run_kdump
from builders.large_segments import LargeSegment
from builders.object_server import BUCKET, ObjectServer, Reply, name_as_long, object_server
from builders.recovery import joined, of_producer
from builders.source_tables import table_of
from builders.spark_commands import Run, commands_on_a_cluster
from builders.spark_standalone import start_kdump
from builders.trees import contents_of
from kdump.cli.output.place_problems import report_places
from kdump.engine import local as local_engine
from kdump.engine.job import Split
from kdump.engine.local import LocalEngine
from kdump.errors import ExitStatus
from kdump.storage import store_connection, store_limits
from kdump.storage.entries import EntryKind
from kdump.storage.places import forget_places, parse_location

pytestmark = pytest.mark.slow

SECRET: Final = "Ab%2Fsecret"
XML: Final = {"Content-Type": "application/xml"}
FAILED: Final = ExitStatus.OPERATIONAL_ERROR | ExitStatus.USAGE
LOG: Final = "d1/UPPER-Case.0-1-0/00000000000000000000.log"
LINES: Final = (
    "dump-segment --print-data-log LOG",
    "export --format jsonl --output jsonl --topic grown --out OUT D1",
    "groups --output jsonl --topic __consumer_offsets D1 D2",
    "lookup --output jsonl --timestamp max --topic UPPER* D1",
    "ls --output jsonl --topic UPPER* D1",
    "report --topic grown --out OUT D1",
    "verify --output jsonl --topic UPPER* D1",
)
ALL_LINES: Final = (
    "diff --output jsonl D1 D2",
    "grep --output jsonl k D1 D2",
    "identity --output jsonl D1 D2",
    "info --output jsonl --deep D1",
    "ls --output jsonl D1 D2",
    "metadata history --output jsonl D1",
    "report --out OUT D1 D2",
    "txns --output jsonl D1 D2",
    "verify --deep --output jsonl D1 D2",
)


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def server(running: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """The server, undisturbed, with no request so far; a client that gives up soon."""
    monkeypatch.setattr(store_connection, "ATTEMPTS", 2)
    forget_places()
    running.reset()
    yield running
    running.reset()


def linked(directory: Path, folder: Path) -> Path:
    """Return another path of a directory, longer than the URI of any server's root."""
    path = folder / "linked-so-that-its-path-is-long"
    path.symlink_to(directory)
    return path


@pytest.fixture(scope="module")
def clean(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(fixtures / "out" / "clean", tmp_path_factory.mktemp("linked"))


@pytest.fixture(scope="module")
def uploaded(running: ObjectServer, clean: Path) -> str:
    return running.upload(clean, name_as_long(clean, running.uri))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a log of several requests."""
    path = log_directories.write_log_directory(tmp_path_factory.mktemp("large"), clean=True)
    segment = LargeSegment.of(1500)
    large_segments.write(path, segment, index=segment.index())
    return path


@pytest.fixture
def large_uri(server: ObjectServer, large: Path) -> str:
    uri = server.upload(large, "large")
    server.requests.clear()
    return uri


def run_with_spark(words: Sequence[str], folder: Path) -> Outcome:
    """Run a command line in a process of its own.

    Spark's JVM keeps the environment in which it was started, and its workers have that: one that
    another test started knows nothing of the server.
    """
    with start_kdump(*words, cwd=folder, temporary=folder / "tmp") as process:
        stdout, stderr = process.communicate()
    return Outcome(stdout.encode(), stderr.encode(), process.returncode)


@pytest.fixture(scope="module")
def on_executors(running: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return what runs a command line on executors of Spark that know the server."""
    with commands_on_a_cluster(tmp_path_factory.mktemp("cluster")) as run:
        yield run


def answer(
    line: str,
    base: str,
    folder: Path,
    run: Callable[[Sequence[str], Path], Outcome] = run_kdump,
) -> tuple[int, str]:
    """Run a command line on what is at ``base``; its status, and all that it wrote."""
    places = {"LOG": f"{base}/{LOG}", "D1": f"{base}/d1", "D2": f"{base}/d2", "OUT": "out"}
    folder.mkdir()
    words = [places.get(word, word) for word in line.split()]
    outcome = run([*words, *(["--now", "2026-11-22"] if "report" in line else [])], folder)
    made = [path.read_bytes() for path in sorted(folder.rglob("*.jsonl"))]
    said = b"".join((outcome.stdout, outcome.stderr, *made)).decode(errors="backslashreplace")
    # Times of two runs differ, and so do rates. Sizes do not, because paths are equally long.
    said = re.sub(r'"seconds":[\d.]+|[\d.]+ s\b|[\d.]+ [kKMG]?i?B/s', "", said)
    return outcome.exit_status, said.replace(base, "BASE")


@pytest.mark.parametrize(
    "line", [*LINES, *(pytest.param(line, marks=pytest.mark.soak) for line in ALL_LINES)]
)
def test_a_bucket_gives_what_its_directory_gives(
    server: ObjectServer, clean: Path, uploaded: str, tmp_path: Path, line: str
) -> None:
    expected = answer(line, str(clean), tmp_path / "1")
    assert answer(line, uploaded, tmp_path / "2") == expected
    assert expected[1]


@pytest.mark.soak
@pytest.mark.parametrize("command", ["export", "groups", "lookup", "report", "verify"])
def test_executors_of_spark_open_the_objects_of_a_bucket(
    on_executors: Run, clean: Path, uploaded: str, tmp_path: Path, command: str
) -> None:
    (line,) = (line for line in LINES if line.startswith(f"{command} "))
    expected = answer(line, str(clean), tmp_path / "1")
    assert answer(line, uploaded, tmp_path / "2", on_executors) == expected


def test_the_data_source_reads_a_bucket(large: Path, large_uri: str) -> None:
    local, stored = (
        table_of(base, columns="topic,partition,offset,key,value,timestamp")  # type: ignore[arg-type]
        for base in (large, large_uri)
    )
    assert local.num_rows == 1500 * large_segments.RECORDS_EACH
    assert stored == local


def test_commands_that_write_refuse_a_bucket(
    server: ObjectServer, uploaded: str, tmp_path: Path
) -> None:
    outcome = run_kdump(["recover", f"{uploaded}/d1"], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"is not on a local disk" in outcome.stderr
    assert not server.count("PUT", "POST", "DELETE")


def test_a_listing_is_one_request_and_files_are_asked_for_only_when_read(
    server: ObjectServer, uploaded: str
) -> None:
    root = parse_location(f"{uploaded}/d1")
    names = [
        (directory.name, each.name, each.size_bytes)
        for directory in root.entries()
        if directory.kind is EntryKind.DIRECTORY
        for each in (root / directory.name).entries()
    ]
    assert len(names) > 100
    assert server.count() == 1
    small = root / "meta.properties"
    assert small.read() == small.read()
    assert server.count() == 3  # Arrow asks for the size, then for the bytes


@pytest.mark.parametrize(
    "words",
    [
        ["ls", "--verbose"],
        ["--verbose", "ls"],
        ["verify", "-v"],
        ["--verbose", "verify", "--partition", "nothing-0"],
    ],
)
def test_verbose_says_how_many_requests_there_were(
    server: ObjectServer, large_uri: str, tmp_path: Path, words: list[str]
) -> None:
    outcome = run_kdump([*words, large_uri], tmp_path)
    kinds = [
        len([each for each in server.requests if re.match(pattern, each)])
        for pattern in ("", r"GET .*list-type", "HEAD", r"GET (?!.*list-type)")
    ]
    said = outcome.stderr.decode().splitlines()[-1]
    assert said.startswith(f"kdump: s3://{BUCKET}: ")
    assert [int(number) for number in re.findall(r"\b(\d+) ", said)][:4] == kinds


def write_small_partitions(path: Path, count: int) -> Path:
    """Write a log directory of partitions with three segments each, whose indexes have entries."""
    log_directories.write_log_directory(path, clean=True)
    for number in range(count):
        logs = {
            base: joined(of_producer(base + n, sequence=base + n) for n in range(6))
            for base in (0, 6, 12)
        }
        middle = {base: len(log) // 2 for base, log in logs.items()}
        log_directories.write_partition(
            path / f"small-{number}",
            logs,
            offset_indexes={
                base: log_directories.offset_index((3, at)) for base, at in middle.items()
            },
            time_indexes={
                base: log_directories.time_index((BASE_TIMESTAMP_MS + base + 3, 3)) for base in logs
            },
        )
    return path


@pytest.mark.parametrize(
    ("words", "objects"),
    [
        # The three logs, the index of the last one, and partition.metadata; the listing has sizes.
        (["ls"], 5),
        # The logs and time indexes, which show the versions of Kafka that wrote them.
        (["info"], 6),
        # Each file once, although several checks read it.
        (["verify"], 3 * 3 + 2),
    ],
)
def test_the_number_of_requests_for_a_partition(
    server: ObjectServer, tmp_path: Path, words: list[str], objects: int
) -> None:
    asked = []
    for count in (2, 7):
        path = write_small_partitions(tmp_path / str(count), count)
        uri = server.upload(path, f"small-{words[0]}-{count}")
        forget_places()
        server.requests.clear()
        assert run_kdump([*words, uri], tmp_path).exit_status == ExitStatus.SOUND
        asked.append((server.count("HEAD"), server.count("GET")))
    (few_lookups, few_reads), (lookups, reads) = asked
    # Arrow asks for the size of each object that it opens.
    assert (lookups - few_lookups, reads - few_reads) == (5 * objects, 5 * objects)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers for any work, as large work has them."""
    for name in ("FORKED_POOL_BYTES", "SPAWNED_POOL_BYTES", "STORED_SCAN_BYTES"):
        monkeypatch.setattr(local_engine, name, 0)
    monkeypatch.setattr(local_engine, "usable_cpus", lambda: 2)


def require_together(
    server: ObjectServer,
    line: str,
    uri: str,
    folder: Path,
    count: int,
    run: Callable[[Sequence[str], Path], Outcome] = run_kdump,
) -> None:
    """Run a command that succeeds only if so many requests are under way at the same time."""
    together = threading.Barrier(count)
    met = threading.Event()

    def waits(request: str) -> None:
        if "small-" in request and "list-type" not in request and not met.is_set():
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(30)
                met.set()
                together.abort()

    server.disturb = waits
    words = line.replace("URI", uri).split()
    assert run(words, folder).exit_status == ExitStatus.SOUND
    assert met.is_set()


@pytest.mark.parametrize(
    "line", ["ls URI", "verify URI", "copy URI out", "export --format jsonl --out out URI"]
)
def test_requests_that_do_not_need_each_other_are_under_way_together(
    server: ObjectServer, tmp_path: Path, line: str
) -> None:
    uri = server.upload(write_small_partitions(tmp_path / "many", 40), "many-small")
    require_together(server, line, uri, tmp_path, 32)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("line", ["verify URI", "export --format jsonl --out out URI"])
def test_workers_read_small_files_many_at_a_time(
    server: ObjectServer, tmp_path: Path, line: str
) -> None:
    uri = server.upload(write_small_partitions(tmp_path / "many", 40), "many-small")
    require_together(server, line, uri, tmp_path, 32)


@pytest.mark.soak
@pytest.mark.parametrize("line", ["verify URI", "export --format jsonl --out out URI"])
def test_workers_of_spark_read_small_files_many_at_a_time(
    server: ObjectServer, tmp_path: Path, line: str
) -> None:
    uri = server.upload(write_small_partitions(tmp_path / "many", 40), "many-small")
    line += " --master local[2]"
    require_together(server, line, uri, tmp_path, 32, run_with_spark)


@pytest.mark.usefixtures("workers")
def test_the_number_of_requests_of_workers_for_a_partition(
    server: ObjectServer, tmp_path: Path
) -> None:
    asked = []
    for count in (2, 7):
        path = write_small_partitions(tmp_path / str(count), count)
        uri = server.upload(path, f"workers-{count}")
        forget_places()
        server.requests.clear()
        assert run_kdump(["verify", uri], tmp_path).exit_status == ExitStatus.SOUND
        listings = len([each for each in server.requests if "list-type" in each])
        asked.append((listings, server.count("HEAD"), server.count("GET") - listings))
    few, many = asked
    # A worker lists the partition, and asks for each file once.
    assert [b - a for a, b in zip(few, many, strict=True)] == [5, 5 * 11, 5 * 11]


def test_a_path_with_a_question_mark_ends_with_another_one(
    server: ObjectServer, large: Path, tmp_path: Path
) -> None:
    uri = server.upload(large, "q?x=1#y")
    words = ["ls", "--output", "jsonl"]
    expected = run_kdump([*words, str(large)], tmp_path)
    found = run_kdump([*words, f"{uri}?"], tmp_path)
    assert found.exit_status == ExitStatus.SOUND
    assert found.stdout.decode().replace(uri, str(large)) == expected.stdout.decode()
    refusal = run_kdump(["recover", f"{uri}?"], tmp_path).stderr.decode()
    command = shlex.split(refusal.partition("first: ")[2])
    assert command == ["kdump", "copy", f"{uri}?", "q?x=1#y"]
    run_kdump(command[1:], tmp_path)
    assert contents_of(tmp_path / "q?x=1#y") == contents_of(large)


def test_requests_are_said_with_verbose_only(
    server: ObjectServer, large_uri: str, tmp_path: Path
) -> None:
    assert run_kdump(["ls", large_uri], tmp_path).stderr == b""


def test_requests_of_workers_are_counted(
    server: ObjectServer, large_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = parse_location(f"{large_uri}/orders-0/{0:020d}.log")
    with LocalEngine(processes=2) as engine:
        sizes = [size for _, size in engine.run(ReadJob(), [Split(log)] * 2)]
    assert sizes[0] == sizes[1] > 0
    counts = parse_location(large_uri).storage.counts  # type: ignore[attr-defined]
    assert counts.reads == server.count("GET") > 0
    assert counts.read_bytes >= sizes[0]


def test_a_listing_of_several_pages_is_whole(
    server: ObjectServer, large: Path, large_uri: str, tmp_path: Path
) -> None:
    server.rewrite = lambda path: path.replace("max-keys=1000", "max-keys=2")
    outcome = run_kdump(["ls", "--output", "jsonl", large_uri], tmp_path)
    expected = run_kdump(["ls", "--output", "jsonl", str(large)], tmp_path)
    assert outcome.stdout.decode().replace(large_uri, str(large)) == expected.stdout.decode()
    assert len([each for each in server.requests if "continuation-token" in each]) > 2


def test_a_large_log_is_read_in_few_requests(
    server: ObjectServer, large: Path, large_uri: str
) -> None:
    log = parse_location(f"{large_uri}/orders-0/{0:020d}.log")
    expected = (large / "orders-0" / log.name).read_bytes()
    found = bytearray()
    with log.open_file() as file:
        buffer = bytearray(64 << 10)
        while count := file.read_into(memoryview(buffer), len(found)):
            found += buffer[:count]
    assert found == expected
    assert len(expected) > 2 << 20
    assert server.count("GET") < 10


def test_passing_failures_of_the_server_change_nothing(
    server: ObjectServer, large: Path, large_uri: str, tmp_path: Path
) -> None:
    failed = set[str]()

    def once(request: str) -> Any:
        if request in failed:
            return None
        failed.add(request)
        return (500, 503, lambda data: data[: len(data) // 2])[len(failed) % 3]

    server.disturb = once
    outcome = run_kdump(["verify", large_uri], tmp_path)
    expected = run_kdump(["verify", str(large)], tmp_path)
    assert outcome.exit_status == expected.exit_status
    said = outcome.stdout.decode().replace(large_uri, str(large))
    assert said.partition("damaged")[0] == expected.stdout.decode().partition("damaged")[0]
    assert "4500 records" in said
    assert len(failed) > 3


@pytest.mark.parametrize("status", [500, 503, 403, 404, 429])
@pytest.mark.parametrize("command", ["verify", "ls"])
def test_lasting_failures_end_with_the_answer_and_the_object(
    server: ObjectServer, large_uri: str, tmp_path: Path, command: str, status: int
) -> None:
    server.disturb = lambda request: status if f"{0:020d}.log" in request else None
    outcome = run_kdump([command, large_uri], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    said = (outcome.stdout + outcome.stderr).decode()
    assert f"{large_uri}/orders-0/{0:020d}.log" in said
    assert "Traceback" not in said


def test_a_server_that_is_gone_is_an_error(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    outcome = run_kdump(["verify", f"s3://{BUCKET}/gone"], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert outcome.stderr.startswith(f"kdump: s3://{BUCKET}/gone: ".encode())
    assert outcome.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "words", [["verify"], ["ls"], ["export", "--out", "made"], ["lookup", "--timestamp", "max"]]
)
def test_a_server_that_dies_in_between_is_an_error_that_names_the_object(
    server: ObjectServer, large_uri: str, tmp_path: Path, words: list[str]
) -> None:
    def dies(request: str) -> Any:
        # The listing and the first ranges of the log are answered, and then nothing is.
        if "list-type" in request or not server.count("GET") > 4:
            return None
        server.disturb = lambda _: cut
        return cut

    def cut(_data: bytes) -> bytes:
        return b""

    server.disturb = dies
    outcome = run_kdump([*words, large_uri], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert f"kdump: {large_uri}".encode() in outcome.stderr + outcome.stdout
    assert b"Traceback" not in outcome.stderr
    assert not list(tmp_path.glob("made/**/*.parquet"))


def test_a_stalled_server_does_not_hold_up_an_interrupt(
    server: ObjectServer, large_uri: str, tmp_path: Path
) -> None:
    asked, end = threading.Event(), threading.Event()

    def stalls(_request: str) -> None:
        asked.set()
        end.wait(60)

    server.disturb = stalls
    command = [sys.executable, "-c", "from kdump.program import main; main()", "ls", large_uri]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        assert asked.wait(60)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    finally:
        end.set()
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGTERM
    assert b"stopped by SIGTERM" in said


READABLE: Final = (
    "a b-0",
    "50%-0",
    "%41%2F%0A-0",
    "ä+&-0",
    "\U0001f4a5\u202e-0",
    "q?x=1#y-0",
    "a.tar!",
    "a!/b-0",
    "tab\t\x07-0",
    "new\nkdump: line-0",
    "...-0",
    "~-0",
)
UNREADABLE: Final = (
    "//x",
    "../x",
    "./x",
    "orders-0//y",
    "orders-0/../../y",
    "orders-0/..",
    "orders-0/./y",
    "orders-0//new\nkdump: line",
)


@pytest.mark.parametrize("name", READABLE)
def test_any_name_of_a_directory_is_read(
    server: ObjectServer, large: Path, tmp_path: Path, name: str
) -> None:
    log = next((large / "orders-0").glob("*.log")).read_bytes()
    where = f"{READABLE.index(name)}/{name}"
    server.put(f"{where}/{0:020d}.log", log[: 64 << 10])
    server.requests.clear()
    root = parse_location(f"s3://{BUCKET}/{READABLE.index(name)}")
    path = root
    for each in name.split("/"):
        (found,) = path.entries()
        assert found.name == each
        path /= each
    file = path / f"{0:020d}.log"
    assert file.read() == log[: 64 << 10]
    assert str(file) == f"s3://{BUCKET}/{where}/{0:020d}.log"


@pytest.mark.parametrize("command", ["ls", "verify", "groups", "info", "copy"])
def test_keys_that_no_path_can_name_are_left_out_and_said(
    server: ObjectServer, large: Path, tmp_path: Path, command: str
) -> None:
    words = [command, "--output", "jsonl"]
    out = ["out"] if command == "copy" else []
    expected = run_kdump([*words, str(large), *out], tmp_path).stdout.decode()
    (tmp_path / "out").rename(tmp_path / "expected") if out else None
    uri = server.upload(large, f"hostile-{command}")
    for key in (*UNREADABLE, "orders-0"):
        server.put(f"hostile-{command}/{key}", b"hostile")
    outcome = run_kdump([*words, uri, *out], tmp_path)
    said = outcome.stderr.decode().splitlines()
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    for key in UNREADABLE:
        shown = key.replace("\n", "\\n")
        assert (
            said.count(f"kdump: {uri}/{shown}: left out, because no file can have this name") == 1
        )
    what = "left out, because a directory has the same name"
    assert said.count(f"kdump: {uri}/orders-0: {what}") == 1
    assert len(said) == len(UNREADABLE) + 1
    found = outcome.stdout.decode().replace(uri, str(large))
    # The status differs, and the time of another run.
    varying = r'"(seconds|free_bytes|exit_status)":[\d.]+'
    assert re.sub(varying, "", found) == re.sub(varying, "", expected)
    if out:
        assert contents_of(tmp_path / "out") == contents_of(tmp_path / "expected")


def test_markers_of_empty_directories_are_directories(server: ObjectServer, large: Path) -> None:
    uri = server.upload(large, "marked")
    for key in ("marked/", "marked/orders-0/", "marked/empty-0/"):
        server.put(key, b"")
    root = parse_location(uri)
    kinds = {each.name: each.kind for each in root.entries()}
    assert kinds["orders-0"] is kinds["empty-0"] is EntryKind.DIRECTORY
    assert not (root / "empty-0").entries()
    assert len((root / "orders-0").entries()) == len(list((large / "orders-0").iterdir()))
    assert not root.storage.problems  # type: ignore[attr-defined]


def test_a_key_with_a_slash_at_its_end_and_content_is_an_error_when_it_is_read(
    server: ObjectServer, large: Path, tmp_path: Path
) -> None:
    uri = server.upload(large, "slash")
    server.put(f"slash/orders-0/{9000:020d}.log/", b"content")
    outcome = run_kdump(["verify", uri], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert f"{9000:020d}.log".encode() in outcome.stdout + outcome.stderr


def test_of_very_many_keys_that_are_left_out_some_are_named(
    server: ObjectServer, large: Path, tmp_path: Path
) -> None:
    uri = server.upload(large, "many")
    for number in range(150):
        server.put(f"many//{number}", b"")
    said = run_kdump(["ls", uri], tmp_path).stderr.decode().splitlines()
    assert len(said) == 101
    assert said[-1] == "kdump: there is more of this kind"


def test_a_redirect_to_another_server_is_an_error(
    server: ObjectServer, large_uri: str, tmp_path: Path
) -> None:
    server.disturb = lambda _: 301
    outcome = run_kdump(["verify", large_uri], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert outcome.stderr.startswith(f"kdump: {large_uri}: ".encode())


def test_an_object_that_is_deleted_after_the_listing_is_named(
    server: ObjectServer, large: Path, tmp_path: Path
) -> None:
    uri = server.upload(large, "deleted")
    parse_location(uri).entries()
    server._ask("DELETE", f"/{BUCKET}/deleted/orders-0/{0:020d}.log")
    log = parse_location(uri) / "orders-0" / f"{0:020d}.log"
    with pytest.raises(FileNotFoundError) as caught:
        log.read()
    assert caught.value.filename == str(log)


def test_a_slow_server_is_waited_for_while_bytes_come(
    server: ObjectServer, large: Path, large_uri: str
) -> None:
    server.pause_seconds = 0.25
    log = parse_location(f"{large_uri}/orders-0/{0:020d}.log?timeout=3&lowest_rate=1")
    with log.open_file() as file:
        buffer = memoryview(bytearray(256 << 10))
        assert file.read_into(buffer, 0) == len(buffer)
    assert buffer == (large / "orders-0" / log.name).read_bytes()[: len(buffer)]


def test_a_server_that_stalls_is_an_error(
    server: ObjectServer, large_uri: str, tmp_path: Path
) -> None:
    end = threading.Event()
    server.disturb = lambda _: end.wait(60) and None
    try:
        outcome = run_kdump(["ls", f"{large_uri}?timeout=2"], tmp_path)
    finally:
        end.set()
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"Timeout was reached" in outcome.stderr
    assert b"the options timeout and lowest_rate of the URI wait longer" in outcome.stderr


def test_a_server_that_sends_too_slowly_is_given_up(server: ObjectServer, large_uri: str) -> None:
    """A few bytes now and then keep every other limit from ending it."""
    server.disturb = lambda request: _slow_down(server) if "GET" in request else None
    log = parse_location(f"{large_uri}/orders-0/{0:020d}.log?timeout=1&lowest_rate=100000000")
    with log.open_file() as file, pytest.raises(OSError, match="gave up after"):
        file.read_into(memoryview(bytearray(256 << 10)), 0)


def _slow_down(server: ObjectServer) -> None:
    server.pause_seconds = 0.5


SAME_PAGE: Final = Reply(
    200,
    {"Content-Type": "application/xml"},
    b"""<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>disks</Name>
<Prefix>endless/</Prefix><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys>
<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>
<Contents><Key>endless/orders-0/00000000000000000000.log</Key>
<LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents></ListBucketResult>
""",
)


@pytest.mark.parametrize("option", ["timeout=0", "lowest_rate=1k"])
def test_a_limit_that_is_none_is_a_usage_error(tmp_path: Path, option: str) -> None:
    outcome = run_kdump(["ls", f"s3://{BUCKET}/x?{option}"], tmp_path)
    assert outcome.exit_status == ExitStatus.USAGE
    assert outcome.stderr.startswith(f"kdump: s3://{BUCKET}: {option}: not a number of ".encode())


@pytest.mark.parametrize("limit", ["time", "memory"])
def test_a_listing_without_an_end_is_an_error(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit == "time":
        monkeypatch.setattr(store_limits, "_TIMEOUTS_OF_A_LISTING", 1)
    else:
        monkeypatch.setattr(store_connection, "LISTING_MEMORY_BYTES", -1)
    server.disturb = lambda request: SAME_PAGE if "list-type" in request else None
    try:
        outcome = run_kdump(["ls", f"{server.uri}/endless?timeout=1"], tmp_path)
    finally:
        server.disturb = lambda _: 403  # ends the request that was left
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    said = outcome.stderr.decode()
    assert said.startswith(f"kdump: {server.uri}/endless: its listing has no end after ")
    assert "the store seems to repeat its pages" in said
    assert said.count("\n") == 1


def test_an_object_that_is_replaced_while_it_is_read_is_named(
    server: ObjectServer, large: Path, large_uri: str
) -> None:
    log = parse_location(f"{large_uri}/orders-0/{0:020d}.log")
    data = (large / "orders-0" / log.name).read_bytes()
    parse_location(large_uri).entries()

    def read() -> None:
        with log.open_file() as file:
            buffer = memoryview(bytearray(len(data) // 2))
            file.read_into(buffer, 0)
            server.put(f"large/orders-0/{log.name}", data[::-1])
            file.read_into(buffer, len(buffer))

    with pytest.raises(OSError, match="it was changed while it was read") as caught:
        read()
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(log))


@pytest.mark.parametrize("missing", [1, 7, 900])
def test_an_object_that_is_cut_after_it_was_opened_is_named(
    server: ObjectServer, missing: int
) -> None:
    key, data = f"cut-{missing}/x-0/{0:020d}.log", bytes(range(1, 256)) * 4
    server.put(key, data)

    def cuts(request: str) -> None:
        if request.startswith("GET") and "list-type" not in request:
            server.disturb = lambda _: None
            server.put(key, data[:-missing])

    server.disturb = cuts
    log = parse_location(f"{server.uri}/{key}")
    with pytest.raises(OSError, match="it was changed while it was read") as caught:
        log.read()
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(log))


def test_the_last_byte_of_an_object_can_be_any(server: ObjectServer) -> None:
    for last in range(256):
        server.put("last", data := bytes([1, 2, last]))
        forget_places()
        assert parse_location(f"{server.uri}/last").read() == data


def with_contents(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[str], Any]:
    """For ``disturb``: change the entries of each page of a listing."""

    def changed(data: bytes) -> bytes:
        entries = re.findall(rb"<Contents>.*?</Contents>", data, re.DOTALL)
        head, *_, tail = re.split(rb"<Contents>.*</Contents>", data, flags=re.DOTALL)
        return head + b"".join(change(entries)) + tail

    return lambda request: changed if "list-type" in request else None


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_entries_that_are_listed_twice_and_in_another_order_are_there_once(
    server: ObjectServer, tmp_path: Path, command: str
) -> None:
    directory = write_small_partitions(tmp_path / "listed", 3)
    uri = server.upload(directory, f"twice-{command}")
    words = [command, "--output", "jsonl"]
    expected = run_kdump([*words, uri], tmp_path)
    forget_places()
    server.rewrite = lambda path: path.replace("max-keys=1000", "max-keys=4")
    server.disturb = with_contents(lambda entries: entries[::-1] + entries)
    found = run_kdump([*words, uri], tmp_path)
    assert found.exit_status == expected.exit_status == ExitStatus.SOUND
    times = rb'"seconds":[\d.]+'
    assert re.sub(times, b"", found.stdout) == re.sub(times, b"", expected.stdout)


@pytest.mark.parametrize("command", ["ls", "verify", "copy"])
def test_keys_that_are_not_in_the_directory_are_left_out_and_said(
    server: ObjectServer, large: Path, tmp_path: Path, command: str
) -> None:
    uri = server.upload(large, f"inside-{command}")
    words = [command, uri, *(["out"] if command == "copy" else [])]
    expected = run_kdump(words, tmp_path).stdout.replace(b"out", b"")
    forget_places()
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    keys = (b"elsewhere-and-longer/x-0/1", b"inside", b"/etc/passwd", b"insidf-ls/x-0/1")
    server.disturb = with_contents(
        lambda entries: [re.sub(rb"(?<=<Key>)[^<]*", key, entries[0]) for key in keys] + entries
    )
    outcome = run_kdump(words, tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    problem = f"kdump: {uri}: the store listed objects that are not in it; they are left out"
    assert problem in outcome.stderr.decode().splitlines()
    assert b"sewhere" not in outcome.stdout + outcome.stderr
    if command == "copy":
        # The listing is not whole: the copy holds a broker back.
        held = {".kafka_cleanshutdown"}, {".kdump-copy.jsonl"}
        expected_files = (contents_of(large).keys() - held[0]) | held[1]
        assert contents_of(tmp_path / "out").keys() == expected_files
    if command == "ls":
        assert outcome.stdout == expected


@pytest.mark.parametrize("command", ["verify", "copy"])
def test_a_size_that_is_not_that_of_the_listing_is_an_error_that_names_the_object(
    server: ObjectServer, large: Path, tmp_path: Path, command: str
) -> None:
    uri = server.upload(large, "sizes")

    def larger(entries: list[bytes]) -> list[bytes]:
        return [
            re.sub(rb"(?<=<Size>)", b"1", each) if b".log<" in each else each for each in entries
        ]

    server.disturb = with_contents(larger)
    outcome = run_kdump([command, uri, *(["out"] if command == "copy" else [])], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    said = (outcome.stdout + outcome.stderr).decode()
    assert f"{uri}/orders-0/{0:020d}.log" in said
    assert "it was changed while it was read" in said
    assert not (tmp_path / "out" / "meta.properties").exists() or is_unfinished(tmp_path / "out")


def is_unfinished(copy: Path) -> bool:
    return any("kdump" in each.name for each in copy.iterdir())


def resized(entry: bytes, size: bytes) -> bytes:
    """An entry of a listing with another size, at least as long as before."""
    return re.sub(rb"(?<=<Size>)[0-9]+", size, entry).ljust(len(entry))


@pytest.mark.parametrize("command", ["verify", "ls", "copy"])
def test_a_listing_without_sizes_is_an_error(
    server: ObjectServer, large: Path, tmp_path: Path, command: str
) -> None:
    uri = server.upload(large, "no-sizes")
    server.disturb = with_contents(lambda entries: [resized(each, b"") for each in entries])
    outcome = run_kdump([command, uri, *(["out"] if command == "copy" else [])], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b": the store lists it as empty, and it is not\n" in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_only_listed_as_empty_is_not_one_of_a_copy(
    server: ObjectServer, large: Path, tmp_path: Path
) -> None:
    """Nothing of it is read, so nothing else would notice."""
    uri = server.upload(large, "empty")
    path = "orders-0/partition.metadata"
    server.put(f"empty/{path}", b"version: 0\n")
    server.disturb = with_contents(
        lambda entries: [resized(each, b"0") if path.encode() in each else each for each in entries]
    )
    outcome = run_kdump(["copy", uri, "out"], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert f"kdump: {uri}/{path}: it was changed while it was read".encode() in outcome.stderr
    assert is_unfinished(tmp_path / "out")


@pytest.mark.parametrize("size", [b"-7", b"9223372036854775807"])
def test_a_size_that_no_object_can_have_is_an_error_that_names_the_object(
    server: ObjectServer, large: Path, tmp_path: Path, size: bytes
) -> None:
    uri = server.upload(large, "impossible")
    server.disturb = with_contents(
        lambda entries: [resized(each, size) if b"meta.prop" in each else each for each in entries]
    )
    outcome = run_kdump(["ls", uri], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    what = "left out, because the store gives no possible size for it"
    if size.isdigit():
        what = f"has {int(size)} bytes, too many to read at once"
    assert f"kdump: {uri}/meta.properties: {what}\n".encode() in outcome.stderr


@pytest.mark.parametrize("command", ["ls", "verify", "copy"])
def test_names_that_are_not_utf_8_are_left_out_and_said(
    server: ObjectServer, large: Path, tmp_path: Path, command: str
) -> None:
    uri = server.upload(large, "latin")
    server.disturb = with_contents(
        lambda entries: (
            [
                each if each.endswith(b"\n") else re.sub(rb"(?<=<Key>)[^<]*", key, each)
                for key in (b"latin/x\xe4-0/1", b"latin/\xff")
                for each in entries[:1]
            ]
            + entries
        )
    )
    outcome = run_kdump([command, uri, *(["out"] if command == "copy" else [])], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    what = "the store listed objects whose names are not UTF-8; they are left out"
    assert f"kdump: {uri}: {what}" in outcome.stderr.decode().splitlines()
    if command == "copy":
        assert contents_of(tmp_path / "out") == contents_of(large)


@pytest.mark.parametrize("command", ["ls", "verify", "export", "copy"])
def test_a_page_of_a_listing_that_is_lost_is_an_error(
    server: ObjectServer, large: Path, tmp_path: Path, command: str
) -> None:
    """The client takes an empty answer for the end of the listing."""
    uri = server.upload(large, f"lost-{command}")
    server.rewrite = lambda path: path.replace("max-keys=1000", "max-keys=2")

    def loses(request: str) -> Reply | None:
        if "continuation-token" not in request:
            return None
        server.disturb = lambda _: None
        return Reply(200, XML)

    server.disturb = loses
    out = {"export": ["--out", "out"], "copy": ["out"]}.get(command, [])
    outcome = run_kdump([command, uri, *out], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert f"kdump: {uri}/".encode() in outcome.stderr
    assert b"changed while" in outcome.stderr
    assert command != "copy" or is_unfinished(tmp_path / "out")


@pytest.mark.parametrize("status", [200, 307])
def test_an_answer_without_a_length_is_not_an_empty_object(
    server: ObjectServer, large_uri: str, tmp_path: Path, status: int
) -> None:
    log = f"{large_uri}/orders-0/{0:020d}.log"
    elsewhere = f"{BUCKET}/large/orders-0/{0:020d}.log?elsewhere"
    headers = {"Location": f"http://127.0.0.1:{server.port}/{elsewhere}"}
    server.disturb = lambda request: (
        Reply(status, headers) if "HEAD" in request and "elsewhere" not in request else None
    )
    outcome = run_kdump(["dump-segment", log], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert f"kdump: {log}: the store answers that it is empty".encode() in outcome.stderr


def test_an_empty_object_is_read(server: ObjectServer, tmp_path: Path) -> None:
    server.put(f"zero/x-0/{0:020d}.log", b"")
    log = f"{server.uri}/zero/x-0/{0:020d}.log"
    assert run_kdump(["dump-segment", log], tmp_path).exit_status == ExitStatus.SOUND
    assert parse_location(log).read() == b""


def test_credentials_of_the_environment_that_a_server_repeats_are_not_said(
    server: ObjectServer, large_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "TokenOfTests")
    echo = b"<Error><Code>InvalidToken</Code><Message>TokenOfTests of testing, Secret/Of+Tests"
    server.disturb = lambda _: Reply(403, XML, echo + b"</Message></Error>")
    outcome = run_kdump(["ls", large_uri], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"*** of ***, ***" in outcome.stderr


EXPIRED: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("line", ["verify URI", "copy URI out", "export --out out URI"])
def test_credentials_that_expire_are_an_error_and_never_a_part_that_looks_whole(
    server: ObjectServer, large_uri: str, tmp_path: Path, line: str, after: int
) -> None:
    def expires(_request: str) -> Reply | None:
        return None if len(server.requests) <= after else Reply(403, XML, EXPIRED)

    server.disturb = expires
    outcome = run_kdump(line.replace("URI", large_uri).split(), tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    said = (outcome.stdout + outcome.stderr).decode()
    assert "Traceback" not in said
    assert "HTTP status 403" in said or "ACCESS_DENIED" in said
    assert not list(tmp_path.glob("out/**/*.parquet"))
    out = tmp_path / "out"
    assert not (out / "meta.properties").exists() or is_unfinished(out)


@pytest.mark.parametrize("status", [301, 307, 400])
def test_a_bucket_of_another_region_is_an_error_that_names_the_region(
    server: ObjectServer, large_uri: str, tmp_path: Path, status: int
) -> None:
    server.disturb = lambda _: Reply(status, {**XML, "x-amz-bucket-region": "eu-west-9"})
    outcome = run_kdump(["verify", large_uri], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"eu-west-9" in outcome.stderr
    assert outcome.stderr.count(b"\n") == 1


def test_an_object_that_was_replaced_during_the_run_is_named(
    server: ObjectServer, large: Path, tmp_path: Path
) -> None:
    uri = server.upload(large, "other")
    path = "other/orders-0/partition.metadata"
    server.put(path, b"version: 0\n")

    def replaced(request: str) -> None:
        if "00.log" in request and "PUT" not in server.requests[-2:]:
            server.disturb = lambda _: None
            server.put(path, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")

    server.disturb = replaced
    outcome = run_kdump(["verify", uri], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    line = f"kdump: s3://{BUCKET}/{path}: it was changed while kdump read it"
    assert line in outcome.stderr.decode()


class ReadJob:
    """Reads a file; its result is how many bytes it has."""

    def run(self, split: Split, /) -> int:
        return len(split.path.read())


def with_credentials(server: ObjectServer, uri: str) -> str:
    address = f"?endpoint_override=127.0.0.1:{server.port}&scheme=http"
    return uri.replace("s3://", f"s3://AKIDX:{SECRET}@") + address


@pytest.mark.parametrize("words", [["ls"], ["verify"], ["recover"], ["lookup", "--offset", "1"]])
@pytest.mark.parametrize("status", [None, 403])
def test_credentials_are_never_said(
    server: ObjectServer, large_uri: str, tmp_path: Path, words: list[str], status: int | None
) -> None:
    server.disturb = lambda _: status
    outcome = run_kdump([*words, with_credentials(server, large_uri)], tmp_path)
    said = (outcome.stdout + outcome.stderr).decode()
    assert not re.search("AKIDX|secret", said)
    is_refused = status is not None or words[0] == "recover"
    assert bool(outcome.exit_status & ExitStatus.OPERATIONAL_ERROR) == is_refused


@pytest.fixture
def by_options(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The options of a URI, because the environment does not have the address of the server."""
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_REGION")
    return f"?endpoint_override=127.0.0.1:{server.port}&scheme=http&region=us-east-1"


def commands_in(said: bytes, words: str, *, after: str = "$") -> list[list[str]]:
    """The commands that messages have, as a shell reads them."""
    found = re.findall(rf"kdump {words} .*?(?={after})", said.decode(), re.MULTILINE)
    split = [
        subprocess.run(["bash", "-c", f"printf '%s\\0' {each}"], stdout=subprocess.PIPE)
        for each in found
    ]
    return [each.stdout.decode().split("\0")[1:-1] for each in split]


@pytest.mark.parametrize("user", ["", f"AKIDX:{SECRET}@"])
@pytest.mark.parametrize("name", ["large", "q?x=1&y 'z"])
def test_the_command_of_a_refusal_has_the_options_of_the_uri(
    server: ObjectServer, large: Path, tmp_path: Path, by_options: str, name: str, user: str
) -> None:
    uri = server.upload(large, name).replace("s3://", f"s3://{user}")
    refusal = run_kdump(["recover", f"{uri}{by_options}"], tmp_path)
    assert not re.search(b"AKIDX|secret", refusal.stderr)
    in_environment = b"# with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
    assert (in_environment in refusal.stderr) is bool(user)
    (command,) = commands_in(refusal.stderr, "copy")
    assert not run_kdump(command, tmp_path).exit_status & FAILED
    assert contents_of(tmp_path / name) == contents_of(large)


def test_the_command_of_a_refusal_names_an_archive_with_the_options_of_its_uri(
    server: ObjectServer, large: Path, tmp_path: Path, by_options: str
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(large, "data/d1")
    server.put("a.tar", (tmp_path / "a.tar").read_bytes())
    refusal = run_kdump(["recover", f"{server.uri}/a.tar!/data/d1{by_options}"], tmp_path)
    (command,) = commands_in(refusal.stderr, "copy")
    assert not run_kdump(command, tmp_path).exit_status & FAILED
    assert contents_of(tmp_path / "d1") == contents_of(large)


@pytest.mark.parametrize("words", [["ls"], ["verify"], ["info"]])
def test_members_of_an_archive_cost_no_lookups(
    server: ObjectServer, tmp_path: Path, words: list[str]
) -> None:
    asked = []
    for count in (2, 7):
        path = write_small_partitions(tmp_path / str(count), count)
        with tarfile.open(tmp_path / f"{count}.tar", "w") as archive:
            archive.add(path, "d")
        server.put(f"{count}.tar", (tmp_path / f"{count}.tar").read_bytes())
        forget_places()
        server.requests.clear()
        uri = f"{server.uri}/{count}.tar!/d"
        assert run_kdump([*words, uri], tmp_path).exit_status == ExitStatus.SOUND
        asked.append(server.count("HEAD"))
    # When it is named, when it is opened, and whether it was changed in the end.
    assert asked[0] == asked[1] <= 4


def test_an_archive_that_is_replaced_meanwhile_is_named(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_small_partitions(tmp_path / "d", 3)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(path, "d")
    data = (tmp_path / "a.tar").read_bytes()
    server.put("a.tar", data)

    def replaced() -> ExitStatus:
        server.put("a.tar", data + bytes(512))
        return report_places()

    monkeypatch.setattr("kdump.cli.main.report_places", replaced)
    outcome = run_kdump(["ls", f"{server.uri}/a.tar!/d"], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert b"it was changed while" in outcome.stderr


@pytest.mark.parametrize("damaged", ["meta.properties", f"small-0/{0:020d}.log"])
def test_advice_has_the_options_of_the_uri(
    server: ObjectServer, tmp_path: Path, by_options: str, damaged: str
) -> None:
    directory = write_small_partitions(tmp_path / "damaged", 1)
    data = (directory / damaged).read_bytes()
    (directory / damaged).write_bytes(data.replace(b"version=1", b"version=9")[1:])
    uri = server.upload(directory, "damaged")
    outcome = run_kdump(["verify", f"{uri}{by_options}"], tmp_path)
    (command,) = commands_in(outcome.stdout, "copy")
    assert not run_kdump(command, tmp_path).exit_status & FAILED
    assert contents_of(tmp_path / "copy") == contents_of(directory)


def test_the_command_that_continues_a_copy_has_the_options_of_the_uri(
    server: ObjectServer, large: Path, large_uri: str, tmp_path: Path, by_options: str
) -> None:
    uri = large_uri.replace("s3://", f"s3://AKIDX:{SECRET}@") + by_options
    server.disturb = lambda request: 404 if "00.log" in request else None
    run_kdump(["copy", uri, "out"], tmp_path)
    server.disturb = lambda _: None
    refusal = run_kdump(["copy", "--topic", "o*", uri, "out"], tmp_path)
    assert refusal.exit_status == ExitStatus.USAGE
    (command,) = commands_in(refusal.stderr, "copy", after="', or")
    assert not run_kdump(command, tmp_path).exit_status & FAILED
    assert contents_of(tmp_path / "out") == contents_of(large)
    journals = [*tmp_path.rglob("*.jsonl"), *tmp_path.rglob("*copy*")]
    assert not any(b"secret" in each.read_bytes() for each in journals if each.is_file())


def test_reading_commands_that_are_advised_have_the_options_of_the_uri(
    server: ObjectServer, uploaded: str, tmp_path: Path, by_options: str
) -> None:
    outcome = run_kdump(["groups", f"{uploaded}/d1{by_options}"], tmp_path)
    (command,) = commands_in(outcome.stdout, "groups --output reset-csv", after="'$")
    assert run_kdump(command, tmp_path).exit_status == outcome.exit_status


def test_a_directory_of_a_copy_in_a_store_is_refused_without_its_credentials(
    large: Path, tmp_path: Path
) -> None:
    outcome = run_kdump(["copy", str(large), f"s3://AKIDX:{SECRET}@b/x"], tmp_path)
    assert outcome.exit_status == ExitStatus.USAGE
    assert not re.search(b"AKIDX|secret", outcome.stderr)


def test_a_location_keeps_its_credentials_and_does_not_show_them(
    server: ObjectServer, large: Path, large_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = parse_location(with_credentials(server, large_uri)) / "orders-0"
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    again = pickle.loads(pickle.dumps(location))
    assert {each.name for each in again.entries()} == set(contents_of(large / "orders-0"))
    assert str(again) == f"{large_uri}/orders-0"
    assert "secret" not in repr(again)


@pytest.mark.parametrize("option", ["", "&retry_limit_seconds=2"])
def test_googles_store_is_given_up_as_others_are(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(store_connection, "GOOGLE_ATTEMPTS_SECONDS", 600 if option else 2)
    server.disturb = lambda _: 503
    uri = f"gs://anonymous@b/x?endpoint_override=127.0.0.1:{server.port}&scheme=http{option}"
    outcome = run_kdump(["ls", uri], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert outcome.stderr.startswith(b"kdump: gs://b/x: ")
    assert outcome.stderr.count(b"\n") == 1
    assert server.count("GET") > 1


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("s3://nothing-there/x", "NO_SUCH_BUCKET"),
        (f"s3://{BUCKET}/nothing", "No such file or directory"),
        (f"s3://{BUCKET}/x?colour=red", "Unexpected query parameter in S3 URI: 'colour'"),
        ("hdfs://127.0.0.1:1/x", ""),
        (
            "abfs://c@a.dfs.core.windows.net/x?enable_tls=false&dfs_storage_authority=127.0.0.1:1",
            "Bearer token authentication is not permitted",
        ),
    ],
)
def test_a_uri_that_leads_nowhere_is_one_line(
    server: ObjectServer, tmp_path: Path, uri: str, what: str
) -> None:
    outcome = run_kdump(["ls", uri], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert what in outcome.stderr.decode()
    assert outcome.stderr.count(b"\n") == 1


def test_what_may_not_be_read_is_named_and_nothing_is_called_lost(
    server: ObjectServer, tmp_path: Path
) -> None:
    uri = server.upload(write_small_partitions(tmp_path / "d", 4), "denied")
    server.disturb = lambda request: (
        Reply(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        if re.match(r"(GET|HEAD) \S*/small-[12]/", request)
        else None
    )
    outcome = run_kdump(["verify", "--output", "jsonl", uri], tmp_path)
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    findings = [row for row in found if row["type"] == "finding"]
    denied = [row for row in findings if re.search("/small-[12]/", row["path"])]
    assert {each["code"] for each in denied} == {"file-unreadable"}
    assert not any(each["loss"] for each in findings)
    logs = {f"{uri}/small-{number}/{at:020d}.log" for number in (1, 2) for at in (0, 6, 12)}
    assert logs <= {each["path"] for each in denied}
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
