"""Collect the statistics of a part of a segment while it is checked."""

from __future__ import annotations

from kdump.check.log_map import LogMapBuilder
from kdump.check.part import PartStatistics
from kdump.scan.batch_statistics import BatchStatistics, batch_statistics
from kdump.scan.batches import BatchColumns


class PartStatisticsBuilder:
    """The statistics so far.

    Attributes:
        runs: which bytes are valid.
    """

    def __init__(self) -> None:
        self.runs = LogMapBuilder()
        self._batches = BatchStatistics()

    def add(self, batches: BatchColumns, good: BatchColumns) -> None:
        """Add consecutive batches.

        Args:
            batches: all of them, at least one.
            good: those that are valid.
        """
        self.runs.add_batches(batches, good)
        if good.count:
            self._batches += batch_statistics(good)

    def result(self) -> PartStatistics:
        return PartStatistics(self._batches, self.runs.runs())
