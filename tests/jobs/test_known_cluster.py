"""Which nodes of a cluster have what some log directories have, and are not among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdump.jobs.known_cluster import OtherNodes, other_nodes
from kdump.log.directory import read_log_directory
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import local


def others(fixtures: Path, *names: str) -> OtherNodes:
    """Return the others of a cluster of brokers 1 to 3 and controllers 1001 to 1003."""
    paths = (local(fixtures / "states" / "clean" / name) for name in names)
    directories = [read_log_directory(path) for path in paths]
    return other_nodes(directories, read_settings(directories).values())


@pytest.mark.parametrize(
    ("names", "brokers", "voters"),
    [
        (("b2-d1", "b2-d2"), {1, 3}, ()),
        (("c1001",), set(), (1002, 1003)),
        (("c1001", "c1002", "b1-d1", "b2-d1"), {3}, (1003,)),
        (("b1-d1", "b2-d1", "b2-d2", "b3-d1", "c1001", "c1002", "c1003"), set(), ()),
    ],
    ids=["a broker", "a controller", "most", "all"],
)
def test_the_nodes_whose_disks_are_not_there(
    names: tuple[str, ...], brokers: set[int], voters: tuple[int, ...], fixtures: Path
) -> None:
    found = others(fixtures, *names)
    assert (set(found.brokers), found.voters) == (brokers, voters)
    assert found.partitions == 0 or found.partitions >= max(found.brokers.values())


def test_without_the_metadata_nobody_knows_the_brokers(fixtures: Path) -> None:
    found = others(fixtures, "b2-d2")
    assert not found.has_metadata
    assert not found.brokers


def test_static_voters_are_those_of_quorum_state(fixtures: Path, tmp_path: Path) -> None:
    path = tmp_path / "__cluster_metadata-0"
    path.mkdir()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (path / "quorum-state").write_text(
        '{"clusterId":"","leaderId":2,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert others(tmp_path.parent, str(tmp_path)).voters == (2,)
