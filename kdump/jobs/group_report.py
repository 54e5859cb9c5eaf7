"""What is reported about groups: what they committed, beside the logs that they read from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.engine.progress import SILENT, Progress
from kdump.formats.errors import FormatError
from kdump.formats.java.java_text import coordinator_partition
from kdump.formats.names import PARTITION_METADATA, TopicPartition
from kdump.formats.uuids import format_uuid
from kdump.jobs.groups import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    GroupLog,
    read_coordinators,
)
from kdump.log.bounds import checkpointed, find_log_start
from kdump.log.directory import LogDirectory
from kdump.log.problems import FileProblem
from kdump.log.replicas import Replica, most_advanced, replicas_by_partition
from kdump.log.selection import PartitionSelection
from kdump.log.valid_end import ValidEnd, valid_end
from kdump.log.valid_windows import NO_OFFSET, Damage
from kdump.phases import phase
from kdump.state.cluster import ClusterImage
from kdump.state.consumer_groups import read_groups
from kdump.state.group_image import Group, GroupType, PartitionOffsets
from kdump.state.latest_records import LatestRecords
from kdump.state.share_groups import SharePartition, ShareRecords, read_share_partitions

_MOST_PARTITIONS: Final = 10_000
"""The most partitions that ``__consumer_offsets`` is expected to have."""
_WITH_TOPIC_IDS: Final = frozenset({GroupType.CONSUMER, GroupType.SHARE})
"""Groups whose assignments name topics by their ids."""
_GLOB_CHARACTERS: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class GroupsRequest:
    """Which groups to report, and from what.

    Attributes:
        directories: the log directories, with partitions as a starting broker loads them.
        image: the cluster's metadata; None if there is none.
        groups: globs for names of groups; empty for all.
        selection: which partitions' offsets.
        offsets_retention_ms: how long offsets are kept after they were committed.
    """

    directories: Sequence[LogDirectory]
    image: ClusterImage | None
    groups: tuple[str, ...]
    selection: PartitionSelection
    offsets_retention_ms: int

    def is_selected(self, group_id: str) -> bool:
        """Whether a group is to be reported."""
        return not self.groups or any(fnmatchcase(group_id, glob) for glob in self.groups)


@dataclass(frozen=True, slots=True)
class ConsumedLog:
    """The log of a partition that a group consumes, in its most advanced replica.

    Attributes:
        replica: the replica.
        log_start_offset: None if unknown; so are the others.
        high_watermark: as checkpointed: after a crash it is old.
        end: of the valid batches.
        topic_id: of the topic when the replica was created.
        have_other_ends: whether other replicas end elsewhere.
    """

    replica: Replica
    log_start_offset: int | None
    high_watermark: int | None
    end: ValidEnd | None
    topic_id: str | None
    have_other_ends: bool

    @property
    def end_offset(self) -> int | None:
        return None if self.end is None else self.end.offset


@dataclass(frozen=True, slots=True)
class OffsetReport:
    """What a group committed for a partition.

    Attributes:
        partition: the partition.
        offsets: what is committed or pending.
        log: None if no replica is in the directories.
        topic_state: ``live``, ``recreated`` (the offset was committed for another topic of that
            name) or ``unlisted`` (neither the cluster's metadata nor a log directory has it);
            None if that is not known.
        expires_ms: when a coordinator deletes the offset; None if not while the group is as it is.
        is_uncertain: whether a later commit may be in damaged bytes, or cannot be decoded.
    """

    partition: TopicPartition
    offsets: PartitionOffsets
    log: ConsumedLog | None
    topic_state: str | None
    expires_ms: int | None
    is_uncertain: bool

    @property
    def lag(self) -> int | None:
        """Records from the committed offset to the end of the log; None if it is not known.

        Follows ``ConsumerGroupCommand.getLag``.
        """
        committed = self.offsets.committed
        end = None if self.log is None else self.log.end_offset
        if committed is None or end is None or committed.offset < 0:
            return None
        return None if self.topic_state in ("recreated", "unlisted") else end - committed.offset


@dataclass(frozen=True, slots=True)
class ShareOffsetReport:
    """What a share group has delivered of a partition.

    Attributes:
        state: as the share coordinator has it.
        topic: None if no topic with that id is known.
        log: None if no replica is in the directories.
        is_uncertain: whether a later change may be in damaged bytes.
    """

    state: SharePartition
    topic: str | None
    log: ConsumedLog | None
    is_uncertain: bool

    @property
    def lag(self) -> int | None:
        end = None if self.log is None else self.log.end_offset
        return None if end is None else self.state.lag(end)


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group with its offsets.

    Attributes:
        group: as its coordinator has it.
        coordinator: the log that it was read from; None if only a share coordinator knows it.
        offsets: of the selected partitions.
        share_offsets: likewise.
        is_uncertain: whether a later record about the group may be in damaged bytes.
    """

    group: Group
    coordinator: GroupLog | None
    offsets: tuple[OffsetReport, ...]
    share_offsets: tuple[ShareOffsetReport, ...]
    is_uncertain: bool


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """How many partitions a coordinator's topic has.

    Attributes:
        count: how many; at least that many if the metadata does not say it.
        is_known: whether the cluster's metadata says it.
        missing: those without a replica that could be read.
    """

    count: int
    is_known: bool
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupsReport:
    """The groups of a cluster.

    Attributes:
        groups: by name.
        unknown: names given in full whose records are in a missing partition.
        absent: names given in full of groups that do not exist.
        offsets_topic: the partitions of ``__consumer_offsets``.
        share_topic: those of ``__share_group_state``; None if no group needs them.
        coordinators: the logs that were read.
        failures: why coordinators do not load their logs: the log, and what is wrong.
        problems: files that cannot be read.
        damaged_ends: what is not valid at the end of the logs that groups consume.
        topic_names: by topic id, as far as known; empty if no group has topic ids.
    """

    groups: tuple[GroupReport, ...]
    unknown: tuple[str, ...]
    absent: tuple[str, ...]
    offsets_topic: PartitionCount
    share_topic: PartitionCount | None
    coordinators: tuple[GroupLog, ...]
    failures: tuple[tuple[GroupLog, str], ...]
    problems: tuple[FileProblem, ...]
    damaged_ends: tuple[Damage, ...]
    topic_names: Mapping[str, str]


def report_groups(
    request: GroupsRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
) -> GroupsReport:
    """Read the groups, and the ends of the logs that they consume.

    Raises:
        KdumpError: the engine failed.
    """
    return _Reporting(request).report(options, progress)


class _Reporting:
    def __init__(self, request: GroupsRequest) -> None:
        self._request = request
        self._replicas = replicas_by_partition(request.directories)
        self._problems: list[FileProblem] = []
        self._failures: list[tuple[GroupLog, str]] = []
        self._logs: dict[TopicPartition, ConsumedLog | None] = {}
        self._names: dict[str, str] | None = None

    def report(self, options: EngineOptions, progress: Progress) -> GroupsReport:
        logs = read_coordinators(self._replicas, options, progress)
        of_groups = [log for log in logs if log.partition.topic == OFFSETS_TOPIC]
        of_shares = [log for log in logs if log.partition.topic == SHARE_STATE_TOPIC]
        found = self._groups(of_groups)
        shares = self._share_partitions(of_shares)
        with phase("reading the ends of logs", len(found)) as reading:
            groups = [
                self._group_report(log, group, shares.pop(group.group_id, ()))
                for group, log in reading.over(found)
            ]
            groups += [self._share_only(group_id, own) for group_id, own in shares.items()]
        groups.sort(key=lambda each: each.group.group_id)
        offsets_topic = self._count(OFFSETS_TOPIC, of_groups, found)
        types = {each.group.type for each in groups}
        has_shares = GroupType.SHARE in types
        unknown, absent = self._not_found(offsets_topic, groups)
        return GroupsReport(
            groups=tuple(groups),
            unknown=unknown,
            absent=absent,
            offsets_topic=offsets_topic,
            share_topic=self._count(SHARE_STATE_TOPIC, of_shares, ()) if has_shares else None,
            coordinators=tuple(logs),
            failures=tuple(self._failures),
            problems=tuple(self._problems),
            damaged_ends=tuple(self._damaged_ends()),
            topic_names=self._topic_names() if types & _WITH_TOPIC_IDS else {},
        )

    def _groups(self, logs: Iterable[GroupLog]) -> list[tuple[Group, GroupLog]]:
        found: list[tuple[Group, GroupLog]] = []
        for log in logs:
            assert isinstance(log.records, LatestRecords)
            in_log = read_groups(log.records, self._request.is_selected)
            found += ((group, log) for group in in_log.groups)
            self._failures += ((log, problem) for problem in in_log.problems)
        return found

    def _share_partitions(
        self, logs: Iterable[GroupLog]
    ) -> dict[str, list[tuple[SharePartition, GroupLog]]]:
        by_group: dict[str, list[tuple[SharePartition, GroupLog]]] = {}
        for log in logs:
            assert isinstance(log.records, ShareRecords)
            in_log = read_share_partitions(log.records, self._request.is_selected)
            for state in in_log.partitions:
                by_group.setdefault(state.group_id, []).append((state, log))
            self._failures += ((log, problem) for problem in in_log.problems)
        return by_group

    def _group_report(
        self,
        log: GroupLog,
        group: Group,
        shares: Iterable[tuple[SharePartition, GroupLog]],
    ) -> GroupReport:
        superseded = log.records.superseded_up_to
        return GroupReport(
            group,
            log,
            tuple(
                self._offset_report(group, key, offsets, superseded)
                for key, offsets in group.offsets.items()
                if self._is_selected(key)
            ),
            tuple(self._share_reports(shares, group)),
            is_uncertain=NO_OFFSET < group.record_offset <= superseded,
        )

    def _share_only(
        self, group_id: str, shares: Iterable[tuple[SharePartition, GroupLog]]
    ) -> GroupReport:
        """A share group that no partition of ``__consumer_offsets`` here has."""
        group = Group(group_id, GroupType.SHARE, state=None, protocol_type="share")
        return GroupReport(group, None, (), tuple(self._share_reports(shares, group)), True)

    def _offset_report(
        self, group: Group, key: TopicPartition, offsets: PartitionOffsets, superseded: int
    ) -> OffsetReport:
        log, committed = self._log(key), offsets.committed
        expires_ms = None
        if committed is not None and not offsets.pending:
            expires_ms = group.expires_ms(key.topic, committed, self._request.offsets_retention_ms)
        record_offset = superseded + 1 if committed is None else committed.record_offset
        return OffsetReport(
            key,
            offsets,
            log,
            self._topic_state(key.topic, None if committed is None else committed.topic_id, log),
            expires_ms,
            is_uncertain=record_offset <= superseded
            or offsets.unreadable_offset is not None
            or any(each.is_undecided for each in offsets.pending),
        )

    def _share_reports(
        self, shares: Iterable[tuple[SharePartition, GroupLog]], group: Group
    ) -> Iterator[ShareOffsetReport]:
        for state, log in sorted(shares, key=self._share_order):
            recorded = group.share_partitions.get(state.topic_id)
            topic = self._topic_names().get(state.topic_id) or (recorded[0] if recorded else None)
            key = None if topic is None else TopicPartition(topic, state.partition)
            if key is None:
                if self._request.selection.is_everything:
                    yield ShareOffsetReport(state, None, None, self._is_old(state, log))
            elif self._is_selected(key):
                consumed = self._log(key)
                if consumed is not None and consumed.topic_id not in (None, state.topic_id):
                    consumed = None  # a topic of the same name, created later
                yield ShareOffsetReport(state, topic, consumed, self._is_old(state, log))

    def _share_order(self, share: tuple[SharePartition, GroupLog]) -> tuple[str, int]:
        state = share[0]
        return self._topic_names().get(state.topic_id, state.topic_id), state.partition

    @staticmethod
    def _is_old(state: SharePartition, log: GroupLog) -> bool:
        return state.record_offset <= log.records.superseded_up_to

    def _is_selected(self, key: TopicPartition) -> bool:
        return self._request.selection.matches(str(key), key)

    def _log(self, key: TopicPartition) -> ConsumedLog | None:
        """The log of a partition; read once."""
        if key not in self._logs:
            replicas = self._replicas.get(key)
            self._logs[key] = None if replicas is None else self._consumed(replicas)
        return self._logs[key]

    def _consumed(self, replicas: Sequence[Replica]) -> ConsumedLog:
        replica, end, have_other_ends = replicas[0], None, False
        try:
            replica = most_advanced(replicas)
            if not replica.partition.is_0_7:
                end = valid_end(replica.partition)
            ends = {valid_end(each.partition) for each in replicas} if replicas[1:] else set()
            have_other_ends = len({None if each is None else each.offset for each in ends}) > 1
        except OSError as failure:
            self._problems.append(FileProblem(replica.partition.path, failure))
        checkpoints = replica.log_directory.checkpoints
        return ConsumedLog(
            replica,
            find_log_start(
                replica.partition, checkpointed(checkpoints.log_start_offsets, replica.partition)
            ),
            checkpointed(checkpoints.high_watermarks, replica.partition),
            end,
            self._topic_id(replica),
            have_other_ends,
        )

    def _damaged_ends(self) -> Iterator[Damage]:
        for log in self._logs.values():
            if log is not None and log.end is not None:
                yield from log.end.damage

    def _topic_id(self, replica: Replica) -> str | None:
        partition = replica.partition
        try:
            metadata = partition.read_metadata()
        except (FormatError, OSError) as problem:
            self._problems.append(FileProblem(partition.path / PARTITION_METADATA, problem))
            return None
        return None if metadata is None else format_uuid(metadata.topic_id)

    def _topic_state(
        self, topic: str, committed_id: str | None, log: ConsumedLog | None
    ) -> str | None:
        image = self._request.image
        if image is not None:
            known = image.topics.get(topic)
            if known is None:
                # A replica that the metadata does not list yet: the copy is old.
                return "unlisted" if log is None else None
            current_id: str | None = known.topic_id
        else:
            current_id = None if log is None else log.topic_id
        if current_id is None:
            return None
        return "live" if committed_id in (None, current_id) else "recreated"

    def _topic_names(self) -> dict[str, str]:
        """The names of topics by id, from the metadata or else from the partitions."""
        if self._names is None:
            self._names = {}
            image = self._request.image
            if image is not None:
                self._names = {each.topic_id: each.name for each in image.topics.values()}
            known = set(self._names.values())
            for key, replicas in self._replicas.items():
                if key.topic not in known:
                    known.add(key.topic)
                    topic_id = self._topic_id(replicas[0])
                    if topic_id is not None:
                        self._names.setdefault(topic_id, key.topic)
        return self._names

    def _count(
        self,
        topic: str,
        logs: Sequence[GroupLog],
        groups: Iterable[tuple[Group, GroupLog]],
    ) -> PartitionCount:
        """How many partitions a topic has, and which are missing.

        Without metadata: the least number that fits the partitions on disk and the partitions in
        which the groups were found.
        """
        read = {log.partition.partition for log in logs if log.unreadable is None}
        present = {log.partition.partition for log in logs}
        image = self._request.image
        listed = None if image is None else image.topics.get(topic)
        if listed is not None and listed.partitions:
            count, is_known = max(listed.partitions) + 1, True
        else:
            least = max(present, default=-1) + 1
            places = [(group.group_id, log.partition.partition) for group, log in groups]
            count, is_known = _least_count(least, places), False
        return PartitionCount(count, is_known, tuple(sorted(set(range(count)) - read)))

    def _not_found(
        self, topic: PartitionCount, groups: Iterable[GroupReport]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Groups given by their full name that were not found: unknown ones, and absent ones."""
        found = {each.group.group_id for each in groups}
        names = [
            glob
            for glob in dict.fromkeys(self._request.groups)
            if glob not in found and _GLOB_CHARACTERS.isdisjoint(glob)
        ]
        missing = set(topic.missing)
        unknown = [
            name
            for name in names
            if not topic.count or coordinator_partition(name, topic.count) in missing
        ]
        return tuple(unknown), tuple(name for name in names if name not in unknown)


def _least_count(least: int, places: Sequence[tuple[str, int]]) -> int:
    """The least number of partitions that puts each group where it was found."""
    if not least:
        return 0
    fitting = (
        count
        for count in itertools.chain(range(least, _MOST_PARTITIONS))
        if all(coordinator_partition(name, count) == partition for name, partition in places)
    )
    return next(fitting, least)
