"""Find what speaks against a log whose offsets fit: it may be a copy of another partition's.

Nothing in a batch names its partition. So a log that was copied over another one, and has valid
batches at possible offsets, can only be told by the files that were left beside it. Each of them
may also be wrong itself, so nothing is dropped for that alone: the report names the log.

None of this is certain to show it. A log that came with its indexes, is of the same leader epochs,
and whose producers wrote no snapshot, looks like one of the partition.
"""

from __future__ import annotations

import numpy as np

from kdump.broker.loader.valid_batches import ValidBatches
from kdump.formats import offset_index
from kdump.repair.salvage.side_files import SideFiles
from kdump.scan.batches import Column


class LogEvidence:
    """Compares the batches of one log with the files beside it, in the order of the log.

    Args:
        end_offset: the base offset of the next log; None if it is the last one.
        side_files: of the partition.

    Raises:
        OSError: a file cannot be read.
    """

    def __init__(self, base_offset: int, end_offset: int | None, side_files: SideFiles) -> None:
        self._side_files = side_files
        index = side_files.index(base_offset) or offset_index.decode(b"", base_offset)
        is_used = index.position > 0
        self._position, self._offset = index.position[is_used], index.offset[is_used]
        self._fitting = self._strange = 0
        at = side_files.last_snapshot if end_offset is None else end_offset
        known = {} if at is None or at <= base_offset else side_files.snapshot(at) or {}
        self._writers = sorted(
            (entry.last_offset, producer_id)
            for producer_id, entry in known.items()
            if entry.last_offset >= base_offset
        )
        self._last_offset = -1
        self._found: set[str] = set()

    def add(self, batches: ValidBatches) -> None:
        """Compare the next batches of the log, one in each row."""
        if not batches.count:
            return
        if self._side_files.contradicts_known_epochs(batches):
            self._found.add("leader-epoch-checkpoint")
        self._compare_index(batches)
        for offset, producer_id in self._writers:
            at = int(np.searchsorted(batches.last_offset, offset))
            if (
                at < batches.count
                and batches.first_offset[at] <= offset <= batches.last_offset[at]
                and int(batches.producer_id[at]) != producer_id
            ):
                self._found.add("producer snapshot")
        self._last_offset = int(batches.last_offset[-1])

    def _compare_index(self, batches: ValidBatches) -> None:
        """Count the index entries that point to these batches, or into the middle of them.

        Whatever the version of the broker, an entry has an offset above those of the batch before.
        """
        starts = batches.position
        begin, end = np.searchsorted(
            self._position, [int(starts[0]), int(starts[-1] + batches.size_bytes[-1])]
        )
        positions: Column = self._position[begin:end]
        at = np.searchsorted(starts, positions, side="right") - 1
        before = np.concatenate(([self._last_offset], batches.last_offset[:-1]))
        fits = (starts[at] == positions) & (self._offset[begin:end] > before[at])
        self._fitting += int(np.count_nonzero(fits))
        self._strange += int(np.count_nonzero(~fits))

    @property
    def against(self) -> tuple[str, ...]:
        """The files that describe other batches, in words."""
        found = set(self._found)
        if self._strange and not self._fitting:
            found.add("offset index")
        return tuple(sorted(found))
