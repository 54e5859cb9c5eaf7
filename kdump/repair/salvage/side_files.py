"""The files beside the logs, as evidence whether batches belong to the partition."""

from __future__ import annotations

from typing import Final

import numpy as np

from kdump.broker.loader.valid_batches import ValidBatches
from kdump.formats import names, offset_index, producer_snapshot
from kdump.formats.checkpoints import EpochEntry, decode_leader_epoch_checkpoint
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.formats.offset_index import OffsetIndex
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.repair.salvage.log_runs import LogRun
from kdump.scan.batches import Column, Flags
from kdump.target.virtual_directory import VirtualDirectory, file_name

_UNINDEXED_BYTES: Final = 64 << 10
"""More bytes without an index entry are unusual: the default interval is 4096."""


class SideFiles:
    """The offset indexes, producer snapshots and leader epochs of a partition.

    Raises:
        OSError: a file cannot be read.
    """

    def __init__(self, directory: VirtualDirectory) -> None:
        self._directory = directory
        entries = self._read_epochs()
        self._starts = np.array([each.start_offset for each in entries], np.int64)
        self._epochs = np.array([each.epoch for each in entries], np.int64)
        self._snapshots: dict[int, dict[int, ProducerEntry] | None] = {}
        self.has_indexes = any(
            name.endswith(FileKind.OFFSET_INDEX.value) for name in directory.names()
        )
        self.has_snapshots = bool(directory.snapshot_names())

    def _read_epochs(self) -> list[EpochEntry]:
        if names.LEADER_EPOCH_CHECKPOINT not in self._directory:
            return []
        try:
            entries = decode_leader_epoch_checkpoint(
                self._directory.read(names.LEADER_EPOCH_CHECKPOINT)
            )
        except FormatError:
            return []
        return sorted(entries, key=lambda entry: entry.start_offset)

    def contradicts_epochs(self, run: LogRun, batches: ValidBatches) -> bool:
        """Whether a batch has another leader epoch than the checkpoint has for its offset."""
        if batches.is_collapsed:
            return False
        found = batches.leader_epoch[run.rows]
        is_other = self._has_other_epoch(batches.first_offset[run.rows], found)
        return bool(((found >= 0) & is_other).any())

    def contradicts_known_epochs(self, batches: ValidBatches) -> bool:
        """Whether a batch has an epoch that the checkpoint has, but for other offsets.

        A newer epoch than all of the checkpoint is no contradiction: after a crash it may lack it.
        """
        found = batches.leader_epoch
        is_other = self._has_other_epoch(batches.first_offset, found)
        return bool((np.isin(found, self._epochs) & is_other).any())

    def _has_other_epoch(self, offset: Column, epoch: Column) -> Flags:
        """Whether the checkpoint has an epoch for an offset, and it is another."""
        if not len(self._epochs):
            return np.zeros(len(offset), np.bool_)
        at = np.searchsorted(self._starts, offset, side="right") - 1
        is_other: Flags = (at >= 0) & (epoch != self._epochs[np.maximum(at, 0)])
        return is_other

    def index(self, base_offset: int) -> OffsetIndex | None:
        """The offset index of a log, without padding; None if there is none."""
        name = file_name(base_offset, FileKind.OFFSET_INDEX)
        if name not in self._directory or self._directory.is_directory(name):
            return None
        data = self._directory.read(name)
        return offset_index.decode(data[: len(data.rstrip(b"\0")) + 7 & ~7], base_offset)

    @property
    def last_snapshot(self) -> int | None:
        """The offset of the last producer snapshot; None if there is none."""
        parsed = map(names.parse_offset_file_name, self._directory.snapshot_names())
        return max((each.offset for each in parsed if each is not None), default=None)

    def index_agreement(self, run: LogRun, batches: ValidBatches) -> bool | None:
        """Whether the index entries for a run point to its batches; None if there are none."""
        if batches.is_collapsed:
            return True
        index = self.index(run.base_offset)
        if index is None:
            return None
        starts = batches.position[run.rows]
        begin, end = int(starts[0]), int(starts[-1] + batches.size_bytes[run.rows][-1])
        chosen = (index.position >= begin) & (index.position < end) & (index.position > 0)
        if not chosen.any():
            return None if end - begin <= _UNINDEXED_BYTES or len(index.offset) == 0 else False
        positions, offsets = index.position[chosen], index.offset[chosen]
        at = np.searchsorted(starts, positions)
        is_start = (at < len(starts)) & (starts[np.minimum(at, len(starts) - 1)] == positions)
        low = batches.first_offset[run.rows][np.minimum(at, len(starts) - 1)]
        return bool((is_start & (offsets >= low) & (offsets <= run.last)).all())

    def snapshot(self, offset: int) -> dict[int, ProducerEntry] | None:
        """The producers of the snapshot at an offset, by id; None if it is missing or malformed."""
        if offset not in self._snapshots:
            name = file_name(offset, FileKind.PRODUCER_SNAPSHOT)
            entries = None
            if name in self._directory:
                try:
                    found = producer_snapshot.read(self._directory.read(name)).entries
                    entries = {entry.producer_id: entry for entry in found}
                except FormatError:
                    entries = None
            self._snapshots[offset] = entries
        return self._snapshots[offset]
