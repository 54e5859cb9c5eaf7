"""Check a log directory: the files in its root, and what they say about its partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kdump.check import invariants
from kdump.check.findings import Finding, Place, Severity
from kdump.check.invariants import Invariant
from kdump.check.part import ByteAccount
from kdump.check.scope import becomes_log, cluster_view
from kdump.errors import reason_of
from kdump.formats import names
from kdump.formats.errors import FormatError
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.bounds import deleted_up_to, has_lost_log_starts
from kdump.log.broker import by_broker, unfinished_moves
from kdump.log.cleaner_lines import misplaced_lines
from kdump.log.directory import LogDirectory
from kdump.state.metadata.cluster import ClusterImage, ClusterPartition
from kdump.storage.entries import BrokenLinkError, EntryKind
from kdump.storage.location import Location
from kdump.storage.ownership import OwnedEntry, OwnedStorage, Ownership

_MEANING_OF_EMPTY: Final = {
    names.RECOVERY_POINT_CHECKPOINT: (
        "every log is recovered from its start after an unclean shutdown"
    ),
    names.LOG_START_OFFSET_CHECKPOINT: "logs start with their first segment",
    names.REPLICATION_OFFSET_CHECKPOINT: "every high watermark starts at 0",
    names.CLEANER_OFFSET_CHECKPOINT: "the cleaner begins at the start of every log",
}


def check_directory(directory: LogDirectory) -> Iterator[Finding]:
    """Check what does not depend on the content of the partitions."""
    yield from _check_problems(directory)
    yield from _check_refused(directory)
    yield from _check_empty(directory)
    yield from _check_without_partition(directory)


def check_cleaner_lines(directories: Iterable[LogDirectory]) -> Iterator[Finding]:
    """Check that the cleaner's checkpoints of each broker agree on where its logs are."""
    for own in by_broker(directories).values():
        for line in misplaced_lines(own):
            when = "" if line.is_repeated else " after its next round on this log"
            lines = f"lines in {' and '.join(map(str, line.directories))}"
            for path in line.without_log if line.has_log else line.directories[1:]:
                yield invariants.CLEANER_LINE_MISPLACED.finding(
                    Place(str(path / names.CLEANER_OFFSET_CHECKPOINT)),
                    f"there is a line for {line.key}, whose log is not in this directory: the log"
                    f" cleaner of a running broker ends with an exception{when}, and cleans nothing"
                    " any more",
                    expected="one line, in the directory of the log",
                    found=lines if line.is_repeated else None,
                )


def check_futures(
    directories: Iterable[LogDirectory], clusters: Mapping[Location, ClusterImage | None]
) -> Iterator[Finding]:
    """Check that the log of each partition that is being moved is in a directory of its broker.

    Args:
        directories: all log directories, also of several brokers.
        clusters: the cluster's metadata, by the path of the directory; None if unknown.
    """
    for each in unfinished_moves(directories):
        cluster = clusters.get(each.directory.path)
        if each.log is None and not becomes_log(each.copy, each.directory, cluster):
            yield invariants.DIRECTORY_FUTURE_ALONE.finding(
                Place(str(each.copy.path)),
                "no given directory has the log that is being moved here: if its disk is lost, a"
                " broker creates an empty log, and deletes the records that were copied",
            )


def check_emptied(
    directories: Iterable[LogDirectory], clusters: Mapping[Location, ClusterImage | None]
) -> Iterator[Finding]:
    """Check that each partition that is assigned to a broker has a log that the broker loads.

    A starting broker makes an empty log, and nobody knows that there was another
    (``ReplicaManager.applyDelta``): if it leads, its followers truncate to 0.

    Args:
        directories: all log directories, also of several brokers.
        clusters: the cluster's metadata, by the path of the directory; None if unknown.
    """
    for broker, own in by_broker(directories).items():
        yield from _check_strays(own, clusters)
        if broker is not None:
            yield from _check_missing(own, broker[1], clusters)


