"""Everything that collections say, in an order that does not depend on theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kdump.errors import UsageProblem
from kdump.formats.names import CLUSTER_METADATA_TOPIC
from kdump.repair.cluster.overrides import RESERVED_TOPIC_IDS
from kdump.state.metadata.cluster_plan import Source, SourceKind
from kdump.state.metadata.collected_image import image_of_records
from kdump.state.metadata.disk_collection import (
    CollectedDirectory,
    CollectedMetadata,
    CollectedPartition,
    DiskCollection,
    TopicClaim,
)
from kdump.state.metadata.metadata_image import LogEnd, MetadataImage

NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class DiskReplica:
    """A partition's directory and the log directory of the node that has it."""

    node_id: int
    directory: CollectedDirectory
    partition: CollectedPartition

    @property
    def end(self) -> tuple[int, int]:
        """The last epoch and the log's end: the greater, the more advanced the replica."""
        last_epoch, end = self.partition.last_epoch, self.partition.log_end_offset
        return (
            NO_EPOCH if last_epoch is None else last_epoch,
            -1 if end is None else end,
        )

    @property
    def highest_epoch(self) -> int:
        """The highest leader epoch in its checkpoint and batch headers; -1 without any."""
        return max(
            self.partition.leader_epochs[-1].epoch if self.partition.leader_epochs else NO_EPOCH,
            NO_EPOCH
            if self.partition.highest_batch_epoch is None
            else self.partition.highest_batch_epoch,
            self.end[0],
        )

    @property
    def source(self) -> Source:
        """The source of a decision that was made by this directory."""
        return Source(SourceKind.DISK, place_of(self.directory))


