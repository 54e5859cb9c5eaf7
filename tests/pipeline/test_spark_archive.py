from __future__ import annotations

import os
from pathlib import Path

import pytest

from builders.programs import in_a_fresh_process
from kdump.pipeline import spark_archive, spark_java
from kdump.pipeline.spark_java import Java, Spark

JAVA = Java(Path("/java/bin/java"), "17.0.1")
SPARK = Spark(Path("/spark"), "4.3.0")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an archive would be, in an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = spark_java.archive_path(JAVA, SPARK)
    assert path is not None
    assert path.parent == tmp_path / "kdump"
    path.parent.mkdir()
    return path


@pytest.mark.parametrize(
    ("java", "spark"),
    [
        (Java(JAVA.path, "17.0.2"), SPARK),
        (Java(Path("/other/bin/java"), JAVA.identity), SPARK),
        (JAVA, Spark(SPARK.home, "4.3.1")),
        (JAVA, Spark(Path("/other"), SPARK.version)),
    ],
)
def test_every_java_and_every_spark_has_an_archive_of_its_own(
    archive: Path, java: Java, spark: Spark
) -> None:
    assert spark_java.archive_path(java, spark) != archive


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_CACHE_HOME": "/cache", "HOME": "/ann"}, Path("/cache/kdump")),
        ({"XDG_CACHE_HOME": "cache", "HOME": "/ann"}, Path("/ann/.cache/kdump")),
        ({"HOME": "/ann"}, Path("/ann/.cache/kdump")),
        ({}, None),
    ],
)
def test_the_cache_is_the_users_own(environment: dict[str, str], folder: Path | None) -> None:
    assert spark_java.cache_folder(environment) == folder


def test_an_archive_is_wanted_once(archive: Path) -> None:
    assert spark_archive._is_wanted(archive)
    archive.touch()
    assert not spark_archive._is_wanted(archive)


def test_an_archive_is_not_made_twice_at_once(archive: Path) -> None:
    part = archive.with_suffix(".123.part")
    part.touch()
    assert not spark_archive._is_wanted(archive)
    os.utime(part, (0, 0))
    assert spark_archive._is_wanted(archive)


def test_without_java_there_is_no_archive_and_no_complaint(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(archive.parent))
    spark_archive.make_in_background()
    assert not list(archive.parent.iterdir())


MAPPED = """
from pathlib import Path
from builders.jobs import TellParents
from kdump.pipeline.engine import EngineChoice, EngineOptions, open_engine
from kdump.pipeline.job import Split
with open_engine(EngineOptions(EngineChoice.SPARK), total_bytes=0) as engine:
    [(_, parents)] = engine.run(TellParents(), [Split("any")])
    print(Path(f"/proc/{parents[1]}/maps").read_text())
"""


@pytest.mark.slow
def test_the_archive_is_made_and_then_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = in_a_fresh_process(
        "import runpy; runpy.run_module('kdump.pipeline.spark_archive', run_name='__main__')"
    )
    assert (made.stdout, made.stderr) == ("", "")
    [archive] = (tmp_path / "kdump").iterdir()
    assert archive.suffix == ".jsa"
    assert str(archive) in in_a_fresh_process(MAPPED).stdout
