"""The runbook for two lost controllers, from its first line to a consuming client."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.cluster_checks import committed, ends, fingerprint
from builders.cluster_disks import KILLED, ClusterDisks
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import CLUSTER_ID, controller
from builders.cluster_story import GROUPS
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster
from builders.ports import HOST
from builders.runbook import commands_of, words_of

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

RUNBOOK: Final = commands_of("two-controllers-gone")
LEFT: Final = 103
BEHIND: Final = 3
"""The broker that stopped first; it starts last, so that no unclean leader lacks records."""


def printed(line: str, names: dict[str, str]) -> str:
    """Run a command of the runbook; return what it prints."""
    outcome = run_kdump(words_of(line, names)[1:], Path.cwd())
    assert outcome.exit_status == 0, (line, outcome.stderr)
    return outcome.stdout.decode()


def test_from_the_first_line_to_a_consuming_client(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    show, form, info, preview, reset, describe, consume, discard = RUNBOOK
    folder = cluster_disks.copy(KILLED, case_folder / "case")
    shutil.rmtree(folder / "c101")
    shutil.rmtree(folder / "c102")
    (left,) = (node for node in cluster_disks.nodes if node.node_id == LEFT)
    new = [controller(401), controller(402)]
    cluster = KraftCluster(cluster_jvms, folder, [left, *new, *cluster_disks.brokers])
    brokers = fingerprint(cluster.log_dirs())
    names = {f"/mnt/b{each}": str(folder / f"b{each}-d1") for each in (1, 2, 3)}
    names["/mnt/c1"] = str(folder / left.disks[0])

    shown = printed(show, names)
    assert CLUSTER_ID in shown
    assert "1 of 3 voters shown, a majority is missing" in " ".join(shown.split())

    assert "--no-initial-controllers" in form
    ids = []
    for node in new:
        cluster.format(node.node_id, voters="--no-initial-controllers")
        home = str(folder / node.disks[0])
        (found,) = re.findall(r"Directory id: +(\S+)", printed(info, {"/mnt/c2": home}))
        ids.append(found)

    voters = dict(zip(("c1", "c2", "c3"), cluster.controllers, strict=True))
    for number, (host, node) in enumerate(voters.items(), 1):
        names[f"{number}@{host}:9093"] = node.endpoint
    names |= {":ID2": f":{ids[0]}", ":ID3": f":{ids[1]}"}
    for line in (preview, reset):
        assert "3 voters in the snapshot: 103, 401, 402" in printed(line, names)
    assert fingerprint(cluster.log_dirs()) == brokers

    started = [node.node_id for node in cluster.nodes.values() if node.node_id != BEHIND]
    with cluster.running(*started) as clients:
        clients.wait_for_leaders("orders", "unclean")
        cluster.start(BEHIND)
        address = {"c1:9093": f"{HOST}:{left.controller_port}"}
        name, *words = words_of(describe, address)
        said = " ".join(clients.run_tool(name, *words))
        assert all(f'"id": {node.node_id}' in said for node in cluster.controllers)
        assert "--topic orders --from-beginning" in consume
        assert clients.read(("orders", 0))["orders-0"]
        after = clients.describe(GROUPS)
        assert ends(after, {1, 2, 3}) == ends(cluster_disks.said, {1, 2, 3})
        assert committed(after) == committed(cluster_disks.said)
    printed(discard, names)
    assert not list((folder / left.disks[0]).glob(".kdump-*"))