def _check_strays(
    own: Sequence[LogDirectory], clusters: Mapping[Location, ClusterImage | None]
) -> Iterator[Finding]:
    """Check that the broker has no partition only as ``-stray`` that is assigned to it."""
    places = [(each, partition) for each in own for partition in each.partitions]
    loaded = {
        partition.topic_partition
        for _, partition in places
        if partition.state in (PartitionState.LIVE, PartitionState.FUTURE)
    }
    for directory, partition in places:
        key, cluster = partition.topic_partition, clusters.get(directory.path)
        if partition.state is not PartitionState.STRAY or key is None or key in loaded:
            continue
        view = cluster_view(partition, directory, cluster)
        assigned = None if cluster is None else cluster.partition(key)
        if (
            view is not None
            and assigned is not None
            and view.owner == key.topic
            and view.node_id in assigned.replicas
        ):
            yield _emptied(
                invariants.STRAY_ASSIGNED,
                partition.path,
                "the cluster's metadata assigns the partition to this broker, and no given"
                " directory has its log",
                assigned,
                view.node_id,
            )


def _check_missing(
    own: Sequence[LogDirectory], node_id: int, clusters: Mapping[Location, ClusterImage | None]
) -> Iterator[Finding]:
    """Check that each partition that is assigned to a log directory has a directory."""
    # A -stray partition has its own finding, and a broker made it -delete by newer metadata.
    there = {key for each in own for key, _ in each.identities}
    there |= {
        names.parse_partition_directory_name(name).topic_partition
        for each in own
        for name in each.absent
    }
    given = {each.directory_id for each in own}
    for directory in own:
        cluster = clusters.get(directory.path)
        if cluster is None:
            continue
        is_whole = given.issuperset(cluster.log_dirs.get(node_id, ()))
        for key, partition in _assigned_to(directory, node_id, cluster, is_whole=is_whole):
            if key not in there:
                yield _emptied(
                    invariants.PARTITION_MISSING,
                    directory.path / str(key),
                    "the cluster's metadata assigns the partition to this log directory, and no"
                    " given directory has it",
                    partition,
                    node_id,
                )


def _assigned_to(
    directory: LogDirectory, node_id: int, cluster: ClusterImage, *, is_whole: bool
) -> Iterator[tuple[TopicPartition, ClusterPartition]]:
    """The partitions that the metadata assigns to a log directory, and that were in it.

    Without a line in the checkpoints, a partition was not there when the broker ran: the metadata
    is older or newer, or somebody copied a part of the disk. A disk with nothing tells nothing.

    Args:
        is_whole: whether these are all directories of the node: only then the lines count for
            partitions whose directory the cluster does not know.
    """
    checkpoints = directory.checkpoints
    before = {*(checkpoints.recovery_points or ()), *(checkpoints.high_watermarks or ())}
    is_empty = not before and not directory.identities
    for key, partition in cluster.assignments:
        if node_id not in partition.replicas:
            continue
        assigned = partition.directory_on(node_id)
        if assigned is None:
            is_here = is_whole and key in before
        else:
            is_here = assigned == directory.directory_id and (is_empty or key in before)
        if is_here:
            yield key, partition


def _emptied(
    invariant: Invariant, path: Location, what: str, partition: ClusterPartition, node_id: int
) -> Finding:
    """The finding that a starting broker makes an empty log, and what comes of it."""
    what += ": a starting broker makes an empty log"
    if node_id not in partition.in_sync:
        return invariant.finding(
            Place(str(path)),
            f"{what}, and copies all records from the leader",
            severity=Severity.WARNING,
        )
    if partition.is_alone_in_sync(node_id):
        what += " and leads with it, because no other replica is in sync"
    else:
        what += (
            ", and may lead with it, unless the controllers have newer metadata in which it is not"
            " in sync"
        )
    return invariant.finding(Place(str(path)), what, loss="all records of the partition")


