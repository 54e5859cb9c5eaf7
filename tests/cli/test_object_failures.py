"""A server of S3 that dies, is slow or fails meanwhile: a clear end or a full result."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders import large_segments, log_directories
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.large_segments import LargeSegment
from builders.object_server import ObjectServer, name_as_long, object_server, other_address
from builders.samples import at_some_or_each_kind, moments_of_kinds
from builders.source_tables import table_of
from builders.trees import contents_of
from kdump.apply.unfinished_copy import JOURNAL
from kdump.errors import ExitStatus, KdumpError
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.jobs.export.export_directory import SUCCESS
from kdump.storage import store_connection
from kdump.storage.places import forget_places

pytestmark = pytest.mark.slow

LINES: Final = (
    "copy --output jsonl DIR out",
    "export --format jsonl --output jsonl --out out DIR",
    "groups --output jsonl --members DIR",
    "lookup --output jsonl --timestamp max DIR",
    "ls --output jsonl DIR",
    "report --now 2026-11-22 --out out DIR",
    "verify --output jsonl DIR",
)
DATA_SOURCE: Final = "the data source"
READERS: Final = (*LINES, DATA_SOURCE)
IN_MAIN: Final = ("copy", "groups", "verify")
"""Readers that are not only in the soak part."""
VARYING: Final = re.compile(
    r'"(seconds|created_ms|(modified|changed)_ns|free_bytes|fingerprint)": ?[^,}]+'
)
"""What two runs have apart: times, free space, and what is made of the times of the files."""
ADVICE: Final = re.compile(r'<ol class="actions">.*?</ol>|(?<=out: )[0-9.]+ KiB', re.DOTALL)
"""What a report advises, and its size: to copy what is not on a local disk first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader gave, with the directory as ``DIR``.

    Attributes:
        status: of the command.
        said: on standard output.
        problems: on standard error.
        made: the files that it wrote.
    """

    status: int
    said: str
    problems: str
    made: dict[str, str]

    @property
    def is_failure(self) -> bool:
        return bool(self.status & ExitStatus.OPERATIONAL_ERROR)


def answer(line: str, base: str, folder: Path) -> Answer:
    """Run a reader on the directory at ``base``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    forget_places()
    if line == DATA_SOURCE:
        columns = "topic,partition,offset,key,value,timestamp"
        try:
            table = table_of(base, columns=columns)  # type: ignore[arg-type]
        except (OSError, KdumpError) as failure:
            where = f"{failure.filename}: " if isinstance(failure, OSError) else ""
            return Answer(8, "", f"kdump: {where}{failure}\n".replace(base, "DIR"), {})
        return Answer(0, str(table.to_pylist()), "", {})
    words = [base if word == "DIR" else word for word in line.split()]
    outcome = run_kdump(words, folder)
    made = {
        name: ADVICE.sub("", VARYING.sub("", os.fsdecode(content))).replace(base, "DIR")
        for name, content in contents_of(folder).items()
    }
    said, problems = (
        each.decode(errors="backslashreplace").replace(base, "DIR")
        for each in (outcome.stdout, outcome.stderr)
    )
    return Answer(outcome.exit_status, ADVICE.sub("", VARYING.sub("", said)), problems, made)


def require_whole_or_clear(found: Answer, expected: Answer) -> None:
    """Refuse an answer that is neither the full one nor a clear failure."""
    if not found.is_failure:
        assert found == expected
        return
    lines = found.problems.splitlines()
    assert lines
    assert all(each.startswith("kdump: ") for each in lines), lines
    assert any("DIR" in each or "s3://disks" in each for each in lines), lines
    assert not re.search("Traceback|testing|Secret", found.said + found.problems)
    looks_whole = f"out/{SUCCESS}" in found.made or (
        f"out/{names.META_PROPERTIES}" in found.made and f"out/{JOURNAL}" not in found.made
    )
    if looks_whole:  # only the last question was not answered: whether the source has changed
        assert found.made == expected.made
    page = found.made.get("out")
    if page is not None and page != expected.made["out"]:
        assert "Not everything could be read" in page


