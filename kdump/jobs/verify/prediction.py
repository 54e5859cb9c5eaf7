"""Predict the outcome of loading a partition from the checks alone.

To predict what a broker does, the loader's rules would have to read the same bytes once more, with
the checksums of everything that was not flushed. If the checks found nothing wrong the outcome is
known without that. Partitions that are not plain are left to the rules.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Final

from kdump.broker.loader.load_context import LoadContext
from kdump.check.findings import Severity
from kdump.check.part import Level
from kdump.check.partition import PartitionCheck
from kdump.formats import time_index
from kdump.formats.names import FileKind, OffsetFileName, PartitionState
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.repair.verdict.verdict import Verdict, harmless_verdict

_LARGEST_LOG_BYTES: Final = 2**31 - 1


def is_plain(partition: Partition, context: LoadContext, level: Level) -> bool:
    """Whether the checks of a partition can be enough to predict the outcome of loading it.

    Args:
        partition: the partition; nothing is read.
        context: what loading depends on besides.
        level: of the checks: loading verifies the checksums of what was not flushed.
    """
    return (
        not partition.is_cluster_metadata  # which has rules of its own
        and partition.state is not PartitionState.DELETE  # some of its files are not checked
        and (context.is_clean or level > Level.QUICK)
        and bool(partition.segments)
        and not partition.leftovers
        and not partition.foreign
        and all(_is_plain(segment, context) for segment in partition.segments)
    )


def _is_plain(segment: Segment, context: LoadContext) -> bool:
    """Whether the sizes of a segment and its indexes and their names are as usual."""
    settings = context.settings
    largest_index_bytes = settings.max_bytes // time_index.ENTRY_BYTES * time_index.ENTRY_BYTES
    # Each entry of a rebuilt index stands for more bytes than the interval.
    entries = segment.log_bytes // (settings.interval_bytes + 1) + 2
    return (
        segment.log_name == str(OffsetFileName(segment.base_offset, FileKind.LOG))
        and segment.log_bytes <= _LARGEST_LOG_BYTES
        and entries * time_index.ENTRY_BYTES < largest_index_bytes
        and (segment.offset_index_bytes or 0) <= settings.max_bytes
        and (segment.time_index_bytes or 0) <= settings.max_bytes
        and not segment.transaction_index_bytes
    )


def verdict_of_checks(
    check: PartitionCheck, worst: Severity | None, context: LoadContext
) -> Verdict | None:
    """The verdict on a plain partition that loads without a cut, a deletion or a repair.

    Args:
        check: of the partition; must be complete.
        worst: the worst severity of its findings.
        context: what loading depends on besides.

    Returns:
        The verdict that the loader's rules would give; None if they have to be applied.
    """
    if worst is not None and worst > Severity.INFO:
        return None
    # The loader carries transactions from segment to segment, and looks into wrapped messages of
    # old formats, by rules that the checks do not have.
    if check.has_transactions or check.has_legacy:
        return None
    if context.log_start_offset > check.end_offset:
        return None
    bases = [segment.base_offset for segment in check.scope.partition.segments]
    return harmless_verdict(recovered_bases(bases, context), bases[-1])


def recovered_bases(bases: Sequence[int], context: LoadContext) -> Sequence[int]:
    """The base offsets of the segments that a broker recovers because they were not flushed."""
    if context.is_clean:
        return ()
    return bases[max(0, bisect.bisect_right(bases, context.recovery_point) - 1) :]
