"""The job of ``kdump metadata collect`` for one partition: what its directory knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from kdump.broker.loader.recovered_partition import Recovered
from kdump.broker.loader.swapped_partition import UnfinishedSwapError, as_loaded
from kdump.engine.job import Split
from kdump.errors import reason_of
from kdump.formats import names, producer_snapshot, record_batch
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, OffsetFileName, TopicPartition
from kdump.formats.uuids import ZERO_UUID, format_uuid
from kdump.jobs.collect.header_history import (
    EpochSample,
    HeaderSums,
    agree,
    first_headers,
    read_headers,
)
from kdump.jobs.loading.load_partition import Outcome, RecoverJob, loaded_replica
from kdump.jobs.loading.load_split import LoadSplit
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.log_search import ReplicaEnd, Trust, find_log_start, log_end, within_log
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage
from kdump.ranges import joined
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.state.metadata.disk_collection import CollectedLoad, CollectedPartition
from kdump.state.transactions.open_transactions import (
    LogTransactions,
    TransactionReplay,
    snapshot_transactions,
    usable_snapshots,
)
from kdump.state.transactions.stability import stability
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, Kept, KeptUpTo

Value = TypeVar("Value")
_Pairs = Sequence[tuple[Segment, Segment | None]]
"""Segments, each with the one that follows it in the log."""


MOST_MISSING_RANGES: Final = 1000
"""A document does not grow with a log that has more gaps."""


class CollectSplit(Split, frozen=True, kw_only=True):
    """A partition to read.

    Attributes:
        partition: as it is listed.
        log_start_offset: from the checkpoint; None if it has no line.
        recovery_point: likewise.
        high_watermark: likewise.
        is_clean: whether the log directory has the clean shutdown marker.
        is_quick: whether to leave out batches that neither a start nor the result needs.
        load: what a starting broker loads.
    """

    partition: Partition
    key: TopicPartition
    log_start_offset: int | None
    recovery_point: int | None
    high_watermark: int | None
    is_clean: bool
    is_quick: bool
    load: LoadSplit


class CollectJob(Struct, frozen=True):
    """Reads what the directory of one partition knows."""

    def run(self, split: CollectSplit, /) -> CollectedPartition:
        """Read one partition; what cannot be read is in the result's problems."""
        return _Reading(split).collected()