def _check_problems(directory: LogDirectory) -> Iterator[Finding]:
    """Check that the small files in the root can be decoded."""
    for problem in directory.problems:
        path, error = problem.path, problem.error
        place, severity = Place(str(path)), None
        if isinstance(error, BrokenLinkError):
            error = FormatError(reason_of(error))
        elif isinstance(error, OSError):
            yield unreadable(path, error)
            continue
        else:
            place = Place(str(path), error.position)
        if path.name == names.META_PROPERTIES:
            continue  # what a broker does depends on its other directories, too
        if path.name == names.CLEAN_SHUTDOWN_MARKER:
            invariant, what = (
                invariants.CLEAN_SHUTDOWN_MALFORMED,
                "the clean shutdown marker cannot be read; a broker only looks whether it exists",
            )
            if isinstance(problem.error, BrokenLinkError):
                what = (
                    "a broker finds no clean shutdown marker, and recovers all logs as after a"
                    " crash"
                )
            elif not directory.is_clean:
                severity = Severity.SEVERE
                what = (
                    "a broker cannot delete the clean shutdown marker, and takes the whole log"
                    " directory offline"
                )
        else:
            invariant, what = invariants.CHECKPOINT_MALFORMED, _malformed(path.name)
        yield invariant.of_error(place, error, f"{what} ({error.what})", severity=severity)


def _malformed(name: str) -> str:
    """Say what a broker does about an offset checkpoint that it cannot read.

    It takes the directory offline. If that is before it loads the logs, a log that it then reads or
    renames stops it.
    """
    if name in (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT):
        what = "takes the log directory offline, or does not start"
    else:
        what = "takes the whole log directory offline"
    return f"a checkpoint cannot be read: a broker {what}"


def unreadable(path: Location | str, failure: OSError) -> Finding:
    """The finding for a file or directory that cannot be read."""
    return invariants.FILE_UNREADABLE.finding(
        Place(str(failure.filename or path)), f"cannot be read: {reason_of(failure)}"
    )


def _check_refused(directory: LogDirectory) -> Iterator[Finding]:
    """Check that every directory in a log directory has the name of a partition."""
    for name in directory.refused:
        if name == names.META_PROPERTIES:  # the broker leaves the log directory out before
            continue
        place = Place(str(directory.path / name))
        expected = "TOPIC-PARTITION"
        other = _other_name(directory, name)
        if other:
            yield invariants.PARTITION_TWICE.finding(
                place,
                f"the partition is also in {directory.path / other}: a broker does not start with"
                " both",
                expected="one directory for each partition",
            )
        if names.is_accepted_name(name):
            yield invariants.DIRECTORY_MISNAMED.finding(
                place,
                "no partition can have this name: a broker that knows its topics by their IDs makes"
                " it -stray, and an older one cannot keep its checkpoints; kdump leaves the"
                " directory unchanged",
                expected=expected,
                found=repr(name),
            )
        else:
            yield invariants.DIRECTORY_REFUSED.finding(
                place,
                "not the name of a partition: a broker does not start on this log directory",
                expected=expected,
                found=repr(name),
            )


def _other_name(directory: LogDirectory, name: str) -> str:
    """The other directory that Kafka takes for the same partition as ``name``; empty if none."""
    if not names.is_accepted_name(name):
        return ""
    key = names.parse_partition_directory_name(name).topic_partition
    found = (each.path.name for each in directory.partitions if each.topic_partition == key)
    return next(found, "")


def _check_empty(directory: LogDirectory) -> Iterator[Finding]:
    """Check that no offset checkpoint is empty if there are partitions."""
    if not directory.partitions:
        return
    for name, offsets in directory.checkpoints.by_file_name().items():
        if offsets is not None and not offsets:
            yield invariants.CHECKPOINT_EMPTY.finding(
                Place(str(directory.path / name)),
                f"the checkpoint has no entries: {_MEANING_OF_EMPTY[name]}",
            )
    yield from _check_log_starts(directory)


