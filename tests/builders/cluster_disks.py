"""The disks of a real cluster, written once: stopped cleanly, and killed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from builders import cluster_story
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import Node, three_brokers, three_controllers
from builders.kraft_cluster import KraftCluster

CLEAN: Final = "clean"
KILLED: Final = "killed"
METADATA: Final = "__cluster_metadata-0"


@dataclass(frozen=True, slots=True)
class ClusterDisks:
    """Disks below ``folder``: one folder for each state, with the log directories of all nodes.

    Attributes:
        nodes: three controllers and three brokers.
        said: what ``Admin`` said just before they were killed.
        old_copy: the copy of the metadata log that broker 3 had when it stopped, before the last
            changes.
    """

    folder: Path
    nodes: Sequence[Node]
    said: dict[str, Any]
    old_copy: Path

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes if node.is_broker]

    def copy(self, state: str, target: Path) -> Path:
        """Copy the disks of all nodes."""
        copy_disks(self.folder / state, target)
        return target


def copy_disks(source: Path, target: Path) -> None:
    """Copy a tree as it is; holes in files stay holes."""
    subprocess.run(["cp", "-a", source, target], check=True)


def directory_id(log_dir: Path) -> str:
    """Return the directory id in ``meta.properties``."""
    (found,) = re.findall(r"(?m)^directory\.id=(.*)$", (log_dir / "meta.properties").read_text())
    return str(found)


def write_disks(jvms: ClusterJvms, folder: Path) -> ClusterDisks:
    """Let a cluster live, kill it with its clients, then start it again, and stop it.

    Broker 3 stops early, and is behind the others when they are killed.
    """
    cluster = KraftCluster(jvms, folder / "live", [*three_controllers(), *three_brokers()])
    cluster.format()
    cluster.start()
    cluster_story.tell(cluster.clients, seed=7, port=cluster.nodes[1].client_port)
    # Otherwise broker 3 may be the only one that has a new topic, and takes it with it.
    cluster.clients.wait_for_replicas()
    earlier = cluster.clients.describe()
    cluster.stop(3)
    old_copy = folder / "old copy"
    (broker_3,) = cluster.log_dirs(3)
    shutil.copytree(broker_3 / METADATA, old_copy)
    cluster_story.tell_the_latest(cluster.clients, seed=8)
    said = cluster.clients.describe(cluster_story.GROUPS)
    _complete(said, earlier)
    jvms.kill()
    copy_disks(cluster.folder, folder / KILLED)
    controllers = [node.node_id for node in cluster.controllers]
    cluster.start(*controllers, 1, 2)
    # Topics with unclean election lose records if the first broker is the one that is behind.
    cluster.clients.wait_for_leaders("orders", "unclean")
    with cluster.running(3) as clients:
        clients.wait_for_replicas()
    copy_disks(cluster.folder, folder / CLEAN)
    shutil.rmtree(cluster.folder)
    return ClusterDisks(folder, list(cluster.nodes.values()), said, old_copy)


def _complete(said: dict[str, Any], earlier: dict[str, Any]) -> None:
    """Add the offsets of partitions without a leader from an earlier answer."""
    for name, topic in said["topics"].items():
        for number, row in enumerate(topic["partitions"]):
            if "end" not in row:
                topic["partitions"][number] = earlier["topics"][name]["partitions"][number]
