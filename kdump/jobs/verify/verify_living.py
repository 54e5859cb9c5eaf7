"""Verify a partition that a broker is using.

It is checked as any other, and its directory is listed before and after. A finding counts if what
it is about was the same both times, and if nothing that a broker does can look like it. Otherwise
the partition is read again, and only what changed of it. What moves all the time is not judged:
the end of the log, files that are not finished, and what a starting broker would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from kdump.check import invariants
from kdump.check.batches import SegmentScope
from kdump.check.directory import unreadable
from kdump.check.findings import Finding, Severity
from kdump.check.part import ByteAccount, SegmentPart
from kdump.check.scope import PartitionScope
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.jobs.verify.verify_partition import (
    OF_PARTITIONS,
    UNSETTLED,
    PartitionEvents,
    PartitionReport,
    PartitionRun,
    PartitionSplit,
    SegmentSplit,
    VerifyJob,
)
from kdump.log.living import Glimpse, SegmentStamps, glimpse_of, is_unreadable
from kdump.log.segment import Segment
from kdump.log.settled_listing import ATTEMPTS
from kdump.storage.local_disk import local
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory

NOT_JUDGED: Final = "not-judged"
GONE: Final = "gone"
_SENTENCES: Final = {
    NOT_JUDGED: "what a starting broker would do is not judged: it is read as in use",
    UNSETTLED: (
        "it kept changing while it was read: some of its files, and what a starting broker would"
        " do, are not judged"
    ),
    GONE: "it was deleted or renamed before it was read",
}

OF_LOGS: Final = frozenset(
    {
        invariants.TORN_TAIL.code,
        invariants.ZERO_FILL.code,
        invariants.BATCH_LENGTH.code,
        invariants.BATCH_CHECKSUM.code,
        invariants.BATCH_MAGIC.code,
        invariants.BATCH_HEADER.code,
        invariants.BATCH_FEW_OFFSETS.code,
        invariants.BATCH_OFFSET_ORDER.code,
        invariants.BATCH_OUTSIDE_SEGMENT.code,
        invariants.BATCH_OFFSET_OVERFLOW.code,
        invariants.BATCH_CODEC.code,
        invariants.BATCH_FILL.code,
        invariants.BATCH_NOT_DECODED.code,
        invariants.RECORD_MALFORMED.code,
        invariants.RECORD_OFFSETS.code,
        invariants.BATCH_MAX_TIMESTAMP.code,
        invariants.FUTURE_TIMESTAMP.code,
        invariants.CONTROL_RECORD.code,
    }
)
"""What a log says alone: true of the last segment too, before its last batch."""
OF_SEGMENTS: Final = frozenset(
    {
        invariants.INDEX_MISSING.code,
        invariants.INDEX_SIZE.code,
        invariants.INDEX_PADDING.code,
        invariants.OFFSET_INDEX_ORDER.code,
        invariants.OFFSET_INDEX_POSITION.code,
        invariants.OFFSET_INDEX_OFFSET.code,
        invariants.TIME_INDEX_ORDER.code,
        invariants.TIME_INDEX_ENTRY.code,
        invariants.TIME_INDEX_LAST.code,
        invariants.TRANSACTION_INDEX_VERSION.code,
    }
)
"""What the files of one closed segment say."""
_OF_FILES: Final = frozenset(
    {
        invariants.SNAPSHOT_CHECKSUM.code,
        invariants.SNAPSHOT_MALFORMED.code,
        invariants.EPOCHS_MALFORMED.code,
        invariants.PARTITION_METADATA_MALFORMED.code,
        invariants.METADATA_SNAPSHOT_DAMAGED.code,
        invariants.FOREIGN_FILE.code,
        invariants.KDUMP_FILE.code,
        invariants.FILE_UNREADABLE.code,
    }
)
"""What one file says that is written once, or replaced by a rename."""
_OF_ROOTS: Final = frozenset(
    {
        invariants.CHECKPOINT_MALFORMED.code,
        invariants.DIRECTORY_REFUSED.code,
        invariants.DIRECTORY_MISNAMED.code,
        invariants.FOREIGN_FILE.code,
        invariants.KDUMP_FILE.code,
        invariants.FILE_PERMISSIONS.code,
        invariants.SYMBOLIC_LINK.code,
        invariants.FILE_UNREADABLE.code,
    }
)
"""What a log directory says that does not depend on when it is read."""

_Key = tuple[SegmentScope, SegmentStamps]


def root_findings(directory: LogDirectory, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Those findings about a log directory that no broker makes by using it."""
    for each in findings:
        if each.code not in _OF_ROOTS:
            continue
        at = replace(directory.path, path=each.place.path)
        if each.code == invariants.FILE_UNREADABLE.code and not is_unreadable(at):
            continue
        yield each