def _check_log_starts(directory: LogDirectory) -> Iterator[Finding]:
    """Check that no log start offset is lost with the content of the checkpoint.

    What cannot be read is reported by who reads it.
    """
    is_lost = False
    with contextlib.suppress(OSError):
        is_lost = has_lost_log_starts(directory)
    for partition in directory.partitions if is_lost else ():
        if partition.state is not PartitionState.LIVE or partition.is_cluster_metadata:
            continue
        log_start_offset = None
        with contextlib.suppress(OSError):
            log_start_offset = deleted_up_to(partition)
        if log_start_offset is not None:
            yield invariants.LOG_START_LOST.finding(
                Place(str(directory.path / names.LOG_START_OFFSET_CHECKPOINT)),
                f"the checkpoint is empty: a starting broker shows records of"
                f" {partition.topic_partition} that were deleted",
                expected=f"log start offset {log_start_offset}, where its leader epochs begin",
            )


def _check_without_partition(directory: LogDirectory) -> Iterator[Finding]:
    """Check that every partition in a checkpoint exists."""
    there = {partition.topic_partition for partition in directory.partitions}
    there |= {key for key, _ in directory.identities}  # also those that were not listed
    unlisted = {_name_of(directory, name) for name in directory.unreadable}
    for name, offsets in directory.checkpoints.by_file_name().items():
        for topic_partition in offsets or ():
            if topic_partition not in there and str(topic_partition) not in unlisted:
                yield invariants.CHECKPOINT_WITHOUT_PARTITION.finding(
                    Place(str(directory.path / name)),
                    f"there is a line for {topic_partition}, which is not in this directory",
                )


def _name_of(directory: LogDirectory, name: str) -> str:
    try:
        return str(names.parse_partition_directory_name(name).topic_partition)
    except FormatError:
        return name


def check_access(log_directory: LogDirectory) -> Iterator[Finding]:
    """Check that the owner of a log directory can read and write everything of Kafka's in it.

    That a broker runs as this user is a guess, so there is one finding, with a count, for all files
    that the user cannot read or write. Each symbolic link is a finding. The user's groups are not
    known: the group permissions of another user's file count if its group is that of the directory.

    Raises:
        OSError: the status of the directory itself cannot be read.
    """
    directory = log_directory.path
    storage = directory.storage
    if not isinstance(storage, OwnedStorage):
        return
    owner = storage.ownership(directory.path)
    reported = {problem.path for problem in log_directory.problems}
    inaccessible: list[tuple[Location, Ownership]] = []
    # What the user may write in any case is not listed again.
    accessible = {
        each.path.name
        for each in log_directory.partitions
        if each.ownership is not None
        and not missing_access(each.ownership, owner.user_id, owner.group_id)
    }
    for around, entry in _owned_entries(storage, directory, accessible):
        found = entry.ownership
        if entry.is_link:
            path = around / entry.name
            yield _link(path, storage.link_target(path.path))
            found = _followed(storage, path)
        if isinstance(found, OSError):
            if around / entry.name not in reported:
                yield unreadable(around / entry.name, found)
        elif missing_access(found, owner.user_id, owner.group_id, entry.name):
            is_foreign = around == directory and entry.name in log_directory.foreign
            if not is_foreign:  # no broker opens those
                inaccessible.append((around / entry.name, found))
    if inaccessible:
        yield _inaccessible_finding(inaccessible, owner)


