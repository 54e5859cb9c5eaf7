"""What is read without the remote segments that it has: whoever reads it is told."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kdump.errors import KdumpError
from kdump.formats.names import CLUSTER_METADATA_PARTITION, PartitionState
from kdump.log.directory import DirectoryKind, LogDirectory, read_log_directory
from kdump.log.log_search import checkpointed
from kdump.log.partition import Partition
from kdump.state.metadata.settings import read_settings
from kdump.tiered.tiered_storage import TieredStorage
from kdump.words import counted


def left_in_tier(directory: LogDirectory, partitions: Iterable[Partition]) -> str | None:
    """Say which partitions of a log directory begin before their local log; None if none does.

    Whether they have tiered storage is known if the cluster's metadata is in the same directory.

    Args:
        directory: the log directory; nothing is said of one with its remote segments.
        partitions: of it, to be read.
    """
    is_local = not isinstance(directory.path.storage, TieredStorage)
    if directory.kind is not DirectoryKind.LOG_DIRECTORY or not is_local:
        return None
    starts = directory.checkpoints.log_start_offsets
    found = [
        (each, begin)
        for each in partitions
        if each.state is PartitionState.LIVE
        and each.segments
        and (begin := checkpointed(starts, each)) is not None
        and begin < each.segments[0].base_offset
    ]
    # The checkpoint of any topic can be old after a crash, and while a broker runs.
    is_remote = _remote_topics(directory, {_topic(each) for each, _ in found})
    found = [(each, begin) for each, begin in found if is_remote.get(_topic(each), True)]
    if not found:
        return None
    first, begin = min(found, key=lambda each: each[0].path.name)
    is_known = all(_topic(each) in is_remote for each, _ in found)
    which = "with" if is_known else "that may have"
    return (
        f"{directory.path}: {counted(len(found), 'partition')} {which} remote.storage.enable read"
        f" without tiered storage (first: {first.path.name}, offsets {begin} to"
        f" {first.segments[0].base_offset - 1} are not local): --remote URI reads them, too"
    )


def _topic(partition: Partition) -> str:
    assert partition.topic_partition is not None, "only partitions are in a checkpoint"
    return partition.topic_partition.topic


def _remote_topics(directory: LogDirectory, topics: Collection[str]) -> dict[str, bool]:
    """Whether each topic has remote storage, by the metadata in the directory; only known ones."""
    if not topics:
        return {}
    metadata = str(CLUSTER_METADATA_PARTITION)
    try:
        alone = read_log_directory(
            directory.path, directory.kind, select=lambda name, _key: name == metadata
        )
        settings = read_settings([alone])[directory.path]
        listed = filter(settings.is_listed, topics)
        return {each: settings.topic(each).remote_storage_enable for each in listed}
    except (OSError, KdumpError):
        return {}
