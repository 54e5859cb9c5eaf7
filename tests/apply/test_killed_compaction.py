"""A killed compaction is finished by the next run, or a broker can be started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.compactable_directories import NOW_MS, last_values, plain_directory
from builders.in_process import run_kdump
from builders.killed_process import KillableKdump
from builders.loading import Clock, LoaderServer
from builders.trees import contents_of
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names

SAMPLES = 9
# Two new segments of each partition, so that one is there when the other is written.
ARGS = (
    "--topic=*",
    "--config=cleanup.policy=compact",
    "--config=remote.storage.enable=false",
    "--config=internal.segment.bytes=900",
    f"--now={NOW_MS}",
)


@pytest.fixture
def original(quick_path: Path) -> Path:
    """Return a clean log directory of two partitions."""
    return plain_directory(quick_path / "original", ("a", "b"), segments=5)


@pytest.mark.slow
def test_the_next_run_has_the_same_result(original: Path, killable: KillableKdump) -> None:
    whole = original.with_name("whole")
    shutil.copytree(original, whole)
    assert run_kdump(["compact", str(whole), *ARGS], Path.cwd()).exit_status == 0
    assert contents_of(whole) != contents_of(original)

    for log_dir in killable.killed_at(original, "compact", ARGS, SAMPLES):
        assert run_kdump(["compact", str(log_dir), *ARGS], Path.cwd()).exit_status == 0
        # Killed after its last change, a run leaves its lock file; the next one has nothing to do.
        found = {
            name: each for name, each in contents_of(log_dir).items() if name != names.LOCK_FILE
        }
        assert found == contents_of(whole)
        assert not list(log_dir.glob(f"{names.KDUMP_PREFIX}*"))


@pytest.mark.differential
def test_a_broker_has_the_last_value_of_each_key(
    original: Path, killable: KillableKdump, loader_server: LoaderServer
) -> None:
    expected = {name: last_values(original / name) for name in ("a-0", "b-0")}
    for log_dir in killable.killed_at(original, "compact", ARGS, SAMPLES):
        assert loader_server.load(log_dir, IndexSettings(), Clock(), whole=True) == {}

        for name, values in expected.items():
            found = last_values(log_dir / name)
            # A record without a key goes, or is still there.
            assert {None: values[None], **found} == values, log_dir
