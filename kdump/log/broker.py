"""The log directories of one broker together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kdump.errors import UsageProblem
from kdump.formats import names
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.storage.location import Location

Broker = tuple[str | None, int]
"""The ids of the cluster, which can be unknown, and of the node."""
_Log = tuple[Broker | None, TopicPartition, PartitionState]
_Place = tuple[LogDirectory, Partition]


def _broker(directory: LogDirectory) -> Broker | None:
    """Return the cluster and node of a directory; None if it does not say."""
    return None if directory.node_id is None else (directory.cluster_id, directory.node_id)


def require_one_cluster(clusters: Iterable[tuple[Location, str | None]]) -> None:
    """Refuse log directories of several clusters: their partitions of one name are no replicas.

    Args:
        clusters: log directories with the id of their cluster; None if it is not known.

    Raises:
        UsageProblem: they are of several; it names a directory of each.
    """
    found: dict[str, Location] = {}
    for path, cluster_id in clusters:
        if cluster_id is not None:
            found.setdefault(cluster_id, path)
    if len(found) > 1:
        places = ", ".join(f"{path} to {cluster_id}" for cluster_id, path in found.items())
        raise UsageProblem(
            f"the log directories belong to several clusters ({places}): name those of one cluster"
        )


def needs_partition_metadata(directory: LogDirectory) -> bool:
    """Whether the broker of this directory identifies topics by id, as every broker with KRaft."""
    properties = directory.meta_properties
    return properties is not None and properties.version >= 1


def by_broker(directories: Iterable[LogDirectory]) -> dict[Broker | None, list[LogDirectory]]:
    """Group log directories by their broker, in their order.

    A directory without a broker belongs to the only broker, if there is just one; otherwise it is
    under None, together with the others without one.
    """
    every = list(directories)
    brokers = {broker for broker in map(_broker, every) if broker is not None}
    only = next(iter(brokers)) if len(brokers) == 1 else None
    found = defaultdict[Broker | None, list[LogDirectory]](list)
    for directory in every:
        found[_broker(directory) or only].append(directory)
    return dict(found)


def partitions_twice(directories: Iterable[LogDirectory]) -> dict[Location, Location]:
    """Map each directory of a partition that has more than one to another one of them.

    A broker does not start with them ("Duplicate log directories"), and nothing says which one
    is right: every command that writes must leave them unchanged. Follows
    ``LogManager.loadLog``, and ``KafkaRaftServer`` for the cluster's metadata: a copy on its way
    to another disk may be there once, and what a broker renames to ``-stray`` does not count. Where
    a copy is beside its log, a broker fails as soon as it gives it the name of the log.

    Args:
        directories: all log directories, also of several brokers.
    """
    found = defaultdict[_Log, list[_Place]](list)
    beside: dict[Location, Location] = {}
    for broker, own in by_broker(directories).items():
        for directory in own:
            logs = dict[TopicPartition, Partition]()
            for partition in directory.partitions:
                key, state = partition.topic_partition, partition.state
                if key is not None and state in (PartitionState.LIVE, PartitionState.FUTURE):
                    found[broker, key, state].append((directory, partition))
                    log = logs.setdefault(key, partition)
                    if log.state is not state and all(
                        _is_loaded(directory, each) for each in (log, partition)
                    ):
                        beside |= {log.path: partition.path, partition.path: log.path}
    return beside | {path: other for places in found.values() for path, other in _others(places)}


class UnfinishedMove(NamedTuple):
    """A ``-future`` copy of a partition.

    Attributes:
        directory: in which it is.
        log: the directory with the log, and the log; None if no directory of its broker has it.
    """

    directory: LogDirectory
    copy: Partition
    log: _Place | None


def unfinished_moves(directories: Iterable[LogDirectory]) -> Iterator[UnfinishedMove]:
    """Find the partitions that are being moved to another log directory of their broker.

    Args:
        directories: all log directories, also of several brokers.
    """
    for own in by_broker(directories).values():
        places = [(each, partition) for each in own for partition in each.partitions]
        copies = [each for each in places if each[1].state is PartitionState.FUTURE]
        if not copies:
            continue
        logs = {
            partition.topic_partition: (directory, partition)
            for directory, partition in places
            if partition.state is PartitionState.LIVE
        }
        for directory, copy in copies:
            yield UnfinishedMove(directory, copy, logs.get(copy.topic_partition))


def _others(places: Sequence[_Place]) -> Iterator[tuple[Location, Location]]:
    """Pair each directory of a log with another directory of the same log."""
    if len(places) == 1:
        return
    # A directory may be named several times, by different paths.
    resolved = {
        partition.path: directory.path.resolved() / partition.path.name
        for directory, partition in places
        if _is_loaded(directory, partition)
    }
    for path, place in resolved.items():
        other = next((each for each, its_place in resolved.items() if its_place != place), None)
        if other is not None:
            yield path, other


def _is_loaded(directory: LogDirectory, partition: Partition) -> bool:
    """Whether a broker keeps the log after loading it, rather than renaming it to ``-stray``."""
    if partition.is_cluster_metadata or not needs_partition_metadata(directory):
        return True
    return (partition.path / names.PARTITION_METADATA).kind() is not None
