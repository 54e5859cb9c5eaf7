"""The remote part of each partition, found out when it is first asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kdump.errors import KdumpError, UsageProblem, reason_of
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.errors import FormatError
from kdump.formats.names import (
    LOG_START_OFFSET_CHECKPOINT,
    PartitionState,
    TopicPartition,
    parse_partition_directory_name,
)
from kdump.formats.remote_names import TopicIdPartition
from kdump.log.partition import read_partition
from kdump.log.remote_files import (
    RemoteListing,
    RemotePlace,
    find_root,
    list_remote_partitions,
    list_remote_segments,
)
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location, Storage
from kdump.tiered.aiven_storage import AivenStorage, has_aiven_objects
from kdump.tiered.remote_partition import RemotePart, plan_partition, topic_id_of

if TYPE_CHECKING:
    from kdump.tiered.remote_metadata import RemoteMetadata

NOTHING: Final = RemotePart({})
"""The plan of a directory that is no partition, or has no remote segments."""


class RemotePlans:
    """The plans of the partitions of log directories; each is made once.

    Attributes:
        remote: the directory of all remote partitions.
    """

    def __init__(self, base: Storage, remote: Location, log_dirs: tuple[Location, ...]) -> None:
        self._base = base
        self._log_dirs = log_dirs
        self._plans: dict[str, RemotePart] = {}
        self._partitions: dict[TopicPartition, list[TopicIdPartition]] | None = None
        self._metadata: RemoteMetadata | None = None
        self._with_segments: dict[TopicPartition, list[TopicIdPartition]] | None = None
        self._checkpointed: dict[Location, Mapping[TopicPartition, int]] = {}
        self.remote = remote

    def partitions(self) -> dict[TopicPartition, list[TopicIdPartition]]:
        """The remote partitions by name; several if a topic was created again.

        Raises:
            OSError: they cannot be listed.
        """
        if self._partitions is None:
            found = defaultdict[TopicPartition, list[TopicIdPartition]](list)
            for each in sorted(list_remote_partitions(self.remote)):
                found[each.topic_partition].append(each)
            self._partitions = dict(found)
        return self._partitions

    def metadata(self) -> RemoteMetadata:
        """What ``__remote_log_metadata`` says.

        Raises:
            KdumpError: it cannot be loaded.
            OSError: it cannot be read.
        """
        if self._metadata is None:
            # Decoding records takes packages that are slow to import.
            from kdump.tiered.remote_metadata import read_remote_metadata

            self._metadata = read_remote_metadata(self._log_dirs)
        return self._metadata

    def of(self, path: str) -> RemotePart:
        """The plan of a partition, by the path of its directory.

        Raises:
            KdumpError: ``__remote_log_metadata`` cannot be loaded.
            OSError: something cannot be read.
        """
        plan = self._plans.get(path)
        if plan is None:
            plan = self._plans[path] = self._planned(Location(self._base, path))
        return plan

    def _planned(self, path: Location) -> RemotePart:
        try:
            parsed = parse_partition_directory_name(path.name or path.as_absolute().name)
        except FormatError:
            return NOTHING
        listed = self.partitions().get(parsed.topic_partition, [])
        candidates = {*listed, *self._known(parsed.topic_partition)}
        if parsed.state is not PartitionState.LIVE or not candidates:
            return NOTHING
        local = read_partition(path, parsed.topic_partition)
        topic_id = topic_id_of(local)
        # Without an id it is the only topic of that name, or nobody can tell.
        chosen = [each for each in candidates if topic_id in (None, each.topic_id)]
        if topic_id is None and len(chosen) != 1:
            return NOTHING
        # None of that id: then offsets before the local log are missing, if it should have any.
        key = chosen[0] if chosen else TopicIdPartition(parsed.topic_partition, str(topic_id))
        at = self.remote / str(key)
        listing = list_remote_segments(at) if key in listed else RemoteListing(at, {}, ())
        known = self.metadata().partitions.get(key)
        log_starts = self._log_starts(path.as_absolute().parent)
        return plan_partition(local, listing, known, log_starts.get(parsed.topic_partition))

    def _known(self, key: TopicPartition) -> list[TopicIdPartition]:
        """The partitions of this name that should have segments, by their metadata."""
        if self._with_segments is None:
            self._with_segments = defaultdict(list)
            for each, segments in self.metadata().partitions.items():
                if segments.segments and each not in self.metadata().deleted:
                    self._with_segments[each.topic_partition].append(each)
        return self._with_segments.get(key, [])

    def _log_starts(self, log_dir: Location) -> Mapping[TopicPartition, int]:
        """Where the logs of a directory begin, as far as that was checkpointed."""
        if log_dir not in self._checkpointed:
            try:
                data = (log_dir / LOG_START_OFFSET_CHECKPOINT).read()
                self._checkpointed[log_dir] = dict(decode_offset_checkpoint(data))
            except (OSError, FormatError):
                self._checkpointed[log_dir] = {}  # whoever lists the directory says so
        return self._checkpointed[log_dir]


def find_remote_root(place: RemotePlace) -> Location:
    """Find the directory of all remote partitions.

    Raises:
        KdumpError: there are no remote segments, or they cannot be listed.
    """
    try:
        root = find_root(place.location)
        if root is not None:
            return root
        if has_aiven_objects(place.location):
            return Location(AivenStorage(place.location, place.private_key), "/")
    except OSError as failure:
        raise KdumpError(f"{place}: {reason_of(failure)}") from failure
    raise UsageProblem(
        f"{place}: no remote segments: name the directory of LocalTieredStorage (with"
        " kafka-tiered-storage), or the prefix of the objects of Aiven's plugin"
    )


def remote_plans(place: RemotePlace, log_dirs: tuple[Location, ...]) -> RemotePlans:
    """The remote segments at a place, and their metadata in log directories.

    Raises:
        KdumpError: there are no remote segments, or they cannot be listed.
    """
    return RemotePlans(LOCAL_DISK, find_remote_root(place), log_dirs)
