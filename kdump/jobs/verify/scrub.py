"""Verify a part of the data: what to read, in which order, and how far it came."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kdump.check.findings import Finding
from kdump.check.part import ByteAccount, total_records
from kdump.jobs.verify.check_history import CheckHistory
from kdump.jobs.verify.subset import Subset, Unit, oldest_first, units_of
from kdump.jobs.verify.verify_partition import (
    PARTLY_READ,
    UNSETTLED,
    PartitionEvents,
    PartitionReport,
    partly_read,
)
from kdump.log.partition import Partition


class Scrub(Struct, frozen=True):
    """Which part of the data to read.

    Attributes:
        subset: which segments; None for all.
        history: what was checked when, for what was checked longest ago; None if unknown.
        deadline: as :class:`~kdump.jobs.verify.verify_partition.VerifyJob` has it.
    """

    subset: Subset | None = None
    history: CheckHistory | None = None
    deadline: float | None = None


class ScrubChunk(Struct, frozen=True):
    """Segments of a partition that are read one after another.

    Attributes:
        target: the number of the partition.
        bases: base offsets of the segments; None for all of the partition.
        is_rest: whether another chunk of the partition comes before.
    """

    target: int
    bases: frozenset[int] | None
    is_rest: bool = False


class Coverage(Struct, frozen=True):
    """How much of the data was read.

    Attributes:
        subset: as typed; None for everything.
        segments: how many there are.
        chosen: how many were to be read.
        read: how many were read to their end.
        bytes: of all segments.
        chosen_bytes: of those to read.
        read_bytes: of those that were read.
        is_time_over: whether there was no time for some.
        never: how many segments were never checked; None if unknown.
        oldest_ms: when the others were checked, at least; None if unknown, or without any.
    """

    subset: str | None
    segments: int = 0
    chosen: int = 0
    read: int = 0
    bytes: int = 0
    chosen_bytes: int = 0
    read_bytes: int = 0
    is_time_over: bool = False
    never: int | None = None
    oldest_ms: int | None = None


class ScrubRun:
    """The chunks of a verification, and what came of them.

    Attributes:
        chunks: in the order in which they are to be read.
    """

    def __init__(self, scrub: Scrub, partitions: Sequence[Partition], now_ms: int) -> None:
        self._scrub = scrub
        self._partitions = partitions
        self._now_ms = now_ms
        self._units = [
            unit
            for number, each in enumerate(partitions)
            for unit in units_of(number, each, self._checked_ms(each))
        ]
        chosen = self._units
        if scrub.subset is not None:
            is_oldest = scrub.history is not None
            chosen = scrub.subset.chosen(chosen, now_ms, is_oldest=is_oldest)
        if scrub.history is not None and scrub.deadline is not None:
            chosen = oldest_first(chosen)
        self._chosen = [each for each in chosen if each.is_segment]
        self._sizes = {(each.target, each.base_offset): each.size_bytes for each in self._chosen}
        self._read: dict[tuple[int, int], int] = {}
        self.chunks = list(self._chunks(chosen))

    def _checked_ms(self, partition: Partition) -> Mapping[int, int]:
        history = self._scrub.history
        return {} if history is None else history.checked_ms(partition)

    def _chunks(self, chosen: Iterable[Unit]) -> Iterator[ScrubChunk]:
        seen: set[int] = set()
        for target, units in itertools.groupby(chosen, lambda each: each.target):
            bases = frozenset(each.base_offset for each in units if each.is_segment)
            is_all = len(bases) == len(self._partitions[target].segments)
            yield ScrubChunk(target, None if is_all else bases, is_rest=target in seen)
            seen.add(target)

    def merged(self, results: Iterable[PartitionEvents]) -> Iterator[Finding | PartitionReport]:
        """The findings of each partition, then its report.

        Args:
            results: of the chunks, in order; empty for one that was not begun.
        """
        left = Counter(each.target for each in self.chunks)
        found: dict[int, list[PartitionEvents]] = {}
        for chunk, events in zip(self.chunks, results, strict=True):
            if events:
                found.setdefault(chunk.target, []).append(events)
                self._take(chunk.target, events[-1])
            left[chunk.target] -= 1
            if not left[chunk.target] and chunk.target in found:
                yield from _joined(self._partitions[chunk.target], found.pop(chunk.target))

    def _take(self, target: int, report: Finding | PartitionReport) -> None:
        """Note which segments were read; those that came later were nobody's to read."""
        assert isinstance(report, PartitionReport)
        read = [each for each in report.read_bases if (target, each) in self._sizes]
        for base_offset in read:
            self._read[target, base_offset] = self._sizes[target, base_offset]
        if self._scrub.history is not None:
            self._scrub.history.record(self._partitions[target], read, self._now_ms)

    def coverage(self) -> Coverage:
        """How much was read until now."""
        segments = [each for each in self._units if each.is_segment]
        subset, history, deadline = self._scrub.subset, self._scrub.history, self._scrub.deadline
        is_late = deadline is not None and time.monotonic() >= deadline
        known = [
            self._now_ms if (each.target, each.base_offset) in self._read else each.checked_ms
            for each in segments
        ]
        return Coverage(
            subset=None if subset is None else subset.name,
            segments=len(segments),
            chosen=len(self._chosen),
            read=len(self._read),
            bytes=sum(each.size_bytes for each in segments),
            chosen_bytes=sum(self._sizes.values()),
            read_bytes=sum(self._read.values()),
            is_time_over=is_late and len(self._read) < len(self._chosen),
            never=None if history is None else sum(each < 0 for each in known),
            oldest_ms=None
            if history is None
            else min((each for each in known if each >= 0), default=None),
        )


def _joined(
    partition: Partition, results: Sequence[PartitionEvents]
) -> Iterator[Finding | PartitionReport]:
    """The findings of all chunks of a partition, and one report."""
    reports = []
    for events in results:
        *findings, report = events
        assert isinstance(report, PartitionReport)
        yield from (each for each in findings if isinstance(each, Finding))
        reports.append(report)
    yield replace(_sum_of(partition, reports), partition=partition)


def _sum_of(partition: Partition, reports: Sequence[PartitionReport]) -> PartitionReport:
    first = next((each for each in reports if each.verdict_kind == UNSETTLED), reports[0])
    if len(reports) == 1:
        return first
    read_bases = tuple(sorted(base for each in reports for base in each.read_bases))
    left_out = max(0, len(partition.segments) - len(read_bases))
    is_partly = first.verdict_kind == PARTLY_READ
    return replace(
        first,
        verdict=partly_read(left_out, len(partition.segments)) if is_partly else first.verdict,
        worst=max((each.worst for each in reports if each.worst is not None), default=None),
        findings=dict(sum((Counter(each.findings) for each in reports), Counter[str]())),
        account=sum((each.account for each in reports), ByteAccount()),
        batches=sum(each.batches for each in reports),
        records=total_records(*(each.records for each in reports)),
        not_decoded=sum(each.not_decoded for each in reports),
        end_offset=max(each.end_offset for each in reports),
        read_bases=read_bases,
        left_out=left_out,
        has_end=any(each.has_end for each in reports),
    )
