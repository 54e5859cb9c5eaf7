"""``kafka-dump-log`` itself, in a JVM that answers one run after the other."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class OfficialOutcome:
    """What a run of the official tool left.

    ``end`` is empty when the tool returned, else the exception that left it, or ``exit STATUS``.
    """

    stdout: bytes
    stderr: bytes
    end: str


class OfficialTool:
    """The server ``tests/java/src/OfficialDump.java``, whose working directory is ``cwd``.

    The tool alters what it reads (it cuts and creates index files): let it read copies.
    """

    def __init__(self, classpath: str, cwd: Path) -> None:
        self._process = subprocess.Popen(
            [
                "java",
                "-Xmx512m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dfile.encoding=UTF-8",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                "-cp",
                classpath,
                "OfficialDump",
            ],
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, args: Sequence[str]) -> OfficialOutcome:
        """Run ``kafka-dump-log ARGS``."""
        encoded = [arg.encode() for arg in args]
        request = b"".join(_SIZE.pack(len(arg)) + arg for arg in encoded)
        assert self._process.stdin is not None
        self._process.stdin.write(_SIZE.pack(len(encoded)) + request)
        self._process.stdin.flush()
        return OfficialOutcome(self._answer(), self._answer(), self._answer().decode())

    def _answer(self) -> bytes:
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        content = self._process.stdout.read(size)
        if len(content) < size:
            raise EOFError(f"the JVM ended with status {self._process.wait()}")
        return content

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
