"""Delete records before an offset, as the request DeleteRecords does.

Follows ``Partition.deleteRecordsOnLeader``, which raises the log start offset, and the next check
for old segments, which deletes those below it.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kdump.broker.retention.retention import below_log_start
from kdump.broker.retention.retention_outcome import LoadedLog, RetainedPartition
from kdump.errors import KdumpError
from kdump.state.metadata.settings import TopicSettings

TO_HIGH_WATERMARK: Final = -1
"""Instead of an offset: the high watermark (``DeleteRecordsRequest.HIGH_WATERMARK``)."""


class RecordsNotDeletableError(KdumpError):
    """Records that a broker would refuse to delete."""


def without_records_before(
    loaded: LoadedLog, settings: TopicSettings, offset: int
) -> RetainedPartition:
    """The partition after deleting the records before ``offset``.

    An offset at or below the log start offset changes nothing.

    Raises:
        RecordsNotDeletableError: the topic is only compacted, or the offset is above the high
            watermark, or negative.
    """
    name = loaded.path.name
    if settings.is_compacted and not settings.is_deleted:
        raise RecordsNotDeletableError(
            f"{name}: the topic is only compacted, and its records cannot be deleted by offset"
        )
    log = loaded.log
    start_offset = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if start_offset < 0:
        raise RecordsNotDeletableError(f"{name}: {offset} is not an offset")
    if start_offset > log.high_watermark:
        why = "" if log.has_high_watermark else ", as replication-offset-checkpoint has no line"
        raise RecordsNotDeletableError(
            f"{name}: offset {offset} is above the high watermark, which is"
            f" {log.high_watermark}{why}"
        )
    start = max(start_offset, log.log_start_offset)
    count = below_log_start(replace(log, log_start_offset=start))
    return loaded.delete_first(count, start)