class LivingSplit(PartitionSplit, frozen=True, kw_only=True):
    """A whole partition that a broker is using: its own findings, then the report."""

    def events_alone(self, job: VerifyJob) -> PartitionEvents:
        try:
            return _Living(job, self.scope).events()
        except OSError as failure:
            # Its directory is there, and cannot be listed.
            found = unreadable(self.scope.partition.path, failure)
            return found, _report(_empty_report(self.scope), [found], NOT_JUDGED)


class _Living:
    """The attempts to read a partition.

    Attributes:
        known: what was read of segments that have not changed since.
        doubted: findings about the last segment: they count if they are found again.
    """

    def __init__(self, job: VerifyJob, scope: PartitionScope) -> None:
        self.job = job
        self.scope = scope
        self.known: dict[_Key, SegmentPart] = {}
        self.doubted: frozenset[Finding] = frozenset()

    def events(self) -> PartitionEvents:
        before = glimpse_of(self.scope.partition)
        kept: list[Finding] = []
        report, kind = _empty_report(self.scope), GONE
        leftovers = 0
        for _ in range(ATTEMPTS):
            if before is None:
                break
            found, report, read = self._checked(before)
            after = glimpse_of(self.scope.partition)
            if after is None:
                kept, report, kind = [], _empty_report(self.scope), GONE
                break
            leftovers = 0 if before.files != after.files else after.leftover_count
            wanted = [each for each in found if _can_be_judged(each, before)]
            kept = [each for each in wanted if self._is_kept(each, before, after)]
            kind = NOT_JUDGED if len(kept) == len(wanted) else UNSETTLED
            if kind == NOT_JUDGED:
                break
            report = replace(
                report,
                read_bases=tuple(
                    each for each in report.read_bases if before.has_kept_segment(each, after)
                ),
            )
            self.doubted = frozenset(found)
            self.known = {
                key: part
                for key, part in read.items()
                if before.has_kept_segment(key[0].base_offset, after)
            }
            before = after
        return *kept, _report(report, kept, kind, leftovers)

    def _checked(
        self, glimpse: Glimpse
    ) -> tuple[list[Finding], PartitionReport, dict[_Key, SegmentPart]]:
        """Check the partition as it is listed."""
        scope = _scope_at(self.scope, glimpse)
        pieces = list(scope.segment_scopes())
        keys = [(each, glimpse.segment_state(each.base_offset)) for _, each in pieces]
        # The last segment grows: what was read of it is not true any more.
        new = [each for each, state in keys if (each, state) not in self.known]
        closed = iter(self.job.check_segments(each for each in new if not each.is_active))
        read: dict[_Key, SegmentPart] = {}
        parts: list[tuple[Segment, SegmentPart]] = []
        for (segment, own), key in zip(pieces, keys, strict=True):
            if own.is_active:
                part = _without_end(
                    self.job.check(SegmentSplit(own.log, scope=replace(own, is_small=False)))
                )
            else:
                part = read[key] = self.known.get(key) or next(closed)
            parts.append((segment, part))
        found: list[Finding] = []
        for event in PartitionRun(self.job, scope, None).events(parts):
            if isinstance(event, PartitionReport):
                return found, event, read
            found.append(event)
        raise AssertionError("a report comes last")

    def _is_kept(self, finding: Finding, before: Glimpse, after: Glimpse) -> bool:
        """Whether what a finding is about was the same all the time."""
        name = local(finding.place.path).name
        if finding.code in _OF_FILES:
            return before.has_kept_file(name, after)
        base_offset = _base_offset(finding)
        if finding.code in OF_PARTITIONS:
            is_file = base_offset is not None and base_offset != before.last_base_offset
            is_kept = not is_file or before.has_kept_file(name, after) or _is_missing(finding)
            return is_kept and before.has_kept_all(after)
        assert base_offset is not None, "a finding about a segment names a file of it"
        if base_offset == before.last_base_offset:
            return finding in self.doubted
        if finding.code in OF_LOGS and _is_log(finding):
            return before.has_kept_log(base_offset, after)
        return before.has_kept_segment(base_offset, after)


