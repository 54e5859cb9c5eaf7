"""Verify one partition: the job, its splits, and how their results come together.

A small partition is one split, whose result is complete. The segments of a large one are one or
several splits each, and their results are merged in the process that runs the job.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.check import invariants
from kdump.check.batches import SegmentScope
from kdump.check.directory import unreadable
from kdump.check.findings import Finding, Place, Severity
from kdump.check.invariants import FILE_UNREADABLE
from kdump.check.part import ByteAccount, Level, SegmentPart, left_out_part
from kdump.check.partition import PartitionCheck
from kdump.check.scope import PartitionScope
from kdump.check.segment_check import check_part
from kdump.check.small_segments import MOST_SEGMENTS, check_small
from kdump.engine.job import Split
from kdump.formats import names
from kdump.formats.names import FileKind, PartitionState
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.jobs.loading.load_split import LoadSplit
from kdump.jobs.loading.verdict_words import (
    HIDING,
    STATE_VERDICTS,
    loss_finding,
    refused_finding,
    swap_findings,
    verdict_words,
)
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.verify.prediction import is_plain, recovered_bases, verdict_of_checks
from kdump.log.log_search import Trust, log_end
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.repair.verdict.verdict import Verdict, VerdictKind
from kdump.scan.source import read_at
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.check.partition_statistics import PartitionStatistics

_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


UNSETTLED: Final = "unsettled"
"""The word for a partition that kept changing while it was read, or has leftover files."""
PARTLY_READ: Final = "partly-read"
"""The word for a partition with segments that were left out."""

OF_PARTITIONS: Final = frozenset(
    {
        invariants.OFFSET_GAP.code,
        invariants.SEGMENT_GAP.code,
        invariants.LEADER_EPOCH_ORDER.code,
        invariants.PRODUCER_SEQUENCE_REPEAT.code,
        invariants.PRODUCER_SEQUENCE_GAP.code,
        invariants.TRANSACTION_INDEX_MISSING.code,
        invariants.TRANSACTION_INDEX_MISMATCH.code,
        invariants.SNAPSHOT_STATE.code,
    }
)
"""What all closed segments say together, with a file that the finding names."""
NEEDS_ALL_DATA: Final = OF_PARTITIONS | frozenset(
    {
        invariants.SNAPSHOT_STRAY.code,
        invariants.SNAPSHOT_MISSING.code,
        invariants.EPOCHS_MISSING.code,
        invariants.EPOCHS_MISMATCH.code,
        invariants.RECOVERY_POINT_BEYOND_END.code,
        invariants.RECOVERY_POINT_BEFORE_END.code,
        invariants.LOG_START_BEYOND_END.code,
        invariants.LOG_START_CONTRADICTION.code,
    }
)
"""What no segment says alone: not reported of a partition with segments that were left out."""


class PartitionReport(Struct, frozen=True):
    """The result of verifying a partition.

    Attributes:
        verdict: what a broker would do to it, in one sentence; empty if unknown.
        verdict_kind: the same in one word.
        worst: the worst severity of its findings; None without findings.
        findings: the number of findings by code.
        batches: the number of valid batches.
        records: in them; None if a compressed message set or a batch was not decoded.
        not_decoded: the number of batches with records over the limit.
        end_offset: after its last valid batch.
        statistics: None if they were not asked for, or if nothing of it could be read.
        read_bases: base offsets of the segments that were read.
        left_out: the number of segments that were not to be read.
        has_end: whether the last segment was read, so that the end offset is known.
        only_hides: whether all that would be lost is hidden by files that a starting broker keeps:
            recovering by its rules changes nothing about that.
    """

    partition: Partition
    log_dir: str
    verdict: str
    verdict_kind: str
    worst: Severity | None
    findings: Mapping[str, int]
    account: ByteAccount
    batches: int
    records: int | None
    not_decoded: int
    end_offset: int
    statistics: PartitionStatistics | None = None
    read_bases: tuple[int, ...] = ()
    left_out: int = 0
    has_end: bool = True
    only_hides: bool = False

    def split_findings(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
        """Split the findings since the last report: about log directories, and its own.

        A report comes right after the findings of its partition, and counts them. Those about log
        directories come before the first partition.
        """
        start = len(findings) - sum(self.findings.values())
        return list(findings[:start]), list(findings[start:])


class SegmentSplit(Split, frozen=True, kw_only=True):
    """A part of the log of a segment.

    Attributes:
        scope: what to check the segment against.
    """

    scope: SegmentScope


class SmallSegmentsSplit(Split, frozen=True, kw_only=True):
    """Some small segments of a partition, one after another.

    To send each by itself, and its result, takes as long as checking it.

    Attributes:
        scopes: what to check each against.
    """

    scopes: tuple[SegmentScope, ...]

    def small_files(self) -> Iterator[Location]:
        with contextlib.suppress(OSError):
            self.path.entries()  # once, so that no missing file is asked for
            for scope in self.scopes:
                for each in (scope.log, *map(scope.file, _INDEXES)):
                    if each.kind() is EntryKind.FILE:
                        yield each


_NOWHERE: Final = Partition(local(""), None, PartitionState.LIVE, (), (), (), (), (), 0)
"""Stands for the partition in results that are sent back to who has it."""


class PartitionSplit(Split, frozen=True, kw_only=True):
    """A whole partition.

    Attributes:
        scope: what to check the partition against.
        load: how a broker would load it; None if it would not.
    """

    scope: PartitionScope
    load: LoadSplit | None

    def events_alone(self, job: VerifyJob) -> PartitionEvents | None:
        """The result for a partition that is not checked together with others; else None."""
        return None

    def small_files(self) -> Iterator[Location]:
        with contextlib.suppress(OSError):
            for entry in self.path.entries():
                if entry.kind is EntryKind.FILE:
                    yield self.path / entry.name


class PartitionsSplit(Split, frozen=True, kw_only=True):
    """Whole partitions, whose small segments are checked many at a time.

    Attributes:
        partitions: one or more.
    """

    partitions: tuple[PartitionSplit, ...]

    def read_places(self) -> Iterator[Location]:
        return (place for each in self.partitions for place in each.read_places())

    def small_files(self) -> Iterator[Location]:
        return (file for each in self.partitions for file in each.small_files())

    def __str__(self) -> str:
        others = len(self.partitions) - 1
        first = str(self.partitions[0])
        return f"{first}, or {counted(others, 'partition')} after it" if others else first


VerifySplit = SegmentSplit | SmallSegmentsSplit | PartitionsSplit | LoadSplit
PartitionEvents = tuple[Finding | PartitionReport, ...]
VerifyResult = SegmentPart | list[SegmentPart] | list[PartitionEvents] | Verdict | Unreadable


class VerifyJob(Struct, frozen=True):
    """Checks a part of a segment or a whole partition, or predicts what a broker does to one.

    Attributes:
        level: how much to check.
        with_statistics: whether reports have statistics.
        deadline: by the clock that ``time.monotonic`` reads, after which no segment is begun.
    """

    level: Level
    now_ms: int
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    with_statistics: bool = False
    deadline: float | None = None

    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def run(self, split: VerifySplit, /) -> VerifyResult:
        """Do what the split asks for. What cannot be read is a finding, or takes its place."""
        if isinstance(split, LoadSplit):
            return self.predict(split)
        if isinstance(split, PartitionsSplit):
            return [
                # Who asked has the partition, and need not be sent it.
                tuple(
                    replace(event, partition=_NOWHERE)
                    if isinstance(event, PartitionReport)
                    else event
                    for event in events
                )
                for events in self.check_whole(split.partitions)
            ]
        if isinstance(split, SmallSegmentsSplit):
            return list(self.check_segments(split.scopes))
        return self.check(split)

    def check_segments(self, scopes: Iterable[SegmentScope]) -> Iterator[SegmentPart]:
        """Check whole segments, small ones many at a time."""
        left = iter(scopes)
        while some := list(itertools.islice(left, MOST_SEGMENTS)):
            is_over = self.is_over()
            wanted = [each for each in some if not (is_over or each.is_left_out)]
            checked = iter(
                check_small(wanted, self.level, self.now_ms, with_statistics=self.with_statistics)
            )
            for scope in some:
                if is_over or scope.is_left_out:
                    yield left_out_part(scope.path)
                    continue
                yield next(checked) or self.check(SegmentSplit(scope.log, scope=scope))

    def check(self, split: SegmentSplit) -> SegmentPart:
        if split.scope.is_left_out or self.is_over():
            return left_out_part(split.scope.path)
        try:
            return check_part(
                split.scope,
                split.start,
                split.end,
                self.level,
                self.now_ms,
                self.largest_record_bytes,
                with_statistics=self.with_statistics,
            )
        except OSError as failure:
            return SegmentPart(
                str(split.path),
                split.start,
                split.start if split.end is None else split.end,
                findings=(unreadable(split.path, _failure_of_log(split.path) or failure),),
                starts_damaged=True,
                ends_damaged=True,
                is_unread=True,
            )

    def check_whole(self, splits: Iterable[PartitionSplit]) -> Iterator[PartitionEvents]:
        """Check partitions; gives for each its findings, then the report.

        For those that were not begun before the deadline there is nothing.
        """
        splits = list(splits)
        alone = [() if self.is_over() else split.events_alone(self) for split in splits]
        scopes = [
            (split, [] if events is not None else list(split.scope.segment_scopes()))
            for split, events in zip(splits, alone, strict=True)
        ]
        parts = self.check_segments(scope for _, each in scopes for _, scope in each)
        for (split, own), events in zip(scopes, alone, strict=True):
            if events is not None:
                yield events
                continue
            run = PartitionRun(self, split.scope, split.load)
            yield tuple(run.events((segment, next(parts)) for segment, _ in own))

    def predict(self, split: LoadSplit) -> Verdict | Unreadable:
        """Predict by the loader's rules."""
        # Imported here, because most verifications never need them: they are an eighth of what it
        # takes to start one.
        from kdump.jobs.loading.load_partition import RecoverJob
        from kdump.repair.verdict.outcome_verdict import verdict

        outcome = RecoverJob().run(split)
        return outcome if isinstance(outcome, Unreadable) else verdict(outcome)


