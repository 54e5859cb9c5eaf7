"""Check the files of a partition that belong to no segment."""

from __future__ import annotations

import contextlib
from typing import Final

from kdump.check import invariants
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place, Severity
from kdump.check.part import ByteAccount
from kdump.check.scope import ClusterView, PartitionScope
from kdump.check.snapshots import SnapshotFiles
from kdump.formats import names
from kdump.formats.errors import FormatError
from kdump.formats.names import FileStage, PartitionState
from kdump.formats.partition_metadata import decode_partition_metadata
from kdump.formats.uuids import format_uuid
from kdump.log.partition import LeftoverKind, Partition
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location
from kdump.words import counted

_BECOMES_STRAY: Final = (
    "a starting broker renames the directory to -stray, unless the controllers have newer metadata"
)
"""A broker waits until it has caught up with them, and decides then (``MetadataLoader``)."""
_LEFTOVERS: Final = {
    LeftoverKind.SWAP: (
        invariants.LEFTOVER_SWAP,
        (
            "a replacement (.swap) was not finished; a starting broker finishes it, or deletes it"
            " if a .cleaned file at or below it shows that it was not complete"
        ),
    ),
    LeftoverKind.CLEANED: (
        invariants.LEFTOVER_CLEANED,
        (
            "the output of the log cleaner, or of a split, is unfinished; a starting broker"
            " deletes it, and the segments it was made from are still there"
        ),
    ),
    LeftoverKind.DELETED: (
        invariants.LEFTOVER_DELETED,
        "the file is no longer used; a starting broker deletes it",
    ),
    LeftoverKind.ORPHAN: (
        invariants.INDEX_ORPHAN,
        "an index has no log beside it; a starting broker deletes it",
    ),
    LeftoverKind.TEMPORARY: (
        invariants.LEFTOVER_TEMPORARY,
        "a file was not written completely, and never got its final name",
    ),
}
_STATES: Final = {
    PartitionState.DELETE: (
        invariants.DIRECTORY_DELETE,
        "the topic of this partition was deleted; a starting broker deletes the directory",
    ),
    PartitionState.FUTURE: (
        invariants.DIRECTORY_FUTURE,
        "the partition is being moved here from another log directory",
    ),
    PartitionState.STRAY: (
        invariants.DIRECTORY_STRAY,
        "a broker found that this partition is not its own; nothing reads or deletes it",
    ),
}


def check_files(
    scope: PartitionScope, boundaries: set[int], snapshots: SnapshotFiles, into: Collector
) -> tuple[ByteAccount, bool]:
    """Check all files of a partition except those of its segments.

    Args:
        boundaries: offsets at which producer snapshots belong: where segments begin, and the end of
            the log.
        into: takes the findings.

    Returns:
        The account of those files, and whether a producer snapshot has an open transaction.

    Raises:
        OSError: a file cannot be read.
    """
    partition = scope.partition
    _check_state(partition, into)
    check_other(scope, into)
    account, has_open_transactions = _check_snapshots(partition, boundaries, snapshots, into)
    account += _check_leftovers(partition, into)
    account += check_metadata(scope, into)
    account += _check_foreign(partition, into)
    for name in (names.LEADER_EPOCH_CHECKPOINT, names.QUORUM_STATE):
        account += ByteAccount(valid_bytes=_size(partition.path / name))
    account += ByteAccount(
        valid_bytes=sum(file.size_bytes for file in partition.metadata_snapshots)
    )
    return account, has_open_transactions


def _size(path: Location) -> int:
    try:
        return path.status().size_bytes
    except FileNotFoundError:
        return 0


def _check_state(partition: Partition, into: Collector) -> None:
    """Report the state that the suffix of a partition's directory means."""
    if partition.state in _STATES:
        invariant, what = _STATES[partition.state]
        into.add(invariant.finding(Place(str(partition.path)), what))


