"""Compact a wave of partitions together, step by step."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, Protocol

from msgspec import Struct, field

from kdump.broker.cleaner.cleaned_segment import GroupToRewrite, RewrittenGroup
from kdump.broker.cleaner.cleaned_transactions import TxnBatches
from kdump.broker.cleaner.compaction_preview import preview
from kdump.broker.cleaner.compaction_rewrite import Chunk
from kdump.broker.cleaner.compaction_round import Compacted, Round, begin_round
from kdump.broker.cleaner.compaction_scan import ScannedPart
from kdump.broker.cleaner.live_records import LiveRecords
from kdump.broker.loader.load_context import configured_context
from kdump.engine.engine import Engine, run_in_order
from kdump.engine.splits import split_bytes
from kdump.formats.names import TopicPartition
from kdump.jobs.compact.request import (
    CompactionProblem,
    CompactRequest,
    PartitionCompaction,
    unknown_properties,
)
from kdump.jobs.compact.swap import NoSpace, Rewritten
from kdump.jobs.compact.tasks import (
    LiveKeys,
    RewriteJob,
    RewriteSplit,
    ScanJob,
    ScanSplit,
    SurveyJob,
    rewrite_splits,
    scan_splits,
    survey_splits,
)
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.phases import phase
from kdump.processes.worker_pool import usable_cpus
from kdump.size_groups import size_groups
from kdump.storage.location import Location
from kdump.target.refusal import Refusal

SCANNED_BYTES: Final = 128 << 20
"""The largest part of a log that is scanned at once: the larger, the fewer duplicate keys."""
REWRITTEN_BYTES: Final = 512 << 20
"""How much the engine rewrites at a time: results wait in memory for their turn."""

BUCKET_RECORDS: Final = 2 << 20
BUCKET_BYTES: Final = 256 << 20
"""The largest number of records, and of bytes of logs, whose keys share a bucket."""

_LEAST_RECORD_BYTES: Final = 16
"""Bounds the number of records of a log whose offsets have large gaps."""

_RewrittenPart = tuple[RewriteSplit, tuple[Chunk, ...] | Refusal | Unreadable]


class Writer(Protocol):
    """Writes what is rewritten, or discards it."""

    is_first: bool

    @property
    def undos(self) -> tuple[str, ...]: ...

    def drop_unfinished(self, partitions: Iterable[Partition]) -> None: ...

    def write(
        self, begun: Round, group: GroupToRewrite, rewritten: Rewritten
    ) -> RewrittenGroup | Refusal | NoSpace: ...

    def complete(self, partition: TopicPartition, compacted: Compacted) -> None: ...

    def swap(self) -> None: ...

    def close(self) -> None: ...


class _PartitionFailedError(Exception):
    """A part of a log cannot be rewritten."""

    def __init__(self, problem: Unreadable) -> None:
        super().__init__(problem)
        self.problem = problem


class _Work(Struct):
    """A partition while it is compacted."""

    partition: Partition
    key: TopicPartition
    begun: Round
    scanned: dict[Location, list[ScannedPart]] = field(default_factory=lambda: defaultdict(list))
    surveyed: dict[Location, TxnBatches] | None = None
    groups: list[GroupToRewrite] = field(default_factory=list)
    live: list[LiveKeys] = field(default_factory=list)
    keys: int = 0
    """The number of distinct keys."""
    records_without_key: int = 0
    tombstones: int = 0
    problem: CompactionProblem | None = None

    def add(self, split: ScanSplit, found: ScannedPart | Refusal | Unreadable) -> None:
        """Add what was found in a part; the parts of a log come in order."""
        if isinstance(found, ScannedPart):
            self.scanned[split.part.path].append(found)
            self.records_without_key += found.records_without_key
            self.tombstones += found.tombstones
        else:
            self.fail(found)

    def fail(self, problem: CompactionProblem) -> None:
        if self.problem is None:
            self.problem = problem


class Wave(Struct, frozen=True):
    """Takes all steps of the compaction of some partitions."""

    request: CompactRequest
    directory: LogDirectory
    engine: Engine
    writer: Writer

    def results(self, partitions: Sequence[Partition]) -> Iterator[PartitionCompaction]:
        """Compact the partitions; yields a result for each, in any order."""
        works = []
        for partition in partitions:
            with phase(f"loading {partition.path}"):
                begun = self._begun(partition)
            if isinstance(begun, _Work):
                works.append(begun)
            else:
                yield PartitionCompaction(partition, problem=begun)
        self._survey(works)
        self._scan(works)
        with phase("computing which records stay", len(works)) as finding:
            for work in finding.over(works):
                if work.problem is None:
                    self._find_groups(work)
        yield from self._rewrite(works)

    def _begun(self, partition: Partition) -> _Work | CompactionProblem:
        key = partition.key
        topic = self.request.topic_settings(self.directory, partition)
        context = configured_context(
            self.directory,
            key,
            self.request.settings[self.directory.path],
            now_ms=self.request.now_ms,
            is_replicated=self.request.is_replicated,
        )
        cleaner_offset = (self.directory.checkpoints.cleaner_offsets or {}).get(key)
        try:
            begun = begin_round(partition, context, topic, cleaner_offset)
        except OSError as failure:
            return Unreadable.of(failure, partition.path)
        return begun if isinstance(begun, Refusal) else _Work(partition, key, begun)

    def _survey(self, works: Sequence[_Work]) -> None:
        splits: dict[ScanSplit, _Work] = {}
        for work in works:
            if work.begun.needs_survey:
                work.surveyed = {}
                parts = work.begun.parts_to_survey()
                splits.update((split, work) for split in survey_splits(work.partition, parts))
        for split, found in self.engine.run(SurveyJob(), list(splits)):
            work = splits[split]
            if isinstance(found, TxnBatches):
                assert work.surveyed is not None
                work.surveyed[split.part.path] = found
            else:
                work.fail(found)

    def _scan(self, works: Sequence[_Work]) -> None:
        total_bytes = sum(segment.size_bytes for work in works for segment in work.begun.segments)
        target_bytes = split_bytes(total_bytes, usable_cpus(), SCANNED_BYTES)
        owners: dict[ScanSplit, _Work] = {}
        for work in works:
            if work.problem is not None:
                continue
            try:
                parts = work.begun.parts_to_scan(work.surveyed)
                own = list(scan_splits(work.partition, parts, target_bytes))
            except OSError as failure:
                work.fail(Unreadable.of(failure, work.partition.path))
            else:
                owners.update((split, work) for split in own)
        buckets = _key_buckets(work.begun for work in works)
        job = ScanJob(self.request.largest_record_bytes)
        found, reduced = self.engine.shuffle(job, list(owners), buckets)
        for (split, work), each in zip(owners.items(), found, strict=True):
            work.add(split, each)
        for work in works:
            path = work.partition.path
            work.live = [bucket[path] for bucket in reduced if path in bucket]
            work.keys = sum(each.keys for each in work.live)

    def _find_groups(self, work: _Work) -> None:
        if not work.begun.groups:
            return
        disorder = work.begun.disorder(work.scanned)
        if disorder is not None:
            work.fail(disorder)
            return
        live = LiveRecords.joined(each.live for each in work.live)
        work.live.clear()  # joined, they take as much memory again
        work.groups = list(work.begun.groups_to_rewrite(work.scanned, live))
        work.scanned.clear()

    def _rewrite(self, works: Sequence[_Work]) -> Iterator[PartitionCompaction]:
        splits = [split for work in works for split in rewrite_splits(work.groups)]
        with contextlib.closing(self._rewritten(splits)) as results:
            for work in works:
                if work.problem is None:
                    yield self._written(work, results)
                else:
                    yield PartitionCompaction(work.partition, problem=work.problem)

    def _rewritten(self, splits: Sequence[RewriteSplit]) -> Generator[_RewrittenPart, None, None]:
        """Rewrite splits; yields the results in order."""
        job = RewriteJob(self.request.largest_record_bytes)
        for some in size_groups(splits, lambda split: split.size_bytes, REWRITTEN_BYTES):
            yield from run_in_order(self.engine, job, some)

    def _written(
        self,
        work: _Work,
        results: Iterator[_RewrittenPart],
    ) -> PartitionCompaction:
        outcomes: list[RewrittenGroup | Refusal] = []
        for group in work.groups:
            own = itertools.islice(results, len(group.parts))
            if work.problem is None:
                outcome = self._written_group(work, group, own)
                if isinstance(outcome, RewrittenGroup):
                    outcomes.append(outcome)
                else:
                    work.fail(outcome)
                    if isinstance(outcome, Refusal):
                        outcomes.append(outcome)
            for _ in own:
                pass  # results of a group that is left unchanged
        compacted = work.begun.finish(outcomes)
        self.writer.complete(work.key, compacted)
        return PartitionCompaction(
            work.partition,
            problem=work.problem,
            unknown=unknown_properties(work.begun.log.settings),
            compacted=compacted.without_files(),
            preview=preview(
                work.begun,
                compacted,
                keys=work.keys,
                records_without_key=work.records_without_key,
                tombstones=work.tombstones,
            ),
        )

    def _written_group(
        self,
        work: _Work,
        group: GroupToRewrite,
        results: Iterator[_RewrittenPart],
    ) -> RewrittenGroup | CompactionProblem:
        try:
            return self.writer.write(work.begun, group, _chunks(results))
        except _PartitionFailedError as failed:
            return failed.problem


def _key_buckets(rounds: Iterable[Round]) -> int:
    """How many buckets of keys to use, so that each fits into the memory of a worker."""
    records = total_bytes = 0
    for each in rounds:
        size_bytes = sum(segment.size_bytes for segment in each.segments)
        total_bytes += size_bytes
        if each.segments:
            offsets = each.cleanable.end_offset - each.segments[0].base_offset
            records += min(offsets, size_bytes // _LEAST_RECORD_BYTES)
    return 1 + max(records // BUCKET_RECORDS, total_bytes // BUCKET_BYTES)


def _chunks(
    results: Iterator[_RewrittenPart],
) -> Iterator[tuple[Chunk, ...] | Refusal]:
    for _, found in results:
        if isinstance(found, Unreadable):
            raise _PartitionFailedError(found)
        yield found
