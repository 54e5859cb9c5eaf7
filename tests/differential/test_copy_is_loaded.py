"""Kafka's own LogManager loads a copy, and does not load a part of one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.loading import Clock, LoaderServer
from builders.log_dir_trees import seen_by_broker
from kdump.apply.unfinished_copy import FOLDER
from kdump.broker.loader.load_context import IndexSettings

pytestmark = pytest.mark.differential

DEFAULTS = IndexSettings(4096)


def copied(folder: Path, *args: str | Path) -> Path:
    outcome = run_kdump(["copy", *map(str, args), "new"], folder)
    assert outcome.exit_status == 0, outcome.stderr
    # The Raft layer loads the cluster's metadata, not the LogManager.
    shutil.rmtree(folder / "new/__cluster_metadata-0", ignore_errors=True)
    return folder / "new"


def segments_of(path: Path, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    return {
        name: content for name, content in seen_by_broker(path).items() if name.endswith(suffixes)
    }


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("broker", ["b1", "b2"])
def test_kafka_loads_local_segments_of_remote_ones_as_they_are(
    loader_server: LoaderServer, fixtures: Path, tmp_path: Path, broker: str, is_clean: bool
) -> None:
    tiered = fixtures / "tiered"
    new = copied(tmp_path, "--remote", tiered / "remote", tiered / broker)
    if not is_clean:
        (new / ".kafka_cleanshutdown").unlink()
    # A recovery writes indexes with the interval of this loader, not of each topic.
    suffixes = (".log", "index") if is_clean else (".log",)
    before = segments_of(new, suffixes)
    assert loader_server.load(new, DEFAULTS, Clock(), whole=True) == {}
    assert segments_of(new, suffixes) == before


def test_kafka_leaves_the_copy_as_it_leaves_the_source(
    loader_server: LoaderServer, fixtures: Path, tmp_path: Path
) -> None:
    source = shutil.copytree(fixtures / "out" / "clean" / "d1", tmp_path / "source")
    new = copied(tmp_path, source)
    shutil.rmtree(source / "__cluster_metadata-0")
    for path in (source, new):
        loader_server.load(path, DEFAULTS, Clock(), whole=True)
    assert seen_by_broker(new) == seen_by_broker(source)


def test_kafka_refuses_a_copy_that_is_not_complete(
    loader_server: LoaderServer, fixtures: Path, tmp_path: Path
) -> None:
    new = copied(tmp_path, "--topic", "UPPER*", fixtures / "out" / "clean" / "d1")
    (new / FOLDER).mkdir()
    said = loader_server.load(new, DEFAULTS, Clock(), whole=True)
    assert "not in the form of topic-partition" in str(said)
