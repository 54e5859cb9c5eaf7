"""A cluster on what is left of its disks, with new controllers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders.cluster_checks import fingerprint
from builders.cluster_clients import ClusterClients
from builders.cluster_disks import directory_id
from builders.cluster_nodes import Node
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster


def kdump(*words: str | Path, may_be_damaged: bool = False) -> str:
    """Run kdump, which must succeed, or report damage; return what it prints."""
    outcome = run_kdump([str(each) for each in words], Path.cwd())
    assert outcome.exit_status in ((0, 4) if may_be_damaged else (0,)), (
        words,
        outcome.stderr.decode(),
        outcome.stdout.decode(),
    )
    return outcome.stdout.decode()


@dataclass(slots=True)
class Rebuilding:
    """Brings a cluster back with ``kdump metadata collect``, ``plan`` and ``apply``.

    Attributes:
        cluster: the new controllers, and the brokers that are left.
        options: of ``kdump metadata plan``.
        plan: the document, once there is one.
    """

    cluster: KraftCluster
    options: Sequence[str] = ()
    plan: dict[str, Any] = field(default_factory=dict)

    def rebuild(self) -> None:
        """Collect, plan and apply; the brokers' disks stay as they are."""
        before = fingerprint(self.cluster.log_dirs())
        file = self.make_plan()
        for node in self.cluster.controllers:
            self.apply(file, node)
        assert fingerprint(self.cluster.log_dirs()) == before

    def make_plan(self) -> Path:
        """Collect on each broker, and plan; return the file."""
        folder = self.cluster.folder
        collections = []
        for node in self.cluster.brokers:
            collections.append(folder / f"collected-{node.node_id}.json")
            log_dirs = self.cluster.log_dirs(node.node_id)
            words = ["metadata", "collect", *map(str, log_dirs), "--out", str(collections[-1])]
            kdump(*words, may_be_damaged=True)
        controllers = [
            word
            for node in self.cluster.controllers
            for word in ("--controller", self._voter(node))
        ]
        file = folder / "plan.json"
        options = [*map(str, collections), *controllers, *self.options]
        kdump("metadata", "plan", *options, "--out", file)
        self.plan = json.loads(file.read_text())
        return file

    def _voter(self, node: Node) -> str:
        """Name a controller for the plan; all but the first have formatted directories."""
        log_dir = self.cluster.folder / node.disks[0]
        if not self.cluster.is_dynamic:
            log_dir.mkdir()
            return node.endpoint
        if node is self.cluster.controllers[0]:
            log_dir.mkdir()
            return node.voter
        self.cluster.format(node.node_id, voters="--no-initial-controllers")
        return f"{node.endpoint}:{directory_id(log_dir)}"

    def apply(self, file: Path, node: Node) -> None:
        """Apply the plan to the first directory of a node."""
        log_dir = self.cluster.folder / node.disks[0]
        kdump("metadata", "apply", file, log_dir, "--node-id", str(node.node_id))

    def move_copies_aside(self) -> None:
        """Do on brokers what the plan says must be done before they start."""
        for each in self.plan["move_aside"]:
            kdump("metadata", "apply", self.cluster.folder / "plan.json", each["log_dir"])

    @contextlib.contextmanager
    def running(self) -> Iterator[ClusterClients]:
        """Start the cluster, the brokers that have to lead first before the others."""
        brokers = {node.node_id for node in self.cluster.brokers}
        first = brokers & {each["node_id"] for each in self.plan["first_leaders"]}
        controllers = [node.node_id for node in self.cluster.controllers]
        with self.cluster.running(*controllers, *(first or brokers)) as clients:
            if first and brokers - first:
                for each in self.plan["first_leaders"]:
                    clients.wait_for_leader((each["topic"], each["partition"]), each["node_id"])
                self.cluster.start(*(brokers - first))
            yield clients

    def losses(self) -> set[str]:
        """Return what the plan says is lost."""
        return {each["what"] for each in self.plan["notices"] if each["kind"] == "loss"}
