"""The job that says what a partition loses when old segments go.

Nothing is written: a task loads one partition as a broker does at its start, and of what it finds
out only that is given back by which all partitions together are decided on, and what changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from kdump.broker.loader.loader import LoadContext
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
from kdump.jobs.loading import Unreadable, load_split
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.repair.verdict import Verdict, VerdictKind, verdict
from kdump.state.settings import Settings, TopicSettings
from kdump.target.refusal import Refusal

_READ_BYTES: Final = 4096
"""What is read of a segment, for the last entry of its time index: the least that a disk reads."""

_NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogDeletion:
    """What becomes of a partition that a broker loads without putting anything right.

    Attributes:
        log: what retention looks at.
        outcome: what is left of it; None where nothing changes.
        fates: of its segments, where retention was asked for.
        held_back: what keeps segments that would go now otherwise, likewise.
    """

    log: RetainableLog
    outcome: RetainedPartition | None = None
    fates: tuple[SegmentFate, ...] = ()
    held_back: tuple[Reason, ...] = ()


class DeletionRule(Protocol):
    """Decides what a log loses; a value that can be pickled."""

    def applied_to(self, loaded: LoadedLog, /) -> LogDeletion | Verdict:
        """What becomes of a log, or why nothing can be said of it.

        Raises:
            OSError: a file of the log cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class DecideLater:
    """Nothing goes: what there is is to be decided on together with other logs, by age."""

    def applied_to(self, loaded: LoadedLog, /) -> LogDeletion | Verdict:
        found = dated_by_records(loaded)
        if isinstance(found, RetainableLog):
            return LogDeletion(found)
        return Verdict(
            VerdictKind.REFUSED,
            f"segment {found.base_offset} has damaged records: its age is unknown;"
            " run kdump verify",
        )


@dataclass(frozen=True, slots=True)
class ByRetention:
    """What the retention of its topic lets go at ``now_ms``."""

    topic: TopicSettings
    now_ms: int

    def applied_to(self, loaded: LoadedLog, /) -> LogDeletion | Verdict:
        found = retained(loaded, self.topic, self.now_ms)
        wrong = wrongly_old(loaded, found.fates, self.topic, self.now_ms)
        if wrong is not None:
            return Verdict(
                VerdictKind.REFUSED,
                f"the time index of segment {wrong.base_offset} does not hold: by its records the"
                " segment is not older than retention.ms, or some of them are damaged; kdump"
                " rebuild-index, then kdump verify",
            )
        is_settled = not found.deleted and loaded.is_as_left
        outcome = None if is_settled else found.outcome
        return LogDeletion(loaded.log, outcome, found.fates, found.held_back)


@dataclass(frozen=True, slots=True)
class FirstSegments:
    """The first ``count`` segments go."""

    count: int

    def applied_to(self, loaded: LoadedLog, /) -> LogDeletion:
        return LogDeletion(loaded.log, loaded.delete_first(self.count))


@dataclass(frozen=True, slots=True)
class DeleteSegmentsSplit(Split):
    """A partition of which segments may go.

    Attributes:
        rule: which of them do.
        context: what loading depends on besides its directory.
        high_watermark: what is known of it; None where nobody says anything.
    """

    rule: DeletionRule = field(default_factory=DecideLater)
    context: LoadContext = field(default_factory=LoadContext)
    high_watermark: int | None = None


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
        partition: which.
        directory: that it lies in.
        settings: of the broker.
        rule: which of its segments go.
        now_ms: what time it is.
        is_replicated: whether the operator says that it is replicated up to its end.
    """
    load = load_split(partition, directory, settings, now_ms=now_ms)
    high_watermarks = directory.checkpoints.high_watermarks or {}
    assert partition.topic_partition is not None
    high_watermark = high_watermarks.get(partition.topic_partition)
    return DeleteSegmentsSplit(
        load.path,
        size_bytes=len(partition.segments) * _READ_BYTES,
        label=load.label,
        rule=rule,
        context=load.context,
        high_watermark=_NO_LIMIT if is_replicated else high_watermark,
    )


DeleteSegmentsResult = LogDeletion | Verdict | Unreadable
"""Of a partition that cannot be worked on, why."""


@dataclass(frozen=True, slots=True)
class DeleteSegmentsJob:
    """Says what becomes of a partition."""

    def run(self, split: DeleteSegmentsSplit, /) -> DeleteSegmentsResult:
        """Load it; one that a broker would put right, or not load, is not worked on."""
        loaded = load_undamaged(split)
        if not isinstance(loaded, LoadedLog):
            return loaded
        try:
            return split.rule.applied_to(loaded)
        except OSError as failure:
            return Unreadable(failure.filename or str(split.path), failure.strerror or str(failure))


def load_undamaged(split: DeleteSegmentsSplit) -> LoadedLog | Verdict | Unreadable:
    """Load a partition in which a broker would have nothing to put right; else say what."""
    try:
        loaded = load_log(split.path, split.context, split.high_watermark)
    except OSError as failure:
        return Unreadable(failure.filename or str(split.path), failure.strerror or str(failure))
    if isinstance(loaded, Refusal):
        return verdict(loaded)
    # Leftover files that would matter were refused before (``why_untouchable``).
    report = replace(loaded.loaded.report, leftovers=())
    if verdict(replace(loaded.loaded, report=report)).kind is not VerdictKind.SOUND:
        return verdict(loaded.loaded)
    return loaded
