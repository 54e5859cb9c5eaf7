"""Kafka's own jars, fetched once by Maven, and the compiled Java programs of the tests.

As a script it prints the classpath of the jars: ``PYTHONPATH=tests python -m builders.kafka_jars``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from builders.once import made_once

OLDEST_JAVA: Final = 17
"""The oldest Java version that Kafka 4 supports."""

_ROOT: Final = Path(__file__).resolve().parents[2]
_POM: Final = _ROOT / "tests" / "java" / "pom.xml"
NEWEST_POM: Final = _ROOT / "tests" / "java" / "newest" / "pom.xml"
_SOURCES: Final = _ROOT / "tests" / "java" / "src"
_BUILD: Final = _ROOT / "build"
_PROGRAMS: Final = "programs.jar"


class ReferenceUnavailable(Exception):
    """Kafka's jars are not available, for this reason; tests that need them are skipped."""


class CompilationFailed(Exception):
    """The tests' own Java does not compile: tests that need it fail."""


def jars_classpath() -> str:
    """Fetch the jars of Kafka and its tools into ``build/kafka-jars``; return their classpath.

    Raises :class:`ReferenceUnavailable` if Java or Maven is missing, or Maven fails.
    """
    return fetch_jars("kafka-jars", _POM)


def newest_classpath() -> str:
    """Fetch the jars of the newest Kafka that kdump knows, as :func:`jars_classpath` does."""
    return fetch_jars("kafka-newest-jars", NEWEST_POM)


def mirror_maker_classpath() -> str:
    """Fetch the jars of MirrorMaker 2, as :func:`jars_classpath` does."""
    return fetch_jars("mirror-maker-jars", _ROOT / "tests" / "java" / "mirror-maker" / "pom.xml")


def spark_kafka_classpath() -> str:
    """Fetch the jars of Spark's own source for Kafka, as :func:`jars_classpath` does."""
    return fetch_jars("spark-kafka-jars", _ROOT / "tests" / "java" / "spark-kafka" / "pom.xml")


def fetch_jars(name: str, pom: Path) -> str:
    """Fetch the dependencies of a POM into ``build/NAME``; return their classpath.

    Raises :class:`ReferenceUnavailable` if Java or Maven is missing, or Maven fails.
    """
    _require_java()
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()
    jars = made_once(_BUILD / name, digest, lambda folder: fetch_into(folder, pom))
    return f"{jars}{os.sep}*"


def programs_classpath() -> str:
    """Return the classpath of the compiled ``tests/java/src/*.java``, followed by Kafka's jars.

    Raises :class:`ReferenceUnavailable` as :func:`jars_classpath` does, and
    :class:`CompilationFailed` with the compiler's output.
    """
    return _compiled("java-classes", jars_classpath(), sorted(_SOURCES.rglob("*.java")), _POM)


def newest_loader_classpath() -> str:
    """Return that of ``LoaderServer`` with the newest Kafka that kdump knows, likewise."""
    sources = [_SOURCES / "LoaderServer.java", NEWEST_POM.parent / "WholeLoad.java"]
    return _compiled("java-newest-loader", newest_classpath(), sources, NEWEST_POM)


def newest_cluster_classpath() -> str:
    """Return that of the programs that run brokers and clusters, for the newest Kafka, likewise."""
    others = ("AuthorizerServer", "BrokerHost", "TransactionQuestions")
    sources = [*sorted(_SOURCES.glob("Cluster*.java")), *(_SOURCES / f"{n}.java" for n in others)]
    return _compiled("java-newest-cluster", newest_classpath(), sources, NEWEST_POM)


def newest_consumer_classpath() -> str:
    """Return that of ``ConsumerServer``, for the newest Kafka, likewise."""
    sources = sorted(_SOURCES.rglob("ConsumerServer.java"))
    return _compiled("java-newest-consumer", newest_classpath(), sources, NEWEST_POM)


def oldest_clients_classpath() -> str:
    """Return that of ``OldestConsumer``, with the oldest clients that Kafka 4 answers, likewise."""
    pom = _ROOT / "tests" / "java" / "oldest-clients" / "pom.xml"
    jars = fetch_jars("oldest-clients-jars", pom)
    return _compiled("java-oldest-clients", jars, [pom.with_name("OldestConsumer.java")], pom)


def _compiled(name: str, jars: str, sources: Sequence[Path], pom: Path) -> str:
    digest = hashlib.sha256(pom.read_bytes())
    for path in sources:
        digest.update(path.read_bytes())

    def compile_into(folder: Path) -> None:
        options = ["-encoding", "UTF-8", "-Xlint:all,-processing", "-cp", jars]
        with tempfile.TemporaryDirectory() as classes:
            failure = _failure_of("javac", *options, "-d", classes, *sources)
            if failure:
                raise CompilationFailed(failure)
            # No archive of a JVM has classes of a directory.
            pack = ("jar", "--create", "--no-compress", "--file", folder / _PROGRAMS)
            subprocess.run([*pack, "-C", classes, "."], check=True)

    classes = made_once(_BUILD / name, f"{digest.hexdigest()} {_PROGRAMS}", compile_into)
    return f"{classes / _PROGRAMS}{os.pathsep}{jars}"


def _require_java() -> None:
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            raise ReferenceUnavailable(f"{program} is not on the PATH")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    if version is None or int(version[1]) < OLDEST_JAVA:
        first_line = said.stderr.partition("\n")[0]
        raise ReferenceUnavailable(f"Java {OLDEST_JAVA} or later is needed, found: {first_line}")


def fetch_into(folder: Path, pom: Path) -> None:
    """Copy the dependencies of a POM into a folder; failures are those of :func:`fetch_jars`."""
    if shutil.which("mvn") is None:
        raise ReferenceUnavailable("mvn is not on the PATH")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    failure = _failure_of("mvn", "-q", "-B", "-f", pom, *goal)
    if failure:
        raise ReferenceUnavailable(f"Maven failed: {failure}")


def _failure_of(*command: str | Path) -> str:
    """Run ``command``; return its output if it failed, else an empty text."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr + done.stdout).strip() or f"exit status {done.returncode}"


if __name__ == "__main__":
    print(jars_classpath())
