"""With kraft.version 0, a controller starts on its reset metadata with the configured voters."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import three_brokers, three_controllers
from builders.freeing import run
from builders.kraft_cluster import KraftCluster

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]


@pytest.mark.parametrize("voters", [1, 3])
def test_the_cluster_goes_on(voters: int, cluster_jvms: ClusterJvms, case_folder: Path) -> None:
    controllers, brokers = three_controllers(401), three_brokers()[:1]
    folder = case_folder / "case"
    folder.mkdir(parents=True)
    cluster = KraftCluster(cluster_jvms, folder, [*controllers, *brokers], is_dynamic=False)
    cluster.format()
    with cluster.running() as clients:
        clients.create_topic("orders", 3, replicas=1)
        clients.open_producer("static")
        clients.send("static", ("orders", 0), [("k", "v")] * 5)
        before = clients.describe()["topics"]
    # Brokers stop first: every controller has all records.
    left, *lost = controllers
    for node in lost:
        shutil.rmtree(folder / node.disks[0])

    kept = [left, *lost][:voters]
    after = KraftCluster(cluster_jvms, folder, [*kept, *brokers], is_dynamic=False)
    for node in kept[1:]:
        after.format(node.node_id)
    addresses = [node.endpoint for node in kept]
    options = [f"--voter={each}" for each in addresses]
    done = run("quorum", "reset", *options, "--show-also", folder / "b1-d1", folder / left.disks[0])
    assert done.exit_status == 0, done.stderr
    said = "".join(done.stdout.decode().split())
    assert f"controller.quorum.voters={','.join(addresses)}" in said
    # Two empty voters are a majority: they must not run before the one with the metadata leads.
    first = [node.node_id for node in (*kept[:2], *brokers)]
    with after.running(*first) as clients:
        for node in kept[2:]:
            after.start(node.node_id)
        clients.wait_for_leaders()
        now = clients.describe()
        assert now["quorum"]["voters"].keys() == {str(node.node_id) for node in kept}
        assert now["topics"] == before
