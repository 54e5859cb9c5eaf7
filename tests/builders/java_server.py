"""A program of ``tests/java`` that answers requests while the tests run."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self


class JavaServer:
    """A JVM that runs the class ``main`` until its context ends."""

    def __init__(
        self,
        classpath: str,
        main: str,
        *options: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [
                "java",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                *options,
                "-cp",
                classpath,
                main,
            ],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def requests(self) -> IO[bytes]:
        """The stream for requests."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def answers(self) -> IO[bytes]:
        """The stream of answers."""
        assert self._process.stdout is not None
        return self._process.stdout

    def ask_words(self, words: Iterable[str]) -> dict[str, str]:
        """Send one line of words; return the lines of the answer by name."""
        self.requests.write(("\t".join(words) + "\n").encode())
        self.requests.flush()
        said = {}
        while line := self.answers.readline().decode().rstrip("\n"):
            name, _, what = line.partition("\t")
            said[name] = what
        if self._process.poll() is not None:
            raise self.ended()
        return said

    def kill(self) -> None:
        """End the JVM as ``kill -9`` does."""
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.requests.close()
        self.answers.close()
        self._process.wait()

    def ended(self) -> EOFError:
        """Make the error for a server that has ended."""
        return EOFError(f"the JVM ended with status {self._process.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.requests.close()
        self.answers.close()
        self._process.wait()
