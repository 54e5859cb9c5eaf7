"""Check that a log directory is that of the node that its ``meta.properties`` names.

The file may have been copied from another directory, or the disk mounted in place of another. A
broker does not notice: it compares the file with its properties file only. The cluster's metadata
says which partitions are in which directory of each node. Partitions may have been reassigned while
the node was down. So a directory is that of another node only if it has partitions that its own
node should not have, lacks some that it should have, and fits the other one far better.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from kdump.check import invariants
from kdump.check.findings import Finding, Place
from kdump.formats import names
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.directory import LogDirectory
from kdump.state.metadata.cluster import ClusterImage, ClusterPartition
from kdump.storage.location import Location
from kdump.words import counted

_FEWEST: Final = 3
"""Fewer partitions show nothing."""
_BETTER: Final = 4
"""How many times fewer partitions are misplaced if the directory is that of the other node."""

_Home = tuple[int, str | None]
"""A node and the id of its directory, None if the cluster does not know it."""


class OtherNode(Struct, frozen=True):
    """What a directory looks like, by the partitions in it.

    Attributes:
        node_id: to which the cluster assigns most of its partitions.
        directory_id: of that node's directory, in Kafka's form; None if it is unknown.
    """

    directory: LogDirectory
    node_id: int
    directory_id: str | None
    finding: Finding


def check_assigned_nodes(
    directories: Iterable[LogDirectory], clusters: Mapping[Location, ClusterImage | None]
) -> Iterator[Finding]:
    """Check that the directories are those of the nodes that they name.

    Args:
        clusters: the cluster's metadata by log directory; None if unknown.
    """
    given = list(directories)
    for each in given:
        cluster = clusters.get(each.path)
        if cluster is not None:
            other = looks_like(each, cluster, given)
            if other is not None:
                yield other.finding


def looks_like(
    directory: LogDirectory, cluster: ClusterImage, directories: Iterable[LogDirectory]
) -> OtherNode | None:
    """Find the node, or the directory, whose partitions are in a directory.

    Args:
        directories: those of the node that are there: partitions may have been moved from them.

    Returns:
        None if it is that of ``meta.properties``, or if too little is known.
    """
    node_id = directory.node_id
    here = dict(_assigned(directory, cluster))
    if node_id is None or len(here) < _FEWEST:
        return None
    return _other_node(directory, node_id, here, cluster) or _other_directory(
        directory, node_id, here.values(), cluster, directories
    )


def _other_node(
    directory: LogDirectory,
    node_id: int,
    here: Mapping[TopicPartition, ClusterPartition],
    cluster: ClusterImage,
) -> OtherNode | None:
    """Find another node whose partitions are in a directory."""
    extra = sum(node_id not in each.replicas for each in here.values())
    if extra < _FEWEST:
        return None
    homes = _homes(cluster)
    own = homes.get((node_id, directory.directory_id))
    if own is None:
        own = set().union(*(keys for (node, _), keys in homes.items() if node == node_id))
    others = {home: keys for home, keys in homes.items() if home[0] != node_id}
    if len(own - here.keys()) < _FEWEST or not others:
        return None
    home = min(others, key=lambda each: (len(others[each] ^ here.keys()), each[0]))
    if _BETTER * len(others[home] ^ here.keys()) >= len(own ^ here.keys()):
        return None
    fitting = len(others[home] & here.keys())
    return OtherNode(
        directory,
        *home,
        invariants.DIRECTORY_OF_OTHER_NODE.finding(
            Place(str(directory.path / names.META_PROPERTIES)),
            "the directory, or its meta.properties, is that of another node: the cluster's"
            f" metadata assigns {fitting} of {counted(len(here), 'partition')} here to node"
            f" {home[0]}, and a broker of node {node_id} renames {extra} to -stray",
            expected=_ids_text(*home),
            found=_ids_text(node_id, directory.directory_id),
        ),
    )


def _other_directory(
    directory: LogDirectory,
    node_id: int,
    here: Collection[ClusterPartition],
    cluster: ClusterImage,
    directories: Iterable[LogDirectory],
) -> OtherNode | None:
    """Find another directory of the node whose partitions are in this one."""
    own_id = directory.directory_id
    registered = cluster.log_dirs.get(node_id, ())
    if own_id is None or not registered or own_id in registered:
        return None
    present = {text for each in directories if (text := each.directory_id) is not None}
    assigned = _directories_on(node_id, here, present).most_common(1)
    if not assigned or 2 * assigned[0][1] <= len(here):
        return None
    directory_id = assigned[0][0]
    return OtherNode(
        directory,
        node_id,
        directory_id,
        invariants.DIRECTORY_ID_UNKNOWN.finding(
            Place(str(directory.path / names.META_PROPERTIES)),
            f"node {node_id} did not register this directory id, and the cluster's metadata has"
            " most partitions here in another: those without another replica get no leader until"
            " the broker starts again",
            expected=_ids_text(node_id, directory_id),
            found=_ids_text(node_id, own_id),
        ),
    )


def assigned_directory_id(
    directory: LogDirectory, node_id: int, cluster: ClusterImage, taken: Collection[str] = ()
) -> str | None:
    """The directory to which the cluster assigns most partitions that are in this one.

    Args:
        cluster: the cluster's metadata.
        taken: ids that do not count.

    Returns:
        Its id in Kafka's form; None if the cluster assigns none of them.
    """
    here = (each for _, each in _assigned(directory, cluster))
    assigned = _directories_on(node_id, here, taken)
    return assigned.most_common(1)[0][0] if assigned else None


def _directories_on(
    node_id: int, here: Iterable[ClusterPartition], taken: Collection[str]
) -> Counter[str]:
    """How many partitions the cluster assigns to each directory of a node."""
    assigned = (each.directory_on(node_id) for each in here)
    return Counter(text for text in assigned if text is not None and text not in taken)


def _assigned(
    directory: LogDirectory, cluster: ClusterImage
) -> Iterator[tuple[TopicPartition, ClusterPartition]]:
    """The partitions of a directory that the cluster knows."""
    for key, state in directory.identities:
        found = cluster.partition(key)
        if found is not None and state is PartitionState.LIVE:
            yield key, found


def _homes(cluster: ClusterImage) -> dict[_Home, set[TopicPartition]]:
    """The partitions of each directory of each node."""
    found = defaultdict[_Home, set[TopicPartition]](set)
    for key, each in cluster.assignments:
        for node_id in each.replicas:
            found[node_id, each.directory_on(node_id)].add(key)
    return found


def _ids_text(node_id: int, directory_id: str | None) -> str:
    return f"node {node_id}, directory {directory_id or 'unknown'}"
