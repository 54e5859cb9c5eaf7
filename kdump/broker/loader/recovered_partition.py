"""A partition as loading leaves it."""

from __future__ import annotations

from msgspec import Struct

from kdump.broker.loader.load_report import LoadReport
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.target.target_file import TargetFile


class Recovered(Struct, frozen=True):
    """A partition as a broker leaves it.

    Attributes:
        files: target state of each file, by name.
        log_start_offset: first offset of the log.
        log_end_offset: end of the log, exclusive.
        recovery_point: the new line in the recovery point checkpoint.
        checkpointed_log_start_offset: the new line in the log start checkpoint; None for no line.
        active_base_offset: base offset of the active segment.
        leader_epochs: as a broker then has them in memory.
        account: what was done, for people.
        producers: as a broker then has them in memory.
        first_unstable_offset: first offset of the first transaction that is open or whose end is
            not replicated; None if there is none.
        unstable_batch_offset: base offset of the batch that is found there, which is what limits
            the last stable offset; None likewise.
    """

    files: dict[str, TargetFile]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    checkpointed_log_start_offset: int | None
    active_base_offset: int
    leader_epochs: tuple[EpochEntry, ...]
    report: LoadReport
    producers: tuple[ProducerEntry, ...] = ()
    first_unstable_offset: int | None = None
    unstable_batch_offset: int | None = None

    @property
    def dropped_offsets(self) -> list[range]:
        """The offsets of valid batches that the broker no longer has, in ranges that rise.

        What only begins before the start of the log counts as deleted.
        """
        report, start = self.report, self.log_start_offset
        losses = [each.loss.offsets for each in report.cuts]
        losses += [each.loss.offsets for each in report.dropped]
        hidden = [each.loss.offsets for each in report.hidden]
        losses += [each for each in hidden if each is not None and each[0] >= start]
        return [range(first, last + 1) for first, last in sorted(filter(None, losses))]
