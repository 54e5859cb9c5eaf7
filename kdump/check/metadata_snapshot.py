"""Check the snapshot of the cluster's metadata, ``OFFSET-EPOCH.checkpoint``.

A starting node loads the newest one, and the log after it. It does not notice that the end of a
snapshot is missing: it goes on without what was there (``RecordsSnapshotReader``), and fails at the
first record of the log that is about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdump.check import invariants
from kdump.check.directory import unreadable
from kdump.check.findings import Finding, Place
from kdump.formats.names import MetadataSnapshotName, parse_metadata_snapshot_name
from kdump.log.partition import MetadataSnapshotFile, Partition
from kdump.storage.entries import EntryKind


def check_metadata_snapshot(partition: Partition) -> Iterator[Finding]:
    """Check that the newest snapshot can be read and is valid to its end.

    That of a copy that was moved aside is not checked: no node takes it.
    """
    if not partition.is_cluster_metadata:
        return
    newest = newest_snapshot(partition)
    if newest is None:
        return
    if isinstance(newest, MetadataSnapshotName):
        yield invariants.METADATA_SNAPSHOT_DAMAGED.finding(
            Place(str(partition.path / str(newest))),
            "a directory is in the place of the snapshot from which a node takes the cluster's"
            " metadata; the node does not start",
        )
        return
    # Few partitions have one, and the schemas of the metadata take time to import.
    from kdump.state.metadata.metadata_log import MetadataDamage, MetadataReading, snapshot_path

    path = str(snapshot_path(partition, newest))
    try:
        for _ in MetadataReading(type_names=()).snapshot(partition, newest):
            pass
    except OSError as failure:
        yield unreadable(path, failure)
    except MetadataDamage as damage:
        yield invariants.METADATA_SNAPSHOT_DAMAGED.finding(
            Place(path),
            "the snapshot from which a node takes the cluster's metadata is damaged:"
            f" {str(damage).removeprefix(f'{path}: ')}; the node does not start, or lacks a part of"
            " the metadata",
        )


def newest_snapshot(partition: Partition) -> MetadataSnapshotFile | MetadataSnapshotName | None:
    """That which a starting node takes; the name alone if it is that of a directory.

    A node asks for names only, and the highest epoch counts before the offset
    (``KafkaRaftLog.recoverSnapshots``, ``OffsetAndEpoch``).

    Raises:
        OSError: the kind of an entry cannot be read.
    """
    found: Sequence[MetadataSnapshotFile | MetadataSnapshotName] = (
        *partition.metadata_snapshots,
        *_directories(partition),
    )
    return max(found, key=lambda each: (each.epoch, each.end_offset), default=None)


def _directories(partition: Partition) -> Iterator[MetadataSnapshotName]:
    """Complete snapshots by their names, which are directories."""
    for name in partition.foreign:
        snapshot = parse_metadata_snapshot_name(name)
        if (
            snapshot is not None
            and snapshot == MetadataSnapshotName(snapshot.end_offset, snapshot.epoch)
            and (partition.path / name).kind() is EntryKind.DIRECTORY
        ):
            yield snapshot
