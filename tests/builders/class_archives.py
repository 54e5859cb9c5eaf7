"""Archives of the classes that a JVM of the tests loads: with one it starts sooner."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from builders.broker import RequestFailed
from builders.cluster_jvms import ClusterJvm, ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.java_server import archive_of
from builders.kraft_cluster import KraftCluster
from builders.once import made_once

_PATIENCE_S: Final = 300


def archived(classpath: str) -> str:
    """Make the archive of a classpath that begins with a jar, once; return the classpath.

    A broker that is its own controller, and its clients, live for a moment for that. Any JVM that
    loads a part of the same classes starts sooner. Without an archive, or with one that another
    Java has made, it loads all classes from their jars.
    """
    archive = archive_of(classpath)
    made_once(
        archive.parent,
        f"{_file(classpath.partition(os.pathsep)[0])} {_file(shutil.which('java') or 'java')}",
        lambda folder: _write(folder / archive.name, classpath),
    )
    return classpath


def _file(path: str) -> str:
    """Describe a file by what changes when it is written again."""
    found = Path(path).resolve()
    status = found.stat()
    return f"{found} {status.st_size} {status.st_mtime_ns}"


class _OneJvm(ClusterJvms):
    """The same JVM for nodes and clients."""

    def __init__(self, jvm: ClusterJvm, classpath: str, logs: Path) -> None:
        super().__init__(classpath, logs)
        self._jvm = jvm

    def __getitem__(self, name: str) -> ClusterJvm:
        return self._jvm


def _write(archive: Path, classpath: str) -> None:
    option = f"-XX:ArchiveClassesAtExit={archive}"
    with (
        tempfile.TemporaryDirectory() as name,
        ClusterJvm(classpath, Path(name) / "log", "1g", _PATIENCE_S, option) as jvm,
        # The archive has the classes that were loaded until then.
        contextlib.suppress(RequestFailed),
    ):
        _live(
            KraftCluster(
                _OneJvm(jvm, classpath, Path(name)),
                Path(name) / "disks",
                [Node(1, ("disk",), "broker,controller")],
                properties=ALONE,
            )
        )
    if jvm.exit_status != 0:
        # A JVM checks the header only, and would crash on the rest.
        archive.unlink(missing_ok=True)


def _live(cluster: KraftCluster) -> None:
    """Do what most clusters of the tests do."""
    cluster.format()
    cluster.start()
    clients = cluster.clients
    clients.create_topic("t", replicas=1)
    clients.open_producer("p", transactional_id="p")
    with clients.transaction("p"):
        clients.send("p", ("t", 0), [("key", "value")])
    clients.read(("t", 0))
    for protocol in ("classic", "consumer"):
        clients.join(f"m-{protocol}", f"g-{protocol}", ["t"], 1, protocol)
    clients.describe()
    cluster.stop()
