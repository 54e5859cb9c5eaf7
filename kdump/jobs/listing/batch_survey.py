"""Count what kinds of batches partitions have: the job of ``kdump info --deep``."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.engine.job import Split
from kdump.jobs.problems.found_problems import Problem
from kdump.log.contents import LogContents, merged, survey_segment
from kdump.log.partition import Partition
from kdump.log.segment import Segment


def survey(
    partitions: Iterable[Partition],
    options: EngineOptions = DEFAULT_OPTIONS,
) -> tuple[LogContents, list[Problem]]:
    """Read and verify the batches of partitions.

    Returns:
        The contents of all valid batches, and the damage in the order of partitions and segments.

    Raises:
        KdumpError: the engine failed.
    """
    splits = [
        _SurveySplit(
            partition.segment_path(segment, segment.log_kind),
            size_bytes=segment.data_bytes,
            label=partition.path.name,
            segment=segment,
            following=following,
        )
        for partition in partitions
        for segment, following in partition.with_following()
    ]
    results = run_job(_SurveyJob(), splits, options)
    return (
        merged(contents for contents, _ in results),
        [problem for _, problems in results for problem in problems],
    )


class _SurveySplit(Split, frozen=True, kw_only=True):
    """A segment, and the one after it."""

    segment: Segment
    following: Segment | None


class _SurveyJob(Struct, frozen=True):
    """Counts the batches of a segment."""

    def run(self, split: _SurveySplit) -> tuple[LogContents, tuple[Problem, ...]]:
        contents, problems = survey_segment(split.path, split.segment, split.following)
        return contents, tuple(map(Problem.of_file, problems))