@pytest.fixture(scope="module")
def directory(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a log directory with a log of several requests, small ones, and groups."""
    path = log_directories.write_log_directory(tmp_path_factory.mktemp("d") / "DIR", clean=True)
    large_segments.write(path, LargeSegment.of(800))
    for name in ("d2/__consumer_offsets-2", "d1/grown-2"):
        shutil.copytree(fixtures / "out/clean" / name, path / name.partition("/")[2])
    return path


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_connection, "ATTEMPTS", 2)
    monkeypatch.setattr(store_connection, "GONE_SECONDS", 0.0)


def upload(directory: Path, server: ObjectServer) -> str:
    return server.upload(directory, name_as_long(directory, server.uri))


@pytest.fixture(scope="module")
def uri(directory: Path, running: ObjectServer) -> str:
    return f"{running.uri}/{name_as_long(directory, running.uri)}"


@pytest.fixture(scope="module")
def running(directory: Path) -> Iterator[ObjectServer]:
    with object_server() as server:
        upload(directory, server)
        yield server


@pytest.fixture
def server(running: ObjectServer) -> Iterator[ObjectServer]:
    yield running
    running.disturb = lambda _: None
    running.pause_seconds = 0.0


each_reader = pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            line,
            marks=[] if line.startswith(IN_MAIN) else [pytest.mark.soak],
            id=line.split(" -")[0].replace(" ", "-"),
        )
        for line in READERS
    ],
)


class Countdown:
    """For ``disturb``: undisturbed requests, then others."""

    def __init__(self, count: int, then: Callable[[str], Any]) -> None:
        self.left = count
        self.then = then

    def __call__(self, request: str) -> Any:
        self.left -= 1
        return self.then(request) if self.left < 0 else None


def kind_of(request: str) -> str:
    """What a request does, and with which file of a log directory; all partitions are alike."""
    method, _, path = request.partition(" ")
    path, _, query = path.partition("?")
    if "list-type" in query:
        return f"{method} a listing"
    return f"{method} {re.sub('[0-9]+', '#', path.rpartition('/')[2])}"


class DiesAt:
    """For ``disturb``: undisturbed requests, then one in whose answer the server ends."""

    def __init__(self, server: ObjectServer, kind: str, before: int) -> None:
        self.left = Counter({kind: before})
        self.kind = kind
        self.server = server

    def __call__(self, request: str) -> Callable[[bytes], bytes] | None:
        kind = kind_of(request)
        self.left[kind] -= 1
        return self.server.dies if kind == self.kind and self.left[kind] < 0 else None


@each_reader
@at_some_or_each_kind
def test_a_server_that_is_killed_meanwhile(
    server: ObjectServer,
    uri: str,
    directory: Path,
    tmp_path: Path,
    line: str,
    is_each_kind: bool,
) -> None:
    """It ends in its answer to the first and to the last request of each kind (``kind_of``)."""
    expected = answer(line, str(directory), tmp_path / "1")
    assert not expected.is_failure
    server.requests.clear()
    assert answer(line, uri, tmp_path / "2") == expected
    kinds = [kind_of(each) for each in server.requests]
    failures = 0
    for moment in moments_of_kinds(kinds, is_each_kind=is_each_kind, samples=3):
        with other_address(server) as killed:
            before = kinds[:moment].count(kinds[moment])
            killed.disturb = DiesAt(killed, kinds[moment], before)
            found = answer(line, uri, tmp_path / "2")
        require_whole_or_clear(found, expected)
        failures += found.is_failure
    assert failures


@each_reader
def test_a_slow_server_that_fails_in_between_gives_the_full_answer(
    server: ObjectServer, uri: str, directory: Path, tmp_path: Path, line: str
) -> None:
    expected = answer(line, str(directory), tmp_path / "1")
    statuses = itertools.cycle([None, 500, 503, None, None])
    failed = set[str]()

    def once(request: str) -> int | None:
        status = next(statuses)
        if status is None or request in failed:
            return None
        failed.add(request)
        return status

    server.disturb = once
    server.pause_seconds = 0.005
    assert answer(line, uri, tmp_path / "2") == expected
    assert len(failed) > 3


@pytest.mark.parametrize("status", [500, 503])
@each_reader
def test_a_server_that_fails_from_some_moment_on(
    server: ObjectServer, uri: str, directory: Path, tmp_path: Path, line: str, status: int
) -> None:
    expected = answer(line, str(directory), tmp_path / "1")
    server.disturb = Countdown(7, lambda _: status)
    found = answer(line, uri, tmp_path / "2")
    assert found.is_failure
    require_whole_or_clear(found, expected)


def test_a_copy_goes_on_when_the_server_is_there_again(
    server: ObjectServer, uri: str, directory: Path, tmp_path: Path
) -> None:
    copy = ["copy", "--output", "jsonl", uri, "out"]
    large_log = f"orders-0/{log_directories.file_name(0, FileKind.LOG)}"
    server.disturb = lambda request: 503 if request.endswith(large_log) else None
    forget_places()
    assert run_kdump(copy, tmp_path).exit_status & ExitStatus.OPERATIONAL_ERROR
    server.disturb = lambda _: None
    outcome = run_kdump(copy, tmp_path)
    assert objects(outcome.stdout)[-1]["kept_files"] > 0
    assert contents_of(tmp_path / "out") == contents_of(directory)


def test_a_copy_of_objects_that_change_meanwhile_is_not_complete(
    server: ObjectServer, directory: Path, tmp_path: Path
) -> None:
    uri = server.upload(directory, "changing")
    path = f"grown-2/{names.PARTITION_METADATA}"
    content = (directory / path).read_bytes()

    def replaced(request: str) -> None:
        if "00.log" in request and request.startswith("GET"):
            server.disturb = lambda _: None
            server.put(f"changing/{path}", content + b"\n")

    server.disturb = replaced
    forget_places()
    outcome = run_kdump(["copy", uri, "out"], tmp_path)
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    assert f"{uri}/{path}: ".encode() in outcome.stderr
    assert (tmp_path / "out" / JOURNAL).exists()
