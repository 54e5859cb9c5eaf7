"""Whose replicas are compared: the directories that were named, by broker."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kdump.formats import names
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.words import counted


class NamedDirectory(Struct, frozen=True):
    """A directory from the command line.

    Attributes:
        name: as typed.
        partitions: its partitions; only one if it is a partition itself.
        log_directory: the log directory itself, or the one around the partition; None if that
            cannot be read.
        is_partition: whether it is a single partition.
    """

    name: str
    partitions: tuple[Partition, ...]
    log_directory: LogDirectory | None
    is_partition: bool = False

    @property
    def unreadable(self) -> set[TopicPartition]:
        """The partitions whose directories cannot be listed."""
        found = () if self.log_directory is None else self.log_directory.unreadable
        return {names.parse_partition_directory_name(name).topic_partition for name in found}

    def live_partitions(self) -> dict[TopicPartition | None, Partition]:
        """The partitions to compare: the live ones, and one that was named itself."""
        return {
            each.topic_partition: each
            for each in self.partitions
            if self.is_partition or each.state is PartitionState.LIVE
        }


class Side(Struct, frozen=True):
    """The directories of one broker, or of one copy of them.

    Attributes:
        directories: in the order in which they were named.
    """

    directories: tuple[NamedDirectory, ...]

    @property
    def node_id(self) -> int | None:
        """The broker; None if the directories do not say."""
        found = self.directories[0].log_directory
        return None if found is None else found.node_id


def sides_of(directories: Sequence[NamedDirectory]) -> list[Side]:
    """Group directories into sides.

    The log directories of one broker (``node.id`` and ``cluster.id`` of ``meta.properties``) are
    one side, unless one is a copy of another one: has the same ``directory.id``, or without these
    a live partition of the same name. Then the copies are a side of their own. Directories that do
    not name a broker are a side each, and so are single partitions, except that those in one
    directory belong together, unless they are the only two.
    """
    if len(directories) == 2 and all(each.is_partition for each in directories):
        return [Side((each,)) for each in directories]
    sides: list[list[NamedDirectory]] = []
    for directory in directories:
        for side in sides:
            if all(_belong_together(directory, other) for other in side):
                side.append(directory)
                break
        else:
            sides.append([directory])
    return [Side(tuple(side)) for side in sides]


def _belong_together(one: NamedDirectory, other: NamedDirectory) -> bool:
    if one.live_partitions().keys() & other.live_partitions().keys():
        return False
    if one.log_directory is None or other.log_directory is None:
        return False
    if one.is_partition and other.is_partition:
        return one.log_directory.path == other.log_directory.path
    mine, theirs = one.log_directory.meta_properties, other.log_directory.meta_properties
    if mine is None or theirs is None or mine.node_id is None:
        return False
    is_same_broker = (mine.cluster_id, mine.node_id) == (theirs.cluster_id, theirs.node_id)
    is_copy = mine.directory_id is not None and mine.directory_id == theirs.directory_id
    return is_same_broker and not is_copy


def side_names(sides: Sequence[Side]) -> list[str]:
    """Name each side: by its broker if no other side has it, otherwise by its directories."""
    ids = [side.node_id for side in sides]
    return [
        f"broker {node_id}"
        if node_id is not None and ids.count(node_id) == 1
        else _directories_name(side)
        for side, node_id in zip(sides, ids, strict=True)
    ]


def _directories_name(side: Side) -> str:
    first, *others = side.directories
    return f"{first.name} and {counted(len(others), 'other')}" if others else first.name