def _check_snapshots(
    partition: Partition, boundaries: set[int], snapshots: SnapshotFiles, into: Collector
) -> tuple[ByteAccount, bool]:
    """Check that producer snapshots can be read, and belong to a segment or the end of the log."""
    valid_bytes = damaged_bytes = 0
    has_open_transactions = False
    newest = max((file.offset for file in partition.producer_snapshots), default=-1)
    for file in partition.producer_snapshots:
        found = snapshots.file(file.offset)
        if found.finding is not None:
            into.add(found.finding)
            damaged_bytes += found.size_bytes
            continue
        has_open_transactions |= found.has_open_transactions
        valid_bytes += found.size_bytes
        if file.offset not in boundaries:
            into.add(
                invariants.SNAPSHOT_STRAY.finding(
                    Place(str(snapshots.path(file.offset)), None, file.offset),
                    "no segment begins at the offset of this producer snapshot;"
                    " a starting broker deletes it"
                    + (", unless it is to load it first" if file.offset == newest else ""),
                )
            )
    return ByteAccount(valid_bytes, damaged_bytes=damaged_bytes), has_open_transactions


def _check_leftovers(partition: Partition, into: Collector) -> ByteAccount:
    """Report leftover files."""
    account = ByteAccount()
    for leftover in partition.leftovers:
        invariant, what = _LEFTOVERS[leftover.kind]
        into.add(
            invariant.finding(
                Place(str(partition.path / leftover.name)),
                what,
                found=counted(leftover.size_bytes, "byte"),
            )
        )
        account += ByteAccount(valid_bytes=leftover.size_bytes)
    return account


def check_belonging(scope: PartitionScope, into: Collector) -> None:
    """Check that a broker accepts the partition as its own, and starts with it.

    A file that cannot be read is skipped: the check of the partition reports it.
    """
    check_other(scope, into)
    with contextlib.suppress(OSError):
        check_metadata(scope, into)


def check_other(scope: PartitionScope, into: Collector) -> None:
    """Check that the partition has one directory only, and keeps it when a broker starts."""
    if scope.replaced is not None:
        lost = scope.replaced.lost
        into.add(
            invariants.LOG_REPLACED.finding(
                Place(str(scope.partition.path)),
                f"the cluster's metadata assigns the replica to the disk of {scope.replaced.by}: a"
                " starting broker makes that copy the log, and deletes this one, unless the"
                " controllers have newer metadata",
                loss=f"offsets {lost}, which the copy does not have" if lost else None,
                severity=Severity.SEVERE if lost else Severity.INFO,
            )
        )
    if scope.other is not None:
        what = f"the partition is also in {scope.other}: a broker does not start with both"
        if scope.other.parent == scope.partition.path.parent:
            what += ", or takes the log directory offline when it makes the copy the log"
        into.add(
            invariants.PARTITION_TWICE.finding(
                Place(str(scope.partition.path)),
                what,
                expected="one directory for each partition",
            )
        )


def check_metadata(scope: PartitionScope, into: Collector) -> ByteAccount:
    """Check that ``partition.metadata`` exists and agrees with the cluster's metadata."""
    partition = scope.partition
    path = partition.path / names.PARTITION_METADATA
    try:
        data = path.read()
    except FileNotFoundError:
        # KafkaRaftLog knows the id of its topic, and UnifiedLog.initializeTopicId writes the file.
        if scope.needs_metadata and not partition.is_cluster_metadata:
            into.add(
                invariants.PARTITION_METADATA_MISSING.finding(
                    Place(str(path)),
                    "there is no partition.metadata: a starting broker renames the directory to"
                    " -stray, and creates an empty log",
                    loss="the whole partition, as far as readers can see",
                )
            )
        return ByteAccount()
    try:
        metadata = decode_partition_metadata(data)
    except FormatError as problem:
        into.add(
            invariants.PARTITION_METADATA_MALFORMED.of_error(
                Place(str(path), problem.position),
                problem,
                "partition.metadata cannot be read: a broker takes the log directory offline, or"
                f" does not start ({problem.what})",
            )
        )
        return ByteAccount(damaged_bytes=len(data))
    if scope.cluster is not None:
        _check_assigned(path, format_uuid(metadata.topic_id), scope, scope.cluster, into)
    return ByteAccount(valid_bytes=len(data))


