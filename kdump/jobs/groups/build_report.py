"""Put the report about groups together: the groups, and the ends of the logs that they consume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct, field

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.formats.names import TopicPartition
from kdump.jobs.groups.consumed_logs import ConsumedLog, ConsumedLogs
from kdump.jobs.groups.coordinator_logs import OFFSETS_TOPIC, SHARE_STATE_TOPIC, GroupLog
from kdump.jobs.groups.coordinator_replicas import ChosenLog, OtherLog, read_coordinators
from kdump.jobs.groups.coordinator_topics import PartitionCount, count_partitions
from kdump.jobs.groups.group_report import (
    GroupReport,
    GroupsReport,
    GroupsRequest,
    OffsetReport,
    OtherOffset,
    OtherShare,
    ShareOffsetReport,
)
from kdump.log.batch_validity import NO_OFFSET
from kdump.log.broker import require_one_cluster
from kdump.log.replicas import Replica, replicas_by_partition
from kdump.phases import phase
from kdump.state.compacted.latest_records import LatestRecords
from kdump.state.groups.consumer_groups import GroupsFound, read_groups
from kdump.state.groups.group_image import Group, GroupType, PartitionOffsets
from kdump.state.groups.share_groups import (
    ShareFound,
    SharePartition,
    ShareRecords,
    read_share_partitions,
)

_WITH_TOPIC_IDS: Final = frozenset({GroupType.CONSUMER, GroupType.SHARE})
"""Groups whose assignments name topics by their ids."""
_GLOB_CHARACTERS: Final = frozenset("*?[")
_NO_OFFSETS: Final = PartitionOffsets(None)


class _FoundGroup(Struct):
    """A group, and what only other replicas of its coordinator's log have of it.

    Attributes:
        group: as the replica that is believed has it; without type and state if it has not.
        log: that replica's.
        is_only_elsewhere: whether that replica does not have the group.
        elsewhere: offsets that only other replicas have.
        only_on: the replicas that have the group, if the one that is believed has not.
    """

    group: Group
    log: GroupLog
    is_only_elsewhere: bool = False
    elsewhere: dict[TopicPartition, list[OtherOffset]] = field(default_factory=dict)
    only_on: list[Replica] = field(default_factory=list)


class _FoundShare(Struct):
    """The same of what a share group has delivered of a partition."""

    state: SharePartition
    log: GroupLog
    elsewhere: list[OtherShare] = field(default_factory=list)


def report_groups(
    request: GroupsRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> GroupsReport:
    """Read the groups, and the ends of the logs that they consume.

    Raises:
        UsageProblem: the log directories belong to several clusters.
        KdumpError: the engine failed.
    """
    require_one_cluster((each.path, each.cluster_id) for each in request.directories)
    return _Reporting(request).report(options)


class _Reporting:
    def __init__(self, request: GroupsRequest) -> None:
        self._request = request
        self._consumed = ConsumedLogs(replicas_by_partition(request.directories), request.image)
        self._failures: list[tuple[GroupLog, str]] = []

    def report(self, options: EngineOptions) -> GroupsReport:
        chosen = read_coordinators(self._request.directories, options, image=self._request.image)
        of_groups = [each for each in chosen if each.log.partition.topic == OFFSETS_TOPIC]
        of_shares = [each for each in chosen if each.log.partition.topic == SHARE_STATE_TOPIC]
        found = self._groups(of_groups)
        shares = self._share_partitions(of_shares)
        with phase("reading the ends of logs", len(found)) as reading:
            groups = [
                self._group_report(each, shares.pop(each.group.group_id, ()))
                for each in reading.over(found)
            ]
            groups += [self._share_only(group_id, own) for group_id, own in shares.items()]
        groups.sort(key=lambda each: each.group.group_id)
        places = [(each.group.group_id, each.log.partition.partition) for each in found]
        offsets_topic = self._count(OFFSETS_TOPIC, of_groups, places)
        types = {each.group.type for each in groups}
        has_shares = GroupType.SHARE in types
        unknown, absent = self._not_found(offsets_topic, groups)
        return GroupsReport(
            groups=tuple(groups),
            unknown=unknown,
            absent=absent,
            offsets_topic=offsets_topic,
            share_topic=self._count(SHARE_STATE_TOPIC, of_shares, ()) if has_shares else None,
            coordinators=tuple(chosen),
            failures=tuple(self._failures),
            unreadable=tuple(self._consumed.problems),
            damaged_ends=tuple(self._consumed.damage()),
            topic_names=self._consumed.topic_names() if types & _WITH_TOPIC_IDS else {},
        )

    def _groups(self, chosen: Iterable[ChosenLog]) -> list[_FoundGroup]:
        found: list[_FoundGroup] = []
        for each in chosen:
            in_log = self._read_groups(each.log)
            self._failures += ((each.log, problem) for problem in in_log.problems)
            own = {group.group_id: _FoundGroup(group, each.log) for group in in_log.groups}
            for other in each.others:
                if other.only:
                    self._add_others(own, each.log, other)
            found += own.values()
        return found

    def _read_groups(self, log: GroupLog) -> GroupsFound:
        assert isinstance(log.records, LatestRecords)
        return read_groups(log.records, self._request.is_selected)

    def _add_others(self, found: dict[str, _FoundGroup], log: GroupLog, other: OtherLog) -> None:
        """Add the offsets that only another replica has."""
        replica = other.log.replica
        for group in self._read_groups(other.log).groups:
            for key, offsets in group.offsets.items():
                committed = offsets.committed
                if committed is None or committed.record_offset not in other.only:
                    continue
                own = found.get(group.group_id)
                if own is None:
                    nothing = Group(group.group_id, type=None, state=None)
                    own = _FoundGroup(nothing, log, is_only_elsewhere=True)
                    found[group.group_id] = own
                if own.is_only_elsewhere and replica not in own.only_on:
                    own.only_on.append(replica)
                known = own.group.offsets.get(key, _NO_OFFSETS).committed
                if known is None or known.offset != committed.offset:
                    own.elsewhere.setdefault(key, []).append(OtherOffset(replica, committed))

    def _share_partitions(self, chosen: Iterable[ChosenLog]) -> dict[str, list[_FoundShare]]:
        by_group: dict[str, list[_FoundShare]] = {}
        for each in chosen:
            in_log = self._read_shares(each.log)
            self._failures += ((each.log, problem) for problem in in_log.problems)
            found = {state.key: _FoundShare(state, each.log) for state in in_log.partitions}
            for other in each.others:
                for state in self._read_shares(other.log).partitions if other.only else ():
                    own = found.get(state.key)
                    is_other = own is None or own.state.start_offset != state.start_offset
                    if state.record_offset in other.only and is_other:
                        own = found.setdefault(state.key, _FoundShare(state.unknown(), each.log))
                        own.elsewhere.append(OtherShare(other.log.replica, state))
            for share in found.values():
                by_group.setdefault(share.state.group_id, []).append(share)
        return by_group

    def _read_shares(self, log: GroupLog) -> ShareFound:
        assert isinstance(log.records, ShareRecords)
        return read_share_partitions(log.records, self._request.is_selected)

    def _group_report(self, found: _FoundGroup, shares: Sequence[_FoundShare]) -> GroupReport:
        group, superseded = found.group, found.log.uncertain_up_to
        keys = [*group.offsets, *(key for key in found.elsewhere if key not in group.offsets)]
        return GroupReport(
            group,
            found.log,
            tuple(self._offset_report(found, key) for key in keys if self._is_selected(key)),
            tuple(self._share_reports(shares, group)),
            is_uncertain=NO_OFFSET < group.record_offset <= superseded,
            only_on=tuple(found.only_on),
        )

    def _share_only(self, group_id: str, shares: Sequence[_FoundShare]) -> GroupReport:
        """A share group that no partition of ``__consumer_offsets`` here has."""
        group = Group(group_id, GroupType.SHARE, state=None, protocol_type="share")
        return GroupReport(group, None, (), tuple(self._share_reports(shares, group)), True)

    def _offset_report(self, found: _FoundGroup, key: TopicPartition) -> OffsetReport:
        group, superseded = found.group, found.log.uncertain_up_to
        offsets = group.offsets.get(key, _NO_OFFSETS)
        log, committed = self._consumed.log(key), offsets.committed
        expires_ms = None
        if committed is not None and not offsets.pending:
            expires_ms = group.expires_ms(key.topic, committed, self._request.offsets_retention_ms)
        record_offset = superseded + 1 if committed is None else committed.record_offset
        topic_id = None if committed is None else committed.topic_id
        return OffsetReport(
            key,
            offsets,
            log,
            self._consumed.topic_state(key.topic, topic_id, log),
            expires_ms,
            is_uncertain=record_offset <= superseded
            or offsets.unreadable_offset is not None
            or any(each.is_undecided for each in offsets.pending),
            elsewhere=tuple(found.elsewhere.get(key, ())),
        )

    def _share_reports(
        self, shares: Sequence[_FoundShare], group: Group
    ) -> Iterator[ShareOffsetReport]:
        # Without metadata, they are read from the partitions of all topics.
        names = self._consumed.topic_names() if shares else {}
        for share in sorted(
            shares,
            key=lambda each: (
                names.get(each.state.topic_id, each.state.topic_id),
                each.state.partition,
            ),
        ):
            state = share.state
            recorded = group.share_partitions.get(state.topic_id)
            topic = names.get(state.topic_id) or (recorded[0] if recorded else None)
            key = None if topic is None else TopicPartition(topic, state.partition)
            if key is None:
                if self._request.selection.is_everything:
                    yield _share_report(share, None, None)
            elif self._is_selected(key):
                consumed = self._consumed.log(key)
                if consumed is not None and consumed.topic_id not in (None, state.topic_id):
                    consumed = None  # a topic of the same name, created later
                yield _share_report(share, topic, consumed)

    def _is_selected(self, key: TopicPartition) -> bool:
        return self._request.selection.matches(str(key), key)

    def _count(
        self, topic: str, chosen: Iterable[ChosenLog], places: Sequence[tuple[str, int]]
    ) -> PartitionCount:
        logs = [each.log for each in chosen]
        present = {log.partition.partition for log in logs}
        for directory in self._request.directories:
            present.update(key.partition for key in directory.not_loaded() if key.topic == topic)
        read = {log.partition.partition for log in logs if log.unreadable is None}
        return count_partitions(topic, self._request.image, present, read, places)

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
        unknown = [name for name in names if topic.is_missing(name)]
        return tuple(unknown), tuple(name for name in names if name not in unknown)


def _share_report(
    share: _FoundShare, topic: str | None, consumed: ConsumedLog | None
) -> ShareOffsetReport:
    is_old = share.state.record_offset <= share.log.uncertain_up_to
    return ShareOffsetReport(share.state, topic, consumed, is_old, tuple(share.elsewhere))
