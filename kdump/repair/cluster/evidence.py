"""Everything that collections say, in an order that does not depend on theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.errors import UsageProblem
from kdump.formats.directory_ids import is_reserved_text
from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState
from kdump.repair.cluster.overrides import RESERVED_TOPIC_IDS
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.state.epochs.follower_truncation import LoadedReplica
from kdump.state.metadata.cluster_plan import Source, SourceKind
from kdump.state.metadata.collected_image import image_of_records
from kdump.state.metadata.disk_collection import (
    CollectedDirectory,
    CollectedMetadata,
    CollectedPartition,
    DiskCollection,
    RewoundMetadata,
    TopicClaim,
)
from kdump.state.metadata.metadata_image import EntityKind, LogEnd, MetadataImage

NO_EPOCH: Final = -1
NOTHING: Final = (NO_EPOCH, -1)
"""The end of a replica that a starting broker has nothing of."""


class DiskReplica(Struct, frozen=True):
    """A partition's directory and the log directory of the node that has it."""

    node_id: int
    directory: CollectedDirectory
    partition: CollectedPartition

    @property
    def end(self) -> tuple[int, int]:
        """The last epoch and the end of the log that a starting broker has.

        The greater, the more advanced the replica. One that no broker loads, or whose records a
        start deletes, has nothing.
        """
        loaded = self.loaded
        return NOTHING if loaded is None else (loaded.latest_epoch, loaded.log_end_offset)

    @property
    def is_future(self) -> bool:
        """Whether it is a copy that the broker was making on another disk."""
        return self.partition.state is PartitionState.FUTURE

    @property
    def becomes_stray(self) -> bool:
        """Whether a starting broker renames it to ``-stray``: it has no topic id."""
        return self.partition.topic_id is None

    @property
    def loaded(self) -> LoadedReplica | None:
        """Its records once a broker has started; None if it loads none of them.

        The epochs are those of the records. A broker may have others in memory, by a checkpoint
        that lacks some or claims more: then followers truncate too far, and fetch the same again.
        """
        held, loaded = self.held, self.partition.loaded
        if loaded is None or held is None or self.becomes_stray:
            return None
        # What follows the valid records may have another place in the log, or none.
        start, end = loaded.log_start_offset, min(loaded.log_end_offset, held.log_end_offset)
        if held.log_end_offset < start:
            return None
        epochs = EpochHistory(held.leader_epochs if start < end else ())
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(start)
        return LoadedReplica(start, end, held.high_watermark, epochs.entries)

    @property
    def has_problem(self) -> bool:
        """Whether something in it is damaged, or a broker has other epochs than its records."""
        mine, loaded = self.loaded, self.partition.loaded
        if mine is None or loaded is None or self.partition.problems:
            return True
        return tuple(mine.leader_epochs) != loaded.leader_epochs

    @property
    def held(self) -> LoadedReplica | None:
        """Its valid records, whatever a start does to them; None if that is not known."""
        partition = self.partition
        start, end = partition.log_start_offset, partition.log_end_offset
        if start is None or end is None:
            return LoadedReplica(0, 0, 0, ()) if partition.loaded is not None else None
        return LoadedReplica(start, end, partition.high_watermark, partition.leader_epochs)

    @property
    def highest_epoch(self) -> int:
        """The highest leader epoch in its checkpoint and batch headers; -1 without any."""
        highest = self.partition.highest_epoch
        return NO_EPOCH if highest is None else highest

    @property
    def source(self) -> Source:
        """The source of a decision that was made by this directory."""
        return Source(SourceKind.DISK, place_of(self.directory))


class MetadataEvidence(Struct, frozen=True):
    """A copy of the metadata and the log directory that has it."""

    directory: CollectedDirectory
    metadata: CollectedMetadata
    image: MetadataImage

    @property
    def end(self) -> LogEnd:
        """Where the copy ends."""
        return LogEnd(self.metadata.epoch, self.metadata.end_offset)

    @property
    def problem(self) -> str | None:
        """Why it does not say what the metadata were at the moment; None if it does."""
        rewound = self.metadata.rewound
        return None if rewound is None else rewound.problem


