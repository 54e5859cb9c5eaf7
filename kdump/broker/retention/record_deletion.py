"""Raising a partition's log start offset, as the request DeleteRecords does.

Follows ``Partition.deleteRecordsOnLeader``, and the next look for old segments, which then deletes
those that lie below.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kdump.broker.retention.retention import below_log_start
from kdump.broker.retention.retention_outcome import LoadedLog, RetainedPartition
from kdump.errors import KdumpError
from kdump.state.settings import TopicSettings

TO_HIGH_WATERMARK: Final = -1
"""In place of an offset: all that is replicated (``DeleteRecordsRequest.HIGH_WATERMARK``)."""


class RecordsNotDeletableError(KdumpError):
    """Records that a broker would refuse to delete."""


def without_records_before(
    loaded: LoadedLog, settings: TopicSettings, offset: int
) -> RetainedPartition:
    """The partition once the records before ``offset`` are deleted.

    An offset below where the log begins already changes nothing.

    Raises:
        RecordsNotDeletableError: the topic is only compacted, or the offset is above the high
            watermark, or no offset.
    """
    name = loaded.path.name
    if settings.is_compacted and not settings.is_deleted:
        raise RecordsNotDeletableError(
            f"{name}: the topic is only compacted, and its records cannot be deleted by offset"
        )
    log = loaded.log
    wanted = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if wanted < 0:
        raise RecordsNotDeletableError(f"{name}: {offset} is no offset")
    if wanted > log.high_watermark:
        why = "" if log.has_high_watermark else ", as replication-offset-checkpoint has no line"
        raise RecordsNotDeletableError(
            f"{name}: offset {offset} is above the high watermark, which is"
            f" {log.high_watermark}{why}"
        )
    start = max(wanted, log.log_start_offset)
    count = below_log_start(replace(log, log_start_offset=start))
    return loaded.delete_first(count, start)
