"""A server of S3 on this machine: moto in a process of its own, behind a proxy that counts."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

from kdump.storage.places import forget_places

BUCKET = "disks"
_PATIENCE_SECONDS = 60
_HOST = "127.0.0.1"
_NEWLINE = "-NEWLINE-"
"""Stands for a newline in a key, which moto does not take."""


class Reply(NamedTuple):
    """An answer that the server sends instead of its own."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""


@dataclass(slots=True)
class ObjectServer:
    """S3 with one bucket.

    Attributes:
        port: of the proxy.
        requests: method and path of each request.
        disturb: is asked for each request, by method and path: a status to answer with, a
            ``Reply``, a function that sends something else, or None. What it sends less is cut.
        rewrite: gives the path that is asked for instead.
        pause_seconds: how long to wait after each eighth of an answer.
        kill: cuts all connections of this address, answers nothing any more, and refuses others.
    """

    port: int
    moto_port: int
    requests: list[str] = field(default_factory=list)
    disturb: Callable[[str], Any] = lambda _request: None
    rewrite: Callable[[str], str] = str
    pause_seconds: float = 0.0
    kill: Callable[[], None] = lambda: None

    def dies(self, data: bytes) -> bytes:
        """For ``disturb``: end this address while it answers; half of the answer is sent."""
        self.kill()
        return data[: len(data) // 2]

    @property
    def uri(self) -> str:
        """The URI of the bucket."""
        return f"s3://{BUCKET}"

    def reset(self) -> None:
        """Forget the requests so far, and disturb no more."""
        self.requests.clear()
        self.disturb = lambda _request: None
        self.rewrite = str
        self.pause_seconds = 0.0

    def upload(self, directory: Path, prefix: str) -> str:
        """Upload the files of a directory; returns its URI.

        What a listing has first is uploaded last: no other object is newer.
        """
        for path in sorted(directory.rglob("*"), reverse=True):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(directory)}", path.read_bytes())
        return f"{self.uri}/{prefix}"

    def put(self, key: str, data: bytes) -> None:
        """Write one object."""
        self._ask("PUT", f"/{BUCKET}/{key}", data)

    def copy_all(self, prefix: str, new_prefix: str) -> None:
        """Write the objects below a prefix below another one, too."""
        for key in self.keys:
            if key.startswith(f"{prefix}/"):
                new_key = f"{new_prefix}{key.removeprefix(prefix)}"
                self.put(new_key, self._ask("GET", f"/{BUCKET}/{key}"))

    def sizes(self) -> dict[str, int]:
        """How many bytes each object has, by key."""
        found = self._ask("GET", f"/{BUCKET}", query="?list-type=2")
        assert b"<IsTruncated>false" in found
        sizes = re.findall(rb"<Key>(.*?)</Key>.*?<Size>(\d+)</Size>", found, re.DOTALL)
        return {key.decode(): int(size) for key, size in sizes}

    @property
    def keys(self) -> list[str]:
        """The keys of all objects, in order."""
        return sorted(self.sizes())

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        for key in keys:
            self._ask("DELETE", f"/{BUCKET}/{key}")

    def delete_all(self) -> None:
        """Delete all objects."""
        while sizes := self.sizes():
            self.delete(sizes)

    def _ask(self, method: str, path: str, data: bytes | None = None, *, query: str = "") -> bytes:
        from urllib.parse import quote

        connection = http.client.HTTPConnection(_HOST, self.port)
        headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"
        }
        connection.request(method, quote(path.replace("\n", _NEWLINE)) + query, data, headers)
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        assert answer.status < 300, (method, path, answer.status)
        return found

    def count(self, *methods: str) -> int:
        """How many requests there were, of some methods or of all."""
        return len([each for each in self.requests if not methods or each.split()[0] in methods])


def name_as_long(path: Path, root: str) -> str:
    """Return a name below a root, so that its URI is as long as a path.

    Paths are in what commands write, which has sizes.
    """
    return "x" * (len(str(path)) - len(root) - 1)


@contextlib.contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Run a server; its address and credentials are in the environment, as Arrow reads them."""
    with _moto() as moto_port, _proxy(moto_port) as server:
        environment = {
            "AWS_ENDPOINT_URL": f"http://{_HOST}:{server.port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "Secret/Of+Tests",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        with mock.patch.dict(os.environ, environment):
            server._ask("PUT", f"/{BUCKET}")
            server.requests.clear()
            forget_places()  # another test may have had a server of its own
            yield server


@contextlib.contextmanager
def other_address(server: ObjectServer) -> Iterator[ObjectServer]:
    """Give a server another address, which is the one in the environment meanwhile.

    It has the same objects, and can be killed: for a client it is a server that is gone, and
    starting another takes a hundred times as long.
    """
    with _proxy(server.moto_port) as other:
        url = f"http://{_HOST}:{other.port}"
        with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": url}):
            yield other


@contextlib.contextmanager
def _moto() -> Iterator[int]:
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from moto.server import main; main()"]
    process = subprocess.Popen(
        [*command, "-H", _HOST, "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://{_HOST}:{port}/moto-api/", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, "moto ended"
                assert time.monotonic() < until
                time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _proxy(moto_port: int) -> Iterator[ObjectServer]:
    connections = set[socket.socket]()
    is_dead = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            connections.add(self.connection)

        def finish(self) -> None:
            connections.discard(self.connection)
            with contextlib.suppress(OSError):
                super().finish()

        def handle_one_request(self) -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):  # it was cut
                super().handle_one_request()
                return
            self.close_connection = True

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.requests.append(f"{self.command} {self.path}")
            instead = server.disturb(f"{self.command} {self.path}")
            if isinstance(instead, int):
                instead = Reply(instead)
            if isinstance(instead, Reply):
                self.send_response(instead.status)
                for key, value in instead.headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(instead.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(instead.body)
                return
            headers = {key: value for key, value in self.headers.items() if key != "Connection"}
            asked = server.rewrite(self.path.replace("%0A", _NEWLINE))
            with contextlib.closing(http.client.HTTPConnection(_HOST, moto_port)) as connection:
                connection.request(self.command, asked, body or None, headers)
                answer = connection.getresponse()
                data = answer.read()
            if "list-type" in self.path:
                data = data.replace(_NEWLINE.encode(), b"&#10;")
            if is_dead.is_set():
                raise ConnectionAbortedError
            is_head = self.command == "HEAD"
            length = answer.getheader("Content-Length", "0") if is_head else str(len(data))
            if instead is not None:
                data = instead(data)
                length = str(max(int(length), len(data)))
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(key, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if not is_head:
                self._send(data)
                if len(data) < int(length):
                    self.close_connection = True

        def _send(self, data: bytes) -> None:
            if not server.pause_seconds:
                self.wfile.write(data)
                return
            step = len(data) // 8 + 1
            for start in range(0, len(data), step):
                self.wfile.write(data[start : start + step])
                time.sleep(server.pause_seconds)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def server_bind(self) -> None:
            socketserver.TCPServer.server_bind(self)  # without asking for the name of the host
            self.server_name, self.server_port = _HOST, self.server_address[1]

    with Server((_HOST, 0), Handler) as proxy:

        def kill() -> None:
            is_dead.set()
            proxy.shutdown()
            proxy.server_close()
            for each in list(connections):
                # That of the answer in whose middle this happens ends with it.
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RD)

        server = ObjectServer(proxy.server_port, moto_port, kill=kill)
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            proxy.shutdown()
            thread.join()
