"""What retention and compaction would free, for a report: previews that read little.

Nothing is previewed for a directory after an unclean shutdown: a broker recovers its logs first,
and only then deletes and compacts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.errors import KdumpError
from kdump.jobs.compact.cleaning_queue import (
    CleaningState,
    QueuedPartition,
    QueueRequest,
    cleaning_queues,
)
from kdump.jobs.retain.old_segments import NotDeleted, PartitionDeletion, require_clean
from kdump.jobs.retain.retain import RetainRequest, retain
from kdump.log.directory import LogDirectory
from kdump.log.selection import PartitionSelection
from kdump.state.metadata.settings import DirectorySettings
from kdump.storage.location import Location
from kdump.words import counted


class FreeablePartition(Struct, frozen=True):
    """A partition in which a running broker would delete or rewrite something.

    Attributes:
        retention_bytes: what retention would delete now.
        cleanable_bytes: what the log cleaner would read and rewrite; at most so much is freed.
        cleaner_state: what the cleaner makes of it; None if it is not compacted.
    """

    log_dir: str
    directory: str
    topic: str
    log_bytes: int
    retention_bytes: int = 0
    cleanable_bytes: int = 0
    cleaner_state: CleaningState | None = None


class FreeableSpace(Struct, frozen=True):
    """What would be freed.

    Attributes:
        partitions: those with something to free.
        notes: what is not known, and why, in sentences.
        is_known: whether any directory was looked at.
    """

    partitions: tuple[FreeablePartition, ...]
    notes: tuple[str, ...]
    is_known: bool


def freeable_space(
    directories: Sequence[LogDirectory],
    settings: DirectorySettings,
    selection: PartitionSelection,
    now_ms: int,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> FreeableSpace:
    """Preview retention and compaction.

    Raises:
        KdumpError: the engine failed.
    """
    notes: list[str] = []
    clean = list(_clean(directories, notes))
    if not clean:
        return FreeableSpace((), tuple(notes), is_known=False)
    found: dict[Location, FreeablePartition] = {}
    request = RetainRequest(clean, settings, selection, now_ms)
    queues = QueueRequest(clean, settings, selection, now_ms=now_ms)
    try:
        deletions = [each for own in retain(request, options) for each in own.partitions]
        queued = [each for queue in cleaning_queues(queues, options) for each in queue.partitions]
    except (KdumpError, OSError) as failure:
        return FreeableSpace((), (*notes, f"cannot be previewed: {failure}"), is_known=False)
    for deletion in deletions:
        if deletion.freed_bytes:
            found[deletion.partition.path] = _of_deletion(deletion)
    for each in queued:
        if _cleanable_bytes(each):
            found[each.partition.path] = _with_cleaning(found.get(each.partition.path), each)
    notes += _unknown(deletions)
    return FreeableSpace(tuple(found.values()), tuple(notes), is_known=True)


def _clean(directories: Iterable[LogDirectory], notes: list[str]) -> Iterator[LogDirectory]:
    for each in directories:
        try:
            require_clean(each)
        except (KdumpError, OSError) as failure:
            notes.append(str(failure))
        else:
            yield each


def _of_deletion(deletion: PartitionDeletion) -> FreeablePartition:
    return FreeablePartition(
        str(deletion.directory.path),
        deletion.partition.path.name,
        deletion.topic_partition.topic,
        deletion.partition.log_bytes,
        retention_bytes=deletion.freed_bytes,
    )


def _cleanable_bytes(queued: QueuedPartition) -> int:
    return 0 if queued.view is None else queued.view.log.cleanable_bytes


def _with_cleaning(known: FreeablePartition | None, queued: QueuedPartition) -> FreeablePartition:
    return FreeablePartition(
        str(queued.directory.path),
        queued.partition.path.name,
        queued.key.topic,
        queued.partition.log_bytes,
        0 if known is None else known.retention_bytes,
        _cleanable_bytes(queued),
        queued.state,
    )


_EXPECTED: Final = frozenset({NotDeleted.INTERNAL, NotDeleted.COMPACTED})
"""Why most partitions of a sound directory keep their old segments."""


def _unknown(deletions: Iterable[PartitionDeletion]) -> Iterator[str]:
    """Why retention of some partitions is not known, once for each reason."""
    reasons = Counter(
        (each.unchanged.value, each.needed_options)
        for each in deletions
        if each.unchanged is not None and each.unchanged not in _EXPECTED
    )
    for (why, options), count in reasons.most_common():
        yield f"retention of {counted(count, 'partition')} is not previewed: {why}{options}"