class Evidence(Struct, frozen=True):
    """What all collections say.

    Attributes:
        kdump: the newest version of kdump that made one.
        created_ms: when the newest of them was made.
        cluster_id: of the cluster; None if no directory names it.
        directories: those with a node id, by node, path and directory id.
        nodes: ids of the nodes whose disks were collected.
        copies: the most advanced one first.
        late_copies: likewise; those that do not say what the metadata were at the moment to which
            they are taken back. Nothing in them counts but their numbers.
        replicas: by topic and number; of each the most advanced one first.
        claims: by topic.
        moment_ms: to which the metadata are taken back; None if they are not.
        later_topics: ids of topics that were created after it.
        later_partitions: topic ids and numbers of partitions that topics got after it.
        ignored: sentences about what was left out.
        clones: sentences about log directories with one id.
    """

    kdump: str
    created_ms: int
    cluster_id: str | None
    directories: tuple[CollectedDirectory, ...]
    nodes: frozenset[int]
    copies: tuple[MetadataEvidence, ...]
    late_copies: tuple[MetadataEvidence, ...]
    replicas: Mapping[str, Mapping[int, Sequence[DiskReplica]]]
    claims: Mapping[str, Sequence[TopicClaim]]
    moment_ms: int | None
    later_topics: frozenset[str]
    later_partitions: frozenset[tuple[str, int]]
    ignored: tuple[str, ...]
    clones: tuple[str, ...] = ()

    @property
    def all_copies(self) -> tuple[MetadataEvidence, ...]:
        """Those that count, then the others."""
        return (*self.copies, *self.late_copies)


