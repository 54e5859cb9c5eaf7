"""Find the sides that lack a replica of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from kdump.jobs.diff.pairing import Paired
from kdump.jobs.diff.sides import Side
from kdump.log.lock_holders import is_locked
from kdump.log.settled_listing import wait
from kdump.state.metadata.cluster import ClusterImage
from kdump.state.metadata.settings import DirectorySettings
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location

_LOOKS: Final = (None, 3, 4)
"""The waits before each look at what brokers may be creating or deleting."""


class MissingReplica(Struct, frozen=True):
    """A partition, and a side that has no replica of it.

    Attributes:
        side: its number.
        is_assigned: whether the cluster's metadata says that its broker has one; None if it does
            not know the partition.
    """

    paired: Paired
    side: int
    is_assigned: bool | None


def missing_replicas(
    paired: Iterable[Paired], sides: Sequence[Side], settings: DirectorySettings
) -> Iterator[MissingReplica]:
    """Yield the missing replicas that deserve to be reported, in the order of the partitions.

    Left out are sides whose replica cannot be read, and of three sides or more those that should
    not have a replica. Where brokers are running, they may be creating or deleting the partition:
    then it counts if it is the same after a moment.

    Raises:
        OSError: a directory cannot be looked at.
    """
    image = next((each.cluster for each in settings.values() if each.cluster), None)
    found = [
        MissingReplica(each, *absent)
        for each in paired
        for absent in _missing_sides(each, sides, image)
    ]
    moving = {number: each for number, each in enumerate(found) if _may_move(each, sides)}
    gone = set(moving)
    for attempt in _LOOKS:
        if moving and attempt is not None:
            wait(attempt)
        moving = {number: each for number, each in moving.items() if _is_missing(each, sides)}
    gone -= moving.keys()
    yield from (each for number, each in enumerate(found) if number not in gone)


def _may_move(found: MissingReplica, sides: Sequence[Side]) -> bool:
    """Whether a running broker may be about to create the replica, or to delete another one."""
    if found.is_assigned is False:
        return False
    around = [each.directory for each in found.paired.replicas.values()]
    directories = (each.log_directory for each in (*around, *sides[found.side].directories))
    return any(each is not None and is_locked(each.path) for each in directories)


def _is_missing(found: MissingReplica, sides: Sequence[Side]) -> bool:
    """Whether other sides still have the partition, and this one still has not."""
    replicas = [each.partition.path for each in found.paired.replicas.values()]
    name = replicas[0].as_absolute().name
    own = [
        each.log_directory.path / name
        for each in sides[found.side].directories
        if each.log_directory is not None
    ]
    return any(_is_there(each) for each in replicas) and not any(map(_is_there, own))


def _is_there(path: Location) -> bool:
    return path.kind() is EntryKind.DIRECTORY


def _missing_sides(
    paired: Paired, sides: Sequence[Side], image: ClusterImage | None
) -> Iterator[tuple[int, bool | None]]:
    """Yield the sides without a replica of a partition that deserve to be reported.

    With each comes whether the cluster's metadata says that its broker has a replica; None if it
    does not know the partition. Left out are sides whose replica cannot be read, and of three sides
    or more those that should not have a replica.
    """
    assigned = None if image is None or paired.key is None else image.partition(paired.key)
    for number, side in enumerate(sides):
        unreadable = {key for each in side.directories for key in each.unreadable}
        if number in paired.replicas or paired.key in unreadable:
            continue
        is_assigned = None
        if assigned is not None and side.node_id is not None:
            is_assigned = side.node_id in assigned.replicas
        if is_assigned or len(sides) == 2:
            yield number, is_assigned
