"""What every writing command does: lock, finish interrupted runs, plan, apply.

A command computes the target state of its directories inside :func:`locked_for_writing`, and hands
it to :func:`plan_and_apply`. A dry run writes nothing, not even the lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdump.apply.apply import apply_plan
from kdump.apply.interrupted_runs import finish_interrupted, unfinished
from kdump.apply.journal_preview import Restored
from kdump.apply.lock import drop_leftover, hold_locks, keep_leftover
from kdump.apply.plan import Plan, TargetDirectory, make_plan
from kdump.errors import KdumpError
from kdump.phases import phase
from kdump.words import counted


@dataclass(frozen=True, slots=True)
class Writing:
    """How a command is to write.

    Attributes:
        command: its name, for whoever lists what can be undone.
        dry_run: whether it is only to say what it would do.
        keep_undo: whether that can be undone afterwards.
    """

    command: str
    dry_run: bool = False
    keep_undo: bool = True


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An earlier run that was stopped before its end.

    Attributes:
        log_dir: where.
        command: what was run.
        is_finished: whether it is finished now; a dry run leaves it.
        files: which files that changes; only a dry run says it.
    """

    log_dir: Path
    command: str
    is_finished: bool
    files: tuple[Restored, ...] = ()


@contextlib.contextmanager
def locked_for_writing(log_dirs: Sequence[Path], writing: Writing) -> Iterator[list[Interrupted]]:
    """Hold the locks of ``log_dirs``; what an earlier run was stopped at is finished first.

    Look the directories over inside, not before. Gives what was interrupted.

    Raises:
        LockedError: a broker, or another kdump, works on one of them.
        KdumpError: what was interrupted cannot be finished.
        OSError: the disk does not let us.
    """
    if writing.dry_run:
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
                keep_leftover(log_dir)
            for log_dir in log_dirs:
                each = finish_interrupted(log_dir)
                if each is not None:
                    finished.append(Interrupted(log_dir, each.command, is_finished=True))
            yield finished
    except BaseException as stop:
        is_signal = isinstance(stop, KeyboardInterrupt)
        if is_signal and not getattr(stop, "__notes__", ()):
            for log_dir in log_dirs:
                stop.add_note(f"{log_dir}: nothing was changed")
        for earlier in finished:
            what = f"an earlier kdump {earlier.command} was interrupted, and was finished first"
            stop.add_note(f"{earlier.log_dir}: {what}")
        raise


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What became of a plan.

    Attributes:
        plan: which.
        is_applied: whether it was carried out; a dry run does not, and an empty one needs not be.
        undo: by which it can be taken back; None where that is not possible.
        needed_bytes: how much free space it takes before it gives any back.
        failure: why it was not carried out, or not to its end; says what has changed.
    """

    plan: Plan
    is_applied: bool
    undo: str | None
    needed_bytes: int = 0
    failure: KdumpError | None = None


def plan_and_apply(targets: Sequence[TargetDirectory], writing: Writing) -> list[PlanResult]:
    """Let directories become what is wanted, unless the run is a dry one.

    All plans are made before the first is carried out. A directory whose plan fails does not keep
    the others from being changed: its failure is in what is returned, unless all fail. Where
    something else ends the run, such as a signal, notes of that exception say what became of each.

    Raises:
        KdumpError: a plan cannot be made, or none can be carried out; says what to do.
        OSError: the disk does not let us.
    """
    with phase("planning the changes", len(targets)) as planning:
        plans = [make_plan(each) for each in planning.over(targets)]
    done: dict[Path, PlanResult] = {}
    # Directories that can make room on a full disk do so before others need it.
    for plan in sorted(plans, key=lambda plan: writing.keep_undo or not plan.early_removals):
        try:
            with phase(f"changing {plan.path}"):
                done[plan.path] = _carried_out(plan, writing)
        except KdumpError as failure:
            done[plan.path] = PlanResult(plan, is_applied=False, undo=None, failure=failure)
        except BaseException as stop:
            _note(stop, plans, done, plan)
            raise
    in_order = [done[plan.path] for plan in plans]
    failures = [each.failure for each in in_order if each.failure is not None]
    if failures and not any(each.is_applied for each in in_order):
        for other in failures[:-1]:
            failures[-1].add_note(f"kdump: {other}")
        raise failures[-1]
    return in_order


def outcome_of(done: PlanResult) -> str | None:
    """What became of a log directory, for people; None where its failure says so."""
    path, count = done.plan.path, len(done.plan.operations)
    if done.failure is not None:
        return None
    if not done.is_applied:
        return f"{path}: nothing was changed"
    what = f"{path}: {counted(count, 'change')} made"
    return what if done.undo is None else f"{what}; to undo them: kdump undo {path} {done.undo}"


def _note(
    stop: BaseException, plans: Iterable[Plan], done: Mapping[Path, PlanResult], at: Plan
) -> None:
    """Add to an exception what became of each log directory; it says itself where it was."""
    for plan in plans:
        each = done.get(plan.path)
        if each is not None:
            line = f"kdump: {each.failure}" if each.failure else outcome_of(each)
            stop.add_note(str(line))
        elif plan is not at:
            stop.add_note(f"{plan.path}: nothing was changed")


def _carried_out(plan: Plan, writing: Writing) -> PlanResult:
    needed_bytes = plan.space_bytes(keep_undo=writing.keep_undo)
    if writing.dry_run or plan.is_empty:
        return PlanResult(plan, is_applied=False, undo=None, needed_bytes=needed_bytes)
    undo = apply_plan(plan, keep_undo=writing.keep_undo, command=writing.command)
    drop_leftover(plan.path)
    return PlanResult(plan, is_applied=True, undo=undo, needed_bytes=needed_bytes)
