"""Find the replicas of each partition on all sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from kdump.broker.loader.load_context import LoadContext, load_context
from kdump.formats.names import TopicPartition
from kdump.jobs.diff.diff import DiffSplit, ReplicaToCompare
from kdump.jobs.diff.sides import NamedDirectory, Side
from kdump.jobs.loading.load_split import is_topic_compacted
from kdump.log.broker import needs_partition_metadata
from kdump.log.directory import LogDirectory
from kdump.log.lock_holders import ReadAs, in_use_by
from kdump.log.partition import Partition
from kdump.log.selection import PartitionSelection
from kdump.state.metadata.settings import DirectorySettings


class PlacedReplica(Struct, frozen=True):
    """A replica and where it is.

    Attributes:
        directory: the directory that was named.
    """

    partition: Partition
    directory: NamedDirectory


class Paired(Struct, frozen=True):
    """A partition and its replicas.

    Attributes:
        key: the partition; None for copies whose directories are not named after one.
        replicas: by the number of the side; at least one.
        is_one_topic: whether they are compared whatever their topic ids are.
    """

    key: TopicPartition | None
    replicas: Mapping[int, PlacedReplica]
    is_one_topic: bool = False


def pair(sides: Sequence[Side], selection: PartitionSelection) -> list[Paired]:
    """Find the selected partitions of all sides, by name.

    If directories of partitions were named, only these partitions are compared. If they are just
    two, they are compared whatever their names are.
    """
    named = [each for side in sides for each in side.directories]
    singles = [each for each in named if each.is_partition]
    if len(singles) == len(named) == 2:
        placed = dict(enumerate(PlacedReplica(each.partitions[0], each) for each in named))
        if not any(each.partition in selection for each in placed.values()):
            return []
        return [Paired(placed[0].partition.topic_partition, placed, is_one_topic=True)]
    wanted = {each.partitions[0].topic_partition for each in singles}
    found: dict[TopicPartition | None, dict[int, PlacedReplica]] = {}
    for number, side in enumerate(sides):
        for directory in side.directories:
            for key, partition in directory.live_partitions().items():
                if partition in selection and (not wanted or key in wanted):
                    found.setdefault(key, {})[number] = PlacedReplica(partition, directory)
    keys = sorted(found, key=lambda key: (key is None, key))
    return [Paired(key, found[key]) for key in keys]


def diff_split(
    paired: Paired,
    settings: DirectorySettings,
    largest_record_bytes: int,
    reading: ReadAs = ReadAs.AS_FOUND,
) -> DiffSplit:
    """The split of a partition with two replicas or more.

    Args:
        largest_record_bytes: larger records of compressed batches are not decoded.
        reading: whether to read its replicas as ones that their brokers are using.

    Raises:
        InvalidSettingError: a property of its topic has a value that Kafka does not take.
    """
    replicas = sorted(paired.replicas.items())
    first = replicas[0][1].partition
    return DiffSplit(
        first.path,
        size_bytes=sum(each.partition.data_bytes for _, each in replicas),
        label=first.path.as_absolute().name,
        key=paired.key,
        replicas=tuple(_to_compare(side, placed, settings, reading) for side, placed in replicas),
        is_one_topic=paired.is_one_topic,
        largest_record_bytes=largest_record_bytes,
    )


def _to_compare(
    side: int, placed: PlacedReplica, settings: DirectorySettings, reading: ReadAs
) -> ReplicaToCompare:
    partition, directory = placed.partition, placed.directory.log_directory
    name = partition.path.as_absolute().name
    key = partition.topic_partition
    if directory is None or key is None:
        # Nothing says how far the log was flushed: what is in it is taken as it is.
        return ReplicaToCompare(
            side,
            partition.path,
            name,
            LoadContext(is_clean=True),
            has_root=False,
            reading=reading,
        )
    is_compacted = is_topic_compacted(settings[directory.path], key.topic)
    cleaned = directory.checkpoints.cleaner_offsets
    cleaned_to = 0 if cleaned is None else cleaned.get(key, 0)
    if cleaned is None and is_compacted and partition.segments:
        cleaned_to = partition.segments[-1].base_offset
    return ReplicaToCompare(
        side,
        partition.path,
        name,
        load_context(directory, key, is_compacted=is_compacted),
        has_root=directory.checkpoints.high_watermarks is not None,
        cleaned_to=cleaned_to,
        needs_topic_id=needs_partition_metadata(directory) and not partition.is_cluster_metadata,
        reading=_reading(directory, reading),
        may_be_compacted=is_compacted is not False and not partition.is_cluster_metadata,
    )


def _reading(directory: LogDirectory, reading: ReadAs) -> ReadAs:
    """How to read a replica: as living if its directory was locked when it was listed."""
    is_living = reading is ReadAs.AS_FOUND and in_use_by(directory.path) is not None
    return ReadAs.LIVING if is_living else reading
