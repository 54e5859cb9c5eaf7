"""The command leaves directories of a killed real broker as its next start left them.

What differs is listed with its reason: the restarted broker elected leaders, and so wrote an epoch
of its own for every partition; and its Raft layer loaded the cluster's metadata.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.trees import contents_of, of_present_partitions, tree_of
from kdump.apply.undo import undo
from kdump.formats import names
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.storage.local_disk import local

pytestmark = pytest.mark.slow

RESTARTED_MS = 1_795_240_020_000
"""About when the broker restarted: a day after some producers' last batch."""
AS_THEN = (
    *("--now", str(RESTARTED_MS)),
    *("--config", "producer.id.expiration.ms=86400000"),
)

LEFTOVERS = ("1-cleaned-partial", "2-cleaned-complete", "3-swap-log-only", "4-swap-complete")
RUNS = [
    ("crashed", "recovered", ("d1", "d2")),
    *((f"leftover-{kind}", f"leftover-{kind}-recovered", ("logs",)) for kind in LEFTOVERS),
]
FLICKERING = {
    f"{log_dir}/delete-records-all-0/00000000000000000050.snapshot" for log_dir in ("d1", "d2")
}
"""Of a log that begins where it ends, Kafka drops the snapshot there at one clean start, and makes
it at the next; so does kdump."""


def compared(directory: Path) -> dict[str, bytes]:
    """Return the files that have to be the same, by path."""
    return {
        path: content
        for path, content in contents_of(directory).items()
        if "/" in path
        and names.CLUSTER_METADATA_TOPIC not in path
        and not path.endswith((".deleted", names.LEADER_EPOCH_CHECKPOINT))
    }


@pytest.mark.parametrize(("before", "after", "log_dirs"), RUNS)
def test_recovered_directories_equal_those_of_the_brokers_next_start(
    fixtures: Path, tmp_path: Path, before: str, after: str, log_dirs: tuple[str, ...]
) -> None:
    shutil.copytree(fixtures / "out" / before, tmp_path, dirs_exist_ok=True)
    killed = tree_of(tmp_path)

    # One directory has the cluster's metadata with each topic's index.interval.bytes.
    outcome = run_kdump(["recover", *log_dirs, *AS_THEN], tmp_path)

    assert (outcome.exit_status, outcome.stderr) == (1, b"")
    for log_dir in log_dirs:
        expected = compared(fixtures / "out" / after / log_dir)
        found = compared(tmp_path / log_dir)
        assert found.keys() == expected.keys()
        assert [name for name in expected if found[name] != expected[name]] == []
        real, made = (
            read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY)
            for path in (fixtures / "out" / after / log_dir, tmp_path / log_dir)
        )
        for name in ("recovery_points", "log_start_offsets"):
            theirs = of_present_partitions(getattr(real.checkpoints, name), tmp_path / log_dir)
            assert getattr(made.checkpoints, name) == theirs
        assert made.is_clean
        undo(tmp_path / log_dir)
    assert tree_of(tmp_path) == killed


@pytest.mark.parametrize(("before", "log_dirs"), [("clean", ("d1", "d2")), ("recovered", ("d1",))])
def test_clean_directories_of_a_real_broker_lose_nothing_and_need_one_run(
    fixtures: Path, before: str, log_dirs: tuple[str, ...], tmp_path: Path
) -> None:
    shutil.copytree(fixtures / "out" / before, tmp_path, dirs_exist_ok=True)

    args = ["recover", "--no-undo", "--output", "json", *log_dirs]
    said = objects(run_kdump(args, tmp_path).stdout)
    once = compared(tmp_path)
    again = run_kdump(args, tmp_path)
    twice = compared(tmp_path)

    verdicts = {row["verdict_kind"] for row in said if row["type"] == "partition"}
    # A partition that is being deleted counts as rebuilt; the cluster's metadata is never clean.
    assert verdicts <= {"valid", "rebuilt", "unclean", "deleted"}
    assert again.exit_status == 0
    assert {path for path in once if twice.get(path) != once[path]} <= FLICKERING
