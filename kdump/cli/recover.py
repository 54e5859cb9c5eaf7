"""``kdump recover``: what a broker does to log directories when it starts, without the broker."""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kdump.cli.config_options import ConfigArguments, config_options
from kdump.cli.engine_options import EngineArguments, engine_options
from kdump.cli.output import format_count
from kdump.cli.parameters import TIME, paths_argument
from kdump.cli.recovery_rows import directory_row, partition_row
from kdump.cli.repairing import (
    Operations,
    RepairArguments,
    open_report,
    plan_lines,
    plan_row,
    previewed,
    repair_options,
    report_failures,
    said_of_failed,
    said_of_finding,
    said_of_interrupted,
)
from kdump.cli.said import Said
from kdump.errors import ExitStatus, UsageProblem

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory
    from kdump.pipeline.recover import DirectoryResult, PartitionResult, Selection
    from kdump.pipeline.repairing import Done


class PolicyName(enum.Enum):
    """What becomes of damaged data; the value is the word behind ``--policy``."""

    BROKER = "broker"
    SALVAGE = "salvage"


_LOSS: Final = "loss"
_DAMAGED: Final = ("rebuilt", _LOSS)
_REFUSED: Final = "refused"
_UNREADABLE: Final = "unreadable"
_QUIET: Final = ("sound", "unclean", "deleted", "stray")
"""Verdicts that people are not told of unless they ask."""


@click.command("recover")
@paths_argument("LOG_DIR")
@click.option(
    "--policy",
    "policy_name",
    type=click.Choice(PolicyName, case_sensitive=False),
    default=PolicyName.BROKER,
    help="What becomes of damaged data: broker (the default) does what a starting broker does; "
    "salvage keeps every valid batch, and sets the damaged bytes aside.",
)
@click.option(
    "--partition",
    "globs",
    metavar="GLOB",
    multiple=True,
    help="Only partitions whose directory, or topic, matches (*, ?, [...]); more than one may be "
    "given.",
)
@click.option(
    "--now",
    "now_ms",
    type=TIME,
    metavar="TIME",
    help="What time it is: ISO 8601 or epoch milliseconds; decides which producers have expired.",
)
@repair_options
@config_options
@engine_options
def command(
    paths: Sequence[Path],
    policy_name: PolicyName,
    globs: Sequence[str],
    now_ms: int | None,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineArguments,
) -> ExitStatus:
    """Do to log directories what a broker does to them when it starts, and stop as it stops.

    LOG_DIR is a log directory; name all of a broker that has several.
    """
    from kdump.cli.directories import (
        Diagnostics,
        find_log_directories,
        without_garbage_collection,
    )
    from kdump.log.directory import read_log_directory
    from kdump.pipeline.recover import Request, Selection, recover
    from kdump.pipeline.repairing import carry_out, for_writing
    from kdump.repair.policies import Policy

    begin = time.monotonic()
    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    selection = Selection(tuple(globs))
    writing = repair.writing("recover")
    with for_writing(list(log_dirs), writing) as interrupted, without_garbage_collection():
        directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
        _require_match(directories, selection)
        request = Request(
            directories=directories,
            settings=config.settings_of(directories),
            selection=selection,
            policy=Policy(policy_name.value),
            now_ms=round(time.time() * 1000) if now_ms is None else now_ms,
        )
        results = recover(request, engine.options, engine.progress)
        done = carry_out([result.wanted for result in results], writing)
    operations = Operations(done)
    status = diagnostics.status
    with open_report(repair.form, done) as printer:
        for earlier in interrupted:
            printer.say(said_of_interrupted(earlier))
        changed = [
            (result, each)
            for result, each in zip(results, done, strict=True)
            if each.failure is None
        ]
        for result, each in changed:
            for said in said_of_result(result, each, operations, repair):
                printer.say(said)
            status |= status_of(result, each, repair)
        for said in said_of_failed(done):
            printer.say(said)
        printer.say(_summary(changed, repair, time.monotonic() - begin))
    status |= report_failures(done)
    return previewed(status) if repair.dry_run else status


def _require_match(directories: Iterable[LogDirectory], selection: Selection) -> None:
    """Refuse globs that match nothing: they are misspelt."""
    found = list(directories)
    if selection.globs and not any(
        partition in selection for directory in found for partition in directory.partitions
    ):
        paths = " ".join(str(directory.path) for directory in found)
        raise UsageProblem(
            f"no partition in {paths} matches {' '.join(selection.globs)}: kdump ls lists them all"
        )


def said_of_result(
    result: DirectoryResult, done: Done, operations: Operations, repair: RepairArguments
) -> Iterator[Said]:
    """All that is to be said of a log directory."""
    for finding in result.findings:
        yield said_of_finding(finding)
    for partition in result.partitions:
        for finding in partition.findings:
            yield said_of_finding(finding)
        yield _said_of_partition(partition, operations, repair)
    yield _said_of_directory(result, done, operations, repair)


