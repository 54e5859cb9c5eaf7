"""The summary of ``kdump groups``: totals, what is missing, and what to run next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kdump.storage.place_names import TypedName, kdump_command
from kdump.words import counted, first_of

if TYPE_CHECKING:
    from kdump.jobs.groups.coordinator_topics import PartitionCount
    from kdump.jobs.groups.group_report import GroupsReport, OffsetReport, ShareOffsetReport
    from kdump.log.replicas import Replica
    from kdump.storage.location import Location

_MOST_NAMED: Final = 20
"""The most partitions or groups that a sentence names."""


def summary_lines(
    report: GroupsReport, now_ms: int, paths: Sequence[Location], *, is_filtered: bool
) -> Iterator[str]:
    """Yield the sentences below the tables: totals, what is missing, what to run next."""
    offsets = [each for group in report.groups for each in group.offsets]
    shares = [each for group in report.groups for each in group.share_offsets]
    yield _totals(report, offsets, shares)
    yield from _all_missing_lines(report)
    yield from _replica_lines(report, paths)
    pending = [each for each in offsets if each.offsets.pending]
    if pending:
        yield (
            f"{counted(len(pending), 'partition')} with offsets that are not committed yet: find"
            f" the open transactions with '{kdump_command('txns', _typed(paths))}'"
        )
    unknown = {
        str(each.partition)
        for each in offsets
        if each.log is None and each.topic_state != "unlisted"
    }
    if unknown:
        yield (
            f"lag unknown for {counted(len(unknown), 'partition')}: no replica in these log"
            f" directories ({first_of(sorted(unknown), _MOST_NAMED)})"
        )
    apart = {str(each.partition) for each in offsets if each.log and each.log.have_other_ends}
    if apart:
        yield (
            f"replicas of {counted(len(apart), 'partition')} end at different offsets; lag counts"
            f" to the end of the most advanced one ({first_of(sorted(apart), _MOST_NAMED)})"
        )
    uncertain = {
        str(log.replica.partition.path)
        for log in (*(each.log for each in offsets), *(each.log for each in shares))
        if log is not None and log.is_end_certain is False
    }
    if uncertain:
        yield (
            f"~: a starting broker may end {counted(len(uncertain), 'log')} elsewhere, with another"
            f" lag: '{kdump_command('recover --dry-run', _typed(paths))}' says where"
        )
    expired = sum(each.expires_ms is not None and each.expires_ms <= now_ms for each in offsets)
    if expired:
        yield (
            f"{counted(expired, 'offset')} expired: a broker deletes them soon after it starts,"
            " unless offsets.retention.minutes is raised first"
        )
    if offsets and not is_filtered:
        yield (
            "to move the offsets to another cluster: "
            f"'{kdump_command('groups --output reset-csv', _typed(paths))}'"
        )


def _typed(paths: Sequence[Location]) -> list[TypedName]:
    return [each.typed for each in paths]


def _totals(
    report: GroupsReport, offsets: Sequence[OffsetReport], shares: Sequence[ShareOffsetReport]
) -> str:
    committed = sum(each.offsets.committed is not None for each in offsets)
    text = f"{counted(len(report.groups), 'group')}, {counted(committed, 'committed offset')}"
    if shares:
        text += f", {counted(len(shares), 'share partition')}"
    return text


def _all_missing_lines(report: GroupsReport) -> Iterator[str]:
    yield from missing_lines("__consumer_offsets", report.offsets_topic, "groups")
    if report.share_topic is not None:
        yield from missing_lines(
            "__share_group_state", report.share_topic, "offsets of share groups"
        )
    for name in report.unknown:
        yield f"group {name}: unknown, because {report.offsets_topic.why_missing(name)}"


def missing_lines(topic: str, found: PartitionCount, what: str) -> Iterator[str]:
    """Yield sentences about the partitions of a coordinator's topic that could not be read."""
    guess = "" if found.is_known else " (or more: no metadata of the cluster says how many)"
    if not found.count:
        yield f"no partition of {topic} in these log directories: all {what} are unknown"
        return
    of_all = f"of {found.count}{guess}"
    absent = [number for number in found.missing if number not in found.unreadable]
    if absent:
        count = found.missing_count - len(found.unreadable)
        yield (
            f"{topic}: {_partitions(absent, count)} {of_all} {'is' if count == 1 else 'are'}"
            f" missing: {what} in {'it' if count == 1 else 'them'} are unknown"
        )
    if found.unreadable:
        count = len(found.unreadable)
        yield (
            f"{topic}: {_partitions(found.unreadable, count)} {of_all} cannot be read completely:"
            f" {what} in {'it' if count == 1 else 'them'} are unknown or out of date"
        )
    if not found.missing_count and guess:
        yield f"{topic}: {counted(found.count, 'partition')}{guess}"


def _partitions(numbers: Sequence[int], count: int) -> str:
    return f"partition{'' if count == 1 else 's'} {first_of(numbers, _MOST_NAMED, count)}"


def _replica_lines(report: GroupsReport, paths: Sequence[Location]) -> Iterator[str]:
    """Yield sentences about replicas of coordinators' logs that are not believed."""
    for each in report.coordinators:
        for path in each.skipped:
            yield (
                f"{each.log.partition}: read in {each.log.replica.log_directory.path}, because its"
                f" replica in {path} cannot be read completely"
            )
    apart = [replica for group in report.groups for replica in group.parted]
    if apart:
        directories = sorted({str(each.log_directory.path) for each in apart})
        topics = sorted({topic for topic in map(_topic_of, apart) if topic is not None})
        words = shlex.join(["diff", *(f"--topic={topic}" for topic in topics)])
        yield (
            f"{counted(len(apart), 'other offset')} only in replicas of coordinators' logs that"
            f" parted ({', '.join(directories)}): compare them with"
            f" '{kdump_command(words, _typed(paths))}'"
        )


def _topic_of(replica: Replica) -> str | None:
    key = replica.partition.topic_partition
    return None if key is None else key.topic
