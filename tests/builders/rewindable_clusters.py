"""Clusters with transactions and group offsets whose clocks differ, to be cut at a moment.

What happens has an order in real time; what is written has the time of a clock that is wrong by up
to a known difference.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from builders.batches import batch, record
from builders.group_records import offset_key, offset_value
from builders.log_directories import META_PROPERTIES, write_log_directory, write_partition
from builders.transaction_states import key_of, value_of
from kdump.formats import names
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Record
from kdump.repair.rewind.log_facts import CoordinatorEntry, TransactionPart
from kdump.state.transactions.transaction_coordinator import read_transaction

START_MS: Final = 1_800_000_000_000
TICK_MS: Final = 10
DATA: Final = tuple(TopicPartition("orders", number) for number in range(3))
OFFSETS: Final = TopicPartition("__consumer_offsets", 0)
STATES: Final = tuple(TopicPartition("__transaction_state", number) for number in range(2))
LOGS: Final = (*DATA, OFFSETS, *STATES)

_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT = range(1, 6)


@dataclass(frozen=True, slots=True)
class Step:
    """A batch: where it is, when it really was written, and when its clock says.

    Attributes:
        log: the partition.
        offset: of its first record.
        end_offset: after its last record.
        tick: of the real time.
        time_ms: the largest timestamp.
        kind: what it is: ``data``, ``marker``, ``added``, ``decided``, ``completed``, ``plain``.
        transaction: the number of its transaction; -1 for none.
        data: the batch.
    """

    log: TopicPartition
    offset: int
    end_offset: int
    tick: int
    time_ms: int
    kind: str
    transaction: int
    data: bytes


@dataclass(slots=True)
class Story:
    """A transaction, as it really went.

    Attributes:
        number: of the transaction.
        producer_id: of its producer.
        epoch: of its data.
        commits: whether it is decided to commit.
        added: the partitions that its coordinator knows.
        left: the partitions without a marker yet, once it is decided.
    """

    number: int
    producer_id: int
    epoch: int
    commits: bool
    added: list[TopicPartition] = field(default_factory=list)
    left: list[TopicPartition] | None = None


class RandomCluster:
    """A cluster from a seed.

    Attributes:
        steps: all batches, in the order in which they were written.
        stories: all transactions.
        most_skew_ms: no clock is wrong by more.
    """

    def __init__(self, seed: int, *, ticks: int = 120, most_skew_ms: int = 60) -> None:
        self._random = random.Random(seed)
        self.most_skew_ms = most_skew_ms
        skews = range(-most_skew_ms, most_skew_ms + 1)
        self.raises_epochs = self._random.random() < 0.5
        # Otherwise only the times tell which transaction an empty marker ends.
        of_brokers = skews if self.raises_epochs else range(-TICK_MS // 2, TICK_MS // 2 + 1)
        self._skew = {
            log: self._random.choice([each for each in of_brokers if each in skews]) for log in LOGS
        }
        self._producer_skew = {number: self._random.choice(skews) for number in range(4)}
        self._end = dict.fromkeys(LOGS, 0)
        self.steps: list[Step] = []
        self.stories: list[Story] = []
        current: dict[int, Story] = {}
        epochs = dict.fromkeys(range(4), 0)
        for tick in range(ticks):
            number = self._random.randrange(5)
            if number == 4:
                self._write_outside(tick)
                continue
            story = current.get(number)
            if story is None:
                commits = self._random.random() < 0.7
                story = Story(len(self.stories), 1000 + number, epochs[number], commits)
                current[number] = story
                self.stories.append(story)
                self._add(tick, number, story)
            elif self._goes_on(tick, number, story):
                epochs[number] = story.epoch + self.raises_epochs
                del current[number]

    # ---- What happens

    def _goes_on(self, tick: int, number: int, story: Story) -> bool:
        """Take the next step of a transaction; returns whether it is completed."""
        if story.left is None:
            drawn = self._random.random()
            if drawn < 0.25 and len(story.added) < 3:
                self._add(tick, number, story)
            elif drawn < 0.75:
                self._write_data(tick, number, story)
            else:
                story.left = [*story.added]
                state = _PREPARE_COMMIT if story.commits else _PREPARE_ABORT
                self._write_state(tick, number, story, state, "decided")
            return False
        if story.left:
            log = story.left.pop(self._random.randrange(len(story.left)))
            self._write_marker(tick, story, log)
            return False
        state = _COMPLETE_COMMIT if story.commits else _COMPLETE_ABORT
        self._write_state(tick, number, story, state, "completed")
        return True

    def _add(self, tick: int, number: int, story: Story) -> None:
        rest = [log for log in (*DATA, OFFSETS) if log not in story.added]
        story.added.append(self._random.choice(rest))
        self._write_state(tick, number, story, _ONGOING, "added")

    def _write_outside(self, tick: int) -> None:
        if self._random.random() < 0.4:
            offset = self._end[OFFSETS]
            rows = [self._commit(OFFSETS, offset, tick)]
            self._append(OFFSETS, tick, "plain", -1, rows)
            return
        log = self._random.choice(DATA)
        count = self._random.randint(1, 3)
        skew = self._random.choice([*self._producer_skew.values()])
        rows = [
            record(self._end[log] + step, timestamp=self._time(tick, skew)) for step in range(count)
        ]
        self._append(log, tick, "plain", -1, rows)

    def _commit(self, log: TopicPartition, offset: int, tick: int) -> Record:
        consumed = self._random.choice(DATA)
        committed = self._random.randint(0, self._end[consumed])
        key = offset_key(b"group-%d" % self._random.randrange(2), b"orders", consumed.partition)
        value = offset_value(committed, START_MS)
        return record(offset, key, value, timestamp=self._time(tick, self._skew[log]))

    def _write_data(self, tick: int, number: int, story: Story) -> None:
        log = self._random.choice(story.added)
        offset = self._end[log]
        if log == OFFSETS:
            rows = [self._commit(log, offset, tick)]
        else:
            time_ms = self._time(tick, self._producer_skew[number])
            rows = [
                record(offset + step, timestamp=time_ms)
                for step in range(self._random.randint(1, 3))
            ]
        self._append(
            log,
            tick,
            "data",
            story.number,
            rows,
            TRANSACTIONAL_FLAG,
            story.producer_id,
            story.epoch,
        )

    def _write_marker(self, tick: int, story: Story, log: TopicPartition) -> None:
        key = struct.pack(">hh", 0, int(story.commits))
        row = record(self._end[log], key, bytes(6), timestamp=self._time(tick, self._skew[log]))
        self._append(
            log,
            tick,
            "marker",
            story.number,
            [row],
            TRANSACTIONAL_FLAG | CONTROL_FLAG,
            story.producer_id,
            story.epoch + self.raises_epochs,
        )

    def _write_state(self, tick: int, number: int, story: Story, state: int, kind: str) -> None:
        log = STATES[number % 2]
        topics: dict[str, list[int]] = {}
        for each in story.added if state < _COMPLETE_COMMIT else ():
            topics.setdefault(each.topic, []).append(each.partition)
        value = value_of(
            producer_id=story.producer_id,
            producer_epoch=story.epoch + (self.raises_epochs and state != _ONGOING),
            state=state,
            partitions=[*topics.items()],
            last_change_ms=self._time(tick, self._skew[log]),
            tags={"client": 2} if self.raises_epochs else {},
        )
        time_ms = self._time(tick, self._skew[log])
        row = record(self._end[log], key_of(f"t{number}"), value, timestamp=time_ms)
        self._append(log, tick, kind, story.number, [row])

    def _append(
        self,
        log: TopicPartition,
        tick: int,
        kind: str,
        transaction: int,
        rows: list[Record],
        attributes: int = 0,
        producer_id: int = -1,
        epoch: int = -1,
    ) -> None:
        data = batch(rows, attributes=attributes, producer_id=producer_id, producer_epoch=epoch)
        offset, end = self._end[log], self._end[log] + len(rows)
        time_ms = max(row.timestamp for row in rows)
        self.steps.append(Step(log, offset, end, tick, time_ms, kind, transaction, data))
        self._end[log] = end

    def _time(self, tick: int, skew: int) -> int:
        return START_MS + tick * TICK_MS + skew

    # ---- What is there then

    def of(self, log: TopicPartition) -> list[Step]:
        """The batches of a log."""
        return [each for each in self.steps if each.log == log]

    def end(self, log: TopicPartition) -> int:
        """Where a log ends."""
        return self._end[log]

    def cuts_at(self, time_ms: int) -> dict[TopicPartition, int]:
        """Where the time alone would end logs."""
        cuts = {}
        for log in LOGS:
            late = [each.offset for each in self.of(log) if each.time_ms > time_ms]
            if late:
                cuts[log] = late[0]
        return cuts

    def parts(self) -> dict[TopicPartition, list[TransactionPart]]:
        """What each log has of transactions."""
        found: dict[TopicPartition, list[TransactionPart]] = {}
        for log in (*DATA, OFFSETS):
            by_number: dict[int, TransactionPart] = {}
            for step in self.of(log):
                story = self.stories[step.transaction]
                known = by_number.get(step.transaction)
                if step.kind == "data":
                    first = step.offset if known is None else known.first
                    by_number[step.transaction] = TransactionPart(
                        story.producer_id, story.epoch, first, step.offset
                    )
                elif step.kind == "marker":
                    epoch = story.epoch + self.raises_epochs
                    alone = TransactionPart(
                        story.producer_id, epoch, step.offset, step.offset, is_empty=True
                    )
                    by_number[step.transaction] = replace(
                        known or alone,
                        marker=step.offset,
                        is_abort=not story.commits,
                        marker_ms=step.time_ms,
                    )
            if by_number:
                found[log] = sorted(by_number.values(), key=lambda each: each.first)
        return found

    def coordinators(
        self, before_tick: int | None = None
    ) -> dict[TopicPartition, list[CoordinatorEntry]]:
        """What coordinators wrote, before a moment if one is given."""
        found = {}
        for log in STATES:
            steps = [
                each for each in self.of(log) if before_tick is None or each.tick < before_tick
            ]
            if steps:
                found[log] = [*self._entries(steps)]
        return found

    def _entries(self, steps: list[Step]) -> Iterator[CoordinatorEntry]:
        from kdump.scan.batches import read_windows
        from kdump.scan.window_records import read_records
        from kdump.target.virtual_directory import BytesSource

        data = b"".join(each.data for each in steps)
        for window in read_windows(BytesSource(data)):
            for columns in read_records(window):
                for row in range(columns.count):
                    offset = int(columns.offset[row])
                    found = read_transaction(columns.key(row), columns.value(row), offset)
                    assert found is not None
                    yield CoordinatorEntry(offset, *found)

    def write(self, root: Path, *, brokers: int = 1) -> list[Path]:
        """Write log directories as after a crash, with all partitions on each broker."""
        ends = {(log.topic, log.partition): self._end[log] for log in LOGS}
        written = []
        for node in range(1, brokers + 1):
            path = write_log_directory(root / f"b{node}", clean=False, high_watermarks=ends)
            properties = META_PROPERTIES.replace(b"node.id=7", b"node.id=%d" % node)
            properties = properties.replace(b"V1dW8O41RR6", b"V1dW8O41RR%d" % node)
            (path / names.META_PROPERTIES).write_bytes(properties)
            for log in LOGS:
                self._write_log(path / str(log), log)
            written.append(path)
        return written

    def _write_log(self, path: Path, log: TopicPartition) -> None:
        steps = self.of(log)
        third = max(len(steps) // 3, 1)
        segments = {
            part[0].offset if part else 0: b"".join(each.data for each in part)
            for part in (steps[:third], steps[third:])
            if part or not steps
        }
        write_partition(path, segments)


def broken_promises(cluster: RandomCluster, cuts: dict[TopicPartition, int]) -> Iterator[str]:
    """What is wrong with the transactions of a cluster that is cut, by what really happened."""

    def kept(kind: str, number: int, log: TopicPartition | None = None) -> list[Step]:
        return [
            each
            for each in cluster.steps
            if each.transaction == number
            and each.kind == kind
            and log in (None, each.log)
            and each.offset < cuts.get(each.log, each.offset + 1)
        ]

    for story in cluster.stories:
        number = story.number
        every = [each for each in cluster.steps if each.transaction == number]
        data = [each for each in every if each.kind == "data"]
        of_data = {each.log for each in data}
        markers = [each for each in kept("marker", number) if each.log in of_data]
        is_decided, is_completed = bool(kept("decided", number)), bool(kept("completed", number))
        if markers and not is_decided:
            yield f"{number}: a marker is kept, and its coordinator has not decided"
        if is_decided and story.commits and len(kept("data", number)) != len(data):
            yield f"{number}: committed, and some of its records are gone"
        if is_completed and {each.log for each in markers} != of_data:
            yield f"{number}: completed, and a marker is gone"
        known = len(kept("added", number))
        for each in kept("data", number):
            if each.log not in story.added[:known]:
                yield f"{number}: its coordinator does not know {each.log}"
