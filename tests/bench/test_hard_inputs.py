"""Small versions of the bench's hard inputs: valid for kdump, and what Kafka itself would leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from builders.in_process import run_kdump
from builders.loading import Clock, LoaderServer
from builders.trees import contents_of
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names

_MAKE: Final = """
import sys
from pathlib import Path
import hard_inputs, damaged_inputs
folder = Path(sys.argv[1])
hard_inputs.make_partitions_of_three(12, folder)
hard_inputs.make_segments(5, folder)
hard_inputs.make_one_record_batches(300, folder)
hard_inputs.make_producers(40, folder)
hard_inputs.make_aborted_txns(40, folder)
hard_inputs.make_index_interval_0(folder, batches=50)
hard_inputs.make_small_batches(folder, batches=300)
damaged_inputs.make_damaged("sound", 2, 0, folder, segment_bytes=1 << 20)
damaged_inputs.make_damaged("damaged", 2, 3, folder, segment_bytes=1 << 20)
for path in list(folder.iterdir()):
    hard_inputs.make_unclean(path.name, folder)
"""

_SOUND: Final = (
    "partitions-12",
    "many-segments-5",
    "one-record-batches-300",
    "live-producers-40",
    "aborted-txns-40",
    "index-interval-0",
    "100-byte-batches",
    "sound",
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, repository_root: Path) -> Path:
    """A folder with small versions of all hard inputs, clean and unclean."""
    folder = tmp_path_factory.mktemp("inputs")
    path = os.pathsep.join((str(repository_root / "bench"), str(repository_root)))
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", _MAKE, str(folder)], check=True, env=environment)
    return folder


def _interval_of(name: str) -> int:
    return 0 if name.startswith("index-interval-0") else 4096


def _findings(inputs: Path, name: str) -> list[dict[str, object]]:
    interval = f"index.interval.bytes={_interval_of(name)}"
    words = ("verify", "--engine", "local", "--output", "jsonl", "--config", interval, name)
    lines = run_kdump(words, inputs).stdout.splitlines()
    objects = [json.loads(line) for line in lines]
    return [found for found in objects if found["type"] == "finding"]


@pytest.mark.parametrize("name", _SOUND)
@pytest.mark.parametrize("suffix", ["", "-unclean"])
def test_nothing_is_wrong_with_an_input(inputs: Path, name: str, suffix: str) -> None:
    assert {found["severity"] for found in _findings(inputs, name + suffix)} <= {"info"}


def test_each_damaged_place_is_found(inputs: Path) -> None:
    found = _findings(inputs, "damaged")
    assert sum(each["code"] == "batch-checksum" for each in found) == 3


@pytest.mark.parametrize("name", _SOUND)
def test_kafka_makes_the_clean_input_of_the_unclean_one(
    inputs: Path, name: str, loader_server: LoaderServer
) -> None:
    settings = IndexSettings(interval_bytes=_interval_of(name))
    loader_server.load(inputs / f"{name}-unclean", settings, Clock(), whole=True)
    assert _compared(inputs / f"{name}-unclean") == _compared(inputs / name)


def _compared(directory: Path) -> dict[str, list[bytes]]:
    """Return the lines of all files; those of checkpoints may have any order."""
    contents = contents_of(directory)
    del contents[names.CLEAN_SHUTDOWN_MARKER]  # holds the epoch of a broker
    return {
        name: sorted(content.splitlines()) if name.endswith("-checkpoint") else [content]
        for name, content in contents.items()
    }