def _check_assigned(
    path: Location, topic_id: str, scope: PartitionScope, cluster: ClusterView, into: Collector
) -> None:
    """Check that the cluster has the partition on this node, under the directory's name.

    Follows ``LogManager.isStrayReplica``, which knows topics by their id alone, and
    ``LogManager.getOrCreateLog``, which knows logs by the topic's name.
    """
    key = scope.partition.key
    if cluster.owner is None:
        into.add(
            invariants.PARTITION_METADATA_MISMATCH.finding(
                Place(str(path)),
                "the cluster's metadata has no topic with this id"
                + (", and another id for the topic" if cluster.topic_id else "")
                + f": {_BECOMES_STRAY}",
                expected=cluster.topic_id,
                found=topic_id,
                loss="the whole partition, as far as readers can see",
            )
        )
    elif not cluster.is_assigned:
        into.add(
            invariants.PARTITION_NOT_ASSIGNED.finding(
                Place(str(scope.partition.path)),
                f"the cluster's metadata has no replica of partition {key.partition} of"
                f" {cluster.owner} here: {_BECOMES_STRAY}",
                expected=f"a replica on node {cluster.node_id}",
                found=f"replicas on {', '.join(map(str, cluster.replicas or ())) or 'no node'}",
                loss="the whole partition, as far as readers can see",
            )
        )
    elif cluster.owner != key.topic:
        into.add(
            invariants.PARTITION_METADATA_OTHER_TOPIC.finding(
                Place(str(path)),
                f"partition.metadata has the id of the topic {cluster.owner}: a broker loads the"
                " log, and then does not serve it (InconsistentTopicIdException)"
                if cluster.topic_id
                else f"partition.metadata has the id of the topic {cluster.owner}, and the cluster"
                " has no topic of this name: a broker loads the log, and nothing uses it",
                expected=cluster.topic_id,
                found=topic_id,
                loss="the whole partition, as far as readers can see",
            )
        )


def _check_foreign(partition: Partition, into: Collector) -> ByteAccount:
    """Find files in the partition's directory that no broker wrote."""
    account = ByteAccount()
    if not partition.foreign:
        return account
    entries = {entry.name: entry for entry in partition.path.entries()}
    for name in partition.foreign:
        path = partition.path / name
        entry = entries.get(name) or path.status()
        is_file = entry.kind is EntryKind.FILE and not entry.is_link
        size = entry.size_bytes
        if is_file and names.quarantined_from(name) is not None:
            into.add(
                invariants.KDUMP_FILE.finding(
                    Place(str(path)),
                    "damaged bytes of a log, or an unfinished file, which kdump quarantined"
                    " when it salvaged the partition"
                    if size
                    else "a note by kdump that offsets were missing when it salvaged the log",
                )
            )
            account += ByteAccount(valid_bytes=size)
            continue
        into.add(_foreign(partition, path, is_file=is_file))
        account += ByteAccount(foreign_bytes=size)
    return account


def _foreign(partition: Partition, path: Location, *, is_file: bool) -> Finding:
    """The finding about a file or directory whose name Kafka does not give."""
    is_loaded = is_file and partition.state not in (PartitionState.DELETE, PartitionState.STRAY)
    base_offset = names.misnamed_base_offset(path.name) if is_loaded else None
    is_swap = path.name.endswith(FileStage.SWAP.value)
    if base_offset is not None and (
        is_swap or all(each.base_offset != base_offset for each in partition.segments)
    ):
        return invariants.LOG_MISNAMED.finding(
            Place(str(path), None, base_offset),
            f"a starting broker begins an empty segment at {base_offset} because of this name: it"
            " hides what other segments have from there on, and what this file has",
            expected="a name with 20 digits",
        )
    what = "not a Kafka file; a broker leaves it alone"
    is_snapshot = path.name.endswith(names.METADATA_SNAPSHOT_SUFFIXES)
    if not is_file and partition.is_cluster_metadata and is_snapshot:
        what = "a directory with the name of a snapshot of the cluster's metadata"
    elif not is_file:
        what = "not a file: a broker leaves it alone"
    elif path.name.endswith((*names.NUMBERED_SUFFIXES, FileStage.DELETED.value)):
        what = "not a name that Kafka gives; a starting broker takes it for one, or deletes it"
    return invariants.FOREIGN_FILE.finding(Place(str(path)), what, severity=Severity.INFO)