def _owned_entries(
    storage: OwnedStorage, directory: Location, accessible: set[str]
) -> Iterator[tuple[Location, OwnedEntry]]:
    """List a log directory and everything in it, down to the files of its partitions.

    Each entry comes with its directory.

    Args:
        accessible: names of the partitions whose files need no look.
    """
    yield directory.parent, storage.owned_entry(directory.path)
    for entry in sorted(storage.owned_entries(directory.path), key=_name):
        if not entry.name.startswith(names.KDUMP_PREFIX):  # no broker opens these
            yield directory, entry
        if isinstance(entry.ownership, OSError) or not entry.ownership.is_directory:
            continue
        if entry.name in accessible:
            continue
        path = directory / entry.name
        try:
            files = storage.owned_entries(path.path)
        except OSError:
            continue  # the partition is among the directory's problems
        for file in sorted(files, key=_name):
            if not file.name.startswith(names.KDUMP_PREFIX):
                yield path, file


def _name(entry: OwnedEntry) -> str:
    return entry.name


def _followed(storage: OwnedStorage, path: Location) -> Ownership | OSError:
    try:
        return storage.ownership(path.path)
    except OSError as failure:
        return failure


def _inaccessible_finding(
    inaccessible: Sequence[tuple[Location, Ownership]], owner: Ownership
) -> Finding:
    """The finding for files that the owner of a log directory cannot read or write."""
    path, status = inaccessible[0]
    missing = missing_access(status, owner.user_id, owner.group_id, path.name)
    count = len(inaccessible)
    others = f" and {count - 1} more" if count > 1 else ""
    return invariants.FILE_PERMISSIONS.finding(
        Place(str(path)),
        f"the owner of the log directory (user {owner.user_id}) cannot {missing} this{others}; a"
        " broker that runs as this user takes the directory offline; change the owner back",
        expected=f"user {owner.user_id} may {missing}",
        found=f"user {status.user_id}, group {status.group_id}, mode {status.permissions:04o}",
    )


def _link(path: Location, target: str) -> Finding:
    return invariants.SYMBOLIC_LINK.finding(
        Place(str(path)),
        "a symbolic link; a broker follows it, but renames or deletes the link itself",
        found=f"a link to {target}",
    )


def missing_access(status: Ownership, user_id: int, group_id: int, name: str = "") -> str:
    """Say what a user may not do with a file: ``read``, ``write``, both, or empty.

    Without its name, all that any file is opened for counts.
    """
    if user_id == 0:
        return ""
    bits = status.permissions
    if status.user_id == user_id:
        bits >>= 6
    elif status.group_id == group_id:
        bits >>= 3
    wanted = {"read": 4, "write": 2}
    if names.parse_metadata_snapshot_name(name) is not None:
        del wanted["write"]  # Kafka itself makes them read-only
    if status.is_directory:
        wanted["enter"] = 1
    return " or ".join(word for word, bit in wanted.items() if not bits & bit)


def root_account(directory: LogDirectory) -> ByteAccount:
    """Account for the bytes of the files in the root of a log directory.

    Raises:
        OSError: the status of a file cannot be read.
    """
    damaged = {problem.path.name for problem in directory.problems if problem.is_damage}
    account = ByteAccount()
    for entry in directory.path.entries():
        if entry.error is not None and entry.kind is not EntryKind.BROKEN_LINK:
            raise entry.error
        if entry.kind is not EntryKind.FILE:
            continue
        name, size = entry.name, entry.size_bytes
        if name in directory.foreign and not name.startswith(names.KDUMP_PREFIX):
            account += ByteAccount(foreign_bytes=size)
        elif name in damaged:
            account += ByteAccount(damaged_bytes=size)
        else:
            account += ByteAccount(valid_bytes=size)
    return account


def foreign_files(directory: LogDirectory) -> Iterator[Finding]:
    """Find the files in the root of a log directory that no broker wrote."""
    for name in directory.foreign:
        place = Place(str(directory.path / name))
        if name.startswith(names.KDUMP_PREFIX):
            yield invariants.KDUMP_FILE.finding(
                place,
                "kdump keeps it to undo a repair; a broker leaves it alone",
            )
        else:
            yield invariants.FOREIGN_FILE.finding(
                place, "not a Kafka file; a broker leaves it alone"
            )