@dataclass(frozen=True, slots=True)
class MetadataEvidence:
    """A copy of the metadata and the log directory that has it."""

    directory: CollectedDirectory
    metadata: CollectedMetadata
    image: MetadataImage

    @property
    def end(self) -> LogEnd:
        """Where the copy ends."""
        return LogEnd(self.metadata.epoch, self.metadata.end_offset)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What all collections say.

    Attributes:
        kdump: the newest version of kdump that made one.
        created_ms: when the newest of them was made.
        cluster_id: of the cluster; None if no directory names it.
        directories: those with a node id, by node, path and directory id.
        nodes: ids of the nodes whose disks were collected.
        copies: the most advanced one first.
        replicas: by topic and number; of each the most advanced one first.
        claims: by topic.
        ignored: sentences about what was left out.
    """

    kdump: str
    created_ms: int
    cluster_id: str | None
    directories: tuple[CollectedDirectory, ...]
    nodes: frozenset[int]
    copies: tuple[MetadataEvidence, ...]
    replicas: Mapping[str, Mapping[int, Sequence[DiskReplica]]]
    claims: Mapping[str, Sequence[TopicClaim]]
    ignored: tuple[str, ...]


def place_of(directory: CollectedDirectory) -> str:
    """A log directory in words: ``node 2 /data/d1``."""
    node = "?" if directory.node_id is None else directory.node_id
    return f"node {node} {directory.path}"


def gather(collections: Iterable[DiskCollection], cluster_id: str | None = None) -> Evidence:
    """Bring collections together.

    Args:
        collections: in any order.
        cluster_id: the cluster to plan for; None if there is only one.

    Raises:
        UsageProblem: the directories are of several clusters or of no known node.
        DocumentError: a copy's records cannot be used.
    """
    found = list(collections)
    if not found:
        raise UsageProblem("there is no collection")
    ignored: list[str] = []
    directories = _of_one_cluster(_latest(found, ignored), cluster_id, ignored)
    _require_nodes(directories)
    clusters = {each.cluster_id for each in directories if each.cluster_id is not None}
    return Evidence(
        kdump=max(each.kdump for each in found),
        created_ms=max(each.created_ms for each in found),
        cluster_id=cluster_id or (clusters.pop() if clusters else None),
        directories=directories,
        nodes=frozenset(each.node_id for each in directories if each.node_id is not None),
        copies=_copies(directories),
        replicas=_replicas(directories),
        claims=_claims(directories),
        ignored=tuple(sorted(ignored)),
    )


def _latest(
    collections: Sequence[DiskCollection], ignored: list[str]
) -> tuple[CollectedDirectory, ...]:
    """The log directories; of one that was collected several times, the last time counts."""
    found: dict[object, list[tuple[int, CollectedDirectory]]] = defaultdict(list)
    for collection in collections:
        for directory in collection.log_directories:
            # A copied disk may have the id of another node's.
            key = directory.node_id, directory.directory_id or directory.path
            found[key].append((collection.created_ms, directory))
    latest = []
    for same in found.values():
        if len(same) > 1:
            same.sort(key=lambda each: (each[0], repr(each[1])))
        newest = same[-1][1]
        others = {repr(each): each for _, each in same if each != newest}
        ignored += (f"{place_of(each)}: an earlier collection of it" for each in others.values())
        latest.append(newest)
    return tuple(sorted(latest, key=_order))


def _order(directory: CollectedDirectory) -> tuple[int, str, str]:
    node_id = -1 if directory.node_id is None else directory.node_id
    return node_id, directory.path, directory.directory_id or ""


def _of_one_cluster(
    directories: Iterable[CollectedDirectory], cluster_id: str | None, ignored: list[str]
) -> tuple[CollectedDirectory, ...]:
    by_cluster: dict[str | None, list[CollectedDirectory]] = defaultdict(list)
    for directory in directories:
        by_cluster[directory.cluster_id].append(directory)
    named = sorted(each for each in by_cluster if each is not None)
    if cluster_id is None and len(named) > 1:
        places = "; ".join(f"{each}: {place_of(by_cluster[each][0])}" for each in named)
        raise UsageProblem(
            f"the collections are of several clusters ({places}); name one with --set cluster.id=ID"
        )
    if cluster_id is not None and named and cluster_id not in named:
        raise UsageProblem(
            f"--set cluster.id={cluster_id}: the collections are of {', '.join(named)}"
        )
    chosen = cluster_id or (named[0] if named else None)
    kept = []
    for name, each in by_cluster.items():
        if name in (None, chosen):
            kept += each
        else:
            ignored += (f"{place_of(other)}: of cluster {name}" for other in each)
    return tuple(sorted(kept, key=_order))


def _require_nodes(directories: Iterable[CollectedDirectory]) -> None:
    unknown = [
        each.path
        for each in directories
        if each.node_id is None and (each.partitions or each.metadata is not None)
    ]
    if unknown:
        raise UsageProblem(
            f"{unknown[0]}: the collection does not name its node (from meta.properties);"
            " run kdump identity --repair on its host, and collect again"
        )


def _copies(directories: Iterable[CollectedDirectory]) -> tuple[MetadataEvidence, ...]:
    copies = []
    for directory in directories:
        metadata = directory.metadata
        # A directory that was only formatted knows nothing yet.
        if metadata is not None and metadata.end_offset and directory.node_id is not None:
            end = LogEnd(metadata.epoch, metadata.end_offset)
            image = image_of_records(metadata.records, end, f"{place_of(directory)}: records")
            copies.append(MetadataEvidence(directory, metadata, image))
    # Of several that end alike, the one with the fewest problems; then the first node's.
    return tuple(
        sorted(copies, key=lambda each: (-each.end.epoch, -each.end.offset, *_quality(each)))
    )


def _quality(copy: MetadataEvidence) -> tuple[object, ...]:
    return len(copy.metadata.problems), _order(copy.directory)


def _replicas(
    directories: Iterable[CollectedDirectory],
) -> dict[str, dict[int, list[DiskReplica]]]:
    found: dict[str, dict[int, list[DiskReplica]]] = {}
    for directory in directories:
        for partition in directory.partitions:
            # A copy of the metadata that was moved aside is not a partition of the cluster.
            if directory.node_id is not None and partition.topic != CLUSTER_METADATA_TOPIC:
                numbers = found.setdefault(partition.topic, {})
                known = partition
                if partition.topic_id in RESERVED_TOPIC_IDS:
                    known = replace(partition, topic_id=None)
                replica = DiskReplica(directory.node_id, directory, known)
                numbers.setdefault(partition.partition, []).append(replica)
    return {
        topic: {number: sorted(numbers[number], key=_by_end) for number in sorted(numbers)}
        for topic, numbers in sorted(found.items())
    }


def _by_end(replica: DiskReplica) -> tuple[object, ...]:
    epoch, end = replica.end
    return -epoch, -end, _order(replica.directory), replica.partition.directory


def _claims(directories: Iterable[CollectedDirectory]) -> dict[str, Sequence[TopicClaim]]:
    found: dict[str, list[TopicClaim]] = defaultdict(list)
    for directory in directories:
        for claim in directory.claims:
            found[claim.topic].append(claim)
    return {topic: sorted(found[topic], key=repr) for topic in sorted(found)}
