"""Look up an offset or a time in each replica of partitions.

Follows ``Partition.fetchOffsetForTimestamp`` for a consumer, and ``LeaderEpochFileCache`` for where
the leader epoch of the answer ends.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.engine.job import Split
from kdump.errors import reason_of
from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, OffsetFileName
from kdump.log.bounds import is_certain_end
from kdump.log.broker import require_one_cluster
from kdump.log.directory import LogDirectory
from kdump.log.first_record import FoundRecord
from kdump.log.living import while_it_changes
from kdump.log.log_search import checkpointed, find_log_start, within_log
from kdump.log.partition import Partition
from kdump.log.producer_snapshots import read_producers
from kdump.log.record_search import LIMIT_BYTES, RecordInSegment, RecordSearch
from kdump.log.replicas import Replica, most_advanced, of_each_topic, replicas_by_partition
from kdump.log.selection import PartitionSelection
from kdump.log.special_times import IsolationLevel, SpecialTime
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.storage.location import Location
from kdump.tiered.remote_partition import RemotePart
from kdump.tiered.tiered_storage import remote_part

if TYPE_CHECKING:
    from kdump.log.valid_windows import Damage

_SPLIT_BYTES: Final = 64 << 10
"""About what a lookup reads."""


class Bound(enum.Enum):
    """The offset that answers for a consumer stay below; the value is its name."""

    HIGH_WATERMARK = "high_watermark"
    LAST_STABLE_OFFSET = "last_stable_offset"
    LOG_END_OFFSET = "log_end_offset"


class Question(Struct, frozen=True):
    """What is looked up: an offset or a time.

    Attributes:
        offset: the offset; None for a time.
        time: in epoch milliseconds, or a special one; None for an offset.
        isolation_level: what a consumer reads that asks for a time.
    """

    offset: int | None = None
    time: int | SpecialTime | None = None
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


class LookupRequest(Struct, frozen=True):
    """What to look up, and where."""

    directories: Sequence[LogDirectory]
    selection: PartitionSelection
    question: Question


class LookupSplit(Split, frozen=True, kw_only=True):
    """A replica to look into.

    Attributes:
        partition: as a starting broker loads it.
        is_clean: whether its log directory has the clean shutdown marker.
        log_start: what ``log-start-offset-checkpoint`` says of it.
        high_watermark: what ``replication-offset-checkpoint`` says of it.
    """

    partition: Partition
    is_clean: bool
    log_start: int | None
    high_watermark: int | None


class Found(Struct, frozen=True):
    """An offset, and the first record from there on.

    Attributes:
        offset: the answer; None if there is none.
        log: the log that holds the record; None without one.
        record: None if no record is there.
        leader_epoch: at the offset; None if it is not known.
    """

    offset: int | None = None
    log: Location | None = None
    record: FoundRecord | None = None
    leader_epoch: int | None = None


class LookupAnswer(Struct, frozen=True):
    """What was found in one replica.

    Attributes:
        epoch_end_offset: where the leader epoch of the answer ends; None if that is not known.
        is_end_certain: whether a starting broker ends it there, too.
        high_watermark: from the checkpoint; None if it has none.
        last_stable_offset: None if it was not asked for.
        bound: the offset that an answer for a time stays below; None for an offset.
        unused_indexes: names of indexes that are missing or wrong, and were not used.
        losses: that records are missing at the end of the log, and why, a sentence each.
        malformed: small files that are malformed, each with what is wrong.
        is_lost: whether damage is where the offset was that was looked up.
        epochs: the leader epochs between the start of the log and its end.
    """

    found: Found
    epoch_end_offset: int | None
    log_start_offset: int
    log_end_offset: int
    is_end_certain: bool
    high_watermark: int | None
    last_stable_offset: int | None
    bound: Bound | None
    read_bytes: int
    unused_indexes: tuple[str, ...]
    notes: tuple[str, ...]
    losses: tuple[str, ...]
    damages: tuple[Damage, ...]
    malformed: tuple[tuple[Location, str], ...]
    is_lost: bool
    epochs: tuple[EpochEntry, ...]


class UnreadableReplica(Struct, frozen=True):
    """A replica that could not be read."""

    path: str
    what: str


class LookupJob(Struct, frozen=True):
    """Looks into one replica."""

    question: Question

    def run(self, split: LookupSplit, /) -> LookupAnswer | UnreadableReplica | None:
        """Look into one replica; None if a broker has deleted it meanwhile."""

        def answer(partition: Partition) -> LookupAnswer:
            return _Lookup(self.question, replace(split, partition=partition)).answer()

        try:
            return while_it_changes(
                split.partition, answer, gone=None, has_damage=lambda found: bool(found.damages)
            )
        except OSError as failure:
            what = reason_of(failure)
            return UnreadableReplica(failure.filename or str(split.path), what)


class _Lookup:
    """One question to one replica."""

    def __init__(self, question: Question, split: LookupSplit) -> None:
        partition = split.partition
        self.question = question
        self.split = split
        self.search = RecordSearch(partition)
        self.notes: list[str] = []
        self.malformed: list[tuple[Location, str]] = []
        self.log_start = find_log_start(partition, split.log_start) or 0
        self.log_end = self.search.log_end_offset() if partition.segments else self.log_start
        self.damaged_end = tuple(self.search.damages_before)
        self.is_lost = False
        self.is_discarded = self.log_end < self.log_start
        self.losses = tuple(self._losses())
        if self.is_discarded:
            self.notes.append(self.losses[0])
            self.log_end = self.log_start
        self.bound: Bound | None = None
        self.last_stable_offset: int | None = None
        self.epochs = self._read_epochs()
        self.remote = remote_part(partition)

    def _losses(self) -> Iterator[str]:
        if self.is_discarded:
            yield (
                f"{names.LOG_START_OFFSET_CHECKPOINT} has offset {self.log_start}, but the log ends"
                f" at {self.log_end}: a starting broker deletes all its records"
            )
            return
        yield from self._missing()
        if self.damaged_end:
            yield ends_before_damage(self.log_end, self.damaged_end[0])

    def _missing(self) -> Iterator[str]:
        mark = self.split.high_watermark
        if mark is not None and mark > self.log_end:
            yield (
                f"the log ends at offset {self.log_end}, before the high watermark on disk, {mark}:"
                " records are missing"
            )

    def answer(self) -> LookupAnswer:
        if not self.search.partition.segments:
            self.notes.append("the partition has no segment")
        if self.question.offset is not None:
            found = self._at_offset(self.question.offset)
        else:
            assert self.question.time is not None
            found = self._at_time(self.question.time)
        epoch_end = None
        if found.leader_epoch is not None:
            end = self.epochs.end_offset_for(found.leader_epoch, self.log_end)
            epoch_end = None if end is None else end.end_offset
        if self.search.unverified_indexes:
            self.notes.append(
                f"{self.search.unverified_indexes} time indexes were not compared with their logs,"
                f" to read no more than {LIMIT_BYTES >> 20} MiB"
            )
        return LookupAnswer(
            found=found,
            epoch_end_offset=epoch_end,
            log_start_offset=self.log_start,
            log_end_offset=self.log_end,
            is_end_certain=is_certain_end(
                self.search.partition, self.log_end, self.log_start, is_clean=self.split.is_clean
            ),
            high_watermark=self.split.high_watermark,
            last_stable_offset=self.last_stable_offset,
            bound=self.bound,
            read_bytes=self.search.read_bytes,
            unused_indexes=tuple(sorted(self.search.unused_indexes)),
            notes=tuple(self.notes),
            losses=self.losses,
            damages=tuple(self.search.damages.values()),
            malformed=tuple(self.malformed),
            is_lost=self.is_lost,
            epochs=self.epochs.entries,
        )

    def _read_epochs(self) -> EpochHistory:
        """The leader epochs as a broker keeps them for the log between its start and its end."""
        path = self.search.partition.path / names.LEADER_EPOCH_CHECKPOINT
        try:
            history = EpochHistory(self.search.partition.read_leader_epochs() or ())
        except (FormatError, ValueError) as problem:
            self.malformed.append((self.split.path / path.name, str(problem)))
            return EpochHistory()
        if self.is_discarded:
            history.clear()
        # A leader of the next epoch may not have written anything yet.
        history.truncate_from_end(self.log_end + 1)
        history.truncate_from_start(self.log_start)
        return history

    # ---- An offset ----

    def _at_offset(self, offset: int) -> Found:
        if offset < self.log_start:
            self.notes.append(f"the log starts at offset {self.log_start}")
            return Found()
        if offset >= self.log_end:
            note = f"the log ends at offset {self.log_end}"
            if self.damaged_end and not self.is_discarded:
                note += f"; offset {offset} may be lost: {_where(self.damaged_end)} are damaged"
            self.notes.append(note)
            return Found()
        found = self._found(self.search.at_or_after(offset))
        damages = self.search.damages_before
        self.is_lost = bool(damages) and (found.record is None or found.record.offset > offset)
        if self.is_lost:
            then = (
                "no record follows"
                if found.record is None
                else f"the next record has {found.offset}"
            )
            self.notes.append(
                f"offset {offset} is lost: {_where(damages)}, where it was, are damaged; {then}"
            )
        elif found.record is None:
            self.notes.append(f"no record follows offset {offset}")
        elif found.record.offset > offset:
            self.notes.append(f"offset {offset} has no record: the next one has {found.offset}")
        mark = self.split.high_watermark if self.split.is_clean else None
        if mark is not None and found.offset is not None and mark <= found.offset:
            self.notes.append(f"consumers do not get it: the high watermark is {mark}")
        return found

    def _found(self, found: RecordInSegment | None) -> Found:
        if found is None:
            return Found()
        record = found.record
        if not record.is_checked:
            self.notes.append("the checksum of the batch was not verified, because it is so large")
        log = Location(self.split.path.storage, found.log.path)
        return Found(record.offset, log, record, record.leader_epoch)

    # ---- A time ----

    def _at_time(self, time: int | SpecialTime) -> Found:
        match time:
            case SpecialTime.EARLIEST | SpecialTime.EARLIEST_LOCAL:
                return self._earliest(time)
            case SpecialTime.LATEST:
                return self._latest()
            case SpecialTime.LATEST_TIERED | SpecialTime.EARLIEST_PENDING_UPLOAD:
                if self.remote is not None:
                    return self._after_remote(self.remote, time)
                self.notes.append(
                    f"{time.value} is an offset in remote storage: a log directory does not say it,"
                    " and a topic without remote storage has none"
                )
                return Found()
            case _ if self.is_discarded:
                found = None
            case SpecialTime.MAX:
                found = self.search.with_max_timestamp()
            case _:
                found = self.search.not_older(time, self.log_start)
        return self._below_bound(self._found(found))

    def _after_remote(self, remote: RemotePart, time: SpecialTime) -> Found:
        """The last offset in tiered storage, or the one after it."""
        highest = -1 if remote.highest_offset is None else remote.highest_offset
        if time is SpecialTime.EARLIEST_PENDING_UPLOAD:
            highest = max(highest + 1, self.log_start)
        elif remote.highest_offset is None:
            self.notes.append("no segment was copied to tiered storage")
            return Found()
        return self._from(highest, self.epochs.epoch_for_offset(highest))

    def _earliest(self, time: SpecialTime) -> Found:
        if time is SpecialTime.EARLIEST_LOCAL and self.remote is not None:
            local_start = self.remote.local_start_offset
            if local_start is not None and local_start > self.log_start:
                return self._from(local_start, self.epochs.epoch_for_offset(local_start))
        checkpoint, segments = self.split.log_start, self.search.partition.segments
        if checkpoint is not None and segments and checkpoint < segments[0].base_offset:
            self.notes.append(
                f"{names.LOG_START_OFFSET_CHECKPOINT} has offset {checkpoint}: earlier records may"
                " be in remote storage"
            )
        entries = self.epochs.entries
        epoch = entries[0].epoch if entries and entries[0].start_offset <= self.log_start else None
        return self._from(self.log_start, epoch)

    def _latest(self) -> Found:
        return self._from(self._consumer_end(), self.epochs.latest_epoch)

    def _from(self, offset: int, leader_epoch: int | None) -> Found:
        """An offset with the first record from there on."""
        if offset >= self.log_end:
            return Found(offset, leader_epoch=leader_epoch)
        found = self._found(self.search.at_or_after(offset))
        return replace(found, offset=offset, leader_epoch=leader_epoch)

    def _below_bound(self, found: Found) -> Found:
        """What a consumer is told: nothing past what it may read."""
        end = self._consumer_end()
        if found.record is None or found.record.offset < end:
            return found
        assert self.bound is not None
        self.notes.append(
            f"offset {found.record.offset} is not below the {self.bound.value.replace('_', ' ')},"
            f" {end}: a consumer gets no offset"
        )
        return replace(found, offset=None)

    def _consumer_end(self) -> int:
        """Where the isolation level lets a consumer read to; notes which bound that is."""
        end, mark = self.log_end, self.split.high_watermark
        self.bound = Bound.LOG_END_OFFSET
        if mark is None:
            self.notes.append(
                f"{names.REPLICATION_OFFSET_CHECKPOINT} has no high watermark: the log end offset"
                " is used"
            )
        elif not self.split.is_clean:
            if mark < end:
                self.notes.append(
                    f"the high watermark on disk, {mark}, is stale after an unclean shutdown: the"
                    " log end offset is used"
                )
        else:
            self.bound = Bound.HIGH_WATERMARK
            if mark < end:
                self.notes.append(f"the log goes on after the high watermark, to offset {end}")
            end = within_log(mark, self.log_start, end)
        self.notes += self._missing()
        if self.question.isolation_level is IsolationLevel.READ_COMMITTED:
            self.bound = Bound.LAST_STABLE_OFFSET
            first_open = self._first_open_offset()
            end = end if first_open is None else min(end, first_open)
            self.last_stable_offset = end
        return end

    def _first_open_offset(self) -> int | None:
        """Where the first transaction begins that is open at the end of the log; None if none is.

        A clean shutdown leaves a snapshot of the producers there.
        """
        partition = self.search.partition
        if self.log_start == self.log_end:
            return None
        entries = read_producers(partition, self.log_end)
        if entries is None:
            # Importing it takes time.
            from kdump.state.transactions.open_transactions import (
                last_stable_offset,
                usable_snapshots,
            )

            snapshots = usable_snapshots(partition, self.log_start, None)
            name = OffsetFileName(self.log_end, FileKind.PRODUCER_SNAPSHOT)
            self.notes.append(
                f"batches were read for open transactions: {name} is missing or damaged"
            )
            return last_stable_offset(partition, snapshots, self._note_damage)
        offsets = (entry.current_txn_first_offset for entry in entries)
        return min((offset for offset in offsets if offset >= 0), default=None)

    def _note_damage(self, damage: Damage) -> None:
        self.search.damages.setdefault((damage.path, damage.start), damage)


def ends_before_damage(log_end: int, damage: Damage) -> str:
    """What is said of a log that ends before damage, so that records may be missing."""
    return f"the log ends at offset {log_end}, before damage: {damage}"


def _where(damages: Sequence[Damage]) -> str:
    """Name the damaged bytes of the first of some files."""
    first = damages[0]
    end = max(each.end for each in damages if each.path == first.path)
    return f"bytes {first.start} to {end} of {first.path.rpartition('/')[2]}"


class ReplicaAnswer(Struct, frozen=True):
    """The answer of a replica.

    Attributes:
        answer: what was found, or why nothing could be read.
        is_most_advanced: whether it is the one of its partition that should lead; None if that is
            not known.
    """

    replica: Replica
    answer: LookupAnswer | UnreadableReplica
    is_most_advanced: bool | None


def selected_replicas(request: LookupRequest) -> list[list[Replica]]:
    """The replicas of each selected partition, by topic, its id and number."""
    found = replicas_by_partition(request.directories)
    in_order = (group for key in sorted(found) for group in of_each_topic(found[key]))
    selected = (
        [each for each in group if each.partition in request.selection] for group in in_order
    )
    return [group for group in selected if group]


def lookup(
    request: LookupRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> list[ReplicaAnswer]:
    """Look into each replica of the selected partitions; gives answers by topic and number.

    Raises:
        UsageProblem: the log directories belong to several clusters.
        KdumpError: the engine failed.
    """
    require_one_cluster((each.path, each.cluster_id) for each in request.directories)
    groups = selected_replicas(request)
    splits = [lookup_split(replica) for group in groups for replica in group]
    answers = iter(run_job(LookupJob(request.question), splits, options))
    return [each for group in groups for each in _ranked(group, answers)]


def _ranked(
    group: Sequence[Replica], answers: Iterator[LookupAnswer | UnreadableReplica | None]
) -> Iterable[ReplicaAnswer]:
    own = [next(answers) for _ in group]
    leader: Replica | None = None
    if all(isinstance(each, LookupAnswer) for each in own):
        leader = most_advanced(group)
    for replica, answer in zip(group, own, strict=True):
        if answer is not None:
            yield ReplicaAnswer(replica, answer, None if leader is None else replica is leader)


def lookup_split(replica: Replica) -> LookupSplit:
    """What to look into for one replica."""
    partition, directory = replica.partition, replica.log_directory
    checkpoints = directory.checkpoints
    return LookupSplit(
        partition.path,
        size_bytes=min(partition.log_bytes, _SPLIT_BYTES),
        label=partition.path.name,
        partition=partition,
        is_clean=directory.is_clean,
        log_start=checkpointed(checkpoints.log_start_offsets, partition),
        high_watermark=checkpointed(checkpoints.high_watermarks, partition),
    )
