"""What people must know beside the plan: nodes that are missing, damage, leftover directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kdump.formats.names import PartitionState
from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.evidence import (
    Evidence,
    MetadataEvidence,
    missing_disks,
    place_of,
)
from kdump.repair.cluster.notice_codes import Notices
from kdump.state.metadata.cluster_plan import PlannedTopic
from kdump.state.metadata.disk_collection import CollectedDirectory
from kdump.state.metadata.metadata_image import LOG_BEGIN, EntityKind, LogEnd
from kdump.words import counted

_SHOWN_PROBLEMS = 3


def report_surroundings(
    evidence: Evidence,
    copy: MetadataEvidence | None,
    topics: Sequence[PlannedTopic],
    notices: Notices,
) -> None:
    """Report what does not decide anything.

    Args:
        evidence: with all directories.
        copy: the chosen copy.
        notices: takes what is found.
    """
    for sentence in evidence.ignored:
        notices.add(notice_codes.IGNORED, sentence)
    for sentence in evidence.clones:
        notices.add(
            notice_codes.CLONED_DISK,
            f"{sentence}; give one of them another id with kdump identity --repair, or leave out"
            " its collection",
        )
    if copy is not None:
        _report_missing_nodes(evidence, copy, topics, notices)
        _report_uncommitted(copy, notices)
        _report_unknown(copy, notices)
    _report_damaged_copies(evidence, copy, notices)
    _report_late_copies(evidence, copy, notices)
    planned = {topic.name: topic.topic_id for topic in topics}
    for directory in evidence.directories:
        _report_directory(directory, planned, notices)


def _report_missing_nodes(
    evidence: Evidence,
    copy: MetadataEvidence,
    topics: Sequence[PlannedTopic],
    notices: Notices,
) -> None:
    replicas = Counter(
        node for topic in topics for each in topic.partitions for node in each.replicas
    )
    nodes = {*copy.image.of(EntityKind.BROKER), *replicas} - evidence.nodes
    for node_id in sorted(nodes):
        notices.add(
            notice_codes.NOT_COLLECTED,
            f"node {node_id}, a replica of {counted(replicas[node_id], 'partition')}; collect on"
            " it, too, unless its disks are lost",
        )
    for node_id, missing in missing_disks(evidence, copy).items():
        notices.add(
            notice_codes.DISK_NOT_COLLECTED,
            f"node {node_id}, directory id {', '.join(sorted(missing))}; collect it, too, unless it"
            " is lost",
        )


def _report_uncommitted(copy: MetadataEvidence, notices: Notices) -> None:
    """Report the end of the copy that no majority is known to have had."""
    committed, end = copy.metadata.committed_end_offset, copy.end.offset
    if committed is None or committed < end:
        begin = "0" if committed is None else str(committed)
        notices.add(
            notice_codes.UNCOMMITTED,
            f"{place_of(copy.directory)}: the records from offset {begin} to {end - 1} count,"
            " although the disks do not say that they were committed; kdump metadata history"
            " shows them",
        )


def _report_unknown(copy: MetadataEvidence, notices: Notices) -> None:
    """Report what the records of the copy say beyond what is known: the plan does not have it."""
    place, metadata = place_of(copy.directory), copy.metadata
    for what in metadata.unknown:
        notices.add(notice_codes.UNKNOWN_RECORDS, f"{place}: {what}")
    if metadata.problems and not metadata.records:
        notices.add(
            notice_codes.UNKNOWN_RECORDS,
            f"{place}: none of the records could be collected; collect again with this kdump",
        )


def _report_damaged_copies(
    evidence: Evidence, copy: MetadataEvidence | None, notices: Notices
) -> None:
    """Report copies that damage ends before the end of their records, if the plan has no later.

    A copy without a record before the damage is not among the copies of the evidence.
    """
    end = LOG_BEGIN if copy is None else copy.end
    for directory in evidence.directories:
        metadata = directory.metadata
        if metadata is None or not metadata.problems:
            continue
        highest = LogEnd(metadata.highest_epoch, metadata.highest_offset)
        if highest > end and highest.offset > metadata.end_offset:
            notices.add(
                notice_codes.DAMAGED_COPY,
                f"{place_of(directory)}: offsets {metadata.end_offset} to {highest.offset - 1};"
                " collect on the other nodes, too: another copy may have them",
            )


def _report_late_copies(
    evidence: Evidence, copy: MetadataEvidence | None, notices: Notices
) -> None:
    """Report copies that do not reach back to the moment, and what only they have before it."""
    for late in evidence.late_copies:
        place = place_of(late.directory)
        notices.add(notice_codes.LATE_COPY, f"{place}: {late.problem}")
        if copy is None or late.end <= copy.end:
            continue
        if (copy.metadata.timestamp_ms or 0) < (evidence.moment_ms or 0):
            notices.add(
                notice_codes.DAMAGED_COPY,
                f"{place}: offsets {copy.end.offset} to {late.end.offset - 1}; some may be from"
                " before the time of --to; collect on the other nodes, too: another copy may have"
                " them",
            )


def _report_directory(
    directory: CollectedDirectory, planned: dict[str, str], notices: Notices
) -> None:
    place = place_of(directory)
    if not directory.is_clean_shutdown and directory.partitions:
        notices.add(
            notice_codes.UNCLEAN_SHUTDOWN,
            f"{place}: what a starting broker cuts off is shown by kdump recover --dry-run",
        )
    problems = [*directory.problems]
    problems += (
        f"{each.directory}: {problem}" for each in directory.partitions for problem in each.problems
    )
    if directory.metadata is not None:
        rewound = directory.metadata.rewound
        reported = {*directory.metadata.unknown, None if rewound is None else rewound.problem}
        problems += (each for each in directory.metadata.problems if each not in reported)
    for problem in problems[:_SHOWN_PROBLEMS]:
        notices.add(notice_codes.UNREADABLE, f"{place}: {problem}")
    if len(problems) > _SHOWN_PROBLEMS:
        notices.add(
            notice_codes.UNREADABLE,
            f"{place}: {counted(len(problems) - _SHOWN_PROBLEMS, 'more problem')} in the file",
        )
    for state in (PartitionState.STRAY, PartitionState.DELETE):
        # Those of topics that are not in the plan are reported with their topic.
        left = [
            each for each in directory.partitions if each.state is state and each.topic in planned
        ]
        if left:
            word = f"{state.value} directory", f"{state.value} directories"
            notices.add(notice_codes.LEFTOVER, f"{place}: {counted(len(left), *word)}")
