"""The jobs of compaction: scan parts of logs, and rewrite parts of logs.

Tasks only read: they return what they found, and the bytes to write. A file that cannot be read is
a result, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.cleaner.cleaned_segment import GroupToRewrite
from kdump.broker.cleaner.cleaned_transactions import TxnBatches
from kdump.broker.cleaner.compaction_keys import NO_RECORDS, KeyedRecords, live_records
from kdump.broker.cleaner.compaction_parts import PartToRewrite
from kdump.broker.cleaner.compaction_rewrite import Chunk, rewrite_part
from kdump.broker.cleaner.compaction_scan import PartToScan, ScannedPart, scan_part, survey_part
from kdump.broker.cleaner.live_records import LiveRecords
from kdump.engine.job import Split
from kdump.engine.splits import segment_splits
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.partition import Partition
from kdump.storage.location import Location
from kdump.target.refusal import Refusal


class ScanSplit(Split, frozen=True, eq=False, kw_only=True):
    """A part of a log to scan."""

    part: PartToScan


class RewriteSplit(Split, frozen=True, eq=False, kw_only=True):
    """A part of a log to rewrite."""

    part: PartToRewrite


class SurveyJob(Struct, frozen=True):
    """Finds the transactions of a log."""

    def run(self, split: ScanSplit, /) -> TxnBatches | Refusal | Unreadable:
        try:
            return survey_part(split.part)
        except OSError as failure:
            return Unreadable.of(failure, split.path)


class KeyPiece(Struct, frozen=True):
    """Some keys of a part of a log.

    Attributes:
        log: the directory of the partition.
        mapped: as :attr:`ScannedPart.mapped`.
        unmapped: as :attr:`ScannedPart.unmapped`.
    """

    log: Location
    mapped: KeyedRecords
    unmapped: KeyedRecords


class LiveKeys(Struct, frozen=True):
    """The live records of some keys of a log.

    Attributes:
        keys: the number of distinct keys.
    """

    live: LiveRecords
    keys: int


class ScanJob(Struct, frozen=True):
    """Finds transactions and damage in parts of logs, and by their keys the live records.

    Attributes:
        largest_record_bytes: larger records of compressed batches are not decoded, and their log
            is left unchanged.
    """

    largest_record_bytes: int = LARGEST_RECORD_BYTES

    def map(
        self, split: ScanSplit, buckets: int, /
    ) -> tuple[ScannedPart | Refusal | Unreadable, dict[int, KeyPiece]]:
        try:
            found = scan_part(split.part, self.largest_record_bytes)
        except OSError as failure:
            return Unreadable.of(failure, split.path), {}
        if isinstance(found, Refusal):
            return found, {}
        mapped = found.mapped.in_buckets(buckets)
        unmapped = found.unmapped.in_buckets(buckets)
        log = split.part.path.parent
        return found.without_keys(), {
            bucket: KeyPiece(log, mapped.get(bucket, NO_RECORDS), unmapped.get(bucket, NO_RECORDS))
            for bucket in mapped.keys() | unmapped.keys()
        }

    def reduce(self, pieces: Sequence[KeyPiece], /) -> dict[Location, LiveKeys]:
        """The live records, by the directory of the partition."""
        by_log: dict[Location, list[KeyPiece]] = defaultdict(list)
        for piece in pieces:
            by_log[piece.log].append(piece)
        return {
            log: LiveKeys(*live_records((p.mapped for p in own), (p.unmapped for p in own)))
            for log, own in by_log.items()
        }


class RewriteJob(Struct, frozen=True):
    """Computes the bytes that replace a part of a log."""

    largest_record_bytes: int = LARGEST_RECORD_BYTES

    def run(self, split: RewriteSplit, /) -> tuple[Chunk, ...] | Refusal | Unreadable:
        try:
            return rewrite_part(split.part, self.largest_record_bytes)
        except OSError as failure:
            return Unreadable.of(failure, split.path)


def survey_splits(partition: Partition, parts: Iterable[PartToScan]) -> Iterator[ScanSplit]:
    """The splits of a survey: one for each log."""
    sizes = {partition.path / each.log_name: each.data_bytes for each in partition.segments}
    for part in parts:
        yield ScanSplit(
            part.path,
            part.start,
            part.end,
            size_bytes=max(0, sizes[part.path] - part.start),
            label=partition.path.name,
            part=part,
        )


def scan_splits(
    partition: Partition, parts: Iterable[PartToScan], target_bytes: int
) -> Iterator[ScanSplit]:
    """The splits of a scan, in order: several for a large log.

    Raises:
        OSError: a log cannot be read.
    """
    segments = {partition.path / each.log_name: each for each in partition.segments}
    for part in parts:
        for split in segment_splits(partition, segments[part.path], target_bytes):
            yield ScanSplit(
                split.path,
                split.start,
                split.end,
                split.size_bytes,
                split.label,
                part=replace(part, start=split.start, end=split.end),
            )


def rewrite_splits(groups: Iterable[GroupToRewrite]) -> Iterator[RewriteSplit]:
    """The splits of a rewrite, in order."""
    for group in groups:
        for part in group.parts:
            start, end = part.ranges[0][0], part.ranges[-1][1]
            label = group.path.name
            yield RewriteSplit(part.path, start, end, part.size_bytes, label, part=part)