def _failure_of_log(log: Location) -> OSError | None:
    """Why a log cannot be read; None if it can, and only an index cannot.

    Indexes are read first, and an index can be rebuilt: the log is what has to be named.
    """
    try:
        with log.open_file() as source:
            read_at(source, 0, min(source.size_bytes, 1))
    except OSError as failure:
        return failure
    return None


class PartitionRun:
    """Merges the results of the parts of a partition.

    Attributes:
        is_plain: whether the checks may be enough for the verdict.
    """

    def __init__(self, job: VerifyJob, scope: PartitionScope, load: LoadSplit | None) -> None:
        self._job = job
        self._scope = scope
        self._load = load
        self.is_plain = load is not None and is_plain(scope.partition, load.context, job.level)

    def events(
        self,
        parts: Iterable[tuple[Segment, SegmentPart]],
        before: Iterable[Finding] = (),
        predict: Callable[[LoadSplit], Verdict | Unreadable] | None = None,
    ) -> Iterator[Finding | PartitionReport]:
        """Yield the findings as they are found, then the report.

        Args:
            parts: of its segments, in order, each starting where the one before ended.
            before: findings that exist already.
            predict: gives the verdict by the loader's rules if the checks are not enough; by
                default it is computed here.
        """
        check = PartitionCheck(self._scope, self._job.level)
        codes: Counter[str] = Counter()
        worst: Severity | None = None
        hides = ""
        has_log_damage = False
        for finding in itertools.chain(before, _joined(check, parts), self._ended(check)):
            if check.is_partial and finding.code in NEEDS_ALL_DATA:
                continue
            codes[finding.code] += 1
            is_of_log = finding.place.path.endswith(FileKind.LOG.extension)
            has_log_damage |= is_of_log and finding.severity >= Severity.ERROR
            if finding.code in HIDING and not hides and self._is_kept(finding):
                hides = HIDING[finding.code]
            worst = finding.severity if worst is None else max(worst, finding.severity)
            yield finding
        partition = self._scope.partition
        predicted = self._predicted(check, worst, predict or self._job.predict)
        if isinstance(predicted, Unreadable):
            # The checks may have been able to read what is read again here.
            later = [] if FILE_UNREADABLE.code in codes else [_unreadable_later(predicted)]
            predicted = None
        else:
            later = [] if predicted is None else [*_predicted_findings(partition, predicted, worst)]
        for finding in later:
            codes[finding.code] += 1
            worst = finding.severity if worst is None else max(worst, finding.severity)
            yield finding
        words = verdict_words(partition, codes, predicted, worst, hides=hides)
        sentence, kind = words.sentence, words.kind
        if check.is_partial and partition.state not in STATE_VERDICTS:
            sentence, kind = partly_read(check.left_out, len(partition.segments)), PARTLY_READ
        yield PartitionReport(
            partition=partition,
            log_dir=str(partition.path.parent),
            verdict=sentence,
            verdict_kind=kind,
            worst=worst,
            findings=dict(codes),
            account=check.account,
            batches=check.batches,
            records=check.records,
            not_decoded=check.not_decoded,
            end_offset=self._valid_end(check) if has_log_damage else check.end_offset,
            statistics=check.statistics(),
            read_bases=tuple(check.read_bases),
            left_out=check.left_out,
            has_end=check.has_end,
            only_hides=bool(hides)
            and (predicted is None or predicted.kind is not VerdictKind.LOSS),
        )

    def _valid_end(self, check: PartitionCheck) -> int:
        """Where a damaged log ends for those that read its valid batches.

        The checks go by the largest offset that a batch header has, which may be what is wrong.
        """
        partition = self._scope.partition
        if check.is_partial or partition.is_0_7 or not partition.segments:
            return check.end_offset
        try:
            return log_end(partition, Trust.CHECKSUMS).offset
        except OSError:  # It was reported where the checks read it.
            return check.end_offset

    def _is_kept(self, finding: Finding) -> bool:
        """Whether a broker would not recover the segment that a finding is about."""
        name = names.parse_offset_file_name(local(finding.place.path).name)
        if self._load is None or name is None:
            return False
        bases = [segment.base_offset for segment in self._scope.partition.segments]
        return name.offset not in recovered_bases(bases, self._load.context)

    def _ended(self, check: PartitionCheck) -> Iterator[Finding]:
        try:
            yield from check.finish()
        except OSError as failure:
            yield unreadable(self._scope.partition.path, failure)
        yield from check.check_offsets()

    def _predicted(
        self,
        check: PartitionCheck,
        worst: Severity | None,
        predict: Callable[[LoadSplit], Verdict | Unreadable],
    ) -> Verdict | Unreadable | None:
        if self._load is None or check.is_partial:
            return None
        if self.is_plain:
            known = verdict_of_checks(check, worst, self._load.context)
            return known or self._job.predict(self._load)
        return predict(self._load)


