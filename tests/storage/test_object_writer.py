"""Whole objects in a bucket: each is written, created once, copied, listed and deleted."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from builders.object_server import ObjectServer, Reply, object_server
from kdump.storage import object_writer, store_connection
from kdump.storage.object_store import ObjectStore
from kdump.storage.object_writer import ObjectWriter
from kdump.storage.places import forget_places, parse_location

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def server(running: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    for module in (object_writer, store_connection):
        monkeypatch.setattr(module, "ATTEMPTS", 2)
    forget_places()
    running.reset()
    yield running
    running.reset()
    running.delete_all()


@pytest.fixture
def writer(server: ObjectServer) -> ObjectWriter:
    storage = parse_location(server.uri).storage
    assert isinstance(storage, ObjectStore)
    found = storage.writer
    server.requests.clear()
    return found


def test_a_file_is_written_whole_and_in_place_of_what_was_there(
    server: ObjectServer, writer: ObjectWriter
) -> None:
    writer.put("/a/b", b"longer")
    with tempfile.TemporaryFile() as file:
        file.write(b"file")
        file.seek(0)
        writer.put("/a/b", file)
    assert writer.read("/a/b") == b"file"
    assert server.count("PUT") == 2


def test_what_is_there_is_not_created(writer: ObjectWriter) -> None:
    assert writer.create("/lock", b"mine")
    assert not writer.create("/lock", b"yours")
    assert writer.read("/lock") == b"mine"


def test_what_was_created_by_an_attempt_whose_answer_was_lost_is_created(
    server: ObjectServer, writer: ObjectWriter
) -> None:
    def lose(_data: bytes) -> bytes:
        server.disturb = lambda _: None
        raise ConnectionResetError

    server.disturb = lambda _: lose
    assert writer.create("/lock", b"mine")
    assert server.count("PUT") == 2


def test_what_another_deletes_meanwhile_is_not_created(
    server: ObjectServer, writer: ObjectWriter
) -> None:
    body = b"<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>"
    server.disturb = lambda request: Reply(412, {}, body) if request.startswith("PUT") else None
    assert not writer.create("/lock", b"mine")


def test_a_store_that_knows_no_condition_writes_in_any_case(
    server: ObjectServer, writer: ObjectWriter
) -> None:
    def disturb(_request: str) -> Any:
        server.disturb = lambda _: None
        body = b"<Error><Code>NotImplemented</Code><Message>no</Message></Error>"
        return Reply(501, {}, body)

    server.disturb = disturb
    assert writer.create("/lock", b"mine")
    assert writer.read("/lock") == b"mine"


def test_listings_of_several_pages_are_whole(server: ObjectServer, writer: ObjectWriter) -> None:
    names = {f"/data/{number % 7}/{number}" for number in range(1003)}
    for each in names:
        writer.put(each, b"x")
    found = {each.path: each for each in writer.listed("/data")}
    assert found.keys() == names
    assert {each.size_bytes for each in found.values()} == {1}
    assert all(-5 < each.age_s < 3600 for each in found.values())
    assert {each.path for each in writer.listed("/data", is_deep=False)} == {
        f"/data/{number}/" for number in range(7)
    }
    server.requests.clear()
    writer.delete([*names, "/data/missing"])
    assert server.count() == 2
    assert not list(writer.listed("/data"))


def test_what_is_required_is_looked_at_before_each_request(
    server: ObjectServer, writer: ObjectWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_writer, "_TOGETHER", 1)
    for name in ("/a", "/b", "/c"):
        writer.put(name, b"x")
    left = iter([None, None])

    def require() -> None:
        if next(left, "lost") == "lost":
            raise RuntimeError

    with pytest.raises(RuntimeError):
        writer.delete(["/a", "/b", "/c"], require)
    assert server.keys == ["c"]


def test_an_object_that_cannot_be_deleted_is_named(
    server: ObjectServer, writer: ObjectWriter
) -> None:
    body = (
        b"<DeleteResult><Error><Key>a/b</Key><Code>AccessDenied</Code>"
        b"<Message>Access Denied</Message></Error></DeleteResult>"
    )
    server.disturb = lambda _: Reply(200, {"Content-Type": "application/xml"}, body)
    with pytest.raises(OSError, match="AccessDenied: Access Denied") as found:
        writer.delete(["/a/b"])
    assert found.value.filename == f"{server.uri}/a/b"


def test_a_copy_has_the_same_bytes(writer: ObjectWriter) -> None:
    writer.put("/a", b"bytes")
    writer.copy("/a", "/b c")
    assert writer.read("/b c") == b"bytes"
    with pytest.raises(FileNotFoundError):
        writer.copy("/missing", "/d")


@pytest.mark.parametrize("status", [400, 403, 404, 500, 503])
def test_a_failure_names_the_object_and_shows_no_credentials(
    server: ObjectServer, writer: ObjectWriter, status: int
) -> None:
    secrets = "testing Secret/Of+Tests"
    body = f"<Error><Code>X</Code><Message>what you sent: {secrets}</Message></Error>".encode()
    server.disturb = lambda _: Reply(status, {"Content-Type": "application/xml"}, body)
    with pytest.raises(OSError, match=r".") as found:
        writer.put("/a/b", b"x")
    assert found.value.filename == f"{server.uri}/a/b"
    assert not re.search("testing|Secret|Errno", str(found.value.strerror))


def test_requests_are_counted(writer: ObjectWriter) -> None:
    store = parse_location("s3://disks").storage
    assert isinstance(store, ObjectStore)
    before = store.counts
    writer.put("/a", b"x")
    writer.read("/a")
    list(writer.listed("/"))
    writer.delete(["/a"])
    now = store.counts
    assert (now.writes, now.reads, now.listings) == (
        before.writes + 2,
        before.reads + 1,
        before.listings + 1,
    )


def test_several_are_written_at_the_same_time(server: ObjectServer, writer: ObjectWriter) -> None:
    bodies = [io.BytesIO(bytes([number])).getvalue() for number in range(20)]
    writer.each_at_once(lambda each: writer.put(f"/{each[0]}", each), bodies)
    assert len(server.keys) == 20
