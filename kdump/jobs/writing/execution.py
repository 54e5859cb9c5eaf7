"""What every writing command does: lock, finish interrupted runs, plan, apply.

A command computes the target state of its directories inside :func:`locked_for_writing`, and hands
it to :func:`plan_and_apply`. A dry run writes nothing, not even the lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from kdump.apply.apply import apply_plan
from kdump.apply.disk_space import with_journal
from kdump.apply.interrupted_runs import finish_interrupted, remove_remains, unfinished
from kdump.apply.journal_preview import Restored
from kdump.apply.lock import hold_locks, refusing_brokers
from kdump.apply.operations import DirectoryPlan
from kdump.apply.plan import Plan, TargetDirectory, make_plan
from kdump.apply.undo import discard
from kdump.errors import KdumpError, reason_of
from kdump.phases import phase
from kdump.storage.location import Location
from kdump.words import counted, undo_command

_NOT_OVERWRITTEN: Final = "all changes are made, but what they replace is not overwritten yet"


class Writing(Struct, frozen=True):
    """How a command writes.

    Attributes:
        command: its name, which the list of undo data shows.
        overwrites: whether it overwrites what it replaces, where it keeps no undo data.
        is_first: whether it has changed nothing before, for messages.
        done: what it has changed so far, also in earlier rounds: each log directory with a sentence
            about it. Copies of this value share the list.
    """

    command: str
    dry_run: bool = False
    keep_undo: bool = True
    overwrites: bool = False
    is_first: bool = True
    done: list[tuple[Path, str]] = field(default_factory=list)


class Interrupted(Struct, frozen=True):
    """An earlier run that was interrupted.

    Attributes:
        is_finished: whether the run is finished now; a dry run does not finish it.
        files: the files that finishing it changes; empty unless this is a dry run.
    """

    log_dir: Path
    command: str
    is_finished: bool
    files: tuple[Restored, ...] = ()


@contextlib.contextmanager
def locked_for_writing(
    locations: Iterable[Location], writing: Writing
) -> Iterator[list[Interrupted]]:
    """Lock log directories and finish interrupted runs; yields those.

    A dry run takes no lock, and refuses what is locked all the same: what a broker changes
    meanwhile would look like damage, and what the command would do now is not what it does once
    the broker has stopped.

    Read the directories inside the context: finishing a run changes them.

    Raises:
        NotLocalError: a directory is not on a local disk.
        LockedError: a broker or another kdump works on a directory.
        KdumpError: an interrupted run cannot be finished.
        OSError: the disk fails.
    """
    locations = list(locations)
    log_dirs = [location.local_path for location in locations]
    if writing.dry_run:
        with refusing_brokers(locations):
            yield [
                Interrupted(log_dir, each.run.command, is_finished=False, files=each.files)
                for log_dir in log_dirs
                for each in unfinished(log_dir)
            ]
        return
    finished: list[Interrupted] = []
    try:
        with hold_locks(log_dirs):
            for log_dir in log_dirs:
                each = finish_interrupted(log_dir)
                if each is not None:
                    finished.append(Interrupted(log_dir, each.command, is_finished=True))
            try:
                yield finished
            finally:
                # Content that was written for a plan that was never applied.
                for log_dir in log_dirs:
                    with contextlib.suppress(KdumpError, OSError):
                        remove_remains(log_dir)
    except BaseException as stop:
        if isinstance(stop, KeyboardInterrupt):
            _note_what_is_done(stop, log_dirs, writing)
        for earlier in finished:
            what = f"an earlier kdump {earlier.command} was interrupted, and was finished first"
            stop.add_note(f"{earlier.log_dir}: {what}")
        raise


def _note_what_is_done(stop: BaseException, log_dirs: Iterable[Path], writing: Writing) -> None:
    """Note on a signal what was changed, if whatever it stopped has not noted that."""
    notes: Sequence[str] = [*getattr(stop, "__notes__", ())]
    lines = [line for _, line in writing.done if line not in notes]
    if lines or not notes:
        changed = {path for path, _ in writing.done}
        lines += (
            f"{log_dir}: nothing was changed"
            for log_dir in log_dirs
            if log_dir not in changed and not any(f"{log_dir}: " in note for note in notes)
        )
    for line in lines:
        stop.add_note(line)
    if writing.done:
        stop.add_note("run the command again: it does what is left to do")


class PlanResult(Struct, frozen=True):
    """The result of a plan.

    Attributes:
        is_applied: whether it was applied; not in a dry run, nor if there was nothing to do.
        undo: the undo ID; None without undo data.
        needed_bytes: the free space that the plan and its journal need before it frees any.
        failure: why the plan was not applied, or only in part, or what it replaced was not
            overwritten; says what changed.
    """

    plan: Plan
    is_applied: bool
    undo: str | None
    needed_bytes: int = 0
    failure: KdumpError | None = None


def plan_and_apply(targets: Sequence[TargetDirectory], writing: Writing) -> list[PlanResult]:
    """Plan the way to each target state, and apply the plans unless this is a dry run.

    All plans are made before the first is applied. A directory that fails does not stop the others:
    its failure is part of its result. If all fail, the last failure is raised. Any other exception,
    such as a signal, has a note on each directory.

    Raises:
        KdumpError: a plan cannot be made, or none can be applied; says what to do.
        OSError: the disk fails.
    """
    with phase("planning the changes", len(targets)) as planning:
        plans = [make_plan(each) for each in planning.over(targets)]
    results: dict[Path, PlanResult] = {}
    # Directories that free space early go first: others may be on the same full disk.
    for plan in sorted(plans, key=lambda plan: writing.keep_undo or not plan.early_removals):
        try:
            with phase(f"changing {plan.path}"):
                results[plan.path] = _applied(plan, writing)
        except KdumpError as failure:
            results[plan.path] = PlanResult(plan, is_applied=False, undo=None, failure=failure)
        except BaseException as stop:
            _add_notes(stop, plans, results, plan)
            raise
    in_order = [results[plan.path] for plan in plans]
    failures = [each.failure for each in in_order if each.failure is not None]
    if failures and not any(each.is_applied for each in in_order):
        for other in failures[:-1]:
            failures[-1].add_note(f"kdump: {other}")
        raise failures[-1]
    return in_order


def preview(targets: Sequence[TargetDirectory], writing: Writing) -> list[PlanResult]:
    """Plan the way to each target state for a dry run.

    Unlike with :func:`plan_and_apply`, a plan that cannot be made is a failure in its result: what
    a broker would do is known all the same.

    Raises:
        OSError: the disk fails.
    """
    with phase("planning the changes", len(targets)) as planning:
        return [_previewed(each, writing) for each in planning.over(targets)]


def _previewed(target: TargetDirectory, writing: Writing) -> PlanResult:
    try:
        return _applied(make_plan(target), writing)
    except KdumpError as failure:
        empty = Plan(target.path, (), DirectoryPlan(target.path, {}, ()))
        return PlanResult(empty, is_applied=False, undo=None, failure=failure)


def outcome_line(result: PlanResult) -> str | None:
    """Say what was changed in a log directory; None if the failure says it."""
    path, count = result.plan.path, len(result.plan.operations)
    if result.failure is not None:
        return None
    if not result.is_applied:
        return f"{path}: nothing was changed"
    what = f"{path}: {counted(count, 'change')} made"
    return what if result.undo is None else f"{what}; to undo: {undo_command(path, result.undo)}"


def _add_notes(
    stop: BaseException, plans: Iterable[Plan], results: Mapping[Path, PlanResult], at: Plan
) -> None:
    """Note on an exception what was changed in each directory but the one where it was raised."""
    for plan in plans:
        each = results.get(plan.path)
        if each is not None:
            line = f"kdump: {each.failure}" if each.failure else outcome_line(each)
            stop.add_note(str(line))
        elif plan is not at:
            stop.add_note(f"{plan.path}: nothing was changed")


def _applied(plan: Plan, writing: Writing) -> PlanResult:
    # What is overwritten has to have a name as long as the run can still fail.
    keep_undo = writing.keep_undo or writing.overwrites
    needed_bytes = with_journal(plan.space_bytes(keep_undo=keep_undo), len(plan.operations))
    if writing.dry_run or plan.is_empty:
        return PlanResult(plan, is_applied=False, undo=None, needed_bytes=needed_bytes)
    undo = apply_plan(
        plan,
        keep_undo=keep_undo,
        command=writing.command,
        is_first=writing.is_first and not writing.done,
    )
    try:
        done = PlanResult(plan, True, undo if writing.keep_undo else None, needed_bytes)
        writing.done.append((plan.path, str(outcome_line(done))))
    except BaseException as stop:  # a signal
        stop.add_note(f"{plan.path}: all changes made")
        raise
    failure = None
    if undo is not None and not writing.keep_undo:
        try:
            discard(plan.path, undo, overwrites=True)
        except OSError as problem:
            failure = KdumpError(
                f"{problem.filename or plan.path}: {reason_of(problem)}; {_NOT_OVERWRITTEN};"
                f" remove the cause and run 'kdump {writing.command} --finish'"
            )
        except BaseException as stop:
            stop.add_note(
                f"{plan.path}: {_NOT_OVERWRITTEN}; run 'kdump {writing.command} --finish'"
            )
            raise
        else:
            undo = None
    return PlanResult(plan, True, undo, needed_bytes, failure)
