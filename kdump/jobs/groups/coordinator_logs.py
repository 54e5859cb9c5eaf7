"""Read the logs of group coordinators and share coordinators.

They are read in splits. Each reduces its part of a log to the latest records of its keys; the parts
of a log are then joined in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from kdump.engine.engine import run_in_order
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import Split
from kdump.engine.splits import segment_splits, split_bytes
from kdump.formats.names import TopicPartition
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.batch_validity import NO_OFFSET, LogPart
from kdump.log.living_windows import log_windows
from kdump.log.log_search import EMPTY, ReplicaEnd
from kdump.log.replicas import Replica
from kdump.log.valid_windows import Damage
from kdump.processes.worker_pool import usable_cpus
from kdump.scan.batches import WINDOW_BYTES, Window, new_buffer
from kdump.state.compacted.latest_records import LatestRecords
from kdump.state.groups.share_groups import ShareRecords
from kdump.storage.location import Location

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"


Records: TypeAlias = LatestRecords | ShareRecords


class CoordinatorSplit(Split, frozen=True, kw_only=True):
    """A part of the log of a coordinator.

    Attributes:
        partition: of the topic.
        log_part: the part; its end and start are those of the split.
        log_start_offset: batches that end below it are not loaded.
    """

    partition: TopicPartition
    log_part: LogPart
    log_start_offset: int

    def small_files(self) -> tuple[Location, ...]:
        return (self.path,) if self.is_first and self.is_last else ()


class CoordinatorPart(Struct, frozen=True):
    """What a part of the log of a coordinator adds up to.

    Attributes:
        damage: between its batches; none if it reaches up to the end of a split before the last.
        end: byte after the last batch or damage.
        last_batch: where the last valid batch ends; :data:`~kdump.log.replicas.EMPTY` without one.
    """

    records: Records
    damage: tuple[Damage, ...]
    end: int
    last_batch: ReplicaEnd


class GroupsJob(Struct, frozen=True):
    """Reduces a part of the log of a coordinator to the latest record of each key."""

    def run(self, split: CoordinatorSplit, /) -> CoordinatorPart | Unreadable:
        try:
            return _read_part(split)
        except OSError as failure:
            return Unreadable.of(failure, split.path)


def _read_part(split: CoordinatorSplit) -> CoordinatorPart:
    records = _no_records(split.partition)
    damage: list[Damage] = []
    held: Damage | None = None
    end, last_batch = split.start, EMPTY
    for step in log_windows(split.path, split.log_part, buffer=new_buffer(WINDOW_BYTES)):
        if held is not None:
            damage.append(held)
            records.add_damage()
            held = None
        if isinstance(step, Damage):
            held = step
            continue
        end, last_batch = int(step.batches.next_position[-1]), _last_batch(step)
        records.add(_loaded(step, split.log_start_offset), damage.append)
    if held is not None and split.is_last:
        damage.append(held)
        records.add_damage()
    if held is None and not split.is_last:
        assert split.end is not None
        end = split.end
    if isinstance(records, LatestRecords):
        records.reduce()
    return CoordinatorPart(records, tuple(damage), end, last_batch)


def _last_batch(window: Window) -> ReplicaEnd:
    batches = window.batches
    return ReplicaEnd(int(batches.partition_leader_epoch[-1]), int(batches.last_offset[-1]) + 1)


def _loaded(window: Window, log_start_offset: int) -> Window:
    """The batches that reach the start of the log: the others are deleted for a coordinator."""
    if int(window.batches.base_offset[0]) >= log_start_offset:
        return window
    return window.rows(window.batches.last_offset >= log_start_offset)


def _no_records(partition: TopicPartition) -> Records:
    return ShareRecords() if partition.topic == SHARE_STATE_TOPIC else LatestRecords()


class GroupLog(Struct, frozen=True):
    """The log of a coordinator as it was read.

    Attributes:
        replica: which of its replicas was read.
        records: what its records add up to.
        end: where its last valid batch ends.
        uncertain_up_to: records up to this offset may have been replaced by some that could not be
            read; :data:`~kdump.log.batch_validity.NO_OFFSET` if all could be.
        unreadable: why not all of it could be read; None if it could.
    """

    partition: TopicPartition
    replica: Replica
    records: Records
    end: ReplicaEnd = EMPTY
    uncertain_up_to: int = NO_OFFSET
    damage: tuple[Damage, ...] = ()
    unreadable: Unreadable | None = None

    @property
    def is_gapless(self) -> bool:
        """Whether every batch before :attr:`end` was read."""
        return self.unreadable is None and self.records.superseded_up_to == NO_OFFSET


def read_logs(
    wanted: Iterable[tuple[TopicPartition, Replica]],
    options: EngineOptions = DEFAULT_OPTIONS,
) -> list[GroupLog]:
    """Read logs of coordinators, in this order.

    Args:
        wanted: partitions of the coordinators' topics, each with the replica to read, as a starting
            broker loads it.

    Raises:
        KdumpError: the engine failed.
    """
    logs = [GroupLog(key, replica, _no_records(key)) for key, replica in wanted]
    total_bytes = sum(log.replica.partition.data_bytes for log in logs)
    target_bytes = split_bytes(total_bytes, usable_cpus())
    splits = [list(_splits(log, target_bytes)) for log in logs]
    with open_engine(options, kind=JobKind.DECODE, total_bytes=total_bytes) as engine:
        results = run_in_order(engine, GroupsJob(), [each for own in splits for each in own])
        # Each part is joined as it comes: all parts together would take much memory.
        return [
            _joined(log, itertools.islice(results, len(own)))
            for log, own in zip(logs, splits, strict=True)
        ]


def _splits(log: GroupLog, target_bytes: int) -> Iterator[CoordinatorSplit]:
    partition = log.replica.partition
    if partition.is_0_7:
        return
    start = log.replica.log_start_offset or 0
    for segment, following in partition.with_following():
        if following is not None and following.base_offset <= start:
            continue
        part = LogPart(
            least_offset=segment.base_offset,
            end_offset=None if following is None else following.base_offset,
        )
        try:
            cut = segment_splits(partition, segment, target_bytes)
        except OSError:
            path = partition.segment_path(segment, segment.log_kind)
            cut = [Split(path, size_bytes=segment.data_bytes, label=partition.path.name)]
        for each in cut:
            is_padded = following is None and each.is_last
            yield CoordinatorSplit(
                each.path,
                each.start,
                each.end,
                each.size_bytes,
                each.label,
                partition=log.partition,
                log_part=replace(part, start=each.start, end=each.end, may_be_padded=is_padded),
                log_start_offset=start,
            )


def _joined(
    log: GroupLog,
    results: Iterable[tuple[CoordinatorSplit, CoordinatorPart | Unreadable]],
) -> GroupLog:
    """Join the parts of a log; a part that does not begin where the one before ended is read again.

    A cut may lie within a batch, if there is damage before it.
    """
    records, damage = _no_records(log.partition), list[Damage]()
    unreadable: Unreadable | None = None
    end, last_batch, is_end_read = 0, EMPTY, True
    for split, result in results:
        part = result
        if split.is_first:
            end = 0
        elif split.start != end:
            if split.end is not None and split.end <= end:
                continue
            part = GroupsJob().run(
                replace(split, start=end, log_part=replace(split.log_part, start=end))
            )
        is_end_read = not isinstance(part, Unreadable)
        if isinstance(part, Unreadable):
            unreadable = unreadable or part
            records.add_damage()
            end = split.start if split.end is None else split.end
            continue
        end = part.end
        last_batch = part.last_batch if part.last_batch != EMPTY else last_batch
        damage += part.damage
        _extend(records, part.records)
    return replace(
        log,
        records=records,
        end=last_batch,
        uncertain_up_to=records.superseded_up_to if is_end_read else records.last_offset,
        damage=tuple(damage),
        unreadable=unreadable,
    )


def _extend(records: Records, later: Records) -> None:
    if isinstance(records, LatestRecords):
        assert isinstance(later, LatestRecords)
        records.extend(later)
    else:
        assert isinstance(later, ShareRecords)
        records.extend(later)
