"""A cluster without its controllers' disks is rebuilt from its brokers' disks, and goes on."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_checks import KEPT, committed, ends, fingerprint, goes_on, require_login
from builders.cluster_disks import CLEAN, KILLED, METADATA, ClusterDisks
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import controller
from builders.cluster_story import GROUPS
from builders.damaged_replicas import (
    cut_half,
    empty_logs,
    lose_logs,
    move_start_after_the_end,
)
from builders.kraft_cluster import KraftCluster
from builders.rebuilding import Rebuilding, kdump

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

INTERNAL: Final = {"__consumer_offsets", "__share_group_state", "__transaction_state"}


def nothing_else(case: Path, disks: ClusterDisks) -> None:
    """Lose only the controllers."""


def old_copy_only(case: Path, disks: ClusterDisks) -> None:
    """Leave one copy of the metadata, an old one."""
    no_copy(case, disks)
    shutil.copytree(disks.old_copy, case / "b3-d1" / METADATA)


def no_copy(case: Path, disks: ClusterDisks) -> None:
    """Leave no copy of the metadata on any broker."""
    for name in ("b1-d1", "b2-d1", "b3-d1"):
        shutil.rmtree(case / name / METADATA)


def broker_3(case: Path, disks: ClusterDisks) -> None:
    """Lose a broker too."""
    shutil.rmtree(case / "b3-d1")


def damaged_replicas(case: Path, disks: ClusterDisks) -> None:
    """Damage one replica of some partitions, each in a way that once made it the leader."""
    damages = (lose_logs, move_start_after_the_end, empty_logs, cut_half)
    damaged = 0
    for number, damage in enumerate(damages):
        path = case / "b1-d1" / f"orders-{number}"
        if path.exists() and (case / "b2-d1" / path.name).exists():
            damage(path, random.Random(number))
            damaged += 1
    assert damaged > 1


@dataclass(frozen=True, slots=True)
class Case:
    """What happened to a cluster, and what is lost for good.

    Attributes:
        state: of the disks before.
        lose: removes what else was lost.
        controllers: how many new ones there are.
        options: of ``kdump metadata plan``.
        has_copy: whether a broker has a copy of the metadata.
        guessed: the resources with other configurations than before.
    """

    state: str
    lose: Callable[[Path, ClusterDisks], None] = nothing_else
    controllers: int = 1
    options: tuple[str, ...] = ()
    has_copy: bool = True
    guessed: tuple[str, ...] = ()


CASES: Final = {
    "one new controller": Case(CLEAN),
    "three new controllers": Case(CLEAN, controllers=3),
    "killed": Case(KILLED, controllers=3),
    "an old copy only": Case(CLEAN, old_copy_only, guessed=("TOPIC orders", "TOPIC younger")),
    "no copy": Case(CLEAN, no_copy, has_copy=False),
    "a broker lost too": Case(KILLED, broker_3),
    "replicas damaged too": Case(KILLED, damaged_replicas, controllers=3),
}


def left_of(disks: ClusterDisks, case: Case, jvms: ClusterJvms, folder: Path) -> KraftCluster:
    """Copy what is left of the disks, for a cluster with new controllers."""
    disks.copy(case.state, folder)
    for node in disks.nodes:
        if node.is_controller:
            shutil.rmtree(folder / node.disks[0])
    case.lose(folder, disks)
    brokers = [node for node in disks.brokers if (folder / node.disks[0]).exists()]
    new = [controller(201 + number) for number in range(case.controllers)]
    return KraftCluster(jvms, folder, [*new, *brokers])


def configs(said: dict[str, Any], case: Case) -> dict[str, Any]:
    return {name: said["configs"][name] for name in said["configs"] if name not in case.guessed}


@ON_BOTH_KAFKAS
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_rebuilt_cluster_goes_on_as_the_one_before(
    case: Case, cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    cluster = left_of(cluster_disks, case, cluster_jvms, case_folder / "case")
    rebuilt = Rebuilding(cluster, case.options)
    rebuilt.rebuild()
    before = cluster_disks.said
    left = {node.node_id for node in cluster.brokers}

    with rebuilt.running() as clients:
        after = clients.describe(GROUPS)
        assert ends(after, left) == ends(before, left)
        assert committed(after) == committed(before)
        assert set(after["quorum"]["voters"]) == {str(n.node_id) for n in cluster.controllers}
        assert [path for each in cluster.log_dirs() for path in each.glob("*-stray")] == []
        if case.has_copy:
            assert configs(after, case) == configs(before, case)
            assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}
            require_login(clients, cluster.brokers[0])
        else:
            assert [name for name in ("acls", "scram", "quotas") if after[name]] == []
            assert {"ACLs", "SCRAM credentials", "client quotas"} <= rebuilt.losses()
            for topic in set(before["topics"]) - INTERNAL:
                assert after["configs"][f"TOPIC {topic}"]["retention.ms"] == "-1"
            clients.share("shared", ["pairs"], 1)
        goes_on(clients, before)


def test_one_command_rebuilds_a_cluster_that_is_on_one_machine(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    case = CASES["one new controller"]
    cluster = left_of(cluster_disks, case, cluster_jvms, case_folder / "case")
    (new,) = cluster.controllers
    into = cluster.folder / new.disks[0]
    into.mkdir()
    disks = fingerprint(cluster.log_dirs())

    words = ("--into", into, "--controller", new.voter)
    kdump("metadata", "rebuild", *cluster.log_dirs(), *words)

    assert fingerprint(cluster.log_dirs()) == disks
    before = cluster_disks.said
    with cluster.running() as clients:
        after = clients.describe(GROUPS)
        assert ends(after, {1, 2, 3}) == ends(before, {1, 2, 3})
        assert committed(after) == committed(before)
        assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}