def missing_disks(evidence: Evidence, copy: MetadataEvidence | None) -> dict[int, frozenset[str]]:
    """Log directories that a copy knows of collected nodes, and that were not collected; by node.

    A node that was not collected at all is not in it.
    """
    if copy is None:
        return {}
    known: dict[int, set[str]] = defaultdict(set)
    for node, broker in copy.image.of(EntityKind.BROKER).items():
        known[node].update(broker.directories)
    for partition in copy.image.of(EntityKind.PARTITION).values():
        for node, directory_id in partition.directory_of.items():
            known[node].add(directory_id)
    found = {}
    for node in sorted(evidence.nodes):
        own = [each.directory_id for each in evidence.directories if each.node_id == node]
        missing = {each for each in known[node] if not is_reserved_text(each)} - {*own}
        # A directory without an id may be any of them.
        if len(missing) > own.count(None):
            found[node] = frozenset(missing)
    return found


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
        UsageProblem: the directories are of several clusters or of no known node, or the copies
            of the metadata of several moments.
        DocumentError: a copy's records cannot be used.
    """
    found = list(collections)
    if not found:
        raise UsageProblem("there is no collection")
    ignored: list[str] = []
    clones: list[str] = []
    directories = _of_one_cluster(_latest(found, ignored, clones), cluster_id, ignored)
    _require_nodes(directories)
    moment_ms = _one_moment(directories)
    rewound = _rewound(directories)
    copies = _copies(directories)
    late = tuple(each for each in copies if each.problem is not None)
    clusters = {each.cluster_id for each in directories if each.cluster_id is not None}
    return Evidence(
        kdump=max(each.kdump for each in found),
        created_ms=max(each.created_ms for each in found),
        cluster_id=cluster_id or (clusters.pop() if clusters else None),
        directories=directories,
        nodes=frozenset(each.node_id for each in directories if each.node_id is not None),
        copies=tuple(each for each in copies if each.problem is None),
        late_copies=late,
        replicas=_replicas(directories),
        claims=_claims(directories),
        moment_ms=moment_ms,
        later_topics=frozenset(topic_id for each in rewound for topic_id in each.later_topics),
        later_partitions=frozenset(
            (every.topic_id, every.partition) for each in rewound for every in each.later_partitions
        ),
        ignored=tuple(sorted(ignored)),
        clones=tuple(sorted(clones)),
    )


def _latest(
    collections: Sequence[DiskCollection], ignored: list[str], clones: list[str]
) -> tuple[CollectedDirectory, ...]:
    """The log directories; of one that was collected several times, the most advanced state.

    When it was collected does not matter: a backup may be read after the disk itself. Two with one
    directory id where neither is an earlier state of the other are two disks.
    """
    found: dict[object, list[tuple[int, CollectedDirectory]]] = defaultdict(list)
    for collection in collections:
        for directory in collection.log_directories:
            # A copied disk may have the id of another node's.
            key = directory.node_id, directory.directory_id or directory.path
            found[key].append((collection.created_ms, directory))
    latest = []
    for same in found.values():
        same.sort(key=lambda each: (each[0], repr(each[1])), reverse=True)
        kept: list[CollectedDirectory] = []
        earlier: dict[str, None] = {}
        for directory in _most_advanced_first([each for _, each in same]):
            newer = next((each for each in kept if _covers(each, directory)), None)
            if newer is None:
                kept.append(directory)
            elif newer != directory:
                earlier[f"{place_of(directory)}: an earlier state of {newer.path}"] = None
        if len(kept) > 1:
            paths = ", ".join(sorted(each.path for each in kept))
            clones.append(
                f"node {kept[0].node_id}: {paths} have the directory id {kept[0].directory_id}, and"
                " none is an earlier state of another"
            )
        ignored += earlier
        latest += kept
    return tuple(sorted(latest, key=_order))


def _most_advanced_first(directories: Sequence[CollectedDirectory]) -> list[CollectedDirectory]:
    """Directories in an order in which none covers one before it, unless they are equal."""
    return sorted(
        directories,
        key=lambda each: sum(_covers(each, other) for other in directories),
        reverse=True,
    )


def _covers(newer: CollectedDirectory, older: CollectedDirectory) -> bool:
    """Whether ``older`` may be an earlier state: nothing in it is more advanced."""
    if _metadata_end(newer) < _metadata_end(older):
        return False
    ends = _ends(newer)
    return all(ends.get(key, NOTHING) >= end for key, end in _ends(older).items())


def _metadata_end(directory: CollectedDirectory) -> LogEnd:
    metadata = directory.metadata
    return LogEnd(-1, -1) if metadata is None else LogEnd(metadata.epoch, metadata.end_offset)


def _ends(directory: CollectedDirectory) -> dict[tuple[str, int, str | None], tuple[int, int]]:
    """The end of the log of each partition that a broker has not deleted."""
    found: dict[tuple[str, int, str | None], tuple[int, int]] = {}
    for each in directory.partitions:
        if each.state is not PartitionState.DELETE:
            key = each.topic, each.partition, each.topic_id
            end = DiskReplica(NO_EPOCH, directory, each).end
            found[key] = max(end, found.get(key, NOTHING))
    return found


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


def _one_moment(directories: Iterable[CollectedDirectory]) -> int | None:
    """The moment of all copies; None without one."""
    found: dict[int | None, CollectedDirectory] = {}
    for each in directories:
        if each.metadata is not None:
            rewound = each.metadata.rewound
            found.setdefault(None if rewound is None else rewound.time_ms, each)
    if len(found) > 1:
        first, second = [*found.values()][:2]
        raise UsageProblem(
            f"the copies of the metadata were collected as of different times ({place_of(first)};"
            f" {place_of(second)}): collect all of them with the same --to"
        )
    return next(iter(found), None)


def _rewound(directories: Iterable[CollectedDirectory]) -> list[RewoundMetadata]:
    found = (None if each.metadata is None else each.metadata.rewound for each in directories)
    return [each for each in found if each is not None]


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
