"""The lag of consumer groups, for a report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.formats.names import TopicPartition
from kdump.jobs.groups.build_report import report_groups
from kdump.jobs.groups.coordinator_logs import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from kdump.jobs.groups.group_report import GroupReport, GroupsReport, GroupsRequest
from kdump.jobs.problems.found_problems import Problem
from kdump.log.directory import LogDirectory
from kdump.log.selection import PartitionSelection
from kdump.state.metadata.settings import Settings


class GroupLag(Struct, frozen=True):
    """The lag of a group in a partition.

    Attributes:
        state: of the group; None if unknown.
        partition: the partition; None if its topic is not known.
        offset: committed, or where a share group starts; None if there is none.
        end_offset: of the log; None if unknown.
        is_end_certain: whether a starting broker ends the log there, too; None without an end.
        lag: None if unknown.
    """

    group: str
    state: str | None
    partition: TopicPartition | None
    offset: int | None
    end_offset: int | None
    is_end_certain: bool | None
    lag: int | None


class ConsumerLag(Struct, frozen=True):
    """The lag of all groups.

    Attributes:
        lags: by group and partition.
        notes: what is not known, in sentences.
        problems: what could not be read, and what no coordinator loads.
        has_coordinators: whether any log of a group coordinator is there.
    """

    lags: tuple[GroupLag, ...]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]
    has_coordinators: bool


def consumer_lag(
    directories: Sequence[LogDirectory],
    settings: Sequence[Settings],
    selection: PartitionSelection,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> ConsumerLag:
    """Read the committed offsets of all groups, and the ends of the logs that they consume.

    Args:
        directories: the log directories, with partitions as a starting broker loads them.
        settings: of their topics.

    Raises:
        KdumpError: the engine failed.
    """
    image = next((each.cluster for each in settings if each.cluster is not None), None)
    # When offsets expire is not reported.
    request = GroupsRequest(directories, image, (), selection, offsets_retention_ms=0)
    report = report_groups(request, options)
    return ConsumerLag(
        tuple(lag for each in report.groups for lag in _lags(each)),
        tuple(_notes(report)),
        # The verification reports the damage.
        tuple(each for each in report.problems() if isinstance(each, Problem)),
        bool(report.coordinators),
    )


def _lags(report: GroupReport) -> list[GroupLag]:
    name = report.group.group_id
    state = None if report.group.state is None else report.group.state.value
    found = []
    for each in report.offsets:
        committed = each.offsets.committed
        found.append(
            GroupLag(
                name,
                state,
                each.partition,
                None if committed is None else committed.offset,
                None if each.log is None else each.log.end_offset,
                None if each.log is None else each.log.is_end_certain,
                each.lag,
            )
        )
    for share in report.share_offsets:
        key = None if share.topic is None else TopicPartition(share.topic, share.state.partition)
        end = None if share.log is None else share.log.end_offset
        start = share.state.start_offset
        is_certain = None if share.log is None else share.log.is_end_certain
        offset = None if start < 0 else start
        found.append(GroupLag(name, state, key, offset, end, is_certain, share.lag))
    return found


def _notes(report: GroupsReport) -> list[str]:
    notes = []
    missing = report.offsets_topic.missing_count
    if missing and report.coordinators:
        notes.append(
            f"{missing} of {report.offsets_topic.count} partitions of {OFFSETS_TOPIC} are not in"
            " these directories: their groups are missing here"
        )
    if any(each.is_uncertain for each in report.groups):
        notes.append("later commits of some groups may be in damaged bytes")
    if report.share_topic is not None and report.share_topic.missing_count:
        notes.append(f"not all partitions of {SHARE_STATE_TOPIC} are in these directories")
    return notes
