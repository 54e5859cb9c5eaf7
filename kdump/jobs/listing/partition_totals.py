"""What ``kdump info`` adds up over partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kdump.formats.names import PartitionState, TopicPartition
from kdump.jobs.listing.partition_facts import loaded_or_reported
from kdump.jobs.problems.found_problems import ProblemReporter
from kdump.log.directory import LogDirectory
from kdump.log.generations import segment_generations
from kdump.log.living import while_it_changes
from kdump.log.partition import Partition


class PartitionTotals(NamedTuple):
    """The numbers of one partition. A tuple, because 10,000 come from workers.

    Attributes:
        name: of its directory.
        topic_partition: None if the directory has another name.
        segments: how many, as a broker loads the partition.
        log_bytes: of their logs.
        total_bytes: of all files.
        leftovers: how many, by kind.
        generations: how many segments, by the versions that can have written them.
    """

    name: str
    topic_partition: TopicPartition | None
    state: PartitionState
    segments: int
    log_bytes: int
    total_bytes: int
    leftovers: Mapping[str, int]
    generations: Mapping[str, int]


def only_totals(
    listed: Partition, log_directory: LogDirectory | None, problems: ProblemReporter
) -> tuple[PartitionTotals, None]:
    """Add up a partition; what cannot be read is reported."""
    return totals_and_loaded(listed, log_directory, problems)[0], None


def totals_and_loaded(
    listed: Partition, log_directory: LogDirectory | None, problems: ProblemReporter
) -> tuple[PartitionTotals, Partition | None]:
    """Add up a partition, and return it as a broker loads it; None if none can."""
    loaded = loaded_or_reported(listed, problems)
    shown = loaded or listed
    generations: Mapping[str, int] = {}
    try:
        generations = while_it_changes(shown, segment_generations, gone={})
    except OSError as failure:
        problems.report(listed.path, failure)
    return PartitionTotals(
        listed.path.name,
        listed.topic_partition,
        listed.state,
        len(shown.segments),
        shown.log_bytes,
        listed.total_bytes,
        Counter(leftover.kind.value for leftover in listed.leftovers),
        generations,
    ), loaded