def _joined(
    check: PartitionCheck, parts: Iterable[tuple[Segment, SegmentPart]]
) -> Iterator[Finding]:
    for segment, part in parts:
        yield from check.take(segment, part)


def _predicted_findings(
    partition: Partition, predicted: Verdict, worst: Severity | None
) -> Iterator[Finding]:
    """The findings of the loader's rules that checks do not have."""
    if predicted.kind is VerdictKind.REFUSED:
        yield refused_finding(partition, predicted)
    if partition.state is PartitionState.DELETE:
        return
    swapped = [*swap_findings(partition, predicted)]
    yield from swapped
    is_known = bool(swapped) or (worst is not None and worst.is_damage)
    if predicted.kind is VerdictKind.LOSS and not is_known:
        yield loss_finding(partition, predicted)


def partly_read(left_out: int, segments: int) -> str:
    """The verdict on a partition with segments that were left out."""
    return (
        f"{left_out} of {counted(segments, 'segment')} left out: what a starting broker would do is"
        " not judged"
    )


def _unreadable_later(failed: Unreadable) -> Finding:
    """The finding for what the checks could read, and the loader's rules could not."""
    what = f"what a broker would do is not known: cannot be read: {failed.what}"
    return FILE_UNREADABLE.finding(Place(failed.path), what)
