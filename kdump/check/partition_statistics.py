"""The statistics of a partition, joined from those of its parts."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field

from kdump.check.log_map import ByteRun, RunKind, joined_runs
from kdump.check.part import PartStatistics
from kdump.formats.names import quarantined_from
from kdump.log.segment import Segment
from kdump.scan.batch_statistics import BatchStatistics
from kdump.state.transactions.open_transactions import LogTransactions
from kdump.state.transactions.producers import OpenTxn


class SegmentMap(Struct, frozen=True):
    """The map of a segment's log.

    Attributes:
        runs: from its first byte to its last.
    """

    base_offset: int
    log_name: str
    runs: tuple[ByteRun, ...]


class PartitionStatistics(Struct, frozen=True):
    """What the pictures of a partition need.

    Attributes:
        batches: the statistics of its valid batches.
        maps: of the segments that are not valid from beginning to end, or that salvage has
            quarantined bytes of.
        transactions: those that are open at the end of the log.
    """

    batches: BatchStatistics = field(default_factory=BatchStatistics)
    maps: tuple[SegmentMap, ...] = ()
    transactions: LogTransactions = field(default_factory=LogTransactions)


class PartitionStatisticsBuilder:
    """The statistics of a partition so far.

    Args:
        foreign: names of the files in its directory that are not Kafka's.
    """

    def __init__(self, foreign: Collection[str]) -> None:
        self._quarantined = {quarantined_from(name) for name in foreign}
        self._batches = BatchStatistics()
        self._segment: Segment | None = None
        self._parts: list[tuple[ByteRun, ...]] = []
        self._maps: list[SegmentMap] = []
        self._is_after_damage = self._has_damage = False

    def take(self, segment: Segment, part: PartStatistics) -> None:
        """Add the next part of the log."""
        if self._segment is not segment:
            self._end_segment()
            self._segment = segment
        self._batches += part.batches
        self._parts.append(part.runs)
        for run in part.runs:
            self._has_damage |= run.kind is RunKind.MIXED
            if run.kind is RunKind.VALID:
                self._has_damage |= self._is_after_damage
            self._is_after_damage |= run.kind is RunKind.DAMAGED

    def _end_segment(self) -> None:
        segment, parts = self._segment, self._parts
        self._parts = []
        if segment is None:
            return
        is_plain = all(run.kind is RunKind.VALID for runs in parts for run in runs)
        if not is_plain or segment.log_name in self._quarantined:
            self._maps.append(SegmentMap(segment.base_offset, segment.log_name, joined_runs(parts)))

    def result(
        self, open_txns: tuple[OpenTxn, ...], unreplicated_offset: int | None, end_offset: int
    ) -> PartitionStatistics:
        """The statistics; call it once, after all parts.

        Args:
            open_txns: the transactions without a marker.
            unreplicated_offset: as in
                :class:`~kdump.state.transactions.open_transactions.LogTransactions`.
        """
        self._end_segment()
        return PartitionStatistics(
            self._batches,
            tuple(self._maps),
            LogTransactions(
                () if self._has_damage else open_txns,
                open_txns if self._has_damage else (),
                unreplicated_offset,
                end_offset,
                self._has_damage,
            ),
        )