def _said_of_partition(
    result: PartitionResult, operations: Operations, repair: RepairArguments
) -> Said:
    kind, sentence = result.verdict
    path = result.partition.path
    planned = operations.lines(path) if repair.dry_run else []
    lines = []
    if kind == _REFUSED:
        lines.append(f"{path}: left as it is")  # a finding has said why
    elif repair.verbose or planned or kind not in _QUIET:
        lines.append(f"{path}: {sentence if repair.dry_run or result.left else _done(sentence)}")
        if result.left:
            lines.append(f"{path}: left as it is: {result.left.value}")
    lines += planned
    return Said("partition", partition_row(result) | {"operations": operations.rows(path)}, lines)


_WOULD: Final = ("a broker would ", "salvaging would ", "truncating would ")
_NOT_DONE: Final = ("rename it", "load it", "then rename", "then load", "refuse")
"""What only a broker does, and is said of a run as of its preview."""


def _done(sentence: str) -> str:
    """A verdict, as it is said of a partition that was recovered by it."""
    for would in _WOULD:
        before, found, after = sentence.partition(would)
        if found and not after.startswith(_NOT_DONE):
            return f"{before}done: {after.replace('all would hold', 'all of it holds')}"
    return sentence


def _said_of_directory(
    result: DirectoryResult, done: Done, operations: Operations, repair: RepairArguments
) -> Said:
    path = result.directory.path
    lines = list(plan_lines(done))
    if result.directory.is_clean and not result.becomes_clean:
        lines.append(
            f"{path}: the marker of a clean stop {'would go' if repair.dry_run else 'is gone'},"
            " because something is left: the next start, or run, goes through all logs as after a"
            " crash"
        )
    if repair.dry_run:
        lines += operations.lines(path)
    row = {**directory_row(result), **plan_row(done), "operations": operations.rows(path)}
    return Said("directory", row, lines)


def status_of(result: DirectoryResult, done: Done, repair: RepairArguments) -> ExitStatus:
    """How the run ends, as far as it is about one log directory.

    A dry run ends with 1 where there is something to do, and with 4 instead where records would be
    lost, or something is left.
    """
    status = _status_of_run(result)
    if not repair.dry_run:
        return status
    if any(partition.verdict[0] == _LOSS for partition in result.partitions):
        status |= ExitStatus.DAMAGE_LEFT
    is_settled = done.plan.is_empty or result.is_settled
    return previewed(status if is_settled else status | ExitStatus.REPAIRED)


def _status_of_run(result: DirectoryResult) -> ExitStatus:
    """How a run ends that does everything."""
    from kdump.check.invariants import FILE_UNREADABLE
    from kdump.pipeline.recover import Left

    repaired = ExitStatus.REPAIRED
    status = ExitStatus.SOUND
    for partition in result.partitions:
        kind, _ = partition.verdict
        if kind in _DAMAGED:
            status |= ExitStatus.DAMAGE_LEFT if partition.left else repaired
        elif kind == _UNREADABLE:
            status |= ExitStatus.OPERATIONAL_ERROR
        if partition.left is Left.REMOTE_STORAGE:
            status |= ExitStatus.DAMAGE_LEFT
        if any(finding.severity.is_damage for finding in partition.findings):
            status |= ExitStatus.DAMAGE_LEFT
    for finding in result.findings:
        if finding.code == FILE_UNREADABLE.code:
            status |= ExitStatus.OPERATIONAL_ERROR
        elif finding.severity.is_damage:
            status |= repaired if result.ends(finding) else ExitStatus.DAMAGE_LEFT
    return status


def _summary(
    changed: Sequence[tuple[DirectoryResult, Done]],
    repair: RepairArguments,
    seconds: float,
) -> Said:
    from kdump.check.findings import Severity

    partitions = [partition for result, _ in changed for partition in result.partitions]
    verdicts = Counter(partition.verdict[0] for partition in partitions)
    row = {
        "partitions": len(partitions),
        "verdicts": dict(verdicts),
        "left": sum(partition.left is not None for partition in partitions),
        "lost_bytes": sum(each.plan.lost_bytes for _, each in changed),
        "is_dry_run": repair.dry_run,
        "seconds": round(seconds, 3),
    }
    counts = ", ".join(f"{count} {kind}" for kind, count in verdicts.most_common())
    count = format_count(len(partitions), "partition")
    when = "" if repair.dry_run or not any(each.is_applied for _, each in changed) else ", as found"
    lines = [f"{count}{when}: {counts or 'nothing to do'}"]
    severe = sum(
        finding.severity is Severity.SEVERE and not result.ends(finding)
        for result, _ in changed
        for finding in result.findings
    )
    if severe:
        lines.append(
            f"{format_count(severe, 'severe finding')} about log directories: see above what a"
            " broker does"
        )
    return Said("summary", row, lines)
