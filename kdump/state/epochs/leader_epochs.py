"""The leader epochs of a partition and their start offsets."""

from __future__ import annotations

import numpy as np

from kdump.formats import names
from kdump.formats.checkpoints import (
    EpochEntry,
    encode_leader_epoch_checkpoint,
    known_leader_epochs,
)
from kdump.formats.errors import FormatError
from kdump.scan.batches import BatchColumns
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory, Written

_FILE = names.LEADER_EPOCH_CHECKPOINT
_TEMPORARY_FILE = _FILE + names.TEMPORARY_SUFFIX


class LeaderEpochs:
    """The in-memory copy of ``leader-epoch-checkpoint``, written back when it changes.

    Follows ``LeaderEpochFileCache``. While nothing changes, the file keeps its order and blanks.

    Raises:
        Refused: the file is malformed or has an impossible entry.
    """

    def __init__(self, directory: VirtualDirectory) -> None:
        self._directory = directory
        self._history = EpochHistory()
        directory.require_no_directory(_FILE, "KafkaStorageException")
        if _FILE not in directory:
            directory.put(_FILE, Written(b""))
        try:
            entries = known_leader_epochs(directory.read(_FILE))
        except FormatError as problem:
            raise Refused(str(problem), _FILE, "KafkaStorageException") from problem
        for entry in entries:
            self._assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, by epoch."""
        return self._history.entries

    @property
    def latest_epoch(self) -> int | None:
        return self._history.latest_epoch

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that ``epoch`` begins at ``start_offset``, unless that is known already."""
        if self._assign(epoch, start_offset):
            self._write()

    def assign_all(self, batches: BatchColumns) -> None:
        """Record the epochs of ``batches``; batches of magic 0 and 1 have none."""
        epoch = batches.partition_leader_epoch
        latest = self.latest_epoch
        before = -1 if latest is None else latest
        if epoch.max(initial=before) <= before:
            return
        highest = np.maximum.accumulate(np.concatenate(([before], epoch)))
        for row in np.flatnonzero(epoch > highest[:-1]).tolist():
            self.assign(int(epoch[row]), int(batches.base_offset[row]))

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after ``end_offset``."""
        if self._history.truncate_from_end(end_offset):
            self._write_if_possible()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end before ``start_offset``; the current one then begins there."""
        if self._history.truncate_from_start(start_offset):
            self._write_if_possible()

    def clear(self) -> None:
        self._history.clear()
        self._write()

    def _assign(self, epoch: int, start_offset: int) -> bool:
        try:
            return self._history.assign(epoch, start_offset)
        except ValueError as problem:
            raise Refused(str(problem), _FILE, "IllegalArgumentException") from problem

    def _write_if_possible(self) -> None:
        # Kafka ignores a failure here, because the log may be about to be deleted.
        if not self._directory.is_directory(_TEMPORARY_FILE):
            self._write()

    def _write(self) -> None:
        self._directory.require_no_directory(_TEMPORARY_FILE, "KafkaStorageException")
        # Kafka writes a temporary file and renames it, which replaces a leftover of that name.
        self._directory.remove(_TEMPORARY_FILE)
        self._directory.put(_FILE, Written(encode_leader_epoch_checkpoint(self.entries)))
