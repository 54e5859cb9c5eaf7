"""HDFS on this machine: a name node and a data node of Hadoop's own, in one JVM."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from builders.kafka_jars import fetch_jars

_HOST = "127.0.0.1"
_PATIENCE_SECONDS = 180
_WRITERS = 32
_POM = Path(__file__).resolve().parents[1] / "java" / "hdfs" / "pom.xml"


@dataclass(frozen=True, slots=True)
class HdfsServer:
    """A cluster without files.

    Attributes:
        uri: of its root.
    """

    uri: str

    def upload(self, directory: Path, name: str) -> str:
        """Write the files of a directory; returns its URI."""
        from hdfs_native import Client

        client = Client(self.uri)

        def write(path: Path) -> None:
            with client.create(f"/{name}/{path.relative_to(directory)}") as file:
                file.write(path.read_bytes())

        # To close a file takes a third of a second: the client asks whether its block is written.
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(write, (each for each in directory.rglob("*") if each.is_file())))
        return f"{self.uri}/{name}"


@contextlib.contextmanager
def hdfs_server(folder: Path) -> Iterator[HdfsServer]:
    """Run a cluster whose disks are in a folder.

    Raises :class:`~builders.kafka_jars.ReferenceUnavailable` without Java or Maven.
    """
    jars = fetch_jars("hdfs-jars", _POM)
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port = free.getsockname()[1]
    details = folder / "details.json"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars),
                "org.apache.hadoop.test.MiniDFSClusterManager",
                *("-format", "-datanodes", "1", "-nnport", str(port)),
                *("-writeDetails", str(details)),
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            until = time.monotonic() + _PATIENCE_SECONDS
            while not (details.exists() and details.read_text().endswith("}")):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until
                time.sleep(0.1)
            assert json.loads(details.read_text())["namenode_port"] == port
            yield HdfsServer(f"hdfs://{_HOST}:{port}")
        finally:
            process.kill()
            process.wait()
