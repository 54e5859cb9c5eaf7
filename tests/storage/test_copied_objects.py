"""``kdump copy`` from an object store: the same bytes, or an incomplete copy that says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.object_server import ObjectServer, object_server
from builders.trees import contents_of
from kdump.apply.unfinished_copy import FOLDER
from kdump.errors import ExitStatus
from kdump.jobs.copy import copy as copy_module
from kdump.storage import store_connection

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def server(running: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """The server, undisturbed; a client that gives up soon."""
    monkeypatch.setattr(store_connection, "ATTEMPTS", 2)
    running.reset()
    yield running
    running.reset()


@pytest.fixture(scope="module")
def disk(fixtures: Path) -> Path:
    return fixtures / "out" / "clean" / "d1"


@pytest.fixture(scope="module")
def uploaded(running: ObjectServer, disk: Path) -> str:
    return running.upload(disk, "clean/d1")


def copy(folder: Path, *args: str) -> Outcome:
    return run_kdump(["copy", *args], folder)


TOPIC = ("--topic", "UPPER*")


@pytest.mark.soak
def test_a_bucket_gives_the_directory_that_was_uploaded(
    server: ObjectServer, disk: Path, uploaded: str, tmp_path: Path
) -> None:
    assert copy(tmp_path, uploaded, "new").exit_status == 0
    assert contents_of(tmp_path / "new") == contents_of(disk)


def test_a_selection_is_what_it_is_from_the_disk(
    server: ObjectServer, disk: Path, uploaded: str, tmp_path: Path
) -> None:
    assert copy(tmp_path, *TOPIC, uploaded, "new").exit_status == 0
    assert copy(tmp_path, *TOPIC, str(disk), "local").exit_status == 0
    assert contents_of(tmp_path / "new") == contents_of(tmp_path / "local")
    assert not server.count("PUT", "POST", "DELETE")


def test_the_bytes_of_a_file_are_asked_for_once(
    server: ObjectServer, uploaded: str, tmp_path: Path
) -> None:
    """But for what says what is selected: the cluster's metadata and the checkpoints."""
    copy(tmp_path, *TOPIC, uploaded, "new")
    asked = [each for each in server.requests if each.startswith("GET") and "UPPER" in each]
    of_files = [each for each in asked if "list-type" not in each]
    found = [each for each in (tmp_path / "new").glob("UPPER*/*") if each.stat().st_size]
    assert len(of_files) == len(set(of_files)) == len(found)


@pytest.mark.parametrize("answer", [403, 503])
def test_an_answer_that_is_none_leaves_an_incomplete_copy_that_is_continued(
    server: ObjectServer, disk: Path, uploaded: str, tmp_path: Path, answer: int
) -> None:
    name = "UPPER-Case.0-1-0/00000000000000000000.log"
    server.disturb = lambda request: answer if "GET" in request and name in request else None
    outcome = copy(tmp_path, *TOPIC, uploaded, "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert f"{uploaded}/{name}: ".encode() in outcome.stderr
    assert (tmp_path / "new" / FOLDER).is_dir()
    assert not (tmp_path / "new" / name).exists()
    server.disturb = lambda _: None
    said = objects(copy(tmp_path, *TOPIC, uploaded, "new", "--output", "jsonl").stdout)[-1]
    assert said["is_complete"]
    assert said["copied_files"] == 3
    copy(tmp_path, *TOPIC, str(disk), "local")
    assert contents_of(tmp_path / "new") == contents_of(tmp_path / "local")


def test_a_server_that_is_gone_ends_the_copy(
    server: ObjectServer, uploaded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_module, "_MOST_FAILURES", 2)
    server.disturb = lambda request: 403 if "GET" in request and "-0/0" in request else None
    outcome = copy(tmp_path, "--topic", "[a-z]*", uploaded, "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"new: gave up: nothing can be read any more: s3://" in outcome.stderr
    assert (tmp_path / "new" / FOLDER).is_dir()


def test_an_object_that_ends_early_is_not_a_file_of_the_copy(
    server: ObjectServer, uploaded: str, tmp_path: Path
) -> None:
    name = "UPPER-Case.0-1-0/00000000000000000000.log"
    server.disturb = lambda request: (
        (lambda data: data[:-7]) if request.startswith("GET") and name in request else None
    )
    outcome = copy(tmp_path, *TOPIC, uploaded, "new")
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert not (tmp_path / "new" / name).exists()
