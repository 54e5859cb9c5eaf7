"""A cluster that was killed starts on directories that ``kdump recover`` has recovered."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.cluster_checks import answers_as_before
from builders.cluster_disks import KILLED, METADATA, ClusterDisks
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster
from kdump.errors import ExitStatus

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

EARLY = 3
"""The broker that stopped before the others, and is behind them."""


@ON_BOTH_KAFKAS
def test_a_killed_cluster_goes_on_after_it_was_recovered(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    folder = cluster_disks.copy(KILLED, case_folder / "case")
    cluster = KraftCluster(cluster_jvms, folder, cluster_disks.nodes)
    for node in cluster.nodes.values():
        disks = [str(folder / name) for name in node.disks]
        for selected in ([], [f"--partition={METADATA}"]):
            if node.is_broker or selected:
                done = run_kdump(["recover", *disks, *selected], folder)
                assert done.exit_status & ~ExitStatus.REPAIRED == 0, (done.stdout, done.stderr)
        found = run_kdump(["verify", "--strict", *disks], folder)
        assert found.exit_status == ExitStatus.SOUND, found.stdout
    with cluster.running(*(each for each in cluster.nodes if each != EARLY)) as clients:
        clients.wait_for_leaders("orders", "unclean")
        cluster.start(EARLY)
        answers_as_before(clients, cluster_disks.said, cluster.brokers)
