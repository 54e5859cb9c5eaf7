"""Spark's own cluster on one machine: executors are processes apart from the driver."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from builders import large_segments
from builders.large_segments import LargeSegment
from builders.programs import in_a_fresh_process
from kdump.engine import splits

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, sys
from pathlib import Path
from builders.jobs import CountBatches, CountWhereMounted, KillWorker, TellKdump
from kdump.log.partition import read_partition
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import JobFailedError
from kdump.engine.splits import partition_splits

folder, mounts, scar = sys.argv[1:]
parts = list(partition_splits(read_partition(Path(folder), None), 64 << 10))
options = EngineOptions(
    EngineChoice.SPARK,
    master="local-cluster[2,1,1024]",
    # Both nodes are there before a job begins.
    spark_conf=(("spark.scheduler.minRegisteredResourcesRatio", "1.0"),),
)
said = {"parts": len(parts)}
with open_engine(options, total_bytes=0) as engine:
    told = [result for _, result in engine.run(TellKdump(), parts)]
    said["processes"] = len({process for process, _, _ in told} | {os.getpid()})
    said["kdump"] = sorted({path for _, path, _ in told})
    said["nodes"] = sorted({node for _, _, node in told})
    killing = KillWorker(parts[3].path, scar)
    counts = [count for _, count in engine.run(killing, parts)]
    said["batches"] = sum(count.batches for count in counts)
    said["size_bytes"] = sum(count.size_bytes for count in counts)
    os.chdir(folder)
    relative = [type(part)(Path(part.path).name, part.start, part.end) for part in parts]
    said["relative"] = sum(count.batches for _, count in engine.run(CountBatches(), relative))
    try:
        list(engine.run(CountWhereMounted(mounts), relative))
    except JobFailedError as failure:
        said["failure"] = str(failure)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def segment() -> LargeSegment:
    return LargeSegment.of(600)


@pytest.fixture(scope="module")
def said(
    segment: LargeSegment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """What a program with a cluster of two nodes of its own found."""
    folder = tmp_path_factory.mktemp("cluster")
    partition = large_segments.write(folder, segment, index=segment.index())
    # The nodes keep their files where Spark is, and that is not ours to fill.
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


def test_workers_are_other_processes_and_import_kdump_afresh(said: dict[str, Any]) -> None:
    assert said["nodes"] == ["0", "1"]
    assert said["processes"] >= 3
    assert said["kdump"] == [str(Path(splits.__file__).parents[1] / "__init__.py")]


def test_a_worker_that_dies_in_the_middle_costs_nothing(
    said: dict[str, Any], segment: LargeSegment
) -> None:
    assert said["parts"] > 8
    assert said["batches"] == segment.count
    assert said["size_bytes"] == len(segment.log)


def test_relative_paths_begin_where_kdump_was_started(
    said: dict[str, Any], segment: LargeSegment
) -> None:
    assert said["relative"] == segment.count


def test_a_directory_that_one_node_lacks_is_named(said: dict[str, Any]) -> None:
    assert said["failure"].startswith(f"{0:020d}.log")
    assert said["failure"].endswith(": No such file or directory")
