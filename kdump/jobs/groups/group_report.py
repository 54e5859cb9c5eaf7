"""What is reported about groups: what they committed, beside the logs that they read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from kdump.formats.names import TopicPartition
from kdump.jobs.groups.consumed_logs import ConsumedLog
from kdump.jobs.groups.coordinator_logs import GroupLog
from kdump.jobs.groups.coordinator_replicas import ChosenLog
from kdump.jobs.groups.coordinator_topics import PartitionCount
from kdump.jobs.problems.found_problems import Problem
from kdump.log.directory import LogDirectory
from kdump.log.problems import FileProblem
from kdump.log.replicas import Replica
from kdump.log.selection import PartitionSelection
from kdump.log.valid_windows import Damage
from kdump.state.groups.group_image import CommittedOffset, Group, PartitionOffsets
from kdump.state.groups.share_groups import SharePartition
from kdump.state.metadata.cluster import ClusterImage


class GroupsRequest(Struct, frozen=True):
    """Which groups to report, and from what.

    Attributes:
        directories: the log directories, with partitions as a starting broker loads them.
        image: the cluster's metadata; None if there is none.
        groups: globs for names of groups; empty for all.
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


class OtherOffset(Struct, frozen=True):
    """An offset that only a replica has which is not believed.

    Attributes:
        replica: of the coordinator's log.
    """

    replica: Replica
    committed: CommittedOffset


class OtherShare(Struct, frozen=True):
    """What a share group has delivered, if a replica is right that is not believed.

    Attributes:
        replica: of the coordinator's log.
    """

    replica: Replica
    state: SharePartition


class OffsetReport(Struct, frozen=True):
    """What a group committed for a partition.

    Attributes:
        log: None if no replica is in the directories.
        topic_state: ``live``, ``recreated`` (the offset was committed for another topic of that
            name) or ``unlisted`` (neither the cluster's metadata nor a log directory has it);
            None if that is not known.
        expires_ms: when a coordinator deletes the offset; None if not while the group is as it is.
        is_uncertain: whether a later commit may be in damaged bytes, or cannot be decoded.
        elsewhere: other offsets, which only another replica of the coordinator's log has.
    """

    partition: TopicPartition
    offsets: PartitionOffsets
    log: ConsumedLog | None
    topic_state: str | None
    expires_ms: int | None
    is_uncertain: bool
    elsewhere: tuple[OtherOffset, ...] = ()

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


class ShareOffsetReport(Struct, frozen=True):
    """What a share group has delivered of a partition.

    Attributes:
        state: as the share coordinator has it.
        topic: None if no topic with that id is known.
        log: None if no replica is in the directories.
        is_uncertain: whether a later change may be in damaged bytes.
        elsewhere: other states, which only another replica of the coordinator's log has.
    """

    state: SharePartition
    topic: str | None
    log: ConsumedLog | None
    is_uncertain: bool
    elsewhere: tuple[OtherShare, ...] = ()

    @property
    def lag(self) -> int | None:
        end = None if self.log is None else self.log.end_offset
        return None if end is None else self.state.lag(end)


class GroupReport(Struct, frozen=True):
    """A group with its offsets.

    Attributes:
        coordinator: the log that it was read from; None if only a share coordinator knows it.
        offsets: of the selected partitions.
        share_offsets: likewise.
        is_uncertain: whether a later record about the group may be in damaged bytes.
        only_on: replicas that have the group, if the one that is believed has not.
    """

    group: Group
    coordinator: GroupLog | None
    offsets: tuple[OffsetReport, ...]
    share_offsets: tuple[ShareOffsetReport, ...]
    is_uncertain: bool
    only_on: tuple[Replica, ...] = ()

    @property
    def parted(self) -> list[Replica]:
        """The replicas that have other offsets, once for each."""
        found = [other.replica for each in self.offsets for other in each.elsewhere]
        return found + [other.replica for each in self.share_offsets for other in each.elsewhere]


class GroupsReport(Struct, frozen=True):
    """The groups of a cluster.

    Attributes:
        unknown: names given in full whose records are in a missing partition.
        absent: names given in full of groups that do not exist.
        offsets_topic: the partitions of ``__consumer_offsets``.
        share_topic: those of ``__share_group_state``; None if no group needs them.
        failures: why coordinators do not load their logs: the log, and what is wrong.
        unreadable: files that cannot be read or are malformed.
        damaged_ends: what is not valid at the end of the logs that groups consume.
        topic_names: by topic id, as far as known; empty if no group has topic ids.
    """

    groups: tuple[GroupReport, ...]
    unknown: tuple[str, ...]
    absent: tuple[str, ...]
    offsets_topic: PartitionCount
    share_topic: PartitionCount | None
    coordinators: tuple[ChosenLog, ...]
    failures: tuple[tuple[GroupLog, str], ...]
    unreadable: tuple[FileProblem, ...]
    damaged_ends: tuple[Damage, ...]
    topic_names: Mapping[str, str]

    def problems(self) -> Iterator[Damage | Problem]:
        """Yield damage of the logs, what cannot be read, and what coordinators do not load."""
        for coordinator in self.coordinators:
            for log in coordinator.logs:
                yield from log.damage
            for why in coordinator.all_unreadable():
                yield Problem(why.path, why.what, is_damage=False)
        for log, what in self.failures:
            path = str(log.replica.partition.path)
            yield Problem(path, f"a coordinator does not load it: {what}", is_damage=True)
        for file in self.unreadable:
            yield Problem.of_file(file)
        yield from self.damaged_ends
