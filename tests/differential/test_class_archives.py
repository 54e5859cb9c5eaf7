"""JVMs of the tests start with an archive of their classes, or without one that is of no use."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builders.cluster_jvms import ClusterJvm
from builders.java_server import archive_of, start_options


def test_classes_come_from_the_archive(java_classpath: str) -> None:
    options = [*start_options(java_classpath), "-Xlog:class+load:stdout"]
    command = ["java", *options, "-cp", java_classpath, "ClusterHost"]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    for name in ("ClusterHost", "com.fasterxml.jackson.databind.ObjectMapper"):
        assert f" {name} source: shared objects file (top)\n" in done.stdout


@pytest.mark.parametrize("kind", ["none", "empty", "of another jar"])
def test_a_jvm_answers_without_an_archive_of_use(
    kind: str, java_classpath: str, tmp_path: Path
) -> None:
    jar, _, jars = java_classpath.partition(os.pathsep)
    (tmp_path / "programs").mkdir()
    classpath = f"{shutil.copy(jar, tmp_path / 'programs')}{os.pathsep}{jars}"
    archive = archive_of(classpath)
    archive.parent.mkdir()
    if kind == "of another jar":
        archive.symlink_to(archive_of(java_classpath))
    elif kind == "empty":
        archive.touch()
    with ClusterJvm(classpath, tmp_path / "log", "64m", 1) as jvm:
        assert jvm.ask("stop", nodes=[]) == {}
