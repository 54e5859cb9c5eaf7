"""A cluster goes on after partitions were restored, moved and transplanted on its disks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_checks import KEPT, committed, ends, goes_on, require_login
from builders.cluster_disks import CLEAN, ClusterDisks
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_story import GROUPS
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.kraft_cluster import KraftCluster
from kdump.errors import ExitStatus

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

STRAY: Final = "lonely-0"
"""A partition that only broker 2 has."""
TARGET: Final = "empty-0"
"""A partition without records, on all brokers."""
SOURCE: Final = "orders-0"
"""A partition of another cluster."""


def undelete(folder: Path) -> None:
    """Restore a partition that its broker has called stray."""
    (partition,) = folder.glob(f"b2-*/{STRAY}")
    partition.rename(partition.with_name(f"{STRAY}.{0x1234:032x}-stray"))
    kdump("undelete", "--partition", f"{STRAY}.*", folder / "b2-d1", folder / "b2-d2")
    assert partition.is_dir()


def drain(folder: Path) -> None:
    """Move what is on one disk of broker 2 to the other one."""
    assert list((folder / "b2-d2").glob("orders-*"))
    kdump("move", "--drain", folder / "b2-d2", "--to", folder / "b2-d1")
    assert not list((folder / "b2-d2").glob("orders-*"))


def transplant(folder: Path, source: Path) -> dict[str, Any]:
    """Put a partition into all replicas of another one; return what kdump says of it."""
    topic, _, number = TARGET.rpartition("-")
    # A broker's second disk has no copy of the metadata, which would say the leader epoch.
    epoch = leader_epoch(folder / "b1-d1")
    options = ("--topic", topic, "--partition", number, "--leader-epoch", str(epoch))
    said = [
        next(each for each in objects(output) if each["type"] == "partition")
        for target in sorted(folder.glob(f"b*/{TARGET}"))
        for output in [
            kdump("transplant", source, "--into", target.parent, *options, "--output", "jsonl")
        ]
    ]
    assert len(said) == 3
    return said[0]


def leader_epoch(directory: Path) -> int:
    """Return the leader epoch of the target by the metadata of a directory."""
    topic, _, number = TARGET.rpartition("-")
    said = objects(kdump("metadata", "show", "--topic", topic, "--output", "jsonl", directory))
    (described,) = next(each for each in said if each["type"] == "metadata")["topics"]
    return int(described["partitions"][int(number)]["leader_epoch"])


def kdump(*words: str | Path) -> bytes:
    done = run_kdump([str(each) for each in words], Path.cwd())
    assert done.exit_status & ~ExitStatus.REPAIRED == 0, (words, done.stdout, done.stderr)
    return done.stdout


def offsets_in(states: Path) -> list[int]:
    """Return the offsets that a consumer of the other cluster read."""
    path = states / "clean" / "manifest.records" / f"{SOURCE}.jsonl"
    return [json.loads(line)["offset"] for line in path.read_text().splitlines()]


@ON_BOTH_KAFKAS
def test_restored_moved_and_transplanted_partitions_are_served(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path, fixtures: Path
) -> None:
    folder, states = cluster_disks.copy(CLEAN, case_folder / "case"), fixtures / "states"
    new = transplant(folder, states / "clean" / "b1-d1" / SOURCE)
    drain(folder)
    undelete(folder)

    cluster = KraftCluster(cluster_jvms, folder, cluster_disks.nodes)
    with cluster.running() as clients:
        clients.wait_for_replicas()
        after, said = clients.describe(GROUPS), cluster_disks.said
        expected = ends(said, {1, 2, 3})
        bounds = [new["log_start_offset"], new["log_end_offset"], new["log_end_offset"]]
        expected["empty"]["ends"][0] = bounds
        assert ends(after, {1, 2, 3}) == expected
        assert committed(after) == committed(said)
        assert {name: after[name] for name in (*KEPT, "configs")} == {
            name: said[name] for name in (*KEPT, "configs")
        }
        rows = clients.read(("empty", 0))[TARGET]
        assert [row[0] for row in rows] == offsets_in(states)
        require_login(clients, cluster.brokers[0])
        goes_on(clients, said)
    # What the transplant itself has put aside is kept for an undo.
    assert [each for each in folder.glob("b*/*-stray") if ".kdump-" not in each.name] == []
