"""What the internal topics of a log directory say of other topics.

Committed offsets, assignments, transactions and tiered segments name partitions that may have no
directory on this disk, or on any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from kdump.engine.engine_choice import EngineOptions, run_job
from kdump.engine.job import Split
from kdump.errors import reason_of
from kdump.formats.errors import FormatError
from kdump.formats.internal_topics import decode_remote_log_metadata
from kdump.formats.names import REMOTE_LOG_METADATA_TOPIC, PartitionState, TopicPartition
from kdump.formats.uuids import ZERO_UUID, format_uuid
from kdump.jobs.groups.coordinator_logs import OFFSETS_TOPIC, GroupLog, read_logs
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.replicas import Replica
from kdump.log.valid_records import valid_records
from kdump.log.valid_windows import Damage
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet
from kdump.state.compacted.latest_records import LatestRecords
from kdump.state.groups.consumer_groups import read_groups
from kdump.state.groups.group_image import CommittedOffset, Group, GroupType
from kdump.state.groups.group_members import AssignedPartitions
from kdump.state.metadata.disk_collection import ClaimedPartition, TopicClaim
from kdump.state.transactions.transaction_coordinator import (
    TRANSACTION_STATE_TOPIC,
    CoordinatorLogReader,
    CoordinatorTransaction,
)

_READ_HERE: Final = (TRANSACTION_STATE_TOPIC, REMOTE_LOG_METADATA_TOPIC)
_NO_TOPIC_ID: Final = format_uuid(ZERO_UUID)


class Claim(NamedTuple):
    """A partition that a record names, with the epoch and the offset that it names."""

    topic: str
    topic_id: str | None
    partition: int
    leader_epoch: int | None = None
    offset: int | None = None


class ClaimsFound(Struct):
    """What the internal topics of a directory say.

    Attributes:
        claims: by source, topic and id.
        highest_producer_id: in ``__transaction_state``; None if there is none.
        has_streams_groups: whether ``__consumer_offsets`` has some.
        problems: by name of a partition's directory: what could not be read.
    """

    highest_producer_id: int | None = None
    has_streams_groups: bool = False
    problems: dict[str, list[str]] = field(default_factory=dict)
    _claimed: dict[tuple[str, str, str], dict[int, ClaimedPartition]] = field(default_factory=dict)

    def add(self, source: str, claim: Claim) -> None:
        """Take in one claim; numbers that no partition can have are not one."""
        if not claim.topic or claim.partition < 0:
            return
        key = (source, claim.topic, claim.topic_id or "")
        known = self._claimed.setdefault(key, {}).get(claim.partition)
        known = known or ClaimedPartition(claim.partition)
        self._claimed[key][claim.partition] = ClaimedPartition(
            claim.partition,
            _greater(known.highest_leader_epoch, claim.leader_epoch),
            _greater(known.highest_offset, claim.offset),
        )

    def add_problems(self, name: str, problems: Iterable[str]) -> None:
        """Take in what cannot be read in a partition's directory."""
        for problem in problems:
            self.problems.setdefault(name, []).append(problem)

    @property
    def claims(self) -> tuple[TopicClaim, ...]:
        """All claims, by source, topic and id."""
        return tuple(
            TopicClaim(
                source,
                topic,
                topic_id or None,
                tuple(partitions[number] for number in sorted(partitions)),
            )
            for (source, topic, topic_id), partitions in sorted(self._claimed.items())
        )


def _greater(known: int | None, more: int | None) -> int | None:
    if more is None or more < 0:
        return known
    return more if known is None else max(known, more)


def read_claims(directories: Sequence[LogDirectory], options: EngineOptions) -> list[ClaimsFound]:
    """Read the internal topics of log directories, one after the other.

    Raises:
        KdumpError: the engine failed.
    """
    found = [ClaimsFound() for _ in directories]
    offsets: list[tuple[ClaimsFound, TopicPartition, Replica]] = []
    others: list[tuple[ClaimsFound, ClaimsSplit]] = []
    for own, directory in zip(found, directories, strict=True):
        for partition in directory.partitions:
            key = partition.topic_partition
            if key is None or partition.state is not PartitionState.LIVE or partition.is_0_7:
                continue
            if key.topic == OFFSETS_TOPIC:
                offsets.append((own, key, Replica(directory, partition)))
            elif key.topic in _READ_HERE:
                others.append((own, _split(key, partition)))
    if offsets:
        logs = read_logs([(key, replica) for _, key, replica in offsets], options)
        for (own, _, _), log in zip(offsets, logs, strict=True):
            _add_groups(own, log)
    if others:
        results = run_job(ClaimsJob(), [split for _, split in others], options)
        for (own, split), result in zip(others, results, strict=True):
            for claim in result.claims:
                own.add(split.key.topic, claim)
            own.highest_producer_id = _greater(own.highest_producer_id, result.producer_id)
            own.add_problems(split.path.name, result.problems)
    return found


# ---- __consumer_offsets


