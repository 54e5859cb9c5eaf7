"""The report of ``kdump undelete``."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.at_risk_output import OTHER_LOG, at_risk_summary, report_at_risk
from kdump.cli.output.brief import MAX_LISTED
from kdump.cli.output.events import Event, Printer
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_report import Operations, planned_event
from kdump.errors import ExitStatus
from kdump.repair.restored_directories import NextStart, Obstacle, StrayCause, restored
from kdump.rows.common_rows import INTERRUPTED, PLANNED_DIRECTORY
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INT,
    INTEGER,
    SIZE,
    TEXT,
    Field,
    JsonAnswer,
    RowType,
    one_of,
)
from kdump.words import counted, shell_command

if TYPE_CHECKING:
    from kdump.cli.output.write_arguments import RepairArguments
    from kdump.jobs.loading.logs_at_risk import LogAtRisk
    from kdump.jobs.undelete import LogEnds, UndeleteOutcome
    from kdump.jobs.writing.execution import PlanResult
    from kdump.repair.restored_directories import Candidate

UNDELETED_PARTITION: Final = RowType(
    "partition",
    "A -stray or -delete directory.",
    (
        Field("log_dir", TEXT, "The log directory."),
        Field("directory", TEXT, "Name of the directory before."),
        Field("state", one_of("stray", "delete")),
        Field("topic", TEXT.or_null, "The whole name of its topic; null if it is not known."),
        Field("partition", INT),
        Field("topic_id", TEXT.or_null, "From partition.metadata; null if that cannot be read."),
        Field("log_start_offset", INTEGER.or_null, "Base offset of the first segment."),
        Field(
            "log_end_offset",
            INTEGER.or_null,
            "One above the last valid batch; null if the log cannot be read.",
        ),
        Field("total_bytes", SIZE, "Size of all its files."),
        Field(
            "restored_as",
            TEXT.or_null,
            "Name of the directory afterwards; null if it is left unchanged.",
        ),
        Field(
            "obstacle",
            one_of(*(each.value for each in Obstacle)).or_null,
            "Why it is left unchanged; null if it is restored.",
        ),
        Field("why", TEXT.or_null, "A sentence about that."),
        Field(
            "next_start",
            one_of(*(each.value for each in NextStart)).or_null,
            "What the next start of the broker does with a restored partition, by the metadata;"
            " null if it is left unchanged.",
        ),
        Field(
            "next_start_cause",
            one_of(*(each.value for each in StrayCause)).or_null,
            "Why it renames the directory to -stray; null if it does not.",
        ),
        Field("next_start_why", TEXT.or_null, "A sentence about that."),
        Field(
            "is_remote",
            FLAG,
            "Whether the metadata says that the topic has remote.storage.enable: only the part on"
            " this disk is restored.",
        ),
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "The numbers of directories.",
    (
        Field("restored", COUNT, "Directories that became partitions, or would."),
        Field("left", COUNT, "Directories that are left unchanged."),
        Field(
            "kept_at_next_start", COUNT, "Restored partitions that the metadata has on this broker."
        ),
        Field(
            "stray_at_next_start",
            COUNT,
            "Restored partitions that the next start renames to -stray.",
        ),
        Field(
            "damaged_at_next_start",
            COUNT,
            "Restored partitions that the next start refuses or truncates.",
        ),
        Field(
            "unknown_at_next_start", COUNT, "Restored partitions about which no metadata is known."
        ),
        Field(
            "damaged_others",
            COUNT,
            "Other logs that the next start refuses or truncates, because the marker is removed.",
        ),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "undelete",
        (
            INTERRUPTED,
            PLANNED_DIRECTORY,
            UNDELETED_PARTITION,
            OTHER_LOG,
            SUMMARY,
        ),
    ),
)


def report_undelete(
    printer: Printer,
    outcomes: Sequence[UndeleteOutcome],
    changed: Sequence[tuple[UndeleteOutcome, PlanResult]],
    operations: Operations,
    metadata: object | None,
    repair: RepairArguments,
) -> ExitStatus:
    """Report what was restored, what was not, and what the next start does; returns the status.

    Args:
        changed: those that could be changed, with their plans.
        metadata: where the metadata of the next start is, if it was given.
    """
    status = ExitStatus.SOUND
    for outcome, result in changed:
        _report_directory(printer, outcome, result, operations, verbose=repair.verbose)
        if not result.plan.is_empty:
            status |= ExitStatus.REPAIRED
    every = [each for outcome in outcomes for each in outcome.candidates]
    others = [each for outcome in outcomes for each in outcome.others]
    if outcomes:
        paths = [outcome.directory.path for outcome in outcomes]
        _report_summary(printer, every, others, paths, metadata, repair)
    if others or any(_needs_attention(each) for each in every):
        status |= ExitStatus.DAMAGE_LEFT
    return status


def _report_directory(
    printer: Printer,
    outcome: UndeleteOutcome,
    result: PlanResult,
    operations: Operations,
    *,
    verbose: bool,
) -> None:
    printer.emit(planned_event(result, operations))
    listed = 0
    for each in outcome.candidates:
        is_listed = _is_left(each) or verbose
        if is_listed and not verbose:
            listed += 1
        lines = [*_lines(each)] if is_listed and listed <= MAX_LISTED else []
        printer.emit(Event("partition", _row(each, outcome.ends[each.partition.path.name]), lines))
    if listed > MAX_LISTED:
        more = counted(listed - MAX_LISTED, "more directory", "more directories")
        printer.emit_text([f"… and {more} left unchanged (--verbose lists all)"])
    report_at_risk(printer, outcome.others, verbose=verbose)


def _row(candidate: Candidate, ends: LogEnds) -> dict[str, Any]:
    obstacle = candidate.obstacle
    is_restored = obstacle is None
    cause = candidate.forecast.cause
    return {
        "log_dir": str(candidate.log_dir.path),
        "directory": candidate.partition.path.name,
        "state": candidate.partition.state.value.removeprefix("-"),
        "topic": candidate.topic,
        "partition": candidate.number,
        "topic_id": candidate.topic_id,
        "log_start_offset": ends.start_offset,
        "log_end_offset": ends.end_offset,
        "total_bytes": candidate.partition.total_bytes,
        "restored_as": str(candidate.key) if is_restored else None,
        "obstacle": None if obstacle is None else obstacle.value,
        "why": candidate.why or None,
        "next_start": candidate.forecast.outcome.value if is_restored else None,
        "next_start_cause": cause.value if cause is not None and is_restored else None,
        "next_start_why": candidate.forecast.why or None if is_restored else None,
        "is_remote": candidate.is_remote,
    }


def _lines(candidate: Candidate) -> Iterator[str]:
    path = candidate.partition.path
    if candidate.obstacle is not None:
        yield f"{path}: left unchanged: {candidate.why}"
        return
    size = format_bytes(candidate.partition.total_bytes)
    then = candidate.forecast.outcome
    words = {
        NextStart.KEPT: "the next start keeps it",
        NextStart.STRAY: f"the next start renames it to -stray: {candidate.forecast.why}",
        NextStart.DAMAGED: f"it is damaged: {candidate.forecast.why}",
        NextStart.UNKNOWN: "no metadata says what the next start does with it",
    }
    yield f"{path}: becomes {candidate.key}, {size}; {words[then]}"


_METADATA_FIRST: Final = (
    "do not start the broker yet: first give the controllers metadata that has them"
    " (kdump metadata collect, plan and apply)"
)
_ADVICE: Final = {
    StrayCause.NO_TOPIC: _METADATA_FIRST,
    StrayCause.NO_PARTITION: _METADATA_FIRST,
    StrayCause.CREATED_AGAIN: (
        "to get the records into the new topic, transplant the directories (kdump transplant)"
    ),
    StrayCause.OTHER_BROKERS: (
        "if the replicas there have all records, leave these unchanged: select others with"
        " --topic or --partition"
    ),
    StrayCause.NO_TOPIC_ID: (
        "kdump verify --repair writes partition.metadata, if the metadata has a topic of the name"
    ),
}
"""What to do first, by the cause."""


def _needs_attention(candidate: Candidate) -> bool:
    if candidate.obstacle is not None:
        return _is_left(candidate)
    return candidate.forecast.outcome in (NextStart.STRAY, NextStart.DAMAGED)


def _is_left(candidate: Candidate) -> bool:
    """Whether it is left unchanged although somebody may expect it to be restored."""
    return candidate.obstacle is not None and not candidate.obstacle.is_expected


def _report_summary(
    printer: Printer,
    candidates: Sequence[Candidate],
    others: Sequence[LogAtRisk],
    log_dirs: Sequence[object],
    metadata: object | None,
    repair: RepairArguments,
) -> None:
    done = restored(candidates)
    outcomes = Counter(each.forecast.outcome for each in done)
    left = [each for each in candidates if _is_left(each)]
    row = {
        "restored": len(done),
        "left": len(left),
        "kept_at_next_start": outcomes[NextStart.KEPT],
        "stray_at_next_start": outcomes[NextStart.STRAY],
        "damaged_at_next_start": outcomes[NextStart.DAMAGED],
        "unknown_at_next_start": outcomes[NextStart.UNKNOWN],
        "damaged_others": len(others),
    }
    lines = [*_summary(done, left, others, log_dirs, metadata, repair)]
    printer.emit(Event("summary", row, lines))


def _summary(
    done: Sequence[Candidate],
    left: Sequence[Candidate],
    others: Sequence[LogAtRisk],
    log_dirs: Sequence[object],
    metadata: object | None,
    repair: RepairArguments,
) -> Iterator[str]:
    if not done and not left:
        yield "no -stray or -delete directory"
        return
    would = "would be " if repair.dry_run else ""
    unchanged = f", {counted(len(left), 'directory', 'directories')} left unchanged" if left else ""
    yield f"{counted(len(done), 'partition')} {would}restored{unchanged}"
    if not done:
        return
    remote = sum(each.is_remote for each in done)
    if remote:
        yield (
            f"{remote} of them have remote.storage.enable: only what is on this disk is restored;"
            " Kafka deletes segments in remote storage together with their topic"
        )
    yield from _next_start(done)
    if others:
        yield at_risk_summary(others, log_dirs)
    if others or any(each.forecast.outcome is NextStart.DAMAGED for each in done):
        salvage = shell_command("recover --policy salvage", log_dirs)
        yield f"do not start the broker yet: first keep every valid batch: {salvage}"
        return
    is_stray = any(each.forecast.outcome is NextStart.STRAY for each in done)
    where = metadata or ("CONTROLLER_DIR" if is_stray else None)
    words = "recover" if where is None else f"recover --metadata {shlex.quote(str(where))}"
    command = shell_command(words, log_dirs)
    yield f"then let kdump check the restored logs as a starting broker does: {command}"


def _next_start(done: Sequence[Candidate]) -> Iterator[str]:
    """What the next start does, and what to do first."""
    outcomes = Counter(each.forecast.outcome for each in done)
    if outcomes[NextStart.KEPT] == len(done):
        yield "the next start of the broker keeps them: the metadata has them on this broker"
        return
    reasons = Counter(
        each.forecast.why for each in done if each.forecast.outcome is NextStart.STRAY
    )
    for why, count in reasons.most_common():
        yield f"the next start renames {count} of them to -stray: {why}"
    for each in done:
        if each.forecast.outcome is NextStart.DAMAGED:
            yield f"{each.key} is damaged: {each.forecast.why}"
    causes = {each.forecast.cause for each in done}
    yield from dict.fromkeys(each for cause, each in _ADVICE.items() if cause in causes)
    unknown = outcomes[NextStart.UNKNOWN]
    if unknown:
        yield (
            f"no metadata here says whether the next start keeps {unknown} of them, or whether the"
            " broker has them in another log directory; name some with --metadata or --plan"
        )
