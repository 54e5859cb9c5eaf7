"""What loading a partition comes to, where the checks have shown it already.

To predict what a broker does, its loader's rules are gone through over the same bytes once more,
every checksum of what was not flushed included. Where the checks found nothing wrong with any of
it, that can be spared: the outcome is known. Whatever is not plain is left to the rules.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Final

from kdump.broker.loader.loader import LoadContext
from kdump.check.findings import Severity
from kdump.check.part import Level
from kdump.check.partition import PartitionCheck
from kdump.formats import time_index
from kdump.formats.names import FileKind, OffsetFileName
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.repair.verdict import Verdict, harmless_verdict

_LARGEST_LOG_BYTES: Final = 2**31 - 1


def is_plain(partition: Partition, context: LoadContext, level: Level) -> bool:
    """Whether the checks of a partition may show what loading it comes to.

    Args:
        partition: which; nothing is read.
        context: what loading depends on besides.
        level: how far the checks go: what was not flushed is loaded by its checksums.
    """
    return (
        not partition.is_cluster_metadata  # which has rules of its own
        and (context.is_clean or level > Level.QUICK)
        and bool(partition.segments)
        and not partition.leftovers
        and not partition.foreign
        and all(_is_plain(segment, context) for segment in partition.segments)
    )


def _is_plain(segment: Segment, context: LoadContext) -> bool:
    """Whether the size of a segment, its indexes and its name raise no question."""
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
    """The verdict on a partition that loads without anything being cut, dropped or put right.

    Args:
        check: of the partition, which is plain; it has to be through.
        worst: of what was found in it, and what its directory's checkpoints say of it.
        context: what loading depends on besides.

    Returns:
        What the loader's rules would come to; None where only they can tell.
    """
    if worst is not None and worst > Severity.INFO:
        return None
    # Transactions are taken over from segment to segment, and what wraps messages of old is
    # looked into, by rules that the checks do not know all of.
    if check.has_transactions or check.has_legacy:
        return None
    if context.log_start_offset > check.end_offset:
        return None
    bases = [segment.base_offset for segment in check.scope.partition.segments]
    unclean = [] if context.is_clean else _from(bases, context.recovery_point)
    return harmless_verdict(unclean, bases[-1])


def _from(bases: Sequence[int], offset: int) -> Sequence[int]:
    """The segments from the one on that holds ``offset``."""
    return bases[max(0, bisect.bisect_right(bases, offset) - 1) :]
