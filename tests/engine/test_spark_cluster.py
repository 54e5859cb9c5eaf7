"""Spark's own cluster on one machine: executors and driver are different processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from builders import large_segments
from builders.large_segments import LargeSegment
from builders.programs import in_a_fresh_process
from builders.spark_commands import spark_process
from builders.trees import contents_of
from kdump.engine import splits

pytestmark = pytest.mark.soak

PROGRAM = """
import json, os, sys
from pathlib import Path
from builders.jobs import CountBatches, CountWhereMounted, KillWorker, TellKdump
from kdump.log.partition import read_partition
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import JobFailedError
from kdump.engine.splits import partition_splits
from kdump.storage.local_disk import local

folder, mounts, scar = sys.argv[1:]
parts = list(partition_splits(read_partition(local(folder), None), 64 << 10))
options = EngineOptions(
    EngineChoice.SPARK,
    master="local-cluster[2,1,1024]",
    # Both nodes are there before a job begins.
    spark_conf=(("spark.scheduler.minRegisteredResourcesRatio", "1.0"),),
)
found = {"parts": len(parts)}
with open_engine(options, total_bytes=0) as engine:
    told = [result for _, result in engine.run(TellKdump(), parts)]
    found["processes"] = len({process for process, _, _ in told} | {os.getpid()})
    found["kdump"] = sorted({path for _, path, _ in told})
    found["nodes"] = sorted({node for _, _, node in told})
    killing = KillWorker(parts[3].path, scar)
    counts = [count for _, count in engine.run(killing, parts)]
    found["batches"] = sum(count.batches for count in counts)
    found["size_bytes"] = sum(count.size_bytes for count in counts)
    os.chdir(folder)
    relative = [type(part)(local(part.path.name), part.start, part.end) for part in parts]
    found["relative"] = sum(count.batches for _, count in engine.run(CountBatches(), relative))
    try:
        list(engine.run(CountWhereMounted(mounts), relative))
    except JobFailedError as failure:
        found["failure"] = str(failure)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def segment() -> LargeSegment:
    return LargeSegment.of(600)


@pytest.fixture(scope="module")
def found(
    segment: LargeSegment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """Return the results of a program with its own cluster of two nodes."""
    folder = tmp_path_factory.mktemp("cluster")
    partition = large_segments.write(folder, segment, index=segment.index())
    # The nodes write their files to Spark's installation by default.
    home = folder / "spark"
    home.mkdir()
    assert pyspark.__file__ is not None
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    (folder / "mounts").mkdir()
    (folder / "mounts" / "0").symlink_to(partition.path.local_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        done = in_a_fresh_process(
            PROGRAM, str(partition.path), str(folder / "mounts"), str(folder / "scar")
        )
    assert done.stderr == ""
    assert (folder / "scar").exists()
    yield json.loads(done.stdout)
    shutil.rmtree(home / "work")


def test_workers_are_separate_processes_that_import_kdump_themselves(found: dict[str, Any]) -> None:
    assert found["nodes"] == ["0", "1"]
    assert found["processes"] >= 3
    assert found["kdump"] == [str(Path(splits.__file__).parents[1] / "__init__.py")]


def test_a_worker_that_dies_changes_no_result(found: dict[str, Any], segment: LargeSegment) -> None:
    assert found["parts"] > 8
    assert found["batches"] == segment.count
    assert found["size_bytes"] == len(segment.log)


def test_relative_paths_start_where_kdump_was_started(
    found: dict[str, Any], segment: LargeSegment
) -> None:
    assert found["relative"] == segment.count


def test_a_directory_missing_on_one_node_is_named(found: dict[str, Any]) -> None:
    assert found["failure"].startswith(f"{0:020d}.log")
    assert found["failure"].endswith(": No such file or directory")


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes write their files here, not to Spark's installation."""
    assert pyspark.__file__ is not None
    (tmp_path / "spark").mkdir()
    for name in ("bin", "jars"):
        (tmp_path / "spark" / name).symlink_to(Path(pyspark.__file__).parent / name)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))


@pytest.mark.usefixtures("spark_home")
def test_executors_that_see_another_directory_end_the_run(fixtures: Path, tmp_path: Path) -> None:
    """As on hosts that have a directory of their own under the same path, or none."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root can mount")
    crashed = fixtures / "out" / "crashed" / "d1"
    for name in ("disk", "mount", "other"):
        shutil.copytree(crashed, tmp_path / name)
    for log in (tmp_path / "other").glob("*/*.log"):
        os.truncate(log, min(80, log.stat().st_size))
    for name in ("empty", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "python").write_text(
        "#!/bin/sh\n"
        f"exec unshare -m sh -c 'mount --bind {tmp_path / 'other'} {tmp_path / 'disk'}"
        f" && mount --bind {tmp_path / 'empty'} {tmp_path / 'mount'}"
        f' && exec {sys.executable} "$@"\' sh "$@"\n'
    )
    (tmp_path / "python").chmod(0o755)
    before = {name: contents_of(tmp_path / name) for name in ("disk", "mount")}
    python = {"spark.pyspark.python": str(tmp_path / "python")}
    with spark_process(tmp_path / "temporary", "local-cluster[1,1,1024]", python) as spark:
        for name in before:
            for words in (["recover", name], ["query", "select count(*) from records", name]):
                outcome = spark.run(words, tmp_path)
                said = outcome.stderr.decode()
                assert (outcome.exit_status, outcome.stdout) == (8, b""), said
                assert "the driver" in said
                assert said.endswith("same directories and credentials, or omit --master\n")
    assert {name: contents_of(tmp_path / name) for name in before} == before