def _sentence(kind: str, leftovers: int) -> str:
    files = f"{counted(leftovers, 'leftover file')} (.cleaned, .swap, .deleted)"
    if leftovers and kind == UNSETTLED:
        return (
            f"nothing changed while it was read, but it has {files}: they, some other files, and"
            " what a starting broker would do are not judged"
        )
    if leftovers and kind == NOT_JUDGED:
        return f"{files} and what a starting broker would do are not judged: it is read as in use"
    return _SENTENCES[kind]


def _is_missing(finding: Finding) -> bool:
    return finding.code == invariants.TRANSACTION_INDEX_MISSING.code


def _base_offset(finding: Finding) -> int | None:
    """The base offset in the name of the file that a finding is about."""
    parsed = names.parse_offset_file_name(local(finding.place.path).name)
    return None if parsed is None else parsed.offset


def _can_be_judged(finding: Finding, glimpse: Glimpse) -> bool:
    """Whether a broker that uses the partition cannot be the reason for a finding."""
    last = glimpse.last_base_offset
    base_offset = _base_offset(finding)
    if finding.code in _OF_FILES:
        # A producer snapshot is written in place, when the last segment is created.
        return base_offset is None or last is None or base_offset < last or _is_log(finding)
    if finding.code in OF_LOGS:
        return True
    if finding.code in OF_SEGMENTS:
        return base_offset != last
    if finding.code in OF_PARTITIONS:
        return base_offset is None or last is None or base_offset < last
    return False


def _is_log(finding: Finding) -> bool:
    return finding.place.path.endswith(FileKind.LOG.extension)


def _without_end(part: SegmentPart) -> SegmentPart:
    """The part of the last segment, without its last batch if that is not whole."""
    findings = [each for each in part.findings if each.code in OF_LOGS or part.is_unread]
    if part.ends_damaged and not part.is_unread:
        last = max((each.place.position or 0 for each in findings), default=0)
        findings = [each for each in findings if (each.place.position or 0) < last]
    findings = [
        each
        for each in findings
        if each.code not in (invariants.TORN_TAIL.code, invariants.ZERO_FILL.code)
    ]
    return replace(
        part,
        findings=tuple(findings),
        account=part.account if findings else _undamaged(part.account),
        index_account=_undamaged(part.index_account),
    )


def _undamaged(account: ByteAccount) -> ByteAccount:
    return replace(account, damaged_bytes=0)


def _scope_at(scope: PartitionScope, glimpse: Glimpse) -> PartitionScope:
    """What to check a partition against while a broker uses it."""
    gap_severity = scope.gap_severity
    is_other = scope.cluster is not None and (
        scope.cluster.topic_id != glimpse.partition.known_topic_id
    )
    if gap_severity is Severity.WARNING or is_other:
        # Whether it is compacted is not known: the cleaner may have removed them a moment ago.
        gap_severity = Severity.INFO
    return replace(scope, partition=glimpse.partition, is_clean=False, gap_severity=gap_severity)


def _empty_report(scope: PartitionScope) -> PartitionReport:
    partition = scope.partition
    return PartitionReport(
        partition=partition,
        log_dir=str(partition.path.parent),
        verdict="",
        verdict_kind="",
        worst=None,
        findings={},
        account=ByteAccount(),
        batches=0,
        records=0,
        not_decoded=0,
        end_offset=0,
    )


def _report(
    report: PartitionReport, kept: Sequence[Finding], kind: str, leftovers: int = 0
) -> PartitionReport:
    """The report, as far as it is about what was judged.

    Args:
        leftovers: how many leftover files there are, if nothing changed while it was read.
    """
    is_damaged = any(each.severity.is_damage for each in kept)
    return replace(
        report,
        verdict=_sentence(kind, leftovers),
        verdict_kind=kind,
        worst=max((each.severity for each in kept), default=None),
        findings=dict(Counter(each.code for each in kept)),
        account=report.account if is_damaged else _undamaged(report.account),
    )
