"""Judge how bad it is that offsets are missing between the batches of a log.

A leader gives every record the next offset, and a broker begins a segment at the end of the one
before (``UnifiedLog.append``, ``LocalLog.roll``). Later only the cleaner removes batches from the
middle of a log; retention and DeleteRecords remove them from its start. So in a log that was never
compacted, missing offsets are lost records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from kdump.check.findings import Finding, Severity
from kdump.check.scope import PartitionScope
from kdump.formats import names


class Gap(Struct, frozen=True):
    """Missing offsets whose severity is not known yet.

    Attributes:
        finding: has the place.
        first_base_offset: of the first segment that may have had the offsets.
        last_base_offset: of the last such segment.
    """

    finding: Finding
    first_base_offset: int
    last_base_offset: int


def judged_gaps(
    gaps: Iterable[Gap], scope: PartitionScope, *, is_thinned: bool
) -> Iterator[Finding]:
    """Give the findings about gaps their severity.

    Args:
        is_thinned: whether its batches show that it was compacted.
    """
    quarantined = quarantined_bases(scope.partition.foreign)
    severity = Severity.INFO if is_thinned else scope.gap_severity
    for gap in gaps:
        finding = gap.finding
        if is_known(gap.first_base_offset, gap.last_base_offset, quarantined):
            ending, loss, own = "; known since kdump salvaged the log", None, Severity.INFO
        elif severity is Severity.INFO:
            ending, loss, own = ", as compaction leaves it", None, severity
        elif severity is Severity.WARNING:
            ending = "; whether the topic is compacted, which leaves such gaps, is not known"
            loss, own = "these records, unless they were compacted away", severity
        else:
            ending, loss, own = ", and the topic is not compacted", "these records", severity
        yield replace(finding, what=finding.what + ending, loss=loss, severity=own)


def quarantined_bases(file_names: Iterable[str]) -> list[int]:
    """Base offsets of the logs from which salvage quarantined data, or noted that it is missing.

    Args:
        file_names: of the partition's directory.
    """
    logs = map(names.quarantined_from, file_names)
    offsets = [names.leading_offset(log) for log in logs if log is not None]
    return [offset for offset in offsets if offset is not None]


def is_known(first_base_offset: int, last_base_offset: int, quarantined: Iterable[int]) -> bool:
    """Whether salvage dealt with a gap: it quarantined data in a log where the gap may be."""
    return any(first_base_offset <= base <= last_base_offset for base in quarantined)