def _add_groups(found: ClaimsFound, log: GroupLog) -> None:
    assert isinstance(log.records, LatestRecords)
    groups = read_groups(log.records, lambda _group: True)
    for group in groups.groups:
        found.has_streams_groups |= group.type is GroupType.STREAMS
        for claim in _claims_of_group(group):
            found.add(OFFSETS_TOPIC, claim)
    problems = [_damage_text(damage) for damage in log.damage]
    problems += [f"a coordinator does not load it: {what}" for what in groups.problems]
    if log.unreadable is not None:
        problems.append(f"{_file_name(log.unreadable.path)}: {log.unreadable.what}")
    found.add_problems(log.replica.partition.path.name, problems)


def _claims_of_group(group: Group) -> Iterator[Claim]:
    for (topic, number), each in group.offsets.items():
        for offset in (each.committed, *(pending.committed for pending in each.pending)):
            yield _claim_of_offset(topic, number, offset)
    for topic_id, (topic, numbers) in group.share_partitions.items():
        for number in numbers:
            yield Claim(topic, topic_id, number)
    for member in group.members:
        for assigned in (*member.assigned, *(member.target or ())):
            if isinstance(assigned, AssignedPartitions) and assigned.topic:
                for number in assigned.partitions:
                    yield Claim(assigned.topic, assigned.topic_id, number)


def _claim_of_offset(topic: str, number: int, offset: CommittedOffset | None) -> Claim:
    if offset is None:
        return Claim(topic, None, number)
    return Claim(topic, offset.topic_id, number, offset.leader_epoch, offset.offset)


# ---- __transaction_state and __remote_log_metadata


class ClaimsSplit(Split, frozen=True, kw_only=True):
    """A partition of an internal topic."""

    partition: Partition
    key: TopicPartition


class PartitionClaims(Struct, frozen=True):
    """What one partition of an internal topic says.

    Attributes:
        claims: each once.
        producer_id: the highest; None if there is none.
    """

    claims: tuple[Claim, ...]
    producer_id: int | None
    problems: tuple[str, ...]


def _split(key: TopicPartition, partition: Partition) -> ClaimsSplit:
    return ClaimsSplit(
        partition.path,
        size_bytes=partition.data_bytes,
        label=partition.path.name,
        partition=partition,
        key=key,
    )


class ClaimsJob(Struct, frozen=True):
    """Reads what a partition of an internal topic says."""

    def run(self, split: ClaimsSplit, /) -> PartitionClaims:
        reading = _ClaimsReading()
        take = reading.take_coordinators
        if split.key.topic == REMOTE_LOG_METADATA_TOPIC:
            take = reading.take_segments
        try:
            for records in valid_records(split.partition, reading.take_damage):
                take(records)
        except OSError as failure:
            name = _file_name(failure.filename or str(split.path))
            reading.problems.append(f"{name}: {reason_of(failure)}")
        return reading.result()


class _ClaimsReading:
    """The claims of one partition while it is read."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._coordinator = CoordinatorLogReader()
        self._claims: dict[Claim, None] = {}
        self._unreadable = 0

    def take_damage(self, damage: Damage) -> None:
        self.problems.append(_damage_text(damage))
        self._coordinator.take_damage()

    def take_coordinators(self, records: RecordColumns | MessageSet) -> None:
        self._coordinator.take(records)

    def take_segments(self, records: RecordColumns | MessageSet) -> None:
        if isinstance(records, MessageSet):
            return
        is_marker = is_control(records.batches)[records.batch]
        for row in range(records.count):
            if is_marker[row]:
                continue
            try:
                claim = _claim_of_segment(records.value(row) or b"")
            except FormatError as problem:
                self._unreadable += 1
                if self._unreadable == 1:
                    offset = int(records.offset[row])
                    self.problems.append(f"the record at offset {offset}: {problem.what}")
                continue
            if claim is not None:
                self._claims[claim] = None

    def result(self) -> PartitionClaims:
        log = self._coordinator.log()
        producer_id = None
        for each in log.transactions:
            for claim in _claims_of_transaction(each):
                self._claims[claim] = None
            for number in (each.producer_id, each.previous_producer_id, each.next_producer_id):
                producer_id = _greater(producer_id, number)
        if log.unreadable is not None:
            self.problems.append(
                f"the record at offset {log.unreadable.offset}: {log.unreadable.what}"
            )
        return PartitionClaims(tuple(self._claims), producer_id, tuple(self.problems))


def _claims_of_transaction(transaction: CoordinatorTransaction) -> Iterator[Claim]:
    for topic, number in transaction.partitions:
        yield Claim(topic, None, number)


def _claim_of_segment(value: bytes) -> Claim | None:
    """The partition of a tiered segment, with its last epoch and the offset after it.

    Raises:
        FormatError: Kafka cannot read the record.
    """
    _, _, fields = decode_remote_log_metadata(value)
    segment = fields.get("remoteLogSegmentId", fields)
    partition = segment.get("topicIdPartition")
    if partition is None:
        return None
    epochs = [each["leaderEpoch"] for each in fields.get("segmentLeaderEpochs", ())]
    end_offset = fields.get("endOffset")
    topic_id = partition["id"]
    return Claim(
        partition["name"],
        None if topic_id == _NO_TOPIC_ID else topic_id,
        partition["partition"],
        max(epochs, default=None),
        None if end_offset is None else end_offset + 1,
    )


def _damage_text(damage: Damage) -> str:
    return f"{_file_name(damage.path)}: bytes {damage.start} to {damage.end}: {damage.problem}"


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