class _Reading:
    """The reading of one partition."""

    def __init__(self, split: CollectSplit) -> None:
        listed = split.partition
        self.split = split
        self.problems: dict[str, None] = {}
        self.listed = listed
        self.partition = self._try(lambda: as_loaded(listed)) or listed
        self.log_start = find_log_start(self.partition, split.log_start_offset)
        self.sums = HeaderSums()
        self.is_checkpoint_true = True
        self.damages: list[Damage] = []
        self.doubtful_epochs_at: list[int] = []
        self.doubtful_batch: tuple[range, ...] = ()
        self.is_read_whole = False
        self.outcome: Outcome | None = None

    def collected(self) -> CollectedPartition:
        history = self._epochs()
        in_checkpoint = None if history is None else history.latest_epoch
        end: ReplicaEnd | None = None
        log: LogTransactions | None = None
        if self.partition.is_0_7:
            self._problem("a log of Kafka 0.7 is not read")
        elif self.partition.segments:
            end = self._try(self._end)
            if end is not None:
                self._take_end(end)
            log = self._read_logs(history, end)
            end = self._without_doubt(history, end)
            if end is not None:
                # After a clean shutdown the checkpoint vouches for the last batch.
                self.sums.end_log(end.offset)
            self._compare_epochs(history)
            self._take_snapshots()
        loaded = self._loaded()
        dropped_swaps = tuple(joined(self._dropped_swaps()))
        log_end = None if end is None else end.offset
        is_cleaned = self._is_cleaned()
        highest = (self.sums.highest_epoch, _epoch_of(end), in_checkpoint)
        return CollectedPartition(
            directory=self.listed.path.name,
            topic=self.split.key.topic,
            partition=self.split.key.partition,
            state=self.listed.state,
            topic_id=self._topic_id(),
            leader_epochs=self._epochs_in_log(history, end),
            highest_epoch=max((each for each in highest if each is not None), default=None),
            log_start_offset=self.log_start,
            log_end_offset=log_end,
            loaded=loaded,
            last_stable_offset=self._last_stable_offset(log, log_end),
            high_watermark=self.split.high_watermark,
            highest_producer_id=self.sums.highest_producer_id,
            size_bytes=self.listed.total_bytes,
            problems=tuple(self.problems),
            keeps_damage=self._keeps_damage(),
            missing_offsets=None if is_cleaned else self._missing_offsets(),
            damaged_offsets=tuple(self.sums.damaged[:MOST_MISSING_RANGES]),
            is_cleaned=is_cleaned,
            dropped_swaps=dropped_swaps,
            doubtful_offsets=self.doubtful_batch,
        )

    # ---- small files

    def _topic_id(self) -> str | None:
        found = self._try(self.listed.read_metadata, names.PARTITION_METADATA)
        return None if found is None or found.topic_id == ZERO_UUID else format_uuid(found.topic_id)

    def _epochs(self) -> EpochHistory | None:
        entries = self._try(self.listed.read_leader_epochs, names.LEADER_EPOCH_CHECKPOINT)
        if entries is None:
            return None
        try:
            return EpochHistory(entries)
        except ValueError as problem:
            self._problem(f"{names.LEADER_EPOCH_CHECKPOINT}: {problem}")
            return None

    # ---- logs

    def _read_logs(
        self, history: EpochHistory | None, end: ReplicaEnd | None
    ) -> LogTransactions | None:
        """Read the log: its transactions are those after the last usable producer snapshot.

        A quick reading begins there, unless epochs need more.

        Returns:
            The transactions; None if not all that they need can be read.
        """
        pairs = list(self.partition.with_following())
        replay = TransactionReplay(self.split.high_watermark)
        log = None if end is None else self._of_last_snapshot(end.offset)
        first = len(pairs) if log is not None else self._first_to_replay(replay)
        is_needed = not self.split.is_quick or not self._has_all_epochs(history, pairs[:first], end)
        start = self.log_start
        if not is_needed and first < len(pairs):
            # Offsets of segments that are not read are not missing.
            start = max(start or 0, pairs[first][0].base_offset)
        self.sums.begin_log(start)
        is_whole = self._read_segments(pairs[:first]) if is_needed else not first
        is_complete = self._read_segments(pairs[first:], replay)
        self.is_read_whole = is_complete and is_whole
        self.is_checkpoint_true = not is_needed or self.is_read_whole
        if log is not None or not is_complete:
            return log
        return replay.result(self.partition.segments[-1].base_offset)

    def _has_all_epochs(
        self, history: EpochHistory | None, unread: _Pairs, end: ReplicaEnd | None
    ) -> bool:
        """Whether the checkpoint has the epochs of all segments that were not read."""
        samples = self._try(
            lambda: first_headers(self.partition, [segment for segment, _ in unread])
        )
        if samples is None or end is None:
            return False
        return agree(history, [*samples, *_last_sample(end)], self.log_start or 0)

    def _read_segments(self, pairs: _Pairs, replay: TransactionReplay | None = None) -> bool:
        """Read all batches of some segments, and return whether all could be read."""
        is_complete = True
        for segment, following in pairs:
            try:
                read_headers(self.partition, segment, following, self.sums, self._on_damage, replay)
            except OSError as failure:
                self._unreadable(failure)
                is_complete = False
        return is_complete

    def _end(self) -> ReplicaEnd | None:
        """Where the log ends; after a clean shutdown the checkpoint vouches for its last batch."""
        if self.split.is_clean and self.split.recovery_point is not None:
            found = log_end(self.partition, Trust.HEADERS)
            has_epoch = found.leader_epoch != record_batch.NO_PARTITION_LEADER_EPOCH
            if has_epoch and found.offset == self.split.recovery_point:
                return found
        return log_end(self.partition, Trust.CHECKSUMS)

    def _without_doubt(
        self, history: EpochHistory | None, end: ReplicaEnd | None
    ) -> ReplicaEnd | None:
        """The end, if the last batch is where it was written.

        No checksum covers the base offset and the leader epoch of a batch. Those of other batches
        can be compared with the batches after them.
        """
        last = self.sums.last
        if end is None or last is None or last.end_offset != end.offset:
            return end
        offsets = f"offsets {last.base_offset} to {last.end_offset - 1}, the last batch"
        expected = None if history is None else history.epoch_for_offset(last.base_offset)
        run = self.sums.runs[-1] if self.sums.runs else None
        is_first = run is not None and run.first_offset == last.base_offset
        if expected is not None and last.leader_epoch > expected and is_first:
            # A broker writes a new epoch to the checkpoint before it appends a batch of it.
            self.sums.runs.pop()
            self._problem(
                f"{offsets}: its leader epoch, {last.leader_epoch}, is not in"
                f" {names.LEADER_EPOCH_CHECKPOINT}, and may be wrong"
            )
        has_gap = last.base_offset > last.offset_before >= self.partition.segments[-1].base_offset
        # The cleaner does not reach the active segment, unless others after it were deleted.
        if has_gap and not self.split.load.context.is_compacted:
            self._problem(
                f"{offsets}: nothing is between offset {last.offset_before} and it, and its base"
                " offset may be wrong"
            )
            self.doubtful_batch = (range(last.base_offset, last.end_offset),)
            return ReplicaEnd(last.epoch_before, last.offset_before, end.damage)
        return end

    def _compare_epochs(self, history: EpochHistory | None) -> None:
        """Compare the epochs of all batches that were read with those of the checkpoint."""
        for run, after in self.sums.falls[:1]:
            self.doubtful_epochs_at.append(run.last_offset)
            self._problem(
                f"the leader epoch falls from {run.leader_epoch} to {after.leader_epoch} at offset"
                f" {after.first_offset}"
            )
        log_start = self.log_start or 0
        samples = [each for run in self.sums.runs for each in run.samples]
        if agree(history, samples, log_start):
            return
        # A checkpoint that has all epochs but those of some batches between others is true.
        undoubted = self.sums.undoubted_samples()
        self.is_checkpoint_true = bool(self.sums.falls) and agree(history, undoubted, log_start)
        if history is None or self.sums.falls:
            return
        for each in samples:
            expected = history.epoch_for_offset(each.offset)
            if expected not in (None, each.leader_epoch) and each.offset >= log_start:
                self.doubtful_epochs_at.append(each.offset)
                self._problem(
                    f"offset {each.offset}: its batch has leader epoch {each.leader_epoch}, and"
                    f" {names.LEADER_EPOCH_CHECKPOINT} has {expected}"
                )
                return

    def _take_end(self, end: ReplicaEnd) -> None:
        for damage in end.damage:
            self._on_damage(damage)
        if self.log_start is not None and end.offset < self.log_start:
            self._problem(
                f"{names.LOG_START_OFFSET_CHECKPOINT} has offset {self.log_start}, but the log ends"
                f" at {end.offset}: a starting broker deletes all its records"
            )
            self.log_start = find_log_start(self.partition, None)
        if not end.has_batches:
            self.log_start = end.offset

    def _loaded(self) -> CollectedLoad | None:
        """What a starting broker makes of the log; None if it does not load it."""
        self.outcome = outcome = RecoverJob().run(self.split.load)
        if isinstance(outcome, Refusal):
            self._problem(f"a starting broker does not load it: {outcome}")
        if isinstance(outcome, Unreadable):
            self._problem(f"{outcome.path.rpartition('/')[2]}: {outcome.what}")
        found = loaded_replica(outcome, None)
        if found is None or found.log_end_offset < 0:
            return None
        return CollectedLoad(
            found.log_start_offset, found.log_end_offset, tuple(found.leader_epochs)
        )

    def _dropped_swaps(self) -> Iterator[range]:
        """The offsets of records that a start deletes because of an unfinished swap."""
        report = self.outcome.report if isinstance(self.outcome, Recovered) else None
        for each in () if report is None else report.swap_losses:
            if each.loss.offsets is not None:
                first, last = each.loss.offsets
                self._problem(
                    f"{each.name}: a starting broker deletes it because of an unfinished swap, with"
                    f" offsets {first} to {last}, which no log has"
                )
                yield range(first, last + 1)

    def _keeps_damage(self) -> bool:
        """Whether damage of the log is still there when a broker has loaded it."""
        if not isinstance(self.outcome, Recovered):
            return self.outcome is not None and bool(self.problems)
        end = self.outcome.log_end_offset
        if any(offset < end for offset in self.doubtful_epochs_at):
            return True
        for damage in self.damages:
            target = self.outcome.files.get(damage.path.rpartition("/")[2], Kept())
            is_cut = isinstance(target, KeptUpTo) and target.size_bytes <= damage.start
            if not is_cut and not isinstance(target, Gone):
                return True
        return False

    def _is_cleaned(self) -> bool:
        """Whether the cleaner may have removed records of the log.

        More than a few gaps are how a log looks that was compacted once.
        """
        has_line = self.split.load.context.is_compacted is True
        return has_line or len(self.sums.missing) > MOST_MISSING_RANGES

    def _missing_offsets(self) -> tuple[range, ...] | None:
        """The offsets that no batch has; None if the log was not read whole."""
        if self.is_read_whole or not self.partition.segments:
            return tuple(self.sums.missing)
        return None

    def _of_last_snapshot(self, end_offset: int) -> LogTransactions | None:
        """What the snapshot of a clean shutdown says; None if there is none."""
        for each in self.partition.producer_snapshots:
            if each.offset == end_offset and each.size_bytes == producer_snapshot.HEADER_BYTES:
                return LogTransactions(end_offset=end_offset)  # Most are empty.
        return snapshot_transactions(self.partition, end_offset)

    def _first_to_replay(self, replay: TransactionReplay) -> int:
        """The number of the first segment after the last usable snapshot, which is loaded."""
        flushed = None if self.split.is_clean else self.split.recovery_point or 0
        bases = [segment.base_offset for segment in self.partition.segments]
        for offset in usable_snapshots(self.partition, self.split.log_start_offset or 0, flushed):
            entries = self._snapshot(offset)
            if entries is not None:
                replay.load(entries)
                return bases.index(offset)
        return 0

    def _snapshot(self, offset: int) -> tuple[producer_snapshot.ProducerEntry, ...] | None:
        name = str(OffsetFileName(offset, FileKind.PRODUCER_SNAPSHOT))
        path = self.partition.file_path(name)
        found = self._try(lambda: producer_snapshot.read(path.read()), name)
        return None if found is None else found.entries

    def _take_snapshots(self) -> None:
        """Count the producers of all snapshots."""
        for each in self.partition.producer_snapshots:
            if each.size_bytes == producer_snapshot.HEADER_BYTES:
                continue  # Most are empty.
            entries = self._snapshot(each.offset) or ()
            highest = max((entry.producer_id for entry in entries), default=-1)
            if highest >= 0:
                self.sums.take_producer_id(highest)

    def _epochs_in_log(
        self, history: EpochHistory | None, end: ReplicaEnd | None
    ) -> tuple[EpochEntry, ...]:
        """The epochs of the records; those of the checkpoint only where the log reaches them."""
        if end is not None and not end.has_batches:
            return ()
        if end is None:
            return () if history is None or not self.partition.segments else history.entries
        if not self.is_checkpoint_true or history is None:
            history = EpochHistory(self.sums.rising())
        history.truncate_from_end(end.offset)
        return history.entries

    def _last_stable_offset(self, log: LogTransactions | None, log_end: int | None) -> int | None:
        if log is None or log_end is None or self.log_start is None:
            return None
        high_watermark = self.split.high_watermark
        if high_watermark is not None:
            high_watermark = within_log(high_watermark, self.log_start, log_end)
        return stability(log, self.log_start, high_watermark).last_stable_offset

    # ---- problems

    def _try(self, read: Callable[[], Value | None], name: str = "") -> Value | None:
        try:
            return read()
        except UnfinishedSwapError as failure:
            self._problem(str(failure))
        except FormatError as failure:
            self._problem(f"{name}: {failure}")
        except OSError as failure:
            self._unreadable(failure, name)
        return None

    def _unreadable(self, failure: OSError, name: str = "") -> None:
        where = str(failure.filename or name).rpartition("/")[2]
        self._problem(f"{where}: {reason_of(failure)}")

    def _on_damage(self, damage: Damage) -> None:
        self.damages.append(damage)
        name = damage.path.rpartition("/")[2]
        self._problem(f"{name}: bytes {damage.start} to {damage.end}: {damage.problem}")

    def _problem(self, what: str) -> None:
        self.problems.setdefault(what)


def _epoch_of(end: ReplicaEnd | None) -> int | None:
    return None if end is None or end.leader_epoch < 0 else end.leader_epoch


def _last_sample(end: ReplicaEnd | None) -> list[EpochSample]:
    """The last batch as a sample: its last offset has the same epoch."""
    return [] if end is None or not end.offset else [EpochSample(end.offset - 1, end.leader_epoch)]
