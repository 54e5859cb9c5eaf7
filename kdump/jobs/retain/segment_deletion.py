"""The job that decides which segments of a partition are deleted.

A task loads one partition as a starting broker does, and writes nothing. It returns only what
changes, and what a decision about all partitions together needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.retention.retention import Reason, RetainableLog, SegmentFate
from kdump.broker.retention.retention_outcome import (
    LoadedLog,
    RetainedPartition,
    dated_by_records,
    load_log,
    retained,
    wrongly_old,
)
from kdump.engine.job import Split
from kdump.jobs.loading.load_split import load_split
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import Verdict, VerdictKind, lasting_verdict
from kdump.state.metadata.settings import Settings, TopicSettings
from kdump.storage.entries import Entry
from kdump.target.refusal import Refusal

_READ_BYTES: Final = 4096
"""How much is read of a segment, for the last entry of its time index: one block."""

_NO_LIMIT: Final = 2**63 - 1


class LogDeletion(Struct, frozen=True):
    """What a log loses that a broker would load without repairing anything.

    Attributes:
        log: the log as retention reads it.
        outcome: the log afterwards; None if nothing changes.
        decisions: about its segments, if retention was applied.
        held_back: why segments stay that are old enough, likewise.
    """

    log: RetainableLog
    outcome: RetainedPartition | None = None
    decisions: tuple[SegmentFate, ...] = ()
    held_back: tuple[Reason, ...] = ()


class DeletionRule(Protocol):
    """Decides what a log loses; a picklable value."""

    def applied_to(self, loaded: LoadedLog, /) -> LogDeletion | Verdict:
        """Apply the rule to a log; a verdict says why it cannot be applied.

        Raises:
            OSError: a file of the log cannot be read.
        """
        ...


class DecideLater(Struct, frozen=True):
    """Delete nothing: the age of the segments is compared with those of other logs later."""

    def applied_to(self, loaded: LoadedLog, /) -> LogDeletion | Verdict:
        found = dated_by_records(loaded)
        if isinstance(found, RetainableLog):
            return LogDeletion(found)
        return lasting_verdict(
            VerdictKind.REFUSED,
            f"segment {found.base_offset} has damaged records: its age is unknown;"
            " run kdump verify",
        )


class ByRetention(Struct, frozen=True):
    """Delete what the retention of its topic deletes at ``now_ms``."""

    topic: TopicSettings
    now_ms: int

    def applied_to(self, loaded: LoadedLog, /) -> LogDeletion | Verdict:
        found = retained(loaded, self.topic, self.now_ms)
        wrong = wrongly_old(loaded, found.fates, self.topic, self.now_ms)
        if wrong is not None:
            return lasting_verdict(
                VerdictKind.REFUSED,
                f"the time index of segment {wrong.base_offset} is wrong: by its records the"
                " segment is not older than retention.ms, or some of them are damaged; run kdump"
                " rebuild-index, then kdump verify",
            )
        is_settled = not found.deleted and loaded.is_as_left
        outcome = None if is_settled else found.outcome
        return LogDeletion(loaded.log, outcome, found.fates, found.held_back)


class FirstSegments(Struct, frozen=True):
    """Delete the first ``count`` segments."""

    count: int

    def applied_to(self, loaded: LoadedLog, /) -> LogDeletion:
        return LogDeletion(loaded.log, loaded.delete_first(self.count))


class DeleteSegmentsSplit(Split, frozen=True, kw_only=True):
    """A partition whose segments may be deleted.

    Attributes:
        rule: which of them are.
        context: what loading depends on besides the partition.
        high_watermark: the high watermark; None if it is unknown.
    """

    rule: DeletionRule
    context: LoadContext
    high_watermark: int | None


def delete_segments_split(
    partition: Partition,
    directory: LogDirectory,
    settings: Settings,
    rule: DeletionRule,
    *,
    now_ms: int,
    is_replicated: bool,
) -> DeleteSegmentsSplit:
    """The split for a partition of ``directory``.

    Args:
        rule: which of its segments are deleted.
    """
    load = load_split(partition, directory, settings, now_ms=now_ms)
    high_watermark = (directory.checkpoints.high_watermarks or {}).get(partition.key)
    return DeleteSegmentsSplit(
        load.path,
        size_bytes=len(partition.segments) * _READ_BYTES,
        label=load.label,
        rule=rule,
        context=load.context,
        high_watermark=_NO_LIMIT if is_replicated else high_watermark,
    )


DeleteSegmentsResult = LogDeletion | Verdict | Unreadable
"""A verdict or an unreadable file says why a partition cannot be changed."""


class DeleteSegmentsJob(Struct, frozen=True):
    """Decides what a partition loses."""

    def run(
        self, split: DeleteSegmentsSplit, /, entries: Iterable[Entry] | None = None
    ) -> DeleteSegmentsResult:
        """Load the partition, and apply the rule unless a broker would repair or refuse it.

        Args:
            entries: of its directory, if it was just listed.
        """
        loaded = load_undamaged(split, entries)
        if not isinstance(loaded, LoadedLog):
            return loaded
        try:
            return split.rule.applied_to(loaded)
        except OSError as failure:
            return Unreadable.of(failure, split.path)


def load_undamaged(
    split: DeleteSegmentsSplit, entries: Iterable[Entry] | None = None
) -> LoadedLog | Verdict | Unreadable:
    """Load a partition that a broker would load unchanged; otherwise the verdict says why not.

    Records before the log start offset are no reason: a broker deletes them, whatever the leader
    epochs say.
    """
    try:
        loaded = load_log(split.path, split.context, split.high_watermark, entries)
    except OSError as failure:
        return Unreadable.of(failure, split.path)
    if isinstance(loaded, Refusal):
        return verdict(loaded)
    found = verdict(loaded.loaded)
    if found.kind is VerdictKind.VALID:
        return loaded
    # Leftover files that matter were refused before (``why_untouchable``).
    hidden = [each for each in loaded.loaded.report.hidden if not each.is_before_start]
    report = replace(loaded.loaded.report, leftovers=(), hidden=tuple(hidden))
    is_sound = verdict(replace(loaded.loaded, report=report)).kind is VerdictKind.VALID
    return loaded if is_sound else found
