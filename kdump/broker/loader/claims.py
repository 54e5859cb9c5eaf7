"""What the small files of a log claim about its bounds, and where they contradict the loader."""

from __future__ import annotations

from msgspec import Struct

from kdump.formats.checkpoints import EpochEntry


class Claims(Struct, frozen=True):
    """What the small files of a log claim before it is loaded.

    Attributes:
        offsets: at which the log has not ended yet, or ends, by a checkpoint.
        epochs: the leader epochs.
        snapshots: the offsets of the producer snapshots, rising.
    """

    offsets: tuple[int, ...]
    epochs: tuple[EpochEntry, ...]
    snapshots: tuple[int, ...]

    def go_past(self, end_offset: int) -> bool:
        """Whether any of them claims that the log goes on after ``end_offset``."""
        starts = (self.epochs[-1].start_offset,) if self.epochs else ()
        return max((*self.offsets, *starts, *self.snapshots[-1:]), default=0) > end_offset

    def lack_snapshot(self, base_offsets: list[int]) -> bool:
        """Whether a segment begins where no snapshot is, although there are older ones.

        Kafka takes a snapshot whenever it begins a segment. Before 2.8 it keeps only the newest.
        """
        if not self.snapshots:
            return False
        oldest = self.snapshots[0]
        return any(base > oldest and base not in self.snapshots for base in base_offsets[1:])
