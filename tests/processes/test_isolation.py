"""kdump runs no code from the current directory, and leaves no files in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from builders import batches, log_directories
from kdump.engine import spark_installation
from kdump.engine.spark_java import JavaProcess
from kdump.processes import isolation

THIRD_PARTY = (
    "click",
    "crc32c",
    "lz4",
    "numpy",
    "pandas",
    "py4j",
    "pyarrow",
    "pyspark",
    "zstandard",
)
STARTED_BY_PYTHON = {"sitecustomize", "usercustomize"}
TESTS = Path(__file__).parents[1]
VERIFY = "from kdump.cli.main import main; main()"

NEW_WORKERS = """
import threading, sys
from builders.jobs import TellExecutable
from kdump.processes import isolation
from kdump.engine.job import Split
from kdump.engine.local import LocalEngine
isolation.protect_process()
threading.Thread(target=threading.Event().wait, daemon=True).start()
with LocalEngine(processes=2) as engine:
    done = list(engine.run(TellExecutable(), [Split("a"), Split("b")]))
print(len(done))
"""

DATA_SOURCE = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYTHONSAFEPATH"] = "1"
from pyspark.sql import SparkSession
import kdump.pipeline
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
kdump.pipeline.register(spark)
print(spark.read.format("kafka-log").load(sys.argv[1]).count())
spark.stop()
"""


class HostileDirectory:
    """Write a directory of modules that create a file when they are imported."""

    def __init__(self, path: Path, scar: Path) -> None:
        self.path = path
        self.scar = scar
        path.mkdir()
        for name in (*sys.stdlib_module_names, *THIRD_PARTY, *STARTED_BY_PYTHON, "kdump"):
            module = (
                f"open({str(scar)!r}, 'a').write({name!r} + ' ')\nraise ImportError('hostile')\n"
            )
            (path / f"{name}.py").write_text(module)
        (path / "hostile.pth").write_text(f"import os; open({str(scar)!r}, 'a').write('pth ')\n")
        java = path / "java"
        java.write_text(f"#!/bin/sh\necho java >>'{scar}'\n")
        java.chmod(0o755)
        for name in ("spark-defaults.conf", "log4j2.properties", "hive-site.xml", "spark-env.sh"):
            (path / name).write_text("hostile\n")
        self.before = sorted(path.iterdir())

    def run(self, program: str, *args: str | Path, **variables: str) -> str:
        """Run a Python program in this directory; return its output."""
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *args],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS}", **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not self.scar.exists(), self.scar.read_text() + done.stderr
        assert sorted(self.path.iterdir()) == self.before
        return done.stdout + done.stderr


@pytest.fixture
def hostile(tmp_path: Path) -> HostileDirectory:
    return HostileDirectory(tmp_path / "hostile", tmp_path / "scar")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = log_directories.write_log_directory(tmp_path / "data")
    log_directories.write_partition(path / "orders-0", {0: b"".join(batches.batches(2))})
    return path


@pytest.mark.soak
def test_spark_runs_nothing_in_the_current_directory(
    hostile: HostileDirectory, log_dir: Path, cache: Path
) -> None:
    path = f".:{os.environ['PATH']}:"
    output = hostile.run(
        VERIFY, "verify", "--master", "local[2]", "../data", PATH=path, LD_LIBRARY_PATH=":."
    )
    assert "1 partition" in output


@pytest.mark.soak
@pytest.mark.usefixtures("quick_jvms")
def test_a_cluster_runs_nothing_in_the_current_directory_and_finds_relative_paths(
    hostile: HostileDirectory, log_dir: Path, tmp_path: Path
) -> None:
    home = tmp_path / "spark"
    home.mkdir()
    assert pyspark.__file__ is not None
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    master = "local-cluster[1,1,1024]"
    output = hostile.run(VERIFY, "verify", "--master", master, "../data", SPARK_HOME=str(home))
    assert "1 partition" in output
    shutil.rmtree(home / "work")


@pytest.mark.soak
@pytest.mark.usefixtures("quick_jvms")
def test_the_data_source_runs_nothing_in_the_current_directory(
    hostile: HostileDirectory, log_dir: Path
) -> None:
    assert "\n6\n" in "\n" + hostile.run(DATA_SOURCE, log_dir)


def test_new_workers_import_nothing_from_the_current_directory(hostile: HostileDirectory) -> None:
    assert hostile.run(NEW_WORKERS) == "2\n"


def test_python_m_kdump_imports_nothing_else_from_the_current_directory(
    tmp_path: Path, log_dir: Path
) -> None:
    (tmp_path / "lz4.py").write_text("raise ImportError('hostile')")
    (tmp_path / "numpy.py").write_text("raise ImportError('hostile')")
    done = subprocess.run(
        [sys.executable, "-m", "kdump", "verify", "data"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 partition" in done.stdout
    assert done.stderr == ""


def test_relative_entries_of_the_environment_are_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/absolute::relative:")
    monkeypatch.setenv("PATH", ":/bin:.")
    # Python makes relative entries absolute when it starts.
    here = [str(tmp_path), str(tmp_path / "relative")]
    monkeypatch.setattr(sys, "path", ["", *here, "/absolute", *sys.path])
    variables = isolation.child_environment()
    entries = variables["PYTHONPATH"].split(":")
    assert "/absolute" in entries
    assert not {"", *here} & set(entries)
    assert variables["PATH"] == "/bin"
    assert variables["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize("variables", [{"JAVA_HOME": "."}, {"PATH": ":."}], ids=["home", "path"])
def test_java_is_not_taken_from_the_current_directory(
    variables: dict[str, str], hostile: HostileDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hostile.path / "bin").mkdir()
    shutil.copy(hostile.path / "java", hostile.path / "bin" / "java")
    monkeypatch.chdir(hostile.path)
    with pytest.raises(Exception, match="Spark needs Java 17 or 21, and there is none"):
        spark_installation.find_java(variables)


def test_the_jvm_has_its_own_directory_which_is_deleted_with_it(tmp_path: Path) -> None:
    java = JavaProcess(["/bin/sleep", "60"], spark_home=tmp_path)
    try:
        folder = Path(f"/proc/{java._process.pid}/cwd").readlink()
        assert folder.parent == java._folder
        assert not list(folder.iterdir())
    finally:
        java.abort()
    assert not folder.parent.exists()
