"""The JVMs that run the nodes of a cluster and its clients; each can be killed alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from builders.broker import RequestFailed
from builders.java_server import JavaServer

CLIENTS: Final = "clients"
"""The JVM of all clients of a cluster."""
KAFKA_4_3: Final = pytest.param("java_classpath", id="4.3.1")
ON_BOTH_KAFKAS: Final = pytest.mark.parametrize(
    "cluster_jvms",
    [KAFKA_4_3, pytest.param("newest_classpath", id="4.4.0")],
    indirect=True,
    scope="session",
)
"""Marks a test for real nodes of both versions whose rules kdump knows."""


class ClusterJvm(JavaServer):
    """The server ``tests/java/src/ClusterHost.java``."""

    def __init__(
        self, classpath: str, log: Path, heap: str, patience_s: int, *options: str
    ) -> None:
        self.log = log
        super().__init__(
            classpath,
            "ClusterHost",
            f"-Xmx{heap}",
            *options,
            f"-Dpatience={patience_s}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients=error",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=error",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.server.config=error",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=error",
            f"-Dorg.slf4j.simpleLogger.logFile={log}",
        )

    def ask(self, request: str, **fields: Any) -> Any:
        """Send a request, and return its answer.

        Raises:
            RequestFailed: it failed.
        """
        self.requests.write(json.dumps({"do": request} | fields).encode() + b"\n")
        self.requests.flush()
        line = self.answers.readline()
        if not line:
            raise self.ended()
        answer = json.loads(line)
        if isinstance(answer, dict) and "failed" in answer:
            raise self.failure(f"{request}: {answer['failed']}")
        return answer

    def failure(self, reason: str) -> RequestFailed:
        """Make the error of a request, with a note of what was logged last."""
        failure = RequestFailed(reason)
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        failure.add_note("\n".join([f"The last lines of {self.log.name}:", *_last(lines)]))
        return failure


def _last(lines: Sequence[str], *, count: int = 80) -> list[str]:
    """Return the last lines; of lines that differ only in numbers, the last one.

    Nodes that wait for another repeat that every second.
    """
    latest: dict[str, str] = {}
    for line in lines:
        kind = re.sub("[0-9]+", "0", line)
        latest.pop(kind, None)
        latest[kind] = line
    return list(latest.values())[-count:]


class ClusterJvms:
    """JVMs by name; each starts when it is first asked for. All are killed at the end."""

    def __init__(self, classpath: str, logs: Path, *, patience_s: int = 120) -> None:
        self._classpath = classpath
        self._logs = logs
        self._patience_s = patience_s
        self._running: dict[str, ClusterJvm] = {}

    def __getitem__(self, name: str) -> ClusterJvm:
        if name not in self._running:
            log = self._logs / f"{name}.log"
            self._running[name] = ClusterJvm(self._classpath, log, "1g", self._patience_s)
        return self._running[name]

    def kill(self, *names: str) -> None:
        """End JVMs as ``kill -9`` does; all if none is named."""
        for name in names or list(self._running):
            if name in self._running:
                self._running.pop(name).kill()

    def logged(self, name: str) -> list[str]:
        """Return the lines that nodes in the latest JVM of this name have logged."""
        log = self._logs / f"{name}.log"
        return log.read_text(errors="replace").splitlines() if log.exists() else []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
