"""Check that leader epochs of batches do not go back, and that the checkpoint has them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from kdump.check import invariants
from kdump.check.collector import MOST_OF_A_CODE
from kdump.check.findings import Finding, Place, Severity
from kdump.check.part import EpochRun, SegmentPart
from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.errors import FormatError
from kdump.log.partition import Partition
from kdump.state.epochs.rising_epochs import rising_epochs

_LEAST_EPOCH: Final = -(2**31)


class EpochCheck:
    """Checks the leader epochs of a log, given its parts in order."""

    def __init__(self, log_start_offset: int) -> None:
        self._log_start_offset = log_start_offset
        self._runs: list[EpochRun] = []
        self._greatest = _LEAST_EPOCH
        self._went_back = 0

    def take(self, part: SegmentPart) -> Iterator[Finding]:
        """Add a part; yields a finding where the epochs go back."""
        for run in part.epochs:
            if self._runs and run.epoch == self._runs[-1].epoch:
                continue  # a part begins with a run, even if the epoch continues
            self._runs.append(run)
            if run.epoch < self._greatest:
                self._went_back += 1
                if self._went_back <= MOST_OF_A_CODE:
                    yield invariants.LEADER_EPOCH_ORDER.finding(
                        Place(part.path, run.position, run.base_offset),
                        "a batch has an older leader epoch than one before it",
                        expected=f"{self._greatest} or more",
                        found=run.epoch,
                    )
            self._greatest = max(self._greatest, run.epoch)

    def finish(
        self, partition: Partition, end_offset: int, *, is_expected: bool
    ) -> Iterator[Finding]:
        """Compare ``leader-epoch-checkpoint`` with the epochs of the batches.

        Args:
            is_expected: whether the file must exist.

        Raises:
            OSError: the file cannot be read.
        """
        path = str(partition.path / names.LEADER_EPOCH_CHECKPOINT)
        try:
            entries = partition.read_leader_epochs()
        except FormatError as problem:
            yield invariants.EPOCHS_MALFORMED.of_error(
                Place(path, problem.position),
                problem,
                f"the leader epoch checkpoint cannot be read: {problem.what}",
            )
            return
        for entry in entries or ():
            if entry.epoch < 0 or entry.start_offset < 0:
                yield invariants.EPOCHS_MALFORMED.finding(
                    Place(path),
                    "the leader epoch checkpoint has a negative epoch or offset",
                    expected="0 or more",
                    found=f"epoch {entry.epoch} at offset {entry.start_offset}",
                )
        runs = self._rising(end_offset)
        if not runs:
            return
        if entries is None:
            yield invariants.EPOCHS_MISSING.finding(
                Place(path),
                "there is no leader epoch checkpoint, but batches have epochs",
                severity=None if is_expected else Severity.INFO,
            )
            return
        yield from self._compare(path, entries, runs, end_offset)

    def _rising(self, end_offset: int) -> list[EpochRun]:
        """The runs with an epoch that do not contradict more others."""
        runs = [run for run in self._runs if run.epoch >= 0]
        if not self._went_back or not runs:
            return runs
        epochs = np.array([run.epoch for run in runs], np.int64)
        base_offsets = np.array([run.base_offset for run in runs], np.int64)
        return list(itertools.compress(runs, rising_epochs(epochs, base_offsets, end_offset)))

    def _compare(
        self, path: str, entries: Sequence[EpochEntry], runs: Sequence[EpochRun], end_offset: int
    ) -> Iterator[Finding]:
        ordered = sorted(entries, key=lambda entry: entry.start_offset)
        starts = [entry.start_offset for entry in ordered]
        are_deleted = _shows_deletion(ordered, runs)
        for index, run in enumerate(runs):
            offset = max(run.base_offset, self._log_start_offset)
            following = runs[index + 1].base_offset if index + 1 < len(runs) else end_offset
            if offset >= following:
                continue
            at = bisect.bisect_right(starts, offset) - 1
            if at < 0 and are_deleted:
                yield invariants.EPOCHS_MISSING.finding(
                    Place(path, None, offset),
                    f"records were deleted up to offset {starts[0]}, and come back: the log start"
                    " offset was not written",
                    expected=f"epoch {run.epoch} from offset {offset} or before",
                    found=f"offset {starts[0]}",
                    severity=Severity.INFO,
                )
            elif at < 0:
                yield invariants.EPOCHS_MISSING.finding(
                    Place(path, None, offset),
                    "the leader epoch checkpoint begins after batches with leader epochs",
                    expected=f"epoch {run.epoch} from offset {offset} or before",
                    found=f"offset {starts[0]}" if starts else "no entries",
                )
            elif ordered[at].epoch != run.epoch:
                invariant = (
                    invariants.EPOCHS_MISSING
                    if all(entry.epoch != run.epoch for entry in entries)
                    else invariants.EPOCHS_MISMATCH
                )
                yield invariant.finding(
                    Place(path, None, offset),
                    "the leader epoch checkpoint contradicts a batch",
                    expected=f"epoch {run.epoch} at offset {offset}",
                    found=f"epoch {ordered[at].epoch}",
                )


def _shows_deletion(ordered: Sequence[EpochEntry], runs: Sequence[EpochRun]) -> bool:
    """Whether the first entry begins inside its epoch: a broker has moved it there.

    It does that when records are deleted (``LeaderEpochFileCache.truncateFromStartAsyncFlush``),
    and writes the log start offset up to a minute later. If it is killed before, the records come
    back at its start, and the entry stays.
    """
    if not ordered:
        return False
    first = ordered[0]
    return any(run.epoch == first.epoch and run.base_offset < first.start_offset for run in runs)
