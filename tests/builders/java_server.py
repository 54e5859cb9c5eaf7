"""A program of ``tests/java`` that answers requests while the tests run."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

_QUIET: Final = (
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)
"""What a JVM says of an archive does not matter, and would be among the answers."""


def archive_of(classpath: str) -> Path:
    """Return where the archive of a classpath's classes is (:mod:`builders.class_archives`)."""
    programs = Path(classpath.partition(os.pathsep)[0]).parent
    return programs.with_name(f"{programs.name}-archive") / "classes.jsa"


def start_options(classpath: str) -> list[str]:
    """Return the options with which a JVM uses the archive of its classes, if there is one.

    A path without a file would keep it from using the archive of Java's own classes.
    """
    archive = archive_of(classpath)
    used = [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []
    return [*_QUIET, *used]


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
                *start_options(classpath),
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

    @property
    def exit_status(self) -> int | None:
        """The exit status of a JVM whose context has ended; negative if a signal killed it."""
        return self._process.returncode

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
