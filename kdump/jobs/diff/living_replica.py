"""A replica whose broker changes it while it is compared.

It is compared up to where it ended when the comparison began. What it lacks before that offset is a
difference only if neither retention nor the cleaner can have removed it before it was reached.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from kdump.errors import KdumpError
from kdump.jobs.diff.replica_log import ReplicaLog
from kdump.log.living import Glimpse, settled_glimpse_of, while_it_changes
from kdump.log.living_windows import living_windows_from
from kdump.log.log_search import Trust, log_end
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage
from kdump.scan.batches import Window
from kdump.storage.location import Location, StoredFile


class ReplicaGoneError(KdumpError):
    """A broker has deleted or moved the replica."""


class ReplicaChangedError(KdumpError):
    """The log ends sooner than it did, or is another one: what was compared does not count."""


class LivingReplica(Struct, frozen=True):
    """A replica when the comparison began.

    Attributes:
        end_offset: after the last valid batch.
    """

    partition: Partition
    end_offset: int


def living_replica(listed: Partition) -> LivingReplica:
    """Find out how far a log reaches that its broker is using.

    Raises:
        ReplicaGoneError: it is not there any more.
        OSError: it cannot be read.
    """
    now = _glimpse(listed)
    end = while_it_changes(now.partition, lambda each: log_end(each, Trust.CHECKSUMS), gone=None)
    if end is None:
        raise ReplicaGoneError(str(listed.path))
    return LivingReplica(now.partition, end.offset)


def _glimpse(partition: Partition) -> Glimpse:
    found = settled_glimpse_of(partition)
    if found is None:
        raise ReplicaGoneError(str(partition.path))
    return found


class LivingReplicaLog(ReplicaLog):
    """The log of such a replica."""

    def __init__(
        self,
        replica: LivingReplica,
        start_offset: int,
        read_from: int,
        largest_record_bytes: int,
        *,
        cleaned_to: int | None,
        limit: int,
    ) -> None:
        """Begin to read.

        Args:
            cleaned_to: None if the cleaner may remove records from all segments but the last.
        """
        self._replica = replica
        self._is_cleaned = cleaned_to is None
        self._giants = dict[Location, tuple[int | str, ...] | None]()
        super().__init__(
            replica.partition,
            start_offset,
            read_from,
            largest_record_bytes,
            cleaned_to=cleaned_to or 0,
            limit=limit,
        )

    def look_again(self) -> bool:
        """Find out where the log begins by now, and what the cleaner may have passed.

        Raises:
            ReplicaGoneError: it is not there any more.
            OSError: it cannot be listed.
        """
        segments = _glimpse(self._replica.partition).partition.segments
        if segments:
            self.start_offset = max(self.start_offset, segments[0].base_offset)
        if segments and self._is_cleaned:
            self.cleaned_to = max(self.cleaned_to, segments[-1].base_offset)
        return True

    def require_unchanged(self) -> None:
        """Find out that the log was only appended to, compacted, or shortened at its beginning.

        Raises:
            ReplicaGoneError: it is not there any more.
            ReplicaChangedError: it was truncated, or replaced.
            OSError: it cannot be read.
        """
        before, now = self._replica, living_replica(self._replica.partition)
        is_same = before.partition.known_topic_id in (None, now.partition.known_topic_id)
        if now.end_offset < before.end_offset or not is_same:
            raise ReplicaChangedError(f"{before.partition.path}: it changes while it is compared")

    def _windows(self, partition: Partition) -> Iterator[Window | Damage]:
        end_offset = self._replica.end_offset
        for step in living_windows_from(partition.path, self._read_from, end_offset):
            if isinstance(step, Window) and step.is_giant:
                assert isinstance(step.source, StoredFile)
                self._giants[step.source.location] = _file_of(step.source)
            yield step

    def _least_end(self, partition: Partition) -> int:
        return self._replica.end_offset

    def _opened_again(self, path: Location) -> StoredFile:
        source = super()._opened_again(path)
        if _file_of(source) != self._giants[path]:
            source.close()
            raise ReplicaChangedError(f"{path}: it was replaced while it was read")
        return source


def _file_of(source: StoredFile) -> tuple[int | str, ...] | None:
    """Which file it is, whatever is appended to it."""
    identity = source.identity()
    return None if identity is None else identity[:2]
