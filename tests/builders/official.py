"""``kafka-dump-log`` itself, in a JVM that runs it repeatedly."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders.java_server import JavaServer

_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class OfficialOutcome:
    """The result of a run of the official tool.

    ``end`` is empty if the tool returned, else its exception or ``exit STATUS``.
    """

    stdout: bytes
    stderr: bytes
    end: str


class OfficialTool(JavaServer):
    """The server ``tests/java/src/OfficialDump.java``, whose working directory is ``cwd``.

    The tool changes what it reads (it trims and creates index files): let it read copies.
    """

    def __init__(self, classpath: str, cwd: Path) -> None:
        super().__init__(
            classpath,
            "OfficialDump",
            "-Xmx512m",
            "-Dfile.encoding=UTF-8",
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )

    def run(self, args: Sequence[str]) -> OfficialOutcome:
        """Run ``kafka-dump-log ARGS``."""
        encoded = [arg.encode() for arg in args]
        request = b"".join(_SIZE.pack(len(arg)) + arg for arg in encoded)
        self.requests.write(_SIZE.pack(len(encoded)) + request)
        self.requests.flush()
        return OfficialOutcome(self._answer(), self._answer(), self._answer().decode())

    def _answer(self) -> bytes:
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        content = self.answers.read(size)
        if len(content) < size:
            raise self.ended()
        return content
